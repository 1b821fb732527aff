"""Parts of studies, and the runner that executes and certifies their plans."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._validation import check_integer, check_one_of
from dpglm._words import card, plain_number
from dpglm.certificate.certificate import Certificate, PublicFact, certify
from dpglm.certificate.statement import WHERE, WHERE_IN_WORDS
from dpglm.data.groups import limited_groups
from dpglm.data.rows import DataSpec, GroupBound, Protection, Rows
from dpglm.data.split import EXPLORATION
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.budget import Adjacency, PrivacyBudget, Unit, stated_budget
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.solvers.base import Plan
from dpglm.solvers.run import run
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.given import Where


@final
@dataclass(frozen=True)
class Expected:
    """The precision to expect of a part, before anything is spent.

    Parameters
    ----------
    part : str
        Name of the part.
    quantity : str
        The quantity, in words.
    precision : str
        Its precision, in words.
    """

    part: str
    quantity: str
    precision: str


@final
@dataclass(frozen=True, eq=False)
class Stated:
    """The protection that the arguments of a release state, before rows are counted."""

    epsilon: float
    delta: float | Literal["auto"]
    budget: PrivacyBudget | None
    adjacency: str
    n_rows: int | None
    max_rows_per_group: int | None = None
    n_groups: int | None = None

    def __post_init__(self) -> None:
        check_one_of("adjacency", self.adjacency, tuple(Adjacency))
        stated_budget(self.epsilon, self.delta, self.budget, 1)

    def protection(self, n_rows: int, groups: Any) -> Protection:
        """Return the protection of this many rows, with the group of each row or None."""
        relation, bound = Adjacency(self.adjacency), None
        limited = limited_groups(groups, self.max_rows_per_group, n_rows)
        if limited is None:
            if self.n_groups is not None:
                raise ValueError(f"groups must be given with n_groups={self.n_groups!r}, got None")
            rows = units = self._public("n_rows", n_rows, relation.n_is_public)
        else:
            whose, most = limited
            used, are_public = whose.n_used(most), relation.rows_are_public(Unit.GROUP)
            rows = self._public("n_rows", used, are_public)
            units = self._public("n_groups", whose.n_groups, relation.n_is_public)
            bound = GroupBound(units, float(most))
        budget = stated_budget(self.epsilon, self.delta, self.budget, units)
        return Protection(relation, budget, rows, bound)

    def _public(self, name: str, true: int, is_public: bool) -> int:
        """Return a public number of rows or groups: the true one, where that is public."""
        given: int | None = getattr(self, name)
        if given is not None:
            check_integer(name, given, least=1)
            if is_public and given != true:
                raise ValueError(
                    f"{name} must be the number of {name[2:]}, {true}, or None, got {given}"
                )
            return given
        if not is_public:
            raise private_size(name, self.adjacency)
        return true


def size_facts(
    data: DataSpec, adjacency: Adjacency, *, chosen: bool = False
) -> tuple[PublicFact, ...]:
    """Return the public numbers of rows, and of groups and their rows where there are groups.

    ``chosen`` says that a private condition selected the rows.
    """
    where = (PublicFact(WHERE, WHERE_IN_WORDS, "declared"),) * chosen

    def counted(name: str, value: int, is_public: bool) -> PublicFact:
        return PublicFact(name, value, "by relation" if is_public else "declared")

    rows = counted("n_rows", data.n_rows, adjacency.rows_are_public(data.unit))
    if data.groups is None:
        return (rows, *where)
    return (
        rows,
        *where,
        counted("n_groups", data.groups.n_groups, adjacency.n_is_public),
        PublicFact("max_rows_per_group", int(data.groups.rows), "declared"),
    )


def private_size(name: str, adjacency: str) -> ValueError:
    """Return the error about a number of rows or groups that is private and was not given."""
    return ValueError(
        f"{name} must be given under adjacency {str(adjacency)!r}, which keeps the true number "
        "private: a rough public number"
    )


@final
@dataclass(frozen=True, eq=False)
class PartInput:
    """The private rows of a part, and everything else that its run needs.

    ``rows`` is a table, or the arrays of an evaluation. ``where`` selects the rows that count.
    ``earlier`` has the results of the parts of a study that ran before, and ``held_out`` marks the
    rows on the second side of its split. ``max_rows_per_group`` is the stated one, which the plan
    of a model may undercut by the mean.
    """

    rows: tuple[Any, ...]
    groups: Any = None
    where: ArrayLike | Where | None = None
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None
    random_state: int | NoiseSource | None = None
    checkpoint: str | os.PathLike[str] | None = None
    earlier: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    held_out: NDArray[np.bool_] | None = None
    max_rows_per_group: int | None = None

    def arguments(self, what: str, least: int = 1, most: int = 1) -> tuple[Any, ...]:
        """Return the rows; a ValueError says ``what`` they must be if their number is wrong."""
        if not least <= len(self.rows) <= most:
            raise ValueError(f"rows must be {what}, got {len(self.rows)} arguments")
        return self.rows


class StudyPart(abc.ABC):
    """A part of a study: it plans from public facts, and reads released values."""

    @abc.abstractmethod
    def plan(self, protection: Protection) -> Plan:
        """Decide every setting and the noise, from public facts."""

    @abc.abstractmethod
    def noise_to_sampling(self, protection: Protection) -> float:
        """Return the mean ratio of noise variance to sampling variance, for Gaussian noise."""

    @abc.abstractmethod
    def title(self, plan: Plan) -> str:
        """Return a title for a plan."""

    @abc.abstractmethod
    def precision(self, plan: Plan) -> tuple[Any, ...]:
        """Return the expected half widths of intervals, with privacy noise only."""

    def expected(self, plan: Plan) -> tuple[Expected, ...]:
        """Return the precision to expect, in a few lines; by default all of ``precision``."""
        return tuple(
            Expected(EXPLORATION, name, f"± {plain_number(width, 2)}")
            for name, width in self.precision(plan)
        )

    def lines(self, plan: Plan) -> Iterable[str]:
        """Yield the expected precision in detail."""
        return (f"{one.quantity}: {one.precision}" for one in self.expected(plan))

    @abc.abstractmethod
    def run(self, plan: Plan, given: PartInput) -> Any:
        """Execute a plan of this part on private rows."""


def proportion_ratio(noise_std: float, n_rows: int, share: float) -> float:
    """Return the ratio of noise variance to sampling variance, for an estimated proportion."""
    return noise_std**2 * n_rows / (share * (1.0 - share))


@final
@dataclass(frozen=True, eq=False, repr=False)
class PartPlan:
    """The planned releases of a part of a study, such as a description or an evaluation.

    Parameters
    ----------
    part : StudyPart
        Public facts about the part.
    plan : Plan
        The releases.
    """

    part: StudyPart
    plan: Plan

    def precision(self) -> tuple[Any, ...]:
        """Return the expected half widths of intervals with privacy noise only, from public facts.

        They are a ``Precision`` for each number of a description (means and correlations of
        uniformly distributed columns), or a name and a half width for each number of an evaluation
        (a share of rows with half of the rows in each class, and means over all rows).
        """
        return self.part.precision(self.plan)

    def expected(self) -> tuple[Expected, ...]:
        """Return the expected precision in a few lines."""
        return self.part.expected(self.plan)

    def run(
        self,
        *rows: Any,
        groups: Any = None,
        where: ArrayLike | Where | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        random_state: int | NoiseSource | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Any:
        """Execute the plan on private rows.

        Parameters
        ----------
        *rows
            The table of a description; or targets, predictions and, for a plan with levels, the
            attribute of each row.
        groups, where, ledger, random_state
            See ``describe`` and ``evaluate``.
        checkpoint : path-like, optional
            File for the releases. Running the plan again with it returns the same result at no
            further cost.

        Returns
        -------
        Description, Evaluation or estimator

        Raises
        ------
        PlanMismatchError
            If the public number of rows is not the planned one; nothing is spent then.
        LedgerError
            If the ledger refuses the charge; nothing is spent then.
        """
        given = PartInput(rows, groups, where, ledger, random_state, checkpoint)
        return self.part.run(self.plan, given)

    def _title(self) -> str:
        return f"Plan of {self.part.title(self.plan)}"

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def __str__(self) -> str:
        lines = [f"{self._title()}: {self.plan.budget!r}, {self.plan.adjacency.value}"]
        lines += [f"  {line}" for line in self.part.lines(self.plan)]
        return "\n".join([*lines, *(f"  Caution: {one}" for one in self.plan.cautions())])

    def _repr_html_(self) -> str:
        facts = [("budget", self.plan.budget), ("relation", self.plan.adjacency.value)]
        return card(
            self._title(),
            facts,
            warnings=self.plan.cautions(),
            sections=[("Half widths of intervals", list(self.part.lines(self.plan)))],
        )


def execute(
    plan: Plan,
    rows: Callable[[NoiseSource], Rows],
    made: str,
    part: str,
    facts: tuple[PublicFact, ...],
    given: PartInput,
) -> tuple[Solution, Certificate]:
    """Run a plan on prepared rows, and certify it as the result ``made``.

    ``rows`` prepares the rows; it may draw a sample of each group's rows from the noise source.
    """
    warn_of_seed(given.random_state)
    noise, account = noise_source(given.random_state), as_ledger(given.ledger)
    prepared = rows(noise)
    # A plan that no certificate can hold is refused before anything is spent.
    _ = plan.document
    solution = run(plan, prepared, noise, ledger=account, checkpoint=given.checkpoint)
    return solution, certify(made, solution, noise, facts, solution.w, 0.0, part)
