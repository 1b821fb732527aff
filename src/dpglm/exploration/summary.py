"""A description as records, and as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dpglm._words import plain_number
from dpglm.exploration.numbers import Number
from dpglm.exploration.results import ColumnDescription, GroupDescription
from dpglm.tables.cells import listed

__all__ = [
    "ends_of",
    "estimate_of",
    "in_units",
    "records_of",
    "rest_in_words",
    "share_in_words",
    "shown_cells",
    "summary_of",
    "two_digits",
    "with_interval",
]

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
