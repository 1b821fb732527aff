"""Description: what one noisy release says of a table, and what it cost."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

from dpglm._validation import check_real
from dpglm._words import card, plain_number, rounded_up
from dpglm.certificate.certificate import Certificate
from dpglm.exploration.design import Pair
from dpglm.exploration.estimation import estimated
from dpglm.exploration.results import (
    ColumnDescription,
    GroupDescription,
    Number,
    TwoWayTable,
    check_quantiles,
)
from dpglm.solvers.base import Solution
from dpglm.tables.cells import listed
from dpglm.tables.columns import Column, PaidFor
from dpglm.tables.schema import Schema
from dpglm.tables.targets import TargetColumn

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.exploration.describe import DescriptionPlan


# A description as records, and as text for a terminal.

_WIDTH, _LONGEST = 30, 28
_MOST_LEVELS, _MOST_NAMED = 12, 3


def records_of(groups: Mapping[str | None, GroupDescription]) -> list[dict[str, Any]]:
    """List all numbers, each with what it is about."""
    return [
        ({} if group is None else {"group": group}) | record
        for group, one in groups.items()
        for record in _records(one)
    ]


def _records(group: GroupDescription) -> Iterator[dict[str, Any]]:
    def record(column: str, quantity: str, cell: str, number: Number) -> dict[str, Any]:
        return {"column": column, "quantity": quantity, "cell": cell, **vars(number)}

    yield record("", "rows", "", group.n_rows)
    for name, column in group.columns.items():
        for label, count, share in zip(column.labels, column.counts, column.shares, strict=True):
            yield record(name, "count", label, count)
            yield record(name, "share", label, share)
        if column.mean is not None and column.spread is not None:
            yield record(name, "mean", "", column.mean)
            yield record(name, "standard deviation", "", column.spread)
        for q, number in column.quantiles.items():
            yield record(name, "quantile", f"{q:g}", number)
    for (one, other), table in group.two_way.items():
        for row, counts, shares in zip(table.row_labels, table.counts, table.shares, strict=True):
            for label, count, share in zip(table.column_labels, counts, shares, strict=True):
                yield record(f"{one} x {other}", "count", f"{row} x {label}", count)
                yield record(f"{one} x {other}", "share", f"{row} x {label}", share)
    for (one, other), number in group.correlations.items():
        yield record(f"{one} x {other}", "correlation", "", number)


def summary_of(head: str, groups: Mapping[str | None, GroupDescription], level: float) -> str:
    """Write groups as text; a bar is as long as its share of the longest."""
    lines = [
        head,
        f"In brackets: intervals ({100.0 * level:g} %) for this table, of privacy noise alone.",
    ]
    # Of groups that may be empty nothing else can be said.
    hidden = {
        label: group.n_rows.high
        for label, group in groups.items()
        if label is not None and group.n_rows.low <= 0.0
    }
    for label, group in groups.items():
        if label in hidden:
            continue
        if label is not None:
            lines += ["", f"== {label}: {with_interval(group.n_rows)} rows"]
        for column in group.columns.values():
            lines += ["", *_column(column)]
        if group.two_way:
            names = ", ".join(" x ".join(pair) for pair in group.two_way)
            lines += ["", f"Tables of two columns (see to_frame or the page): {names}"]
        if group.correlations:
            lines += ["", "Correlations", *_correlations(group.correlations)]
    if hidden:
        names = listed([str(label) for label in hidden])
        most = plain_number(math.ceil(max(hidden.values())))
        lines += ["", f"Groups that may have no rows, and have at most {most}: {names}"]
    return "\n".join(lines)


def _correlations(found: Mapping[tuple[str, str], Number]) -> Iterator[str]:
    """Write correlations in a line each, but for those of which noise leaves nothing to say."""
    said = {pair: one for pair, one in found.items() if (one.low, one.high) != (-1.0, 1.0)}
    width = max((len(" and ".join(pair)) for pair in said), default=0)
    for pair, one in said.items():
        ends = f"[{two_digits(one.low)}, {two_digits(one.high)}]"
        yield f"  {' and '.join(pair):<{width}}  {two_digits(one.estimate):>5}  {ends}"
    if len(said) < len(found):
        yield (
            f"  and {len(found) - len(said)} more, of which the noise leaves nothing to say: "
            "narrower bounds in the schema would help"
        )


def two_digits(value: float) -> str:
    """Write a correlation; without a sign where it is 0.00."""
    return f"{0.0 + round(value, 2):.2f}"


def _column(column: ColumnDescription) -> list[str]:
    lines = [column.name]
    if column.mean is None and column.column.n_bins:
        lines.append("  mean, standard deviation and quantiles: the values, if any, are too few")
    if column.mean is not None and column.spread is not None:
        lines.append(
            f"  mean {with_interval(column.mean)}, "
            f"standard deviation {with_interval(column.spread)}"
        )
        said = ", ".join(
            f"{100.0 * q:g} %: {with_interval(one)}" for q, one in column.quantiles.items()
        )
        lines.append(f"  quantiles {said}")
    longest = max(share.estimate for share in column.shares) or 1.0
    shown = shown_cells(column)
    for place in shown:
        share = column.shares[place]
        bar = "#" * round(24.0 * share.estimate / longest)
        lines.append(f"  {_fitted(column.labels[place])}{share_in_words(share)}  {bar}".rstrip())
    rest = rest_in_words(column, shown)
    return [*lines, f"  {rest}"] if rest else lines


def shown_cells(column: ColumnDescription, most: int = _MOST_LEVELS) -> list[int]:
    """List the cells worth showing: bins or the largest levels, and what there is beside them.

    Of several bins at an end that may all be empty only the innermost is shown.
    Cells beside a column's own (missing, not listed, outside the bounds, at the low one) are shown
    where the estimate is two half widths of its interval or more.
    """
    places = range(len(column.labels))
    own: Sequence[int] = places[column.column.own]
    if column.column.n_bins:
        own = _without_empty_ends(column, own)
    else:
        own = sorted(own, key=lambda place: -column.counts[place].estimate)[:most]
    beside = (
        place for place, count in enumerate(column.counts) if count.low > 0.5 * count.estimate > 0.0
    )
    others = set(beside) - set(places[column.column.own])
    return sorted({*own, *others})


def _without_empty_ends(column: ColumnDescription, bins: Sequence[int]) -> Sequence[int]:
    there = [place for place in bins if column.counts[place].low > 0.0]
    if not there:
        return bins
    return range(max(bins[0], there[0] - 1), min(bins[-1], there[-1] + 1) + 1)


def rest_in_words(column: ColumnDescription, shown: Sequence[int]) -> str:
    """Say how many cells are not shown, which if they are few, and how large they may be."""
    rest = [place for place in range(len(column.labels)) if place not in shown]
    if not rest:
        return ""
    names = ", ".join(column.labels[place] for place in rest)
    few = f" ({names})" if len(rest) <= _MOST_NAMED else ""
    highest = 100.0 * max(column.shares[place].high for place in rest)
    return f"and {len(rest)} more{few}, {'each ' * (len(rest) > 1)}at most {highest:.1f} %"


def share_in_words(share: Number) -> str:
    """Write a share with its interval."""
    return f"{100.0 * share.estimate:5.1f} %  [{100.0 * share.low:.1f}, {100.0 * share.high:.1f}]"


def in_units(value: float, width: float) -> str:
    """Write a number with the digits that an interval of that width leaves meaningful."""
    if not 0.0 < width < math.inf:
        return plain_number(value)
    decimals = 1 - math.floor(math.log10(width))
    return f"{value:.{min(max(decimals, 0), 8)}f}"


def estimate_of(number: Number) -> str:
    """Write an estimate with the digits that noise leaves meaningful."""
    return in_units(number.estimate, number.high - number.low)


def ends_of(low: float | None, high: float | None) -> tuple[str, ...]:
    """Write the ends of an interval, if there is one."""
    if low is None or high is None:
        return ()
    return in_units(low, high - low), in_units(high, high - low)


def with_interval(number: Number) -> str:
    """Write an estimate with its interval."""
    return f"{estimate_of(number)} [{', '.join(ends_of(number.low, number.high))}]"


def _fitted(text: str) -> str:
    short = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return f"{short:<{_WIDTH}}"


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
