"""A measured curve on log axes: its mean, its spread, its fitted slope, and how it is drawn."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._words import plain_number
from dpglm.pictures import GREY, INK, quiet

__all__ = ["Curve", "draw_curve", "draw_slope", "log_axes", "write_csv"]


@dataclass(frozen=True)
class Curve:
    """Excess risk against a size, one value for each seed.

    Seeds are independent of each other, but the points of one seed may share their data.
    """

    label: str
    x: NDArray[np.float64]
    """Sizes, shape (m,)."""
    values: NDArray[np.float64]
    """Excess risks, shape (m, seeds)."""

    @property
    def mean(self) -> NDArray[np.float64]:
        """Mean over seeds."""
        return np.asarray(self.values.mean(axis=1))

    @property
    def middle_half(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper quartile over seeds."""
        low, high = np.quantile(self.values, [0.25, 0.75], axis=1)
        return low, high

    @property
    def slope(self) -> tuple[float, float]:
        """Least-squares slope of the mean on log axes, and its standard error by the jackknife."""
        seeds = self.values.shape[1]
        without = [
            _slope(self.x, np.delete(self.values, seed, axis=1).mean(axis=1))
            for seed in range(seeds)
        ]
        spread = np.sum((np.asarray(without) - np.mean(without)) ** 2)
        return _slope(self.x, self.mean), float(np.sqrt((seeds - 1) / seeds * spread))


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def log_axes(axes: Any, title: str, x_label: str, ticks: Sequence[float]) -> None:
    """Title a panel with drawn curves; give it logarithmic axes with plain numbers."""
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks, [plain_number(tick) for tick in ticks])
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,)))
    axes.yaxis.set_major_formatter(lambda value, _: plain_number(value))
    axes.minorticks_off()
    axes.set_title(title, size=10.5, color=INK, loc="left")
    axes.set_xlabel(x_label)
    quiet(axes)


def draw_curve(
    axes: Any, curve: Curve, color: str, *, style: str = "-", marker: str = "o", label: str = ""
) -> None:
    """Draw the mean as a line and the middle half of the seeds as a band."""
    low, high = curve.middle_half
    axes.fill_between(curve.x, low, high, color=color, alpha=0.18, linewidth=0.0)
    axes.plot(
        curve.x,
        curve.mean,
        style,
        marker=marker,
        color=color,
        lw=1.8,
        ms=5.0,
        label=label or curve.label,
    )


def draw_slope(axes: Any, x: Sequence[float], start: float, power: float, text: str) -> None:
    """Draw a power law as a thin dashed line that begins at ``start``, and name it."""
    ends = np.array([x[0], x[-1]], dtype=float)
    heights = start * (ends / ends[0]) ** power
    axes.plot(ends, heights, "--", color=GREY, lw=1.2, zorder=1)
    axes.annotate(
        text,
        (ends[1], heights[1]),
        xytext=(4, 0),
        textcoords="offset points",
        size=9.5,
        color=GREY,
        va="center",
        annotation_clip=False,
    )


def write_csv(path: Path, panels: Sequence[tuple[str, Sequence[Curve]]]) -> None:
    """Write every number that a figure shows."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["panel", "curve", "x", "mean", "lower quartile", "upper quartile", "seeds"]
        )
        for panel, curves in panels:
            for curve in curves:
                seeds = curve.values.shape[1]
                for x, *numbers in zip(curve.x, curve.mean, *curve.middle_half, strict=True):
                    shown = (f"{number:.4g}" for number in numbers)
                    writer.writerow([panel, curve.label, f"{x:g}", *shown, seeds])
