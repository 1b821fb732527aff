"""The resolution of the curves of an additive model and its solver, from public facts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from dpglm._validation import check_count, check_integer
from dpglm.data.rows import DataSpec
from dpglm.privacy.budget import Adjacency, ApproximateDP, PrivacyBudget
from dpglm.solvers.auto import FEW_COLUMNS
from dpglm.solvers.base import Solver
from dpglm.solvers.second_order.newton import LEAST_CLIP, USUAL_CLIP, Newton
from dpglm.solvers.second_order.newton_raphson_settings import HARMLESS, NEGLIGIBLE, hessian_noise
from dpglm.tables.additive import MOST_SEGMENTS, Additive, AdditiveEncoding
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema

MOST_FEATURES = 299
"""Features up to which Newton's method is used, whatever the signal."""


@final
@dataclass(frozen=True)
class _Constants:
    """Constants of the rule.

    The wanted number of segments is ``2 (signal / unit)^power``, at most ``per_rows`` times the
    cube root of the rows per curve. ``_LINE_SHARE`` and ``per_signal`` bound the number of features
    that curves add: the square of all features minus the square of linear ones is at most
    ``_LINE_SHARE`` times the latter plus ``(per_signal * rows * mu)^2``. The number of segments of
    an interaction is ``of_pairs`` times the square root of its signal.
    """

    unit: float
    power: float
    per_rows: float
    per_signal: float
    of_pairs: float


# Chosen by ``python -m experiments.additive --grid``.
_LIKELIHOOD = _Constants(60.0, 0.5, 0.43, 1.0 / 122.0, 0.08)
_SQUARED = _Constants(100.0, 0.85, 1.6, 1.0 / 42.0, 0.18)
_LINE_SHARE = 0.6
# Curves are straight lines below the first signal per curve, and less smooth from the second on.
# Newton's method is not used above the third, a signal per feature.
_LEAST_SIGNAL, _SMOOTH_SIGNAL, AMPLE = 15.0, 200.0, 300.0
# Amounts of money bunch at round values, which only a fine grid resolves.
_SIGNAL_OF_LOGS, _MOST_OF_LOGS = 470.0, 80
# Even numbers of segments have a knot in the middle.
_CHOICES = (1, 2, *range(4, 21, 2))
_AS_DECLARED, _NOISE = "as declared", "as more would be noise"
_BY_SIGNAL, _BY_ROWS = "by rows times mu", "by the number of rows"
_LINES = "as more would add noise to straight effects"
_FEW = f"as more would be above {MOST_FEATURES} features"
_HESSIANS = "so that Hessians are above the noise level"


