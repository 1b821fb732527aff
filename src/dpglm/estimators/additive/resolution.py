"""How fine the curves of an additive model are, and how it is fitted: by public quantities."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from dpglm._validation import check_count, check_integer
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, is_pure
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.calibrated import Calibrated
from dpglm.solvers.second_order.newton import Newton
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from dpglm.tables.additive import MOST_SEGMENTS, Additive, AdditiveEncoding
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema

# How many segments curves get: a rule of public quantities.

MOST_FEATURES, AMPLE = 299, 300.0
"""Features up to which there is Newton's method, unless the signal of each is so much."""

# ``python -m experiments.additive --grid`` measures what these do on development rows: so many
# segments at this signal, growth with this power, and at most so many times the third root of rows
# for each curve. Squared errors show more.
_SEGMENTS, _SIGNAL, _SIGNAL_OF_SQUARES = 2.0, 60.0, 100.0
_POWER_OF_SQUARES = 0.85
_PER_ROWS, _PER_ROWS_OF_SQUARES = 0.43, 1.6
# Below this signal a curve would be noise: a straight line.
_LEAST_SIGNAL = 15.0
# An even number has a knot in the middle.
_CHOICES, _CHOICES_OF_SQUARES = (1, 2, *range(4, 21, 2)), (1, 2, 3, *range(4, 21, 2))
# What curves may add to the square of the number of features: this share of what lines and levels
# have, and the square of this many for each row times mu.
_OF_LINES, _OF_LINES_OF_SQUARES = 0.55, 0.6
_AFFORDED, _AFFORDED_OF_SQUARES = 1.0 / 122.0, 1.0 / 42.0
_MOST_OF_A_PAIR, _PAIR_SHARE = 12, 1.2
# Sums of money and the like have values that many rows share, which only fine curves see.
_SIGNAL_OF_LOGS, _POWER_OF_LOGS, _MOST_OF_LOGS = 470.0, 4, 80
_SMOOTH_SIGNAL, _LEAST_REACH = 200.0, 0.1
# Noise in Hessians up to which Newton-Raphson, which linear models take then, is the better method;
# and up to which intervals cover at the ends of columns, where few rows may be.
_MOST_HESSIAN_NOISE, _MOST_FOR_INTERVALS = 0.3, 0.25
AS_DECLARED, _LITTLE = "as declared", "as more would be noise"
_BY_SIGNAL, _BY_ROWS = "by rows times mu", "by the number of rows"
_CHEAP = "as more would add noise to straight effects"
_FEW = f"as more would be above {MOST_FEATURES} features"
_SEEN = "so that Hessians can be seen through their noise"


