"""The generated part of ``docs/evidence/speed.md``: bars, tables and a plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from benchmarks.bar import Bar
from benchmarks.step_cost.measure import REFERENCE, Measurement
from benchmarks.step_cost.paper import Constants, cluster_plan, gpu_plan
from benchmarks.step_cost.protocol import Workload

__all__ = ["ONE", "SIZES", "bar_table", "bars", "case_name", "page_text"]

ONE, TWO = "one product", "two products"
FIRST = Workload(200_000, 100)
# Rows, columns, and how many products of rows and parameter a clipped gradient may cost.
SCALAR_BARS = ((200_000, 100, 2.0), (20_000, 2000, 1.7))
PEER_BARS = (("Opacus, ghost clipping", 5.0), ("JAX, closed form", 1.5))
SOFTMAX_BAR, CSR_BAR, FIT_BAR = 1.25, 2.0, 1.0


def page_text(machine: Mapping[str, str], found: Sequence[Measurement]) -> str:
    """Write everything that is generated, in Markdown."""
    steps = [one for one in found if one.part == "step"]
    cases = list(dict.fromkeys(Workload(**one.case) for one in steps))
    parts = [_machine_text(machine)]
    if shown := list(bars(found)):
        parts += ["### Bars", bar_table(shown)]
    parts += ["### One step"]
    for case in cases:
        rows = [one for one in steps if Workload(**one.case) == case]
        parts += [f"**{case_name(case)}**", _step_table(rows)]
    if fits := _by_problem(found):
        parts += ["### A whole fit", *(_fit_table(rows) for rows in fits)]
    if slopes := _slope_table(found):
        parts += ["### Growth", slopes]
    if (constants := Constants.of(found)) is not None:
        parts += ["### A plan on paper", constants.table()]
        parts += [cluster_plan(constants), gpu_plan(constants)]
    return "\n\n".join(parts)


def bars(found: Sequence[Measurement]) -> Iterator[Bar]:
    """Compare measurements with their bars; skip bars without a measurement."""
    steps = {(Workload(**one.case), one.method): one for one in found if one.part == "step"}

    def ratio(
        case: Workload, method: str, other: str, name: str, bar: float, at_least: bool = False
    ) -> Iterator[Bar]:
        if (case, method) in steps and (case, other) in steps:
            low, middle, high = steps[case, method].ratios(steps[case, other])
            yield Bar(name, float(middle), float(high - low), bar, at_least, "x")

    for n, d, bar in SCALAR_BARS:
        for dtype in ("float32", "float64"):
            case = Workload(n, d, dtype=dtype)
            name = f"clipped gradient over `X @ w`, {case_name(case)}"
            yield from ratio(case, REFERENCE, ONE, name, bar)
    for peer, bar in PEER_BARS:
        name = f"{peer} over dpglm, {case_name(FIRST)}"
        yield from ratio(FIRST, peer, REFERENCE, name, bar, at_least=True)
    for case in dict.fromkeys(case for case, _ in steps):
        if case.classes > 1:
            name = f"private step over its two products, {case_name(case)}"
            yield from ratio(case, "dpglm, noise added", TWO, name, SOFTMAX_BAR)
        if case.density < 1.0:
            name = f"clipped gradient over SciPy's two products, {case_name(case)}"
            yield from ratio(case, REFERENCE, TWO, name, CSR_BAR)
    for rows in _by_problem(found):
        by_name = {one.method: one for one in rows}
        if REFERENCE in by_name and "scikit-learn" in by_name:
            low, middle, high = by_name[REFERENCE].ratios(by_name["scikit-learn"])
            name = f"default fit over scikit-learn's to its tolerance, {rows[0].case['title']}"
            yield Bar(name, float(middle), float(high - low), FIT_BAR, False, "x")


def _machine_text(machine: Mapping[str, str]) -> str:
    facts = dict(machine)
    about = f"{facts.pop('processor')}, {facts.pop('threads')} threads"
    versions = [f"Python {facts.pop('python')}", *facts.values()]
    return f"Measured on {about}: {'; '.join(dict.fromkeys(versions))}."


def bar_table(shown: Sequence[Bar]) -> str:
    lines = ["| ratio | median | quartiles apart | bar | met |", "|---|---:|---:|---:|---|"]
    for bar in shown:
        sign = "≥" if bar.at_least else "≤"
        met = "yes" if bar.met else "**no**"
        lines.append(
            f"| {bar.name} | {bar.value:.2f} | {bar.spread:.2f} | {sign} {bar.bar:g} | {met} |"
        )
    return "\n".join(lines)


def case_name(case: Workload) -> str:
    shape = f"{case.rows} x {case.columns}"
    if case.classes > 1:
        shape += f", {case.classes} classes"
    if case.density < 1.0:
        shape += f", density {case.density:g}"
    return f"{shape}, {case.dtype}"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100.0 else f"{value:.3g}"


def _ratio(one: Measurement, other: Measurement) -> str:
    low, middle, high = map(_number, one.ratios(other))
    # One round does not have a spread, and a library is not compared with itself.
    return middle if low == high else f"{middle} ({low} to {high})"


def _step_table(rows: Sequence[Measurement]) -> str:
    by_name = {one.method: one for one in rows}
    heads = ["step", "median ms", "over `X @ w`", "over dpglm", "rounds", "memory, MB"]
    lines = ["| " + " | ".join(heads) + " |", "|---|---:|---:|---:|---:|---:|"]
    for one in sorted(rows, key=lambda one: one.median):
        ratios = [
            _ratio(one, by_name[other]) if other in by_name else "–" for other in (ONE, REFERENCE)
        ]
        peak = "–" if one.peak_bytes is None else _number(one.peak_bytes / 1e6)
        cells = [one.method, _number(1e3 * one.median), *ratios, str(len(one.seconds)), peak]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _by_problem(found: Sequence[Measurement]) -> list[list[Measurement]]:
    groups: dict[str, list[Measurement]] = {}
    for one in found:
        if one.part == "fit":
            groups.setdefault(one.case["problem"], []).append(one)
    return list(groups.values())


def _fit_table(rows: Sequence[Measurement]) -> str:
    case, by_name = rows[0].case, {one.method: one for one in rows}
    names = [name for name in rows[0].scores if name != "log loss"]
    reached = min(one.scores["log loss"] for one in rows)
    heads = ["fit", "median s", "over dpglm", "fits", "excess risk", *names]
    lines = [
        f"**{case['title']}, {case['rows']} x {case['columns']}**",
        "",
        "| " + " | ".join(heads) + " |",
        "|---|" + "---:|" * (len(heads) - 1),
    ]
    for one in sorted(rows, key=lambda one: one.median):
        over = _ratio(one, by_name[REFERENCE]) if REFERENCE in by_name else "–"
        cells = [one.method, f"{one.median:.3g}", over, str(len(one.seconds))]
        cells += [f"{one.scores['log loss'] - reached:.3f}"]
        cells += [f"{one.scores[name]:.3f}" for name in names]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _slope_table(found: Sequence[Measurement]) -> str:
    """Exponents of growth between the two largest sizes."""
    groups: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for one in found:
        if one.part in SIZES:
            size = float(one.case[SIZES[one.part]])
            groups.setdefault((one.part, one.method), []).append((size, one.median))
    if not groups:
        return ""
    parts = [part for part in SIZES if any(part == known for known, _ in groups)]
    lines = ["| step | " + " | ".join(f"in {part}" for part in parts) + " |"]
    lines.append("|---|" + "---:|" * len(parts))
    for method in dict.fromkeys(method for _, method in groups):
        cells = [method]
        for part in parts:
            (small, before), (large, after) = sorted(groups[part, method])[-2:]
            cells.append(f"{np.log(after / before) / np.log(large / small):.2f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


SIZES = {"n": "rows", "d": "columns", "K": "classes"}
