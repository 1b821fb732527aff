"""The area under a ROC curve with its intervals, from noisy counts in cells of scores."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.evaluation.curves import area_under_roc, order_variance
from dpglm.evaluation.estimates import SHARE, Noisy
from dpglm.exploration.numbers import Number

__all__ = ["area_number"]

Floats: TypeAlias = NDArray[np.float64]

# Part of what the order within B cells is worth that is taken for an error of that estimate, times
# B^2: the error is of the next order, and was so large where scores tell classes best apart.
_UNSURE = 7.5


def area_number(noisy: Noisy, spread: Floats, z: float) -> Number:
    """Return the area, of counts of negatives and of positives in as many cells as ``spread`` has.

    ``spread`` says how spread the scores of each cell are: 0 if they are one, 1 if they all differ.
    """
    n_cells = len(spread)

    def area(values: Floats, spread: Floats | float = spread) -> float:
        return area_under_roc(values[:n_cells], values[n_cells : 2 * n_cells], spread)

    order = area(noisy.values) - area(noisy.values, 0.0)
    return noisy.number(
        area,
        z,
        SHARE,
        approximation=_UNSURE * order / n_cells**2,
        unseen=order_variance(noisy.values[:n_cells], noisy.values[n_cells : 2 * n_cells], spread),
    )
