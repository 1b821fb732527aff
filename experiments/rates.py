"""Compare measured rates with the theorems': figures, their numbers and a table for the docs.

Run with ``make rates``, or ``python -m experiments.rates`` (a few minutes on one core). For each
name below it rewrites ``docs/figures/NAME.svg`` and ``NAME.csv``, and then the table of slopes in
``docs/evidence/papers.md``. Noise is seeded, so the same machine gives the same numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments import arora2022_rates, hard_instances, song2021_rates
from experiments.curves import Curve, write_csv
from experiments.measured import DOCS, put

__all__ = ["FIGURES", "main", "slope_table"]


@dataclass(frozen=True)
class Claim:
    """A slope that a theorem gives to one curve of a figure."""

    panel: str
    curve: str
    slope: str
    source: str


@dataclass(frozen=True)
class Figure:
    """How a figure is measured and drawn, and its message."""

    measure: Callable[[bool], list[tuple[str, list[Curve]]]]
    draw: Callable[[list[tuple[str, list[Curve]]]], Any]
    claims: tuple[Claim, ...]


_LOW, _HIGH = arora2022_rates.LOW, arora2022_rates.HIGH
FIGURES = {
    "arora2022_rates": Figure(
        arora2022_rates.measure,
        arora2022_rates.draw,
        (
            Claim(_LOW, "noisy GD, empirical", "-1", "arora2022, Theorem 1"),
            Claim(_LOW, "noisy GD, population", "-1 to -1/2", "arora2022, Theorem 1"),
            Claim(_HIGH, "noisy GD, empirical", "-1", "arora2022, Theorem 1"),
            Claim(_HIGH, "Johnson-Lindenstrauss, empirical", "-2/3", "arora2022, Theorem 2"),
            Claim(
                _HIGH, "Johnson-Lindenstrauss, population", "-2/3 to -1/2", "arora2022, Theorem 2"
            ),
            Claim(_HIGH, "output perturbation, empirical", "-2/3", "arora2022, Theorem 3"),
            Claim(_HIGH, "output perturbation, population", "-2/3 to -1/2", "arora2022, Theorem 3"),
        ),
    ),
    "song2021_rates": Figure(
        song2021_rates.measure,
        song2021_rates.draw,
        (
            Claim("dimension", song2021_rates.FREE, "0", "song2021, Theorem 3.1"),
            Claim("dimension", song2021_rates.BALL, "at most 1/2", "song2021, Theorem 2.7"),
            Claim("rank", song2021_rates.FREE, "1/2", "song2021, Theorem 3.1"),
            Claim("rank", song2021_rates.BALL, "0", "song2021, Theorem 2.7"),
        ),
    ),
    "hard_instances": Figure(
        hard_instances.measure,
        hard_instances.draw,
        (
            Claim("rows", hard_instances.FLOOR, "-1", "arora2022, Theorem 4"),
            Claim("rows", hard_instances.MEASURED, "-1", "arora2022, Theorems 1 and 4"),
            Claim("rows", hard_instances.CEILING, "-1", "arora2022, Theorem 1"),
        ),
    ),
}


def slope_table(measured: dict[str, list[tuple[str, list[Curve]]]]) -> str:
    """Return fitted slopes, with standard errors, next to the theorems', in Markdown."""
    lines = [
        "| figure | against | curve | slope of the theorem | measured slope |",
        "|---|---|---|---:|---:|",
    ]
    against = {_LOW: "rows, low dimension", _HIGH: "rows, high dimension"}
    for name, panels in measured.items():
        curves = {(panel, one.label): one for panel, shown in panels for one in shown}
        for claim in FIGURES[name].claims:
            slope, error = curves[claim.panel, claim.curve].slope
            found = f"{slope:.2f} ± {error:.2f}"
            axis = against.get(claim.panel, claim.panel)
            lines.append(
                f"| {name} | {axis} | {claim.curve} | {claim.slope} ({claim.source}) | {found} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, draw, and write into the docs."""
    import matplotlib

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=FIGURES, help="these; no table is written")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where to write")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the code")
    options = parser.parse_args(arguments)
    figures = options.docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    measured = {}
    for name in options.only or FIGURES:
        start = time.perf_counter()
        measured[name] = FIGURES[name].measure(options.quick)
        write_csv(figures / f"{name}.csv", measured[name])
        with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
            drawn = FIGURES[name].draw(measured[name])
            drawn.savefig(figures / f"{name}.svg", metadata={"Date": None})
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)
    table = slope_table(measured)
    print(table)
    if options.only is None:
        put(options.docs / "evidence" / "papers.md", "slopes", table)


if __name__ == "__main__":
    main()
