"""How much noise a release needs, and the grid that it lives on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.grid import granularity_exponent, grid_sensitivity

_MOST_CELLS = 2.0**32
_LEAST_SCALE, _SCALES_BELOW = 2.0**-1050, 2.0**995


@final
@dataclass(frozen=True)
class NoiseScale:
    """Size of noise, and the grid of multiples of ``2**exponent`` that it lives on.

    ``std`` is the standard deviation of a coordinate of Gaussian noise, or the scale of L2 noise;
    ``inf`` if no noise of that size can be drawn on a grid that holds the sum. Searches for a
    multiplier may pass such sizes; a plan with one is refused (``check_can_be_asked``).
    """

    std: float
    exponent: int

    def times(self, factor: float) -> NoiseScale:
        """Return noise with a multiple of the scale on the same grid, if the grid can hold it."""
        return _on_grid(factor * self.std, self.exponent)


def _on_grid(std: float, exponent: int) -> NoiseScale:
    fits = 1.0 <= std / math.ldexp(1.0, exponent) < _MOST_CELLS
    return NoiseScale(std if fits else math.inf, exponent)


def noise_scale(
    adjacency: Adjacency, sensitivity: float, noise_multiplier: float, size: int, magnitude: float
) -> NoiseScale:
    """Return the noise for a sum with a norm of at most ``magnitude``, rounding included.

    ``sensitivity`` bounds the distance of two neighbours' sums before snapping. The grid is fine
    compared with the noise, and coarse enough that no sum within the bound exceeds the integers
    that a float64 can hold.

    Privacy: the effect of snapping ``size`` coordinates to the grid is included. The relation's
    factor multiplies it, as the group-privacy proof for sampled replace-one releases requires
    (``accounting.reduction.reduce_event``).
    """
    wanted = noise_multiplier * sensitivity
    if not _LEAST_SCALE <= wanted < _SCALES_BELOW:
        return NoiseScale(math.inf, 0)
    finest = granularity_exponent(wanted)
    exponent = max(finest, math.frexp(magnitude)[1] - 51)
    snapped = sensitivity + adjacency.sum_sensitivity(grid_sensitivity(size, exponent))
    return _on_grid(noise_multiplier * snapped, exponent)


def pure_objective_epsilon(noise_multiplier: float, curvature_ratio: float) -> float:
    """Return the epsilon of the exact minimiser of an objective with an L2 linear term, rounded up.

    ``noise_multiplier`` is the scale of the term over the sensitivity of the gradient sum;
    ``curvature_ratio`` bounds one row's curvature over the strength of the quadratic penalty.

    References
    ----------
    Theorem 2 of ``docs/proofs/objective-perturbation.md``; compare Chaudhuri, Monteleoni and
    Sarwate, JMLR 2011, Theorem 9.
    """
    return (1.0 / noise_multiplier + math.log1p(curvature_ratio)) * (1.0 + 2.0**-50)
