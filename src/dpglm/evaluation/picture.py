"""Pictures of evaluations: curves with population intervals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpglm import pictures as draw
from dpglm._registry import require
from dpglm._validation import check_one_of
from dpglm.evaluation.binary import BinaryResult
from dpglm.evaluation.classes import ClassesResult
from dpglm.evaluation.regression import RegressionResult
from dpglm.evaluation.task import Result
from dpglm.pictures import shortened
from dpglm.tabulate import Number

_WIDTH, _BODY = 5.4, 4.0
_PANEL, _TALL = 3.1, 2.9
_TICK, _TITLE = 8.0, 9.5
_BAND, _LINE = 0.22, 1.8
_NAME = 1.0
_DECISIONS = ("recall", "specificity", "precision")
_QUANTILES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)


@final
@dataclass(frozen=True)
class Panel:
    """A picture of a result: title, caption, and the function that draws it on axes."""

    title: str
    text: str
    draw: Callable[[Any, Any], None]
    has_intervals: bool = True


def _drawn(picture: Panel, result: Result, figure: Any) -> Any:
    axes = figure.subplots()
    picture.draw(axes, result)
    draw.quiet(axes)
    return axes


def draw_one(name: str, result: Result, level: float) -> Any:
    """Draw one of ``PICTURES`` as a figure; ValueError if the result does not have it."""
    picture = PICTURES[check_one_of("picture", name, result.task.pictures)]
    text = f"{picture.text[0].upper()}{picture.text[1:]}"
    if picture.has_intervals:
        text = f"Shading and bars: pointwise {100.0 * level:g} % population intervals."
    figure = draw.new_figure(_WIDTH, _BODY, picture.title, text)
    _drawn(picture, result, figure)
    return figure


def draw_panel(name: str, result: Result) -> Any:
    """Draw one of ``PICTURES`` as a small panel of a page."""
    require("matplotlib", "plot")
    from dpglm.pictures import Picture

    picture = PICTURES[check_one_of("picture", name, result.task.pictures)]
    figure = Picture(figsize=(_PANEL, _TALL), dpi=150, facecolor="none", layout="constrained")
    axes = _drawn(picture, result, figure)
    axes.set_facecolor("none")
    axes.set_title(picture.title, loc="left", size=_TITLE, weight="bold", color=draw.INK)
    axes.tick_params(labelsize=_TICK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_size(_TICK + 0.5)
    return figure


def _roc(axes: Any, result: BinaryResult) -> None:
    _band(axes, result.roc_curve()[0], result.roc_band(), draw.BLUE)
    _frame_of_roc(axes)


def _roc_of_classes(axes: Any, result: ClassesResult) -> None:
    styles = itertools.product(("-", ":"), draw.CYCLE)
    for label, (style, color) in zip(result.classes, styles, strict=False):
        false, true = result.roc_curve(label)
        name = shortened(f"class {label}", _TICK, _NAME)
        axes.plot(false, true, color=color, linewidth=_LINE, linestyle=style, label=name)
    for label in result.classes[2 * len(draw.CYCLE) :]:
        axes.plot(*result.roc_curve(label), color=draw.GREY, linewidth=0.5)
    _frame_of_roc(axes)
    _legend(axes, "lower right")


def _frame_of_roc(axes: Any) -> None:
    axes.plot([0.0, 1.0], [0.0, 1.0], color=draw.GREY, linewidth=0.9, dashes=(5, 3))
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")


def _calibration(axes: Any, result: BinaryResult) -> None:
    cells = result.calibration_curve()
    axes.plot([0.0, 1.0], [0.0, 1.0], color=draw.GREY, linewidth=0.9, dashes=(5, 3))
    # Bars of cells with few rows are cut off at the frame.
    drawn = [*result.range_of_scores, *(cell.positives.estimate for cell in cells)]
    limits = _padded(min(drawn), max(drawn))
    at = np.array([cell.mean_score for cell in cells])
    found = [cell.positives for cell in cells]
    middle = np.array([one.estimate for one in found])
    ends = np.array([_ends(one) for one in found]).reshape(-1, 2).T
    axes.errorbar(
        at,
        middle,
        yerr=np.abs(ends - middle),
        fmt="o",
        markersize=4,
        color=draw.BLUE,
        elinewidth=2.4,
        ecolor=(draw.BLUE, 0.4),
    )
    axes.set_xlim(*limits)
    axes.set_ylim(*limits)
    axes.set_xlabel("mean score")
    axes.set_ylabel("share of positive rows")


def _by_threshold(axes: Any, result: BinaryResult) -> None:
    ends = result.ends[1:]
    for name, color in zip(_DECISIONS, draw.CYCLE, strict=False):
        numbers = [result.number(name, float(end)) for end in ends]
        _band(axes, ends, numbers, color, name)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlim(*_padded(*result.range_of_scores))
    axes.set_xlabel("threshold")
    _legend(axes, "best")


def _residuals(axes: Any, result: RegressionResult) -> None:
    numbers = [result.residual_quantile(q) for q in _QUANTILES]
    axes.axhline(0.0, color=draw.GREY, linewidth=0.9)
    _band(axes, _QUANTILES, numbers, draw.BLUE)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("quantile level")
    axes.set_ylabel("residual")


PICTURES = {
    "roc": Panel(
        "ROC curve", "true positive rate against false positive rate; dashed: no skill", _roc
    ),
    "classes": Panel(
        "ROC curve of each class",
        "each class against the rest, without intervals; dashed: no skill",
        _roc_of_classes,
        has_intervals=False,
    ),
    "calibration": Panel(
        "Calibration",
        "share of positive rows in cells of scores against their mean score, over the range of "
        "scores; dashed: calibrated",
        _calibration,
    ),
    "thresholds": Panel(
        "Decisions by threshold",
        "recall, specificity and precision against the threshold, over the range of scores",
        _by_threshold,
    ),
    "residuals": Panel("Residuals", "quantiles of target minus prediction", _residuals),
}
"""Pictures by name."""


def _ends(number: Number) -> tuple[float, float]:
    """Return the population interval; an interval of width 0 without one."""
    low, high = number.population_low, number.population_high
    return (number.estimate,) * 2 if low is None or high is None else (low, high)


def _legend(axes: Any, place: str) -> None:
    shown = axes.legend(
        frameon=False, fontsize=_TICK, labelcolor=draw.INK, handlelength=1.4, loc=place
    )
    for text in shown.get_texts():
        text.set_parse_math(False)


def _band(
    axes: Any, x: Any, numbers: Sequence[Number], color: str, label: str | None = None
) -> None:
    y = [one.estimate for one in numbers]
    low, high = np.array([_ends(one) for one in numbers]).T
    axes.fill_between(x, low, high, color=color, alpha=_BAND, linewidth=0)
    axes.plot(x, y, color=color, linewidth=_LINE, label=label)


def _padded(low: float, high: float) -> tuple[float, float]:
    """Return an interval with margins for marks at its ends."""
    margin = 0.06 * (high - low) or 0.05
    return low - margin, high + margin
