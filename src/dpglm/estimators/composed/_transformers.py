"""Data-independent transformers: the known classes, their parts, and errors that name a part."""

from __future__ import annotations

import contextlib
import functools
import math
import numbers
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils._indexing import _get_column_indices
from sklearn.utils.validation import _get_feature_names, check_array

from dpglm._validation import in_one_line
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.encoders import SchemaEncoder, SplineEncoder, TableEncoder
from dpglm.tables.cells import column_in_words
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import finite_matrix

Steps: TypeAlias = Sequence[tuple[str, Any]]
Names: TypeAlias = NDArray[Any] | None
_Runs: TypeAlias = Iterator[tuple[str, Any, Any, Names]]

_WORDS = ("drop", "passthrough")
_FAILURES = (TypeError, ValueError)
_DENSE_IF_BELOW = 0.3
"""scikit-learn's default of ``sparse_threshold``."""


@final
@dataclass(frozen=True)
class _Known:
    """Facts about a class of transformers, from reading its source.

    ``learns`` returns the reason for which an object would learn from rows, or None; ``row_norm``
    the row-norm bound that its settings imply; ``parts`` the named parts of a composition, and
    ``runs`` each part with its rows and the names of their columns. ``names_cells`` says that its
    own errors name the offending cell.
    """

    learns: Callable[[Any], str | None] = lambda transformer: None
    row_norm: Callable[[Any], float | None] = lambda transformer: None
    parts: Callable[[Any], Steps] = lambda transformer: ()
    runs: Callable[[Any, Any, Names], _Runs] | None = None
    names_cells: bool = False


_UNKNOWN = _Known()


def check_fixed(name: str, transformer: Any) -> None:
    """Check that a transformer is known to be row-wise and data-independent.

    Privacy: the test is a list of classes that were reviewed, not a tag; a subclass is another
    class. Compositions (``ColumnTransformer``, ``FeatureUnion``, ``Pipeline``) map each row by
    itself if all parts do and nothing else reads rows: neither the choice of columns nor that
    between dense and sparse. With ``FrozenEstimator`` the caller declares that a transformer was
    fitted on public data.
    """
    reason = _why_it_learns(transformer)
    if reason is not None:
        raise ValueError(
            f"step {name!r}, {in_one_line(transformer)}, would learn from private rows without "
            f"spending budget: {reason}"
        )


def ready(transformer: Any) -> Any:
    """Return a copy of a fixed transformer with a ``fit`` that learns nothing.

    A ``ColumnTransformer`` does not count the nonzero entries of all rows: its output is dense.
    Functions of single numbers keep the names of columns.
    """
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import FunctionTransformer

    copy = clone(transformer)
    for one in leaves(copy, inner=True):
        if type(one) is ColumnTransformer:
            one.sparse_threshold = 0.0
        if type(one) is FunctionTransformer and one.feature_names_out is None:
            one.feature_names_out = "one-to-one"
    return copy


def counts_entries(transformer: Any) -> bool:
    """Whether a ``ColumnTransformer`` at any depth chooses between dense and sparse by all rows."""
    from sklearn.compose import ColumnTransformer

    every = leaves(transformer, inner=True)
    return any(type(one) is ColumnTransformer and one.sparse_threshold > 0.0 for one in every)


def known_row_norm(transformer: Any) -> float | None:
    """Return the row-norm bound that a transformer's settings imply, if any."""
    return _kind(transformer).row_norm(transformer)


def check_alone(name: str, transformer: Any, X: Any, transformed: Any) -> None:
    """Check on the first row, before any release, that a frozen transformer is row-wise."""
    from sklearn.frozen import FrozenEstimator

    is_declared = any(type(one) is FrozenEstimator for one in leaves(transformer))
    if not is_declared or not transformed.shape[0]:
        return
    alone = _dense(transformer.transform(_safe_indexing(X, [0])))
    among = _dense(_safe_indexing(transformed, [0]))
    scale = 1e-4 * max(float(np.abs(alone).max(initial=0.0)), 1e-30)
    if alone.shape != among.shape or not np.allclose(alone, among, rtol=0.0, atol=scale):
        raise ValueError(
            f"step {name!r}, {in_one_line(transformer)}, maps a row differently alone and among "
            "others, so it reads several rows without spending budget"
        )


