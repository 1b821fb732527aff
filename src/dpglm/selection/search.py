"""Solvers that train several candidates and release the best one under one budget."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dpglm._calls import checked, silent
from dpglm._validation import check_bools, check_kind, check_real
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle, noisy_loss, noisy_loss_release
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, PrivacyBudget, gdp
from dpglm.privacy.accounting.calibrate import calibrate, excess, largest_share
from dpglm.privacy.events import Composed, Event, Gaussian, RandomlyRepeated
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import SumRelease
from dpglm.privacy.selection.repetitions import Repetitions, uniform
from dpglm.problem import L2Ball, Loss, Problem, Unconstrained
from dpglm.selection import choices
from dpglm.selection.method import (
    Candidate,
    SelectionMethod,
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
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.defaults import check_given

_MARGIN = 1.0 - 1e-12


# Models on disjoint chunks of the rows, or of several norms.


@final
@dataclass(frozen=True)
class ConfidenceBoosting(Solver):
    """Train models on disjoint chunks of the rows and choose the best one privately.

    This helps solvers that fail occasionally. For reliable solvers one model on all rows is better.

    Parameters
    ----------
    solver : Solver, default=NoisyGD()
        Trains each model.
    n_models : int, default=5
        Number m of models, at least 1.
    choice_fraction : float, default=0.2
        Share of the rows for the choice, in (0, 1); the others are divided equally among the
        models.
    loss_bound : float, optional
        Clipping threshold of losses, above 0; by default four times the largest loss at prediction
        zero.

    Notes
    -----
    Privacy: rows are divided by public randomness, so every training and the choice,
    permute-and-flip on clipped losses, each spend the whole budget on their own rows: parallel
    composition. It requires a relation with a public number of rows and an (epsilon, delta) budget.
    All models may be published; their losses are not released.

    References
    ----------
    Arora et al. 2022, "Confidence boosting" in section 5, and Appendix D.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> solver = ConfidenceBoosting(NoisyGD(n_steps=50), n_models=3)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), DataSpec(10_000, 20))
    >>> plan.method.part_sizes
    (2667, 2667, 2666, 2000)
    """

    solver: Solver = field(default_factory=NoisyGD)
    n_models: int = 5
    choice_fraction: float = 0.2
    loss_bound: float | None = None

    def __post_init__(self) -> None:
        check_kind("solver", self.solver, Solver, "a Solver")
        check_given(self)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        sizes = part_sizes(data.n_rows, self.n_models, self.choice_fraction, adjacency)
        trainings = tuple(
            Training(
                f"model {part + 1}",
                part,
                self.solver.plan(
                    problem, budget, dataclasses.replace(data, n_rows=size), adjacency
                ),
            )
            for part, size in enumerate(sizes[:-1])
        )
        bound = choices.default_loss_bound(problem.loss, data)
        method = SelectionMethod(
            title="confidence boosting",
            problem=problem,
            data=data,
            adjacency=adjacency,
            trainings=trainings,
            part_sizes=sizes,
            choice=choices.LeastLoss(
                bound if self.loss_bound is None else self.loss_bound,
                choices.epsilon_of_choice(budget, adjacency),
            ),
        )
        return facts.plan(method)


_DEFAULT_POWERS = range(-1, 5)


@checked
@final
@dataclass(frozen=True)
class NormGridSearch(Solver):
    """Train a model for each of several norm bounds and choose one privately.

    One part of the rows trains a model on the ball ``|w| <= B`` for each bound B; the other
    part chooses among these and the zero model by their losses.

    Parameters
    ----------
    solver : Solver, default=NoisyGD()
        Trains each model.
    bounds : sequence of float, optional
        Norm bounds B, ascending, above 0, in the coordinates of the prepared rows. By default
        six powers of two times the norm at which predictions begin to matter.
    choice_fraction : float, default=0.2
        Share of the rows for the choice, in (0, 1); the others train.
    loss_bound : float, optional
        Clipping threshold of losses, above 0; by default four times the largest loss at
        prediction zero. For a small B it is the largest loss within the ball if that is less.
    failure : float, default=0.1
        Probability with which the choice may miss its accuracy, in (0, 1).
    penalized : bool, default=False
        Whether models compete by an upper bound on their risk instead of their mean loss. For
        losses in ``[0, Delta]`` of m rows, and a risk of at most Y, the largest loss of the zero
        model, the risk exceeds the mean loss by at most
        ``2 Delta t / (3 m) + sqrt(2 Y Delta t / m)``, with ``t = log(K / failure)`` for K models
        (Bernstein's inequality: the variance of such losses is at most ``Delta Y``).

    Notes
    -----
    Privacy: training and choice each spend the whole budget on their own rows. Trainings share the
    budget: each gets ``mu / sqrt(K)`` if the solver releases Gaussian sums over all rows; otherwise
    at most a K-th of epsilon and delta. The choice is the generalised exponential mechanism on
    losses clipped to ``Delta(B)``. It requires a relation with a public number of rows and an
    (epsilon, delta) budget. The losses of the models are not released.

    References
    ----------
    Arora et al. 2022, Algorithm 4 and Theorem 7 (there ``Delta(B)`` holds with high
    probability only). Raskhodnikova and Smith 2015, for the generalised exponential mechanism.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> solver = NormGridSearch(NoisyGD(n_steps=50), bounds=(1.0, 2.0, 4.0))
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), DataSpec(10_000, 20))
    >>> plan.n_steps, plan.method.part_sizes
    (151, (8000, 2000))
    """

    solver: Solver = field(default_factory=NoisyGD)
    bounds: Sequence[float] | None = None
    choice_fraction: float = 0.2
    loss_bound: float | None = None
    failure: float = 0.1
    penalized: bool = False

    def __post_init__(self) -> None:
        check_bools(self)
        if self.bounds is not None:
            bounds = tuple(check_real("bounds", bound, above=0.0) for bound in self.bounds)
            if not (bounds and all(a < b for a, b in itertools.pairwise(bounds))):
                raise ValueError(f"bounds must be one or more, in ascending order, got {bounds}")
            object.__setattr__(self, "bounds", bounds)
        check_given(self)
        check_real("failure", self.failure, least=1e-9)

    def decide(self, facts: Facts) -> Plan:
        problem, budget, data, adjacency = facts.problem, facts.budget, facts.data, facts.adjacency
        if problem.constraint != Unconstrained():
            raise ValueError(
                f"constraint must be Unconstrained() for NormGridSearch, got {problem.constraint!r}"
            )
        sizes = part_sizes(data.n_rows, 1, self.choice_fraction, adjacency)
        bounds = default_bounds(problem.loss, data) if self.bounds is None else self.bounds
        at_zero, most = choices.largest_at_zero(problem.loss, data), self.loss_bound
        most = choices.default_loss_bound(problem.loss, data) if most is None else most
        loss_bounds = tuple(
            min(most, choices.largest_within(problem.loss, data, one)) for one in bounds
        )
        penalties = (0.0,) * len(bounds)
        if self.penalized:
            share = math.log(len(bounds) / self.failure) / sizes[-1]
            penalties = tuple(excess_risk(most, at_zero, share) for most in loss_bounds)
        choice = choices.LeastLossByNorm(
            loss_bounds,
            penalties,
            at_zero,
            choices.epsilon_of_choice(budget, adjacency),
            self.failure,
        )
        candidates = [self._candidate(problem, bound) for bound in bounds]
        title = "private grid search over the norm of the coefficients"
        method = held_out(title, candidates, choice, sizes, facts)
        return facts.plan(method)

    def _candidate(self, problem: Problem, bound: float) -> Candidate:
        within = dataclasses.replace(problem, constraint=L2Ball(bound))
        return Candidate({"norm": bound}, self.solver, lambda data: within)


def excess_risk(most: float, at_zero: float, share: float) -> float:
    """Bound a risk of at most ``at_zero`` less its mean loss, by Bernstein's inequality.

    Losses are at most ``most``; ``share`` is the logarithm of the inverse probability of failure,
    over the number of rows.
    """
    return 2.0 / 3.0 * most * share + math.sqrt(2.0 * at_zero * most * share)


def default_bounds(loss: Loss, data: DataSpec) -> tuple[float, ...]:
    """Return six norms, from half to sixteen times ``slope_unit / (curvature * row_norm)``.

    >>> from dpglm.problem import Logistic
    >>> default_bounds(Logistic(), DataSpec(1000, 3, row_norm=2.0))
    (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
    """
    scale = defaults.slope_range(loss, data)
    return tuple(2.0**power * scale / data.row_norm for power in _DEFAULT_POWERS)


# The search of estimators.


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
        score, epsilon = (
            choices.score_for(problem.loss, data),
            choices.epsilon_of_choice(budget, adjacency),
        )
        choice = choices.LeastLoss(score.bound, epsilon, score)
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

        def with_budget(training: PrivacyBudget, noise: float) -> RepeatedSearchMethod:
            return RepeatedSearchMethod(
                problem=problem,
                data=data,
                adjacency=adjacency,
                trainings=trainings_of(self.candidates, training, data, adjacency),
                repetitions=self.repetitions,
                score=choices.score_for(problem.loss, data),
                score_noise_multiplier=noise / (math.sqrt(self.score_share) * _MARGIN),
            )

        if are_gaussian(self.candidates, budget, data, adjacency):
            return facts.plan(with_budget(training, noise))
        # The largest budget of a training, starting from that of Gaussian trainings.
        limit = budget.as_approximate_dp()
        delta = (1.0 - self.score_share) * limit.delta / self.repetitions.mean

        def with_share(share: float) -> RepeatedSearchMethod:
            training = ApproximateDP(share * limit.epsilon, delta)
            noise = math.sqrt(1.0 - self.score_share) / training.gdp_mu()
            return with_budget(training, noise)

        best = largest_share(
            with_share,
            lambda method: excess(method.event, adjacency, limit),
            start=gdp.epsilon(delta, training.mu) / limit.epsilon,
        )
        if best is None:
            raise ValueError(f"budget must allow for {self.repetitions!r}, got {budget!r}")
        return facts.plan(best)


@final
@dataclass(frozen=True)
class RepeatedSearchMethod(Composite[Outcome]):
    """Random repetition with every setting decided."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    trainings: tuple[Training, ...]
    repetitions: Repetitions
    score: choices.PredictionScore
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

    def init(self, seed: int) -> Outcome:
        # Without any try, which some distributions allow, the zero model is returned.
        return Outcome(np.zeros(self.data.coefficient_shape))

    def step(self, state: Outcome, oracle: Oracle) -> tuple[Outcome, StepInfo]:
        least = math.inf
        tries = self.combined([one.mechanisms for one in self.stages])
        for curator in oracle.curator.tries(tries):
            number = uniform(curator.noise, len(self.trainings))
            asked = dataclasses.replace(oracle, curator=curator)
            # A progress bar of passes would reveal the secret number of tries.
            with silent():
                plan, seed = self.trainings[number].plan, int(curator.noise.words(1)[0])
                method = plan.method
                trained = take_steps(method, method.init(seed), prepared(plan, asked, seed))
                found = finished(method, trained)
                score = noisy_loss(asked, self.scores, found.w, self.score.value, self.score.bound)
            # The first of equal scores wins; the order does not depend on the rows.
            if score < least:
                least = score
                state = Outcome(found.w, found.noise_covariance, chosen=number)
        return state, StepInfo(1, math.nan)

    def finish(self, state: Outcome) -> Outcome:
        return state
