"""How many segments curves get: a rule of public quantities."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, final

from dpglm.data.spec import DataSpec
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from dpglm.tables.additive.encoding import AdditiveEncoding
from dpglm.tables.additive.settings import Additive
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema

__all__ = ["AMPLE", "AS_DECLARED", "MOST_FEATURES", "Rule"]

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
