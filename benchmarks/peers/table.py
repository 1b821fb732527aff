"""Results of the comparison: how they are stored, and the tables that the docs show."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

__all__ = ["Result", "load", "save", "tables", "write"]

BEGIN, END = "<!-- begin: tables -->", "<!-- end: tables -->"


@dataclass(frozen=True)
class Result:
    """Results of one library on one problem."""

    problem: str
    title: str
    n_rows: int
    n_columns: int
    n_test: int
    library: str
    version: str
    guarantee: str
    setting: str
    scores: dict[str, dict[str, list[float]]]
    """For each measure and each epsilon (as text; "inf" without privacy) one number a seed."""
    seconds: dict[str, list[float]]
    """For each epsilon one number a seed."""


def load(path: Path) -> dict[tuple[str, str], Result]:
    """Read stored results by problem and library; empty if the file does not exist yet."""
    found = json.loads(path.read_text()) if path.exists() else []
    return {(one["problem"], one["library"]): Result(**one) for one in found}


def save(path: Path, results: Iterable[Result]) -> None:
    """Store results, one a line."""
    lines = ",\n".join(json.dumps(asdict(one), ensure_ascii=False) for one in results)
    path.write_text(f"[\n{lines}\n]\n")


def tables(results: Iterable[Result], epsilons: Iterable[float]) -> str:
    """Make one table for each problem, in Markdown."""
    by_problem: dict[str, list[Result]] = {}
    for result in results:
        by_problem.setdefault(result.problem, []).append(result)
    keys = [str(epsilon) for epsilon in epsilons]
    return "\n\n".join(_section(group, keys) for group in by_problem.values())


def _section(results: list[Result], epsilons: list[str]) -> str:
    first = results[0]
    measures = dict.fromkeys(measure for one in results for measure in one.scores)
    lines = [
        f"### {first.title}",
        "",
        f"{first.n_rows} training rows, {first.n_columns} columns, {first.n_test} test rows.",
    ]
    for measure in measures:
        heads = ["library", "guarantee"]
        heads += [f"{measure}, ε = {float(e):g}" for e in epsilons]
        heads += ["fits", "seconds"]
        lines += ["", "| " + " | ".join(heads) + " |", "|---|---|" + "---:|" * (len(heads) - 2)]
        for one in results:
            if measure not in one.scores:
                continue
            cells = [one.library, one.guarantee]
            cells += [_cell(one.scores[measure], e) for e in epsilons]
            cells += [str(len(next(iter(one.seconds.values()))))]
            cells += [f"{np.median(np.concatenate(list(one.seconds.values()))):.2g}"]
            lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Settings:", ""]
    lines += [f"- {one.library} ({one.version}): {one.setting}." for one in results]
    return "\n".join(lines)


def _cell(scores: dict[str, list[float]], epsilon: str) -> str:
    # Results without privacy are the same at every epsilon.
    values = scores.get(epsilon, scores.get("inf"))
    if values is None:
        return "–"
    mean, spread = float(np.mean(values)), float(np.std(values))
    if abs(mean) >= 10.0:
        return f"{mean:.0e} ± {spread:.0e}"
    return f"{mean:.3f}" if len(values) == 1 else f"{mean:.3f} ± {spread:.3f}"


def write(page: Path, text: str) -> None:
    """Put the tables between their marks in the page."""
    head, rest = page.read_text().split(BEGIN)
    _, tail = rest.split(END)
    page.write_text(f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}")
