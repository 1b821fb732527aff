"""A private sum that carries its bound, and the curator: the only way to release one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.events import Composed, Event, Gaussian, PoissonSampled, canonical
from dpglm.privacy.noise import NoiseSource, add_gaussian, granularity_exponent, grid_sensitivity
from dpglm.privacy.unit import Adjacency

__all__ = ["BoundedSum", "Curator", "NoiseScale", "noise_scale"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class BoundedSum:
    """A sum over private rows together with what one row can change in it.

    Parameters
    ----------
    value : ndarray of float64
        The sum itself. Private: only a ``Curator`` may turn it into something released.
    contribution_bound : float
        Bound ``C`` on the L2 norm of any one row's contribution.
    rounding : float, default=0.0
        Bound on what floating point adds to the L2 distance between the sums computed with and
        without one row.
    magnitude : float
        Public bound on the L2 norm of the sum.
    sampling_rate : float, default=1.0
        Probability with which each row entered, independently; 1 for a sum over all rows.

    Notes
    -----
    Privacy: ``repr`` shows the bound, never the value.
    """

    value: NDArray[np.float64]
    contribution_bound: float
    magnitude: float
    rounding: float = 0.0
    sampling_rate: float = 1.0

    def __repr__(self) -> str:
        return (
            f"BoundedSum(<private, shape {self.value.shape}>, "
            f"contribution_bound={self.contribution_bound!r}, rounding={self.rounding!r}, "
            f"sampling_rate={self.sampling_rate!r})"
        )


@final
@dataclass(frozen=True)
class NoiseScale:
    """Size of Gaussian noise and the grid it lives on.

    Parameters
    ----------
    std : float
        Standard deviation in each coordinate.
    exponent : int
        Released values and noise are multiples of ``2**exponent``.
    """

    std: float
    exponent: int


def noise_scale(
    adjacency: Adjacency, contribution: float, noise_multiplier: float, size: int, magnitude: float
) -> NoiseScale:
    """Work out the noise that a bounded sum needs.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation.
    contribution : float
        Bound on what erasing one row does to the computed sum in L2 norm, rounding included.
    noise_multiplier : float
        Noise standard deviation over sensitivity, above 0.
    size : int
        Number of coordinates released.
    magnitude : float
        Public bound on the norm of the sum.

    Returns
    -------
    NoiseScale
        The grid is fine against the noise, yet coarse enough that no sum within the bound runs
        out of the integers that a float64 holds.

    Notes
    -----
    Privacy: the sensitivity includes what snapping ``size`` coordinates to the grid adds. The
    relation's factor multiplies all of it, as the group-privacy proof for sampled replace-one
    releases asks (``PLDAccountant``).
    """
    finest = granularity_exponent(noise_multiplier * adjacency.sum_sensitivity(contribution))
    exponent = max(finest, math.frexp(magnitude)[1] - 51)
    snapped = contribution + grid_sensitivity(size, exponent)
    return NoiseScale(noise_multiplier * adjacency.sum_sensitivity(snapped), exponent)


@final
class Curator:
    """Adds the noise, and remembers every release.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation under which sensitivities are computed.
    noise : NoiseSource
        Where randomness comes from.

    Notes
    -----
    Privacy: each release is written into ``event`` before its noise is drawn, so a crash can
    only overstate what was spent.
    """

    def __init__(self, adjacency: Adjacency, noise: NoiseSource) -> None:
        self._adjacency = adjacency
        self._noise = noise
        self._events: list[Event] = []

    @property
    def adjacency(self) -> Adjacency:
        """The neighbouring relation of every sensitivity."""
        return self._adjacency

    @property
    def noise(self) -> NoiseSource:
        """The source of all randomness: noise and Poisson samples."""
        return self._noise

    @property
    def event(self) -> Event:
        """What has been released so far, in canonical form."""
        return canonical(Composed(tuple(self._events)))

    def release_gaussian(self, total: BoundedSum, noise_multiplier: float) -> NDArray[np.float64]:
        """Release a bounded sum by the Gaussian mechanism.

        Parameters
        ----------
        total : BoundedSum
            The sum.
        noise_multiplier : float
            Noise standard deviation divided by the sum's sensitivity, above 0.

        Returns
        -------
        ndarray of float64, shape of ``total.value``
            The sum, snapped to a grid, plus Gaussian noise rounded to that grid.

        Notes
        -----
        Privacy: ``Gaussian(noise_multiplier)``, inside ``PoissonSampled`` where the sum was
        over a Poisson sample. The noise is spherical, fresh, and covers every coordinate.
        """
        event = Gaussian(noise_multiplier)
        self._events.append(
            event if total.sampling_rate == 1.0 else PoissonSampled(total.sampling_rate, event)
        )
        scale = noise_scale(
            self._adjacency,
            total.contribution_bound + total.rounding,
            noise_multiplier,
            total.value.size,
            total.magnitude,
        )
        return add_gaussian(total.value, scale.std, scale.exponent, self._noise)