def leaves(transformer: Any, *, inner: bool = False) -> Iterator[Any]:
    """List the parts of a composition at any depth; with ``inner`` also the compositions."""
    parts = [step for _, step in _kind(transformer).parts(transformer) if not isinstance(step, str)]
    if inner or not parts:
        yield transformer
    for step in parts:
        yield from leaves(step, inner=inner)


def named_error(
    name: str, transformer: Any, X: Any, error: Exception, names: Names = None
) -> Exception:
    """Return an error with the step and the column in place of that of a fixed transformer.

    ``names`` are those of the columns if the rows have none.
    """
    runs, own = _kind(transformer).runs, _get_feature_names(X)
    names = names if own is None else own
    # Rows without the columns that a part wants are an error of the whole.
    with contextlib.suppress(*_FAILURES):
        for part_name, part, rows, its_names in () if runs is None else runs(transformer, X, names):
            try:
                clone(part).fit(rows).transform(rows)
            except _FAILURES as inner:
                return named_error(f"{name}__{part_name}", part, rows, inner, its_names)
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"step {name!r}: {_cause_in_words(transformer, X, error, names)}")


def names_after(transformers: Steps) -> Names:
    """Return the names of the columns after fitted steps, if every step names its columns."""
    names: Names = getattr(transformers[0][1], "feature_names_in_", None)
    for _, transformer in transformers:
        names = _names_out(transformer, names)
    return names


def units_after(transformers: Steps) -> LinearUnits | None:
    """Return the map to the table's units if a single step, an encoder, makes the columns."""
    steps = [step for _, step in transformers if step is not None and step != "passthrough"]
    return steps[0].units() if len(steps) == 1 and isinstance(steps[0], TableEncoder) else None


def named_numbers(X: Any, transformers: Steps) -> Any:
    """Check the output of fixed steps while its columns have names.

    Rows without names of their own are returned as finite numbers; any other cell is a ValueError
    with its row and column.
    """
    # Encoders return finite numbers, and their schema has the names.
    is_checked = not transformers or isinstance(transformers[-1][1], TableEncoder)
    if is_checked or _get_feature_names(X) is not None:
        return X
    return _finite(X, names_after(transformers))


def _finite(X: Any, names: Names) -> Any:
    return finite_matrix(X, lambda **options: (check_array(X, **options), None), names)[0]


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def _names_out(transformer: Any, names: Names) -> Names:
    try:
        found: Names = transformer.get_feature_names_out(names)
    except (AttributeError, ValueError):
        return None
    return found


def _cause_in_words(step: Any, X: Any, error: Exception, names: Names) -> str:
    text, known = " ".join(str(error).split()), _kind(step)
    if known.runs is not None:
        return text
    if known.names_cells:
        if names is None:
            return text
        return re.sub(
            r"\bcolumn (\d+)\b", lambda found: column_in_words(names, int(found[1])), text
        )
    try:
        # Most errors are about cells that are not finite numbers.
        _finite(X, names)
    except _FAILURES as cause:
        return str(cause)
    return text


# Reasons for which transformers would learn from rows.


def _why_it_learns(transformer: Any) -> str | None:
    known = _kind(transformer)
    if known is not _UNKNOWN:
        return known.learns(transformer)
    if isinstance(transformer, Preprocessor):
        return (
            "it is a private step, which learns from whole rows: put it after the fixed "
            "transformers in a PrivatePipeline, not into one of them"
        )
    return (
        "it is not among the transformers that are known to learn nothing; put a private step "
        "(dpglm.preprocessing) in its place, or fit it on public data and wrap it in "
        "sklearn.frozen.FrozenEstimator"
    )


