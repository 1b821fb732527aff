"""Shared by all pictures: colours, type sizes, titles, axes, labels that do not collide."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpglm._extras import require
from dpglm._words import plain_number
from dpglm.pictures.text import wrapped

__all__ = [
    "BLUE",
    "CYCLE",
    "GREY",
    "INK",
    "LIGHT",
    "ORANGE",
    "as_data_uri",
    "label_at_end",
    "log_scale",
    "new_figure",
    "quiet",
    "spread",
    "whole_numbers",
]

# Okabe and Ito's palette, told apart by every kind of colour vision.
BLUE, ORANGE, GREEN, PURPLE, YELLOW = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, YELLOW)
INK, GREY, LIGHT = "#1F2933", "#6B7785", "#E4E8EC"
_TITLE, _SUBTITLE = 14.0, 10.0
_MARGIN = 0.16
_LEADING = 1.35


def new_figure(width: float, body: float, title: str, subtitle: str) -> Any:
    """Return a figure with a wrapped title and subtitle; ``width`` and ``body`` are in inches.

    ``body`` is the height of the axes. It is not registered with pyplot, so nothing has to be
    closed.
    """
    require("matplotlib", "plot")
    from dpglm.pictures.picture import Picture

    room = width - 2.0 * _MARGIN
    heading = wrapped(title, _TITLE, room, bold=True)
    below = wrapped(subtitle, _SUBTITLE, room)
    # Lines of type with the space between them, in inches.
    tall = _LEADING * _TITLE / 72.0 * len(heading)
    head = _MARGIN + tall + _LEADING * _SUBTITLE / 72.0 * len(below) + 0.08
    height = body + head
    layout = require("matplotlib.layout_engine", "plot").ConstrainedLayoutEngine(
        rect=(0.0, 0.0, 1.0, body / height), w_pad=_MARGIN, h_pad=0.08
    )
    figure = Picture(figsize=(width, height), dpi=150, facecolor="white", layout=layout)
    left, top = _MARGIN / width, 1.0 - _MARGIN / height
    shared: dict[str, Any] = {"va": "top", "ha": "left", "parse_math": False}
    shared |= {"linespacing": 1.3, "in_layout": False}
    figure.text(left, top, "\n".join(heading), size=_TITLE, weight="bold", color=INK, **shared)
    top -= tall / height
    figure.text(left, top, "\n".join(below), size=_SUBTITLE, color=GREY, **shared)
    return figure


def quiet(axes: Any, *, grid: str = "y") -> None:
    """Remove from axes what carries no information."""
    for side in ("top", "right", "left" if grid == "y" else "bottom"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(GREY)
        axes.spines[side].set_linewidth(0.8)
    axes.grid(visible=True, axis=grid, color=LIGHT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=GREY, labelsize=9.5, length=0, labelcolor=INK, which="both")
    axes.xaxis.label.set(color=INK, size=10.5)
    axes.yaxis.label.set(color=INK, size=10.5)


def log_scale(axes: Any) -> None:
    """Make the y axis logarithmic, with plain numbers at 1, 2 and 5."""
    ticker = require("matplotlib.ticker", "plot")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def whole_numbers(axes: Any) -> None:
    """Put ticks of the x axis at whole numbers only."""
    ticker = require("matplotlib.ticker", "plot")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(nbins=9, integer=True, min_n_ticks=1))


def label_at_end(
    axes: Any, ys: Sequence[float], texts: Sequence[str], colors: Sequence[str], height: float
) -> None:
    """Write labels right of axes (``height`` in inches), at their lines, moved apart."""
    low, high = axes.get_ylim()
    # Two lines of type in units of the y axis.
    gap = (high - low) * 2.0 * 1.3 * 9.5 / 72.0 / height
    for y, text, color in zip(spread(ys, gap), texts, colors, strict=True):
        axes.annotate(
            text,
            (1.0, y),
            xycoords=axes.get_yaxis_transform(),
            xytext=(8, 0),
            textcoords="offset points",
            va="center",
            ha="left",
            size=9.5,
            color=color,
            linespacing=1.15,
            annotation_clip=False,
        )


def spread(ys: Sequence[float], gap: float) -> list[float]:
    """Move numbers as little as possible so that any two are at least ``gap`` apart.

    >>> spread([1.0, 1.0, 5.0], 1.0)
    [0.5, 1.5, 5.0]
    """
    order = np.argsort(np.asarray(ys), kind="stable")
    # Least squares under order constraints: pool neighbours whose blocks would overlap.
    blocks: list[tuple[float, int]] = []
    for rank, position in enumerate(order):
        center, size = float(ys[position]) - rank * gap, 1
        while blocks and blocks[-1][0] > center:
            last, count = blocks.pop()
            center = (last * count + center * size) / (count + size)
            size += count
        blocks.append((center, size))
    moved = np.repeat([center for center, _ in blocks], [size for _, size in blocks])
    result = np.empty(len(ys))
    result[order] = moved + gap * np.arange(len(ys))
    return result.tolist()


def as_data_uri(figure: Any) -> str:
    """Return a figure as an SVG data URI, the same for the same figure, with text as outlines."""
    matplotlib = require("matplotlib", "plot")
    stream = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "dpglm", "svg.fonttype": "path"}):
        figure.savefig(stream, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(stream.getvalue()).decode("ascii")