@final
@dataclass(frozen=True)
class ResolutionRule:
    """The public facts that determine the resolution, and the parameters that leave it open.

    ``mu`` is the budget as Gaussian DP per unit of a row's contribution.
    """

    schema: Schema
    n_rows: int
    mu: float
    is_squared: bool
    interactions: tuple[tuple[str, str], ...]
    smoothness: float | Literal["auto"]
    pair_segments: int | Literal["auto"]

    @property
    def signal(self) -> float:
        """Rows times mu per numeric column."""
        return self.n_rows * self.mu / self._n_numeric

    def signal_per_feature(self, n_features: int) -> float:
        """Return rows times mu per feature, intercept included."""
        return self.n_rows * self.mu / (n_features + 1)

    def n_features(self, settings: Additive) -> int:
        """Return the number of features under these settings."""
        return AdditiveEncoding(self.schema.plain_columns, settings).n_features

    def noise_in_hessians(self, settings: Additive) -> float:
        """Return the relative noise that a Hessian would have."""
        data = DataSpec(self.n_rows, self.n_features(settings), intercept=1.0)
        return hessian_noise(self.mu, data)

    def is_linear(self, settings: Additive, *, has_log_link: bool) -> bool:
        """Whether the default of linear models is best.

        Least squares, that of few columns, determine single bends better than Newton steps, as long
        as second moments exceed their noise.
        """
        terms = AdditiveEncoding(self.schema.plain_columns, settings).terms
        lines = (axis.line for term in terms for axis in term.axes)
        bends = max((len(line) - 2 for line in lines if line is not None), default=0)
        if bends == 0:
            return True
        if self.is_squared:
            is_small = self.n_features(settings) < FEW_COLUMNS
            return is_small and bends == 1 and self.noise_in_hessians(settings) <= 1.0
        return not has_log_link and self.noise_in_hessians(settings) <= HARMLESS

    def with_curves(self, segments: int) -> Additive:
        """Return settings with this number of segments per curve, and the rest by the rule.

        Those of interactions add at most half of ``MOST_FEATURES``, unless the signal is ample.
        """
        by_rule = max(_SMOOTH_SIGNAL / max(self.signal, _SMOOTH_SIGNAL), NEGLIGIBLE)
        smoothness = by_rule if self.smoothness == "auto" else self.smoothness
        settings = Additive(segments, smoothness, self.interactions, 1)
        if self.pair_segments != "auto":
            return dataclasses.replace(settings, pair_segments=self.pair_segments)
        most = self.n_features(settings) + MOST_FEATURES // 2
        for count in range(self._of_pairs, 1, -2):
            finer = dataclasses.replace(settings, pair_segments=count)
            n_features = self.n_features(finer)
            if n_features <= most or self.signal_per_feature(n_features) > AMPLE:
                return finer
        return settings

    @property
    def _of_pairs(self) -> int:
        """Wanted number of segments on each side of an interaction.

        The mean squared error of a surface of m segments on each side is of order ``m^-2`` for an
        effect without jumps. Noise adds ``(m / signal)^2`` if there are more other features. So the
        best m grows with the square root of the signal per interaction with a number. It is at most
        that of two numbers with half of ``MOST_FEATURES``.
        """
        names = {column.name for column in self._numeric}
        count = sum(1 for pair in self.interactions if names & set(pair))
        if not count or self.signal < _LEAST_SIGNAL:
            return 1
        signal = self.n_rows * self.mu / count
        wanted = 2 * round(0.5 * self._constants.of_pairs * math.sqrt(signal))
        return int(min(max(wanted, 1), math.isqrt(MOST_FEATURES // 2)))

    def chosen(self) -> tuple[Additive, str]:
        """Return the finest settings that are worth their noise, and the reason for the limit."""
        wanted, reason = self._wanted()
        choices = [one for one in _CHOICES if one <= wanted]
        for is_within, words in self._bounds():
            left = [one for one in choices if one == 1 or is_within(one)]
            if left[-1] < choices[-1]:
                reason = words
            choices = left
        best = choices[-1]
        # Half the segments with Newton-Raphson are better than all of them without.
        seen = [
            one
            for one in choices
            if 2 <= one >= best / 2 and self.noise_in_hessians(self._with_logs(one)) <= HARMLESS
        ]
        if seen and not self.is_squared:
            best, reason = seen[-1], reason if seen[-1] == best else _HESSIANS
        return self._with_logs(best), reason

    @property
    def _constants(self) -> _Constants:
        return _SQUARED if self.is_squared else _LIKELIHOOD

    def _wanted(self) -> tuple[int, str]:
        """Return the number of segments per curve for the signal and the rows.

        A curve of m segments has a mean squared error of order ``m^-2`` for an effect without
        jumps, and ``m^-4`` for a smooth one. Noise adds an error of order ``(m / signal)^2``, and
        sampling ``m / rows``. So the best m grows with a root of the signal between the square and
        the cube root, and at most with the cube root of the rows.
        """
        known, rows = self._constants, self.n_rows / self._n_numeric
        if self.signal < _LEAST_SIGNAL:
            return 1, _NOISE
        found = 2.0 * (self.signal / known.unit) ** known.power
        found = next((one for one in _CHOICES if one >= found), _CHOICES[-1])
        most = known.per_rows * math.cbrt(rows)
        if most < found:
            return max(2, 2 * int(most / 2.0)), _BY_ROWS
        return max(2, int(found)), _BY_SIGNAL

    def _bounds(self) -> Iterator[tuple[Callable[[int], bool], str]]:
        """Yield further bounds on the number of segments, and the words for each."""
        yield self._keeps_lines, _LINES
        yield self._is_small, _FEW

    def _keeps_lines(self, segments: int) -> bool:
        """Whether straight effects lose little to noise.

        The variance of noise in scores grows with the square of the number of features, and falls
        with that of rows times mu.
        """
        known = self._constants
        settings = dataclasses.replace(self.with_curves(segments), interactions=())
        encoding = AdditiveEncoding(self.schema.plain_columns, settings)
        curves = [axis.line for term in encoding.terms for axis in term.axes]
        bends = sum(len(line) - 2 for line in curves if line is not None)
        lines = encoding.n_features - bends
        most = (known.per_signal * self.n_rows * self.mu) ** 2 + _LINE_SHARE * lines**2
        return encoding.n_features**2 - lines**2 <= most

    def _is_small(self, segments: int) -> bool:
        fewest, count = (self.n_features(self.with_curves(one)) for one in (1, segments))
        is_ample = self.signal_per_feature(count) > AMPLE
        return count <= MOST_FEATURES or fewest > MOST_FEATURES or is_ample

    def _with_logs(self, segments: int) -> Additive:
        """Return settings with finer curves for columns of scale "log", if features stay few."""
        settings = self.with_curves(segments)
        signal = min(self.signal / _SIGNAL_OF_LOGS, _MOST_OF_LOGS)
        fine = [one for one in self._numeric if one.scale == "log" and one.knots is None]
        if not fine or segments == 1:
            return settings
        room = max(MOST_FEATURES - self.n_features(settings), 0) // len(fine)
        wanted = round(min(signal**4, _MOST_OF_LOGS))
        logs = min(wanted, segments + room)
        return dataclasses.replace(settings, log_segments=logs) if logs > segments else settings

    @property
    def all_have_knots(self) -> bool:
        """Whether every numeric column declares its knots."""
        return all(column.knots is not None for column in self._numeric)

    @property
    def _n_numeric(self) -> int:
        return max(len(self._numeric), 1)

    @property
    def _numeric(self) -> list[NumericColumn]:
        return [one for one in self.schema.plain_columns if isinstance(one, NumericColumn)]


# Newton's clipping threshold grows with the signal beyond sampling errors, mu times the root of
# rows per feature; for squared errors with the signal. A weak signal gets a larger threshold, which
# shrinks less. Chosen by ``python -m experiments.additive``, as is the signal below.
_CLIP_GROWTH, _CLIP_GROWTH_OF_SQUARES, _WEAK_SIGNAL, _MOST_CLIP = 0.04, 0.002, 3.0, 0.5
_MOST_ENTRIES = 2**28
# For log links Newton is better up to larger signals: they multiply the noise in directions with
# few rows, such as the end of a curve.
_AMPLE_FOR_LOG_LINKS = 1200.0
# The delta for comparing a budget with a delta of 0 with others.
_SOME_DELTA = 1e-6


@final
@dataclass(frozen=True)
class Resolution:
    """Segments and smoothness of curves, and the facts that they follow from.

    Parameters
    ----------
    settings : Additive
        Settings of the features.
    signal : float
        Number of rows times mu (of Gaussian differential privacy) per numeric column.
    signal_per_feature : float
        The same per feature.
    reason : str
        The reason for the number of segments, in words.
    solver : Solver, optional
        Newton's method where it is better than the default of linear models.
    """

    settings: Additive
    signal: float
    signal_per_feature: float
    reason: str
    solver: Solver | None = None

    def __str__(self) -> str:
        settings = self.settings
        count = "1 segment" if settings.segments == 1 else f"{settings.segments} segments"
        logs = f" ({settings.log_segments} on a log scale)" if settings.log_segments else ""
        pairs = f", {settings.pair_segments} on each side of interactions"
        return (
            f"{count} for each numeric column{logs}{pairs if settings.interactions else ''}, "
            f"{self.reason}"
        )


def resolved(
    schema: Schema,
    n_rows: int,
    budget: PrivacyBudget,
    adjacency: Adjacency,
    *,
    is_squared: bool,
    has_log_link: bool,
    interactions: tuple[tuple[str, str], ...],
    segments: int | Literal["auto"],
    smoothness: float | Literal["auto"],
    pair_segments: int | Literal["auto"],
) -> Resolution:
    """Choose the settings that are left open."""
    for name, value in (("segments", segments), ("pair_segments", pair_segments)):
        if value != "auto":
            check_count(name, value)
    if budget.is_pure:
        budget = ApproximateDP(float(budget.to_dict()["epsilon"]), _SOME_DELTA)
    mu = budget.gdp_mu() / adjacency.sum_sensitivity(1.0)
    rule = ResolutionRule(schema, n_rows, mu, is_squared, interactions, smoothness, pair_segments)
    if segments == "auto":
        settings, reason = rule.chosen()
    else:
        settings, reason = rule.with_curves(segments), _AS_DECLARED
    if rule.all_have_knots:
        reason = "as declared in the schema"
    n_features = rule.n_features(settings)
    signal = rule.signal_per_feature(n_features)
    as_linear = rule.is_linear(settings, has_log_link=has_log_link)
    facts = {"is_squared": is_squared, "has_log_link": has_log_link}
    solver = None if as_linear else _solver(signal, n_rows, n_features, **facts)
    return Resolution(settings, rule.signal, signal, reason, solver)


def with_segments(schema: Schema, segments: Mapping[Any, Any]) -> Schema:
    """Return a schema with equally spaced knots for columns with a declared number of segments."""
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


def _solver(
    signal: float, n_rows: int, n_features: int, *, is_squared: bool, has_log_link: bool
) -> Solver | None:
    """Return Newton's method for few features and signals that are not ample.

    Its clipping threshold is often below its default: rows of curves have similar norms, so a
    smaller threshold loses little and reduces the noise.
    """
    small = n_features <= MOST_FEATURES and n_rows * n_features <= _MOST_ENTRIES
    if not small or signal > (_AMPLE_FOR_LOG_LINKS if has_log_link else AMPLE):
        return None
    if has_log_link:
        return Newton()
    if not is_squared:
        over_sampling = signal * math.sqrt((n_features + 1) / n_rows)
        return Newton(clip=min(LEAST_CLIP + _CLIP_GROWTH * over_sampling, _MOST_CLIP))
    least = max(LEAST_CLIP, min(_WEAK_SIGNAL / signal, _MOST_CLIP))
    return Newton(clip=min(max(_CLIP_GROWTH_OF_SQUARES * signal, least), USUAL_CLIP))