def _unless_ufunc(transformer: Any) -> str | None:
    from scipy import special

    func = transformer.func
    # A function that maps each number by itself; other ufuncs can have a state.
    is_known = isinstance(func, np.ufunc) and func.nin == 1 and func.signature is None
    is_known = is_known and any(getattr(one, func.__name__, None) is func for one in (np, special))
    if func is None or (is_known and not transformer.kw_args):
        return None
    return (
        "its function may read several rows; give a ufunc of NumPy or SciPy such as "
        "numpy.log1p without kw_args, or wrap it in sklearn.frozen.FrozenEstimator to declare that "
        "it does not"
    )


def _unless_set(name: str, allowed: str) -> Callable[[Any], str | None]:
    def reason(transformer: Any) -> str | None:
        value = getattr(transformer, name)
        return f"{name} must be {allowed}, got {value!r}" if isinstance(value, str) else None

    return reason


def _unless_categories(transformer: Any) -> str | None:
    if isinstance(transformer.categories, str):
        return f"categories must be given as lists, got {transformer.categories!r}"
    for name in ("min_frequency", "max_categories"):
        if getattr(transformer, name) is not None:
            return f"{name} must be None, as it counts categories"
    return None


def _unless_parts_are_fixed(transformer: Any) -> str | None:
    try:
        parts = _kind(transformer).parts(transformer)
    except _FAILURES:
        return "its steps must be a list, of steps with their names (and columns)"
    for name, step in parts:
        if isinstance(step, str) and step in _WORDS:
            continue
        reason = _why_it_learns(step)
        if reason is not None:
            return f"its step {name!r}, {in_one_line(step)}: {reason}"
    return None


def _unless_weights_are_numbers(transformer: Any) -> str | None:
    weights = transformer.transformer_weights
    values = weights.values() if isinstance(weights, Mapping) else [weights]
    if all(weight is None or isinstance(weight, numbers.Real) for weight in values):
        return _unless_parts_are_fixed(transformer)
    return f"transformer_weights must be a dict of numbers or None, got {in_one_line(weights)}"


def _unless_columns_are_listed(transformer: Any) -> str | None:
    reason = _unless_weights_are_numbers(transformer)
    if reason is not None:
        return reason
    for name, _, columns in transformer.transformers:
        if not _is_list_of_columns(columns):
            return (
                f"its step {name!r} must list its columns, by names or numbers, got "
                f"{in_one_line(columns)}: a function would read the rows, and even the types of "
                "columns (make_column_selector) depend on single cells"
            )
    if transformer.sparse_threshold not in (0.0, _DENSE_IF_BELOW):
        return (
            "sparse_threshold must be 0 or left at its default, which counts as 0, got "
            f"{in_one_line(transformer.sparse_threshold)}: it counts the nonzero entries of all "
            "rows"
        )
    return None


def _is_list_of_columns(columns: Any) -> bool:
    if isinstance(columns, str | numbers.Integral | slice):
        return True
    if not isinstance(columns, list | tuple | np.ndarray):
        return False
    return all(isinstance(one, str | numbers.Integral | np.bool_) for one in columns)


def _unless_steps_are_fixed(transformer: Any) -> str | None:
    if transformer.memory is not None:
        return "memory must be None: a cache on disk would keep private rows"
    return _unless_parts_are_fixed(transformer)


# Parts of compositions, and row norms.


def _list(parts: Any) -> Sequence[Any]:
    """Check that parts are a list, which reads the same each time."""
    if type(parts) not in (list, tuple):
        raise TypeError(f"steps must be a list, got {type(parts).__name__}")
    found: Sequence[Any] = parts
    return found


def _column_parts(transformer: Any) -> Steps:
    listed = [(name, step) for name, step, _ in _list(transformer.transformers)]
    return [*listed, ("remainder", transformer.remainder)]


def _pipeline_parts(transformer: Any) -> Steps:
    named = [(name, step) for name, step in _list(transformer.steps)]
    return [(name, "passthrough" if step is None else step) for name, step in named]


