"""Parts of studies, and the runner that executes and certifies their plans."""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

from numpy.typing import ArrayLike

from dpglm._words import card
from dpglm.certificate.certificate import Certificate, certify
from dpglm.certificate.statement import PublicFact
from dpglm.data.protection import Protection
from dpglm.data.rows import Rows
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.solvers.base import Plan, Solution
from dpglm.solvers.run import run
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
class PartInput:
    """The private rows of a part, and everything else that its run needs.

    ``rows`` is a table, or the arrays of an evaluation. ``where`` selects the rows that count.
    ``model`` is the fitted model, for the evaluation of a study.
    """

    rows: tuple[Any, ...]
    groups: Any = None
    where: ArrayLike | Where | None = None
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None
    random_state: int | NoiseSource | None = None
    checkpoint: str | os.PathLike[str] | None = None
    model: Any = None


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

    @abc.abstractmethod
    def expected(self, plan: Plan) -> tuple[Expected, ...]:
        """Return the precision to expect, in a few lines."""

    def lines(self, plan: Plan) -> Iterable[str]:
        """Yield the expected precision in detail."""
        return (f"{one.quantity}: {one.precision}" for one in self.expected(plan))

    @abc.abstractmethod
    def run(self, plan: Plan, given: PartInput) -> Any:
        """Execute a plan of this part on private rows."""


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
        """Return the expected precision of numbers, from public facts.

        Returns
        -------
        tuple
            Half widths of intervals with privacy noise only: a ``Precision`` for each number of a
            description (means and correlations of uniformly distributed columns), or a name and a
            half width for each number of an evaluation (a share of rows with half of the rows in
            each class, and means over all rows).
        """
        return self.part.precision(self.plan)

    def expected(self) -> tuple[Expected, ...]:
        """Return the expected precision in a few lines.

        Returns
        -------
        tuple of Expected
        """
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
        ValueError
            If an argument or a cell is invalid; nothing is spent then.
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
