"""The types of a fit: solvers plan before data is seen, methods step and return an outcome."""

from __future__ import annotations

import abc
import dataclasses
import functools
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, cast, final

import numpy as np

from dpglm._calls import checked
from dpglm._codec import Format
from dpglm._validation import check_count
from dpglm._words import card, weak
from dpglm.data.rows import DataSpec, Protection, Rows
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency, calibrate, gdp, spent, within_budget
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget
from dpglm.privacy.events import Composed, Event, Repeated, canonical
from dpglm.privacy.releases import AnyRelease, check_can_be_asked
from dpglm.problem import Problem
from dpglm.problem.loss import Target
from dpglm.solvers.uncertainty import Covariance, Floats
from dpglm.solvers.uncertainty import Outcome as Outcome
from dpglm.solvers.uncertainty import StepInfo as StepInfo

S = TypeVar("S")
_FACTS = ("problem", "data", "adjacency")
_THEOREM = re.compile(
    r"[a-z]\w{1,11}, (Theorem|Corollary|Algorithm) \d{1,2}(\.\d{1,2})?( \(corrected\))?", re.ASCII
)


@checked
@final
@dataclass(frozen=True)
class Theorem:
    """A theorem that bounds the error of a fit, if it runs as many steps as its bound needs.

    Privacy does not rest on it. A certificate does not prove that settings are the theorem's.

    Parameters
    ----------
    name : str
        Paper and number, such as ``"arora2022, Theorem 1"``.
    n_steps : int
        Number of steps that its bound needs for these public facts, at least 1.

    Examples
    --------
    >>> Theorem("arora2022, Theorem 1", 32_000).in_words(2000)
    'The bound of arora2022, Theorem 1 needs 32000 steps; 2000 are run, so it is not claimed.'
    """

    name: str
    n_steps: int

    def __post_init__(self) -> None:
        # Certificates, which may come from strangers, print the name.
        if not _THEOREM.fullmatch(self.name):
            raise ValueError(
                f"name must be a paper and a theorem's number, such as 'arora2022, Theorem 1', got "
                f"{self.name[:80]!r}"
            )
        check_count("n_steps", self.n_steps)

    def in_words(self, n_steps: int) -> str:
        """Return a sentence on whether this many steps suffice."""
        if n_steps >= self.n_steps:
            return f"Settings and number of steps are those of {self.name}."
        needed = f"The bound of {self.name} needs {self.n_steps} steps"
        return f"{needed}; {n_steps} are run, so it is not claimed."


@final
@dataclass(frozen=True)
class FitStage:
    """One of several parts of a method, with its releases."""

    name: str
    releases: tuple[AnyRelease, ...]
    event: Event
    part: int | None = None  # Number of the part of the rows that it uses, from 0.
    stages: tuple[FitStage, ...] = ()
    plan: Plan | None = None  # The plan that the stage executes, if it is one.

    @classmethod
    def of(cls, name: str, plan: Plan, part: int | None = None) -> Self:
        """Make the stage that executes a plan."""
        return cls(name, plan.method.releases, plan.event, part, plan.method.stages, plan)

    @property
    def mechanisms(self) -> Event:
        """The events that the curator records."""
        return self.event if self.plan is None else self.plan.method.mechanisms


