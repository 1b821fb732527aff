"""Pictures of shapes: one panel for each term, on its own scale or on a common one."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm import pictures as draw
from dpglm._registry import require
from dpglm._validation import Array, check_bool, check_integer
from dpglm._words import plain_number
from dpglm.pictures import shortened, told_apart, width_of
from dpglm.shapes.shape import Shape
from dpglm.tables.additive_terms import Axis, CategoricalAxis, NumericAxis

if TYPE_CHECKING:
    from dpglm.shapes.collection import Shapes

_Ticks: TypeAlias = tuple[list[float], list[str]]
"""Positions and labels."""
_MOST = 12
_MOST_LEVELS = 12
_MOST_OUTPUTS = len(draw.CYCLE)
_MOST_DOTS = 40
_TITLE, _TICK = 10.5, 8.5
_PANEL, _TALL = 3.4, 2.5
_NAMES = 1.15
"""Inches for the names of levels."""
_BAND, _LINE = 0.2, 1.9
_MOST_OF_BANDS = 1.5
"""Largest drawn end of a band, in units of the largest effect."""
_EDGE = 1.06
"""End of the axis, in units of the scale."""
_ENDLESS = 1e3
"""Drawn end of an infinite band, in units of the scale."""
_LEGEND = 0.3
"""Inches below axes for a legend."""
_ACROSS, _TICK_GAP = 2.3, 0.1
"""Inches along an axis, and the least gap between its labels."""
_GAP, _MISSING = 1.06, 1.12
"""Position of the line before missing values, and of these, on an axis from 0 to 1."""


def reaches_of(shapes: Sequence[Shape], *, common: bool) -> dict[str, float]:
    """Return the scale of each term, or the same one for all of them."""
    return {one.term: reach_of(shapes if common else [one]) for one in shapes}


def reach_of(shapes: Sequence[Shape]) -> float:
    """Return the common scale of shapes, which holds all values and half of the bands."""
    largest = float(max((np.abs(one.values).max(initial=0.0) for one in shapes), default=0.0))
    ends = [np.abs(one.band).max(axis=-1).ravel() for one in shapes if one.band is not None]
    every = np.concatenate([[largest], *ends])
    # Wide bands are cut off, and marked by arrows.
    half = np.quantile(every, 0.5, method="lower")
    most = max(_MOST_OF_BANDS * largest, float(half) if math.isfinite(half) else 0.0)
    return min(every.max(), most) or 1.0


def draw_shapes(shapes: Shapes, most: int | None = None, *, common_scale: bool = False) -> Any:
    """Draw the largest shapes in one figure."""
    check_bool("common_scale", common_scale)
    count = len(shapes)
    shown = min(count, _MOST if most is None else check_integer("most", most, least=1))
    of = f"The {shown} largest of {count}. " if shown < count else ""
    edited = "Edited shapes are marked. " if any(one.edit for one in shapes.shapes) else ""
    columns = min(3, shown)
    rows = math.ceil(shown / columns)
    subtitle = f"{of}{edited}{scale_in_words(shapes, common=common_scale)} {shapes.band}"
    figure = draw.new_figure(
        max(_PANEL * columns, 5.0), _TALL * rows, "Effect of each column", subtitle
    )
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    chosen = shapes.by_importance[:shown]
    reaches, colors = reaches_of(chosen, common=common_scale), _colors(chosen)
    for axes, shape in zip(grid, chosen, strict=False):
        _draw(axes, shape, reaches[shape.term], colors)
    for axes in grid[shown:]:
        axes.set_visible(False)
    _legend(figure, chosen[0], colors, loc="outside lower left")
    return figure


def draw_shape(shape: Shape, reach: float) -> Any:
    """Draw one shape as a separate figure with the scale ``reach``."""
    require("matplotlib", "plot")
    from dpglm.pictures import Picture

    below = 0.0 if len(shape.outputs) == 1 else _LEGEND
    tall = _TALL + below
    figure = Picture(figsize=(_PANEL, tall), dpi=150, facecolor="none")
    # The same margins for all panels, so that they align.
    top, bottom = 1.0 - 0.27 / tall, (0.5 + below) / tall
    figure.subplots_adjust(left=_left_of(shape) / _PANEL, right=0.96, top=top, bottom=bottom)
    colors = _colors([shape])
    _draw(figure.subplots(), shape, reach, colors)
    _legend(figure, shape, colors, loc="lower left")
    return figure


def scale_in_words(shapes: Shapes, *, common: bool) -> str:
    """Describe the scale of the effects."""
    over = "rows" if shapes.are_of_rows else "its knots or levels"
    said = f"Differences of the {shapes.score} from each panel's mean over {over}"
    said += ", on a common scale." if common else "; each panel has its own scale."
    reaches = reaches_of(shapes.shapes, common=common)
    cut = (
        np.abs(one.band).max() > _EDGE * reaches[one.term]
        for one in shapes.shapes
        if one.band is not None
    )
    return f"{said} Arrows: the band continues." if any(cut) else said


def _left_of(shape: Shape) -> float:
    """Return the left margin in inches, for names of levels or for numbers."""
    upright = _upright(shape).axes[-1]
    is_map = len(shape.axes) == 2
    return (_NAMES + 0.12 if isinstance(upright, CategoricalAxis) else 0.38) + 0.16 * is_map


def _draw(axes: Any, shape: Shape, reach: float, colors: Mapping[int, str]) -> None:
    edited = " (edited)" if shape.edit else ""
    room = _PANEL - _left_of(shape) - 0.25 - width_of(edited, _TITLE, bold=True)
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
        _draw_map(axes, shape)
    elif isinstance(shape.axes[0], NumericAxis):
        _draw_curve(axes, shape, shape.axes[0], reach, colors)
    else:
        _draw_levels(axes, shape, reach, colors)


def _colors(shapes: Sequence[Shape]) -> Mapping[int, str]:
    """Return colours of the outputs with the largest ranges."""
    ranges = [np.ptp(one.values.reshape(len(one.outputs), -1), axis=1) for one in shapes]
    order = np.argsort(-np.max(ranges, axis=0), kind="stable")[:_MOST_OUTPUTS]
    return dict(zip(sorted(order.tolist()), draw.CYCLE, strict=False))


def _legend(figure: Any, shape: Shape, colors: Mapping[int, str], loc: str) -> None:
    """Draw the legend of outputs below all axes."""
    if len(shape.outputs) == 1:
        return
    patches = require("matplotlib.patches", "plot")
    names = told_apart([shape.outputs[one] for one in colors], 7.5, 1.0)
    handles = [
        patches.Patch(color=color, label=name)
        for color, name in zip(colors.values(), names, strict=True)
    ]
    figure.legend(
        handles=handles,
        loc=loc,
        ncols=len(handles) if figure.get_size_inches()[0] > _PANEL else 3,
        frameon=False,
        fontsize=7.5,
        labelcolor=draw.INK,
        handlelength=1.0,
        handleheight=0.6,
    )


def _draw_curve(
    axes: Any, shape: Shape, axis: NumericAxis, reach: float, colors: Mapping[int, str]
) -> None:
    x = axis.line
    axes.axhline(0.0, color=draw.GREY, linewidth=0.8)
    for output, color in colors.items():
        values = shape.values[output]
        if shape.band is not None:
            low, high = _ends(axes, x, shape.band[output, : len(x)], color, reach)
            axes.fill_between(x, low, high, color=color, alpha=_BAND, linewidth=0)
        axes.plot(x, values[: len(x)], color=color, linewidth=_LINE)
        if len(x) <= _MOST_DOTS:
            axes.plot(x, values[: len(x)], "o", color=color, markersize=2.6)
        if len(values) > len(x):
            apart = np.array([_MISSING])
            if shape.band is not None:
                low, high = _ends(axes, apart, shape.band[output, -1:], color, reach)
                axes.vlines(apart, low, high, color=color)
            axes.plot(apart, values[-1:], "D", color=color, markersize=4)
    if len(shape.points[0]) > len(x):
        axes.axvline(_GAP, color=draw.LIGHT, linewidth=0.8)
    axes.set_xticks(*_number_ticks(axis))
    axes.set_ylim(-_EDGE * reach, _EDGE * reach)
    draw.quiet(axes)
    axes.tick_params(labelsize=_TICK)
    axes.margins(x=0.02)
    axes.set_xlabel(axis.column.unit or "", size=7.5, color=draw.GREY, parse_math=False)


def _draw_levels(axes: Any, shape: Shape, reach: float, colors: Mapping[int, str]) -> None:
    values = shape.values
    # Levels with most rows; of equally many, those with the largest effects.
    usual = np.lexsort((-np.abs(values).max(axis=0), -shape.weights))[:_MOST_LEVELS]
    # The largest level is on top, or the first of ordered levels.
    by = values[0] if shape.axes[0].line is None else -np.arange(values.shape[1])
    order = usual[np.argsort(by[usual], kind="stable")]
    rows = np.arange(len(order), dtype=np.float64)
    height = 0.72 / len(colors)
    axes.axvline(0.0, color=draw.GREY, linewidth=0.8)
    for place, (output, color) in enumerate(colors.items()):
        at = rows + (place - 0.5 * (len(colors) - 1)) * height
        axes.barh(at, values[output, order], height=height, color=color, alpha=0.75)
        if shape.band is not None:
            band = shape.band[output, order]
            low, high = _ends(axes, at, band, draw.INK, reach, upright=False)
            axes.hlines(at, low, high, color=draw.INK, linewidth=0.9)
    names = _levels([shape.points[0][one] for one in order])
    axes.set_yticks(rows, names, parse_math=False)
    axes.set_xlim(-_EDGE * reach, _EDGE * reach)
    middle, span = 0.5 * (len(order) - 1), max(len(order), 4)
    axes.set_ylim(middle - 0.5 * span, middle + 0.5 * span)
    draw.quiet(axes, grid="x")
    axes.tick_params(labelsize=_TICK if len(order) < 10 else 7.5)
    if len(order) < values.shape[1]:
        kind = "largest" if np.ptp(shape.weights) == 0.0 else "most frequent"
        words = f"the {len(order)} {kind} of {values.shape[1]} levels"
        axes.set_xlabel(words, size=7.5, color=draw.GREY)


def _draw_map(axes: Any, shape: Shape) -> None:
    colors = require("matplotlib.colors", "plot")
    diverging = colors.LinearSegmentedColormap.from_list(
        "effect", [draw.ORANGE, "#FFFFFF", draw.BLUE]
    )
    shape = _upright(shape)
    first, second = shape.axes
    # A map shows the output with the largest range.
    output = int(np.argmax(np.ptp(shape.values.reshape(len(shape.outputs), -1), axis=1)))
    values = shape.values[output]
    sides = [_side(values, shape.weights, axis, i) for i, axis in enumerate(shape.axes)]
    chosen = np.ix_(*(shown for shown, *_ in sides))
    values, (_, x, x_ticks), (_, y, y_ticks) = values[chosen], *sides
    smooth = isinstance(first, NumericAxis) and isinstance(second, NumericAxis)
    # Maps have their own scale: interactions are often much smaller than main effects.
    reach = float(np.abs(values).max(initial=0.0)) or 1.0
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
    notes = [f"for {shape.outputs[output]}"] if len(shape.outputs) > 1 else []
    if shape.band is not None:
        low, high = np.moveaxis(shape.band[output][chosen], -1, 0)
        i, j = np.nonzero((low <= 0.0) & (high >= 0.0))
        axes.plot(x[i], y[j], ".", color=draw.GREY, markersize=2.0)
        notes.append("dots: the band contains zero")
    axes.set_xticks(*x_ticks, parse_math=False)
    axes.set_yticks(*y_ticks, parse_math=False)
    draw.quiet(axes)
    axes.grid(visible=False)
    axes.tick_params(labelsize=_TICK if len(y) < 9 else 7.0)
    if isinstance(first, CategoricalAxis):
        steep = sum(width_of(one.get_text(), _TICK) for one in axes.get_xticklabels()) > _ACROSS
        axes.tick_params(axis="x", labelsize=7.0, labelrotation=90 if steep else 0)
    words = [_named(first, 2.0), *(f"({one})" for one in notes)]
    axes.set_xlabel("  ".join(words), size=7.5, color=draw.GREY, parse_math=False)
    axes.set_ylabel(_named(second, 1.8), size=7.5, color=draw.GREY, parse_math=False)
    bar = axes.figure.colorbar(drawn, ax=axes, fraction=0.06, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, length=0, labelcolor=draw.INK)


def _named(axis: Axis, most: float) -> str:
    """Return the column's name and unit."""
    unit = axis.column.unit if isinstance(axis, NumericAxis) else None
    return shortened(axis.name if unit is None else f"{axis.name} ({unit})", 7.5, most)


