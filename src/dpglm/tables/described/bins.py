"""Edges of bins at round numbers, from public bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dpglm._validation import check_integer, check_real
from dpglm.tables.columns import DENSER

__all__ = ["MOST_BINS", "PARTS", "bin_edges", "given_edges", "log_edges", "parts_of"]

MOST_BINS = 200
"""The most bins of one column."""
PARTS = 10
"""Parts of a bin, in which rows are counted for quantiles."""

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_WHOLE_STEPS = (1.0, 2.0, 5.0, 10.0)
# Round numbers in a decade, the finest choice first.
_IN_DECADE = (
    tuple(float(f"{0.1 * i:.1f}") for i in range(10, 100)),
    tuple(0.5 * i for i in range(2, 20)),
    (1.0, 2.0, 3.0, 5.0, 7.0),
    (1.0, 2.0, 5.0),
    (1.0, 3.0),
)


def bin_edges(low: float, high: float, most: int, *, whole: bool = False) -> tuple[float, ...]:
    """Return edges from ``low`` to ``high`` of at most ``most`` bins, at multiples of a round step.

    The first and the last bin may be narrower. ``whole`` is for steps that are whole numbers.

    >>> bin_edges(17, 90, 8)
    (17.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0)
    >>> bin_edges(0.0, 1.0, 5)
    (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    """
    exponent = math.floor(math.log10((high - low) / most))
    for step in _round_steps(exponent, whole):
        first, last = math.floor(low / step) + 1, math.ceil(high / step) - 1
        if last - first + 2 <= most:
            inner = (float(f"{step * i:.12g}") for i in range(first, last + 1))
            return (float(low), *(edge for edge in inner if low < edge < high), float(high))
    return (float(low), float(high))


def log_edges(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return edges of at most ``most`` bins that are about equally wide in logarithms.

    They are round numbers above 0. From a low bound that is not, they are such numbers above it,
    the first at a hundredth of the range, as a column's ``"scale": "log"`` means it.

    >>> log_edges(1, 1000, 6)
    (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
    >>> log_edges(0, 1000, 8)
    (0.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
    """
    shift = 0.0 if low > 0.0 else low
    first, last = (low if low > 0.0 else (high - low) / DENSER), high - shift
    powers = range(math.floor(math.log10(first)), math.ceil(math.log10(last)) + 1)
    choices = [
        *([step * 10.0**power for power in powers for step in steps] for steps in _IN_DECADE),
        *([10.0**power for power in powers[::every]] for every in range(1, len(powers) + 1)),
    ]
    inner: list[float] = []
    for numbers in choices:
        rounded = (float(f"{shift + one:.12g}") for one in numbers if first <= one < last)
        inner = [one for one in rounded if low < one < high]
        if len(inner) < most:
            break
    return (float(low), *inner[: most - 1], float(high))


def _round_steps(exponent: int, whole: bool) -> list[float]:
    if whole:
        powers = range(max(exponent, 0), max(exponent, 0) + 3)
        return [step * 10.0**power for power in powers for step in _WHOLE_STEPS[:-1]]
    return [step * 10.0**power for power in range(exponent, exponent + 3) for step in _STEPS[:-1]]


def given_edges(
    name: str, given: Any, low: float, high: float, *, whole: bool = False, log: bool = False
) -> tuple[float, ...]:
    """Read what a caller gave for a column's bins: their number, at most, or their edges."""
    what = f"bins[{name!r}]"
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str):
        count = check_integer(what, given, least=1)
        if count > MOST_BINS:
            raise ValueError(f"{what} must be at most {MOST_BINS}, got {count}")
        return log_edges(low, high, count) if log else bin_edges(low, high, count, whole=whole)
    edges = tuple(check_real(f"{what}[{i}]", edge) for i, edge in enumerate(given))
    if not 2 <= len(edges) <= MOST_BINS + 1 or any(np.diff(edges) <= 0.0):
        raise ValueError(
            f"{what} must list 2 to {MOST_BINS + 1} edges in ascending order, got {given!r}"
        )
    return edges


def parts_of(edges: Sequence[float], *, whole: bool) -> int:
    """Return into how many parts each bin is divided; whole numbers are not divided further."""
    if not whole:
        return PARTS
    return int(min(PARTS, max(1.0, math.ceil(max(np.diff(edges))))))
