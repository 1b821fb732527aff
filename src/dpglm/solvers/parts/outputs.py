"""Which of the iterates is returned: the last, an average, or a random one."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real

__all__ = ["Last", "Output", "RandomIterate", "TailAverage", "UniformAverage"]


class Output(abc.ABC):
    """The weights with which iterates 1, ..., T enter the returned parameter."""

    @abc.abstractmethod
    def weights(self, n_steps: int, uniform: float) -> NDArray[np.float64]:
        """Weights that sum to one.

        Parameters
        ----------
        n_steps : int
            Number of iterates.
        uniform : float
            A random number in [0, 1), drawn once for each run from the run's noise source.
        """


@final
@dataclass(frozen=True)
class Last(Output):
    """The last iterate.

    Notes
    -----
    Privacy: if nothing else is released, privacy amplification by iteration may apply.

    Examples
    --------
    >>> Last().weights(3, 0.5)
    array([0., 0., 1.])
    """

    def weights(self, n_steps: int, uniform: float) -> NDArray[np.float64]:
        weights = np.zeros(n_steps)
        weights[-1] = 1.0
        return weights


@final
@dataclass(frozen=True)
class UniformAverage(Output):
    """The mean of all iterates (Song et al. 2021, Algorithm 1; Arora et al. 2022, Algorithm 1).

    Examples
    --------
    >>> UniformAverage().weights(4, 0.5)
    array([0.25, 0.25, 0.25, 0.25])
    """

    def weights(self, n_steps: int, uniform: float) -> NDArray[np.float64]:
        return np.full(n_steps, 1.0 / n_steps)


@final
@dataclass(frozen=True)
class TailAverage(Output):
    """The mean of the last iterates.

    Parameters
    ----------
    fraction : float, default=0.5
        Share of the iterates that enter, in (0, 1]; at least one does.

    Examples
    --------
    >>> TailAverage(0.5).weights(4, 0.5)
    array([0. , 0. , 0.5, 0.5])
    """

    fraction: float = 0.5

    def __post_init__(self) -> None:
        check_real("fraction", self.fraction, above=0.0, most=1.0)

    def weights(self, n_steps: int, uniform: float) -> NDArray[np.float64]:
        count = math.ceil(self.fraction * n_steps)
        weights = np.zeros(n_steps)
        weights[n_steps - count :] = 1.0 / count
        return weights


@final
@dataclass(frozen=True)
class RandomIterate(Output):
    """An iterate chosen uniformly at random, without looking at data.

    References
    ----------
    Wang, Ye and Xu, "Differentially private empirical risk minimization revisited", NIPS 2017,
    section 6.2 (non-convex losses).

    Examples
    --------
    >>> RandomIterate().weights(4, 0.5)
    array([0., 0., 1., 0.])
    """

    def weights(self, n_steps: int, uniform: float) -> NDArray[np.float64]:
        weights = np.zeros(n_steps)
        weights[int(uniform * n_steps)] = 1.0
        return weights
