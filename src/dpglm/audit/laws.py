"""The law of one release on one data set, by its declared noise."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "ChoiceLaw",
    "DensityLaw",
    "GaussianLaw",
    "L2Law",
    "Law",
    "UnknownLaw",
    "choice_law",
    "flip_law",
]

_NODES, _WEIGHTS = (np.asarray(part) for part in np.polynomial.legendre.leggauss(64))
_NODES, _WEIGHTS = 0.5 * (_NODES + 1.0), 0.5 * _WEIGHTS
_LEAST = 1e-300


class Law(abc.ABC):
    """The law of one release for an attacker who knows all rows."""

    @abc.abstractmethod
    def log_density(self, value: Any) -> float:
        """Logarithm of the density, or probability, of what was released."""


class DensityLaw(Law):
    """Noise with a density around the exact value."""

    mean: NDArray[np.float64]
    """The exact value."""

    @property
    @abc.abstractmethod
    def reach(self) -> float:
        """Distance from the mean beyond which less than 1e-15 of the probability lies."""

    @abc.abstractmethod
    def log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithm of the density at each row of ``values``."""

    @abc.abstractmethod
    def around(self, mean: NDArray[np.float64]) -> DensityLaw:
        """Return the law of the same noise around another value."""

    @final
    def log_density(self, value: Any) -> float:
        return float(self.log_densities(np.reshape(value, (1, -1)))[0])

    @final
    def distances(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """L2 distance of each row of ``values`` from the mean."""
        away = values - self.mean.ravel()
        lengths: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", away, away))
        return lengths


@final
@dataclass(frozen=True, eq=False)
class GaussianLaw(DensityLaw):
    """Independent Gaussian noise."""

    mean: NDArray[np.float64]
    std: float

    @property
    def reach(self) -> float:
        return 9.0 * self.std

    def around(self, mean: NDArray[np.float64]) -> GaussianLaw:
        return GaussianLaw(mean, self.std)

    def log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        constant = self.mean.size * math.log(self.std * math.sqrt(2.0 * math.pi))
        densities: NDArray[np.float64] = -0.5 * (self.distances(values) / self.std) ** 2 - constant
        return densities


@final
@dataclass(frozen=True, eq=False)
class L2Law(DensityLaw):
    """Noise with a density proportional to ``exp(-|b| / scale)``."""

    mean: NDArray[np.float64]
    scale: float

    @property
    def reach(self) -> float:
        # The length has the law Gamma(m, scale).
        return self.scale * (40.0 + 2.0 * self.mean.size)

    def around(self, mean: NDArray[np.float64]) -> L2Law:
        return L2Law(mean, self.scale)

    def log_densities(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        m = self.mean.size
        sphere = math.log(2.0) + 0.5 * m * math.log(math.pi) - math.lgamma(0.5 * m)
        constant = sphere + math.lgamma(m) + m * math.log(self.scale)
        densities: NDArray[np.float64] = -self.distances(values) / self.scale - constant
        return densities


@final
@dataclass(frozen=True, eq=False)
class ChoiceLaw(Law):
    """A choice: the probability of each candidate, or of each one in runs of these lengths."""

    probabilities: NDArray[np.float64]
    lengths: NDArray[np.int64] | None = None

    @property
    def masses(self) -> NDArray[np.float64]:
        """Probability of each candidate, or of each run of them."""
        return self.probabilities if self.lengths is None else self.probabilities * self.lengths

    def log_density(self, value: Any) -> float:
        position = int(value)
        if self.lengths is not None:
            position = int(np.searchsorted(np.cumsum(self.lengths), position, side="right"))
        return math.log(max(float(self.probabilities[position]), _LEAST))


@final
@dataclass(frozen=True)
class UnknownLaw(Law):
    """A release of unknown density, which adds nothing to a likelihood ratio."""

    def log_density(self, value: Any) -> float:
        return 0.0


def choice_law(
    scores: ArrayLike, sensitivity: float, epsilon: float, lengths: ArrayLike | None = None
) -> ChoiceLaw:
    """Return the law of the exponential mechanism; lower scores are better.

    Scores have the shape (candidates,); ``lengths`` says how many candidates share each.
    """
    p = _heads(scores, sensitivity, epsilon)
    if lengths is None:
        return ChoiceLaw(p / p.sum())
    counts = np.asarray(lengths, dtype=np.int64)
    return ChoiceLaw(p / float(p @ counts), counts)


def flip_law(scores: ArrayLike, sensitivity: float, epsilon: float) -> ChoiceLaw:
    """Return the law of permute-and-flip.

    Let every candidate come at a uniform time and be taken with its chance p if none was before.
    Then candidate r is taken with probability ``p[r] int_0^1 prod_{j != r} (1 - t p[j]) dt``; a
    polynomial, which 64 nodes integrate exactly up to degree 127.
    """
    p = _heads(scores, sensitivity, epsilon)
    stay = 1.0 - np.outer(_NODES, p)
    every = np.prod(stay, axis=1)
    found = np.array([_WEIGHTS @ (every / stay[:, r]) for r in range(p.size)]) * p
    return ChoiceLaw(found / found.sum())


def _heads(scores: ArrayLike, sensitivity: float, epsilon: float) -> NDArray[np.float64]:
    q = np.asarray(scores, dtype=np.float64)
    heads: NDArray[np.float64] = np.exp(-0.5 * epsilon / sensitivity * (q - q.min()))
    return heads
