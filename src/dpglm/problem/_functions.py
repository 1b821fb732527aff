"""Functions of scores that losses and links share, in the dtype and on the device of the scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx

from dpglm._arrays import namespace

__all__ = [
    "EXPONENT_LIMIT",
    "FloatArray",
    "as_float",
    "exp_or_inf",
    "exp_or_zero",
    "exp_with_tangent",
    "increasing_root",
    "limited_exp",
    "product",
    "scaled_erfc",
    "sigmoid",
    "softmax_by_class",
]

FloatArray: TypeAlias = NDArray[np.floating[Any]]

# Largest z whose exp(z) has a finite square, by the bytes of a number.
EXPONENT_LIMIT = MappingProxyType({4: 40.0, 8: 300.0})

# Enough for double precision in a range of a million.
_HALVINGS = 75


def as_float(z: ArrayLike) -> FloatArray:
    """``z`` itself if it is an array of float32 or float64, else as float64."""
    xp = namespace(z)
    array: FloatArray = xp.asarray(z)
    if array.dtype in (xp.float32, xp.float64):
        return array
    wide: FloatArray = xp.asarray(array, dtype=xp.float64)
    return wide


def sigmoid(m: FloatArray) -> FloatArray:
    """``1 / (1 + exp(-m))`` to full relative precision at both ends, in a new array.

    NumPy's exponential is vectorised and about three times as fast as ``scipy.special.expit``.
    """
    xp = namespace(m)
    e: FloatArray = xp.negative(m)
    # Overflow to inf is right here: the quotient is then 0.
    with np.errstate(over="ignore", under="ignore"):
        xp.exp(e, out=e)
        e += 1
        xp.reciprocal(e, out=e)
    return e


def limited_exp(z: FloatArray) -> FloatArray:
    """``exp(z)``, constant above ``EXPONENT_LIMIT``, in a new array."""
    xp = namespace(z)
    e: FloatArray = xp.minimum(z, EXPONENT_LIMIT[z.itemsize])
    with np.errstate(under="ignore"):
        xp.exp(e, out=e)
    return e


def exp_with_tangent(z: FloatArray) -> FloatArray:
    """``exp(z)``, continued by its tangent above ``EXPONENT_LIMIT``, in a new array.

    Its derivatives are ``limited_exp`` and ``exp_or_zero``.
    """
    e = limited_exp(z)
    e *= 1 + np.maximum(z - EXPONENT_LIMIT[z.itemsize], 0)
    return e


def exp_or_zero(z: FloatArray) -> FloatArray:
    """``exp(z)``, and 0 above ``EXPONENT_LIMIT``, in a new array."""
    e = limited_exp(z)
    e *= z <= EXPONENT_LIMIT[z.itemsize]
    return e


def exp_or_inf(x: float) -> float:
    """``exp(x)``, also where it overflows."""
    return math.exp(x) if x < 709 else math.inf


def product(x: float, y: float) -> float:
    """Product of numbers of at least 0, one of which may be infinite: zero if one is zero."""
    return x * y if x and y else 0.0


def scaled_erfc(z: FloatArray) -> FloatArray:
    """``exp(z^2) erfc(z)``, which overflows to inf far below 0, in a new array."""
    if namespace(z) is np:
        return np.asarray(erfcx(z))
    import torch

    scaled: FloatArray = torch.special.erfcx(z)
    return scaled


def increasing_root(
    function: Callable[[FloatArray], FloatArray], value: FloatArray, low: ArrayLike, high: ArrayLike
) -> FloatArray:
    """Find where an elementwise increasing function has the values, within low and high."""
    left = np.array(np.broadcast_to(low, value.shape), dtype=np.float64)
    right = np.array(np.broadcast_to(high, value.shape), dtype=np.float64)
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        below = function(middle) < value
        np.copyto(left, middle, where=below)
        np.copyto(right, middle, where=~below)
    return ((left + right) / 2).astype(value.dtype)


def softmax_by_class(z: FloatArray) -> FloatArray:
    """Softmax of each row of ``z``, of shape (n, K), in a new array of shape (K, n)."""
    xp = namespace(z)
    # NumPy: class-major, as reductions over a short last axis cost more than exponentials;
    # this copy is the only n x K array made. Tensors stay row-major, which suits a GPU.
    p: FloatArray = np.array(z.T, order="C") if xp is np else xp.asarray(z, copy=True).T
    p -= xp.max(p, axis=0)
    with np.errstate(under="ignore"):
        xp.exp(p, out=p)
        p /= xp.sum(p, axis=0)
    return p
