"""How much noise a release needs, and the grid that it lives on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm.privacy.noise import granularity_exponent, grid_sensitivity
from dpglm.privacy.unit import Adjacency

__all__ = ["NoiseScale", "check_scale", "l2_noise_scale", "noise_scale", "pure_objective_epsilon"]

_MOST_CELLS = 2.0**32
_LEAST_SCALE, _SCALES_BELOW = 2.0**-1050, 2.0**995


def check_scale(name: str, scale: float) -> float:
    """Return a scale of noise, or raise ValueError if grids of floats cannot hold it.

    Parameters
    ----------
    name : str
        What it is the scale of.
    scale : float
        Must be from 2^-1050 to below 2^995.

    Returns
    -------
    float

    Examples
    --------
    >>> check_scale("noise", 0.0)
    Traceback (most recent call last):
    ...
    ValueError: noise must have a scale from 8.3e-317 to 3.3e+299, got 0.0: give bounds in ...
    """
    if not _LEAST_SCALE <= scale < _SCALES_BELOW:
        raise ValueError(
            f"{name} must have a scale from {_LEAST_SCALE:.2g} to {_SCALES_BELOW:.2g}, got "
            f"{scale!r}: give bounds in other units, or another budget"
        )
    return scale


@final
@dataclass(frozen=True)
class NoiseScale:
    """Size of noise and the grid it lives on.

    Parameters
    ----------
    std : float
        Standard deviation of Gaussian noise in each coordinate, or scale of L2 noise.
    exponent : int
        Released values and noise are multiples of ``2**exponent``.

    Raises
    ------
    ValueError
        If no noise of this size can be drawn on this grid. Both are public, and a plan works
        them out, so this is found out before any row is seen.
    """

    std: float
    exponent: int

    def __post_init__(self) -> None:
        cells = self.std / math.ldexp(1.0, self.exponent)
        if not 1.0 <= cells < _MOST_CELLS:
            raise ValueError(
                f"noise of scale {self.std:g} must be from 1 to {_MOST_CELLS:g} cells of a grid "
                f"that holds the sum, got {cells:g} cells of {math.ldexp(1.0, self.exponent):g}: "
                "give a larger budget, fewer columns or steps, or bounds in other units"
            )


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
        Noise standard deviation, or scale, over sensitivity, above 0.
    size : int
        Number of coordinates released.
    magnitude : float
        Public bound on the norm of the sum.

    Returns
    -------
    NoiseScale
        The grid is fine against the noise, yet coarse enough that no sum within the bound runs
        out of the integers that a float64 holds.

    Raises
    ------
    ValueError
        If no noise of that size can be drawn, or no grid holds it and the sum: which is found
        out here, before any row is seen, as all of it is public.

    Notes
    -----
    Privacy: the sensitivity includes what snapping ``size`` coordinates to the grid adds. The
    relation's factor multiplies all of it, as the group-privacy proof for sampled replace-one
    releases asks (``PLDAccountant``).
    """
    wanted = noise_multiplier * adjacency.sum_sensitivity(contribution)
    finest = granularity_exponent(check_scale("noise", wanted))
    exponent = max(finest, math.frexp(magnitude)[1] - 51)
    snapped = contribution + grid_sensitivity(size, exponent)
    return NoiseScale(noise_multiplier * adjacency.sum_sensitivity(snapped), exponent)


def l2_noise_scale(
    adjacency: Adjacency, contribution: float, epsilon: float, size: int, magnitude: float
) -> NoiseScale:
    """Work out the L2 noise that a bounded sum needs.

    Parameters
    ----------
    adjacency, contribution, size, magnitude
        As for ``noise_scale``.
    epsilon : float
        What the release costs, above 0.

    Returns
    -------
    NoiseScale
        Its ``std`` is the scale s of a density proportional to ``exp(-|b| / s)``.

    Notes
    -----
    Privacy: the sensitivity over epsilon, rounded up, as pure differential privacy has no room
    for a last digit.
    """
    scale = noise_scale(adjacency, contribution, 1.0 / epsilon, size, magnitude)
    return NoiseScale(scale.std * (1.0 + 2.0**-50), scale.exponent)


def pure_objective_epsilon(noise_multiplier: float, curvature_ratio: float) -> float:
    """Add up what the exact minimiser of an objective with an L2 linear term costs.

    Parameters
    ----------
    noise_multiplier : float
        Scale s of the term over the sensitivity of the gradient sum, above 0.
    curvature_ratio : float
        Bound on one row's curvature over the strength of the quadratic penalty, above 0.

    Returns
    -------
    float
        ``1 / noise_multiplier + log(1 + curvature_ratio)``, rounded up.

    References
    ----------
    Theorem 2 of ``docs/proofs/objective-perturbation.md``; compare Chaudhuri, Monteleoni and
    Sarwate, JMLR 2011, Theorem 9.

    Examples
    --------
    >>> round(pure_objective_epsilon(2.0, 1.0), 6)
    1.193147
    """
    return (1.0 / noise_multiplier + math.log1p(curvature_ratio)) * (1.0 + 2.0**-50)
