"""Plots of private fits as Matplotlib figures (extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpglm import pictures as draw
from dpglm._calls import checked
from dpglm._registry import require
from dpglm._validation import check_integer
from dpglm._words import plain_number
from dpglm.guidance import CoefficientTable
from dpglm.pictures import shortened, width_of
from dpglm.report.page import TARGET, coefficient_table
from dpglm.solvers.base import StepInfo
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.schema import Schema

__all__ = ["coefficients", "training_history"]

_MOST_PANELS = 12
_WIDTH = 7.2
_SHARE_OF_NAMES = 0.4
_MOST_OF_BARS = 2.5
"""End of the axis, in units of the largest coefficient."""
_TICK, _PANEL_TITLE, _AXIS = 9.0, 10.5, 10.5


@checked
def coefficients(
    estimator: Any,
    feature_names: Sequence[str] | None = None,
    most: int | None = None,
    *,
    schema: Schema | None = None,
    exponentiate: bool | None = None,
) -> Any:
    """Draw the largest coefficients, with confidence intervals if the fit has them.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, or pipeline that ends with one
        A PrivatePipeline, a private search, or a Pipeline of scikit-learn.
    feature_names : sequence of str, optional
        Names of the effects; by default those of the pipeline or of the fit.
    most : int, optional
        Number of features for each output, at least 1; by default 20 for one output and 8 for
        several. At most 12 outputs are drawn.
    schema : Schema, optional
        Schema that encoded the table of the fit, so that effects are drawn in the units of the
        table; by default that of the pipeline, or of the certificate.
    exponentiate : bool, optional
        Whether to draw odds ratios or rate ratios; by default if the fit has intervals, and the
        link has such ratios.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If names do not match the features, ``most`` is invalid, or the fit does not have ratios.

    Notes
    -----
    Coefficients are per unit of the columns. If the range of a column is declared, its coefficient
    is drawn per 1, 10, 100, ... units, the largest such step within half of the range, so that
    columns with different units are comparable. The step follows the name.

    With intervals, terms are in the order of the variance that they explain given the others, and
    spline coefficients are left out: ``plot_shapes`` draws them.

    Privacy: everything drawn is released or public.
    """
    table = coefficient_table(estimator, feature_names, schema)
    ratios = table.ratio is not None
    if exponentiate and not ratios:
        raise ValueError("exponentiate requires a fit with inference and a link with ratios")
    return draw_table(table, most, exponentiate=exponentiate is not False)


def draw_table(
    table: CoefficientTable,
    most: int | None = None,
    width: float = _WIDTH,
    *,
    exponentiate: bool = True,
) -> Any:
    """Draw a table of coefficients, as ratios if it has them; ``width`` is in inches."""
    ratio = table.ratio if exponentiate else None
    n_outputs = min(len(table.outputs), _MOST_PANELS)
    most = (20 if n_outputs == 1 else 8) if most is None else check_integer("most", most, least=1)
    known = len(table.features) - table.unknown - table.in_curves
    shown = min(most, known)
    n_columns = min(2 if width >= _WIDTH else 1, n_outputs)
    n_rows = math.ceil(n_outputs / n_columns)
    of = f"The {shown} largest of {known}. " if shown < known else ""
    subtitle = (
        f"{of}Confidence intervals were not requested."
        if table.inference is None
        else f"{of}Bars: 95 % confidence intervals with sampling error and privacy noise.\n"
        f"Hollow: the interval contains {'zero' if ratio is None else 'one'}."
    )
    if table.in_curves:
        subtitle += f" {table.in_curves} of splines are shown as curves only."
    if table.unknown:
        subtitle += f" {table.unknown} with the interval of their prior are not shown."
    figure = draw.new_figure(
        width,
        0.7 + n_rows * (0.45 + 0.235 * shown),
        "Estimated coefficients" if ratio is None else f"Estimated {ratio}s",
        subtitle,
    )
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=n_outputs > 1).ravel()
    panel = width / n_columns - 0.4
    for output, axes in enumerate(grid[:n_outputs]):
        _draw_coefficients(axes, table, output, shown, _SHARE_OF_NAMES * panel)
        if ratio is not None:
            draw.ratios_of_logarithms(axes)
        axes.tick_params(labelbottom=output + n_columns >= n_outputs)
        if n_outputs > 1:
            lead = "class "
            room = (1.0 - _SHARE_OF_NAMES) * panel - width_of(lead, _PANEL_TITLE, bold=True)
            name = lead + shortened(table.outputs[output], _PANEL_TITLE, room, bold=True)
            axes.set_title(
                name, loc="left", size=_PANEL_TITLE, weight="bold", color=draw.INK, parse_math=False
            )
    for axes in grid[n_outputs:]:
        axes.set_visible(False)
    # One label for all panels: each panel is too narrow for its own.
    unit = ratio or "coefficient"
    if n_outputs == 1 and table.outputs != (TARGET,):
        room = 0.9 * width - width_of(f"{unit} (right: towards '')", _AXIS)
        unit += f" (right: towards '{shortened(table.outputs[0], _AXIS, room)}')"
    figure.supxlabel(unit, size=_AXIS, color=draw.INK, parse_math=False)
    return figure


def _draw_coefficients(
    axes: Any, table: CoefficientTable, output: int, most: int, room: float
) -> None:
    """Draw the largest coefficients of an output, with ``room`` inches for names."""
    which = table.largest(output, most)[::-1]
    steps = table.steps[which]
    values = table.values[output][which] * steps
    low, high = steps * table.intervals()[which].T
    open_ = (low <= 0.0) & (high >= 0.0)
    if table.inference is not None and len(which):
        # Long intervals are cut off at the frame.
        reach = _MOST_OF_BARS * float(np.abs(values).max())
        left, right = max(min(low.min(), 0.0), -reach), min(max(high.max(), 0.0), reach)
        axes.set_xlim(left - 0.04 * (right - left), right + 0.04 * (right - left))
    rows = np.arange(len(which))
    axes.axvline(0.0, color=draw.GREY, linewidth=1.0)
    for chosen, color, fill in ((~open_, draw.BLUE, draw.BLUE), (open_, draw.GREY, "white")):
        bars = np.stack([values - low, high - values])[:, chosen]
        axes.errorbar(
            values[chosen],
            rows[chosen],
            xerr=None if table.inference is None else bars,
            fmt="o",
            markersize=6,
            color=color,
            markerfacecolor=fill,
            elinewidth=2.6,
            ecolor=(color, 0.35),
        )
    names = []
    for column, step in zip(which, steps, strict=True):
        per = "" if step == 1.0 else f", per {step:g}"
        names.append(shortened(table.features[column], _TICK, room - width_of(per, _TICK)) + per)
    axes.set_yticks(rows, names, parse_math=False)
    axes.set_ylim(-0.7, len(which) - 0.3)
    draw.quiet(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(labelsize=_TICK)


_WIDE_RANGE = 8.0
_FEW = 60
# Least width, in inches, for two labels next to each other.
_BOTH = 5.0
_BARS = ("noise only (expected)", "this run, with noise")
_TITLE = "Noisy gradients"


@checked
def training_history(solution: Solution, *, width: float = 7.2) -> Any:
    """Draw the norm of the noisy gradient in each step, compared with noise alone.

    Parameters
    ----------
    solution : Solution
        ``solution_`` of a fitted estimator.
    width : float, default=7.2
        Width of the picture in inches.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If no gradient was released, as with solvers that release the last iterate only.

    Notes
    -----
    Privacy: everything drawn was released by the fit.
    """
    history = [info for info in solution.history if math.isfinite(info.gradient_norm)]
    if not history:
        raise ValueError(
            "solution must have a history, got an empty one: this fit did not release gradients"
        )
    return _one_step(history[0], width) if len(history) == 1 else _several_steps(history, width)


def _several_steps(history: Sequence[StepInfo], width: float) -> Any:
    steps = [info.step for info in history]
    norms = [info.gradient_norm for info in history]
    floors = [info.noise_norm for info in history]
    figure = draw.new_figure(
        width, 4.4, _TITLE, "Steps follow the data as long as the norm exceeds that of noise alone."
    )
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3.0, 1.0])
    few = len(steps) <= _FEW
    marker = "o" if few else None
    upper.plot(
        steps, norms, color=draw.BLUE, linewidth=1.6, marker=marker, markersize=4, label=_BARS[1]
    )
    upper.plot(steps, floors, color=draw.INK, linewidth=1.4, dashes=(6, 3), label=_BARS[0])
    least, most = min(*norms, *floors), max(*norms, *floors)
    if 0.0 < least * _WIDE_RANGE < most:
        draw.log_scale(upper)
    else:
        upper.set_ylim(0.0, 1.15 * most)
    upper.set_ylabel("norm of the gradient")
    # Above the axes, as curves may be anywhere within them.
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
    ticker = require("matplotlib.ticker", "plot")
    lower.xaxis.set_major_locator(ticker.MaxNLocator(nbins=9, integer=True, min_n_ticks=1))
    figure.align_ylabels([upper, lower])
    return figure


def _one_step(info: StepInfo, width: float) -> Any:
    """Draw the norms of a single step as bars."""
    if info.noise_norm > 0.0:
        ratio = plain_number(float(f"{info.gradient_norm / info.noise_norm:.2g}"), 2)
        subtitle = f"One step: the norm of its noisy gradient is {ratio} times that of noise alone."
    else:
        subtitle = "One step, without noise."
    figure = draw.new_figure(width, 1.6, _TITLE, subtitle)
    axes = figure.subplots()
    lengths = [info.noise_norm, info.gradient_norm]
    bars = axes.barh(
        [0, 1], lengths, height=0.6, color=[draw.GREY, draw.BLUE], tick_label=list(_BARS)
    )
    axes.bar_label(bars, [f"{length:.3g}" for length in lengths], padding=5, color=draw.INK)
    axes.set_xlim(0.0, 1.15 * max(lengths) or 1.0)
    axes.set_xlabel("norm of the gradient")
    draw.quiet(axes, grid="x")
    return figure
