"""How strong the quadratic of objective perturbation is where the linear term is L2 noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dpglm.data.spec import DataSpec
from dpglm.solvers.minimizer.strongly_convex import PlannedObjective
from dpglm.solvers.parts.defaults import slope_unit

__all__ = ["PURE_INTERCEPT", "REACHED", "held_by_rows", "wanted_strengths"]

PURE_INTERCEPT = 0.5
"""Factor on the intercept column: above 1/4, as strengths are larger and classes may be rare."""

REACHED = 0.001
"""Rounding hides little enough where it hides less than this of what a row does."""

# Chosen on validation parts of the training rows of Adult and ACS employment, then frozen: the
# share of epsilon that the curvature takes, and the most of it at any epsilon.
_CURVATURE_SHARE, _LARGEST_RATIO = 0.12, 10.0
# Noise in the prediction of a row, in units of slope over curvature, if rows lie in all
# directions alike.
_NOISE = 0.08
# Where rounding hides too much the strength grows by this factor, up to this part of what rows in
# all directions alike hold each coefficient with.
_GROWTH, _LARGEST_PART = 2.0, 0.05


def wanted_strengths(
    planned: PlannedObjective, data: DataSpec, epsilon: float, given: float | None
) -> Iterator[float]:
    """List strengths to try, relative to the sum of losses, until rounding hides little enough.

    ``epsilon`` is that of one objective. A given strength is the only one.
    """
    if given is not None:
        yield 0.0
        return
    share = min(_CURVATURE_SHARE * epsilon, math.log1p(_LARGEST_RATIO))
    of_row = data.weight_bound * planned.curvature
    wanted = max(of_row / math.expm1(share), _bearable(planned, data, epsilon))
    yield wanted
    while wanted * _GROWTH <= _LARGEST_PART * of_row * data.n_rows / data.n_columns:
        wanted *= _GROWTH
        yield wanted


def _bearable(planned: PlannedObjective, data: DataSpec, epsilon: float) -> float:
    """Strength, relative to the sum of losses, at which noise in predictions is bearable.

    A vector of length ``s d`` in a random direction moves predictions of rows of length R by
    ``s R sqrt(d) / (strength + n q / (2 d))``: rows in all directions alike have the curvature
    ``n q / d`` in each, and half of them are clipped. Real rows lie in fewer directions, and hold
    these faster.
    """
    norm, columns = planned.data.augmented_row_norm, data.n_columns
    scale = planned.adjacency.sum_sensitivity(planned.clip * data.weight_bound) / epsilon
    bearable = _NOISE * slope_unit(planned.loss, planned.data) * norm / planned.curvature
    wanted = scale * math.sqrt(columns) / bearable
    return wanted - held_by_rows(planned, data)


def held_by_rows(planned: PlannedObjective, data: DataSpec) -> float:
    """Curvature of the sum of losses in each direction: rows are alike in all, half are clipped."""
    return 0.5 * data.n_rows * planned.curvature / data.n_columns
