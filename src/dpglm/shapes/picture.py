"""Pictures of shapes: one panel for each term, all to one scale."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpglm._extras import require
from dpglm._validation import check_integer
from dpglm._words import plain_number
from dpglm.pictures import drawing as draw
from dpglm.pictures.text import shortened, width_of
from dpglm.shapes.shape import Shape
from dpglm.tables.additive.axes import Axis, CategoricalAxis, NumericAxis

if TYPE_CHECKING:
    from dpglm.shapes.collection import Shapes

__all__ = ["draw_shape", "draw_shapes", "reach_of", "scale_in_words"]

_MOST = 12
_MOST_LEVELS = 12
_MOST_OUTPUTS = len(draw.CYCLE)
_TITLE, _TICK = 10.5, 8.5
_PANEL, _TALL = 3.4, 2.5
_NAMES = 1.15
"""Inches for the names of levels."""
_BAND, _LINE = 0.2, 1.9
_MOST_OF_BANDS = 1.5
"""How far bands are drawn, in units of the largest effect."""
_EDGE = 1.06
"""Where the axis ends, in units of the reach."""
_TICK_GAP = 0.17
"""The least distance of ticks, as a share of the axis."""


def reach_of(shapes: Sequence[Shape]) -> float:
    """Return the largest distance from zero of what is drawn, for a scale that all share."""
    found = [np.abs(one.values).max(initial=0.0) for one in shapes]
    ends = [np.abs(one.band).max() for one in shapes if one.band is not None]
    largest = max(found, default=0.0)
    # A scale for the widest band would hide the shapes: arrows say where bands go on.
    return max(min(max(ends, default=0.0), _MOST_OF_BANDS * largest), largest) or 1.0


def draw_shapes(shapes: Shapes, most: int | None = None) -> Any:
    """Draw the largest shapes in one figure."""
    count = len(shapes)
    shown = min(count, _MOST if most is None else check_integer("most", most, least=1))
    of = f"The {shown} of largest range, of {count}. " if shown < count else ""
    edited = "Edited shapes say so. " if any(one.edit for one in shapes.shapes) else ""
    columns = min(3, shown)
    rows = math.ceil(shown / columns)
    subtitle = f"{of}{edited}{scale_in_words(shapes)} {shapes.band}"
    figure = draw.new_figure(
        max(_PANEL * columns, 5.0), _TALL * rows, "What each column does", subtitle
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    chosen = shapes.by_importance[:shown]
    reach = reach_of(chosen)
    for axes, shape in zip(grid, chosen, strict=False):
        _draw(axes, shape, reach)
    for axes in grid[shown:]:
        axes.set_visible(False)
    return figure


def draw_shape(shape: Shape, reach: float) -> Any:
    """Draw one shape as a figure of its own, to the scale of ``reach``."""
    require("matplotlib", "plot")
    from dpglm.pictures.picture import Picture

    figure = Picture(figsize=(_PANEL, _TALL), dpi=150, facecolor="none")
    upright = _upright(shape).axes[-1]
    names = isinstance(upright, CategoricalAxis)
    # Places that are the same in all panels, so that they stand in line.
    left = (_NAMES + 0.12 if names else 0.38) / _PANEL
    figure.subplots_adjust(left=left, right=0.96, top=0.89, bottom=0.17)
    _draw(figure.subplots(), shape, reach)
    return figure


def scale_in_words(shapes: Shapes) -> str:
    """Say what effects are differences of, and from what."""
    said = f"Differences of the {shapes.score} from each panel's mean over its knots or levels."
    reach = _EDGE * reach_of(shapes.shapes)
    ends = [np.abs(one.band).max() for one in shapes.shapes if one.band is not None]
    return f"{said} Arrows: the band goes on." if max(ends, default=0.0) > reach else said


def _draw(axes: Any, shape: Shape, reach: float) -> None:
    edited = " (edited)" if shape.edit else ""
    room = _PANEL - 0.3 - width_of(edited, _TITLE, bold=True)
    axes.set_facecolor("none")
    axes.set_title(
        shortened(shape.term, _TITLE, room, bold=True) + edited,
        loc="left",
        size=_TITLE,
        weight="bold",
        color=draw.INK,
        parse_math=False,
    )
    if len(shape.axes) == 2:
        _draw_map(axes, shape, reach)
    elif isinstance(shape.axes[0], NumericAxis):
        _draw_curve(axes, shape, shape.axes[0], reach)
    else:
        _draw_levels(axes, shape, reach)


def _colors(shape: Shape) -> list[tuple[int, str]]:
    """Return the outputs to draw, those of the largest range first, each with its colour."""
    flat = shape.values.reshape(len(shape.outputs), -1)
    order = np.argsort(-np.ptp(flat, axis=1), kind="stable")[:_MOST_OUTPUTS]
    return list(zip(sorted(order.tolist()), draw.CYCLE, strict=False))


def _draw_curve(axes: Any, shape: Shape, axis: NumericAxis, reach: float) -> None:
    knots = axis.knots
    x = axis.column.stretched(knots)
    axes.axhline(0.0, color=draw.GREY, linewidth=0.8)
    for output, color in _colors(shape):
        values = shape.values[output]
        label = shortened(shape.outputs[output], _TICK, 1.0)
        if shape.band is not None:
            low, high = shape.band[output, : len(x)].T
            axes.fill_between(x, low, high, color=color, alpha=_BAND, linewidth=0)
            _mark_beyond(axes, x, low, high, color, reach)
        axes.plot(x, values[: len(x)], color=color, linewidth=_LINE, label=label)
        axes.plot(x, values[: len(x)], "o", color=color, markersize=2.6)
        if len(values) > len(x):
            apart = np.array([1.12])
            if shape.band is not None:
                low, high = shape.band[output, -1:].T
                axes.vlines(apart, low, high, color=color)
                _mark_beyond(axes, apart, low, high, color, reach)
            axes.plot(apart, values[-1:], "D", color=color, markersize=4)
    ticks, labels = _ticks(axis)
    if len(shape.points[0]) > len(x):
        ticks, labels = [*ticks, 1.12], [*labels, "missing"]
        axes.axvline(1.06, color=draw.LIGHT, linewidth=0.8)
    axes.set_xticks(ticks, labels)
    axes.set_ylim(-_EDGE * reach, _EDGE * reach)
    draw.quiet(axes)
    axes.tick_params(labelsize=_TICK)
    axes.margins(x=0.02)
    if len(shape.outputs) > 1:
        axes.legend(frameon=False, fontsize=7.5, labelcolor=draw.INK, handlelength=1.0)


def _draw_levels(axes: Any, shape: Shape, reach: float) -> None:
    values = shape.values
    largest = np.argsort(-np.abs(values).max(axis=0), kind="stable")[:_MOST_LEVELS]
    # On top the largest, or of ordered levels the first.
    by = values[0] if shape.axes[0].line is None else -np.arange(values.shape[1])
    order = largest[np.argsort(by[largest], kind="stable")]
    rows = np.arange(len(order), dtype=np.float64)
    colors = _colors(shape)
    height = 0.72 / len(colors)
    axes.axvline(0.0, color=draw.GREY, linewidth=0.8)
    for place, (output, color) in enumerate(colors):
        at = rows + (place - 0.5 * (len(colors) - 1)) * height
        axes.barh(at, values[output, order], height=height, color=color, alpha=0.75)
        if shape.band is not None:
            low, high = shape.band[output, order].T
            axes.hlines(at, low, high, color=draw.INK, linewidth=0.9)
            _mark_beyond(axes, at, low, high, draw.INK, reach, upright=False)
    names = [_level(shape.points[0][one]) for one in order]
    axes.set_yticks(rows, names, parse_math=False)
    axes.set_xlim(-_EDGE * reach, _EDGE * reach)
    middle, span = 0.5 * (len(order) - 1), max(len(order), 4)
    axes.set_ylim(middle - 0.5 * span, middle + 0.5 * span)
    draw.quiet(axes, grid="x")
    axes.tick_params(labelsize=_TICK if len(order) < 10 else 7.5)
    if len(order) < values.shape[1]:
        axes.set_xlabel(f"{len(order)} of {values.shape[1]} levels", size=7.5, color=draw.GREY)


def _draw_map(axes: Any, shape: Shape, reach: float) -> None:
    colors = require("matplotlib.colors", "plot")
    diverging = colors.LinearSegmentedColormap.from_list(
        "effect", [draw.ORANGE, "#FFFFFF", draw.BLUE]
    )
    shape = _upright(shape)
    first, second = shape.axes
    # The output of the largest range: a map has room for one.
    output = int(np.argmax(np.ptp(shape.values.reshape(len(shape.outputs), -1), axis=1)))
    values = shape.values[output]
    x, y = _places(first), _places(second)
    values = values[: len(x), : len(y)]
    smooth = isinstance(first, NumericAxis) and isinstance(second, NumericAxis)
    drawn = axes.pcolormesh(
        x,
        y,
        values.T,
        cmap=diverging,
        vmin=-reach,
        vmax=reach,
        shading="gouraud" if smooth else "nearest",
        rasterized=True,
    )
    note = f"for {shape.outputs[output]}" if len(shape.outputs) > 1 else ""
    if shape.band is not None:
        low, high = np.moveaxis(shape.band[output, : len(x), : len(y)], -1, 0)
        i, j = np.nonzero((low <= 0.0) & (high >= 0.0))
        axes.plot(x[i], y[j], ".", color=draw.GREY, markersize=2.0)
        note = "dots: the band holds zero"
    for axis, ticks in ((first, axes.set_xticks), (second, axes.set_yticks)):
        ticks(*_ticks(axis), parse_math=False)
    draw.quiet(axes)
    axes.grid(visible=False)
    axes.tick_params(labelsize=_TICK if len(first.labels) < 5 else 7.0)
    axes.set_xlabel(note, size=7.5, color=draw.GREY, parse_math=False)
    bar = axes.figure.colorbar(drawn, ax=axes, fraction=0.06, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, length=0, labelcolor=draw.INK)


def _upright(shape: Shape) -> Shape:
    """Return a map whose axis with the more levels is upright, where names have room."""
    if len(shape.axes) == 1:
        return shape
    first, second = (
        0 if isinstance(axis, NumericAxis) else len(axis.labels) for axis in shape.axes
    )
    if first <= second:
        return shape
    band = None if shape.band is None else shape.band.transpose(0, 2, 1, 3)
    return dataclasses.replace(
        shape, axes=shape.axes[::-1], values=shape.values.transpose(0, 2, 1), band=band
    )


def _mark_beyond(
    axes: Any,
    at: NDArray[np.float64],
    low: NDArray[np.float64],
    high: NDArray[np.float64],
    color: str,
    reach: float,
    *,
    upright: bool = True,
) -> None:
    """Put an arrow at the edge of the panel wherever a band goes on beyond it."""
    edge = _EDGE * reach
    for beyond, place, arrow in (
        (high > edge, edge, "^" if upright else ">"),
        (low < -edge, -edge, "v" if upright else "<"),
    ):
        edges = np.full(int(beyond.sum()), place)
        pair = (at[beyond], edges) if upright else (edges, at[beyond])
        axes.plot(*pair, arrow, color=color, markersize=3.5, clip_on=False, zorder=3)


def _places(axis: Axis) -> NDArray[np.float64]:
    if isinstance(axis, NumericAxis):
        return axis.column.stretched(axis.knots)
    return np.arange(len(axis.labels), dtype=np.float64)


def _ticks(axis: Axis) -> tuple[list[float], list[str]]:
    """Return where to put which labels: round numbers of the column, or levels."""
    if not isinstance(axis, NumericAxis):
        names = [_level(cell) for cell in axis.grid(0).tolist()]
        return list(range(len(names))), names
    column = axis.column
    numbers = _round_numbers(column.low, column.high, column.scale == "log")
    places = column.stretched(np.array(numbers)).tolist()
    kept: list[tuple[float, str]] = []
    for place, number in zip(places, numbers, strict=True):
        if all(abs(place - other) > _TICK_GAP for other, _ in kept):
            kept.append((place, _short(number)))
    return [place for place, _ in kept], [text for _, text in kept]


def _round_numbers(low: float, high: float, spread_out: bool) -> list[float]:
    """Return candidates for ticks, those to keep first."""
    ticker = require("matplotlib.ticker", "plot")
    if not spread_out:
        found = ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(one) for one in found if low <= one <= high]
    largest = math.floor(math.log10(high - low))
    powers = [low + 10.0**power for power in range(largest, largest - 4, -1)]
    return [low, high, *powers, *(low + 5.0 * (one - low) for one in powers if one < high / 5.0)]


def _short(number: float) -> str:
    if abs(number) >= 1000.0 and number % 100.0 == 0.0:
        thousands = number / 1000.0
        return f"{thousands / 1000.0:g}M" if abs(thousands) >= 1000.0 else f"{thousands:g}k"
    return plain_number(number)


def _level(cell: Any) -> str:
    return shortened("missing" if cell in (None, "") else str(cell), _TICK, _NAMES)
