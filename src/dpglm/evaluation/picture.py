"""Pictures of evaluations: curves with the intervals of sampling and noise together."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpglm._registry import require
from dpglm.evaluation.binary import BinaryResult
from dpglm.evaluation.classes import ClassesResult
from dpglm.evaluation.evaluation import Result
from dpglm.evaluation.regression import RegressionResult
from dpglm.exploration.results import Number
from dpglm.pictures import drawing as draw
from dpglm.pictures.drawing import shortened

__all__ = ["PICTURES", "draw_one", "draw_panel"]

_WIDTH, _BODY = 5.4, 4.0
_PANEL, _TALL = 3.1, 2.9
_TICK, _TITLE = 8.0, 9.5
_BAND, _LINE = 0.22, 1.8
_NAME = 1.0
_DECISIONS = ("accuracy", "precision", "recall")
_QUANTILES = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)


def draw_one(name: str, result: Result, level: float) -> Any:
    """Draw one of ``PICTURES`` as a figure; ValueError if the result has none of it."""
    title, text, drawn = PICTURES[name]
    if name != "classes":
        text = f"Shaded or barred: {100.0 * level:g} % intervals, each for itself."
    figure = draw.new_figure(_WIDTH, _BODY, title, f"{text[0].upper()}{text[1:]}")
    axes = figure.subplots()
    drawn(axes, result)
    draw.quiet(axes)
    return figure


def draw_panel(name: str, result: Result) -> Any:
    """Draw one of ``PICTURES`` small, to stand beside others on a page."""
    require("matplotlib", "plot")
    from dpglm.pictures.picture import Picture

    title, _, drawn = PICTURES[name]
    figure = Picture(figsize=(_PANEL, _TALL), dpi=150, facecolor="none", layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("none")
    drawn(axes, result)
    axes.set_title(title, loc="left", size=_TITLE, weight="bold", color=draw.INK)
    draw.quiet(axes)
    axes.tick_params(labelsize=_TICK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_size(_TICK + 0.5)
    return figure


def _roc(axes: Any, result: Result) -> None:
    rows = _two_classes("a ROC curve", result)
    false, true, _ = rows.roc_curve()
    _band(axes, false, true, rows.roc_band(), draw.BLUE)
    _frame_of_roc(axes)


def _roc_of_classes(axes: Any, result: Result) -> None:
    if not isinstance(result, ClassesResult):
        raise ValueError("ROC curves of each class are for several classes, and these are not")
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
    _unit_square(axes)
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")


def _calibration(axes: Any, result: Result) -> None:
    cells = _two_classes("a calibration curve", result).calibration_curve()
    axes.plot([0.0, 1.0], [0.0, 1.0], color=draw.GREY, linewidth=0.9, dashes=(5, 3))
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
    _unit_square(axes)
    axes.set_xlabel("mean score of a cell")
    axes.set_ylabel("share of positives")


def _by_threshold(axes: Any, result: Result) -> None:
    rows = _two_classes("accuracy by threshold", result)
    ends = rows.ends[1:]
    found = [rows.at(float(end)) for end in ends]
    for name, color in zip(_DECISIONS, draw.CYCLE, strict=False):
        numbers = [one[name] for one in found]
        _band(axes, ends, np.array([one.estimate for one in numbers]), numbers, color, name)
    axes.set_ylim(0.0, 1.02)
    if rows.probabilities:
        axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("threshold")
    _legend(axes, "best")


def _residuals(axes: Any, result: Result) -> None:
    if not isinstance(result, RegressionResult):
        raise ValueError("a picture of residuals is for numbers, and these are classes")
    numbers = [result.residual_quantile(q) for q in _QUANTILES]
    shares = np.array(_QUANTILES)
    axes.axhline(0.0, color=draw.GREY, linewidth=0.9)
    _band(axes, shares, np.array([one.estimate for one in numbers]), numbers, draw.BLUE)
    axes.set_xlim(0.0, 1.0)
    axes.set_xlabel("share of the rows")
    axes.set_ylabel("residual, at most")


PICTURES: dict[str, tuple[str, str, Callable[[Any, Result], None]]] = {
    "roc": (
        "ROC curve",
        (
            "share of the positives that is found against share of the negatives that is called "
            "positive; dashed: by chance"
        ),
        _roc,
    ),
    "classes": (
        "ROC curve of each class",
        "one class against the rest, without intervals; dashed: by chance",
        _roc_of_classes,
    ),
    "calibration": (
        "Calibration",
        "share of positives in cells of scores against their mean score; dashed: right",
        _calibration,
    ),
    "thresholds": (
        "Decisions by threshold",
        "accuracy, precision and recall against the threshold",
        _by_threshold,
    ),
    "residuals": (
        "Residuals",
        "target minus prediction, the most that it is in each share of the rows",
        _residuals,
    ),
}
"""Pictures by name: their titles, what they show in words, and what draws them on axes."""


def _two_classes(what: str, result: Result) -> BinaryResult:
    if not isinstance(result, BinaryResult):
        raise ValueError(f"{what} is for two classes, and these are not")
    return result


def _ends(number: Number) -> tuple[float, float]:
    """Return the interval for the population; nothing for what is unknown."""
    low, high = number.population_low, number.population_high
    return (number.estimate,) * 2 if low is None or high is None else (low, high)


def _legend(axes: Any, place: str) -> None:
    shown = axes.legend(
        frameon=False, fontsize=_TICK, labelcolor=draw.INK, handlelength=1.4, loc=place
    )
    for text in shown.get_texts():
        text.set_parse_math(False)


def _band(
    axes: Any, x: Any, y: Any, numbers: Sequence[Number], color: str, label: str | None = None
) -> None:
    low, high = np.array([_ends(one) for one in numbers]).T
    axes.fill_between(x, low, high, color=color, alpha=_BAND, linewidth=0)
    axes.plot(x, y, color=color, linewidth=_LINE, label=label)


def _unit_square(axes: Any) -> None:
    axes.set_xlim(0.0, 1.0)
    axes.set_ylim(0.0, 1.02)
