"""Mechanisms that are not Gaussian throughout, as numerical accountants see them."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import final

from dpglm.privacy.accounting.losses.laws import (
    LossLaw,
    add_law,
    bounded_range_law,
    laplace_law,
    pure_law,
    remove_law,
)
from dpglm.privacy.accounting.losses.mixture_laws import (
    chi_nodes,
    line_law,
    plane_law,
    projected_law,
    sampled_projected_laws,
)

__all__ = [
    "BoundedRangePiece",
    "LaplacePiece",
    "PerturbedPiece",
    "Piece",
    "ProjectedPiece",
    "PurePiece",
    "SampledPiece",
    "SampledProjectedPiece",
]


class Piece(abc.ABC):
    """One mechanism, run ``count`` times."""

    count: int

    @abc.abstractmethod
    def laws(self) -> tuple[LossLaw, LossLaw]:
        """Return the privacy losses of removing and of adding a row; one object if they agree."""

    @abc.abstractmethod
    def variance(self) -> float:
        """Give the size of the variance of one loss."""

    @abc.abstractmethod
    def span(self) -> float:
        """Give the length of the interval that one loss hardly ever leaves."""

    @property
    def largest_atom(self) -> float:
        """The largest loss that has a probability of its own; 0 if there is none."""
        return 0.0

    @property
    def pure_epsilon(self) -> Fraction | None:
        """Epsilon of pure differential privacy of all ``count`` runs, or None if there is none."""
        return None

    @property
    def plain_square(self) -> float:
        """Without sampling all runs together are mu-GDP with this ``mu^2``."""
        return math.inf


@final
@dataclass(frozen=True)
class SampledPiece(Piece):
    """Poisson-sampled Gaussian mechanism."""

    rate: float
    sigma: float
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        return (
            remove_law(self.rate, self.sigma, self.count),
            add_law(self.rate, self.sigma, self.count),
        )

    def variance(self) -> float:
        return _sampled_variance(self.rate, self.sigma)

    def span(self) -> float:
        return 13.0 / self.sigma + 0.5 / self.sigma**2

    @property
    def plain_square(self) -> float:
        return self.count / self.sigma**2


@final
@dataclass(frozen=True)
class LaplacePiece(Piece):
    """Laplace mechanism."""

    scale: float
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        law = laplace_law(self.scale, self.count)
        return law, law

    def variance(self) -> float:
        return min(self.scale**-2, 2.0 / self.scale)

    def span(self) -> float:
        return 2.0 / self.scale

    @property
    def largest_atom(self) -> float:
        return 1.0 / self.scale

    @property
    def pure_epsilon(self) -> Fraction:
        return self.count / Fraction(self.scale)


@final
@dataclass(frozen=True)
class PurePiece(Piece):
    """Any mechanism that is epsilon-DP."""

    epsilon: float
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        law = pure_law(self.epsilon, self.count)
        return law, law

    def variance(self) -> float:
        return (self.epsilon / math.cosh(0.5 * min(self.epsilon, 60.0))) ** 2

    def span(self) -> float:
        return 2.0 * self.epsilon

    @property
    def largest_atom(self) -> float:
        return self.epsilon

    @property
    def pure_epsilon(self) -> Fraction:
        return self.count * Fraction(self.epsilon)


@final
@dataclass(frozen=True)
class BoundedRangePiece(Piece):
    """Exponential mechanism."""

    epsilon: float
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        law = bounded_range_law(self.epsilon, self.count)
        return law, law

    def variance(self) -> float:
        return min(self.epsilon**2 / 3.0, 4.0)

    def span(self) -> float:
        return 2.0 * self.epsilon

    @property
    def pure_epsilon(self) -> Fraction:
        return self.count * Fraction(self.epsilon)


@final
@dataclass(frozen=True)
class PerturbedPiece(Piece):
    """Objective perturbation: a loss of at most ``shift + slope^2/2 + slope V``.

    Parameters
    ----------
    shift : float
        Logarithm of 1 + the curvature ratio.
    slope : float
        Sensitivity over standard deviation of the linear term.
    replaced : bool
        Whether a row is replaced by another: two rows and their plane, and no difference
        between the orders of the data sets.
    count : int
        At least 1.
    """

    shift: float
    slope: float
    replaced: bool
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        if self.replaced:
            law = plane_law(self.shift, self.slope, self.count)
            return law, law
        return (
            line_law(self.shift, self.slope, self.count),
            line_law(0.0, self.slope, self.count),
        )

    def variance(self) -> float:
        return 0.36 * self.slope**2

    def span(self) -> float:
        return 13.0 * self.slope


@final
@dataclass(frozen=True)
class ProjectedPiece(Piece):
    """Gaussian mechanism after a public random projection."""

    dimension: int
    sigma: float
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        law = projected_law(self.dimension, self.sigma, self.count)
        return law, law

    def variance(self) -> float:
        return self.sigma**-2 + 0.5 / (self.dimension * self.sigma**4)

    def span(self) -> float:
        return 26.0 * float(chi_nodes(self.dimension, self.sigma).mus[-1])


@final
@dataclass(frozen=True)
class SampledProjectedPiece(Piece):
    """Gaussian mechanism after a public random projection, on a Poisson sample."""

    rate: float
    dimension: int
    sigma: float
    count: int

    def laws(self) -> tuple[LossLaw, LossLaw]:
        return sampled_projected_laws(self.rate, self.dimension, self.sigma, self.count)

    def variance(self) -> float:
        return _sampled_variance(self.rate, self.sigma)

    def span(self) -> float:
        largest = float(chi_nodes(self.dimension, self.sigma).mus[-1])
        return 13.0 * largest + 0.5 * largest**2


def _sampled_variance(rate: float, sigma: float) -> float:
    jump = 1.0 / sigma + 0.5 / sigma**2
    spread = rate * math.sqrt(math.expm1(min(sigma**-2, 50.0)))
    return min(spread, math.sqrt(rate) * jump) ** 2
