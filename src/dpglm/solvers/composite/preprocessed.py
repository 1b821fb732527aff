"""Private preprocessing and a solver under one budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from dpglm._calls import checked
from dpglm._validation import check_real
from dpglm.data.maps import RowMap
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.preprocessing.base import PlannedStep, Preprocessor
from dpglm.preprocessing.steps import Center
from dpglm.privacy import Composed
from dpglm.problem import Problem
from dpglm.solvers.base import (
    Composite,
    Facts,
    FitStage,
    Outcome,
    Plan,
    Solver,
    StepInfo,
    check_same,
    composed,
)
from dpglm.solvers.checkpoint import AnyState
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts.defaults import MARGIN, plan_beside, stage_seed

_MODEL = "model"


@checked
@final
@dataclass(frozen=True)
class Preprocessed(Solver):
    """Steps that learn a map of the rows from part of the budget, then a solver on mapped rows.

    Coefficients are returned in the coordinates of the rows before all steps. Penalties and
    constraints act on coefficients of mapped rows.

    Parameters
    ----------
    steps : sequence of Preprocessor
        In order, at least one.
    solver : Solver, default=NoisyGD()
        Fits the model to mapped rows.
    shares : sequence of float or None, optional
        Share of the budget for each step, of mu squared if the budget is seen as mu-GDP; in (0, 1),
        together below 1. None is the step's own rule, which depends on public facts only. The
        solver gets the rest.

    Notes
    -----
    Privacy: all releases compose, and the accountant accounts for all of them together. The map is
    public once its releases are, and mapped rows are bounded again row by row, for any map; so the
    solver's event holds for rows that differ in one place.

    References
    ----------
    Sun et al. 2023, Algorithms 2 and 3.

    Examples
    --------
    >>> from dpglm.preprocessing import Center
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=10_000, n_features=20, intercept=1.0)
    >>> plan = Preprocessed([Center()]).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> [one.quantity for one in plan.method.releases]
    ['center: row sum', 'model: clipped gradient sum']
    """

    steps: Sequence[Preprocessor]
    solver: Solver = field(default_factory=NoisyGD)
    shares: Sequence[float | None] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", tuple(self.steps))
        if not self.steps:
            raise ValueError(f"steps must be one or more Preprocessors, got {self.steps!r}")
        if self.shares is not None:
            object.__setattr__(self, "shares", tuple(self.shares))
            if len(self.shares) != len(self.steps):
                raise ValueError(
                    f"shares must be {len(self.steps)}, one for each step, got {self.shares!r}"
                )
            for share in self.shares:
                if share is not None:
                    check_real("shares", share, above=0.0, below=1.0)

    def decide(self, facts: Facts) -> Plan:
        data, adjacency = facts.data, facts.adjacency
        mu = facts.budget.gdp_mu() * MARGIN
        steps: list[PlannedStep] = []
        mapped, left = data, 1.0
        for step, given in zip(self.steps, self.shares or [None] * len(self.steps), strict=True):
            share = (
                step.share(mapped, mu / adjacency.sum_sensitivity(1.0)) if given is None else given
            )
            left -= share
            if left <= 0.0:
                raise ValueError(
                    f"shares must be below 1 together, with the default rules of steps in place of "
                    f"None, got {self.shares!r}"
                )
            steps.append(step.plan(mapped, math.sqrt(share) * mu, adjacency))
            mapped = steps[-1].output
        spent = Composed(tuple(composed(step.releases) for step in steps))
        inner = plan_beside(
            lambda within: self.solver.plan(facts.problem, within, mapped, adjacency),
            spent,
            math.sqrt(left) * mu,
            facts.budget,
            adjacency,
        )
        if inner is None:
            raise ValueError(f"shares must leave something to the solver, got {self.shares!r}")
        return facts.plan(PreprocessedMethod(facts.problem, data, tuple(steps), inner))


@final
@dataclass(frozen=True, eq=False)
class MappedState:
    """Maps learned so far, and the state of a model on mapped rows."""

    seed: int
    step: int = 0
    maps: tuple[RowMap, ...] = ()
    model: AnyState | None = None


@final
@dataclass(frozen=True)
class PreprocessedMethod(Composite["MappedState"]):
    """Preprocessing steps and a model's method, with every setting decided."""

    problem: Problem
    data: DataSpec
    steps: tuple[PlannedStep, ...]  # Each takes the output of the one before.
    model: Plan  # For the output of the last step.

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the steps in reports; a number distinguishes equal names."""
        names: list[str] = []
        for step in self.steps:
            before = sum(one.name == step.name for one in self.steps[: len(names)])
            names.append(f"{step.name} {before + 1}" if before else step.name)
        return tuple(names)

    def __post_init__(self) -> None:
        asked = (*(step.data for step in self.steps), self.model.data)
        for name, own, before in zip((*self.names, _MODEL), asked, self._left, strict=True):
            if own != before:
                raise ValueError(
                    f"{name} must be for the rows of the step before it, {before!r}, got {own!r}"
                )

    @property
    def _left(self) -> tuple[DataSpec, ...]:
        return (self.data, *(step.output for step in self.steps))

    def check(self, plan: Plan) -> None:
        check_same(self, plan)
        check_same(self.model.method, plan, ["problem"])
        for step in self.steps:
            check_same(step, plan, ["adjacency"])

    @property
    def algorithm(self) -> str:
        return f"{', '.join(self.names)}, then {self.model.method.algorithm}"

    @property
    def stages(self) -> tuple[FitStage, ...]:
        steps = (
            FitStage(name, step.releases, composed(step.releases))
            for name, step in zip(self.names, self.steps, strict=True)
        )
        return (*steps, FitStage.of(_MODEL, self.model))

    @property
    def gradient_evaluations(self) -> float:
        # A sum over the rows costs about as much as a gradient.
        sums = sum(one.count for step in self.steps for one in step.releases)
        return sums * self.data.n_rows + super().gradient_evaluations

    @property
    def coefficient_noise(self) -> float:
        growth = math.prod(step.noise_growth for step in self.steps)
        return self.model.coefficient_noise * growth

    def init(self, seed: int) -> MappedState:
        return MappedState(seed)

    def step(self, state: MappedState, oracle: Oracle) -> tuple[MappedState, StepInfo]:
        asked, number = self._mapped_so_far(state, oracle), len(state.maps)
        state = dataclasses.replace(state, step=state.step + 1)
        if number == len(self.steps):
            model, info = self.model.method.step(state.model, asked)
            return dataclasses.replace(state, model=model), dataclasses.replace(
                info, step=state.step
            )
        learned = self.steps[number].learn(asked, stage_seed(state.seed, number))
        state = dataclasses.replace(state, maps=(*state.maps, learned))
        if len(state.maps) == len(self.steps):
            model = self.model.method.init(stage_seed(state.seed, len(self.steps)))
            state = dataclasses.replace(state, model=model)
        return state, StepInfo(state.step, math.nan)

    def _mapped_so_far(self, state: MappedState, oracle: Oracle) -> Oracle:
        """Return the oracle of rows after all maps learned so far."""
        done: int
        asked: Oracle
        done, asked = oracle.kept.get("mapped", (0, oracle))
        for number in range(done, len(state.maps)):
            learned, spec = state.maps[number], self.steps[number].output
            row_by_row = not oracle.places_are_fixed
            # The rows of an earlier step are copies that only this method uses.
            own = number > 0
            rows = learned.apply(asked.rows, spec, row_by_row, overwrite=own)
            if number + 1 == len(self.steps):
                rows = self.model.method.prepare(rows, stage_seed(state.seed, len(self.steps)))
            asked = dataclasses.replace(asked, rows=rows)
        oracle.kept["mapped"] = (len(state.maps), asked)
        return asked

    def finish(self, state: MappedState) -> Outcome:
        found = self.model.method.finish(state.model)
        w, noise = found.w, found.noise_covariance
        backwards = zip(state.maps, self._left[:-1], self._left[1:], strict=True)
        for learned, before, after in reversed(list(backwards)):
            w = learned.pull_back(w, before, after)
            # The noise that is left given the maps.
            if noise is not None:
                noise = noise.mapped(learned.pulling_matrix(before, after))
        if noise is not None and not noise.is_finite:
            noise = None
        return Outcome(w, noise, maps=state.maps)


def dpsgd_f(solver: Solver | None = None, share: float | None = None) -> Preprocessed:
    """Make DPSGD-F in its practical form: subtract a noisy mean, then train.

    The paper first scales all rows to one norm, which changes the model; scikit-learn's
    ``Normalizer`` does that row by row, at no cost.

    Parameters
    ----------
    solver : Solver, optional
        Fits the model to centred rows; ``NoisyGD()`` by default.
    share : float, optional
        Share of the budget (of mu squared) for the mean, in (0, 1). By default a rule of
        ``Center``.

    Notes
    -----
    Privacy: that of ``Preprocessed``.

    References
    ----------
    Sun et al. 2023, Algorithm 3.

    Examples
    --------
    >>> dpsgd_f(share=0.05).steps
    (Center(row_norm=None, lengthen=False, intercept=1.0),)
    """
    return Preprocessed([Center()], solver or NoisyGD(), shares=[share])
