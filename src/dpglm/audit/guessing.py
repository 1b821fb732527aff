"""The test: statistic and thresholds, chosen on held-out runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, expit, gammaln, log_expit, ndtri

from dpglm._calls import checked
from dpglm._validation import Array, check_count, check_integer, check_real
from dpglm.audit.games import NoiseLaw, Recording, Replay, pays_for_all
from dpglm.audit.neighbours import HUGE, Table, prepared, target_ends
from dpglm.audit.report import (
    AttackScore,
    AuditReport,
    Claim,
    ErrorBounds,
    Observation,
    candidate_scores,
    described,
    error_bounds,
    rate_above,
)
from dpglm.data.rows import Rows
from dpglm.privacy import gdp
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

Worth = Callable[[ErrorBounds], float]
_THRESHOLDS = 25
_CLEARLY = 1.25
_SHARES = (0.8, 0.2)
"""Shares of the error probability for the two thresholds; the first usually decides."""


@final
@dataclass(frozen=True, eq=False)
class Guess:
    """Guess "first" where a score is above a threshold: one for the bound on mu, one for epsilon.

    ``promise`` is the ratio to the claim that held-out runs lead one to expect.
    """

    score: AttackScore
    thresholds: tuple[float, float]
    promise: float

    def bounds(
        self, first: Sequence[Observation], second: Sequence[Observation], confidence: float
    ) -> tuple[ErrorBounds, ...]:
        """Bound the error rates with each threshold; all bounds hold together."""
        a, b = self.score.of(first), self.score.of(second)
        return tuple(
            error_bounds(a > threshold, b > threshold, 1.0 - share * (1.0 - confidence))
            for threshold, share in zip(self.thresholds, _SHARES, strict=True)
        )


def choose_guess(
    first: Sequence[Observation],
    second: Sequence[Observation],
    claim: Claim,
    confidence: float,
    runs: int,
) -> Guess:
    """Choose the statistic and thresholds that promise most for ``runs`` fresh runs per data set.

    One half of the held-out runs teaches statistics, the other half chooses.
    """
    half = len(first) // 2
    learned = candidate_scores(first[:half], second[:half])
    # Half a share for each of two rates.
    main, rest = (1.0 - 0.5 * share * (1.0 - confidence) for share in _SHARES)

    def best(score: AttackScore, worth: Worth, each: float) -> tuple[float, float]:
        """Return the best expected worth, and the threshold where it is."""
        # Runs that taught a statistic would flatter it.
        unseen = half if score.is_learned else 0
        a, b = score.of(first[unseen:]), score.of(second[unseen:])
        levels = (np.arange(_THRESHOLDS) + 0.5) / _THRESHOLDS
        # If all scores of the first are above all of the second, the threshold lies between them.
        gap = 0.5 * (a.min() + b.max())
        thresholds = np.unique([*np.quantile(a, levels), *np.quantile(b, levels), b.max(), gap])
        found = []
        for threshold in thresholds:
            bounds = ErrorBounds(
                missed=_expected_bound(int((a <= threshold).sum()), len(a), runs, each),
                false=_expected_bound(int((b > threshold).sum()), len(b), runs, each),
            )
            found.append((worth(bounds), float(threshold)))
        return max(found)

    found = [
        (best(score, lambda bounds: ratio_to(claim, bounds), main), score) for score in learned
    ]
    (promise, threshold), score = found[first_unless_beaten([one[0][0] for one in found])]
    _, tail = best(score, lambda bounds: bounds.epsilon(claim.delta), rest)
    return Guess(score, (threshold, tail), promise)


def first_unless_beaten(promises: Sequence[float]) -> int:
    """Return the position of the largest, but the first where no other is clearly larger.

    The largest of several noisy numbers is biased upwards; theory recommends the first.
    """
    weighed = [promises[0] * _CLEARLY, *promises[1:]]
    return max(range(len(weighed)), key=weighed.__getitem__)


def ratio_to(claim: Claim, bounds: ErrorBounds) -> float:
    """Compare the mu that bounds prove with the largest that the claim allows there."""
    mu = bounds.mu()
    # A test that always raises the alarm proves nothing: the largest mu is undefined.
    return mu / claim.mu_at(bounds.false) if mu > 0.0 else 0.0


def _expected_bound(count: int, pilot: int, runs: int, confidence: float) -> float:
    """Clopper-Pearson bound from as many counts as a held-out rate lets one expect."""
    expected = (count + 0.5) / (pilot + 1.0) * runs
    return rate_above(round(expected), runs, confidence)


# Privacy bounds from guesses about many canaries in one run.

_STEP = 0.01
_STEPS = np.arange(5000, dtype=np.float64) * _STEP
# Steps that are looked at together.
_BLOCK = 64


@checked
def epsilon_of_guesses(
    canaries: int, guesses: int, right: int, delta: float, confidence: float
) -> float:
    """Bound epsilon at ``delta`` from below by the number of right guesses.

    Parameters
    ----------
    canaries : int
        Number of rows that are included by a fair coin each. For replace-one, a coin chooses
        between two rows.
    guesses : int
        Number of guessed coins; from 1 to ``canaries``.
    right : int
        Number of right guesses; from 0 to ``guesses``.
    delta : float
        Parameter of the mechanism, for a change of one coin.
    confidence : float
        In (0, 1).

    Returns
    -------
    float
        Up to which each epsilon, in steps of 0.01, has a p-value of at most ``1 - confidence``:
        at most the true epsilon, with probability at least ``confidence``. For if it is above,
        then the first step above the true epsilon has such a p-value, and the mechanism is
        (that step, delta)-DP.

    Notes
    -----
    ``P[right >= v] <= P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i`` with B binomial: as
    many tries as guesses, each right with probability ``1 / (1 + exp(-epsilon))``, and i from 1
    to m. It does not matter which coins are guessed, or how that is chosen.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023,
    Theorem 5.2 (arXiv 2305.08846).

    Examples
    --------
    >>> round(epsilon_of_guesses(100, 20, 20, delta=0.0, confidence=0.95), 2)
    1.82
    """
    check_count("canaries", canaries)
    check_count("guesses", guesses)
    if not check_integer("right", right, least=0) <= guesses <= canaries:
        raise ValueError(
            f"right must be at most guesses, and these at most canaries, got {right}, {guesses} "
            f"and {canaries}"
        )
    check_real("delta", delta, least=0.0, below=1.0)
    level = 1.0 - check_real("confidence", confidence, above=0.0, below=1.0)
    low = 0
    while low < _STEPS.size:
        block = _STEPS[low : low + _BLOCK]
        above = _p_values(canaries, guesses, right, block, delta) > level
        if above.any():
            return max(0.0, float(_STEPS[low + int(above.argmax())]) - _STEP)
        low += _BLOCK
    return float(_STEPS[-1])


def best_number_of_guesses(canaries: int, mu: float, delta: float, confidence: float) -> int:
    """Choose the number of guesses for canaries with scores as informative as mu-GDP allows.

    ``mu`` is public, so that the choice does not depend on the run.
    """
    # |log-likelihood ratio| of N(mu^2 / 2, mu^2), which determines the chance of being right.
    levels = (np.arange(1000) + 0.5) / 1000.0
    sure = expit(np.sort(np.abs(0.5 * mu * mu + mu * ndtri(levels)))[::-1])
    found = []
    for share in np.geomspace(min(1.0, 8.0 / canaries), 1.0, 12):
        guesses = max(1, round(share * canaries))
        rate = float(sure[: max(1, round(share * sure.size))].mean())
        right = math.floor(rate * guesses)
        found.append((epsilon_of_guesses(canaries, guesses, right, delta, confidence), guesses))
    return int(max(found)[1])


def _p_values(canaries: int, guesses: int, right: int, epsilons: Array, delta: float) -> Array:
    """Bound the probability of this many right guesses, for each epsilon."""
    if right == 0:
        return np.ones(epsilons.size)
    at_least = betainc(right, guesses - right + 1, expit(epsilons))
    # Beyond i = right the probability grows no more, and is divided by more.
    below = np.arange(right - 1, -1, -1)
    ways = gammaln(guesses + 1) - gammaln(below + 1) - gammaln(guesses - below + 1)
    logs = (
        ways
        + np.outer(log_expit(epsilons), below)
        + np.outer(log_expit(-epsilons), guesses - below)
    )
    shares = np.cumsum(np.exp(logs), axis=1) / np.arange(1, right + 1)
    p_values: Array = at_least + 2.0 * canaries * delta * shares.max(axis=1)
    return np.minimum(1.0, p_values)


# An audit by a single run: many rows of interest at once, each in or out by a coin.


@checked
def audit_in_one_run(
    plan: Plan,
    *,
    confidence: float = 0.95,
    random_state: int | None = None,
    seed: int | None = None,
) -> AuditReport:
    """Attack a plan by one run on canaries, and bound its privacy loss from below.

    Parameters
    ----------
    plan : Plan
        One that releases noisy sums with a value for each column, such as gradient descent. It
        has as many canaries as rows, or columns if these are fewer: row i is huge in column i.
        Hundreds of canaries are needed.
    confidence : float, default=0.95
        Confidence of the bound.
    random_state : int, optional
        Seed of the canaries' coins, which by default come from the operating system.
    seed : int, optional
        Seed of the run's noise, for tests; by default it comes from the operating system.

    Returns
    -------
    AuditReport
        Its ``ratio`` is of epsilon.

    Notes
    -----
    A fair coin for each canary says whether it is there (under replace-one: whether it or its
    opposite). The attacker guesses the coins about which the run is most informative, see
    ``dpglm.audit.guessing``. One run suffices where runs are expensive, but shows less
    than many runs do; canaries in columns of their own do not disturb each other.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> from dpglm.solvers import NoisyGD
    >>> solver, data = NoisyGD(n_steps=2, clip=0.25), DataSpec(n_rows=200, n_features=200)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(8.0, 1e-5), data)
    >>> audit_in_one_run(plan).refuted
    False
    """
    confidence = check_real("confidence", confidence, above=0.0, below=1.0)
    if random_state is not None:
        check_integer("random_state", random_state, least=0)
    claim = Claim.of(plan)
    canaries = min(plan.data.n_rows, plan.data.n_features)
    check_integer("n_rows", canaries, least=2)
    if not pays_for_all(plan):
        raise ValueError(f"plan must account for all that it releases, got {plan.method!r}")
    coins = np.random.default_rng(random_state).random(canaries) < 0.5
    noise = SystemNoise() if seed is None else SeededNoise(seed)
    # Log-likelihood ratio of each canary, as if it were alone in its column.
    recording, laws = Recording(noise), []
    run(plan, _rows(plan, canaries, coins), recording)
    for everybody in (True, False):
        replay = Replay(recording)
        run(plan, _rows(plan, canaries, np.full(canaries, everybody)), replay)
        laws.append(replay.laws)
    scores, shape = np.zeros(canaries), plan.data.coefficient_shape
    for release, there, gone in zip(recording.releases, *laws, strict=True):
        known = isinstance(there, NoiseLaw) and isinstance(gone, NoiseLaw) and there.is_gaussian
        if not known or there.mean.shape != shape:
            raise ValueError(
                f"plan must release Gaussian sums of shape {shape} only, got {plan.method!r}"
            )
        shift = (there.mean - gone.mean) / there.scale**2
        each = shift * (release.value - 0.5 * (there.mean + gone.mean))
        scores += each.reshape(plan.data.n_columns, -1).sum(axis=1)[:canaries]
    mu = gdp.mu(claim.epsilon, claim.delta) if claim.mu is None else claim.mu
    guesses = best_number_of_guesses(canaries, mu, claim.delta, confidence)
    surest = np.argsort(-np.abs(scores))[:guesses]
    right = int(((scores[surest] > 0.0) == coins[surest]).sum())
    epsilon = epsilon_of_guesses(canaries, guesses, right, claim.delta, confidence)
    return AuditReport(
        target=described(plan),
        claim=claim,
        release="all",
        method=f"{right} of {guesses} guesses right about {canaries} canaries",
        neighbours="canaries in one run, each there by a coin",
        runs=1,
        pilot_runs=0,
        confidence=confidence,
        epsilon=epsilon,
        mu=gdp.mu(epsilon, claim.delta),
        ratio=epsilon / claim.epsilon,
        refuted=epsilon > claim.epsilon,
        noise=noise.name,
    )


def _rows(plan: Plan, canaries: int, coins: NDArray[np.bool_]) -> Rows:
    """Prepare the canaries as their coins say, and rows that contribute nothing."""
    spec = plan.data
    target = plan.problem.loss.target
    far, _ = target_ends(target, spec.n_outputs, spec.target_low, spec.target_high)
    X = np.zeros((spec.n_rows, spec.n_features))
    X[np.arange(canaries), np.arange(canaries)] = HUGE * spec.row_norm
    weights = np.zeros(spec.n_rows)
    weights[:canaries] = coins
    if plan.adjacency is Adjacency.REPLACE_ONE:
        X[:canaries] *= np.where(coins, 1.0, -1.0)[:, np.newaxis]
        weights[:canaries] = 1.0
    rows = prepared(Table(X, np.full(spec.n_rows, far), weights), spec)
    return rows if plan.adjacency.n_is_public else rows.take(np.flatnonzero(weights))
