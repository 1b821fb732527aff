"""Composite transformers: their parts, and which part raised an error."""

from __future__ import annotations

import abc
import contextlib
import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import _get_feature_names, check_array, check_is_fitted

from dpglm._validation import in_one_line
from dpglm.certificate.certificate import Certificate
from dpglm.data.collection import Collection, Output
from dpglm.estimators._predictor import ClassPredictor
from dpglm.inference.inference import Inference
from dpglm.preprocessing.encoders import TableEncoder
from dpglm.problem import ClassLink
from dpglm.solvers.base import Solution
from dpglm.tables.cells import column_in_words, spelled_in
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import finite_matrix
from dpglm.tables.named import by_name

# Estimators whose model is the fitted estimator inside them.


class FittedModel(ClassPredictor):
    """Predicts by the estimator inside it, and shows what that learned once it is fitted."""

    @abc.abstractmethod
    def _inner(self) -> Any:
        """Return the fitted estimator, or before the fit the one that will be."""

    def _transformed(self, X: Any) -> Any:
        """Return rows as the inner estimator takes them."""
        return X

    def _targets(self, X: Any, y: Any) -> Any:
        """Return the targets of rows, which some tables hold themselves."""
        return y

    def _first(self) -> Any:
        """Return what rows come to first."""
        return self._fitted()

    def _fitted(self) -> Any:
        check_is_fitted(self)
        return self._inner()

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of a classifier, sorted."""
        classes: NDArray[Any] = self._fitted().classes_
        return classes

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of the columns that enter the private steps."""
        coef: NDArray[np.float64] = self._fitted().coef_
        return coef

    @property
    def intercept_(self) -> Any:
        """Intercepts."""
        return self._fitted().intercept_

    @property
    def n_iter_(self) -> int:
        """Number of steps of the run, private preprocessing included."""
        return int(self._fitted().n_iter_)

    @property
    def privacy_(self) -> Certificate:
        """The certificate of the whole."""
        certificate: Certificate = self._fitted().privacy_
        return certificate

    @property
    def solution_(self) -> Solution:
        """The plan that was executed, and public diagnostics of each step."""
        solution: Solution = self._fitted().solution_
        return solution

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests, where the estimator was asked for them."""
        inference: Inference = self._fitted().inference_
        return inference

    @property
    def n_features_in_(self) -> int:
        """Number of columns that come in."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns that come in, where they had any."""
        names: NDArray[Any] = self._first().feature_names_in_
        return names

    def _predicted(self, X: Any, output: Output) -> Any:
        return self._fitted()._predicted(self._transformed(X), output)

    def _classifies(self) -> bool:
        classifies: bool = self._inner()._classifies()
        return classifies

    def _answer(self) -> Output:
        output: Output = self._fitted()._answer()
        return output

    def _score(self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any) -> float:
        y, rows = self._targets(X, y), self._transformed(X)
        score: float = self._fitted()._score(rows, y, sample_weight, offset, exposure)
        return score

    def _class_link(self) -> ClassLink:
        link: ClassLink = self._inner()._class_link()
        return link


Children: TypeAlias = list[tuple[str, Any]]
Names: TypeAlias = NDArray[Any] | None
_Run: TypeAlias = tuple[str, Any, Any, Names]
"""A part by its name, the rows that it gets, and the names of their columns."""
_FAILURES = (TypeError, ValueError)


def children(transformer: Any) -> Children:
    """Return the named parts of a composite transformer; none for any other.

    Parts are transformers, ``"drop"`` or ``"passthrough"``; settings that are not lists of such
    parts are a TypeError or ValueError.
    """
    return _children().get(type(transformer), _none)(transformer)


def leaves(transformer: Any, *, inner: bool = False) -> Iterator[Any]:
    """List the parts of a composite transformer at any depth; ``inner``: composite ones, too."""
    parts = [step for _, step in children(transformer) if not isinstance(step, str)]
    if inner or not parts:
        yield transformer
    for step in parts:
        yield from leaves(step, inner=inner)


