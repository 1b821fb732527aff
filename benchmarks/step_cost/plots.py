"""Figures of ``docs/evidence/speed.md``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.step_cost.measure import Measurement
from benchmarks.step_cost.page import ONE, SIZES, case_name
from benchmarks.step_cost.protocol import Workload

__all__ = ["draw"]

COLORS: Mapping[str, str] = {
    "one product": "#bbbbbb",
    "two products": "#888888",
    "dpglm": "#0072b2",
    "dpglm, noise added": "#56b4e9",
    "scikit-learn": "#009e73",
    "JAX, closed form": "#e69f00",
    "JAX, vmap": "#d55e00",
    "jax-privacy": "#a04000",
    "Opacus, ghost clipping": "#cc79a7",
    "Opacus, hooks": "#7b3f6b",
}


def draw(folder: Path, found: Sequence[Measurement]) -> None:
    """Write ``speed_steps.svg`` and ``speed_growth.svg``."""
    import matplotlib

    options = {"svg.hashsalt": "dpglm", "svg.fonttype": "path", "font.size": 9}
    with matplotlib.rc_context(options):
        for name, figure in (("steps", _steps(found)), ("growth", _growth(found))):
            figure.savefig(folder / f"speed_{name}.svg", metadata={"Date": None})


def _steps(found: Sequence[Measurement]) -> Any:
    from matplotlib.figure import Figure

    steps = [one for one in found if one.part == "step"]
    cases = list(dict.fromkeys(Workload(**one.case) for one in steps))
    figure = Figure(figsize=(10.0, 2.6 * ((len(cases) + 1) // 2)), layout="constrained")
    panels = figure.subplots((len(cases) + 1) // 2, 2, squeeze=False).ravel()
    for panel in panels[len(cases) :]:
        panel.set_visible(False)
    for panel, case in zip(panels, cases, strict=False):
        rows = [one for one in steps if Workload(**one.case) == case]
        unit = next((one for one in rows if one.method == ONE), rows[0])
        rows.sort(key=lambda one: -one.median)
        quartiles = [one.ratios(unit) for one in rows]
        middle = [float(one[1]) for one in quartiles]
        errors = [[q[1] - q[0] for q in quartiles], [q[2] - q[1] for q in quartiles]]
        colors = [COLORS.get(one.method, "black") for one in rows]
        panel.barh([one.method for one in rows], middle, xerr=errors, color=colors)
        panel.set_xscale("log")
        panel.set_xlim(left=0.5 * min(middle))
        panel.xaxis.set_minor_formatter("")
        panel.set_title(case_name(case), fontsize=9)
        panel.set_xlabel(f"time over {'X @ w' if unit.method == ONE else unit.method}")
    return figure


def _growth(found: Sequence[Measurement]) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.0, 3.6), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for panel, (part, size) in zip(panels, SIZES.items(), strict=True):
        rows = [one for one in found if one.part == part]
        for method in dict.fromkeys(one.method for one in rows):
            own = sorted((one.case[size], one.median) for one in rows if one.method == method)
            x, y = zip(*own, strict=True)
            panel.loglog(x, [1e3 * one for one in y], "o-", color=COLORS[method], label=method)
            # After the curves, which set the scale's own ticks.
            panel.set_xticks(x[::2], [str(one) for one in x[::2]])
            panel.set_xticks([], minor=True)
        if rows:
            fixed = [f"{other} = {rows[0].case[s]}" for other, s in SIZES.items() if other != part]
            panel.set_title(", ".join(one for one in fixed if one != "K = 1"), fontsize=9)
        panel.set_xlabel({"n": "rows n", "d": "columns d", "K": "classes K"}[part])
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("one clipped gradient, ms")
    if panels[0].lines:
        panels[0].legend()
    return figure
