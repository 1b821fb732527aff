"""The page and the picture of the campaign."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from dpglm.pictures import BLUE, GREY, INK, ORANGE, quiet
from experiments.audits.case import Line

__all__ = ["bug_table", "draw", "subject_table"]

USUAL_DELTA = 0.01
WEAK = 0.7
"""Below this share of the claim the table says why."""


def _number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.2f}"


def _claim(line: Line) -> str:
    delta = "" if line.delta == USUAL_DELTA else f", δ = {line.delta:g}"
    return f"{line.epsilon:.2f}{delta}"


def _notes(lines: Iterable[Line]) -> dict[str, int]:
    """Give each reason a number, in the order in which they come."""
    notes: dict[str, int] = {}
    for line in lines:
        if line.why and line.share < WEAK:
            notes.setdefault(line.why, len(notes) + 1)
    return notes


def subject_table(lines: Sequence[Line]) -> str:
    """All subjects in Markdown, with numbered reasons below."""
    notes = _notes(lines)
    rows = [
        "| subject | relation | seen | claim: ε | lower bound | share | runs | method |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    part = ""
    for line in lines:
        if line.part != part:
            part = line.part
            rows.append(f"| **{part}** | | | | | | | |")
        share = f"{line.share:.0%}" if line.epsilon else "-"
        if line.why in notes and line.share < WEAK:
            share += f" ({notes[line.why]})"
        if line.refuted:
            share = f"**{share}, refuted**"
        name = f"`{line.subject}`" + (f", {line.variant}" if line.variant else "")
        runs = str(line.runs) if line.runs else "-"
        rows.append(
            f"| {name} | {line.relation} | {line.seen} | {_claim(line)} | "
            f"{_number(line.found)} | {share} | {runs} | {line.method} |"
        )
    if notes:
        rows += ["", "Why some bounds stay far below the claim:", ""]
    return "\n".join([*rows, *(f"{number}. {why}" for why, number in notes.items())])


def bug_table(lines: Sequence[Line]) -> str:
    """All planted bugs in Markdown."""
    rows = [
        "| planted bug | subject | relation | claim: ε | lower bound | share | runs | caught |",
        "|---|---|---|---:|---:|---:|---:|---|",
    ]
    for line in lines:
        name = f"`{line.subject}`" + (f", {line.variant}" if line.variant else "")
        share = f"{line.share:.1f}" if math.isfinite(line.share) else "∞"
        rows.append(
            f"| {line.bug} | {name} | {line.relation} | {_claim(line)} | {_number(line.found)} "
            f"| {share} | {line.runs} | {'yes' if line.refuted else '**no**'} |"
        )
    return "\n".join(rows)


def draw(lines: Sequence[Line], bugs: Sequence[Line]) -> Any:
    """Draw the share of the claim that each attack reached; beyond 1 a claim is refuted."""
    from matplotlib.figure import Figure

    parts = list(dict.fromkeys(line.part for line in lines if line.epsilon))
    groups = [(part, [one for one in lines if one.part == part]) for part in parts]
    groups.append(("planted bugs", list(bugs)))
    figure = Figure(figsize=(8.0, 0.5 * len(groups) + 1.3), layout="constrained")
    axes = figure.add_subplot()
    most = 3.0
    for height, (name, shown) in enumerate(reversed(groups)):
        color = ORANGE if name == "planted bugs" else BLUE
        for number, line in enumerate(shown):
            # Spread within the band, always in the same way.
            y = height + 0.5 * ((number * 0.618) % 1.0 - 0.5)
            marker = ">" if line.share > most else "o"
            axes.plot(min(line.share, most), y, marker, color=color, ms=4.5, alpha=0.75, mec="none")
    axes.axvline(1.0, color=INK, lw=1.2)
    axes.text(0.99, len(groups) - 0.42, "claim", color=INK, size=9, ha="right", va="bottom")
    axes.text(1.01, len(groups) - 0.42, "refuted", color=GREY, size=9, va="bottom")
    axes.set_yticks(range(len(groups)), [name for name, _ in reversed(groups)], color=INK)
    axes.set_xlim(-0.03, most + 0.1)
    axes.set_ylim(-0.5, len(groups) - 0.4)
    axes.set_xticks(
        [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, most], ["0", "0.5", "1", "1.5", "2", "2.5", "3+"]
    )
    axes.set_xlabel("lower confidence bound as a share of the claim", color=INK)
    quiet(axes)
    return figure