def named_error(
    name: str, transformer: Any, X: Any, error: Exception, names: Names = None
) -> Exception:
    """Return an error to raise instead of one of a fixed transformer, with the step and the column.

    ``names`` are those of the columns, where the rows have none of their own.
    """
    runs = _runs().get(type(transformer), _nothing)
    # Rows without the columns that a part wants are no part's to complain of.
    with contextlib.suppress(*_FAILURES):
        for part_name, part, rows, its_names in runs(transformer, X, _names_of(X, names)):
            try:
                clone(part).fit(rows).transform(rows)
            except _FAILURES as inner:
                return named_error(f"{name}__{part_name}", part, rows, inner, its_names)
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"step {name!r}: {_cause_in_words(transformer, X, error, _names_of(X, names))}")


def _names_out(transformer: Any, names: Names) -> Names:
    try:
        found: Names = transformer.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
    return found


def names_after(transformers: Sequence[tuple[str, Any]]) -> Names:
    """Name the columns that come out of fitted steps, if every step names its columns."""
    names: Names = getattr(transformers[0][1], "feature_names_in_", None)
    for _, transformer in transformers:
        names = _names_out(transformer, names)
    return names


def units_after(transformers: Sequence[tuple[str, Any]]) -> LinearUnits | None:
    """Return the map to the table's units from the columns that fitted steps make, if it is known.

    It is where one step alone makes them, and that step knows it.
    """
    steps = [step for _, step in transformers if step is not None and step != "passthrough"]
    return steps[0].units() if len(steps) == 1 and isinstance(steps[0], TableEncoder) else None


def named_numbers(X: Any, transformers: Sequence[tuple[str, Any]]) -> Any:
    """Check what fixed steps made of rows while the columns still have names.

    Rows whose columns have names only here are returned as finite numbers; a cell that is none is a
    ValueError with its row and column.
    """
    # Encoders make finite numbers, and their schema has the names.
    is_checked = not transformers or isinstance(transformers[-1][1], TableEncoder)
    if is_checked or _get_feature_names(X) is not None:
        return X
    names = names_after(transformers)
    return finite_matrix(X, lambda **options: (check_array(X, **options), None), names)[0]


def _names_of(X: Any, names: Names) -> Names:
    own: Names = _get_feature_names(X)
    return names if own is None else own


def _cause_in_words(step: Any, X: Any, error: Exception, names: Names) -> str:
    text = " ".join(str(error).split())
    if type(step) in _runs():
        return text
    if type(step) in _encoders():
        if names is None:
            return text
        return re.sub(
            r"\bcolumn (\d+)\b", lambda found: column_in_words(names, int(found[1])), text
        )
    try:
        # What most of them fail on is what no estimator takes.
        finite_matrix(X, lambda **options: (check_array(X, **options), None), names)
    except _FAILURES as cause:
        return str(cause)
    return text


def _none(transformer: Any) -> Children:
    return []


def _nothing(step: Any, X: Any, names: Names) -> Iterator[_Run]:
    return iter(())


def _list(parts: Any) -> Sequence[Any]:
    """Return a list that is the same whenever it is read."""
    if type(parts) not in (list, tuple):
        raise TypeError(f"steps must be a list, got {type(parts).__name__}")
    found: Sequence[Any] = parts
    return found


def _columns_children(transformer: Any) -> Children:
    listed = [(name, step) for name, step, _ in _list(transformer.transformers)]
    return [*listed, ("remainder", transformer.remainder)]


def _columns_runs(transformer: Any, X: Any, names: Names) -> Iterator[_Run]:
    from sklearn.utils import _safe_indexing
    from sklearn.utils._indexing import _get_column_indices

    for name, step, columns in transformer.transformers:
        if not isinstance(step, str):
            its_names = None if names is None else names[_get_column_indices(X, columns)]
            yield name, step, _safe_indexing(X, columns, axis=1), its_names


def _union_runs(transformer: Any, X: Any, names: Names) -> Iterator[_Run]:
    for name, step in children(transformer):
        if not isinstance(step, str):
            yield name, step, X, names


def _pipeline_runs(transformer: Any, X: Any, names: Names) -> Iterator[_Run]:
    for name, step in children(transformer):
        if not isinstance(step, str):
            yield name, step, X, names
            fitted = clone(step).fit(X)
            X, names = fitted.transform(X), _names_out(fitted, names)


def _pipeline_children(transformer: Any) -> Children:
    named = [(name, step) for name, step in _list(transformer.steps)]
    return [(name, "passthrough" if step is None else step) for name, step in named]


