"""How fine the curves of an additive model are, and how it is fitted: by public quantities."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

from dpglm._validation import check_count, check_integer
from dpglm.estimators.additive._rule import AMPLE, AS_DECLARED, MOST_FEATURES, Rule
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, is_pure
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.calibrated import Calibrated
from dpglm.solvers.second_order.newton import Newton
from dpglm.tables.additive.encoding import AdditiveEncoding
from dpglm.tables.additive.settings import MOST_SEGMENTS, Additive
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema

__all__ = ["Resolution", "resolved", "with_segments"]

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
