"""An audit by a single run: many rows of interest at once, each in or out by a coin."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.audit.claims import Claim
from dpglm.audit.games import pays_for_all
from dpglm.audit.guesses_of_canaries import best_number_of_guesses, epsilon_of_guesses
from dpglm.audit.laws import GaussianLaw
from dpglm.audit.listening import Recording, Replay
from dpglm.audit.neighbours import HUGE, Table, prepared, target_ends
from dpglm.audit.planted import planted
from dpglm.audit.report import AuditReport, described
from dpglm.data.rows import Rows
from dpglm.privacy import gdp
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run

__all__ = ["audit_in_one_run"]


def audit_in_one_run(
    plan: Plan,
    *,
    confidence: float = 0.95,
    random_state: int | None = None,
    seed: int | None = None,
    planted_bug: str | None = None,
) -> AuditReport:
    """Attack a plan by one run on canaries, and bound its privacy loss from below.

    Parameters
    ----------
    plan : Plan
        One that releases noisy sums with a value for each column, such as gradient descent. It
        has as many canaries as rows, or columns if these are fewer: row i is huge in column i.
        Hundreds of canaries are needed.
    confidence : float, default=0.95
        Of the bound.
    random_state : int, optional
        Of the canaries' coins; by default they come from the operating system.
    seed : int, optional
        Of the run's own noise, for tests; by default the operating system's.
    planted_bug : str, optional
        One of ``dpglm.audit.planted.PLANTED``.

    Returns
    -------
    AuditReport
        Its ``ratio`` is of epsilon.

    Raises
    ------
    ValueError
        If the plan releases something else.

    Notes
    -----
    A fair coin for each canary says whether it is there (under replace-one: whether it or its
    opposite). The attacker guesses the coins about which the run is most informative, see
    ``dpglm.audit.guesses_of_canaries``. One run suffices where runs are expensive, but shows less
    than many runs do; canaries in columns of their own do not disturb each other.

    References
    ----------
    Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.

    Examples
    --------
    >>> from dpglm.data.spec import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic, Problem
    >>> from dpglm.solvers import NoisyGD
    >>> solver, data = NoisyGD(n_steps=2, clip=0.25), DataSpec(n_rows=200, n_features=200)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(8.0, 1e-5), data)
    >>> audit_in_one_run(plan).refuted
    False
    """
    confidence = check_real("confidence", confidence, above=0.0, below=1.0)
    claim = Claim.of(plan)
    canaries = min(plan.data.n_rows, plan.data.n_features)
    check_integer("n_rows", canaries, least=2)
    if not pays_for_all(plan):
        raise ValueError(f"plan must pay for all that it releases, got {plan.method!r}")
    coins = np.random.default_rng(random_state).random(canaries) < 0.5
    noise = SystemNoise() if seed is None else SeededNoise(seed)
    with planted(planted_bug):
        scores = _scores(plan, canaries, coins, Recording(noise))
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
        planted_bug=planted_bug,
    )


def _scores(
    plan: Plan, canaries: int, coins: NDArray[np.bool_], recording: Recording
) -> NDArray[np.float64]:
    """Log-likelihood ratio of each canary, as if it were alone in its column."""
    run(plan, _rows(plan, canaries, coins), recording)
    sides = []
    for everybody in (True, False):
        replay = Replay(recording)
        run(plan, _rows(plan, canaries, np.full(canaries, everybody)), replay)
        sides.append(replay.laws)
    scores = np.zeros(canaries)
    for release, there, gone in zip(recording.releases, *sides, strict=True):
        scores += _column_scores(release.value, there, gone, plan)[:canaries]
    return scores


def _column_scores(value: Any, there: Any, gone: Any, plan: Plan) -> NDArray[np.float64]:
    shape = plan.data.coefficient_shape
    if not isinstance(there, GaussianLaw) or there.mean.shape != shape:
        raise ValueError(
            f"plan must release Gaussian sums of shape {shape} only, got {plan.method!r}"
        )
    shift = (there.mean - gone.mean) / there.std**2
    each = shift * (value - 0.5 * (there.mean + gone.mean))
    scores: NDArray[np.float64] = each.reshape(plan.data.n_columns, -1).sum(axis=1)
    return scores


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
