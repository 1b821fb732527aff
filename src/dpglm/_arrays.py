"""Whose arrays an array is one of: NumPy's, or those of a library with the Array API."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["as_host", "contiguous", "finite", "like", "namespace", "rounded_up", "weighted"]


def namespace(x: Any) -> Any:
    """Return the functions for arrays like ``x``.

    Parameters
    ----------
    x : array_like
        An array, or a list of numbers.

    Returns
    -------
    module
        ``numpy``, or the Array API namespace of torch for its tensors.

    Raises
    ------
    ImportError
        If the package that makes torch follow the standard is missing.

    Notes
    -----
    Code for both uses what the standard says, and of what is beyond it ``out=``, ``einsum``,
    ``reciprocal`` and the like, which both have.

    Examples
    --------
    >>> namespace(np.ones(2)) is np
    True
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
    """Return values as an array of the kind of ``x``, where ``x`` is; not copied needlessly.

    Parameters
    ----------
    x : array
        What the result is to be combined with.
    values : array_like
        Numbers, on the host or where ``x`` is.
    dtype : dtype, optional
        Of the result; that of the values by default.

    Returns
    -------
    array
    """
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
    """Multiply clipped slopes by weights; in place where nothing overflows.

    Parameters
    ----------
    slopes : array of shape (rows,) or (rows, outputs)
        Finite slopes.
    weights : array of shape (rows,), optional
        Finite weights; ones by default.

    Returns
    -------
    array, shape of slopes

    Notes
    -----
    Privacy: a slope that overflows counts as zero, so that its row contributes nothing. It could
    be within its bound only if the row were so short that the product fits again.
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
