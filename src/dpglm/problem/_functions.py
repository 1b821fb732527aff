"""Functions of scores that losses and links share, in the dtype and on the device of the scores."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._arrays import namespace

__all__ = [
    "EXPONENT_LIMIT",
    "FloatArray",
    "as_float",
    "limited_exp",
    "sigmoid",
    "softmax_by_class",
]

FloatArray: TypeAlias = NDArray[np.floating[Any]]

# Largest z whose exp(z) has a finite square, by the bytes of a number.
EXPONENT_LIMIT = MappingProxyType({4: 40.0, 8: 300.0})


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
    e: FloatArray = np.negative(m)
    # Overflow to inf is right here: the quotient is then 0.
    with np.errstate(over="ignore", under="ignore"):
        np.exp(e, out=e)
        e += 1
        np.reciprocal(e, out=e)
    return e


def limited_exp(z: FloatArray) -> FloatArray:
    """``exp(z)``, constant above ``EXPONENT_LIMIT``, in a new array."""
    xp = namespace(z)
    e: FloatArray = xp.minimum(z, EXPONENT_LIMIT[z.itemsize])
    with np.errstate(under="ignore"):
        xp.exp(e, out=e)
    return e


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
