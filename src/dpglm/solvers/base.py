"""The types of a fit: a solver plans before data, a method steps."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import Format
from dpglm._words import card
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.accounting.calibrate import spent, within_budget
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget, weak_budget
from dpglm.privacy.events import Composed, Event, Repeated, canonical
from dpglm.privacy.releases import AnyRelease, check_can_be_asked
from dpglm.problem import Problem
from dpglm.solvers.theorem import Theorem
from dpglm.solvers.uncertainty import Covariance, NoiseCovariance, Uncertainty

if TYPE_CHECKING:
    from dpglm.preprocessing.row_map import RowMap

__all__ = [
    "Method",
    "Plan",
    "Solver",
    "Stage",
    "StepInfo",
    "check_same",
]

_FACTS = ("problem", "data", "adjacency")


S = TypeVar("S")


@final
@dataclass(frozen=True)
class StepInfo:
    """Diagnostics of one step, all computed from released values, hence public.

    Parameters
    ----------
    step : int
        Number of the step, from 1.
    step_size : float
        Its step size.
    gradient_norm : float
        L2 norm of the noisy mean gradient; NaN where the step releases none.
    noise_norm : float
        Expected L2 norm of the noise in it; NaN where the step releases none.
    """

    step: int
    step_size: float
    gradient_norm: float = math.nan
    noise_norm: float = math.nan


@final
@dataclass(frozen=True)
class Stage:
    """One of several things that a method does, as far as it spends."""

    name: str
    releases: tuple[AnyRelease, ...]
    event: Event
    # Number of the part of the rows that it is about, from 0, where these are divided.
    part: int | None = None
    stages: tuple[Stage, ...] = ()

    @classmethod
    def of(cls, name: str, plan: Plan, part: int | None = None) -> Self:
        """Make the stage that executes a plan."""
        return cls(name, plan.method.releases, plan.event, part, plan.method.stages)


class Method(abc.ABC, Generic[S]):
    """An algorithm whose settings are all decided; frozen, public, and free of data.

    A new algorithm is a solver that plans one of these. ``run`` drives every one of them. The
    state S is carried from step to step and consists of released values only.

    Methods are dataclasses whose fields say everything, so that certificates can hold them
    (``dpglm._codec``). What they are made for is in fields named ``problem``, ``data`` and
    ``adjacency``, or ``check`` looks at it.
    """

    @property
    def algorithm(self) -> str:
        """What the algorithm is called."""
        return type(self).__name__

    @property
    @abc.abstractmethod
    def n_steps(self) -> int:
        """Number of steps that ``run`` takes."""

    @property
    @abc.abstractmethod
    def releases(self) -> tuple[AnyRelease, ...]:
        """Everything that leaves, each kind with the bound and the noise that pay for it."""

    @property
    def mechanisms(self) -> Event:
        """What the curator will have recorded at the end of a run."""
        return canonical(
            Composed(tuple(Repeated(release.event, release.count) for release in self.releases))
        )

    @property
    def event(self) -> Event:
        """The event that is accounted for: ``mechanisms``, or what is proved to dominate it."""
        return self.mechanisms

    @property
    def releases_iterates(self) -> bool:
        """Whether iterates before the end may be shown (``event`` pays for each of them)."""
        return True

    @property
    @abc.abstractmethod
    def gradient_evaluations(self) -> float:
        """Expected number of row gradients that a run computes."""

    @property
    @abc.abstractmethod
    def coefficient_noise(self) -> float:
        """Expected standard deviation of the noise in each returned coefficient.

        In the prepared (scaled) coordinates. Methods that follow the curvature of the rows expect
        it of columns that are alike and spread evenly between their bounds, and of scores with a
        standard deviation of 1; for others the rows damp none of the noise, so that theirs is an
        upper estimate.
        """

    @property
    def estimand(self) -> str:
        """What estimates with a robust covariance are about, where some rows count less; or ""."""
        return ""

    @property
    def needs(self) -> str:
        """What intervals need of the rows, which no public fact tells; or ""."""
        return ""

    def prepare(self, rows: Rows, seed: int) -> Rows:
        """Turn the rows into those that steps ask about; row by row, with public randomness.

        ``seed`` is that of ``init``. Nothing is released here.
        """
        return rows

    @abc.abstractmethod
    def init(self, seed: int) -> S:
        """Make the first state; ``seed``, 64 random bits, is the run's public randomness."""

    @abc.abstractmethod
    def step(self, state: S, oracle: Oracle) -> tuple[S, StepInfo]:
        """One step. Everything it learns about rows comes from ``oracle``'s releases."""

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What the method consists of, where it does several things; none otherwise."""
        return ()

    @property
    def children(self) -> tuple[Plan, ...]:
        """Plans of the fits that the method consists of, or chooses from."""
        return ()

    @property
    def fits(self) -> bool:
        """Whether a model is fitted at all."""
        return True

    def check(self, plan: Plan) -> None:
        """Check that this is a method for the problem, the rows and the relation of a plan.

        Parameters
        ----------
        plan : Plan
            Whose method it is.

        Raises
        ------
        ValueError
            If it was made for another.
        """
        check_same(self, plan)

    @abc.abstractmethod
    def finish(self, state: S) -> NDArray[np.float64]:
        """Extract the parameter to return."""

    def chosen(self, state: S) -> int | None:
        """Say which of several models is returned, by number, where the method chooses one."""
        return None

    def maps(self, state: S) -> tuple[RowMap, ...]:
        """Return the maps of the rows that the method has learned, in order; released."""
        return ()

    def noise_in(self, state: S) -> NoiseCovariance | None:
        """Return the covariance of the noise in the returned coefficients, where it is known.

        That of runs on the same rows, from all that the last state says. Public, as the state is.
        """
        return None

    def uncertainty(self, state: S) -> Uncertainty | None:
        """Return the covariance of the parameter, where the plan released what it takes."""
        return None

    def precision(self, state: S) -> NDArray[np.float64] | None:
        """Return about how well the returned coefficients are known, where released values tell.

        The inverse of the covariance of their errors, of noise and of the sampling of rows
        together, of shape (n_columns, n_columns). A rough one: for intervals there is
        ``uncertainty``.
        """
        return None


@final
@dataclass(frozen=True)
class Plan:
    """What a fit will do and release, decided before a row is seen.

    Parameters
    ----------
    problem : Problem
        Loss, regularizer and constraint.
    data : DataSpec
        The public facts the plan rests on.
    budget : PrivacyBudget
        What may be spent.
    adjacency : Adjacency
        The neighbouring relation.
    method : Method
        The algorithm with all its settings.
    theorem : Theorem, optional
        Whose settings these are, where they are one's (``dpglm.papers``).

    Raises
    ------
    ValueError
        If the whole event is not within the budget, a release cannot be asked, or the loss does not
        fit the outputs.

    Notes
    -----
    Privacy: ``event`` is within ``budget`` under ``adjacency``: there is no other plan, whoever
    made it. And what a plan releases can be asked, whatever the rows are: all that could be in
    the way is public, and looked at here.
    """

    problem: Problem
    data: DataSpec
    budget: PrivacyBudget
    adjacency: Adjacency
    method: Method[Any]
    theorem: Theorem | None = None

    def __post_init__(self) -> None:
        self.method.check(self)
        for child in self.method.children:
            check_same(child, self, ("adjacency",))
        # Raises where the loss has another number of predictions than there are outputs.
        one = np.zeros((1, *self.data.coefficient_shape[1:]))
        self.problem.loss.slope(one, np.zeros(1, dtype=np.intp))
        for release in self.method.releases:
            if release.unit is not self.data.unit:
                raise ValueError(
                    f"groups must be None for a method that releases {release.quantity!r}, whose "
                    "bound is on one row: use the solver 'auto', 'newton_raphson', 'newton', "
                    "'sufficient_statistics' or 'noisy_gd'"
                )
        # Reading them works out their noise, which raises where none of that size can be drawn.
        check_can_be_asked(self.method.releases)
        if not within_budget(self.event, self.adjacency, self.budget):
            raise ValueError(
                f"budget must be at least what all releases cost together, got {self.budget!r}, "
                f"which {self.event!r} exceeds under {self.adjacency.value}"
            )

    @property
    def event(self) -> Event:
        """The privacy event that the fit will be, as it is accounted for."""
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
        """What theorems say of the error, of this fit or of those it consists of, in sentences."""
        own = () if self.theorem is None else (self.theorem.in_words(self.n_steps),)
        inner = (said for child in self.method.children for said in child.theorems)
        return tuple(dict.fromkeys((*own, *inner)))

    @functools.cached_property
    def document(self) -> Mapping[str, Any]:
        """The plan as JSON, from which ``from_document`` makes an equal one.

        Raises
        ------
        ValueError
            If a part of it is no dataclass of numbers, text, enumerations and tuples; the message
            names the place.
        """
        return _FORMAT.write(self)

    @staticmethod
    def from_document(document: Any) -> Plan:
        """Make the plan of a document anew, with all that making one checks.

        Parameters
        ----------
        document : JSON value
            What ``document`` was; nothing in it is trusted.

        Raises
        ------
        ValueError
            If it is not the document of a plan; the message names the place. Classes from outside
            this library must have been imported.
        """
        return _FORMAT.read(document)

    def cautions(self) -> tuple[str, ...]:
        """Say where the budget protects too little, or may be spent for nothing.

        Returns
        -------
        tuple of str
            Sentences about an epsilon above 10, a delta of at least one over the number of rows (or
            of groups) or 0.01, or what intervals need of the rows; often empty.
        """
        needs = self.method.needs
        return (*weak_budget(self.budget, self.data.n_units), *([needs] if needs else []))

    def _facts(self) -> tuple[tuple[str, object], ...]:
        data = self.data
        sizes = f"{data.n_rows} rows, {data.n_features} columns"
        sizes += f", {data.n_outputs} outputs" if data.n_outputs > 1 else ""
        return (
            ("minimises", self.problem.loss),
            ("on", sizes),
            ("budget", self.budget),
            ("relation", self.adjacency.value),
            ("by", self.method.algorithm),
            ("steps", self.n_steps),
            (
                "noise in a coefficient, about",
                f"{self.coefficient_noise:.3g}, of prepared columns",
            ),
        )

    def _sections(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        released = tuple(map(_in_words, self.method.releases))
        followed = ("Which theorem the settings follow", self.theorems)
        return ("What will be released", released), *([followed] if self.theorems else [])

    def __str__(self) -> str:
        facts = (f"  {name + ':':<34}{value}" for name, value in self._facts())
        parts = (
            line
            for heading, sentences in self._sections()
            for line in (f"{heading}:", *(f"  {sentence}" for sentence in sentences))
        )
        cautions = (f"Caution: {one}" for one in self.cautions())
        return "\n".join(["Plan of a private fit", *facts, *parts, *cautions])

    def _repr_html_(self) -> str:
        return card(
            "Plan of a private fit",
            self._facts(),
            warnings=self.cautions(),
            sections=self._sections(),
        )

    def privacy(self) -> dict[str, Any]:
        """Say what is spent: epsilon, delta, accountant and its version."""
        return spent(self.event, self.adjacency, self.budget)


_FORMAT = Format("dpglm plan", 1, Plan)


def check_same(part: Any, plan: Plan, names: Iterable[str] = _FACTS) -> None:
    """Raise ValueError unless the fields that a part of a method shares with the plan are equal."""
    for name in names:
        found, wanted = vars(part).get(name), getattr(plan, name)
        if found is not None and found != wanted:
            raise ValueError(
                f"{name} of {type(part).__name__} must be that of the plan, {wanted!r}, got "
                f"{found!r}"
            )


def _in_words(release: AnyRelease) -> str:
    times = "" if release.count == 1 else f", {release.count} times"
    return (
        f"{release.quantity}{times}: {release.mechanism.in_words} on {release.coordinates} values"
    )


class Solver(abc.ABC):
    """Public settings of an algorithm; what is left open is decided by ``plan``."""

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        """Whether bounds on rounding, for this problem and budget, ask for double precision."""
        return False

    def with_inference(self, covariance: Covariance) -> Solver:
        """Return the solver that also releases what intervals need.

        Parameters
        ----------
        covariance : {"model", "robust"}
            Which covariance the intervals rest on.

        Raises
        ------
        ValueError
            If this solver's estimates have none.
        """
        raise ValueError(
            "solver must be 'auto', 'newton_raphson' or 'sufficient_statistics' for inference, got "
            f"{type(self).__name__}"
        )

    @abc.abstractmethod
    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        """Decide every setting and the noise, from public facts only.

        Parameters
        ----------
        problem : Problem
            Loss, regularizer and constraint.
        budget : PrivacyBudget
            What may be spent.
        data : DataSpec
            Public facts about the data.
        adjacency : Adjacency, default=Adjacency.ZERO_OUT
            The neighbouring relation.

        Returns
        -------
        Plan
            Whose event is within the budget.

        Raises
        ------
        ValueError
            If a setting is out of range, or the algorithm does not fit the problem.
        """
