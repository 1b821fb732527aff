"""Models of transformed rows: predictions by the fitted estimator inside, and their tables."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import in_one_line
from dpglm.certificate.certificate import Certificate
from dpglm.data.collection import Collection, Output
from dpglm.estimators._predictor import ClassPredictor
from dpglm.inference.inference import Inference
from dpglm.preprocessing.encoders import TableEncoder
from dpglm.problem import ClassLink
from dpglm.solvers.base import Solution
from dpglm.tables.cells import spelled_in
from dpglm.tables.named import by_name


class FittedModel(ClassPredictor):
    """Predicts by the fitted estimator inside it, and has the fitted attributes of that."""

    @abc.abstractmethod
    def _inner(self) -> Any:
        """Return the fitted estimator, or before the fit the unfitted one."""

    def _transformed(self, X: Any) -> Any:
        """Return rows as the inner estimator takes them."""
        return X

    def _targets(self, X: Any, y: Any) -> Any:
        """Return the targets of rows, given or in a column of the table."""
        return y

    def _first(self) -> Any:
        """Return the first step that takes the rows."""
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
        """Coefficients of the columns after the fixed transformers."""
        coef: NDArray[np.float64] = self._fitted().coef_
        return coef

    @property
    def intercept_(self) -> Any:
        """Intercepts."""
        return self._fitted().intercept_

    @property
    def n_iter_(self) -> int:
        """Number of steps, private preprocessing included."""
        return int(self._fitted().n_iter_)

    @property
    def privacy_(self) -> Certificate:
        """The certificate of the whole fit."""
        certificate: Certificate = self._fitted().privacy_
        return certificate

    @property
    def solution_(self) -> Solution:
        """The plan that was executed, and public diagnostics of each step."""
        solution: Solution = self._fitted().solution_
        return solution

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests, if requested."""
        inference: Inference = self._fitted().inference_
        return inference

    @property
    def n_features_in_(self) -> int:
        """Number of input columns."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the input columns, if any."""
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


# Tables that an encoder takes: in memory, in Parquet files and on Dask.

_NOT_A_TABLE = (
    "X must be a table with the columns of the schema (also Dask or ParquetRows), or the path of "
    "Parquet files"
)
_TEXTS = (".csv", ".tsv", ".txt")


def is_in_memory(X: Any) -> bool:
    """Whether rows are in memory, unlike those of a Collection or of Dask."""
    return not (isinstance(X, Collection) or type(X).__module__.partition(".")[0] == "dask")


def opened(encoder: TableEncoder, X: Any) -> Any:
    """Check that an encoder can take a table, and open it if it is the path of files."""
    if isinstance(X, str | os.PathLike | Collection):
        # Imported when needed, as most tables are in memory.
        from dpglm.data.stream.parquet import ParquetRows

        if not isinstance(X, Collection) and Path(X).suffix.lower() in _TEXTS:
            raise ValueError(
                "X must be the path of Parquet files or a table: read text first, as with "
                f"pandas.read_csv, or use dpglm fit; got {in_one_line(X)}"
            )
        rows = X if isinstance(X, Collection) else ParquetRows(X, schema=encoder._schema())
        if isinstance(rows, ParquetRows):
            return rows
        raise ValueError(f"{_NOT_A_TABLE}, got {type(X).__name__}")
    if not is_in_memory(X):
        import dask.dataframe

        if not isinstance(X, dask.dataframe.DataFrame):
            raise ValueError(f"X must be a data frame if it is of Dask, got {in_one_line(X)}")
    else:
        by_name(X, _NOT_A_TABLE)
    return X


def n_rows_of(encoder: TableEncoder, table: Any) -> int:
    """Return the number of rows of an opened table."""
    if is_in_memory(table):
        return encoder._schema().count(table)
    n_rows = table.shape[0]
    return int(n_rows if isinstance(table, Collection) else n_rows.compute())


def encoded(encoder: TableEncoder, table: Any, *, fit: bool = False) -> Any:
    """Encode an opened table: Parquet as it is read, and Dask in its partitions."""
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
    """Return the given targets, else those in the column that the schema names."""
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
    """Return the frame's spelling of the schema's column names."""
    spelled = spelled_in(names, frame.columns)
    return [spelled.get(name, name) for name in names]
