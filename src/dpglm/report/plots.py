"""Plots of private fits as Matplotlib figures (extra ``plot``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm import pictures as draw
from dpglm._calls import checked
from dpglm._words import plain_number
from dpglm.pictures import shortened
from dpglm.problem import ClippedLoss, ConvexScalarLoss, Target
from dpglm.report.pictures import coefficients, training_history

__all__ = ["accuracy_against_epsilon", "clipped_loss", "coefficients", "training_history"]

_BODY, _AXIS = 3.7, 10.5
# Least width, in inches, for two panels next to each other.
_BESIDE = 5.0
_CURVE_TARGET = {
    Target.BINARY: 1.0,
    Target.REAL: 0.0,
    Target.COUNT: 2.0,
    Target.POSITIVE: 2.0,
    Target.PROPORTION: 1.0,
}
_CURVE_REACH = {
    Target.BINARY: 5.0,
    Target.COUNT: 3.0,
    Target.POSITIVE: 3.0,
    Target.PROPORTION: 5.0,
}
_CURVE_AXIS = {
    Target.BINARY: "prediction, for the positive class",
    Target.REAL: "prediction minus target",
    Target.COUNT: "log of the prediction, for count 2",
    Target.POSITIVE: "log of the prediction, for target 2",
    Target.PROPORTION: "prediction, for a row of successes",
}


@checked
def accuracy_against_epsilon(
    epsilons: ArrayLike,
    scores: ArrayLike,
    *,
    without_privacy: float | None = None,
    without_features: float | None = None,
    chosen: float | None = None,
    metric: str = "Accuracy on test rows",
    title: str = "Accuracy and privacy",
    subtitle: str | None = None,
    width: float = 7.2,
) -> Any:
    """Draw the scores of private models against epsilon.

    Parameters
    ----------
    epsilons : array_like of shape (m,)
        Different values above 0.
    scores : array_like of shape (m,) or (m, runs)
        Score at each epsilon. For several runs their mean is drawn, and their range is shaded.
    without_privacy : float, optional
        Score of the same model without noise.
    without_features : float, optional
        Score of the best constant prediction, such as the most frequent class.
    chosen : float, optional
        One of ``epsilons`` to highlight.
    metric : str
        Name of the scores.
    title, subtitle : str
        Headings; by default the subtitle explains the shading.
    width : float, default=7.2
        Width of the picture in inches.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig("name.png")``, ``.svg`` or ``.pdf``.

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If shapes do not match, an epsilon is not above 0, or ``chosen`` is not one of them.

    Notes
    -----
    Privacy: the guarantee does not cover ``scores``. Compute them from public test rows, or with
    ``dpglm.evaluate``.
    """
    eps = np.asarray(epsilons, dtype=np.float64)
    runs = np.asarray(scores, dtype=np.float64)
    if eps.ndim != 1 or not (eps > 0.0).all() or len(set(eps.tolist())) != eps.size:
        raise ValueError(f"epsilons must be different numbers above 0, got {epsilons!r}")
    if runs.ndim not in (1, 2) or len(runs) != len(eps) or not np.isfinite(runs).all():
        raise ValueError(
            f"scores must be finite with shape ({len(eps)},) or ({len(eps)}, runs), got shape "
            f"{runs.shape}"
        )
    if chosen is not None and chosen not in eps:
        raise ValueError(f"chosen must be one of the epsilons {eps.tolist()}, got {chosen!r}")
    order = np.argsort(eps)
    eps, runs = eps[order], runs.reshape(len(eps), -1)[order]
    mean, low, high = runs.mean(axis=1), runs.min(axis=1), runs.max(axis=1)
    if subtitle is None:
        shading = f" Line: mean of {runs.shape[1]} runs. Shaded: their range."
        subtitle = "Further left is more private." + (shading if runs.shape[1] > 1 else "")

    figure = draw.new_figure(width, _BODY, title, subtitle)
    axes = figure.add_subplot()
    labels: list[tuple[float, str, str]] = [(mean[-1], "with privacy", draw.BLUE)]
    for value, text, dashes in (
        (without_privacy, "without privacy", (6, 3)),
        (without_features, "constant prediction", (1.5, 2.5)),
    ):
        if value is not None:
            axes.axhline(value, color=draw.GREY, linewidth=1.5, dashes=dashes)
            labels.append((value, f"{text}\n{value:.3f}", draw.GREY))
    axes.fill_between(eps, low, high, color=draw.BLUE, alpha=0.18, linewidth=0)
    axes.plot(eps, mean, color=draw.BLUE, linewidth=2.2, marker="o", markersize=5.5)
    if chosen is not None:
        value = float(mean[eps == chosen][0])
        axes.plot(
            [chosen], [value], "o", markersize=12, mfc="none", mec=draw.ORANGE, mew=2.0, zorder=5
        )
        axes.annotate(
            f"epsilon {plain_number(chosen)}: {value:.3f}",
            (chosen, value),
            xytext=(0, -22),
            textcoords="offset points",
            ha=_towards_the_middle(chosen, eps),
            color=draw.ORANGE,
            size=10,
            weight="bold",
        )
    axes.set_xscale("log")
    axes.set_xticks(*_epsilon_ticks(eps), minor=False)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("epsilon (privacy loss; smaller protects more)")
    axes.set_ylabel(shortened(metric, _AXIS, _BODY - 0.9), parse_math=False)
    axes.margins(x=0.04, y=0.14)
    draw.quiet(axes)
    heights, texts, colors = zip(*labels, strict=True)
    draw.label_at_end(axes, heights, texts, colors, 0.74 * _BODY)
    return figure


@checked
def clipped_loss(
    loss: ConvexScalarLoss,
    clips: Sequence[float],
    *,
    target: float | None = None,
    z_range: tuple[float, float] | None = None,
    width: float = 7.2,
) -> Any:
    """Draw the loss that gradient descent with clipped gradients minimizes.

    Parameters
    ----------
    loss : ConvexScalarLoss
        Any convex loss of one output.
    clips : sequence of float
        One to five clipping thresholds of the derivative, each above 0: gradient threshold over row
        norm.
    target : float, optional
        Target of the row; by default +1 for classes, 0 for real targets, 2 for counts.
    z_range : pair of float, optional
        Range of linear predictors; by default the thresholds are reached within it.
    width : float, default=7.2
        Width of the picture in inches.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ImportError
        If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
    ValueError
        If the loss is not convex with one output, or ``clips`` is invalid.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta, "Evading the curse of dimensionality in unconstrained
    private GLMs", AISTATS 2021, Lemma 5.1.
    """
    if not 1 <= len(clips) <= len(draw.CYCLE):
        raise ValueError(f"clips must be 1 to {len(draw.CYCLE)} numbers, got {clips!r}")
    clipped = [ClippedLoss(loss, clip) for clip in sorted(clips, reverse=True)]
    axis = _CURVE_AXIS[loss.target] if target is None else "prediction"
    target = _CURVE_TARGET[loss.target] if target is None else target
    reach = _CURVE_REACH.get(loss.target, 2.5 * max(clips))
    z = np.linspace(*((-reach, reach) if z_range is None else z_range), 801)
    y = np.full_like(z, target)
    beside = width > _BESIDE
    figure = draw.new_figure(
        width,
        3.1 if beside else 6.0,
        "Effect of clipping on the loss",
        f"{type(loss).__name__}: clipped where its derivative exceeds the threshold.",
    )
    left, right = figure.subplots(1, 2) if beside else figure.subplots(2, 1)
    curves = [(loss, "not clipped", draw.INK)]
    curves += [
        (one, f"clip {plain_number(one.clip_slope)}", color)
        for one, color in zip(clipped, draw.CYCLE, strict=False)
    ]
    for curve, label, color in curves:
        thick = 3.2 if curve is loss else 1.9
        shade = "#AEB7C0" if curve is loss else color
        left.plot(z, curve.value(z, y), color=shade, linewidth=thick, label=label)
        right.plot(z, curve.slope(z, y), color=shade, linewidth=thick)
    for one, color in zip(clipped, draw.CYCLE, strict=False):
        touch = _touching_points(one, z, y)
        left.plot(touch, one.value(touch, np.full_like(touch, target)), "o", color=color, ms=6)
    left.set_ylabel("loss of the row")
    right.set_ylabel("derivative")
    for axes in (left, right):
        axes.set_xlabel(axis)
        draw.quiet(axes)
        axes.margins(x=0.0)
    left.legend(frameon=False, fontsize=9.5, labelcolor=draw.INK, handlelength=1.6)
    return figure


def _towards_the_middle(chosen: float, eps: NDArray[np.float64]) -> str:
    """Return the text alignment that keeps text at an epsilon within the axes."""
    place = math.log(chosen / eps[0]) / (math.log(eps[-1] / eps[0]) or math.inf)
    if eps.size == 1 or 0.2 < place < 0.8:
        return "center"
    return "left" if place <= 0.2 else "right"


def _epsilon_ticks(eps: NDArray[np.float64]) -> tuple[list[float], list[str]]:
    """Return ticks at the epsilons that are far enough apart."""
    span = math.log(eps[-1] / eps[0]) or 1.0
    ticks: list[float] = []
    for value in eps.tolist():
        if not ticks or math.log(value / ticks[-1]) > 0.05 * span:
            ticks.append(value)
    return ticks, [plain_number(value) for value in ticks]


def _touching_points(
    clipped: ClippedLoss, z: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the linear predictors where clipping begins."""
    binds = np.abs(clipped.loss.slope(z, y)) > clipped.clip_slope
    edges = np.flatnonzero(binds[1:] != binds[:-1])
    middle: NDArray[np.float64] = 0.5 * (z[edges] + z[edges + 1])
    return middle