def _side(
    values: Array, weights: Array, axis: Axis, place: int
) -> tuple[NDArray[np.intp], Array, _Ticks]:
    """Return the knots, or the usual levels, to show on a map, their places, and the ticks."""
    if isinstance(axis, NumericAxis):
        return np.arange(len(axis.knots)), axis.line, _number_ticks(axis, missing=False)
    largest, shares = np.abs(values).max(axis=1 - place), weights.sum(axis=1 - place)
    shown = np.sort(np.lexsort((-largest, -shares))[:_MOST_LEVELS])
    places, cells = np.arange(len(shown), dtype=np.float64), axis.grid(0).tolist()
    return shown, places, (places.tolist(), _levels([cells[one] for one in shown]))


def _upright(shape: Shape) -> Shape:
    """Put the axis with more levels upright, where names fit."""
    if len(shape.axes) == 1:
        return shape
    first, second = (
        0 if isinstance(axis, NumericAxis) else len(axis.labels) for axis in shape.axes
    )
    if first <= second:
        return shape
    band = None if shape.band is None else shape.band.transpose(0, 2, 1, 3)
    return dataclasses.replace(
        shape,
        axes=shape.axes[::-1],
        values=shape.values.transpose(0, 2, 1),
        weights=shape.weights.T,
        band=band,
    )


