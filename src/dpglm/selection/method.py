"""Training on disjoint parts of the rows, then a private choice on a held-out part."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._json import plain_json
from dpglm._validation import Array, check_integer
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle, part_oracles
from dpglm.privacy import Adjacency, ApproximateDP, GaussianAccountant, GaussianDP, PrivacyBudget
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.accounting.calibrate import excess, largest_share
from dpglm.privacy.events import Composed, Event, Parallel, canonical
from dpglm.privacy.releases import AnyRelease
from dpglm.problem import Problem
from dpglm.selection.choices import Choice
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
)
from dpglm.solvers.checkpoint import AnyState
from dpglm.solvers.parts.defaults import stage_seed
from dpglm.solvers.uncertainty import NoiseCovariance


def part_sizes(
    n_rows: int, n_parts: int, choice_fraction: float, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> tuple[int, ...]:
    """Return the sizes of the training parts, and of the last part, for the choice.

    Sizes are at least 1 and sum to ``n_rows``, which must be public: otherwise one more row would
    move others into another part.

    >>> part_sizes(100, 3, 0.2)
    (27, 27, 26, 20)
    """
    if not adjacency.n_is_public:
        raise ValueError(
            "adjacency must be 'zero_out' or 'replace_one' for disjoint parts of the rows, "
            f"got {adjacency.value!r}"
        )
    if n_rows <= n_parts:
        raise ValueError(
            f"n_rows must be at least {n_parts + 1}, one for each part of the rows, got {n_rows!r}"
        )
    choice = min(max(1, math.floor(choice_fraction * n_rows)), n_rows - n_parts)
    each, rest = divmod(n_rows - choice, n_parts)
    return (*(each + (j < rest) for j in range(n_parts)), choice)


def partition(seed: int, sizes: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    """Draw the ascending row numbers of each part by public randomness.

    >>> partition(1, (2, 3))
    (array([0, 4]), array([1, 2, 3]))
    """
    order = np.random.default_rng([seed, 0]).permutation(sum(sizes))
    # Ascending, for sequential reads.
    return tuple(np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1]))


@final
@dataclass(frozen=True)
class Training:
    """One model: its name in reports, its part of the rows by number, its plan and parameters."""

    name: str
    part: int
    plan: Plan
    parameters: Mapping[str, Any] = field(default_factory=dict)


@final
@dataclass(frozen=True, eq=False)
class SelectionState:
    """Models trained so far, their noise covariances, and the training in progress."""

    seed: int
    step: int = 0
    models: tuple[Array, ...] = ()
    noises: tuple[NoiseCovariance | None, ...] = ()
    trained: int = 0  # Steps of the training in progress, and its method's state.
    training: AnyState | None = None
    chosen: Array | None = None


@final
@dataclass(frozen=True)
class SelectionMethod(Composite["SelectionState"]):
    """Several trainings, and a private choice of one of their models on held-out rows.

    ``part_sizes`` are the sizes of the disjoint parts; the last part is for the choice only.

    Privacy: public randomness assigns rows to parts independently of their values. Two neighbours
    differ within one part; releases about the other parts have the same distribution for both,
    given earlier releases. The run is therefore as private as the worst part, for relations with a
    public number of rows (McSherry, SIGMOD 2009, Theorem 4). Trainings on the same part compose.
    """

    title: str
    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    trainings: tuple[Training, ...]
    part_sizes: tuple[int, ...]
    choice: Choice

    def __post_init__(self) -> None:
        if sum(self.part_sizes) != self.data.n_rows or min(self.part_sizes, default=0) < 1:
            raise ValueError(
                f"part_sizes must make up {self.data.n_rows} rows, got {self.part_sizes!r}"
            )
        for one in self.trainings:
            check_integer("part", one.part, least=0)
            size = self.part_sizes[min(one.part, len(self.part_sizes) - 1)]
            if one.part >= len(self.part_sizes) - 1 or one.plan.data != dataclasses.replace(
                self.data, n_rows=size
            ):
                raise ValueError(
                    f"{one.name} must be for the rows of one of the first parts of "
                    f"{self.part_sizes!r}, got part {one.part} and {one.plan.data!r}"
                )

    @property
    def algorithm(self) -> str:
        return self.title

    @property
    def stages(self) -> tuple[FitStage, ...]:
        trained = (FitStage.of(one.name, one.plan, one.part) for one in self.trainings)
        last = len(self.part_sizes) - 1
        return (*trained, FitStage("choice", (self.chosen_by,), self.chosen_by.event, last))

    def combined(self, events: Sequence[Event]) -> Event:
        by_part: list[list[Event]] = [[] for _ in self.part_sizes]
        for stage, event in zip(self.stages, events, strict=True):
            assert stage.part is not None
            by_part[stage.part].append(event)
        return canonical(Parallel(tuple(Composed(tuple(part)) for part in by_part)))

    @functools.cached_property
    def chosen_by(self) -> AnyRelease:
        """The release of the choice."""
        left = dataclasses.replace(self.data, n_rows=self.part_sizes[-1])
        return self.choice.release(left, self.adjacency)

    @property
    def gradient_evaluations(self) -> float:
        # A loss of a row costs as much as its gradient.
        return super().gradient_evaluations + len(self.trainings) * self.part_sizes[-1]

    def init(self, seed: int) -> SelectionState:
        return SelectionState(seed)

    def step(self, state: SelectionState, oracle: Oracle) -> tuple[SelectionState, StepInfo]:
        if "parts" not in oracle.kept:
            oracle.kept["parts"] = part_oracles(oracle, partition(state.seed, self.part_sizes))
        parts: tuple[Oracle, ...] = oracle.kept["parts"]
        state = dataclasses.replace(state, step=state.step + 1)
        if len(state.models) == len(self.trainings):
            chosen = self.choice.choose(state.models, parts[-1], self.chosen_by)
            return dataclasses.replace(state, chosen=chosen), StepInfo(state.step, math.nan)
        return self._train(state, oracle, parts)

    def _train(
        self, state: SelectionState, oracle: Oracle, parts: tuple[Oracle, ...]
    ) -> tuple[SelectionState, StepInfo]:
        training = self.trainings[len(state.models)]
        method, seed = training.plan.method, stage_seed(state.seed, len(state.models))
        inner = state.training if state.trained else method.init(seed)
        if state.trained == 0:
            oracle.kept["prepared"] = prepared(training.plan, parts[training.part], seed)
        inner, info = method.step(inner, oracle.kept["prepared"])
        info = dataclasses.replace(info, step=state.step)
        state = dataclasses.replace(state, trained=state.trained + 1, training=inner)
        if state.trained < method.n_steps:
            return state, info
        outcome = finished(method, inner)
        models = (*state.models, outcome.w)
        noises = (*state.noises, outcome.noise_covariance)
        after = SelectionState(state.seed, state.step, models, noises)
        return after, info

    def finish(self, state: SelectionState) -> Outcome:
        assert state.chosen is not None
        number = next((j for j, w in enumerate(state.models) if w is state.chosen), None)
        noise = None if number is None else state.noises[number]
        return Outcome(state.chosen, noise, chosen=number)


# Candidates that are trained on the same rows, and the division of a budget among them.

# Start of the search, relative to the share that the proof allows.
_START = 0.7


@final
@dataclass(frozen=True)
class Candidate:
    """One way to train a model.

    ``parameters`` identify it, as plain JSON; ``problem`` returns the problem for public facts
    about the rows.
    """

    parameters: Mapping[str, Any]
    solver: Solver
    problem: Callable[[DataSpec], Problem]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", plain_json(self.parameters))

    def plan(self, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency) -> Plan:
        """Plan the training."""
        return self.solver.plan(self.problem(data), budget, data, adjacency)


def are_gaussian(
    candidates: Iterable[Candidate], budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
) -> bool:
    """Return whether every training consists of Gaussian releases."""
    plans = (one.plan(budget, data, adjacency) for one in candidates)
    return all(GaussianAccountant().supports(plan.event, adjacency) for plan in plans)


def trainings_of(
    candidates: Iterable[Candidate], budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
) -> tuple[Training, ...]:
    """Plan the training of each candidate on the same rows, each with this budget."""
    return tuple(
        Training(f"candidate {number}", 0, one.plan(budget, data, adjacency), one.parameters)
        for number, one in enumerate(candidates, start=1)
    )


def shared_budget(budget: PrivacyBudget, count: int, *, gaussian: bool) -> PrivacyBudget:
    """Return the budget of one of several trainings on the same rows; Gaussian ones add mu^2."""
    if count == 1:
        return budget
    if gaussian:
        # The margin covers rounding.
        return GaussianDP(budget.gdp_mu() / math.sqrt(count) * (1.0 - 1e-13))
    limit = budget.as_approximate_dp()
    return ApproximateDP(limit.epsilon / count, limit.delta / count * (1.0 - 1e-13))


def held_out(
    title: str,
    candidates: Sequence[Candidate],
    choice: Choice,
    sizes: tuple[int, ...],
    facts: Facts,
) -> SelectionMethod:
    """Plan trainings on the first of two parts of the rows, and the choice on the other.

    Privacy: the choice spends the whole budget on its own rows. Trainings share the budget, exactly
    in mu-GDP if all are Gaussian. Otherwise shares of epsilon and delta sum to the budget (Dwork
    and Roth 2014, Theorem 3.16), but a numerical accountant may not confirm it: its bound for a
    composition of sampled and pure steps can exceed the sum of its bounds. Shares of epsilon
    therefore shrink until the accounted total is within the budget.
    """
    budget, data, adjacency = facts.budget, facts.data, facts.adjacency
    part, count = dataclasses.replace(data, n_rows=sizes[0]), len(candidates)

    def build(shared: PrivacyBudget) -> SelectionMethod:
        trainings = trainings_of(candidates, shared, part, adjacency)
        return SelectionMethod(title, facts.problem, data, adjacency, trainings, sizes, choice)

    gaussian = are_gaussian(candidates, budget, part, adjacency)
    method = build(shared_budget(budget, count, gaussian=gaussian))
    if within_budget(method.event, adjacency, budget):
        return method
    share = shared_budget(budget, count, gaussian=False).as_approximate_dp()
    found = largest_share(
        lambda part: build(ApproximateDP(part * share.epsilon, share.delta)),
        lambda method: excess(method.event, adjacency, budget),
        start=_START,
    )
    if found is None:
        raise ValueError(
            f"budget must allow for {count} trainings on the same rows, got {budget!r}"
        )
    return found
