"""Links: the mean of a target, or the probabilities of classes, from linear scores."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erfcx, log_expit, log_ndtr, log_softmax, ndtr

from dpglm._validation import namespace

# Functions of scores that losses and links share, in the dtype and on the device of the scores.

FloatArray: TypeAlias = NDArray[np.floating[Any]]

# Largest z for which exp(z) has a finite square, by the bytes of a number.
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
    """Return ``exp(x)``, also where it overflows."""
    return math.exp(x) if x < 709 else math.inf


def product(x: float, y: float) -> float:
    """Product of numbers of at least 0, possibly infinite: zero if one is zero."""
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


def over_classes(values: FloatArray) -> FloatArray:
    """Sum over K classes, in order; ``numpy.sum`` has another order for a single row."""
    xp = namespace(values)
    total: FloatArray = functools.reduce(np.add, values) if xp is np else xp.sum(values, axis=0)
    return total


def softmax_by_class(z: FloatArray) -> FloatArray:
    """Softmax of each row of ``z``, of shape (n, K), in a new array of shape (K, n)."""
    xp = namespace(z)
    # NumPy: class-major, as reductions over a short last axis cost more than exponentials;
    # this copy is the only n x K array made. Tensors stay row-major, which suits a GPU.
    p: FloatArray = np.array(z.T, order="C") if xp is np else xp.asarray(z, copy=True).T
    p -= xp.max(p, axis=0)
    with np.errstate(under="ignore"):
        xp.exp(p, out=p)
        p /= over_classes(p)
    return p


class Link(abc.ABC):
    """A link function ``g`` with ``g(mean of the target) = z``, given by its inverse.

    It belongs to the loss (``Loss.link``); estimators and saved models predict by it.
    """

    @abc.abstractmethod
    def inverse(self, z: ArrayLike) -> FloatArray:
        """Return the mean of the target at scores of shape (n,) or (n, K); it may be ``z`` itself.

        For binary targets the probability of +1, for classes those of all K.
        """

    def standardization(
        self, low: float, high: float, *, intercept: bool = True
    ) -> tuple[float, float]:
        """Return a shift and a scale of targets that ``original_scores`` can undo.

        Targets lie in ``low`` to ``high``; the shift is subtracted first. 0 and 1 if scores cannot
        undo anything else. Without an ``intercept`` nothing can be added to them.
        """
        return 0.0, 1.0

    def original_scores(self, shift: float, scale: float) -> tuple[float, float]:
        """Return factor and offset from scores of standardized targets to those of the targets."""
        return 1.0, 0.0

    @property
    def exponentiated(self) -> str | None:
        """Name of the exponential of a coefficient, such as "odds ratio"; None without one."""
        return None


class ClassLink(Link):
    """A link with probabilities of classes as means."""

    def probabilities(self, z: ArrayLike) -> FloatArray:
        """Return the probabilities of all classes, (n, 2) or (n, K); rows add up to 1.

        Scores have shape (n,) for two classes or (n, K).
        """
        return self.inverse(z)

    @abc.abstractmethod
    def log_probabilities(self, z: ArrayLike) -> FloatArray:
        """Return the logarithms of ``probabilities``, finite where these merely underflow.

        ``-inf`` for a class that the link excludes.
        """


class BinaryLink(ClassLink):
    """A link of labels -1 and +1 that treats them alike: ``inverse(-z) = 1 - inverse(z)``."""

    @abc.abstractmethod
    def log_inverse(self, z: ArrayLike) -> FloatArray:
        """Return the logarithm of ``inverse``, for scores of any shape."""

    def probabilities(self, z: ArrayLike) -> FloatArray:
        z = as_float(z)
        return np.column_stack([self.inverse(-z), self.inverse(z)])

    def log_probabilities(self, z: ArrayLike) -> FloatArray:
        z = as_float(z)
        return np.column_stack([self.log_inverse(-z), self.log_inverse(z)])


@final
@dataclass(frozen=True)
class IdentityLink(Link):
    """``mean = z``."""

    def inverse(self, z: ArrayLike) -> FloatArray:
        return as_float(z)

    def standardization(
        self, low: float, high: float, *, intercept: bool = True
    ) -> tuple[float, float]:
        if not intercept:
            return 0.0, max(abs(low), abs(high)) or 1.0
        return low / 2.0 + high / 2.0, (high / 2.0 - low / 2.0) or 1.0

    def original_scores(self, shift: float, scale: float) -> tuple[float, float]:
        return scale, shift


@final
@dataclass(frozen=True)
class LogLink(Link):
    """``mean = exp(z)``; constant above z = 40 (float32) or 300 (float64)."""

    exponentiated = "rate ratio"

    def inverse(self, z: ArrayLike) -> FloatArray:
        return limited_exp(as_float(z))

    def standardization(
        self, low: float, high: float, *, intercept: bool = True
    ) -> tuple[float, float]:
        return 0.0, (high or 1.0) if intercept else 1.0

    def original_scores(self, shift: float, scale: float) -> tuple[float, float]:
        # exp(z) predicts y / scale, so z + log(scale) predicts y.
        return 1.0, math.log(scale)


@final
@dataclass(frozen=True)
class LogitLink(BinaryLink):
    """``P(+1) = 1 / (1 + exp(-z))``: the score is the log odds of +1.

    Examples
    --------
    >>> LogitLink().probabilities([0.0]).tolist()
    [[0.5, 0.5]]
    >>> LogitLink().log_probabilities([800.0])[:, 0].tolist()
    [-800.0]
    """

    exponentiated = "odds ratio"

    def inverse(self, z: ArrayLike) -> FloatArray:
        return sigmoid(as_float(z))

    def log_inverse(self, z: ArrayLike) -> FloatArray:
        return np.asarray(log_expit(as_float(z)))


@final
@dataclass(frozen=True)
class ProbitLink(BinaryLink):
    """``P(+1) = Phi(z)``, the normal distribution function."""

    def inverse(self, z: ArrayLike) -> FloatArray:
        return np.asarray(ndtr(as_float(z)))

    def log_inverse(self, z: ArrayLike) -> FloatArray:
        return np.asarray(log_ndtr(as_float(z)))


@final
@dataclass(frozen=True)
class ComplementaryLogLogLink(Link):
    """``mean = 1 - exp(-exp(z))``, a proportion."""

    exponentiated = "hazard ratio"

    def inverse(self, z: ArrayLike) -> FloatArray:
        return -np.expm1(-limited_exp(as_float(z)))


@final
@dataclass(frozen=True)
class TangentLink(BinaryLink):
    """``P(+1) = atan(z) + 1/2``, cut to [0, 1]: the link of the tangent loss."""

    def inverse(self, z: ArrayLike) -> FloatArray:
        return np.clip(np.arctan(as_float(z)) + 0.5, 0, 1)

    def log_inverse(self, z: ArrayLike) -> FloatArray:
        with np.errstate(divide="ignore"):
            result: FloatArray = np.log(self.inverse(z))
        return result


@final
@dataclass(frozen=True)
class SoftmaxLink(ClassLink):
    """``P(k) = exp(z_k) / sum_j exp(z_j)``, the multinomial logit."""

    def inverse(self, z: ArrayLike) -> FloatArray:
        scores = as_float(z)
        if scores.ndim != 2:
            raise ValueError(f"z must have shape (n, K), got {scores.shape}")
        return softmax_by_class(scores).T

    def log_probabilities(self, z: ArrayLike) -> FloatArray:
        return np.asarray(log_softmax(as_float(z), axis=1))


@final
@dataclass(frozen=True)
class OneVsRestLink(ClassLink):
    """Probability of each class against the rest, divided by their sum.

    Where the link excludes every class, those with the largest score share.

    Parameters
    ----------
    link : BinaryLink
        Link of each class's binary model.

    Examples
    --------
    >>> OneVsRestLink(LogitLink()).probabilities([[0.0, 0.0], [-800.0, -900.0]])
    array([[0.5, 0.5],
           [1. , 0. ]])
    >>> OneVsRestLink(LogitLink()).log_probabilities([[-800.0, -900.0]])
    array([[   0., -100.]])
    """

    link: BinaryLink

    def inverse(self, z: ArrayLike) -> FloatArray:
        z = as_float(z)
        own = self.link.inverse(z)
        total = own.sum(axis=1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = own / total
        return np.where(total > 0.0, shares, _shared_by_the_largest(z))

    def log_probabilities(self, z: ArrayLike) -> FloatArray:
        z = as_float(z)
        logs = self.link.log_inverse(z)
        excluded = np.isneginf(logs).all(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            largest = np.log(_shared_by_the_largest(z))
            return np.where(excluded, largest, log_softmax(logs, axis=1))


def _shared_by_the_largest(z: FloatArray) -> FloatArray:
    largest = z == z.max(axis=1, keepdims=True)
    shares: FloatArray = largest.astype(z.dtype)
    shares /= largest.sum(axis=1, keepdims=True)
    return shares
