"""Nearest class mean, from one release of class sums and counts."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm.oracle.counts import class_sum, noisy_class_sums
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import constant_column
from dpglm.privacy.noise.additive import GaussianNoise, L2Noise
from dpglm.privacy.releases import AnyRelease, SumRelease
from dpglm.solvers.base import Facts, FitMethod, Outcome, Plan, Solver, StepInfo
from dpglm.solvers.uncertainty import Floats, feasible, n_penalized


@final
@dataclass(frozen=True)
class Prototypes(Solver):
    """Nearest class mean, from a single release of sums and counts of classes.

    Only for the loss ``Sparsemax``. If rows vary around the mean of their class by the same amount
    in all directions and classes, this is the Bayes classifier.

    Notes
    -----
    Means are shrunk towards that of all rows by one prior, with a width that is estimated from the
    release.

    Privacy: a row enters the sum of one class only, so its contribution is bounded for any number
    of classes. The noise is Gaussian, or L2 noise if the budget has a delta of 0.

    References
    ----------
    Mehta, Krichene, Thakurta, Kurakin and Cutkosky, "Differentially private image classification
    from features", TMLR 2023. Tibshirani, Hastie, Narasimhan and Chu, "Diagnosis of multiple cancer
    types by shrunken centroids of gene expression", PNAS 99 (2002).

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Problem, Sparsemax
    >>> data = DataSpec(10_000, 20, n_outputs=100, intercept=1.0)
    >>> plan = Prototypes().plan(Problem(Sparsemax()), ApproximateDP(1.0, 1e-5), data)
    >>> [(one.quantity, one.coordinates) for one in plan.method.releases]
    [('sums and counts of classes', 2100)]
    """

    def decide(self, facts: Facts) -> Plan:
        problem, data, adjacency = facts.problem, facts.data, facts.adjacency
        if not problem.loss.of_codes:
            raise ValueError(
                f"loss must be Sparsemax() for the solver Prototypes, got {problem.loss!r}"
            )
        unit = L2Noise(1.0) if facts.budget.is_pure else GaussianNoise(1.0)
        return facts.calibrated(
            lambda multiplier: PrototypesMethod(
                problem, data, adjacency, unit.with_multiplier(multiplier)
            )
        )


@final
@dataclass(frozen=True)
class PrototypesMethod(FitMethod[Floats]):
    """Class prototypes with every setting decided.

    A row's score is minus half of its squared distance to the mean, up to a term that all classes
    share.
    """

    noise: GaussianNoise | L2Noise

    algorithm = "class prototypes"

    n_steps = 1

    @functools.cached_property
    def sums(self) -> SumRelease:
        """The release of sums and counts."""
        return class_sum(self.data).release(self.data, self.adjacency, self.noise)

    @property
    def releases(self) -> tuple[AnyRelease, ...]:
        return (self.sums,)

    @property
    def gradient_evaluations(self) -> float:
        return float(self.data.n_rows)

    @property
    def coefficient_noise(self) -> float:
        data = self.data
        longest = math.hypot(data.row_norm, constant_column(data)) / data.row_norm
        return self.sums.noise_std * longest * data.n_outputs / data.n_rows / data.row_norm

    def init(self, seed: int) -> Floats:
        return self._feasible(np.zeros(self.data.coefficient_shape))

    def step(self, state: Floats, oracle: Oracle) -> tuple[Floats, StepInfo]:
        w = self._feasible(self._scores(*noisy_class_sums(oracle, self.sums)))
        return w if np.isfinite(w).all() else state, StepInfo(1, 1.0)

    def finish(self, state: Floats) -> Outcome:
        return Outcome(state)

    def _scores(self, sums: Floats, counts: Floats) -> Floats:
        """Return the parameter with distances as scores, all lengths in units of the row norm.

        Numbers of rows have a normal prior, and means m around that of all rows the prior N(0, t^2
        I / d); both variances are estimated by moments from all classes together, t^2 at least as
        large as its noise. A score is minus half of a posterior mean squared distance, so that no
        class wins because it is more certain.
        """
        data, noise = self.data, self.sums.noise_std
        constant = constant_column(data) / data.row_norm
        typical = max(float(counts.mean()), noise)
        uneven = max(float(np.mean((counts - typical) ** 2)) - noise**2, 0.0)
        counts = typical + uneven / (uneven + noise**2) * (counts - typical)
        # A number of rows below its noise is not informative.
        weights = np.maximum(counts, noise) / constant
        center = sums.sum(axis=0) / weights.sum()
        away = sums - np.outer(weights, center)
        # Sums and not means, so that small classes, which are mostly noise, count less.
        excess = max(float(np.vdot(away, away)) / away.size - noise**2, 0.0)
        excess = max(excess, math.sqrt(2.0 / away.size) * noise**2)
        spread = data.n_features * excess / float(np.mean(weights**2))
        by_chance = data.n_features * (noise / weights) ** 2
        shares = spread / (spread + by_chance)
        away *= (shares / weights)[:, np.newaxis]
        offsets = -0.5 * ((away * away).sum(axis=1) + (1.0 - shares) * spread) - away @ center
        away -= away.mean(axis=0)
        w: Floats = away.T / data.row_norm
        if data.intercept == 0.0:
            return w
        last = (offsets - offsets.mean()) / data.intercept
        return np.concatenate([w, last[np.newaxis]])

    def _feasible(self, w: Floats) -> Floats:
        """Apply penalty and constraint, as in one step on a loss of curvature one."""
        return feasible(self.problem, n_penalized(self.problem, self.data), w, 1.0)