@final
@dataclass(frozen=True)
class Rule:
    """Public facts that the resolution follows from, and the parameters that leave it open.

    ``mu`` is the budget as Gaussian DP over the contribution of a row. ``accepts`` is for intervals
    alone: whether the solver that will run can give them.
    """

    schema: Schema
    n_rows: int
    mu: float
    is_squared: bool
    interactions: tuple[tuple[str, str], ...]
    smoothness: float | Literal["auto"]
    pair_segments: int | Literal["auto"]
    accepts: Callable[[Additive], bool] | None

    @property
    def signal(self) -> float:
        """Rows times mu for each numeric column."""
        return self.n_rows * self.mu / self._n_numeric

    def signal_of(self, n_features: int) -> float:
        """Return rows times mu for each feature, and the intercept."""
        return self.n_rows * self.mu / (n_features + 1)

    def n_features(self, settings: Additive) -> int:
        """Return the number of features that settings make."""
        return AdditiveEncoding(self.schema.columns, settings).n_features

    def shows_hessians(self, settings: Additive, most: float = _MOST_HESSIAN_NOISE) -> bool:
        """Whether Hessians stand out of their noise."""
        data = DataSpec(self.n_rows, self.n_features(settings), intercept=1.0)
        return hessian_noise(self.mu, data) <= most

    def with_curves(self, segments: int) -> Additive:
        """Return settings with so many segments in each curve, and the rest by the rule."""
        usual = min(max(round(_PAIR_SHARE * segments), 1), _MOST_OF_A_PAIR)
        sides = usual if self.pair_segments == "auto" else self.pair_segments
        return Additive(segments, self._reach, self.interactions, sides)

    def chosen(self) -> tuple[Additive, str]:
        """Return the finest settings that are worth their noise, and what keeps them from more."""
        wanted, reason = self._wanted()
        choices = [one for one in self._choices if one <= wanted]
        for bound, words in self._bounds():
            left = [one for one in choices if one == 1 or bound(one)]
            if left[-1] < choices[-1]:
                reason = words
            choices = left
        best = choices[-1]
        if self.accepts is not None:
            return self.with_curves(best), reason
        # Half of them with the better method are the better ones.
        seen = [one for one in choices if 2 <= one >= best / 2 and self._is_seen(one)]
        if seen and not self.is_squared:
            best, reason = seen[-1], reason if seen[-1] == best else _SEEN
        return self._with_logs(self.with_curves(best)), reason

    @property
    def _choices(self) -> tuple[int, ...]:
        return _CHOICES_OF_SQUARES if self.is_squared else _CHOICES

    def _wanted(self) -> tuple[int, str]:
        """Return the number of segments of each curve, for the signal and rows there are for it.

        A curve of m segments misses an effect without jumps by something of order ``m^-2`` in mean
        square, and a smooth one by ``m^-4``. What noise adds grows with ``(m / signal)^2``, and
        what sampling adds with ``m / rows``: so the best m grows with a root of the signal between
        the square and the third one, and at most with the third root of the rows.
        """
        signal, rows = self.signal, self.n_rows / self._n_numeric
        if signal < _LEAST_SIGNAL:
            return 1, _LITTLE
        if self.is_squared:
            found = _SEGMENTS * (signal / _SIGNAL_OF_SQUARES) ** _POWER_OF_SQUARES
            most = _PER_ROWS_OF_SQUARES * math.cbrt(rows)
        else:
            found = _SEGMENTS * math.sqrt(signal / _SIGNAL)
            most = _PER_ROWS * math.cbrt(rows)
        found = next((one for one in self._choices if one >= found), self._choices[-1])
        if most < found:
            return max(2, 2 * int(most / 2.0)), _BY_ROWS
        return max(2, int(found)), _BY_SIGNAL

    def _bounds(self) -> Iterator[tuple[Callable[[int], bool], str]]:
        """Yield what else bounds the number of segments, and the words for it."""
        yield self._is_cheap, _CHEAP
        yield self._is_small, _FEW
        if self.accepts is not None:
            yield self._has_intervals, "as intervals would not hold with more"

    def _is_cheap(self, segments: int) -> bool:
        """Whether straight effects lose little to noise.

        Its variance in scores grows with the square of the number of features, and falls with that
        of rows times mu.
        """
        if self.is_squared:
            share, afforded = _OF_LINES_OF_SQUARES, _AFFORDED_OF_SQUARES
        else:
            share, afforded = _OF_LINES, _AFFORDED
        encoding = AdditiveEncoding(self.schema.columns, Additive(segments, self._reach))
        curves = [axis.line for term in encoding.terms for axis in term.axes]
        bends = sum(len(line) - 2 for line in curves if line is not None)
        lines = encoding.n_features - bends
        added = encoding.n_features**2 - lines**2
        return added <= (afforded * self.n_rows * self.mu) ** 2 + share * lines**2

    def _is_small(self, segments: int) -> bool:
        fewest, count = (self.n_features(self.with_curves(one)) for one in (1, segments))
        return count <= MOST_FEATURES or fewest > MOST_FEATURES or self.signal_of(count) > AMPLE

    def _is_seen(self, segments: int) -> bool:
        return self.shows_hessians(self._with_logs(self.with_curves(segments)))

    def _has_intervals(self, segments: int) -> bool:
        settings = self.with_curves(segments)
        assert self.accepts is not None
        # What least squares releases instead of Hessians its solver judges.
        shown = self.is_squared or self.shows_hessians(settings, _MOST_FOR_INTERVALS)
        return shown and self.accepts(settings)

    def _with_logs(self, settings: Additive) -> Additive:
        """Return settings with finer curves of columns of scale "log", if features stay few."""
        signal = min(self.signal / _SIGNAL_OF_LOGS, _MOST_OF_LOGS)
        segments = round(min(signal**_POWER_OF_LOGS, _MOST_OF_LOGS))
        fine = [one for one in self._numeric if one.scale == "log" and one.knots is None]
        if not fine or settings.segments == 1:
            return settings
        room = max(MOST_FEATURES - self.n_features(settings), 0) // len(fine)
        segments = min(segments, settings.segments + room)
        if segments <= settings.segments:
            return settings
        return dataclasses.replace(settings, log_segments=segments)

    @property
    def all_have_knots(self) -> bool:
        """Whether no numeric column leaves its knots open."""
        return all(column.knots is not None for column in self._numeric)

    @property
    def _n_numeric(self) -> int:
        return max(len(self._numeric), 1)

    @property
    def _numeric(self) -> list[NumericColumn]:
        return [one for one in self.schema.columns if isinstance(one, NumericColumn)]

    @property
    def _reach(self) -> float:
        if self.smoothness != "auto":
            return self.smoothness
        return max(_SMOOTH_SIGNAL / max(self.signal, _SMOOTH_SIGNAL), _LEAST_REACH)


