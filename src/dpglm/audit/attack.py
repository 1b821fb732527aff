"""The audit: many runs on two neighbouring data sets, guessed and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from dpglm._progress import stage
from dpglm._validation import check_integer, check_one_of, check_real
from dpglm.audit.games import FunctionGame, Game, PlanGame, pays_for_all
from dpglm.audit.guessing import choose_guess, first_unless_beaten, ratio_to
from dpglm.audit.neighbours import Neighbours, estimator_neighbours, worst_neighbours
from dpglm.audit.report import AuditReport, Claim, Observation, described
from dpglm.privacy.noise import NoiseSource, SeededNoise, SystemNoise
from dpglm.solvers.base import Plan

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

    Returns
    -------
    AuditReport

    Raises
    ------
    ValueError
        If a parameter is invalid.

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
    games = _games(attacked, neighbours, sees_all)
    plan = games[0].plan
    if claim is None:
        if plan is None:
            raise ValueError("claim must be given for a function, got None")
        claim = Claim.of(plan)
    watch = _Watch(noise, seed, n_jobs)

    with stage("Runs of the attack", 2 * (len(games) * pilot_runs + runs)) as advance:
        pilots = [watch.play(game, pilot_runs, advance) for game in games]
        guesses = [choose_guess(*pilot, claim, confidence, runs) for pilot in pilots]
        best = first_unless_beaten([guess.promise for guess in guesses])
        guess, game = guesses[best], games[best]
        bounds = guess.bounds(*watch.play(game, runs, advance), confidence)

    found = max(bounds, key=lambda one: ratio_to(claim, one))
    return AuditReport(
        target=_described(target, plan),
        claim=claim,
        release="all" if game.sees_all else "model",
        method=guess.score.name,
        neighbours=game.neighbours.name,
        runs=runs,
        pilot_runs=pilot_runs,
        confidence=confidence,
        epsilon=max(one.epsilon(claim.delta) for one in bounds),
        mu=found.mu(),
        ratio=ratio_to(claim, found),
        refuted=any(one.missed < claim.least_missed(one.false) for one in bounds),
        noise="the function's own" if plan is None else watch.noise_name,
    )


def _games(target: Any, neighbours: Sequence[Neighbours] | None, sees_all: bool) -> list[Game]:
    if isinstance(target, Plan):
        sees_all = sees_all and pays_for_all(target)
        pairs = worst_neighbours(target) if neighbours is None else neighbours
        return [PlanGame(pair, sees_all, target) for pair in pairs]
    if not callable(target):
        raise ValueError(f"target must be a plan, an estimator or a function, got {target!r}")
    if not neighbours:
        raise ValueError(f"neighbours must be given for a function, got {neighbours!r}")
    return [FunctionGame(pair, target) for pair in neighbours]


def _described(target: Any, plan: Plan | None) -> str:
    if plan is None:
        return repr(target)
    return described(plan) if target is plan else f"{type(target).__name__}: {described(plan)}"


@final
@dataclass
class _Watch:
    """Plays games with fresh noise each time."""

    noise: NoiseSource
    seed: int | None
    n_jobs: int
    _played: int = 0

    @property
    def noise_name(self) -> str:
        return self.noise.name if self.seed is None else SeededNoise.name

    def play(
        self, game: Game, runs: int, advance: Callable[[int], None]
    ) -> tuple[list[Observation], list[Observation]]:
        """Run on the first and on the second data set."""
        on_first = self._play(game, runs, advance, first=True)
        return on_first, self._play(game, runs, advance, first=False)

    def _play(
        self, game: Game, runs: int, advance: Callable[[int], None], *, first: bool
    ) -> list[Observation]:
        numbers = range(self._played, self._played + runs)
        self._played += runs
        chunks = [numbers[start : start + _CHUNK] for start in range(0, runs, _CHUNK)]
        played = Parallel(n_jobs=self.n_jobs, return_as="generator")(
            delayed(_play)(game, first, [self._source(number) for number in chunk])
            for chunk in chunks
        )
        seen: list[Observation] = []
        for chunk_played in played:
            seen += chunk_played
            advance(len(chunk_played))
        return seen

    def _source(self, number: int) -> NoiseSource:
        if self.seed is None:
            return self.noise
        state = np.random.SeedSequence([self.seed, number]).generate_state(1, np.uint64)
        return SeededNoise(int(state[0]))


def _play(game: Game, first: bool, sources: Sequence[NoiseSource]) -> list[Observation]:
    return [game.play(first, source) for source in sources]
