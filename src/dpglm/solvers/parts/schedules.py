"""Schedules of step sizes and noise, the returned iterate, and lifts of projected gradients."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import check_integer, check_real
from dpglm.oracle.projection import GaussianMatrix
from dpglm.solvers.uncertainty import Floats

MOST_LEVELS = 32
"""Largest number of distinct noises of a run."""


class Schedule(abc.ABC):
    """The change of step sizes, or of noise, over a run; it never depends on data."""

    @abc.abstractmethod
    def factors(self, n_steps: int) -> Floats:
        """Return factors for steps 1, ..., n_steps, each in (0, 1], the largest one 1."""


@final
@dataclass(frozen=True)
class Constant(Schedule):
    """Every step has the same size."""

    def factors(self, n_steps: int) -> Floats:
        return np.ones(n_steps)


@final
@dataclass(frozen=True)
class LinearDecay(Schedule):
    """Steps shrink linearly towards zero at the end, which averages the noise of the last ones.

    Parameters
    ----------
    fraction : float, default=1.0
        Share of the steps that shrink, in (0, 1]; the others have one size.

    Examples
    --------
    >>> LinearDecay(fraction=0.5).factors(4)
    array([1. , 1. , 1. , 0.5])
    """

    fraction: float = 1.0

    def __post_init__(self) -> None:
        check_real("fraction", self.fraction, above=0.0, most=1.0)

    def factors(self, n_steps: int) -> Floats:
        left = 1.0 - np.arange(n_steps) / n_steps
        return np.minimum(left / self.fraction, 1.0)


@final
@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Step k has size ``1 / sqrt(k)``, for Lipschitz losses, or fading noise."""

    def factors(self, n_steps: int) -> Floats:
        return 1.0 / np.sqrt(np.arange(1, n_steps + 1))


@final
@dataclass(frozen=True)
class Exponential(Schedule):
    """Steps shrink by a constant ratio, down to ``final`` of the first at the last.

    Parameters
    ----------
    final : float, default=0.01
        Ratio of the last step size to the first, in (0, 1].

    Examples
    --------
    >>> Exponential(final=0.25).factors(3)
    array([1.  , 0.5 , 0.25])
    """

    final: float = 0.01

    def __post_init__(self) -> None:
        check_real("final", self.final, above=0.0, most=1.0)

    def factors(self, n_steps: int) -> Floats:
        return np.geomspace(1.0, self.final, n_steps) if n_steps > 1 else np.ones(1)


