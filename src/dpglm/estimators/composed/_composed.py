"""Composite transformers: their parts, and which part raised an error."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import _get_feature_names, check_array

from dpglm.tables.finite import column_in_words
from dpglm.tables.units import LinearUnits
from dpglm.tables.user_matrix import finite_matrix

__all__ = ["children", "leaves", "named_error", "named_numbers", "names_after", "units_after"]

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
    from dpglm.preprocessing.table_encoder import TableEncoder

    steps = [step for _, step in transformers if step is not None and step != "passthrough"]
    return steps[0].units() if len(steps) == 1 and isinstance(steps[0], TableEncoder) else None


def named_numbers(X: Any, transformers: Sequence[tuple[str, Any]]) -> Any:
    """Check what fixed steps made of rows while the columns still have names.

    Rows whose columns have names only here are returned as finite numbers; a cell that is none is a
    ValueError with its row and column.
    """
    if not transformers or _get_feature_names(X) is not None:
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

    from dpglm.preprocessing.schema_encoder import SchemaEncoder
    from dpglm.preprocessing.spline_encoder import SplineEncoder

    return frozenset({FeatureHasher, OneHotEncoder, OrdinalEncoder, SchemaEncoder, SplineEncoder})
