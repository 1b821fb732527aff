"""How fine the curves of an additive model are, and how it is fitted: by public quantities."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, final

from dpglm._validation import check_integer
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, is_pure
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.calibrated import Calibrated
from dpglm.solvers.second_order.newton import Newton
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from dpglm.tables.additive.encoding import AdditiveEncoding
from dpglm.tables.additive.settings import Additive
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema

__all__ = ["Resolution", "resolved"]

# ``python -m experiments.additive --grid`` measures what these do on development rows: so many
# segments at this signal, growth with this power, and at most so many times the third root of rows
# for each curve. Squared errors show more.
_SEGMENTS, _SIGNAL, _SIGNAL_OF_SQUARES = 2.0, 60.0, 100.0
_POWER_OF_SQUARES = 0.85
_PER_ROWS, _PER_ROWS_OF_SQUARES = 0.43, 1.6
# Below this signal a curve would be noise: a straight line.
_LEAST_SIGNAL = 15.0
_MOST_ODD, _MOST_SEGMENTS, _MOST_OF_A_PAIR = 3, 20, 12
# Sums of money and the like have values that many rows share, which only fine curves see.
_SIGNAL_OF_LOGS, _POWER_OF_LOGS, _MOST_OF_LOGS = 470.0, 4, 80
_SMOOTH_SIGNAL, _LEAST_REACH, _PAIR_SHARE = 200.0, 0.1, 1.2
# Newton's method is for signals per feature up to the last. Its clip grows with what there is to
# see beyond the errors of sampling, mu times the root of rows per feature; that of squared errors
# with the signal. Where these say little, a larger clip keeps them from being shrunk to zero.
_LEAST_CLIP, _CLIP_GROWTH, _MOST_CLIP = 0.15, 0.04, 0.5
_CLIP_GROWTH_OF_SQUARES, _MOST_CLIP_OF_SQUARES = 0.002, 0.75
_LITTLE_SIGNAL, _MOST_CLIP_OF_LITTLE = 3.0, 0.5
_MOST_FEATURES, _MOST_ENTRIES, _AMPLE = 299, 2**28, 300.0
# Means that are factors need it for larger signals: noise in a direction that few rows show, as at
# the end of a curve, multiplies them.
_AMPLE_OF_FACTORS = 1200.0
# Of what noise there may be in Hessians for intervals, nearly all.
_MOST_HESSIAN_NOISE = 1.4
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
    solver : Solver, optional
        Newton's method where it is better than what linear models choose.
    """

    settings: Additive
    signal: float
    signal_per_feature: float
    solver: Solver | None = None

    def __str__(self) -> str:
        pairs = f", {self.settings.pair_segments} in interactions"
        logs = f", {self.settings.log_segments} where its scale is log"
        return (
            f"{self.settings.segments} segments for each numeric column without knots of its own"
            f"{logs if self.settings.log_segments else ''}"
            f"{pairs if self.settings.interactions else ''}, correlated over "
            f"{self.settings.reach:g} of its range: rows times mu are {self.signal:.3g} for each "
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
    inference: bool = False,
) -> Resolution:
    """Decide what was left to be decided, for ``inference`` so that Hessians can be seen.

    ``are_factors`` says that terms multiply means.
    """
    for name, value in (("segments", segments), ("pair_segments", pair_segments)):
        if value != "auto":
            check_integer(name, value, least=1)
    mu = _mu(budget) / adjacency.sum_sensitivity(1.0)
    n_numeric = sum(isinstance(column, NumericColumn) for column in schema.columns)
    signal = n_rows * mu / max(n_numeric, 1)
    usual_reach = max(_SMOOTH_SIGNAL / max(signal, _SMOOTH_SIGNAL), _LEAST_REACH)
    reach = usual_reach if smoothness == "auto" else smoothness

    def with_curves(curves: int) -> Additive:
        usual = min(max(round(_PAIR_SHARE * curves), 1), _MOST_OF_A_PAIR)
        sides = usual if pair_segments == "auto" else pair_segments
        return Additive(curves, reach, interactions, sides)

    if segments != "auto":
        settings = with_curves(segments)
    else:
        curves = _segments(signal, n_rows / max(n_numeric, 1), is_squared=is_squared)
        settings = with_curves(curves)
        if inference:
            while curves > 1 and not _shows_hessians(schema, settings, n_rows, mu):
                curves -= 1
                settings = with_curves(curves)
        else:
            logs = round(min((signal / _SIGNAL_OF_LOGS) ** _POWER_OF_LOGS, _MOST_OF_LOGS))
            settings = _with_logs(schema, settings, max(curves, logs))
    n_features = AdditiveEncoding(schema.columns, settings).n_features
    seen = n_rows * mu / (n_features + 1)
    solver = _solver(seen, n_rows, n_features, is_squared=is_squared, are_factors=are_factors)
    return Resolution(settings, signal, seen, solver)


def _segments(signal: float, rows: float, *, is_squared: bool) -> int:
    """Return the number of segments of each curve, for the signal and rows that there are for it.

    A curve of m segments misses an effect without jumps by something of order ``m^-2`` in mean
    square, and a smooth one by ``m^-4``. What noise adds grows with ``(m / signal)^2``, and what
    sampling adds with ``m / rows``: so the best m grows with a root of the signal between the
    square and the third one, and at most with the third root of the rows.
    """
    if signal < _LEAST_SIGNAL:
        return 1
    if is_squared:
        found: int = math.ceil(_SEGMENTS * (signal / _SIGNAL_OF_SQUARES) ** _POWER_OF_SQUARES)
        most = _PER_ROWS_OF_SQUARES * math.cbrt(rows)
        if 1 < found <= _MOST_ODD:
            return found
    else:
        found = math.ceil(_SEGMENTS * math.sqrt(signal / _SIGNAL))
        most = _PER_ROWS * math.cbrt(rows)
    # An even number has a knot in the middle.
    return max(2, min(found + found % 2, 2 * int(most / 2.0), _MOST_SEGMENTS))


def _shows_hessians(schema: Schema, settings: Additive, n_rows: int, mu: float) -> bool:
    """Whether Hessians, of which intervals are made, stand out of their noise."""
    n_features = AdditiveEncoding(schema.columns, settings).n_features
    data = DataSpec(n_rows, n_features, intercept=1.0)
    return hessian_noise(mu, data) <= _MOST_HESSIAN_NOISE


def _with_logs(schema: Schema, settings: Additive, segments: int) -> Additive:
    """Return settings with so many segments in columns of scale "log", if features stay few."""
    columns = [one for one in schema.columns if isinstance(one, NumericColumn)]
    fine = [one for one in columns if one.scale == "log" and one.knots is None]
    if not fine:
        return settings
    features = AdditiveEncoding(schema.columns, settings).n_features
    room = max(_MOST_FEATURES - features, 0) // len(fine)
    segments = min(segments, settings.segments + room)
    finer = segments > settings.segments
    return dataclasses.replace(settings, log_segments=segments) if finer else settings


def _solver(
    seen: float, n_rows: int, n_features: int, *, is_squared: bool, are_factors: bool
) -> Solver | None:
    """Return Newton's method for few features, unless signals are so ample that all is well.

    Its clip is often smaller than its own default: rows of curves are about as long as each other,
    so that little is lost by clipping, and noise is less. What a small clip does to the size of
    scores is made up for where there are two classes. That of means that are factors is its own.
    """
    small = n_features <= _MOST_FEATURES and n_rows * n_features <= _MOST_ENTRIES
    if not small or seen > (_AMPLE_OF_FACTORS if are_factors else _AMPLE):
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
