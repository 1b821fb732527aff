"""Which transformers learn nothing from rows, so that they cost no privacy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.preprocessing.oriented_gradients import OrientedGradients
from dpglm.preprocessing.random_fourier import RandomFourierFeatures
from dpglm.preprocessing.schema_encoder import SchemaEncoder, parsed_schema

__all__ = ["check_alone", "check_fixed", "known_row_norm"]

_Reason: TypeAlias = Callable[[Any], str | None]


def check_fixed(name: str, transformer: Any) -> None:
    """Check that a transformer is known to map each row by itself and to learn from none.

    Parameters
    ----------
    name : str
        Name of the step.
    transformer : object
        With all settings.

    Raises
    ------
    ValueError
        If it would learn from rows, or nobody knows that it would not.

    Notes
    -----
    Privacy: a list of classes whose source was read, not a tag or a promise; a subclass is
    another class. ``FrozenEstimator`` is the way for the caller to declare that a transformer
    was fitted on public data.
    """
    reason = _fixed().get(type(transformer), _unknown)(transformer)
    if reason is not None:
        raise ValueError(
            f"step {name!r}, {transformer!r}, would learn from private rows what nobody paid "
            f"for: {reason}"
        )


def known_row_norm(transformer: Any) -> float | None:
    """Return the bound on the L2 norm of its rows that a transformer's settings imply, if any."""
    return _row_norms().get(type(transformer), _never)(transformer)


def check_alone(name: str, transformer: Any, X: Any, transformed: Any) -> None:
    """Check on the first row that a frozen transformer maps it alone as among the others.

    Parameters
    ----------
    name : str
        Name of the step.
    transformer : object
        Fitted.
    X, transformed : table or matrix
        Rows before and after.

    Raises
    ------
    ValueError
        If it does not; nothing has been released then.
    """
    from sklearn.frozen import FrozenEstimator
    from sklearn.utils import _safe_indexing

    if type(transformer) is not FrozenEstimator or not transformed.shape[0]:
        return
    alone = _dense(transformer.transform(_safe_indexing(X, [0])))
    among = _dense(_safe_indexing(transformed, [0]))
    scale = 1e-4 * max(float(np.abs(alone).max(initial=0.0)), 1e-30)
    if alone.shape != among.shape or not np.allclose(alone, among, rtol=0.0, atol=scale):
        raise ValueError(
            f"step {name!r}, {transformer!r}, maps a row alone to something else than among "
            "others: it looks at several rows, which nobody paid for"
        )


def _dense(X: Any) -> NDArray[Any]:
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)


def _never(transformer: Any) -> None:
    return None


def _unknown(transformer: Any) -> str:
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


@functools.cache
def _fixed() -> Mapping[type, _Reason]:
    """For each known class, what makes an object of it learn from rows."""
    # Imported when first needed: most of scikit-learn is slow to load.
    from sklearn import feature_extraction, kernel_approximation, preprocessing, random_projection
    from sklearn.frozen import FrozenEstimator

    components = _if_set("n_components", "a number", _is_number)
    return MappingProxyType(
        {
            FrozenEstimator: _never,
            OrientedGradients: _never,
            RandomFourierFeatures: _never,
            SchemaEncoder: _never,
            feature_extraction.FeatureHasher: _never,
            kernel_approximation.AdditiveChi2Sampler: _never,
            kernel_approximation.PolynomialCountSketch: _never,
            kernel_approximation.RBFSampler: _if_set("gamma", "a number", _is_number),
            kernel_approximation.SkewedChi2Sampler: _never,
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


@functools.cache
def _row_norms() -> Mapping[type, Callable[[Any], float | None]]:
    from sklearn.preprocessing import Normalizer

    return MappingProxyType(
        {
            Normalizer: lambda transformer: None if transformer.norm == "max" else 1.0,
            OrientedGradients: lambda transformer: 1.0,
            RandomFourierFeatures: lambda transformer: 1.0,
            SchemaEncoder: lambda transformer: parsed_schema(transformer.schema).row_norm,
        }
    )
