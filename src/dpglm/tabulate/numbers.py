"""Numbers estimated from noisy releases, with their intervals, and how they are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from scipy.special import ndtri

from dpglm._validation import check_real
from dpglm._words import plain_number


@final
@dataclass(frozen=True)
class NumberScale:
    """The range of a number, and the units in which it is shown: ``factor * value + shift``."""

    low: float = -math.inf
    high: float = math.inf
    factor: float = 1.0
    shift: float = 0.0

    def shown(self, value: float) -> float:
        """Clip a value to the range and convert it to the units in which it is shown."""
        return self.shift + self.factor * min(max(value, self.low), self.high)


SHARE = NumberScale(0.0, 1.0)


@final
@dataclass(frozen=True)
class Number:
    """An estimate with two intervals.

    Parameters
    ----------
    estimate : float
        Estimate from the released values, within the possible range and consistent with the other
        numbers of the same result.
    low, high : float
        Interval for the value in these rows: privacy noise only.
    population_low, population_high : float or None
        Interval for the population of independently sampled rows: noise and sampling error. None
        for numbers of rows, which are not properties of a population.

    Notes
    -----
    Both intervals have the confidence level of the result, for each number separately.
    """

    estimate: float
    low: float
    high: float
    population_low: float | None = None
    population_high: float | None = None

    def widened(self, width: float, scale: NumberScale) -> Number:
        """Return the number with both intervals extended by ``width`` on either side."""

        def moved(end: float | None, by: float) -> float | None:
            return None if end is None else scale.shown(end + by)

        return Number(
            self.estimate,
            scale.shown(self.low - width),
            scale.shown(self.high + width),
            moved(self.population_low, -width),
            moved(self.population_high, width),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values without absent intervals; NaN becomes None."""
        there = {name: value for name, value in vars(self).items() if value is not None}
        return {name: one if math.isfinite(one) else None for name, one in there.items()}


def number(
    center: float,
    noise_variance: float,
    z: float,
    scale: NumberScale = NumberScale(),
    *,
    estimate: float | None = None,
    sampling_variance: float | None = None,
) -> Number:
    """Make a number from an unbiased estimate, its variances, and a consistent estimate.

    Intervals are centered at ``center`` clipped to the range, so that they are not empty. They are
    clipped to the range and extended to contain ``estimate``.
    """
    center = min(max(center, scale.low), scale.high)
    shown = scale.shown(center if estimate is None else estimate)

    def interval(variance: float) -> tuple[float, float]:
        half = z * math.sqrt(variance)
        ends = scale.shown(center - half), scale.shown(center + half)
        return min(*ends, shown), max(*ends, shown)

    if sampling_variance is None:
        return Number(shown, *interval(noise_variance))
    both = interval(noise_variance + sampling_variance)
    return Number(shown, *interval(noise_variance), *both)


def normal_quantile(level: float) -> float:
    """Return the half width, in standard deviations, of a normal interval of a confidence level."""
    # Positive, as callers divide by half widths.
    return max(float(ndtri(0.5 + 0.5 * level)), 1e-12)


def check_quantiles(name: str, values: Sequence[float]) -> tuple[float, float]:
    """Return two increasing quantiles from 0 to 1, or raise ValueError."""
    if len(values) != 2:
        raise ValueError(f"{name} must be two quantiles, got {values!r}")
    low, high = (check_real(name, value, least=0.0, most=1.0) for value in values)
    if low >= high:
        raise ValueError(f"{name} must be in ascending order, got {values!r}")
    return low, high


def in_units(value: float, width: float) -> str:
    """Write a number with the digits that an interval of this width makes meaningful."""
    if not 0.0 < width < math.inf:
        return plain_number(value)
    decimals = 1 - math.floor(math.log10(width))
    return f"{value:.{min(max(decimals, 0), 8)}f}"


def ends_of(low: float | None, high: float | None) -> tuple[str, ...]:
    """Write the ends of an interval; empty without one."""
    if low is None or high is None:
        return ()
    return in_units(low, high - low), in_units(high, high - low)


def rows_interval(one: Number) -> str:
    """Write the interval for these rows."""
    return " to ".join(ends_of(one.low, one.high))


def population_interval(one: Number) -> str:
    """Write the interval for the population; empty for a number without one."""
    return " to ".join(ends_of(one.population_low, one.population_high))


def estimate_of(one: Number) -> str:
    """Write an estimate with the digits that are meaningful given the noise."""
    return in_units(one.estimate, one.high - one.low)


def population_estimate(one: Number) -> str:
    """Write an estimate with the digits that are meaningful for a population."""
    return in_units(one.estimate, (one.population_high or 0.0) - (one.population_low or 0.0))


def with_interval(one: Number) -> str:
    """Write an estimate with its interval for these rows."""
    return f"{estimate_of(one)} [{', '.join(ends_of(one.low, one.high))}]"


def with_both_intervals(one: Number) -> str:
    """Write an estimate with its intervals for the population and for these rows."""

    def short(value: float | None) -> str:
        return "" if value is None else plain_number(value, 4)

    ends = (one.population_low, one.population_high), (one.low, one.high)
    intervals = "  ".join(f"[{short(low)}, {short(high)}]" for low, high in ends)
    return f"{short(one.estimate):>8}  {intervals}"
