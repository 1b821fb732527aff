"""A table of estimates that prints as text and shows as HTML."""

from __future__ import annotations

import html
import math
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._html import visible

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Column", "Kind", "Summary"]

Kind: TypeAlias = Literal["estimate", "statistic", "probability", "share"]
"""How numbers are written."""

_WIDTH = 78
_MOST_DECIMALS = 15
# By how many characters fixed notation may be longer than scientific: R's option scipen.
_FAVOUR_FIXED = 2


@final
@dataclass(frozen=True, eq=False)
class Column:
    """A column of a summary: its heading, its numbers, and how these are written.

    Estimates are written with three digits of their ``errors``, each with its own; what has an
    infinite one is not written.
    """

    heading: str
    values: NDArray[np.float64]
    kind: Kind
    errors: NDArray[np.float64]

    def cell(self, place: int, *, scientific: bool = False) -> str:
        """Write one of the numbers."""
        value, error = float(self.values[place]), float(self.errors[place])
        if math.isinf(error) and math.isfinite(value):
            return "–"
        if self.kind == "probability":
            return "<0.001" if value < 0.001 else f"{value:.3f}"
        if self.kind == "share":
            return f"{100.0 * value:.0f} %"
        if self.kind == "statistic" or not math.isfinite(value):
            return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.3g}"
        decimals = 2 - math.floor(math.log10(error)) if 0.0 < error < math.inf else 4
        if scientific:
            decimals += math.floor(math.log10(abs(value))) if value else 0
        decimals = min(max(decimals, 0), _MOST_DECIMALS)
        return f"{value:.{decimals}e}" if scientific else f"{value:.{decimals}f}"


@final
@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Table of estimates with what it rests on; made by ``Inference.summary``.

    ``str()`` is plain text, notebooks show a table.

    Parameters
    ----------
    title : str
        Name of the estimator.
    facts : tuple of (str, str)
        What was fitted, to what, with which budget.
    names : tuple of str
        Names of the rows.
    columns : tuple of Column
        The numbers.
    notes : tuple of str
        What the table rests on, in sentences.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    names: tuple[str, ...]
    columns: tuple[Column, ...]
    notes: tuple[str, ...]

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows as text.

        Returns
        -------
        list of tuple of str
            For each row its name, then a number for each column.
        """
        scientific = self._is_scientific
        return [
            (visible(name), *(one.cell(place, scientific=scientific) for one in self.columns))
            for place, name in enumerate(self.names)
        ]

    @property
    def _is_scientific(self) -> bool:
        """Whether estimates need scientific notation: one for all, as in tables of R.

        It is taken where the longest of them would be longer otherwise.
        """
        fixed, scientific = (
            max(
                len(one.cell(place, scientific=way))
                for one in self.columns
                if one.kind == "estimate"
                for place in range(len(self.names))
            )
            for way in (False, True)
        )
        return scientific + _FAVOUR_FIXED < fixed

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers as a data frame.

        Returns
        -------
        pandas.DataFrame
            A row for each name.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        import pandas as pd

        numbers = {one.heading: one.values for one in self.columns}
        return pd.DataFrame(numbers, index=list(self.names))

    def __str__(self) -> str:
        table = [("", *(one.heading for one in self.columns)), *self.cells()]
        widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0])]
                + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            )
            for row in table
        ]
        width = max(_WIDTH, len(lines[0]))
        label = max((len(name) for name, _ in self.facts), default=0) + 2
        about = [
            line
            for name, value in self.facts
            for line in textwrap.wrap(
                visible(value),
                width,
                initial_indent=f"{name}:".ljust(label),
                subsequent_indent=" " * label,
            )
        ]
        said = [
            line
            for place, note in enumerate(self.notes, start=1)
            for line in textwrap.wrap(
                visible(note), width, initial_indent=f"[{place}] ", subsequent_indent="    "
            )
        ]
        double, single = "=" * width, "-" * width
        title = f"{self.title}: coefficients".center(width).rstrip()
        return "\n".join(
            [title, double, *about, double, lines[0], single, *lines[1:], double, *said]
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        escaped = [[html.escape(cell) for cell in row] for row in self.cells()]
        heads = "".join(f"<th>{html.escape(one.heading)}</th>" for one in self.columns)
        rows = "".join(
            f'<tr><th style="text-align:left">{row[0]}</th>'
            + "".join(f'<td style="text-align:right">{cell}</td>' for cell in row[1:])
            + "</tr>"
            for row in escaped
        )
        about = "".join(
            f'<tr><th style="text-align:left">{html.escape(name)}</th>'
            f'<td style="text-align:left">{html.escape(visible(value))}</td></tr>'
            for name, value in self.facts
        )
        notes = "".join(f"<li>{html.escape(visible(note))}</li>" for note in self.notes)
        return (
            f"<div><strong>{html.escape(visible(self.title))}: coefficients</strong>"
            f"<table>{about}</table>"
            f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{rows}</tbody></table>"
            f"<ol>{notes}</ol></div>"
        )
