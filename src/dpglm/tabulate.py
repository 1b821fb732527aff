"""Released tables: numbers with intervals, counts that add up, and functions of noisy counts."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from dpglm._validation import check_real
from dpglm._words import plain_number
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.statement import WHERE
from dpglm.oracle.counts import Cells
from dpglm.solvers.base import Plan
from dpglm.solvers.uncertainty import Solution


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
@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        population = " to ".join(ends_of(self.population_low, self.population_high))
        return with_interval(self) + (f", population {population}" if population else "")

    def widened(self, width: float, scale: NumberScale) -> Number:
        """Return the number with both intervals extended by ``width`` on either side."""
        moves = (0.0, -width, width, -width, width)
        ends = zip(vars(self).values(), moves, strict=True)
        _, *found = (None if end is None else scale.shown(end + by) for end, by in ends)
        return Number(self.estimate, *found)  # type: ignore[arg-type]

    def joined(self, other: Number) -> Number:
        """Return the mean of two estimates, with the intervals that contain those of both."""
        mine, others = list(vars(self).values())[1:], list(vars(other).values())[1:]
        ends = [
            one if one is None or two is None else choose(one, two)
            for one, two, choose in zip(mine, others, (min, max, min, max), strict=True)
        ]
        return Number(0.5 * (self.estimate + other.estimate), *ends)

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


def for_population(one: Number) -> tuple[str, str]:
    """Write an estimate and its interval for the population, "" for a number without one."""
    width = (one.population_high or 0.0) - (one.population_low or 0.0)
    ends = ends_of(one.population_low, one.population_high)
    return in_units(one.estimate, width), " to ".join(ends)


def estimate_of(one: Number) -> str:
    """Write an estimate with the digits that are meaningful given the noise."""
    return in_units(one.estimate, one.high - one.low)


def with_interval(one: Number) -> str:
    """Write an estimate with its interval for these rows, if it is not exact."""
    interval = f" ({rows_interval(one)})" if one.low < one.high else ""
    return estimate_of(one) + interval


def with_both_intervals(one: Number) -> str:
    """Write an estimate with its intervals for the population and for these rows."""
    values = ("" if value is None else plain_number(value, 4) for value in vars(one).values())
    estimate, low, high, *population = values
    return f"{estimate:>8}  [{', '.join(population)}]  [{low}, {high}]"


_Floats: TypeAlias = NDArray[np.float64]
_MOST_ROUNDS, _CLOSE, _LEAST = 500, 1e-9, 1e-9


@final
@dataclass(frozen=True, eq=False)
class Total:
    """An estimate of one number and its variance, which is 0 for a known number."""

    value: float
    variance: float


def pooled(estimates: list[Total]) -> Total:
    """Combine independent estimates of one number by their precisions.

    >>> pooled([Total(1.0, 1.0), Total(4.0, 2.0)])
    Total(value=2.0, variance=0.6666666666666666)
    """
    precisions = np.array([1.0 / one.variance for one in estimates])
    values = np.array([one.value for one in estimates])
    variance = float(1.0 / precisions.sum())
    return Total(float(variance * (precisions @ values)), variance)


@final
@dataclass(frozen=True, eq=False)
class Whole:
    """Least squares estimates of parts that add up to a whole.

    ``values`` are the adjusted estimates, ``variances`` those before. The whole is known, or
    estimated from these parts and from others.

    With variances v, their sum S and the whole T, each part moves by the share v / S of the
    difference between T and the sum of the parts. Deviations of the parts from their shares are
    independent of their sum and of the whole, which gives ``variance``.
    """

    values: _Floats
    variances: _Floats
    whole: Total

    def variance(self, coefficients: ArrayLike) -> float:
        """Return the variance of a weighted sum of the parts."""
        c, v = np.asarray(coefficients, np.float64), self.variances
        through = float(c @ v) / float(v.sum())
        deviations = float(c @ (c * v)) - through * float(c @ v)
        return max(deviations, 0.0) + through**2 * self.whole.variance

    def cell(self, place: int) -> Total:
        """Return one part."""
        return Total(float(self.values[place]), self.variance(np.eye(len(self.values))[place]))


def whole_of(estimates: _Floats, variances: _Floats, whole: Total) -> Whole:
    """Adjust independent estimates by least squares so that they add up to a whole."""
    lacking = whole.value - estimates.sum()
    return Whole(estimates + variances / variances.sum() * lacking, variances, whole)


def nearest_counts(estimates: _Floats, variances: _Floats, total: float) -> _Floats:
    """Return the nearest nonnegative numbers that add up to a total.

    Distances are in standard deviations. The result is ``max(x - t v, 0)`` for an exact t.

    >>> nearest_counts(np.array([6.0, 5.0, -3.0]), np.ones(3), 9.0)
    array([5., 4., 0.])
    """
    if total <= 0.0:
        return np.zeros_like(estimates)
    # The threshold of each part, in the order in which parts vanish as t grows.
    order = np.argsort(-estimates / variances, kind="stable")
    sums, weights = np.cumsum(estimates[order]), np.cumsum(variances[order])
    thresholds = (sums - total) / weights
    last = np.flatnonzero(estimates[order] / variances[order] > thresholds)[-1]
    return np.asarray(np.maximum(estimates - thresholds[last] * variances, 0.0))


def nearest_table(estimates: _Floats, rows: _Floats, columns: _Floats) -> _Floats:
    """Return the nearest nonnegative table with the given row and column sums.

    By Dykstra's alternating projections (Boyle and Dykstra, "A method for finding projections onto
    the intersection of convex sets in Hilbert spaces", 1986).
    """
    x, by_rows, by_columns = estimates, np.zeros_like(estimates), np.zeros_like(estimates)
    ones_of_rows, ones_of_columns = np.ones(x.shape[1]), np.ones(x.shape[0])
    scale = _CLOSE * max(float(rows.sum()), 1.0)
    for _ in range(_MOST_ROUNDS):
        before = x + by_rows
        y = np.array(
            [nearest_counts(r, ones_of_rows, t) for r, t in zip(before, rows, strict=True)]
        )
        by_rows = before - y
        before = y + by_columns
        x = np.array(
            [nearest_counts(c, ones_of_columns, t) for c, t in zip(before.T, columns, strict=True)]
        ).T
        by_columns = before - x
        if np.abs(x.sum(axis=1) - rows).max() <= scale:
            break
    return x


@final
@dataclass(frozen=True, eq=False)
class Ranks:
    """Counts of the numbers of a column up to each edge of its m parts.

    ``cells`` are the counts in all cells, that of missing values last; ``bins`` are those that are
    divided. ``parts``, of shape (n_bins, n_parts), have ``part_variance`` before they are adjusted
    to their bins. ``nearest``, of shape (m + 2,), are the nearest counts that are not negative: at
    or below the low bound, in each part, and above.
    """

    edges: _Floats
    cells: Whole
    bins: slice
    parts: _Floats
    part_variance: float
    nearest: _Floats
    clustering: float = 1.0

    def quantile(self, q: float, z: float) -> Number:
        """Return a quantile of the present values, clipped to the bounds.

        The interval contains all cells that may contain the quantile: those with neither end
        rejected by a test at z standard deviations. It misses the quantile only if one of the two
        tests for the ends of the true cell errs.
        """
        q = check_real("q", q, least=0.0, most=1.0)
        excess, noise, present = self._excess(q)
        sampling = self.clustering * max(present, 1.0) * q * (1.0 - q)
        best, ends = self._estimate(q), []
        for variance in (noise, noise + sampling):
            low, high = self._within(excess, z * np.sqrt(variance))
            ends += [min(low, best), max(high, best)]
        return Number(best, *ends)

    def _excess(self, q: float) -> tuple[_Floats, _Floats, float]:
        """Return the counts up to each edge minus the rank, and their variances."""
        n_bins, n_parts = self.parts.shape
        whole = self.cells
        # Coefficients of whole cells before an edge, and of the parts of its bin.
        bins, parts = np.divmod(np.arange(n_bins * n_parts + 1), n_parts)
        c = np.zeros((len(bins), len(whole.values)))
        c[:, : self.bins.start] = 1.0
        for place in range(n_bins):
            c[:, self.bins.start + place] = np.clip(bins - place + parts / n_parts, 0.0, 1.0)
        here = np.append(self.parts, np.zeros((1, n_parts)), axis=0)
        even = np.append(whole.values[self.bins], 0.0) / n_parts
        within = np.array(
            [here[b, :p].sum() - p * even[b] for b, p in zip(bins, parts, strict=True)]
        )
        present = np.ones(len(whole.values))
        present[-1] = 0.0
        c -= q * present
        v, total = whole.variances, float(whole.variances.sum())
        through = c @ v / total
        noise = np.maximum(c**2 @ v - through * (c @ v), 0.0) + through**2 * whole.whole.variance
        noise += self.part_variance * parts * (1.0 - parts / n_parts)
        return c @ whole.values + within, noise, float(present @ whole.values)

    def _within(self, excess: _Floats, reach: _Floats) -> tuple[float, float]:
        # The cell up to the low bound, each part, the cell above the high one.
        begins_below = np.append(True, excess - reach <= 0.0)
        ends_above = np.append(excess + reach >= 0.0, True)
        held = np.flatnonzero(begins_below & ends_above)
        edges = np.concatenate([self.edges[:1], self.edges, self.edges[-1:]])
        return float(edges[held[0]]), float(edges[held[-1] + 1])

    def _estimate(self, q: float) -> float:
        counts = np.cumsum(self.nearest)
        rank = q * counts[-1]
        place = int(np.searchsorted(counts, rank * (1.0 - _LEAST), side="left"))
        place = min(place, len(counts) - 1)
        if place == 0:
            return float(self.edges[0])
        if place > len(self.edges) - 1:
            return float(self.edges[-1])
        size = max(self.nearest[place], _LEAST)
        share = min(max((rank - counts[place - 1]) / size, 0.0), 1.0)
        low, high = self.edges[place - 1 : place + 1]
        return float(low + share * (high - low))


Floats: TypeAlias = NDArray[np.float64]
Parts: TypeAlias = Mapping[str, Floats]
"""Released values by name."""
Key = TypeVar("Key", bound=Hashable)


def by_class(values: Parts) -> tuple[Floats, Floats]:
    """Return the counts of the rows of the first and of the second class."""
    first, second = values["counts"]
    return first, second


def public_rows(plan: Plan, chosen: bool) -> int | None:
    """Return the number of rows that count if it is public; ``chosen`` makes it private."""
    public = plan.adjacency.rows_are_public(plan.data.unit) and not chosen
    return plan.data.n_rows if public else None


@final
@dataclass(frozen=True, eq=False)
class ReleasedTables(Generic[Key]):
    """Released tables by key, without their weights; the first axis is the level of the rows.

    ``noise`` has the standard deviation in each cell; ``n_rows`` is None unless it is public.
    ``clustering`` bounds the increase of sampling variances by similar rows of a person: the
    variance of a sum of k numbers is at most k times the sum of their variances.
    """

    tables: Mapping[Key, Floats]
    noise: Mapping[Key, float]
    n_rows: int | None
    clustering: float

    @classmethod
    def of(
        cls,
        plan: Plan,
        cells: Mapping[Key, Cells],
        released: Floats,
        *,
        chosen: bool = False,
        has_levels: bool = True,
    ) -> ReleasedTables[Key]:
        """Read a released vector that ends with these tables.

        Without ``has_levels`` an axis of levels with length 1 is added.
        """
        sizes = [one.size for one in cells.values()]
        stops = list(itertools.accumulate(sizes, initial=len(released) - sum(sizes)))
        first = () if has_levels else (1,)
        tables = {
            key: released[start:stop].reshape(*first, *one.sizes) / one.weight
            for (key, one), (start, stop) in zip(
                cells.items(), itertools.pairwise(stops), strict=True
            )
        }
        noise = {key: plan.coefficient_noise / one.weight for key, one in cells.items()}
        return cls(tables, noise, public_rows(plan, chosen), plan.data.reach(1))

    def levels(self, n_levels: int) -> Iterator[ReleasedTables[Key]]:
        """Yield the tables of each level, if there are several, then those of all rows."""
        if n_levels > 1:
            for level in range(n_levels):
                tables = {key: one[level] for key, one in self.tables.items()}
                yield dataclasses.replace(self, tables=tables, n_rows=None)
        noise = {key: math.sqrt(n_levels) * one for key, one in self.noise.items()}
        tables = {key: one.sum(axis=0) for key, one in self.tables.items()}
        yield dataclasses.replace(self, tables=tables, noise=noise)

    def noisy(self, counts: Key, *others: Key) -> Noisy:
        """Return some tables, the first one with counts of all rows, for the delta method."""
        names = {"counts": counts} | {str(key): key for key in others}
        values = {name: self.tables[key] for name, key in names.items()}
        if self.n_rows is not None:
            own = values["counts"]
            values["counts"] = own + (self.n_rows - own.sum()) / own.size
        noise: dict[str, float | Floats] = {name: self.noise[key] for name, key in names.items()}
        return Noisy(values, noise, self.n_rows is not None, self.clustering)


@final
@dataclass(frozen=True, eq=False)
class Noisy:
    """Counts and other values with independent noise, and functions of them with intervals.

    ``values["counts"]`` are numbers of rows that add up to all rows. Their variance over samples of
    random size is the count. For numbers that do not change if all values double, that is the
    variance for a fixed size. With ``known_sum`` the number of all rows is public, and counts have
    been moved to it by equal parts. ``clustering`` is that of ``ReleasedTables``.
    """

    values: Parts
    noise: Mapping[str, float | Floats]
    known_sum: bool
    clustering: float = 1.0

    @property
    def counts(self) -> Floats:
        """Noisy counts of rows."""
        return self.values["counts"]

    @property
    def by_class(self) -> tuple[Floats, Floats]:
        """Noisy counts of the rows of the first and of the second class."""
        return by_class(self.values)

    @property
    def n_rows(self) -> float:
        """Noisy number of all rows, at least 1."""
        return max(float(self.counts.sum()), 1.0)

    def total(self, z: float) -> Number:
        """Return the number of all rows."""
        std = 0.0 if self.known_sum else float(self.noise["counts"])
        return number(float(self.counts.sum()), std**2 * self.counts.size, z, NumberScale(low=0.0))

    def number(
        self,
        function: Callable[[Parts], float],
        z: float,
        scale: NumberScale = SHARE,
        sampled: float | None = None,
        approximation: float = 0.0,
        unseen: float = 0.0,
    ) -> Number:
        """Return a smooth function of the values with its intervals, z standard deviations wide.

        ``sampled`` is the sampling variance where it does not follow from the counts;
        ``approximation`` the size of the error of the function itself. ``unseen`` is the variance
        of the part that depends on the rows but not on their counts: it widens the interval for
        these rows, and the population interval already includes it.
        """
        center = float(function(self.values))
        variance, of_counts = self.variances(self.slopes(function))
        variance += approximation**2
        sampled = of_counts if sampled is None else self.clustering * sampled
        unseen *= self.clustering
        if not math.isfinite(center + variance + sampled):
            return Number(math.nan, scale.low, scale.high, scale.low, scale.high)
        sampled = max(sampled - unseen, 0.0)
        return number(center, variance + unseen, z, scale, sampling_variance=sampled)

    def variances(self, slopes: Parts) -> tuple[float, float]:
        """Return the variances by noise and by sampling of a number with these derivatives."""
        counts = slopes["counts"]
        # Noise that changes the sum of counts was removed.
        noisy = {**slopes, "counts": counts - counts.mean()} if self.known_sum else slopes
        noise = math.fsum(
            float(((one * self.noise[name]) ** 2).sum()) for name, one in noisy.items()
        )
        sampled = float((counts**2 * np.maximum(self.counts, 0.0)).sum())
        return noise, self.clustering * sampled

    def slopes(self, function: Callable[[Parts], float]) -> Parts:
        """Return derivatives by central differences."""
        largest = max(float(np.abs(one).max(initial=0.0)) for one in self.values.values())
        slopes = {}
        for name, one in self.values.items():
            moved = np.array(one, np.float64)
            values = {**self.values, name: moved}
            found = np.empty(moved.shape)
            for place in np.ndindex(moved.shape):
                before = float(moved[place])
                step = 1e-5 * max(abs(before), 1.0 + largest)
                moved[place] = before + step
                up = function(values)
                moved[place] = before - step
                found[place] = (up - function(values)) / (2.0 * step)
                moved[place] = before
            slopes[name] = found
        return slopes


class TabulatedResult:
    """Base of results that are computed from released tables."""

    part: Any
    solution: Solution
    privacy_: Certificate
    _kind, _intervals = "", ""

    @property
    def level(self) -> float:
        """Confidence level of intervals."""
        level: float = self.part.level
        return level

    def with_level(self, level: float) -> Self:
        """Return the same result with another confidence level in (0, 1), at no privacy cost."""
        check_real("level", level, above=0.0, below=1.0)
        part = dataclasses.replace(self.part, level=level)
        return dataclasses.replace(self, part=part)  # type: ignore[type-var]

    @property
    def _chosen(self) -> bool:
        """Whether a private condition selected the rows, so that their number is private."""
        return self.privacy_.fact(WHERE) is not None

    def _guarantee(self) -> dict[str, Any]:
        """Return level and guarantee as plain values."""
        made = self.privacy_
        budget = {"epsilon": made.epsilon, "delta": made.delta}
        return {"level": self.level, **budget, "adjacency": made.adjacency.value}

    def _subject(self) -> str:
        n_rows = self.solution.plan.data.n_rows
        rows = "rows" if public_rows(self.solution.plan, False) is None else f"{n_rows} rows"
        return f"Private {self._kind} of {f'some of {n_rows} rows' if self._chosen else rows}"

    def _title(self) -> str:
        made = self.privacy_
        return f"{self._subject()}: {made.cost}, relation {made.adjacency.value}"

    def _lines(self) -> Iterable[str]:
        """Return the numbers as text."""
        return ()

    def summary(self) -> str:
        """Return the result as text for a terminal."""
        intervals = f"Intervals ({100.0 * self.level:g} %){self._intervals}"
        return "\n".join([self._title(), intervals, *self._lines()])

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<{self._title()}>"
