"""Exact privacy loss of runs that are one release of few coordinates with a known law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._calls import checked
from dpglm._validation import Array
from dpglm.audit.games import ChoiceLaw, NoiseLaw, PlanGame, Recording, left_out, pays_for_all
from dpglm.audit.neighbours import worst_neighbours
from dpglm.audit.report import AuditReport, Claim, described
from dpglm.privacy import gdp
from dpglm.privacy.noise import SystemNoise
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

_POINTS = {1: 50_001, 2: 401}
# Relative error of integration on a grid.
_SLACK = 1e-3
_LEAST_DELTA = 1e-12


@final
@dataclass(frozen=True, eq=False)
class LawPair:
    """Two laws of one release, as probabilities of cells or of choices."""

    first: Array
    second: Array

    def delta(self, epsilon: float) -> float:
        """Return the least delta at ``epsilon``: the larger of the two hockey-stick divergences.

        Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018,
        Theorem 1: (epsilon, delta)-DP is a bound on this divergence.
        """
        factor = np.exp(epsilon)
        one_way = np.maximum(self.first - factor * self.second, 0.0).sum()
        other_way = np.maximum(self.second - factor * self.first, 0.0).sum()
        return float(max(one_way, other_way))

    def epsilon(self, delta: float) -> float:
        """Return the least epsilon at ``delta``, rounded down."""
        delta = max(delta, _LEAST_DELTA)
        low, high = 0.0, 1.0
        if self.delta(low) <= delta:
            return 0.0
        while self.delta(high) > delta and high < 500.0:
            low, high = high, 2.0 * high
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return low

    @classmethod
    def of(cls, game: PlanGame) -> LawPair:
        """Compute both laws of a plan that releases one choice, or a vector of at most two."""
        plan, pair = game.plan, game.neighbours
        recording = Recording(SystemNoise())
        run(plan, pair.first, recording)
        laws = [game.laws(recording, rows)[0] for rows in (pair.first, pair.second)]
        if len(recording.releases) != 1 or not pays_for_all(plan):
            raise ValueError(f"plan must release one thing only, got {plan.method!r}")
        (release,) = recording.releases
        first, second = laws[0][0], laws[1][0]
        if isinstance(first, ChoiceLaw) and isinstance(second, ChoiceLaw):
            return cls(first.masses, second.masses)
        if not (isinstance(first, NoiseLaw) and isinstance(second, NoiseLaw)):
            raise ValueError(f"plan must have a release with a known law, got {plan.method!r}")
        size = first.mean.size
        if size not in _POINTS:
            raise ValueError(f"plan must release at most 2 coordinates, got {size}")
        cells, volume = _cells(first, second)
        rate = release.sampling_rate
        densities = [law.log_densities(cells) for law in (first, second)]
        if rate < 1.0:
            without = left_out(first, second, plan.adjacency).log_densities(cells)
            densities = [
                np.logaddexp(np.log(rate) + one, np.log1p(-rate) + without) for one in densities
            ]
        return cls(*(np.exp(one) * volume for one in densities))


def _cells(first: NoiseLaw, second: NoiseLaw) -> tuple[Array, float]:
    """Return the centres of a grid that holds both laws, and the volume of a cell."""
    reach = max(first.reach, second.reach)
    low = np.minimum(first.mean, second.mean).ravel() - reach
    high = np.maximum(first.mean, second.mean).ravel() + reach
    points = _POINTS[low.size]
    widths = (high - low) / points
    axes = [a + width * (np.arange(points) + 0.5) for a, width in zip(low, widths, strict=True)]
    grid = np.meshgrid(*axes, indexing="ij")
    return np.stack([axis.ravel() for axis in grid], axis=1), float(widths.prod())


@checked
def exact_audit(plan: Plan) -> AuditReport:
    """Compute the exact privacy loss of a small plan on worst-case neighbours.

    Parameters
    ----------
    plan : Plan
        One that releases a single vector of one or two coordinates, or a single choice: one step
        of gradient descent on one column, for instance.

    Returns
    -------
    AuditReport
        Without runs and with confidence 1: epsilon is that of the worst of these neighbours, to
        about three digits. Its ``ratio`` is of epsilon.

    Raises
    ------
    ValueError
        If the plan releases more.

    Notes
    -----
    The law is that of the noise that the library asks for, on sums that it computes: bugs in
    bounds, clipping, sampling and accounting show here to the last digit; bugs in the noise
    generator do not, which is for ``audit`` to find.

    Examples
    --------
    >>> from dpglm.data.spec import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> from dpglm.solvers import NoisyGD
    >>> solver, data = NoisyGD(n_steps=1, clip=0.25), DataSpec(n_rows=3, n_features=1)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> round(exact_audit(plan).epsilon, 2)
    1.0
    """
    claim = Claim.of(plan)
    # If several rows contribute, the law of a sample is a mixture over all subsets.
    pairs = [pair for pair in worst_neighbours(plan) if not pair.others_contribute]
    found = [(LawPair.of(PlanGame(pair, True, plan)), pair.name) for pair in pairs]
    # Rounded down by the error of integration.
    epsilon, name = max((laws.epsilon((1.0 + _SLACK) * claim.delta), name) for laws, name in found)
    claimed = ((claim.epsilon, claim.delta), *claim.profile)
    return AuditReport(
        target=described(plan),
        claim=claim,
        release="all",
        method="exact laws",
        neighbours=name,
        runs=0,
        pilot_runs=0,
        confidence=1.0,
        epsilon=epsilon,
        mu=gdp.mu(epsilon, max(claim.delta, _LEAST_DELTA)),
        ratio=epsilon / claim.epsilon,
        refuted=any(
            laws.delta(at) > (1.0 + _SLACK) * max(delta, _LEAST_DELTA)
            for laws, _ in found
            for at, delta in claimed
        ),
        noise="the declared law",
    )
