"""Public bounds at which losses are clipped before models are compared."""

from __future__ import annotations

import math

import numpy as np

from dpglm.data.spec import DataSpec
from dpglm.problem import Loss, Target

__all__ = ["default_loss_bound", "largest_at_zero", "largest_within"]

_OF_LOSS_AT_ZERO = 4.0


def largest_at_zero(loss: Loss, data: DataSpec) -> float:
    """Return the largest loss of a row whose prediction is zero, of a loss that is never negative.

    For real targets, whose bounds must be public, the larger of the values at both ends of their
    range; 1 if that is 0.

    Examples
    --------
    >>> from dpglm.problem import Squared
    >>> largest_at_zero(Squared(), DataSpec(100, 3, target_low=-2.0, target_high=1.0))
    2.0
    """
    if not loss.nonnegative:
        raise ValueError(
            f"loss must be one that is never negative to compare models by it, got {loss!r}"
        )
    if loss.target is Target.CLASS:
        n = data.n_outputs
        return float(loss.value(np.zeros((n, n)), np.arange(n)).max())
    ends = data.target_range(loss.target.bounds)
    if not all(map(math.isfinite, ends)):
        raise ValueError(f"targets must have public bounds to compare models, got {ends}")
    return float(loss.value(np.zeros(2), np.array(ends)).max()) or 1.0


def default_loss_bound(loss: Loss, data: DataSpec) -> float:
    """Return four times the largest loss at prediction zero.

    A model that is better than none has a mean loss below that at zero, so at most a quarter of its
    rows can lose as much as this.
    """
    return _OF_LOSS_AT_ZERO * largest_at_zero(loss, data)


def largest_within(loss: Loss, data: DataSpec, norm_bound: float) -> float:
    """Bound the loss of any row for coefficient vectors no longer than ``norm_bound``.

    The loss at zero plus the length of the longest prediction times the steepest slope.

    Examples
    --------
    >>> from dpglm.problem import Hinge
    >>> largest_within(Hinge(), DataSpec(100, 3, row_norm=2.0), 1.5)
    4.0
    """
    reach = norm_bound * data.augmented_row_norm
    steepest = loss.slope_bound_on(reach, *data.target_range(loss.target.bounds))
    return largest_at_zero(loss, data) + reach * steepest
