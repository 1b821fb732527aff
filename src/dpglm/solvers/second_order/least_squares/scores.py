"""Slopes and mean of least squares from scores at one estimate after the other. Post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.row_sums.weighted_moments import MomentSums, View
from dpglm.solvers.second_order.least_squares.equations import (
    Estimate,
    FirstFit,
    Fit,
    Observation,
    Targets,
    noise_in_equations,
    pooled,
    shrunk_slopes,
    with_biased,
)

__all__ = ["Scores"]

# Least variance of what a better fit leaves, over that of what a worse one does.
_LEAST_LEFT = 0.1
# Variance of the scores' sampling that is put to their noise's, over noise's.
_MOST_SAMPLING = 6.0


@final
@dataclass(frozen=True, eq=False)
class Scores:
    """What all scores so far say.

    A score at v shows slopes ``v + S^-1 score``, S the matrix of the first fit: one step from v,
    exact where S is the curvature. They are averaged by the inverse variances of the scores'
    noise, none of which is lost on the way; each score is asked for at their shrunk average so far.
    What S is wrong about fades as k^-h after k scores, h the curvature over S.
    """

    steps: NDArray[np.float64]  # Sum of the slopes that scores show, over noise's variance.
    places: NDArray[np.float64]  # The same of the slopes at which scores were asked for.
    precision: float  # Sum of inverse variances.
    level: Observation | None  # Mean target, less the view's center.
    slopes: Estimate
    fit: Fit

    @classmethod
    def none(cls, first: FirstFit) -> Scores:
        """Begin with the fit of the normal equations."""
        d = len(first.slopes.mean)
        zero = np.zeros(d)
        unknown = Estimate(first.fit.v[:d], first.slopes.matrix, zero)
        return cls(zero, zero, 0.0, None, unknown, first.fit)

    def and_one(
        self,
        first: FirstFit,
        targets: Targets,
        view: View,
        sums: MomentSums,
        extent: float,
        chance: float,
    ) -> Scores:
        """Add a score, and shrink the slopes that all of them show.

        ``extent``: how many deviations residuals may be from 0. ``chance``: how often noise alone
        may be taken for slopes.
        """
        slopes, d = first.slopes, len(self.steps)
        v, mean, level = view.v[:d], Observation(0.0, 0.0), self.level
        if view.level > 0.0:
            found = slopes.level_of(sums, view, self.fit.mean.value)
            level = found if level is None else pooled((level, found))
            # What noise in the mean of the rows makes of means that slopes are taken from.
            moved = slopes.mean_noise * float(np.linalg.norm(v)) / slopes.weight
            # Scores and targets are cut, where that is far from all others.
            at_first = slopes.level_of(first.sums, first.view, 0.0).less(0.0, moved)
            mean = with_biased(targets.mean.less(view.center, moved), (at_first, level))
        shift = mean.value - self.fit.mean.value
        g = sums.vector[:d] - slopes.weight * shift * slopes.mean
        share = math.hypot(sums.vector_noise, slopes.mean_noise * shift) ** -2
        steps = self.steps + share * (v + np.linalg.solve(slopes.matrix, g))
        precision = self.precision + share
        places = self.places + share * v
        if not np.isfinite(steps).all():
            return self
        shrunk = shrunk_slopes(
            slopes.matrix,
            slopes.matrix @ (steps / precision),
            precision**-0.5,
            first.variance,
            targets.weight,
            chance,
            _MOST_SAMPLING,
        )
        left = max(sums.squares / targets.weight, _LEAST_LEFT * self.fit.variance)
        left = min(max(left, sums.squares_noise / targets.weight), self.fit.variance)
        fit = Fit(
            slopes.beside_level(shrunk.v, mean.value, view.level),
            mean,
            left,
            min(extent * math.sqrt(left) + 2.0 * mean.noise, first.fit.reach),
        )
        return Scores(steps, places, precision, level, shrunk, fit)

    def noise(self, first: FirstFit) -> NDArray[np.float64]:
        """Covariance of the noise in the equations ``S v = g`` that the slopes solve.

        Noise E in S is multiplied by how far the slopes are from where scores were asked for.
        """
        q = self.slopes.v - self.places / self.precision
        return noise_in_equations(self.precision**-0.5, first.sums.matrix_noise, q)
