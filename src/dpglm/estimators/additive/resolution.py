"""How fine the curves of an additive model are, and how it is fitted: by public quantities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from dpglm._validation import check_integer
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import ApproximateDP, PrivacyBudget, is_pure
from dpglm.solvers.base import Solver
from dpglm.solvers.second_order.newton import Newton
from dpglm.tables.additive.encoding import AdditiveEncoding
from dpglm.tables.additive.settings import Additive
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema

__all__ = ["Resolution", "resolved"]

# ``python -m experiments.additive --grid`` measures what these do on development rows: so many
# segments at a signal of 60, and growth with this power; and with so many times the fifth root of
# rows for each curve there are enough to see a curve at all. Squared errors show more.
_SEGMENTS, _SIGNAL = 2.0, 60.0
_POWER, _PER_ROWS = 1.0 / 3.0, 1.5
_POWER_OF_SQUARES, _PER_ROWS_OF_SQUARES = 0.7, 4.0
# Below this signal a curve would be noise: a straight line.
_LEAST_SIGNAL = 15.0
_MOST_SEGMENTS, _MOST_OF_A_PAIR, _MOST_ODD = 20, 12, 3
_REACH, _PAIR_SHARE = 1.0, 1.2
# Newton's method is for signals per feature up to the last; its clip grows with them.
_LEAST_CLIP, _MOST_CLIP, _CLIP_GROWTH = 0.15, 0.75, 0.002
_MOST_FEATURES, _MOST_ENTRIES, _AMPLE = 299, 2**28, 300.0
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
        return (
            f"{self.settings.segments} segments for each numeric column without knots of its own"
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
    interactions: tuple[tuple[str, str], ...],
    segments: int | Literal["auto"],
    smoothness: float | Literal["auto"],
    pair_segments: int | Literal["auto"],
) -> Resolution:
    """Decide what was left to be decided."""
    for name, value in (("segments", segments), ("pair_segments", pair_segments)):
        if value != "auto":
            check_integer(name, value, least=1)
    mu = _mu(budget) / adjacency.sum_sensitivity(1.0)
    n_numeric = sum(isinstance(column, NumericColumn) for column in schema.columns)
    signal = n_rows * mu / max(n_numeric, 1)
    curves = segments
    if curves == "auto":
        curves = _segments(signal, n_rows / max(n_numeric, 1), is_squared=is_squared)
    usual = min(max(round(_PAIR_SHARE * curves), 1), _MOST_OF_A_PAIR)
    sides = usual if pair_segments == "auto" else pair_segments
    reach = _REACH if smoothness == "auto" else smoothness
    settings = Additive(curves, reach, interactions, sides)
    n_features = AdditiveEncoding(schema.columns, settings).n_features
    seen = n_rows * mu / (n_features + 1)
    return Resolution(settings, signal, seen, _solver(seen, n_rows, n_features))


def _segments(signal: float, rows: float, *, is_squared: bool) -> int:
    """Return the number of segments of each curve, for the signal and rows that there are for it.

    A curve of m segments misses a smooth effect by something of order ``m^-4`` in mean square.
    What noise adds grows with ``(m / signal)^2``, and what sampling adds with ``m / rows``: so the
    best m grows with the third root of the signal, and at most with the fifth root of the rows.
    """
    if signal < _LEAST_SIGNAL:
        return 1
    power = _POWER_OF_SQUARES if is_squared else _POWER
    most = (_PER_ROWS_OF_SQUARES if is_squared else _PER_ROWS) * rows**0.2
    wanted = max(math.ceil(_SEGMENTS * (signal / _SIGNAL) ** power), 2)
    found = int(min(wanted, max(round(most), 2), _MOST_SEGMENTS))
    # An even number has a knot in the middle.
    return found + found % 2 if found > _MOST_ODD else found


def _solver(seen: float, n_rows: int, n_features: int) -> Solver | None:
    """Return Newton's method for few features, unless signals are so ample that all is well.

    Its clip is smaller than its own default: rows of curves are about as long as each other, so
    that little is lost by clipping, and noise is less.
    """
    small = n_features <= _MOST_FEATURES and n_rows * n_features <= _MOST_ENTRIES
    if not small or seen > _AMPLE:
        return None
    return Newton(clip=min(max(_CLIP_GROWTH * seen, _LEAST_CLIP), _MOST_CLIP))


def _mu(budget: PrivacyBudget) -> float:
    """Return a budget as Gaussian differential privacy, at some delta where its own is 0."""
    if is_pure(budget):
        return ApproximateDP(float(budget.to_dict()["epsilon"]), _SOME_DELTA).gdp_mu()
    return budget.gdp_mu()
