"""Arrays of NumPy, or of a library with the Array API."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_host", "contiguous", "finite", "like", "namespace", "rounded_up", "weighted"]


def namespace(x: Any) -> Any:
    """Return the functions for arrays like ``x``: NumPy, or the Array API namespace of torch.

    Code for both uses the standard, and beyond it only what both have: ``out=``, ``einsum``,
    ``reciprocal`` and the like.
    """
    if type(x).__module__.partition(".")[0] != "torch":
        return np
    try:
        import array_api_compat.torch
    except ImportError:
        raise ImportError(
            "tensors need the package array-api-compat: pip install 'dpglm[torch]'"
        ) from None
    return array_api_compat.torch


def like(x: Any, values: Any, dtype: Any = None) -> Any:
    """Return values as an array like ``x``, on the same device; not copied needlessly."""
    xp = namespace(x)
    if xp is not np and isinstance(values, np.ndarray):
        # Tensors share memory with arrays of this kind only.
        values = np.require(values, requirements=["C", "W"])
    return xp.asarray(values, dtype=dtype, device=x.device)


def finite(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with zero for what is not finite; the same array where everything is."""
    xp = namespace(values)
    # One pass that a NaN or an infinity anywhere cannot leave finite.
    if not xp.isfinite(values.sum()):
        values = xp.where(xp.isfinite(values), values, 0.0)
    return values


def weighted(slopes: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[Any]:
    """Multiply finite slopes, of shape (rows,) or (rows, outputs), by weights; in place.

    Privacy: a slope that overflows counts as zero, so that its row contributes nothing. It could be
    within its bound only if the row were so short that the product fits again.
    """
    if weights is None:
        return slopes
    slopes *= weights if slopes.ndim == 1 else weights[:, np.newaxis]
    return finite(slopes)


def rounded_up(values: Any, dtype: Any) -> Any:
    """Return upper bounds on values in another type."""
    xp = namespace(values)
    rounded = xp.asarray(values, dtype=dtype)
    return xp.nextafter(rounded, xp.full_like(rounded, math.inf))


def contiguous(x: Any) -> Any:
    """Return an array with its rows one after the other in memory; not copied needlessly."""
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()


def as_host(x: Any) -> Any:
    """Return a NumPy array with the values of ``x``; not copied needlessly."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.cpu())