# Newton's clip grows with what there is to see beyond the errors of sampling, mu times the root of
# rows per feature; that of squared errors with the signal. Where these say little, a larger clip
# keeps them from being shrunk to zero.
_LEAST_CLIP, _CLIP_GROWTH, _MOST_CLIP = 0.15, 0.04, 0.5
_CLIP_GROWTH_OF_SQUARES, _MOST_CLIP_OF_SQUARES = 0.002, 0.75
_LITTLE_SIGNAL, _MOST_CLIP_OF_LITTLE = 3.0, 0.5
_MOST_ENTRIES = 2**28
# Means that are factors need it for larger signals: noise in a direction that few rows show, as at
# the end of a curve, multiplies them.
_AMPLE_OF_FACTORS = 1200.0
# A delta to see a budget with a delta of 0 by.
_SOME_DELTA = 1e-6


@final
@dataclass(frozen=True)
class Resolution:
    """Segments and smoothness of curves, and what they follow from.

    Parameters
    ----------
    settings : Additive
        What the features are made by.
    signal : float
        Number of rows times mu (of Gaussian differential privacy), divided by the number of numeric
        columns: what there is for each curve.
    signal_per_feature : float
        The same, divided by the number of features.
    reason : str
        What the number of segments follows from, in words.
    solver : Solver, optional
        Newton's method where it is better than what linear models choose.
    """

    settings: Additive
    signal: float
    signal_per_feature: float
    reason: str
    solver: Solver | None = None

    def __str__(self) -> str:
        settings = self.settings
        count = "1 segment" if settings.segments == 1 else f"{settings.segments} segments"
        logs = f", {settings.log_segments} where its scale is log"
        pairs = f", {settings.pair_segments} on each side of interactions"
        return (
            f"{count} for each numeric column without knots of its own"
            f"{logs if settings.log_segments else ''}"
            f"{pairs if settings.interactions else ''}, {self.reason}; correlated over "
            f"{settings.reach:g} of its range. Rows times mu are {self.signal:.3g} for each "
            f"numeric column, {self.signal_per_feature:.3g} for each feature"
        )


