"""Numbers that were learned from private rows, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from scipy.special import ndtri

from dpglm._validation import check_real

__all__ = ["Number", "Scale", "check_quantiles", "normal_quantile", "number"]


@final
@dataclass(frozen=True)
class Number:
    """An estimate with two intervals.

    Parameters
    ----------
    estimate : float
        What the rows say, as far as noise lets them; within the range that is possible, and
        consistent with other numbers.
    low, high : float
        Interval for what the table itself says: of privacy noise alone.
    population_low, population_high : float or None
        Interval for what the table is a sample of: of noise and of sampling together, for rows
        drawn independently. None for numbers of rows, which a population has none of.

    Notes
    -----
    Both are at the level of the description, one number at a time.
    """

    estimate: float
    low: float
    high: float
    population_low: float | None = None
    population_high: float | None = None

    def widened(self, reach: float, scale: Scale) -> Number:
        """Return it with both intervals longer by ``reach`` on either side, within a scale."""

        def moved(end: float | None, by: float) -> float | None:
            return None if end is None else scale.shown(end + by)

        return Number(
            self.estimate,
            scale.shown(self.low - reach),
            scale.shown(self.high + reach),
            moved(self.population_low, -reach),
            moved(self.population_high, reach),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; those of a population only where there are any, NaN as None."""
        there = {name: value for name, value in vars(self).items() if value is not None}
        return {name: one if math.isfinite(one) else None for name, one in there.items()}


@final
@dataclass(frozen=True)
class Scale:
    """The values that a number can have; it is shown times ``factor`` plus ``shift``."""

    low: float = -math.inf
    high: float = math.inf
    factor: float = 1.0
    shift: float = 0.0

    def shown(self, value: float) -> float:
        """Bring a value into range, and into the units in which it is shown."""
        return self.shift + self.factor * min(max(value, self.low), self.high)


def check_quantiles(name: str, values: Sequence[float]) -> tuple[float, float]:
    """Return two quantiles from 0 to 1 in ascending order; a ValueError names them otherwise."""
    if len(values) != 2:
        raise ValueError(f"{name} must be two quantiles, got {values!r}")
    low, high = (check_real(name, value, least=0.0, most=1.0) for value in values)
    if low >= high:
        raise ValueError(f"{name} must be in ascending order, got {values!r}")
    return low, high


def normal_quantile(level: float) -> float:
    """Return how many standard deviations an interval of a level reaches on either side."""
    # Never 0, by which half widths could not be divided.
    return max(float(ndtri(0.5 + 0.5 * level)), 1e-12)


def number(
    center: float,
    noise_variance: float,
    z: float,
    scale: Scale = Scale(),
    *,
    estimate: float | None = None,
    sampling_variance: float | None = None,
) -> Number:
    """Make a number from an unbiased estimate, its variances, and a consistent estimate.

    Intervals are around ``center``, brought into the range so that none is empty, cut to the range,
    and stretched to hold ``estimate``.
    """
    center = min(max(center, scale.low), scale.high)
    best = center if estimate is None else estimate
    shown = scale.shown(best)

    def interval(variance: float) -> tuple[float, float]:
        reach = z * math.sqrt(variance)
        ends = scale.shown(center - reach), scale.shown(center + reach)
        return min(*ends, shown), max(*ends, shown)

    if sampling_variance is None:
        return Number(shown, *interval(noise_variance))
    both = interval(noise_variance + sampling_variance)
    return Number(shown, *interval(noise_variance), *both)
