"""HTML page about a private description (extra ``report``)."""

from __future__ import annotations

import math
import os
from typing import Any

from dpglm._calls import checked
from dpglm.exploration.description import (
    Description,
    in_words,
    rest_in_words,
    shown_cells,
    two_digits,
)
from dpglm.exploration.estimation import ColumnDescription, RowsDescription, TwoWayTable
from dpglm.ledger.store import write_text
from dpglm.report.page import page_of
from dpglm.tabulate import Number, with_interval

__all__ = ["description_page", "write_description"]

_MOST_LEVELS = 20
_MOST_AT_A_GLANCE = 2


@checked
def description_page(description: Description, *, title: str = "A first look at the table") -> str:
    """Return a page about a description and its cost.

    Parameters
    ----------
    description : Description
        Result of ``dpglm.describe``.
    title : str, optional
        Heading.

    Returns
    -------
    str
        Self-contained HTML.

    Notes
    -----
    Privacy: the page shows released values and public facts.
    """
    return page_of(
        "description.html.j2",
        description.privacy_,
        title=title,
        described=shown_description(description),
    )


@checked
def write_description(
    description: Description, path: str | os.PathLike[str], **options: Any
) -> None:
    """Write the page of ``description_page`` to a file, whole or not at all.

    Parameters
    ----------
    description : Description
        Result of ``dpglm.describe``.
    path : path-like
        The file; an OSError is raised if it cannot be written.
    **options
        Options of ``description_page``.
    """
    write_text(path, description_page(description, **options))


def shown_description(description: Description) -> dict[str, Any]:
    """Return the argument of the macro ``described`` in ``templates/exploration.html.j2``."""
    levels = description.by_level
    clear = {label: one for label, one in levels.items() if one.n_rows.low > 0.0}
    shown = clear or levels or {"": description.overall}
    return {
        "level": f"{100.0 * description.level:g} %",
        "by": description.part.by,
        "levels": [(label, _rows(one)) for label, one in shown.items()],
        "left_out": len(levels) > len(shown),
    }


def _rows(rows: RowsDescription) -> dict[str, Any]:
    return {
        "n_rows": with_interval(rows.n_rows),
        "columns": [_column(one) for one in rows.columns.values()],
        "tables": [_table(one) for one in rows.two_way.values()],
        "correlations": [
            {"name": f"{one} and {other}", **_signed(number)}
            for (one, other), number in rows.correlations.items()
        ],
    }


def _column(column: ColumnDescription) -> dict[str, Any]:
    shown = shown_cells(column, _MOST_LEVELS)
    longest = max(column.shares[place].high for place in shown) or 1.0
    facts = []
    if column.mean is not None and column.spread is not None:
        facts += [("mean", column.mean), ("standard deviation", column.spread)]
    facts += [
        ("median" if q == 0.5 else f"{100.0 * q:g} % quantile", one)
        for q, one in column.quantiles.items()
    ]
    return {
        "name": column.name,
        "glance": _glance(column),
        "is_target": column.column.is_target,
        "facts": [(name, *(*in_words(column, one), "", "")[:5]) for name, one in facts],
        "bars": [
            {"label": column.labels[place], **_bar(column.shares[place], longest)}
            for place in shown
        ],
        "rest": rest_in_words(column, shown),
    }


def _glance(column: ColumnDescription) -> str:
    """Summarize a column in one line: its median and range, or its largest categories."""
    if column.quantiles:
        levels = sorted(column.quantiles)
        spanning = levels[0], min(levels, key=lambda q: abs(q - 0.5)), levels[-1]
        low, middle, high = (in_words(column, column.quantiles[q])[0] for q in spanning)
        return f"median {middle}, mostly from {low} to {high}"
    largest = sorted(
        zip(column.labels, column.shares, strict=True), key=lambda pair: -pair[1].estimate
    )
    return ", ".join(
        f"{label} {100.0 * share.estimate:.0f} %" for label, share in largest[:_MOST_AT_A_GLANCE]
    )


def _bar(share: Number, longest: float) -> dict[str, str]:
    """Return a bar and its interval, as percentages of the longest one, and its label."""
    unit = 100.0 / longest
    return {
        "length": f"{unit * share.estimate:.2f}%",
        "low": f"{unit * share.low:.2f}%",
        "width": f"{max(unit * (share.high - share.low), 0.4):.2f}%",
        "text": f"{100.0 * share.estimate:.1f} %",
        "ends": f"{100.0 * share.low:.1f} to {100.0 * share.high:.1f}",
    }


def _signed(number: Number) -> dict[str, str]:
    """Return the position of a correlation and its interval on a scale from -1 to 1."""
    middle = 50.0 * (1.0 + number.estimate)
    return {
        "start": f"{min(middle, 50.0):.2f}%",
        "length": f"{abs(middle - 50.0):.2f}%",
        "low": f"{50.0 * (1.0 + number.low):.2f}%",
        "width": f"{max(50.0 * (number.high - number.low), 0.4):.2f}%",
        "text": two_digits(number.estimate),
        "ends": f"{two_digits(number.low)} to {two_digits(number.high)}",
    }


def _table(table: TwoWayTable) -> dict[str, Any]:
    """Return a two-way table of shares within each row, with shades."""
    # Rows and columns that may be empty would show noise.
    columns = [
        place
        for place in range(len(table.column_labels))
        if any(counts[place].low > 0.0 for counts in table.counts)
    ]
    rows = []
    for label, counts in zip(table.row_labels, table.counts, strict=True):
        total = math.fsum(one.estimate for one in counts)
        if total <= 0.0 or sum(one.low for one in counts) <= 0.0:
            continue
        rows.append((label, [_shaded(counts[place], total) for place in columns]))
    return {
        "name": " by ".join(table.columns),
        "first": table.columns[0],
        "second": table.columns[1],
        "labels": [table.column_labels[place] for place in columns],
        "rows": rows,
    }


def _shaded(count: Number, total: float) -> tuple[str, str, str]:
    share = count.estimate / total
    ends = f"{count.low:.0f} to {count.high:.0f} rows"
    return f"{100.0 * share:.0f} %", f"{0.55 * share:.3f}", ends