def _ends(
    axes: Any, at: Array, band: Array, color: str, reach: float, *, upright: bool = True
) -> Array:
    """Return finite ends of a band; put an arrow at the edge wherever it continues beyond."""
    low, high = ends = np.clip(band, -_ENDLESS * reach, _ENDLESS * reach).T
    edge = _EDGE * reach
    for beyond, place, arrow in (
        (high > edge, edge, "^" if upright else ">"),
        (low < -edge, -edge, "v" if upright else "<"),
    ):
        # Empty markers would take part in the layout.
        if beyond.any():
            edges = np.full(int(beyond.sum()), place)
            pair = (at[beyond], edges) if upright else (edges, at[beyond])
            axes.plot(*pair, arrow, color=color, markersize=3.5, clip_on=False, zorder=3)
    return np.asarray(ends)


def _number_ticks(axis: NumericAxis, *, missing: bool = True) -> _Ticks:
    """Return positions and labels of round numbers that do not overlap."""
    column, kept = axis.column, list[tuple[float, str]]()
    if missing and column.missing is not None:
        kept.append((_MISSING, "missing"))
    across = _ACROSS / (_MISSING if kept else 1.0)
    numbers = _round_numbers(column.low, column.high, column.scale == "log")
    places = column.stretched(np.array(numbers)).tolist()
    for place, text in zip(places, _short(numbers), strict=True):
        own = width_of(text, _TICK)
        if all(
            abs(place - other) * across > 0.5 * (own + width_of(words, _TICK)) + _TICK_GAP
            for other, words in kept
        ):
            kept.append((place, text))
    return [place for place, _ in kept], [text for _, text in kept]