class Method(abc.ABC, Generic[S]):
    """An algorithm with every setting decided; frozen, public, and free of data.

    ``run`` drives every method. The state S is carried from step to step and consists of released
    values only.

    Methods are dataclasses and determined by their fields, so that certificates can hold them
    (``dpglm._codec``). Fields named ``data`` and ``adjacency`` must equal the plan's. ``problem``
    is a field of a method that fits a model, and None in one that does not.
    """

    problem: Problem | None

    @property
    def algorithm(self) -> str:
        """Name of the algorithm in reports."""
        return type(self).__name__

    @property
    @abc.abstractmethod
    def n_steps(self) -> int:
        """Number of steps that ``run`` takes."""

    @property
    @abc.abstractmethod
    def releases(self) -> tuple[AnyRelease, ...]:
        """All releases, each with its bound and its noise."""

    @property
    def mechanisms(self) -> Event:
        """The events that the curator will have recorded at the end of a run."""
        return composed(self.releases)

    @property
    def event(self) -> Event:
        """The event that is accounted for: ``mechanisms``, or one that provably dominates it."""
        return self.mechanisms

    @property
    def releases_iterates(self) -> bool:
        """Whether ``event`` covers iterates before the last, so that they may be published."""
        return True

    @property
    @abc.abstractmethod
    def gradient_evaluations(self) -> float:
        """Expected number of row gradients that a run computes."""

    @property
    @abc.abstractmethod
    def coefficient_noise(self) -> float:
        """Expected standard deviation of the noise in each returned coefficient.

        In prepared coordinates. Methods that use the curvature of the rows assume similar columns,
        spread evenly between their bounds, and scores with a standard deviation of 1. Others
        ignore that rows damp noise, so theirs is an upper estimate.
        """

    @property
    def price_of_full_weights(self) -> float:
        """Expected noise over that of a fit that downweights rows with a large norm, if it may."""
        return 1.0

    @property
    def estimand(self) -> str:
        """The target of estimates that give some rows less weight, in a sentence; or ""."""
        return ""

    @property
    def estimates_errors(self) -> bool:
        """Whether the result has the ``precision`` of its parameter."""
        return False

    def prepare(self, rows: Rows, seed: int) -> Rows:
        """Map rows to those that steps use, row by row; ``seed`` is the public one of ``init``."""
        return rows

    @abc.abstractmethod
    def init(self, seed: int) -> S:
        """Make the first state; ``seed``, 64 random bits, is the run's public randomness."""

    @abc.abstractmethod
    def step(self, state: S, oracle: Oracle) -> tuple[S, StepInfo]:
        """Take one step, which depends on rows through ``oracle``'s releases alone."""

    @property
    def stages(self) -> tuple[FitStage, ...]:
        """The parts of the method, where it has several; none otherwise."""
        return ()

    @property
    def children(self) -> tuple[Plan, ...]:
        """Plans of the fits that the method consists of, or chooses from."""
        return ()

    def check(self, plan: Plan) -> None:
        """Check that the method was made for the facts of a plan, or raise ValueError."""
        check_same(self, plan)

    @abc.abstractmethod
    def finish(self, state: S) -> Outcome:
        """Compute the result from the last state."""


