"""The picture of a run's steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpglm._words import plain_number
from dpglm.pictures import drawing as draw
from dpglm.solvers.base import StepInfo
from dpglm.solvers.solution import Solution

__all__ = ["training_history"]

_WIDE_RANGE = 8.0
_FEW = 60
# Inches that two labels beside each other need.
_BOTH = 5.0
_BARS = ("noise alone (expected)", "this run, with noise")
_TITLE = "How training went"


def training_history(solution: Solution, *, width: float = 7.2) -> Any:
    """Draw the noisy gradient of each step against what noise alone would look like.

    Parameters
    ----------
    solution : Solution
        ``solution_`` of a fitted estimator.
    width : float, default=7.2
        Of the picture, in inches.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If no step released a gradient: where only the last iterate is paid for, steps stay
        secret.

    Notes
    -----
    Privacy: all that is drawn was released, and paid for, by the fit itself.
    """
    history = [info for info in solution.history if math.isfinite(info.gradient_norm)]
    if not history:
        raise ValueError(
            "solution must have a history, got an empty one: no gradient of this fit was released, "
            "so what its steps looked like stays secret"
        )
    return _one_step(history[0], width) if len(history) == 1 else _several_steps(history, width)


def _several_steps(history: Sequence[StepInfo], width: float) -> Any:
    steps = [info.step for info in history]
    norms = [info.gradient_norm for info in history]
    floors = [info.noise_norm for info in history]
    figure = draw.new_figure(
        width,
        4.4,
        _TITLE,
        "While the noisy gradient is longer than noise alone, steps still follow the data.",
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.0, 1.0])
    few = len(steps) <= _FEW
    marker = "o" if few else None
    upper.plot(
        steps,
        norms,
        color=draw.BLUE,
        linewidth=1.6,
        marker=marker,
        markersize=4,
        label="this run, with noise",
    )
    upper.plot(
        steps,
        floors,
        color=draw.INK,
        linewidth=1.4,
        dashes=(6, 3),
        label="noise alone (expected)",
    )
    least, most = min(*norms, *floors), max(*norms, *floors)
    if 0.0 < least * _WIDE_RANGE < most:
        draw.log_scale(upper)
    else:
        upper.set_ylim(0.0, 1.15 * most)
    upper.set_ylabel("length of the gradient")
    # Above the curves, which may be anywhere.
    upper.legend(
        frameon=False,
        fontsize=9.5,
        labelcolor=draw.INK,
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=2 if width > _BOTH else 1,
        borderpad=0.0,
    )
    sizes = [info.step_size for info in history]
    lower.plot(
        steps, sizes, color=draw.INK, linewidth=1.6, drawstyle="steps-mid" if few else "default"
    )
    lower.set_ylim(0.0, 1.15 * max(sizes))
    lower.set_ylabel("step size")
    lower.set_xlabel("step")
    for axes in (upper, lower):
        draw.quiet(axes)
        axes.margins(x=0.01)
    draw.whole_numbers(lower)
    figure.align_ylabels([upper, lower])
    return figure


def _one_step(info: StepInfo, width: float) -> Any:
    """Compare two lengths: a curve of one step would be a dot."""
    if info.noise_norm > 0.0:
        ratio = plain_number(float(f"{info.gradient_norm / info.noise_norm:.2g}"), 2)
        subtitle = f"One step: its noisy gradient is {ratio} times as long as noise alone."
    else:
        subtitle = "One step, without noise in it."
    figure = draw.new_figure(width, 1.6, _TITLE, subtitle)
    axes = figure.subplots()
    lengths = [info.noise_norm, info.gradient_norm]
    bars = axes.barh(
        [0, 1], lengths, height=0.6, color=[draw.GREY, draw.BLUE], tick_label=list(_BARS)
    )
    axes.bar_label(bars, [f"{length:.3g}" for length in lengths], padding=5, color=draw.INK)
    axes.set_xlim(0.0, 1.15 * max(lengths) or 1.0)
    axes.set_xlabel("length of the gradient")
    draw.quiet(axes, grid="x")
    return figure
