"""Solvers that train several candidates and release the best one under one budget."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dpglm._progress import silent
from dpglm._validation import Array
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.losses import noisy_loss, noisy_loss_release
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, PrivacyBudget, gdp
from dpglm.privacy.accounting.calibrate import calibrate, excess, largest_share
from dpglm.privacy.events import Composed, Event, Gaussian, RandomlyRepeated
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import SumRelease
from dpglm.privacy.selection.repetitions import Repetitions, uniform
from dpglm.problem import Problem
from dpglm.selection.choices import LeastLoss, PredictionScore, epsilon_of_choice, score_for
from dpglm.selection.method import (
    Candidate,
    Training,
    are_gaussian,
    held_out,
    part_sizes,
    trainings_of,
)
from dpglm.solvers.base import (
    Composite,
    Facts,
    FitStage,
    Outcome,
    Plan,
    Solver,
    StepInfo,
    finished,
    prepared,
    take_steps,
)
from dpglm.solvers.uncertainty import NoiseCovariance

_MARGIN = 1.0 - 1e-12


@final
@dataclass(frozen=True)
class HeldOutSearch(Solver):
    """Trains every candidate on one part of the rows and chooses one on the other.

    Privacy: see ``SelectionMethod`` and ``held_out``, which divides the budget.
    """

    candidates: tuple[Candidate, ...]
    choice_fraction: float

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        return any(one.solver.needs_float64(problem, budget) for one in self.candidates)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        sizes = part_sizes(data.n_rows, 1, self.choice_fraction, adjacency)
        score, epsilon = score_for(problem.loss, data), epsilon_of_choice(budget, adjacency)
        choice = LeastLoss(score.bound, epsilon, score)
        title = "private search with a choice on rows held out"
        method = held_out(title, self.candidates, choice, sizes, facts)
        return facts.plan(method)


@final
@dataclass(frozen=True)
class RepeatedSearch(Solver):
    """Trains randomly drawn candidates a random number of times and keeps the best one.

    Privacy: ``RandomlyRepeated``. Each try draws a candidate uniformly, trains it on all rows and
    releases a noisy score; only the try with the least score is published. If all trainings are
    Gaussian, one try is mu-GDP with the largest mu within the budget, and the score gets the share
    ``score_share`` of mu squared. Otherwise each training gets the largest epsilon within the
    budget, to a hundredth, and the score its share of the corresponding mu.
    """

    candidates: tuple[Candidate, ...]
    repetitions: Repetitions
    score_share: float

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        return any(one.solver.needs_float64(problem, budget) for one in self.candidates)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        if not adjacency.n_is_public:
            raise ValueError(
                "adjacency must be 'zero_out' or 'replace_one' for a score that counts rows, "
                f"got {adjacency.value!r}"
            )
        noise = calibrate(
            lambda sigma: RandomlyRepeated((Gaussian(sigma),), self.repetitions), budget, adjacency
        )
        training = GaussianDP(math.sqrt(1.0 - self.score_share) * _MARGIN / noise)
        if are_gaussian(self.candidates, budget, data, adjacency):
            method = self._method(problem, data, adjacency, training, noise)
            return facts.plan(method)
        return self._largest(problem, budget, data, adjacency, training.mu)

    def _method(
        self,
        problem: Problem,
        data: DataSpec,
        adjacency: Adjacency,
        training: PrivacyBudget,
        noise_multiplier: float,
    ) -> RepeatedSearchMethod:
        """Return the method with this budget for each training."""
        return RepeatedSearchMethod(
            problem=problem,
            data=data,
            adjacency=adjacency,
            trainings=trainings_of(self.candidates, training, data, adjacency),
            repetitions=self.repetitions,
            score=score_for(problem.loss, data),
            score_noise_multiplier=noise_multiplier / (math.sqrt(self.score_share) * _MARGIN),
        )

    def _largest(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency,
        mu: float,
    ) -> Plan:
        """Find the largest budget of a training, starting from that of Gaussian trainings."""
        limit = budget.as_approximate_dp()
        delta = (1.0 - self.score_share) * limit.delta / self.repetitions.mean

        def method_for(share: float) -> RepeatedSearchMethod:
            training = ApproximateDP(share * limit.epsilon, delta)
            noise = math.sqrt(1.0 - self.score_share) / training.gdp_mu()
            return self._method(problem, data, adjacency, training, noise)

        best = largest_share(
            method_for,
            lambda method: excess(method.event, adjacency, limit),
            start=gdp.epsilon(delta, mu) / limit.epsilon,
        )
        if best is None:
            raise ValueError(f"budget must allow for {self.repetitions!r}, got {budget!r}")
        return Plan(data, budget, adjacency, best)


@final
@dataclass(frozen=True, eq=False)
class RepeatedSearchState:
    """The best model so far, the number of its candidate, and its noise covariance."""

    w: Array | None = None
    chosen: int | None = None
    noise: NoiseCovariance | None = None


@final
@dataclass(frozen=True)
class RepeatedSearchMethod(Composite["RepeatedSearchState"]):
    """Random repetition with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    trainings: tuple[Training, ...]
    repetitions: Repetitions
    score: PredictionScore
    score_noise_multiplier: float

    algorithm = "private search with a random number of tries"

    releases_iterates = False

    def __post_init__(self) -> None:
        for one in self.trainings:
            if one.plan.data != self.data:
                raise ValueError(
                    f"{one.name} must be for all rows, {self.data!r}, got {one.plan.data!r}"
                )

    @property
    def stages(self) -> tuple[FitStage, ...]:
        trained = (FitStage.of(one.name, one.plan) for one in self.trainings)
        return (*trained, FitStage("choice", (self.scores,), self.scores.event))

    @property
    def n_steps(self) -> int:
        # The number of trainings is secret.
        return 1

    @functools.cached_property
    def scores(self) -> SumRelease:
        """The release of each score."""
        noise = GaussianNoise(self.score_noise_multiplier)
        return noisy_loss_release(self.data, self.adjacency, self.score.bound, noise)

    def combined(self, events: Sequence[Event]) -> RandomlyRepeated:
        *trainings, score = events
        tries = tuple(Composed((training, score)) for training in trainings)
        return RandomlyRepeated(tries, self.repetitions)

    @property
    def gradient_evaluations(self) -> float:
        # A row's loss costs as much as its gradient.
        single = super().gradient_evaluations / len(self.trainings) + self.data.n_rows
        return self.repetitions.mean * single

    def init(self, seed: int) -> RepeatedSearchState:
        return RepeatedSearchState()

    def step(
        self, state: RepeatedSearchState, oracle: Oracle
    ) -> tuple[RepeatedSearchState, StepInfo]:
        least = math.inf
        tries = self.combined([one.mechanisms for one in self.stages])
        for curator in oracle.curator.tries(tries):
            number = uniform(curator.noise, len(self.trainings))
            asked = dataclasses.replace(oracle, curator=curator)
            # A progress bar of passes would reveal the secret number of tries.
            with silent():
                found = _train(self.trainings[number].plan, asked)
                score = noisy_loss(asked, self.scores, found.w, self.score, self.score.bound)
            # The first of equal scores wins; the order does not depend on the rows.
            if score < least:
                least = score
                state = RepeatedSearchState(found.w, number, found.noise_covariance)
        return state, StepInfo(1, math.nan)

    def finish(self, state: RepeatedSearchState) -> Outcome:
        # Without any try, which some distributions allow, the zero model is returned.
        w = np.zeros(self.data.coefficient_shape) if state.w is None else state.w
        return Outcome(w, state.noise, chosen=state.chosen)


def _train(plan: Plan, oracle: Oracle) -> Outcome:
    """Run a plan; ``oracle.curator`` records the releases."""
    method = plan.method
    seed = int(oracle.curator.noise.words(1)[0])
    state = take_steps(method, method.init(seed), prepared(plan, oracle, seed))
    return finished(method, state)