@dataclass(frozen=True)
class FitMethod(Method[S]):
    """A method that fits a model to the prepared rows themselves."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency

    @property
    def gradient_evaluations(self) -> float:
        return float(self.n_steps * self.data.n_rows)


class Composite(Method[S]):
    """A method made of stages: plans of other methods, and single steps of its own.

    Events, releases and sizes follow from the stages. A stage without a plan is one step.
    """

    def combined(self, events: Sequence[Event]) -> Event:
        """Combine the events of all stages: by sequential composition."""
        return canonical(Composed(tuple(events)))

    @property
    def children(self) -> tuple[Plan, ...]:
        return tuple(one.plan for one in self.stages if one.plan is not None)

    @property
    def n_steps(self) -> int:
        return sum(1 if one.plan is None else one.plan.n_steps for one in self.stages)

    @functools.cached_property
    def releases(self) -> tuple[AnyRelease, ...]:
        own = ((one.name, release) for one in self.stages for release in one.releases)
        return tuple(dataclasses.replace(one, quantity=f"{k}: {one.quantity}") for k, one in own)

    @property
    def mechanisms(self) -> Event:
        return self.combined([one.mechanisms for one in self.stages])

    @property
    def event(self) -> Event:
        return self.combined([one.event for one in self.stages])

    @property
    def releases_iterates(self) -> bool:
        return all(plan.method.releases_iterates for plan in self.children)

    @property
    def gradient_evaluations(self) -> float:
        return sum(plan.method.gradient_evaluations for plan in self.children)

    @property
    def coefficient_noise(self) -> float:
        return max(plan.coefficient_noise for plan in self.children)


@checked
@final
@dataclass(frozen=True)
class Plan:
    """All steps and releases of a fit, decided before a row is seen.

    Parameters
    ----------
    data : DataSpec
        Public facts about the data.
    budget : PrivacyBudget
        Privacy budget.
    adjacency : Adjacency
        Neighbouring relation.
    method : Method
        The algorithm with all its settings.
    theorem : Theorem, optional
        The theorem that the settings follow, if any (``dpglm.papers``).

    Attributes
    ----------
    protection : Protection
        The relation, the budget and the public sizes.

    Raises
    ------
    ValueError
        If the event exceeds the budget, a release cannot be asked, or the loss does not fit the
        outputs.

    Notes
    -----
    Privacy: ``event`` is within ``budget`` under ``adjacency`` for every plan, whoever made it. All
    releases of a plan can be asked, whatever the rows are: every obstacle is public and checked
    here.
    """

    data: DataSpec
    budget: PrivacyBudget
    adjacency: Adjacency
    method: Method[Any]
    theorem: Theorem | None = None

    if TYPE_CHECKING:  # Derived, so no field.
        protection: Protection = field(init=False)

    def __post_init__(self) -> None:
        self.method.check(self)
        for child in self.method.children:
            check_same(child, self, ("adjacency",))
        if self.method.problem is not None:
            # Raises where the loss has another number of predictions than there are outputs.
            one = np.zeros((1, *self.data.coefficient_shape[1:]))
            self.method.problem.loss.slope(one, np.zeros(1, dtype=np.intp))
        for release in self.method.releases:
            if release.unit is not self.data.unit:
                raise ValueError(
                    f"groups must be None for a method that releases {release.quantity!r}, with a "
                    "bound on one row: use the solver 'auto', 'newton_raphson', 'newton', "
                    "'sufficient_statistics' or 'noisy_gd'"
                )
        # Raises where no noise of that size can be drawn.
        check_can_be_asked(self.method.releases)
        if not within_budget(self.method.event, self.adjacency, self.budget):
            raise ValueError(
                f"budget must be at least what all releases cost together, got {self.budget!r}, "
                f"which {self.event!r} exceeds under {self.adjacency.value}"
            )
        size = self.data.n_rows, self.data.groups
        vars(self).update(protection=Protection(self.adjacency, self.budget, *size))

    @property
    def problem(self) -> Problem:
        """The problem that the method solves; a ValueError if it fits no model."""
        if self.method.problem is None:
            raise ValueError(f"a plan of {self.method.algorithm} does not fit a model")
        return self.method.problem

    @property
    def event(self) -> Event:
        """The privacy event of the fit that is accounted for."""
        return self.method.event

    @property
    def n_steps(self) -> int:
        """Number of steps."""
        return self.method.n_steps

    @property
    def coefficient_noise(self) -> float:
        """Expected noise per coefficient, see ``Method.coefficient_noise``."""
        return self.method.coefficient_noise

    @property
    def theorems(self) -> tuple[str, ...]:
        """Sentences on the theorems that bound the error of this fit or of its parts."""
        own = () if self.theorem is None else (self.theorem.in_words(self.n_steps),)
        inner = (one for child in self.method.children for one in child.theorems)
        return tuple(dict.fromkeys((*own, *inner)))

    @functools.cached_property
    def document(self) -> Mapping[str, Any]:
        """The plan as JSON; ``from_document`` makes an equal one of it.

        ValueError if a part is not a dataclass of numbers, text, enumerations and tuples.
        """
        return _FORMAT.write(self)

    @staticmethod
    def from_document(document: Any) -> Plan:
        """Rebuild the plan of a document, which is not trusted, with all checks.

        ValueError if it is not the document of a plan; the message names the place. Classes from
        outside this library must have been imported.
        """
        return _FORMAT.read(document)

    def cautions(self) -> tuple[str, ...]:
        """Warn of an epsilon above 10, or a delta of at least 0.01 or one over the units."""
        budget, delta, n_units = self.budget, self.protection.delta, self.data.n_units
        if isinstance(budget, ApproximateDP):
            return weak(budget.epsilon, delta, n_units)
        return weak(gdp.epsilon(delta, budget.gdp_mu()), delta, n_units)

    def _facts(self) -> tuple[tuple[str, object], ...]:
        data, noise = self.data, f"{self.coefficient_noise:.3g}, of prepared columns"
        outputs = f", {data.n_outputs} outputs" if data.n_outputs > 1 else ""
        return (
            *(() if self.method.problem is None else (("minimises", self.method.problem.loss),)),
            ("on", f"{data.n_rows} rows, {data.n_features} columns{outputs}"),
            ("budget", self.budget),
            ("relation", self.adjacency.value),
            ("by", self.method.algorithm),
            ("steps", self.n_steps),
            ("noise in a coefficient, about", noise),
        )

    def _sections(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        released = []
        for one in self.method.releases:
            times = "" if one.count == 1 else f", {one.count} times"
            how = f"{one.mechanism.in_words} on {one.coordinates} values"
            released.append(f"{one.quantity}{times}: {how}")
        followed = ("Theorem that the settings follow", self.theorems)
        return ("Releases", tuple(released)), *([followed] if self.theorems else [])

    def __str__(self) -> str:
        lines = ["Plan of a private fit"]
        lines += [f"  {name + ':':<34}{value}" for name, value in self._facts()]
        for heading, sentences in self._sections():
            lines += [f"{heading}:", *(f"  {sentence}" for sentence in sentences)]
        return "\n".join(lines + [f"Caution: {one}" for one in self.cautions()])

    def _repr_html_(self) -> str:
        title, warned = "Plan of a private fit", self.cautions()
        return card(title, self._facts(), warnings=warned, sections=self._sections())

    def privacy(self) -> dict[str, Any]:
        """Return the cost: epsilon, delta, accountant and its version."""
        return spent(self.event, self.adjacency, self.budget)


_FORMAT = Format("dpglm plan", 2, Plan, {1: "0.1"})


def check_same(part: Any, plan: Plan, names: Iterable[str] = _FACTS) -> None:
    """Raise ValueError unless the fields that a part of a method shares with the plan are equal."""
    for name in names:
        found = vars(part).get(name)
        if found is not None and found != (wanted := getattr(plan, name)):
            raise ValueError(
                f"{name} of {type(part).__name__} must be that of the plan, {wanted!r}, got "
                f"{found!r}"
            )


def composed(releases: Iterable[AnyRelease]) -> Event:
    """Return the sequential composition of releases."""
    return canonical(Composed(tuple(Repeated(one.event, one.count) for one in releases)))


def calibrated(
    with_noise: Callable[[float], Method[Any]],
    data: DataSpec,
    budget: PrivacyBudget,
    adjacency: Adjacency,
) -> Plan:
    """Plan a method with the least noise within a budget; its cost falls as noise grows."""
    scale = calibrate(lambda scale: with_noise(scale).event, budget, adjacency)
    return Plan(data, budget, adjacency, with_noise(scale))


@final
@dataclass(frozen=True)
class Facts:
    """The public facts that a plan rests on.

    Parameters
    ----------
    problem : Problem
        Loss, regularizer and constraint.
    budget : PrivacyBudget
        Privacy budget.
    data : DataSpec
        Public facts about the data.
    adjacency : Adjacency, default=Adjacency.ZERO_OUT
        Neighbouring relation.
    """

    problem: Problem
    budget: PrivacyBudget
    data: DataSpec
    adjacency: Adjacency = Adjacency.ZERO_OUT

    @property
    def mu(self) -> float:
        """The budget as Gaussian DP, over the sensitivity of a sum of unit contributions."""
        return self.budget.gdp_mu() / self.adjacency.sum_sensitivity(self.data.unit_weight)

    def plan(self, method: Method[Any]) -> Plan:
        """Make the plan that runs a method for these facts."""
        return Plan(self.data, self.budget, self.adjacency, method)

    def calibrated(self, with_noise: Callable[[float], Method[Any]]) -> Plan:
        """Plan the method with the least noise within the budget; ``with_noise`` takes a scale."""
        # Penalties and constraints that do not fit the parameter raise here and not in the run.
        with_noise(1.0).init(0)
        return calibrated(with_noise, self.data, self.budget, self.adjacency)


class Solver(abc.ABC):
    """Public settings of an algorithm; ``plan`` decides those that are left open."""

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        """Whether bounds on rounding need double precision, by default if a solver within does."""
        inner = (one for one in vars(self).values() if isinstance(one, Solver))
        return any(one.needs_float64(problem, budget) for one in inner)

    def with_inference(
        self,
        covariance: Covariance,
        prior_scales: tuple[float, ...] | None = None,
        *,
        full_weights: bool = False,
        indicators: tuple[tuple[int, int, float], ...] = (),
    ) -> Solver:
        """Return the solver that also releases the covariance for intervals, or raise ValueError.

        Parameters
        ----------
        covariance : {"model", "robust"}
            Covariance that the intervals rest on.
        prior_scales : tuple of float, optional
            Largest prior standard deviation of the coefficient of each prepared column.
        full_weights : bool, default=False
            Whether every row has its full weight.
        indicators : tuple of (int, int, float), default=()
            Columns that are indicators of levels, see ``NewtonRaphson``.
        """
        own = vars(self)
        if "inference" not in own:
            raise ValueError(
                "solver must be 'auto', 'newton_raphson' or 'sufficient_statistics' for inference, "
                f"got {type(self).__name__}"
            )
        given = {"inference": covariance, "prior_scales": prior_scales or own["prior_scales"]}
        if full_weights and "full_weights" in own:
            given["full_weights"] = True
        if indicators and "indicators" in own:
            given["indicators"] = indicators
        return cast(Solver, dataclasses.replace(cast(Any, self), **given))

    @final
    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        """Decide every setting and the noise, from public facts only; see ``Facts``.

        ValueError if a setting is out of range, or the algorithm does not fit the problem.
        """
        loss, high = problem.loss, data.target_high
        if loss.target is Target.POSITIVE and high <= 0.0:
            raise ValueError(f"target_high must be above 0 for {loss!r}, got {high!r}")
        return self.decide(Facts(problem, budget, data, adjacency))

    @abc.abstractmethod
    def decide(self, facts: Facts) -> Plan:
        """Decide every setting and the noise, as ``plan``; a new solver implements this method."""


@final
@dataclass(frozen=True, eq=False)
class Iterate:
    """The state of a descent: an iterate after some steps, and the point of its next step."""

    step: int
    w: Floats
    z: Floats | None = None


def present(value: S | None) -> S:
    """Return a part of a state that earlier steps have set."""
    assert value is not None
    return value


def take_steps(
    method: Method[S],
    state: S,
    oracle: Oracle,
    done: int = 0,
    after: Callable[[int, S, StepInfo], None] = lambda steps, state, info: None,
) -> S:
    """Take the remaining steps of a method: the one loop that drives every method."""
    for steps in range(done + 1, method.n_steps + 1):
        state, info = method.step(state, oracle)
        after(steps, state, info)
    return state


def prepared(plan: Plan, oracle: Oracle, seed: int) -> Oracle:
    """Return an oracle with the same curator for the rows that a nested plan's method prepares."""
    rows = plan.method.prepare(oracle.rows, seed)
    return dataclasses.replace(oracle, rows=rows, known_loss=plan.problem.loss)


def finished(method: Method[S], state: S) -> Outcome:
    """Return a method's outcome, or the zero model, with a warning, if steps overflowed.

    Privacy: post-processing of released values. A run that was charged always returns.
    """
    outcome = method.finish(state)
    if np.isfinite(outcome.w).all():
        return outcome
    warnings.warn(
        "steps overflowed, so the zero model is returned: use a smaller step_size, or bounds in "
        "other units",
        RuntimeWarning,
        stacklevel=3,
    )
    return dataclasses.replace(outcome, w=np.zeros_like(outcome.w))