@functools.cache
def _children() -> Mapping[type, Callable[[Any], Children]]:
    # Imported when first needed: most of scikit-learn is slow to load.
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import FeatureUnion, Pipeline

    return MappingProxyType(
        {
            ColumnTransformer: _columns_children,
            FeatureUnion: lambda transformer: list(_list(transformer.transformer_list)),
            Pipeline: _pipeline_children,
        }
    )


@functools.cache
def _runs() -> Mapping[type, Callable[[Any, Any, Names], Iterator[_Run]]]:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import FeatureUnion, Pipeline

    return MappingProxyType(
        {ColumnTransformer: _columns_runs, FeatureUnion: _union_runs, Pipeline: _pipeline_runs}
    )


@functools.cache
def _encoders() -> frozenset[type]:
    """List the steps that take values of any kind, and say themselves what is wrong with one."""
    from sklearn.feature_extraction import FeatureHasher
    from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

    from dpglm.preprocessing.encoders import SchemaEncoder, SplineEncoder

    return frozenset({FeatureHasher, OneHotEncoder, OrdinalEncoder, SchemaEncoder, SplineEncoder})


# Tables that an encoder takes: in memory, in Parquet files and on Dask.

_NOT_A_TABLE = (
    "X must be a table whose columns the schema describes, Dask's or ParquetRows of one, or the "
    "path of Parquet files"
)
_TEXTS = (".csv", ".tsv", ".txt")


def is_in_memory(X: Any) -> bool:
    """Whether rows are in memory, unlike those of a Collection or of Dask."""
    return not (isinstance(X, Collection) or type(X).__module__.partition(".")[0] == "dask")


def opened(encoder: TableEncoder, X: Any) -> Any:
    """Check that an encoder can take a table, and open it where it is the path of files."""
    if isinstance(X, str | os.PathLike | Collection):
        # Here, as most tables are in memory.
        from dpglm.data.stream.parquet import ParquetRows

        if not isinstance(X, Collection) and Path(X).suffix.lower() in _TEXTS:
            raise ValueError(
                "X must be of Parquet where it is the path of a file: read text first, as by "
                f"pandas.read_csv, or fit it by dpglm fit; got {in_one_line(X)}"
            )
        rows = X if isinstance(X, Collection) else ParquetRows(X, schema=encoder._schema())
        if isinstance(rows, ParquetRows):
            return rows
        raise ValueError(f"{_NOT_A_TABLE}, got {type(X).__name__}")
    if not is_in_memory(X):
        import dask.dataframe

        if not isinstance(X, dask.dataframe.DataFrame):
            raise ValueError(f"X must be a data frame where it is of Dask, got {in_one_line(X)}")
    else:
        by_name(X, _NOT_A_TABLE)
    return X


def n_rows_of(encoder: TableEncoder, table: Any) -> int:
    """Return the number of rows of a table that was opened."""
    if is_in_memory(table):
        return encoder._schema().count(table)
    n_rows = table.shape[0]
    return int(n_rows if isinstance(table, Collection) else n_rows.compute())


def encoded(encoder: TableEncoder, table: Any, *, fit: bool = False) -> Any:
    """Encode a table that was opened: Parquet as it is read, and Dask in its partitions."""
    if is_in_memory(table):
        return (encoder.fit(table) if fit else encoder).transform(table)
    schema = encoder._schema()
    if fit:
        encoder.fit(dict.fromkeys(schema.column_names, ()))
    if isinstance(table, Collection):
        return table.with_schema(schema)  # type: ignore[attr-defined]
    columns = _columns(table, schema.column_names)
    empty = np.zeros((0, len(schema.feature_names)))
    return table[columns].map_partitions(schema.encode, meta=empty).compute_chunk_sizes()


def targets(encoder: TableEncoder, table: Any, y: Any) -> Any:
    """Return the targets that are given, else those in the column that the schema names."""
    if y is not None or isinstance(table, Collection):
        return y
    schema = encoder._schema()
    if not schema.has_target:
        raise ValueError("y must be given, as the schema describes no target")
    if is_in_memory(table):
        return encoder.target(table)
    column = table[_columns(table, [schema.target.name])[0]]
    like = schema.target.encode(column.head(0))
    return column.map_partitions(schema.encode_target, meta=like).compute_chunk_sizes()


def _columns(frame: Any, names: Sequence[str]) -> list[Any]:
    """Return columns of a frame by the names of the schema, which may be spelled otherwise."""
    spelled = spelled_in(names, frame.columns)
    return [spelled.get(name, name) for name in names]
