"""Where scores are counted: fine cells on the scale of log odds, and how many are merged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

__all__ = [
    "LARGEST_LOSS",
    "LEAST_FINE",
    "fine_cells",
    "n_cells_for",
    "n_fine_for",
    "score_edges",
    "within_cells",
]

Floats: TypeAlias = NDArray[np.float64]

_FARTHEST = 10.0
LARGEST_LOSS = 8.0
"""Log losses of rows are counted up to this, as of a probability of 0.0003."""
LEAST_FINE, _MOST_FINE, _FINE = 160, 1280, 8.0
_FEWEST, _MOST, _CELLS = 4, 16, 1.3
# Standard deviations of noise above which a fine cell is certain to hold rows.
_CLEAR = 3.0


def n_fine_for(n_rows: int, mu: float) -> int:
    """Return the number of fine cells, from the number of rows and the budget (mu-GDP).

    As fine as noise allows: that in a number of rows below a score has a standard deviation of
    about sqrt(F) / mu of F fine cells.
    """
    return int(min(max(n_rows * mu / _FINE, LEAST_FINE), _MOST_FINE))


def n_cells_for(n_rows: int, mu: float) -> int:
    """Return the number of merged cells, from the number of rows and the budget (mu-GDP).

    The area under the curve has an error of order B^-4 of B cells, and noise of variance B / (n
    mu)^2: their squares' sum is least at B of order (n mu)^(2/9); measured
    (``experiments.evaluation --develop``), 1.3 (n mu)^(1/4) serves from n mu = 100 to 15,000.
    """
    return int(min(max(round(_CELLS * (n_rows * mu) ** 0.25), _FEWEST), _MOST))


def score_edges(n_fine: int, thresholds: Sequence[float] = ()) -> tuple[float, ...]:
    """Return the inner ends of fine cells, as probabilities, thresholds among them.

    They are even in log odds.
    """
    ends = expit(np.linspace(-_FARTHEST, _FARTHEST, n_fine + 1)[1:-1])
    # Nothing else ends where rounding alone tells it from a threshold.
    given = np.asarray(thresholds, dtype=np.float64)
    apart = (np.abs(ends[:, np.newaxis] - given) > 1e-9).all(axis=1)
    return tuple(np.union1d(ends[apart], given).tolist())


def fine_cells(scores: NDArray[np.float64], edges: Sequence[float]) -> NDArray[np.intp]:
    """Return the fine cell of each score; a score at an end is in the cell above it."""
    return np.searchsorted(np.asarray(edges), scores, side="right")


def within_cells(
    lookup: NDArray[np.intp],
    there: NDArray[np.intp],
    fine: Floats,
    noise_std: float,
    edges: Sequence[float],
) -> tuple[Floats, Floats]:
    """Return each cell's mean score and how spread its scores are, from noisy fine counts.

    Scores are 0 spread if they are one, and 1 if they all differ: 1 - sum a^3, where parts a of the
    cell's rows share a score. So many rows as a fine cell has more than both its neighbours are
    taken to share one.
    """
    bounds, place = np.array([0.0, *edges, 1.0]), np.searchsorted(there, lookup)
    # Fine cells that could be empty count as such.
    clear = np.where(fine > _CLEAR * noise_std, fine, 0.0)
    rows = clear.sum(axis=0) + 1e-9
    means = np.bincount(place, rows * 0.5 * (bounds[1:] + bounds[:-1])) / np.bincount(place, rows)
    totals = np.maximum(fine.sum(axis=1, keepdims=True), 1.0)
    masses = (clear / totals).sum(axis=0)
    around = np.pad(masses, 1)
    shared = masses - np.minimum(masses, np.maximum(around[:-2], around[2:]))
    # What a cell holds for certain.
    reach = 2.0 * noise_std * np.sqrt(np.bincount(place) * (totals**-2.0).sum())
    whole = np.bincount(place, (fine / totals).sum(axis=0)) - reach
    whole = np.maximum(np.maximum(whole, np.bincount(place, masses)), 1e-9)
    spread = np.maximum(1.0 - np.bincount(place, (shared / whole[place]) ** 3), 0.0)
    return np.asarray(means, np.float64), np.asarray(spread, np.float64)
