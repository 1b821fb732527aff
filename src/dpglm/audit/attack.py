"""Audits of plans: by many runs on two neighbouring data sets, and by the exact laws of a few."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dpglm._calls import checked, stage
from dpglm._validation import Array, check_integer, check_one_of, check_real
from dpglm.audit.games import ChoiceLaw, NoiseLaw, Recording, left_out, pays_for_all, play
from dpglm.audit.guessing import choose_guess, first_unless_beaten, ratio_to
from dpglm.audit.neighbours import Neighbours, estimator_neighbours, worst_neighbours
from dpglm.audit.report import AuditReport, Claim, Observation, described
from dpglm.privacy import gdp
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

_LEAST_PILOT = 100
_CHUNK = 25


def audit(
    target: Plan | BaseEstimator | Callable[[Any], ArrayLike],
    *,
    n_rows: int = 3,
    n_features: int = 2,
    n_classes: int = 2,
    claim: Claim | None = None,
    neighbours: Sequence[Neighbours] | None = None,
    release: Literal["all", "model"] = "all",
    runs: int = 500,
    pilot_runs: int | None = None,
    confidence: float = 0.95,
    seed: int | None = None,
    n_jobs: int = 1,
) -> AuditReport:
    """Attack a mechanism on worst-case neighbours, and bound its privacy loss from below.

    Parameters
    ----------
    target : Plan, estimator, or callable
        A plan of any solver; an estimator of dpglm that is not fitted; or any function from rows
        to an array of numbers, which draws its own noise and comes with ``claim`` and
        ``neighbours``.
    n_rows, n_features, n_classes : int
        Size of the synthetic table on which an estimator is attacked. Few rows suffice: the
        effect of one row does not depend on their number.
    claim : Claim, optional
        The claim to refute. By default that of the certificate.
    neighbours : sequence of Neighbours, optional
        Pairs of data sets to try: prepared rows for plans, anything for a function. By default
        those of ``worst_neighbours``.
    release : {"all", "model"}, default="all"
        The attacker sees everything that the claim covers, or the returned model. Where the claim
        covers the model only, both are the same.
    runs : int, default=500
        Runs on each of both data sets that are counted.
    pilot_runs : int, optional
        Held-out runs on each data set of each pair, which choose the pair, the statistic and the
        thresholds. By default a quarter of ``runs``, at least 100.
    confidence : float, default=0.95
        Joint confidence of everything in the report.
    seed : int, optional
        Makes the runs of a plan repeatable, for tests. By default they draw their noise as real
        fits do, as a rule from the operating system, which is then attacked too.
    n_jobs : int, default=1
        Processes.

    Notes
    -----
    The pair of data sets, the statistic and two thresholds are chosen on held-out runs; then they
    are fixed, and fresh runs are counted. So the counts are binomial, and Clopper-Pearson bounds
    on two error rates at two thresholds hold together by Bonferroni's inequality, whatever the
    statistic is. A claim is refuted where these bounds lie below its trade-off curve.

    A right claim is refuted by chance with probability at most ``1 - confidence``.

    Examples
    --------
    >>> from dpglm import LogisticRegression, NoisyGD
    >>> model = LogisticRegression(epsilon=8.0, row_norm=1.0, solver=NoisyGD(n_steps=2))
    >>> report = audit(model, runs=100)
    >>> report.refuted
    False
    """
    runs = check_integer("runs", runs, least=10)
    if pilot_runs is None:
        pilot_runs = max(_LEAST_PILOT, runs // 4)
    pilot_runs = check_integer("pilot_runs", pilot_runs, least=10)
    confidence = check_real("confidence", confidence, above=0.0, below=1.0)
    check_one_of("release", release, ("all", "model"))
    noise: NoiseSource = SystemNoise()
    sees_all = release == "all"
    attacked: Any = target
    if isinstance(target, BaseEstimator):
        if neighbours is not None:
            raise ValueError(
                "neighbours must be None for an estimator, which is attacked on synthetic tables, "
                f"got {neighbours!r}"
            )
        attacked, neighbours, noise = estimator_neighbours(target, n_rows, n_features, n_classes)
    plan = attacked if isinstance(attacked, Plan) else None
    if plan is not None:
        sees_all = sees_all and pays_for_all(plan)
        neighbours = worst_neighbours(plan) if neighbours is None else neighbours
    elif not callable(attacked):
        raise ValueError(f"target must be a plan, an estimator or a function, got {attacked!r}")
    elif not neighbours:
        raise ValueError(f"neighbours must be given for a function, got {neighbours!r}")
    sees_all = sees_all and plan is not None
    if claim is None:
        if plan is None:
            raise ValueError("claim must be given for a function, got None")
        claim = Claim.of(plan)
    numbers = itertools.count()

    def source() -> NoiseSource:
        """Return fresh noise for one run."""
        if seed is None:
            return noise
        state = np.random.SeedSequence([seed, next(numbers)]).generate_state(1, np.uint64)
        return SeededNoise(int(state[0]))

    def played(
        pair: Neighbours, count: int, advance: Callable[[int], None]
    ) -> tuple[list[Observation], list[Observation]]:
        """Run on the first and on the second data set."""
        both: tuple[list[Observation], list[Observation]] = [], []
        for seen, first in zip(both, (True, False), strict=True):
            run_once = functools.partial(play, attacked, pair, first=first, sees_all=sees_all)
            # Tasks of several runs each, as single ones may take less time than their messages.
            runs_of = Parallel(n_jobs=n_jobs, batch_size=_CHUNK, return_as="generator")
            for observed in runs_of(delayed(run_once)(source()) for _ in range(count)):
                seen.append(observed)
                advance(1)
        return both

    with stage("Runs of the attack", 2 * (len(neighbours) * pilot_runs + runs)) as advance:
        pilots = [played(pair, pilot_runs, advance) for pair in neighbours]
        guesses = [choose_guess(*pilot, claim, confidence, runs) for pilot in pilots]
        best = first_unless_beaten([guess.promise for guess in guesses])
        guess, pair = guesses[best], neighbours[best]
        bounds = guess.bounds(*played(pair, runs, advance), confidence)

    found = max(bounds, key=lambda one: ratio_to(claim, one))
    words = repr(target) if plan is None else described(plan)
    used = noise.name if seed is None else SeededNoise.name
    if isinstance(target, BaseEstimator):
        words = f"{type(target).__name__}: {words}"
    return AuditReport(
        target=words,
        claim=claim,
        release="all" if sees_all else "model",
        method=guess.score.name,
        neighbours=pair.name,
        runs=runs,
        pilot_runs=pilot_runs,
        confidence=confidence,
        epsilon=max(one.epsilon(claim.delta) for one in bounds),
        mu=found.mu(),
        ratio=ratio_to(claim, found),
        refuted=any(one.missed < claim.least_missed(one.false) for one in bounds),
        noise="the function's own" if plan is None else used,
    )


# Exact privacy loss of runs that are one release of few coordinates with a known law.

_POINTS = {1: 50_001, 2: 401}
# Relative error of integration on a grid.
_SLACK = 1e-3
_LEAST_DELTA = 1e-12


def _delta_of_laws(first: Array, second: Array, epsilon: float) -> float:
    """Return the least delta at ``epsilon``: the larger of the two hockey-stick divergences.

    Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018,
    Theorem 1: (epsilon, delta)-DP is a bound on this divergence.
    """
    factor = np.exp(epsilon)
    one_way = np.maximum(first - factor * second, 0.0).sum()
    return float(max(one_way, np.maximum(second - factor * first, 0.0).sum()))


def _epsilon_of_laws(first: Array, second: Array, delta: float) -> float:
    """Return the least epsilon at ``delta``, rounded down."""
    delta = max(delta, _LEAST_DELTA)
    low, high = 0.0, 1.0
    if _delta_of_laws(first, second, low) <= delta:
        return 0.0
    while _delta_of_laws(first, second, high) > delta and high < 500.0:
        low, high = high, 2.0 * high
    for _ in range(50):
        middle = 0.5 * (low + high)
        too_low = _delta_of_laws(first, second, middle) > delta
        low, high = (middle, high) if too_low else (low, middle)
    return low


def _two_laws(plan: Plan, pair: Neighbours) -> tuple[Array, Array]:
    """Compute both laws of a plan that releases one choice, or a vector of at most two numbers.

    They are probabilities of choices, or of cells of a grid that holds both laws.
    """
    recording = Recording(SystemNoise())
    run(plan, pair.first, recording)
    laws = [recording.laws(plan, rows)[0] for rows in (pair.first, pair.second)]
    if len(recording.releases) != 1 or not pays_for_all(plan):
        raise ValueError(f"plan must release one thing only, got {plan.method!r}")
    rate = recording.releases[0].sampling_rate
    first, second = laws[0][0], laws[1][0]
    if isinstance(first, ChoiceLaw) and isinstance(second, ChoiceLaw):
        return first.masses, second.masses
    if not (isinstance(first, NoiseLaw) and isinstance(second, NoiseLaw)):
        raise ValueError(f"plan must have a release with a known law, got {plan.method!r}")
    size = first.mean.size
    if size not in _POINTS:
        raise ValueError(f"plan must release at most 2 coordinates, got {size}")
    reach, points = max(first.reach, second.reach), _POINTS[size]
    low = np.minimum(first.mean, second.mean).ravel() - reach
    widths = (np.maximum(first.mean, second.mean).ravel() + reach - low) / points
    axes = [a + width * (np.arange(points) + 0.5) for a, width in zip(low, widths, strict=True)]
    grid = np.meshgrid(*axes, indexing="ij")
    cells = np.stack([axis.ravel() for axis in grid], axis=1)
    densities = [law.log_densities(cells) for law in (first, second)]
    if rate < 1.0:
        without = left_out(first, second, plan.adjacency).log_densities(cells)
        densities = [
            np.logaddexp(np.log(rate) + one, np.log1p(-rate) + without) for one in densities
        ]
    one, other = (np.exp(each) * float(widths.prod()) for each in densities)
    return one, other


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
    >>> from dpglm.data.rows import DataSpec
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
    found = [(_two_laws(plan, pair), pair.name) for pair in pairs]
    # Rounded down by the error of integration.
    most = (1.0 + _SLACK) * claim.delta
    epsilon, name = max((_epsilon_of_laws(*laws, most), name) for laws, name in found)
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
            _delta_of_laws(*laws, at) > (1.0 + _SLACK) * max(delta, _LEAST_DELTA)
            for laws, _ in found
            for at, delta in claimed
        ),
        noise="the declared law",
    )