@checked
@final
@dataclass(frozen=True)
class Given(Schedule):
    """Factors listed one by one.

    Parameters
    ----------
    values : tuple of float
        One for each step, above 0, relative to the largest.

    Examples
    --------
    >>> Given((4.0, 2.0, 4.0)).factors(3)
    array([1. , 0.5, 1. ])
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(check_real("values", value, above=0.0) for value in self.values)
        object.__setattr__(self, "values", values)

    def factors(self, n_steps: int) -> Floats:
        if len(self.values) != n_steps:
            raise ValueError(
                f"values must be one for each of the {n_steps} steps, got {len(self.values)}"
            )
        values = np.array(self.values)
        return np.asarray(values / values.max())


def in_levels(factors: Floats, levels: int) -> Floats:
    """Round factors above 0 to at most this many levels, a constant ratio apart.

    Each stays within half a ratio; the smallest and the largest are kept, and all if they are few
    enough.

    >>> in_levels(np.array([1.0, 0.8, 0.3, 0.25]), 3)
    array([1.  , 1.  , 0.25, 0.25])
    """
    check_integer("levels", levels, least=2)
    if len(np.unique(factors)) <= levels:
        return factors
    low, high = factors.min(), factors.max()
    places = np.rint(np.log(factors / low) / np.log(high / low) * (levels - 1)).astype(np.intp)
    return np.asarray(np.geomspace(low, high, levels)[places])


class Output(abc.ABC):
    """The weights of iterates 1, ..., T in the returned parameter."""

    @abc.abstractmethod
    def weights(self, n_steps: int, uniform: float) -> Floats:
        """Return weights of the iterates that sum to one.

        ``uniform`` is a random number in [0, 1), drawn once for each run from its noise source.
        """


@final
@dataclass(frozen=True)
class Last(Output):
    """The last iterate; privacy amplification by iteration may apply."""

    def weights(self, n_steps: int, uniform: float) -> Floats:
        weights = np.zeros(n_steps)
        weights[-1] = 1.0
        return weights


@final
@dataclass(frozen=True)
class UniformAverage(Output):
    """The mean of all iterates (Song et al. 2021, Algorithm 1; Arora et al. 2022, Algorithm 1)."""

    def weights(self, n_steps: int, uniform: float) -> Floats:
        return np.full(n_steps, 1.0 / n_steps)


@final
@dataclass(frozen=True)
class TailAverage(Output):
    """The mean of the last iterates.

    Parameters
    ----------
    fraction : float, default=0.5
        Share of the iterates that enter, in (0, 1]; at least one iterate.
    """

    fraction: float = 0.5

    def __post_init__(self) -> None:
        check_real("fraction", self.fraction, above=0.0, most=1.0)

    def weights(self, n_steps: int, uniform: float) -> Floats:
        count = math.ceil(self.fraction * n_steps)
        weights = np.zeros(n_steps)
        weights[n_steps - count :] = 1.0 / count
        return weights


@final
@dataclass(frozen=True)
class RandomIterate(Output):
    """An iterate chosen uniformly at random, independently of data.

    References
    ----------
    Wang, Ye and Xu, "Differentially private empirical risk minimization revisited", NIPS 2017,
    section 6.2 (non-convex losses).
    """

    def weights(self, n_steps: int, uniform: float) -> Floats:
        weights = np.zeros(n_steps)
        weights[int(uniform * n_steps)] = 1.0
        return weights


@final
@dataclass(frozen=True)
class Transpose:
    """``A r / sqrt(p)``, as D2P2-SGD does; needs no memory for A."""

    def gradient(self, matrix: GaussianMatrix, values: Floats) -> Floats:
        """Estimate g, of shape (m,), without bias, from noisy ``A^T g / sqrt(p)``, of shape (p,).

        ``matrix`` is A, with m rows and p columns.
        """
        return matrix.lift(values)

    def noise_growth(self, rows: int, columns: int) -> float:
        """Return the mean square of the estimate's noise over that of the values', per coordinate.

        ValueError if the noise is unbounded for this shape of matrix.
        """
        return 1.0


@final
@dataclass(frozen=True)
class LeastSquares:
    """The shortest g with ``A^T g / sqrt(p)`` nearest to r, times ``max(1, m/p)``.

    The factor compensates for the part outside of A's columns. Needs A in memory and ``m p min(m,
    p)`` operations.

    References
    ----------
    Kasiviswanathan, "SGD with low-dimensional gradients with applications to private and
    distributed learning", UAI 2021, has a convex set in place of "shortest".
    """

    def gradient(self, matrix: GaussianMatrix, values: Floats) -> Floats:
        """Estimate g as ``Transpose.gradient``."""
        seen = math.sqrt(matrix.columns) * values
        shortest = np.asarray(np.linalg.lstsq(matrix.dense().T, seen)[0], dtype=np.float64)
        return max(1.0, matrix.rows / matrix.columns) * shortest

    def noise_growth(self, rows: int, columns: int) -> float:
        """Return the growth of noise as ``Transpose.noise_growth``."""
        # Means of inverse Wishart matrices.
        if abs(rows - columns) < 2:
            raise ValueError(
                f"dimension must differ from the number of coefficients, {rows}, by at least 2 for "
                f"a least-squares lift, got {columns!r}"
            )
        if columns < rows:
            return rows / (rows - columns - 1)
        return columns / (columns - rows - 1)


Lift: TypeAlias = Transpose | LeastSquares
"""An unbiased estimate of a gradient from its random projection."""