def _column_runs(transformer: Any, X: Any, names: Names) -> _Runs:
    for name, step, columns in transformer.transformers:
        if not isinstance(step, str):
            its_names = None if names is None else names[_get_column_indices(X, columns)]
            yield name, step, _safe_indexing(X, columns, axis=1), its_names


def _union_runs(transformer: Any, X: Any, names: Names) -> _Runs:
    for name, step in _list(transformer.transformer_list):
        if not isinstance(step, str):
            yield name, step, X, names


def _pipeline_runs(transformer: Any, X: Any, names: Names) -> _Runs:
    for name, step in _pipeline_parts(transformer):
        if not isinstance(step, str):
            yield name, step, X, names
            fitted = clone(step).fit(X)
            X, names = fitted.transform(X), _names_out(fitted, names)


def _norm_of_parts(transformer: Any) -> float | None:
    """Return the norm of concatenated rows, each times its weight."""
    weights = transformer.transformer_weights or {}
    squares = 0.0
    for name, step in _kind(transformer).parts(transformer):
        if isinstance(step, str) and step == "drop":
            continue
        norm, weight = known_row_norm(step), weights.get(name)
        if norm is None:
            return None
        squares += (norm * (1.0 if weight is None else float(weight))) ** 2
    return math.sqrt(squares) or None


def _norm_of_last(transformer: Any) -> float | None:
    steps = [step for _, step in _pipeline_parts(transformer) if step != "passthrough"]
    return known_row_norm(steps[-1]) if steps else None


def _kind(transformer: Any) -> _Known:
    return _kinds().get(type(transformer), _UNKNOWN)


@functools.cache
def _kinds() -> Mapping[type, _Known]:
    # Imported when needed: most of scikit-learn is slow to load.
    from sklearn import (
        compose,
        feature_extraction,
        kernel_approximation,
        pipeline,
        preprocessing,
        random_projection,
    )
    from sklearn.frozen import FrozenEstimator

    encoder = _Known(row_norm=lambda one: one.stated_schema().row_norm, names_cells=True)
    projection = _Known(_unless_set("n_components", "a number"))
    return MappingProxyType(
        {
            FrozenEstimator: _Known(),
            SchemaEncoder: encoder,
            SplineEncoder: encoder,
            compose.ColumnTransformer: _Known(
                _unless_columns_are_listed, _norm_of_parts, _column_parts, _column_runs
            ),
            feature_extraction.FeatureHasher: _Known(names_cells=True),
            kernel_approximation.AdditiveChi2Sampler: _Known(),
            kernel_approximation.PolynomialCountSketch: _Known(),
            kernel_approximation.RBFSampler: _Known(
                # Each entry is at most sqrt(2 / n_components).
                _unless_set("gamma", "a number"),
                lambda transformer: math.sqrt(2.0),
            ),
            kernel_approximation.SkewedChi2Sampler: _Known(),
            pipeline.FeatureUnion: _Known(
                _unless_weights_are_numbers,
                _norm_of_parts,
                lambda transformer: _list(transformer.transformer_list),
                _union_runs,
            ),
            pipeline.Pipeline: _Known(
                _unless_steps_are_fixed, _norm_of_last, _pipeline_parts, _pipeline_runs
            ),
            preprocessing.Binarizer: _Known(),
            preprocessing.FunctionTransformer: _Known(_unless_ufunc),
            preprocessing.Normalizer: _Known(
                row_norm=lambda transformer: None if transformer.norm == "max" else 1.0
            ),
            preprocessing.OneHotEncoder: _Known(
                _unless_categories,
                # At most a single 1 per column.
                lambda transformer: math.sqrt(len(transformer.categories)),
                names_cells=True,
            ),
            preprocessing.OrdinalEncoder: _Known(_unless_categories, names_cells=True),
            preprocessing.PolynomialFeatures: _Known(),
            preprocessing.SplineTransformer: _Known(_unless_set("knots", "an array")),
            random_projection.GaussianRandomProjection: projection,
            random_projection.SparseRandomProjection: projection,
        }
    )
