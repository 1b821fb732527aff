"""Schedules: factors on a step size or on noise, functions of the step alone."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real

__all__ = [
    "MOST_LEVELS",
    "Constant",
    "Exponential",
    "Given",
    "InverseSqrt",
    "LinearDecay",
    "Schedule",
    "in_levels",
]

MOST_LEVELS = 32
"""Most distinct noises of a run."""


class Schedule(abc.ABC):
    """How step sizes, or noise, change over a run. Public: it never sees data."""

    @abc.abstractmethod
    def factors(self, n_steps: int) -> NDArray[np.float64]:
        """Factors for steps 1, ..., n_steps, each in (0, 1], the largest one 1."""


@final
@dataclass(frozen=True)
class Constant(Schedule):
    """Every step has the same size.

    Examples
    --------
    >>> Constant().factors(2)
    array([1., 1.])
    """

    def factors(self, n_steps: int) -> NDArray[np.float64]:
        return np.ones(n_steps)


@final
@dataclass(frozen=True)
class LinearDecay(Schedule):
    """Steps shrink linearly towards zero at the end, which averages the noise of the last ones.

    Parameters
    ----------
    fraction : float, default=1.0
        Share of the steps that shrink, in (0, 1]; those before them have one size.

    Examples
    --------
    >>> LinearDecay().factors(4)
    array([1.  , 0.75, 0.5 , 0.25])
    >>> LinearDecay(fraction=0.5).factors(4)
    array([1. , 1. , 1. , 0.5])
    """

    fraction: float = 1.0

    def __post_init__(self) -> None:
        check_real("fraction", self.fraction, above=0.0, most=1.0)

    def factors(self, n_steps: int) -> NDArray[np.float64]:
        left = 1.0 - np.arange(n_steps) / n_steps
        factors: NDArray[np.float64] = np.minimum(left / self.fraction, 1.0)
        return factors


@final
@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Step k is ``1 / sqrt(k)``, for Lipschitz losses that are not smooth, or noise that fades.

    Examples
    --------
    >>> InverseSqrt().factors(4)[[0, 3]]
    array([1. , 0.5])
    """

    def factors(self, n_steps: int) -> NDArray[np.float64]:
        factors: NDArray[np.float64] = 1.0 / np.sqrt(np.arange(1, n_steps + 1))
        return factors


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

    def factors(self, n_steps: int) -> NDArray[np.float64]:
        return np.geomspace(1.0, self.final, n_steps) if n_steps > 1 else np.ones(1)


@final
@dataclass(frozen=True)
class Given(Schedule):
    """Factors listed one by one.

    Parameters
    ----------
    values : tuple of float
        One for each step, above 0, in any unit: the largest counts as 1.

    Examples
    --------
    >>> Given((4.0, 2.0, 4.0)).factors(3)
    array([1. , 0.5, 1. ])
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        values = tuple(check_real("values", value, above=0.0) for value in self.values)
        object.__setattr__(self, "values", values)

    def factors(self, n_steps: int) -> NDArray[np.float64]:
        if len(self.values) != n_steps:
            raise ValueError(
                f"values must be one for each of the {n_steps} steps, got {len(self.values)}"
            )
        values = np.array(self.values)
        factors: NDArray[np.float64] = values / values.max()
        return factors


def in_levels(factors: NDArray[np.float64], levels: int) -> NDArray[np.float64]:
    """Round factors above 0 to at most so many levels, a constant ratio apart.

    Each stays within half a ratio; the smallest and the largest are kept, and so are all if there
    are few enough.

    >>> in_levels(np.array([1.0, 0.8, 0.3, 0.25]), 3)
    array([1.  , 1.  , 0.25, 0.25])
    """
    check_integer("levels", levels, least=2)
    if len(np.unique(factors)) <= levels:
        return factors
    low, high = factors.min(), factors.max()
    places = np.rint(np.log(factors / low) / np.log(high / low) * (levels - 1)).astype(np.intp)
    return np.asarray(np.geomspace(low, high, levels)[places])
