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
    """List the radii that ``noisy_radius`` chooses from.

    Parameters
    ----------
    largest : float
        Public; above 0.

    Returns
    -------
    ndarray of shape (4096,)
        From a trillionth of the largest up to it, 0.7 % apart.
    """
    return np.asarray(np.geomspace(_LEAST * largest, largest, CELLS))


def rank_release(
    quantity: str, adjacency: Adjacency, epsilon: float, count: int = 1
) -> RankRelease:
    """Declare choices by how many rows are up to a candidate.

    Notes
    -----
    Privacy: ``BoundedRange(epsilon)`` each. A row more, a row less or another row moves either
    end of the interval of ranks by at most 1, so every score by at most 1. Scores are whole
    numbers: nothing is rounded. Under replace-one twice the sensitivity is charged.
    """
    return Release(quantity, ExponentialMechanismOverRuns(epsilon), adjacency, 1.0, count=count)


def choose_quantile(
    curator: Curator,
    declared: RankRelease,
    cells: NDArray[np.int64],
    n_cells: int,
    rank: int,
) -> int:
    """Choose a cell near which as many rows end as the rank says.

    Parameters
    ----------
    curator : Curator
        Makes the choice.
    declared : Release
        Made by ``rank_release``.
    cells : ndarray of int64, shape (n,)
        The cell of each row, from 0 to ``n_cells - 1``; of its own values alone. Private.
    n_cells : int
        How many cells there are, at most 2^52. Public.
    rank : int
        How many rows should be in cells up to the chosen one. Public.

    Returns
    -------
    int
        The cell.

    Notes
    -----
    The score of cell k is the distance of the rank from the interval that begins with the number
    of rows in cells before k and ends with that in cells up to k; so a cell that holds many rows
    is as good as it should be. Cells without rows between two with rows are one run.

    Privacy: ``declared.event``.

    References
    ----------
    Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC
    2011, Algorithm 2.
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
    """Release a radius around a point within which a given share of the rows lies.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    declared : Release
        Made by ``rank_release``.
    center : ndarray of shape (n_features,)
        Public.
    largest : float
        Public bound on distances; longer ones count as this.
    quantile : float
        The share, in (0, 1).

    Returns
    -------
    float
        One of ``radii(largest)``.

    Notes
    -----
    Except with probability p, the number of rows within the radius is off by at most
    ``2 log(4096 / p) / epsilon``.

    Privacy: ``declared.event``; a distance is computed from its own row alone.
    """
    public = radii(largest)
    cells = np.searchsorted(public[:-1], distances(oracle, center), side="left")
    rank = round(quantile * oracle.rows.spec.n_rows)
    chosen = choose_quantile(oracle.curator, declared, cells.astype(np.int64), CELLS, rank)
    return float(public[chosen])
