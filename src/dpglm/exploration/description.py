"""Description: what one noisy release says of a table, and what it cost."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

from dpglm._html import card
from dpglm._validation import check_real
from dpglm._words import rounded_up
from dpglm.certificate.certificate import Certificate
from dpglm.exploration.design import Pair
from dpglm.exploration.estimation import estimated
from dpglm.exploration.numbers import Number, check_quantiles
from dpglm.exploration.results import ColumnDescription, GroupDescription, TwoWayTable
from dpglm.exploration.summary import records_of, summary_of
from dpglm.solvers.solution import Solution
from dpglm.tables.columns import Column
from dpglm.tables.paid import PaidFor
from dpglm.tables.schema import Schema
from dpglm.tables.targets import TargetColumn

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.exploration.planning import DescriptionPlan

__all__ = ["Description"]

_C = TypeVar("_C", Column, TargetColumn)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Description:
    """What one noisy release says of a table; made by ``describe``.

    Parameters
    ----------
    plan : DescriptionPlan
        What was planned, and carried out.
    solution : dpglm.solvers.Solution
        What was released: the cells of all tables, weights and noise included.
    privacy_ : dpglm.report.Certificate
        The guarantee, what it rests on, and what was spent.

    Notes
    -----
    Counts are not negative, and add up: those of every column, of every table of two columns and of
    all groups, to the number of rows. Each number has an interval for the table (of privacy noise)
    and, shares, means and the like, one for the population that the rows were drawn from (of noise
    and sampling); see ``Number``.

    Privacy: all that is shown is computed from the release and public facts, and may be published.
    """

    plan: DescriptionPlan
    solution: Solution
    privacy_: Certificate

    @functools.cached_property
    def _groups(self) -> tuple[GroupDescription, ...]:
        plan = self.plan.plan
        public = plan.adjacency.rows_are_public(plan.data.unit) and not self.plan.chosen
        return estimated(
            self.plan.design,
            self.solution.w,
            self.plan.noise_std,
            plan.data.n_rows if public else None,
            self.plan.z,
            plan.data.reach(1),
        )

    @property
    def groups(self) -> Mapping[str, GroupDescription]:
        """The rows by level of the column ``by``; empty without one."""
        by = self.plan.design.by
        if by is None:
            return {}
        labels = self.plan.design.encoder[by].labels
        return dict(zip(labels, self._groups, strict=True))

    @property
    def overall(self) -> GroupDescription:
        """All rows; ValueError for a description by groups, as all that follow."""
        by = self.plan.design.by
        if by is not None:
            raise ValueError(
                f"the rows were described by {by!r}: look at groups[LEVEL], with LEVEL one of "
                f"{', '.join(map(repr, self.groups))}"
            )
        return self._groups[0]

    @property
    def n_rows(self) -> Number:
        """Number of rows."""
        return self.overall.n_rows

    @property
    def columns(self) -> Mapping[str, ColumnDescription]:
        """Columns by name."""
        return self.overall.columns

    @property
    def two_way(self) -> Mapping[Pair, TwoWayTable]:
        """Tables of two columns."""
        return self.overall.two_way

    @property
    def correlations(self) -> Mapping[Pair, Number]:
        """Correlations of two columns."""
        return self.overall.correlations

    def __getitem__(self, name: str) -> ColumnDescription:
        """Return a column by its name; a ValueError lists the columns."""
        found = self.columns.get(name)
        if found is None:
            raise ValueError(
                f"there is no column {name!r} among {', '.join(map(repr, self.columns))}"
            )
        return found

    def with_level(self, level: float) -> Description:
        """Return the same description with intervals of another level; it costs nothing.

        Parameters
        ----------
        level : float
            In (0, 1).

        Returns
        -------
        Description

        Raises
        ------
        ValueError
            If ``level`` is out of range.
        """
        check_real("level", level, above=0.0, below=1.0)
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, level=level))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: level, budget spent, and every number with its intervals."""
        document: dict[str, Any] = {
            "level": self.plan.level,
            "epsilon": self.privacy_.epsilon,
            "delta": self.privacy_.delta,
            "adjacency": self.privacy_.adjacency.value,
        }
        if self.plan.design.by is None:
            return document | self.overall.to_dict()
        groups = {level: one.to_dict() for level, one in self.groups.items()}
        return document | {"by": self.plan.design.by, "groups": groups}

    def to_frame(self) -> pd.DataFrame:
        """Return all numbers as a table.

        Returns
        -------
        pandas.DataFrame
            A row for each number: ``group`` (where there are groups), ``column``, ``quantity``,
            ``cell``, and the fields of ``Number``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        return pd.DataFrame(records_of(self._by_group()))

    def schema(self, bounds: tuple[float, float] = (0.005, 0.995)) -> Schema:
        """Return the schema with bounds that this description has paid for.

        Parameters
        ----------
        bounds : (float, float), default=(0.005, 0.995)
            Quantiles that become the lower and the upper bound of each numeric column that was
            described, within those that were declared.

        Returns
        -------
        Schema
            Its columns say what was paid, and certificates of fits that use it repeat that: their
            cost comes on top of this one's. Columns whose two quantiles are the same keep their
            bounds.

        Raises
        ------
        ValueError
            If ``bounds`` are not two numbers from 0 to 1 in ascending order, or the description is
            by groups.
        """
        below, above = check_quantiles("bounds", bounds)
        made = self.privacy_
        paid = PaidFor(made.epsilon, made.delta, made.model_digest)
        found = {
            name: (column.quantile(below).estimate, column.quantile(above).estimate)
            for name, column in self.columns.items()
            if column.ranks is not None
        }
        narrower = {
            name: tuple(float(f"{end:.6g}") for end in ends) for name, ends in found.items()
        }

        def bounded(column: _C) -> _C:
            low, high = narrower.get(column.name, (0.0, 0.0))
            return column.with_bounds(low, high, paid) if low < high else column

        schema = self.plan.schema
        return dataclasses.replace(
            schema,
            columns=tuple(bounded(column) for column in schema.columns),
            target=bounded(schema.target) if schema.has_target else schema.target,
        )

    def _by_group(self) -> Mapping[str | None, GroupDescription]:
        if self.plan.design.by is None:
            return {None: self._groups[0]}
        return {label: group for label, group in self.groups.items()}  # noqa: C416

    def summary(self) -> str:
        """Return the description as text for a terminal."""
        return summary_of(self._title(), self._by_group(), self.plan.level)

    def _title(self) -> str:
        return (
            f"{_subject(self)}: epsilon {rounded_up(self.privacy_.epsilon)}, delta "
            f"{rounded_up(self.privacy_.delta)}, relation {self.privacy_.adjacency.value}"
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _repr_html_(self) -> str:
        certificate = self.privacy_
        return card(
            _subject(self),
            [
                ("columns", ", ".join(one.name for one in self.plan.design.described)),
                ("epsilon", rounded_up(certificate.epsilon)),
                ("delta", rounded_up(certificate.delta)),
            ],
            warnings=certificate.caveats(),
            sections=[("What it says", self.summary().splitlines()[2:])],
        )


def _subject(description: Description) -> str:
    n_rows = description.plan.plan.data.n_rows
    certificate = description.privacy_
    if description.plan.chosen:
        return f"Private description of some of {n_rows} rows"
    if certificate.adjacency.rows_are_public(certificate.data.unit):
        return f"Private description of {n_rows} rows"
    return "Private description of rows"
