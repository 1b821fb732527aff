"""Tables of text cells as plain text, Markdown, HTML and LaTeX."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from dpglm._words import visible

_WIDTH = 78
_INDENT = "  "
_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "–": "--", "†": r"$\dagger$",
    "[": "{[}",
}  # fmt: skip


@final
@dataclass(frozen=True, repr=False)
class ModelTable:
    """Estimates of one or several models as a table of text cells; made by ``dpglm.table``.

    ``str()`` returns plain text; notebooks show a table.

    Parameters
    ----------
    title : str
        Title.
    facts : tuple of (str, str)
        Names and values above the table.
    header : tuple of str
        Headings of the columns.
    sections : tuple of tuple of tuple of str
        Rows, in sections with lines between them. A first cell that begins with two blanks is
        indented.
    notes : tuple of str
        Sentences below the table.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    title: str
    facts: tuple[tuple[str, str], ...]
    header: tuple[str, ...]
    sections: tuple[tuple[tuple[str, ...], ...], ...]
    notes: tuple[str, ...]

    def __repr__(self) -> str:
        """Return lines of at least 78 characters."""
        rows = [self.header, *(row for section in self.sections for row in section)]
        widths = [max(len(visible(row[place])) for row in rows) for place in range(len(rows[0]))]

        def line(row: Sequence[str]) -> str:
            first, *others = map(visible, row)
            cells = [one.rjust(width) for one, width in zip(others, widths[1:], strict=True)]
            return "  ".join([first.ljust(widths[0]), *cells])

        width = max(_WIDTH, len(line(self.header)))
        label = max((len(name) for name, _ in self.facts), default=0) + 2
        about = [
            part
            for name, value in self.facts
            for part in textwrap.wrap(
                visible(value),
                width,
                initial_indent=f"{name}:".ljust(label),
                subsequent_indent=" " * label,
            )
        ]
        notes = [
            part
            for place, note in enumerate(self.notes, start=1)
            for part in textwrap.wrap(
                visible(note), width, initial_indent=f"[{place}] ", subsequent_indent="    "
            )
        ]
        double, single = "=" * width, "-" * width
        facts = [double, *about] if about else []
        body = [part for section in self.sections for part in (single, *map(line, section))]
        title = visible(self.title).center(width).rstrip()
        return "\n".join([title, *facts, double, line(self.header), *body, double, *notes])

    def to_markdown(self) -> str:
        """Return a table of GitHub's Markdown."""

        def escaped(text: str) -> str:
            shown = visible(text)
            return "".join(f"\\{one}" if one in "\\|*_`<>[]" else one for one in shown)

        def line(row: Sequence[str]) -> str:
            first = "&nbsp;&nbsp;" * row[0].startswith(_INDENT) + escaped(row[0].strip())
            return "| " + " | ".join([first, *map(escaped, row[1:])]) + " |"

        marks = "|" + "|".join([":---", *["---:"] * (len(self.header) - 1)]) + "|"
        rows = [line(row) for section in self.sections for row in section]
        facts = [f"- {escaped(name)}: {escaped(value)}" for name, value in self.facts]
        notes = [f"{place}. {escaped(note)}" for place, note in enumerate(self.notes, start=1)]
        parts = [[f"**{escaped(self.title)}**"], facts, [line(self.header), marks, *rows], notes]
        return "\n\n".join("\n".join(part) for part in parts if part) + "\n"

    def to_html(self) -> str:
        """Return an HTML element without scripts, classes and references; text is escaped."""

        def cell(text: str, place: int, tag: str = "td") -> str:
            side = "right" if place else "left"
            indent = ";padding-left:2em" if text.startswith(_INDENT) else ""
            shown = html.escape(visible(text.strip()))
            return f'<{tag} style="text-align:{side}{indent}">{shown}</{tag}>'

        def line(row: Sequence[str]) -> str:
            cells = (cell(one, at, "td" if at else "th") for at, one in enumerate(row))
            return f"<tr>{''.join(cells)}</tr>"

        heads = "".join(cell(one, place, "th") for place, one in enumerate(self.header))
        bodies = "".join(f"<tbody>{''.join(map(line, one))}</tbody>" for one in self.sections)
        about = "".join(
            f"<tr>{cell(name, 0, 'th')}{cell(value, 0)}</tr>" for name, value in self.facts
        )
        notes = "".join(f"<li>{html.escape(visible(note))}</li>" for note in self.notes)
        return (
            f"<div><strong>{html.escape(visible(self.title))}</strong>"
            + (f"<table>{about}</table>" if about else "")
            + f"<table><thead><tr>{heads}</tr></thead>{bodies}</table><ol>{notes}</ol></div>"
        )

    def to_latex(self) -> str:
        """Return a ``table`` environment; it needs the package booktabs."""

        def escaped(text: str) -> str:
            return "".join(_LATEX.get(one, one) for one in visible(text))

        def line(row: Sequence[str]) -> str:
            first = r"\quad " * row[0].startswith(_INDENT) + escaped(row[0].strip())
            return " & ".join([first, *map(escaped, row[1:])]) + r" \\"

        sections = [[r"\midrule", *map(line, section)] for section in self.sections]
        about = [f"{name}: {value}" for name, value in self.facts]
        notes = [rf"\par {escaped(note)}" for note in (*about, *self.notes)]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{escaped(self.title)}}}",
                rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}",
                r"\toprule",
                line(self.header),
                *(part for section in sections for part in section),
                r"\bottomrule",
                r"\end{tabular}",
                r"\par\footnotesize\raggedright",
                *notes,
                r"\end{table}",
                "",
            ]
        )
