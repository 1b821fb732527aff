"""The picture of what a model learned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpglm._validation import check_integer
from dpglm._words import plain_number
from dpglm.guidance.coefficients import CoefficientTable
from dpglm.pictures import drawing as draw
from dpglm.pictures.drawing import shortened, width_of
from dpglm.report.subject import TARGET, coefficient_table
from dpglm.solvers.base import Solution, StepInfo
from dpglm.tables.schema import Schema

_MOST_PANELS = 12
_WIDTH = 7.2
_SHARE_OF_NAMES = 0.4
_TICK, _PANEL_TITLE, _AXIS = 9.0, 10.5, 10.5


def coefficients(
    estimator: Any,
    feature_names: Sequence[str] | None = None,
    most: int | None = None,
    *,
    schema: Schema | None = None,
) -> Any:
    """Draw the largest coefficients, with confidence intervals where the fit has any.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, or pipeline that ends with one
        A PrivatePipeline, a private search, or a Pipeline of scikit-learn.
    feature_names : sequence of str, optional
        Default: the names the pipeline makes or the estimator saw.
    most : int, optional
        How many features are drawn for each output, at least 1; by default 20 for one output
        and 8 for several. Of more than 12 outputs the first 12 are drawn.
    schema : Schema, optional
        What encoded the table that the estimator was fitted to, so that effects are drawn in the
        table's units; by default that of the pipeline, or of the certificate.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If names or ``most`` do not fit.

    Notes
    -----
    Coefficients are per unit of the user's columns. Where a column's range is declared, its
    coefficient is drawn for a step of 1, 10, 100, ... such units, the largest within half of the
    range, so that columns of different units can be compared; the step stands beside its name.

    Privacy: everything drawn is released or public.
    """
    return draw_table(coefficient_table(estimator, feature_names, schema), most)


def draw_table(table: CoefficientTable, most: int | None = None, width: float = _WIDTH) -> Any:
    """Draw the picture of ``coefficients`` for a table of them, so many inches wide."""
    n_outputs = min(len(table.outputs), _MOST_PANELS)
    most = (20 if n_outputs == 1 else 8) if most is None else check_integer("most", most, least=1)
    known = len(table.features) - table.unknown
    shown = min(most, known)
    n_columns = min(2 if width >= _WIDTH else 1, n_outputs)
    n_rows = math.ceil(n_outputs / n_columns)
    surely = "" if table.inference is None else " surely"
    of = f"The {shown}{surely} largest of {known}. " if shown < known else ""
    subtitle = (
        f"{of}No confidence intervals were asked for."
        if table.inference is None
        else f"{of}Bars: 95 % confidence intervals, of sampling and privacy noise together.\n"
        "Hollow: the interval contains zero."
    )
    if table.unknown:
        subtitle += f" Left out: {table.unknown} of which nothing is known."
    figure = draw.new_figure(
        width, 0.7 + n_rows * (0.45 + 0.235 * shown), "What the model learned", subtitle
    )
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharex=n_outputs > 1).ravel()
    panel = width / n_columns - 0.4
    for output, axes in enumerate(grid[:n_outputs]):
        _draw_coefficients(axes, table, output, shown, _SHARE_OF_NAMES * panel)
        axes.tick_params(labelbottom=output + n_columns >= n_outputs)
        if n_outputs > 1:
            lead = "class "
            room = (1.0 - _SHARE_OF_NAMES) * panel - width_of(lead, _PANEL_TITLE, bold=True)
            name = lead + shortened(table.outputs[output], _PANEL_TITLE, room, bold=True)
            axes.set_title(
                name,
                loc="left",
                size=_PANEL_TITLE,
                weight="bold",
                color=draw.INK,
                parse_math=False,
            )
    for axes in grid[n_outputs:]:
        axes.set_visible(False)
    # One label for all panels, which would have no room for one each.
    figure.supxlabel(_unit(table, width), size=_AXIS, color=draw.INK, parse_math=False)
    return figure


def _unit(table: CoefficientTable, width: float) -> str:
    unit = "coefficient"
    if len(table.outputs) > 1 or table.outputs == (TARGET,):
        return unit
    room = 0.9 * width - width_of(f"{unit} (right: towards '')", _AXIS)
    return f"{unit} (right: towards '{shortened(table.outputs[0], _AXIS, room)}')"


def _named(feature: str, step: float, room: float) -> str:
    """Name a feature within some inches, with the step that its coefficient is drawn for."""
    per = "" if step == 1.0 else f", per {step:g}"
    return shortened(feature, _TICK, room - width_of(per, _TICK)) + per


def _draw_coefficients(
    axes: Any, table: CoefficientTable, output: int, most: int, room: float
) -> None:
    """Draw an output's largest coefficients, with ``room`` inches for the names of features."""
    which = table.largest(output, most)[::-1]
    steps = table.steps[which]
    values = table.values[output][which] * steps
    low, high = steps * table.intervals()[which].T
    open_ = (low <= 0.0) & (high >= 0.0)
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
    names = [
        _named(table.features[column], step, room)
        for column, step in zip(which, steps, strict=True)
    ]
    axes.set_yticks(rows, names, parse_math=False)
    axes.set_ylim(-0.7, len(which) - 0.3)
    draw.quiet(axes, grid="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(labelsize=_TICK)


# The picture of a run's steps.

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