def _round_numbers(low: float, high: float, spread_out: bool) -> list[float]:
    """Return candidates for ticks by priority."""
    if not spread_out or low < 0.0:
        ticker = require("matplotlib.ticker", "plot")
        found = ticker.MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
        return [float(one) for one in found if low <= one <= high]
    largest = math.floor(math.log10(high))
    least = math.floor(math.log10(low)) if low > 0.0 else largest - 3
    powers = [10.0**power for power in range(least, largest + 1)]
    # A few decades first, then all, then numbers between them.
    step = math.ceil(len(powers) / 4)
    wanted = [*powers[::-1][::step], *powers, *(k * one for k in (5.0, 2.0) for one in powers)]
    zero = [0.0] if low == 0.0 else []
    return list(dict.fromkeys([*zero, *(one for one in wanted if low <= one <= high)])) or [low]


def _short(numbers: Sequence[float]) -> list[str]:
    """Format numbers with a common unit (thousands or millions) and true minus signs."""
    least = min((abs(one) for one in numbers if one), default=1.0)
    largest = max(map(abs, numbers), default=1.0)
    # The year 2000 is not written as 2k.
    fits = [
        (unit, letter)
        for unit, letter in ((1e6, "M"), (1e3, "k"), (1.0, ""))
        if unit == 1.0 or (least >= 0.1 * unit and largest >= 10.0 * min(unit, 1e5))
    ]
    unit, letter = fits[0]
    texts = [plain_number(one / unit) + (letter if one else "") for one in numbers]
    return [text.replace("-", "\N{MINUS SIGN}") for text in texts]


def _levels(cells: Sequence[Any]) -> list[str]:
    """Shorten names of levels, keeping them distinct."""
    names = ["missing" if cell in (None, "") else str(cell) for cell in cells]
    return told_apart(names, _TICK, _NAMES)
