"""A bound that hardly any score exceeds, from noisy counts of scores. Post-processing."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.row_sums.shells import N_SHELLS, Shells
from dpglm.solvers.second_order.least_squares.equations import Coordinates, Fit

__all__ = ["first_empty", "score_shells"]

_RATIO = 2.0 ** (1.0 / 3.0)
# Deviations of noise that a shell's count must exceed, and more so many shells further out.
_STANDS_OUT, _FURTHER_OUT = 1.5, 0.2


def score_shells(at: Coordinates, fit: Fit) -> Shells:
    """Shells of scores, from the root mean square of their lengths on."""
    return Shells(math.sqrt((at.mean_square + at.level**2) * fit.variance), _RATIO)


def first_empty(shells: Shells, counts: NDArray[np.float64], noise: float) -> float:
    """Find the length from which on no run of shells holds more rows than noise may be."""
    below = np.concatenate([[0.0], np.cumsum(counts)])
    for k in range(N_SHELLS):
        beyond = np.arange(N_SHELLS - k)
        most = (_STANDS_OUT + _FURTHER_OUT * beyond) * noise * np.sqrt(beyond + 1.0)
        if not (below[k + 1 :] - below[k] > most).any():
            return shells.start(k)
    return shells.start(N_SHELLS)
