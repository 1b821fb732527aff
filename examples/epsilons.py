"""A picture of the scores of private models against epsilon."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from dpglm import pictures as draw
from dpglm._words import plain_number
from dpglm.pictures import shortened

__all__ = ["accuracy_against_epsilon"]

_BODY, _AXIS = 3.7, 10.5


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
    _label_at_end(axes, heights, texts, colors, 0.74 * _BODY)
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


def _label_at_end(
    axes: Any, ys: Sequence[float], texts: Sequence[str], colors: Sequence[str], height: float
) -> None:
    """Write labels to the right of axes (``height`` in inches), without overlap."""
    low, high = axes.get_ylim()
    # Height of two lines in units of the y axis.
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
    """Move numbers by least squares so that any two are at least ``gap`` apart.

    >>> spread([1.0, 1.0, 5.0], 1.0)
    [0.5, 1.5, 5.0]
    """
    order = np.argsort(ys, kind="stable")
    # Isotonic regression pools neighbours that would overlap.
    shifts = gap * np.arange(len(ys))
    moved = np.empty(len(ys))
    moved[order] = isotonic_regression(np.asarray(ys, np.float64)[order] - shifts).x + shifts
    return moved.tolist()