def resolved(
    schema: Schema,
    n_rows: int,
    budget: PrivacyBudget,
    adjacency: Adjacency,
    *,
    is_squared: bool,
    are_factors: bool,
    interactions: tuple[tuple[str, str], ...],
    segments: int | Literal["auto"],
    smoothness: float | Literal["auto"],
    pair_segments: int | Literal["auto"],
    accepts: Callable[[Additive], bool] | None = None,
) -> Resolution:
    """Decide what was left to be decided.

    ``are_factors`` says that terms multiply means; ``accepts`` is for intervals: whether the solver
    that will run can give them.
    """
    for name, value in (("segments", segments), ("pair_segments", pair_segments)):
        if value != "auto":
            check_count(name, value)
    mu = _mu(budget) / adjacency.sum_sensitivity(1.0)
    rule = Rule(schema, n_rows, mu, is_squared, interactions, smoothness, pair_segments, accepts)
    if segments == "auto":
        settings, reason = rule.chosen()
    else:
        settings, reason = rule.with_curves(segments), AS_DECLARED
    if rule.all_have_knots:
        reason = "of which there is none"
    n_features = rule.n_features(settings)
    seen = rule.signal_of(n_features)
    solver = None
    # Lines and levels are a linear model, and Newton-Raphson is what that takes where it can.
    as_linear = not _has_bends(schema, settings) or (
        not (is_squared or are_factors) and rule.shows_hessians(settings)
    )
    if not as_linear:
        solver = _solver(seen, n_rows, n_features, is_squared=is_squared, are_factors=are_factors)
    return Resolution(settings, rule.signal, seen, reason, solver)


def with_segments(schema: Schema, segments: Mapping[Any, Any]) -> Schema:
    """Return a schema that lists knots for columns whose number of segments is stated."""
    curved = {
        column.name: column
        for column in schema.columns
        if isinstance(column, NumericColumn) and column.knots is None
    }
    for name, count in segments.items():
        if name not in curved:
            raise ValueError(
                f"segments must be of numeric columns of the schema without knots, got {name!r}; "
                f"these are {', '.join(curved) or 'none'}"
            )
        if check_integer(f"segments of {name!r}", count, least=1) > MOST_SEGMENTS:
            raise ValueError(f"segments of {name!r} must be at most {MOST_SEGMENTS}, got {count}")
        knots = tuple(curved[name].spaced(int(count)).tolist())
        curved[name] = dataclasses.replace(curved[name], knots=knots)
    columns = tuple(curved.get(column.name, column) for column in schema.columns)
    return dataclasses.replace(schema, columns=columns)


def _has_bends(schema: Schema, settings: Additive) -> bool:
    """Whether a curve, or a scale of levels that are ordered, has a knot within."""
    axes = [axis for term in AdditiveEncoding(schema.columns, settings).terms for axis in term.axes]
    return any(axis.line is not None and len(axis.line) > 2 for axis in axes)


def _solver(
    seen: float, n_rows: int, n_features: int, *, is_squared: bool, are_factors: bool
) -> Solver | None:
    """Return Newton's method for few features, unless signals are so ample that all is well.

    Its clip is often smaller than its own default: rows of curves are about as long as each other,
    so that little is lost by clipping, and noise is less. What a small clip does to the size of
    scores is made up for where there are two classes. That of means that are factors is its own.
    """
    small = n_features <= MOST_FEATURES and n_rows * n_features <= _MOST_ENTRIES
    if not small or seen > (_AMPLE_OF_FACTORS if are_factors else AMPLE):
        return None
    if are_factors:
        return Newton()
    if not is_squared:
        over_sampling = seen * math.sqrt((n_features + 1) / n_rows)
        return Calibrated(Newton(clip=min(_LEAST_CLIP + _CLIP_GROWTH * over_sampling, _MOST_CLIP)))
    least = max(_LEAST_CLIP, min(_LITTLE_SIGNAL / seen, _MOST_CLIP_OF_LITTLE))
    return Newton(clip=min(max(_CLIP_GROWTH_OF_SQUARES * seen, least), _MOST_CLIP_OF_SQUARES))


def _mu(budget: PrivacyBudget) -> float:
    """Return a budget as Gaussian differential privacy, at some delta where its own is 0."""
    if is_pure(budget):
        return ApproximateDP(float(budget.to_dict()["epsilon"]), _SOME_DELTA).gdp_mu()
    return budget.gdp_mu()
