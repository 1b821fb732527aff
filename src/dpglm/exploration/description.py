"""The result of a description, as values, records and text."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from dpglm._calls import checked
from dpglm._words import card, plain_number, rounded_up
from dpglm.certificate.certificate import Certificate
from dpglm.exploration.design import Design
from dpglm.exploration.estimation import ColumnDescription, RowsDescription, estimated
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.cells import listed
from dpglm.tables.columns import Column, PaidFor
from dpglm.tables.schema import Schema
from dpglm.tables.targets import TargetColumn
from dpglm.tables.times import date_text
from dpglm.tabulate import (
    Number,
    ReleasedTables,
    TabulatedResult,
    check_quantiles,
    ends_of,
    estimate_of,
    normal_quantile,
    with_interval,
)

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.exploration.describe import DescriptionPart

_WIDTH, _LONGEST = 30, 28
_MOST_LEVELS, _MOST_NAMED = 12, 3
_C = TypeVar("_C", Column, TargetColumn)


def _records(rows: RowsDescription) -> Iterator[dict[str, Any]]:
    """Yield all numbers with the column, quantity and cell that they are about."""

    def record(column: str, quantity: str, cell: str, number: Number) -> dict[str, Any]:
        return {"column": column, "quantity": quantity, "cell": cell, **vars(number)}

    yield record("", "rows", "", rows.n_rows)
    for name, column in rows.columns.items():
        for label, count, share in zip(column.labels, column.counts, column.shares, strict=True):
            yield record(name, "count", label, count)
            yield record(name, "share", label, share)
        if column.mean is not None and column.spread is not None:
            yield record(name, "mean", "", column.mean)
            yield record(name, "standard deviation", "", column.spread)
        for q, number in column.quantiles.items():
            yield record(name, "quantile", f"{q:g}", number)
    for (one, other), table in rows.two_way.items():
        for row, counts, shares in zip(table.row_labels, table.counts, table.shares, strict=True):
            for label, count, share in zip(table.column_labels, counts, shares, strict=True):
                yield record(f"{one} x {other}", "count", f"{row} x {label}", count)
                yield record(f"{one} x {other}", "share", f"{row} x {label}", share)
    for (one, other), number in rows.correlations.items():
        yield record(f"{one} x {other}", "correlation", "", number)


def _lines(levels: Mapping[str | None, RowsDescription]) -> Iterator[str]:
    """Write all levels as text."""
    # Numbers of levels that may be empty are noise.
    hidden = {
        str(label): rows.n_rows.high
        for label, rows in levels.items()
        if label is not None and rows.n_rows.low <= 0.0
    }
    shown = [label for label in levels if label not in hidden]
    for label, rows in ((one, levels[one]) for one in shown[:_MOST_LEVELS]):
        if label is not None:
            yield from ("", f"== {label}: {with_interval(rows.n_rows)} rows")
        for column in rows.columns.values():
            yield from ("", *_column(column))
        if rows.two_way:
            names = ", ".join(" x ".join(pair) for pair in rows.two_way)
            yield from ("", f"Two-way tables (see to_frame or the page): {names}")
        if rows.correlations:
            yield from ("", "Correlations", *_correlations(rows.correlations))
    if len(shown) > _MOST_LEVELS:
        more = len(shown) - _MOST_LEVELS
        yield from ("", f"{more} more levels are in by_level, to_dict and the report.")
    if hidden:
        most = plain_number(math.ceil(max(hidden.values())))
        yield ""
        yield f"Levels that may be empty, with at most {most} rows each: {listed(list(hidden))}"


def _correlations(found: Mapping[tuple[str, str], Number]) -> Iterator[str]:
    """Write the correlations that can be estimated, and the number of the others."""
    known = [(pair, one) for pair, one in found.items() if (one.low, one.high) != (-1.0, 1.0)]
    width = max((len(" and ".join(pair)) for pair, _ in known), default=0)
    for pair, one in known:
        value, low, high = map(two_digits, (one.estimate, one.low, one.high))
        yield f"  {' and '.join(pair):<{width}}  {value:>5}  [{low}, {high}]"
    if len(known) < len(found):
        yield (
            f"  {len(found) - len(known)} more cannot be estimated at this budget; narrower bounds "
            "in the schema would help"
        )


def two_digits(value: float) -> str:
    """Write a correlation; without a sign where it is 0.00."""
    return f"{0.0 + round(value, 2):.2f}"


def in_words(column: ColumnDescription, one: Number) -> tuple[str, ...]:
    """Write a number of a column with its ends for these rows, and for the population if any."""
    ends = one.low, one.high, one.population_low, one.population_high
    if column.column.is_date and one is not column.spread:
        return tuple(date_text(round(day)) for day in (one.estimate, *ends) if day is not None)
    return estimate_of(one), *ends_of(*ends[:2]), *ends_of(*ends[2:])


def _column(column: ColumnDescription) -> list[str]:
    lines = [column.name]
    if column.mean is None and column.column.n_bins:
        lines.append("  mean, standard deviation and quantiles: too few values to estimate them")
    if column.mean is not None and column.spread is not None:
        mean, spread, *quantiles = (
            "{} [{}, {}]".format(*in_words(column, one))
            for one in (column.mean, column.spread, *column.quantiles.values())
        )
        lines.append(f"  mean {mean}, standard deviation {spread}")
        named = zip(column.quantiles, quantiles, strict=True)
        lines.append("  quantiles " + ", ".join(f"{100.0 * q:g} %: {one}" for q, one in named))
    longest = max(share.estimate for share in column.shares) or 1.0
    shown = shown_cells(column)
    for place in shown:
        share, name = column.shares[place], column.labels[place]
        name = name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."
        bar = "#" * round(24.0 * share.estimate / longest)
        value, low, high = (100.0 * one for one in (share.estimate, share.low, share.high))
        words = f"{value:5.1f} %  [{low:.1f}, {high:.1f}]"
        lines.append(f"  {name:<{_WIDTH}}{words}  {bar}".rstrip())
    rest = rest_in_words(column, shown)
    return [*lines, f"  {rest}"] if rest else lines


def shown_cells(column: ColumnDescription, most: int = _MOST_LEVELS) -> list[int]:
    """Return the cells to show: bins or the largest categories, and the other cells with rows.

    Among bins at either end that may be empty only the innermost is shown. Other cells (missing,
    not listed, outside the bounds) are shown if the estimate exceeds two half widths.
    """
    places = range(len(column.labels))
    own: Sequence[int] = places[column.column.own]
    if column.column.n_bins:
        if there := [place for place in own if column.counts[place].low > 0.0]:
            own = range(max(own[0], there[0] - 1), min(own[-1], there[-1] + 1) + 1)
    else:
        own = sorted(own, key=lambda place: -column.counts[place].estimate)[:most]
    clear = {
        place
        for place in places
        if column.counts[place].low > 0.5 * column.counts[place].estimate > 0.0
    }
    return sorted({*own, *(clear - set(places[column.column.own]))})


def rest_in_words(column: ColumnDescription, shown: Sequence[int]) -> str:
    """Write how many cells are not shown, their names if there are few, and their largest share."""
    rest = [place for place in range(len(column.labels)) if place not in shown]
    if not rest:
        return ""
    names = ", ".join(column.labels[place] for place in rest)
    few = f" ({names})" if len(rest) <= _MOST_NAMED else ""
    highest = 100.0 * max(column.shares[place].high for place in rest)
    return f"and {len(rest)} more{few}, {'each ' * (len(rest) > 1)}at most {highest:.1f} %"


def _difference(one: Number | None, other: Number | None, spreads: Sequence[float]) -> Number:
    """Return the difference of two independent numbers in units of their mean spread."""
    assert one is not None
    assert other is not None
    unit = math.sqrt(math.fsum(spread**2 for spread in spreads) / len(spreads)) or math.inf
    gap = (one.estimate - other.estimate) / unit
    ends = np.array([dataclasses.astuple(number)[1:] for number in (one, other)], np.float64)
    halves = 0.5 * np.hypot(*(ends[:, 1::2] - ends[:, ::2])) / unit
    return Number(gap, *(gap + np.outer(halves, [-1.0, 1.0])).ravel().tolist())


def _of_all(name: str, doc: str) -> Any:
    """Return a property: an attribute of the description of all rows."""
    return property(lambda found: getattr(found.overall, name), doc=doc)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Description(TabulatedResult):
    """The result of a private description; made by ``describe``.

    Parameters
    ----------
    part : DescriptionPart
        The options of the description.
    solution : dpglm.solvers.Solution
        The released cells of all tables, weights and noise included.
    privacy_ : dpglm.certificate.Certificate
        The guarantee, its assumptions, and the budget spent.

    Notes
    -----
    Counts are not negative and add up: those of each column, of each two-way table and of all
    levels of ``by`` to the number of rows. Each number has an interval for these rows (privacy
    noise). Shares, means and the like also have one for the population (noise and sampling error);
    see ``Number``.

    Privacy: all values are computed from the release and public facts, and may be published.
    """

    part: DescriptionPart
    solution: Solution
    privacy_: Certificate
    _kind = "description"
    _intervals = " in brackets: for these rows, with privacy noise only."

    @functools.cached_property
    def design(self) -> Design:
        """The tables of the description."""
        return self.part.design(self.solution.plan)

    @functools.cached_property
    def _levels(self) -> tuple[RowsDescription, ...]:
        released = ReleasedTables.of(
            self.solution.plan,
            self.design.cells,
            self.solution.w,
            chosen=self._chosen,
            has_levels=self.part.by is not None,
        )
        return estimated(self.design, released, normal_quantile(self.level))

    @property
    def by_level(self) -> Mapping[str, RowsDescription]:
        """Descriptions of the rows with each level of the column ``by``; empty without one."""
        by = self.part.by
        if by is None:
            return {}
        return dict(zip(self.design.encoder[by].labels, self._levels, strict=True))

    @property
    def overall(self) -> RowsDescription:
        """Description of all rows; ValueError for a description by levels."""
        by = self.part.by
        if by is not None:
            raise ValueError(
                f"the rows were described by {by!r}: use by_level[LEVEL], with LEVEL one of "
                f"{', '.join(map(repr, self.by_level))}"
            )
        return self._levels[0]

    n_rows = _of_all("n_rows", "Number of rows.")
    columns = _of_all("columns", "Columns by name.")
    two_way = _of_all("two_way", "Two-way tables by the names of their columns.")
    correlations = _of_all("correlations", "Correlations by the names of their columns.")

    def __getitem__(self, name: str) -> ColumnDescription:
        """Return a column by name; a ValueError lists the columns."""
        if name not in self.columns:
            raise ValueError(
                f"column {name!r} does not exist among {', '.join(map(repr, self.columns))}"
            )
        return self.overall[name]

    @checked
    def standardized_differences(self, one: str, other: str) -> Mapping[str, Number]:
        """Compare two levels of ``by``, as in a table of baseline characteristics.

        Parameters
        ----------
        one, other : str
            Labels of levels.

        Returns
        -------
        mapping from str to Number
            For each numeric column, and each level of the others (``"sex=Male"``): the difference
            of means or shares over the root of the mean variance of both levels. The interval of
            the population treats the variances as known.

        Raises
        ------
        ValueError
            If a label is not that of a level of ``by``.
        """
        for label in (one, other):
            if label not in self.by_level:
                raise ValueError(
                    f"by must have the level {label!r}, and has {', '.join(self.by_level)}"
                )
        first, second = self.by_level[one].columns, self.by_level[other].columns
        found: dict[str, Number] = {}
        for name, column in first.items():
            a, b = column, second[name]
            if None not in (a.mean, b.mean, a.spread, b.spread):
                spreads = [one.estimate for one in (a.spread, b.spread) if one is not None]
                found[name] = _difference(a.mean, b.mean, spreads)
            elif not column.column.n_bins:
                for label, p, q in zip(column.labels, a.shares, b.shares, strict=True):
                    spreads = [math.sqrt(s.estimate * (1.0 - s.estimate)) for s in (p, q)]
                    found[f"{name}={label}"] = _difference(p, q, spreads)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return plain values: level, budget spent, and every number with its intervals."""
        if self.part.by is None:
            return self._guarantee() | self.overall.to_dict()
        levels = {level: one.to_dict() for level, one in self.by_level.items()}
        return self._guarantee() | {"by": self.part.by, "by_level": levels}

    def to_frame(self) -> pd.DataFrame:
        """Return all numbers as a pandas table with a row for each.

        Columns are the level of ``by`` if there is one, ``column``, ``quantity``, ``cell``, and the
        fields of ``Number``.
        """
        import pandas as pd

        return pd.DataFrame(
            [
                ({} if level is None else {"by": level}) | record
                for level, rows in self._shown().items()
                for record in _records(rows)
            ]
        )

    @checked
    def schema(self, bounds: tuple[float, float] = (0.005, 0.995)) -> Schema:
        """Return the schema with bounds from this description, which must not be by levels.

        The quantiles ``bounds``, from 0 to 1, become the lower and upper bound of each described
        numeric column, within the declared bounds; columns with two equal quantiles keep theirs.
        The columns contain the cost of this description, and certificates of fits that use them
        repeat it: the fits are charged in addition.
        """
        below, above = check_quantiles("bounds", bounds)
        made = self.privacy_
        paid = PaidFor(made.epsilon, made.delta, made.model_digest)
        narrower = {
            name: [float(f"{column.quantile(q).estimate:.6g}") for q in (below, above)]
            for name, column in self.columns.items()
            if column.ranks is not None
        }

        def bounded(column: _C) -> _C:
            low, high = narrower.get(column.name, (0.0, 0.0))
            return column.with_bounds(low, high, paid) if low < high else column

        schema = self.part.schema
        return dataclasses.replace(
            schema,
            columns=tuple(bounded(column) for column in schema.columns),
            target=bounded(schema.target) if schema.has_target else schema.target,
        )

    def _shown(self) -> dict[str | None, RowsDescription]:
        shown: dict[str | None, RowsDescription] = {}
        shown.update(self.by_level)
        return shown or {None: self._levels[0]}

    def _lines(self) -> Iterator[str]:
        return _lines(self._shown())

    def _repr_html_(self) -> str:
        certificate = self.privacy_
        return card(
            self._subject(),
            [
                ("columns", ", ".join(one.name for one in self.design.described)),
                ("epsilon", rounded_up(certificate.epsilon)),
                ("delta", rounded_up(certificate.delta)),
            ],
            warnings=certificate.caveats(),
            sections=[("Results", self.summary().splitlines()[2:])],
        )
