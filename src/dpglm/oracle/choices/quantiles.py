"""A private quantile of numbers that rows have, and of their distances from a point."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.choices.distances import distances
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.releases import Bounded, Release
from dpglm.privacy.selection.mechanisms import ExponentialMechanismOverRuns, Runs

__all__ = ["CELLS", "RankRelease", "choose_quantile", "noisy_radius", "radii", "rank_release"]

RankRelease: TypeAlias = Release[Runs, int]
"""A release of a candidate by ranks."""

CELLS = 4096
_LEAST = 1e-12


def radii(largest: float) -> NDArray[np.float64]:
    """Return the 4096 radii of ``noisy_radius``, 0.7 % apart, from 1e-12 of the largest up."""
    return np.asarray(np.geomspace(_LEAST * largest, largest, CELLS))


def rank_release(
    quantity: str, adjacency: Adjacency, epsilon: float, count: int = 1
) -> RankRelease:
    """Declare choices by the number of rows up to a candidate.

    Privacy: ``BoundedRange(epsilon)`` each. Adding, removing or replacing a row moves either end
    of the interval of ranks by at most 1, so every score by at most 1. Scores are whole numbers:
    nothing is rounded. Under replace-one twice the sensitivity is charged.
    """
    return Release(quantity, ExponentialMechanismOverRuns(epsilon), adjacency, 1.0, count=count)


def choose_quantile(
    curator: Curator,
    declared: RankRelease,
    cells: NDArray[np.int64],
    n_cells: int,
    rank: int,
) -> int:
    """Choose the cell in which the row of the given public rank lies, up to noise.

    ``cells`` holds the (private) cell of each row, from 0 to ``n_cells - 1``, with ``n_cells`` at
    most 2^52. The score of cell k is the distance of the rank from the interval that begins with
    the number of rows in cells before k and ends with that in cells up to k, so a cell that holds
    many rows covers many ranks. Empty cells between two occupied ones are one run. Smith,
    "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011,
    Algorithm 2.

    Privacy: ``declared.event``; each cell must be computed from its own row alone.
    """
    taken, counts = np.unique(cells, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    edges = np.concatenate([[-1], taken, [n_cells]])
    # One run before each taken cell and after the last, and one for each taken cell.
    lengths = np.ones(2 * taken.size + 1, np.int64)
    lengths[::2] = np.diff(edges) - 1
    scores = np.zeros(lengths.size)
    scores[::2] = np.abs(below - rank)
    scores[1::2] = np.maximum(np.maximum(below[:-1] - rank, rank - below[1:]), 0)
    kept = lengths > 0
    return curator.release(declared, Bounded(Runs(scores[kept], lengths[kept]), 1.0))


def noisy_radius(
    oracle: Oracle,
    declared: RankRelease,
    center: NDArray[np.float64],
    largest: float,
    quantile: float,
) -> float:
    """Release the radius of ``radii(largest)`` within which a given share of the rows lies.

    Center and ``largest`` are public; longer distances count as ``largest``. Except with
    probability p, the number of rows within the radius is off by at most ``2 log(4096 / p) /
    epsilon``.

    Privacy: ``declared.event``; a distance is computed from its own row alone.
    """
    public = radii(largest)
    cells = np.searchsorted(public[:-1], distances(oracle, center), side="left")
    rank = round(quantile * oracle.rows.spec.n_rows)
    chosen = choose_quantile(oracle.curator, declared, cells.astype(np.int64), CELLS, rank)
    return float(public[chosen])
