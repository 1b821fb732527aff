"""Which transformers are data-independent, hence free of privacy cost."""

from __future__ import annotations

import functools
import math
import numbers
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import in_one_line
from dpglm.estimators.composed._composed import children, leaves
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.encoders import SchemaEncoder, SplineEncoder, stated_schema

__all__ = ["check_alone", "check_fixed", "counts_entries", "known_row_norm", "ready"]

_Reason: TypeAlias = Callable[[Any], str | None]

_WORDS = ("drop", "passthrough")
_DENSE_IF_BELOW = 0.3
"""scikit-learn's default: its users have not asked for it."""


def check_fixed(name: str, transformer: Any) -> None:
    """Check that a transformer is known to be row-wise and data-independent.

    Privacy: a list of classes whose source was read, not a tag or a promise; a subclass is another
    class. Compositions (``ColumnTransformer``, ``FeatureUnion``, ``Pipeline``) map each row by
    itself if each of their parts does, and if nothing else in them looks at rows: not the choice of
    columns, nor that between dense and sparse. By ``FrozenEstimator`` the caller declares that a
    transformer was fitted on public data.
    """
    reason = _why_it_learns(transformer)
    if reason is not None:
        raise ValueError(
            f"step {name!r}, {in_one_line(transformer)}, would learn from private rows, which no "
            f"budget covers: {reason}"
        )


def ready(transformer: Any) -> Any:
    """Return a copy of a fixed transformer whose ``fit`` learns nothing.

    Without the one question that a ``ColumnTransformer`` asks all rows, how many entries are not
    zero: its output is dense. Functions of single numbers keep the names of columns.
    """
    from sklearn.base import clone
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
    """Whether its output format would depend on all rows outside a ``PrivatePipeline``.

    So it is for a ``ColumnTransformer`` with a ``sparse_threshold`` above 0, at any depth.
    """
    from sklearn.compose import ColumnTransformer

    every = leaves(transformer, inner=True)
    return any(type(one) is ColumnTransformer and one.sparse_threshold > 0.0 for one in every)


def known_row_norm(transformer: Any) -> float | None:
    """Return the row-norm bound that a transformer's settings imply, if any."""
    return _row_norms().get(type(transformer), _never)(transformer)


def _why_it_learns(transformer: Any) -> str | None:
    return _fixed().get(type(transformer), _unknown)(transformer)


def check_alone(name: str, transformer: Any, X: Any, transformed: Any) -> None:
    """Check on the first row, before any release, that a frozen transformer is row-wise."""
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils import _safe_indexing

    is_declared = any(type(one) is FrozenEstimator for one in leaves(transformer))
    if not is_declared or not transformed.shape[0]:
        return
    alone = _dense(transformer.transform(_safe_indexing(X, [0])))
    among = _dense(_safe_indexing(transformed, [0]))
    scale = 1e-4 * max(float(np.abs(alone).max(initial=0.0)), 1e-30)
    if alone.shape != among.shape or not np.allclose(alone, among, rtol=0.0, atol=scale):
        raise ValueError(
            f"step {name!r}, {in_one_line(transformer)}, maps a row alone to something else than "
            "among others: it looks at several rows, which no budget covers"
        )


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def _never(transformer: Any) -> None:
    return None


def _unknown(transformer: Any) -> str:
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
    if transformer.func is None or (_is_known_ufunc(transformer.func) and not transformer.kw_args):
        return None
    return (
        "its function may look at several rows; give a ufunc of NumPy or SciPy such as "
        "numpy.log1p without kw_args, or wrap it in sklearn.frozen.FrozenEstimator to declare that "
        "it does not"
    )


def _is_known_ufunc(func: Any) -> bool:
    """Whether a function maps each number by itself: others can make ufuncs that keep a state."""
    from scipy import special

    if not isinstance(func, np.ufunc) or func.nin != 1 or func.signature is not None:
        return False
    return any(getattr(module, func.__name__, None) is func for module in (np, special))


def _if_set(name: str, allowed: str, is_fixed: Callable[[Any], bool]) -> _Reason:
    def reason(transformer: Any) -> str | None:
        value = getattr(transformer, name)
        return None if is_fixed(value) else f"{name} must be {allowed}, got {value!r}"

    return reason


