"""Links: how the mean of a target, or the probabilities of classes, follow from linear scores."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit, log_ndtr, log_softmax, ndtr

from dpglm.problem._functions import (
    FloatArray,
    as_float,
    limited_exp,
    sigmoid,
    softmax_by_class,
)

__all__ = [
    "BinaryLink",
    "ClassLink",
    "ComplementaryLogLogLink",
    "IdentityLink",
    "Link",
    "LogLink",
    "LogitLink",
    "OneVsRestLink",
    "ProbitLink",
    "SoftmaxLink",
    "TangentLink",
]


class Link(abc.ABC):
    """A link function ``g`` with ``g(mean of the target) = z``, given by its inverse.

    It is a part of the loss (``Loss.link``), and there only: estimators and saved models predict
    by it.
    """

    @abc.abstractmethod
    def inverse(self, z: ArrayLike) -> FloatArray:
        """Return the mean of the target at the scores.

        Parameters
        ----------
        z : array_like of float, shape (n,) or (n, K)
            Linear scores.

        Returns
        -------
        ndarray of float, shape of z
            May be ``z`` itself. For binary targets the probability of +1, for classes those of
            all K.
        """

    def standardization(
        self, low: float, high: float, *, intercept: bool = True
    ) -> tuple[float, float]:
        """Return a shift and a scale of targets that ``original_scores`` can undo.

        Parameters
        ----------
        low, high : float
            Range of the targets.
        intercept : bool, default=True
            Whether scores have an intercept; without one, nothing can be added to them.

        Returns
        -------
        shift, scale : float
            What is subtracted from targets, and what they are divided by afterwards: 0 and 1 if
            scores cannot undo anything else.
        """
        return 0.0, 1.0

    def original_scores(self, shift: float, scale: float) -> tuple[float, float]:
        """Return the affine map from scores of standardized targets to those of the targets.

        Parameters
        ----------
        shift, scale : float
            As ``standardization`` returned them.

        Returns
        -------
        factor, offset : float
            What scores are multiplied by, and what is then added.
        """
        return 1.0, 0.0

    @property
    def exponentiated(self) -> str | None:
        """What the exponential of a coefficient is called, such as "odds ratio"; None: nothing."""
        return None


class ClassLink(Link):
    """A link whose means are probabilities of classes."""

    @abc.abstractmethod
    def probabilities(self, z: ArrayLike) -> FloatArray:
        """Return the probabilities of all classes.

        Parameters
        ----------
        z : array_like of float, shape (n,) for two classes or (n, K)
            Linear scores.

        Returns
        -------
        ndarray of float, shape (n, 2) or (n, K)
            Rows add up to 1.
        """

    @abc.abstractmethod
    def log_probabilities(self, z: ArrayLike) -> FloatArray:
        """Return the logarithms of ``probabilities``, finite where these merely underflow.

        Parameters
        ----------
        z : array_like of float, shape (n,) for two classes or (n, K)
            Linear scores.

        Returns
        -------
        ndarray of float, shape (n, 2) or (n, K)
            ``-inf`` for a class that the link excludes.
        """


class BinaryLink(ClassLink):
    """A link of labels -1 and +1 that treats them alike: ``inverse(-z) = 1 - inverse(z)``."""

    @abc.abstractmethod
    def log_inverse(self, z: ArrayLike) -> FloatArray:
        """Return the logarithm of ``inverse``.

        Parameters
        ----------
        z : array_like of float, any shape
            Linear scores.

        Returns
        -------
        ndarray of float, shape of z
        """

    def probabilities(self, z: ArrayLike) -> FloatArray:
        z = as_float(z)
        return np.column_stack([self.inverse(-z), self.inverse(z)])

    def log_probabilities(self, z: ArrayLike) -> FloatArray:
        z = as_float(z)
        return np.column_stack([self.log_inverse(-z), self.log_inverse(z)])


@final
@dataclass(frozen=True)
class IdentityLink(Link):
    """``mean = z``.

    Examples
    --------
    >>> IdentityLink().inverse([1.5]).tolist()
    [1.5]
    """

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
    """``mean = exp(z)``; constant above z = 40 (float32) or 300 (float64).

    Examples
    --------
    >>> LogLink().inverse([0.0]).tolist()
    [1.0]
    """

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
    """``P(+1) = Phi(z)``, the normal distribution function.

    Examples
    --------
    >>> ProbitLink().inverse([0.0]).tolist()
    [0.5]
    """

    def inverse(self, z: ArrayLike) -> FloatArray:
        return np.asarray(ndtr(as_float(z)))

    def log_inverse(self, z: ArrayLike) -> FloatArray:
        return np.asarray(log_ndtr(as_float(z)))


@final
@dataclass(frozen=True)
class ComplementaryLogLogLink(Link):
    """``mean = 1 - exp(-exp(z))``, a proportion.

    Examples
    --------
    >>> ComplementaryLogLogLink().inverse([-800.0, 0.0]).round(4).tolist()
    [0.0, 0.6321]
    """

    exponentiated = "hazard ratio"

    def inverse(self, z: ArrayLike) -> FloatArray:
        return -np.expm1(-limited_exp(as_float(z)))


@final
@dataclass(frozen=True)
class TangentLink(BinaryLink):
    """``P(+1) = atan(z) + 1/2``, cut to [0, 1]: the link of the tangent loss.

    Examples
    --------
    >>> TangentLink().probabilities([0.0, 1.0]).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """

    def inverse(self, z: ArrayLike) -> FloatArray:
        return np.clip(np.arctan(as_float(z)) + 0.5, 0, 1)

    def log_inverse(self, z: ArrayLike) -> FloatArray:
        with np.errstate(divide="ignore"):
            result: FloatArray = np.log(self.inverse(z))
        return result


@final
@dataclass(frozen=True)
class SoftmaxLink(ClassLink):
    """``P(k) = exp(z_k) / sum_j exp(z_j)``, the multinomial logit.

    Examples
    --------
    >>> SoftmaxLink().probabilities([[0.0, 0.0]]).tolist()
    [[0.5, 0.5]]
    """

    def inverse(self, z: ArrayLike) -> FloatArray:
        scores = as_float(z)
        if scores.ndim != 2:
            raise ValueError(f"z must have shape (n, K), got {scores.shape}")
        return softmax_by_class(scores).T

    def probabilities(self, z: ArrayLike) -> FloatArray:
        return self.inverse(z)

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

    def probabilities(self, z: ArrayLike) -> FloatArray:
        return self.inverse(z)

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
