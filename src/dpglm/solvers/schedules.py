"""Step-size schedules: the factor on the first step size, a function of the step alone."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real

__all__ = ["Constant", "Exponential", "InverseSqrt", "LinearDecay", "Schedule"]


class Schedule(abc.ABC):
    """How step sizes change over a run. Public: it never sees data."""

    @abc.abstractmethod
    def factors(self, n_steps: int) -> NDArray[np.float64]:
        """Factors for steps 1, ..., n_steps, each in (0, 1], the first one 1."""


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
    """Steps shrink linearly towards zero, which averages the noise of the last ones.

    Examples
    --------
    >>> LinearDecay().factors(4)
    array([1.  , 0.75, 0.5 , 0.25])
    """

    def factors(self, n_steps: int) -> NDArray[np.float64]:
        return 1.0 - np.arange(n_steps) / n_steps


@final
@dataclass(frozen=True)
class InverseSqrt(Schedule):
    """Step k is ``1 / sqrt(k)``, for Lipschitz losses that are not smooth.

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