def _is_number(value: Any) -> bool:
    return not isinstance(value, str)


def _unless_categories(transformer: Any) -> str | None:
    if isinstance(transformer.categories, str):
        return f"categories must be given as lists, got {transformer.categories!r}"
    for name in ("min_frequency", "max_categories"):
        if getattr(transformer, name) is not None:
            return f"{name} must be None: it asks how often categories occur"
    return None


def _unless_parts_are_fixed(transformer: Any) -> str | None:
    try:
        parts = children(transformer)
    except (TypeError, ValueError):
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
                f"{in_one_line(columns)}: a function would look at the rows, and even at the types "
                "of columns only (make_column_selector), which one cell can change"
            )
    if transformer.sparse_threshold not in (0.0, _DENSE_IF_BELOW):
        return (
            "sparse_threshold must be 0 or left at its default, which counts as 0, got "
            f"{in_one_line(transformer.sparse_threshold)}: it asks how many entries are not zero"
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


@functools.cache
def _fixed() -> Mapping[type, _Reason]:
    """For each known class, what makes an object of it learn from rows."""
    # Imported when first needed: most of scikit-learn is slow to load.
    from sklearn import (
        compose,
        feature_extraction,
        kernel_approximation,
        pipeline,
        preprocessing,
        random_projection,
    )
    from sklearn.frozen import FrozenEstimator

    components = _if_set("n_components", "a number", _is_number)
    return MappingProxyType(
        {
            FrozenEstimator: _never,
            SchemaEncoder: _never,
            SplineEncoder: _never,
            compose.ColumnTransformer: _unless_columns_are_listed,
            feature_extraction.FeatureHasher: _never,
            kernel_approximation.AdditiveChi2Sampler: _never,
            kernel_approximation.PolynomialCountSketch: _never,
            kernel_approximation.RBFSampler: _if_set("gamma", "a number", _is_number),
            kernel_approximation.SkewedChi2Sampler: _never,
            pipeline.FeatureUnion: _unless_weights_are_numbers,
            pipeline.Pipeline: _unless_steps_are_fixed,
            preprocessing.Binarizer: _never,
            preprocessing.FunctionTransformer: _unless_ufunc,
            preprocessing.Normalizer: _never,
            preprocessing.OneHotEncoder: _unless_categories,
            preprocessing.OrdinalEncoder: _unless_categories,
            preprocessing.PolynomialFeatures: _never,
            preprocessing.SplineTransformer: _if_set("knots", "an array", _is_number),
            random_projection.GaussianRandomProjection: components,
            random_projection.SparseRandomProjection: components,
        }
    )


def _norm_of_parts(transformer: Any) -> float | None:
    """Norm of rows that stand side by side, each times its weight."""
    weights = transformer.transformer_weights or {}
    squares = 0.0
    for name, step in children(transformer):
        if isinstance(step, str) and step == "drop":
            continue
        norm, weight = known_row_norm(step), weights.get(name)
        if norm is None:
            return None
        squares += (norm * (1.0 if weight is None else float(weight))) ** 2
    return math.sqrt(squares) or None


def _norm_of_last(transformer: Any) -> float | None:
    steps = [step for _, step in children(transformer) if step != "passthrough"]
    return known_row_norm(steps[-1]) if steps else None


@functools.cache
def _row_norms() -> Mapping[type, Callable[[Any], float | None]]:
    from sklearn.compose import ColumnTransformer
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.pipeline import FeatureUnion, Pipeline
    from sklearn.preprocessing import Normalizer, OneHotEncoder

    return MappingProxyType(
        {
            ColumnTransformer: _norm_of_parts,
            FeatureUnion: _norm_of_parts,
            Normalizer: lambda transformer: None if transformer.norm == "max" else 1.0,
            # At most one 1 for each column.
            OneHotEncoder: lambda transformer: math.sqrt(len(transformer.categories)),
            Pipeline: _norm_of_last,
            # Each entry is at most sqrt(2 / n_components).
            RBFSampler: lambda transformer: math.sqrt(2.0),
            SchemaEncoder: lambda transformer: stated_schema(transformer).row_norm,
            SplineEncoder: lambda transformer: stated_schema(transformer).row_norm,
        }
    )
