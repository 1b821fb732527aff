"""Private quantiles of rows: medians along directions, and radii around a point."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.data.prepare import row_lengths
from dpglm.data.rows import Block, Kernel
from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.means import centered_rows, counted
from dpglm.oracle.row_sums.moments import row_by_row_product
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.releases import Bounded, Release
from dpglm.privacy.selection.mechanisms import (
    AboveThreshold,
    ExponentialMechanismOverRuns,
    Runs,
)

__all__ = [
    "CELLS",
    "UNBOUNDED_RADII",
    "CountRelease",
    "RankRelease",
    "cells_along",
    "choose_quantile",
    "distances",
    "noisy_medians",
    "noisy_radius",
    "noisy_unbounded_radius",
    "radii",
    "rank_release",
    "unbounded_radius_release",
]

RankRelease: TypeAlias = Release[Runs, int]
"""A choice of a candidate by ranks."""

CountRelease: TypeAlias = Release[NDArray[np.int64], int]
"""A choice of where growing counts reach a threshold."""

CELLS = 4096
_LEAST = 1e-12
_FINE_CELLS = 2**40
# So many directions at a time keep memory low.
_DIRECTIONS = 64

UNBOUNDED_RADII: NDArray[np.float64] = np.geomspace(SMALLEST, 2.0 * LARGEST, 3573)
"""From the least to the greatest distance that rows may have, in steps of 2 %."""
UNBOUNDED_RADII.flags.writeable = False


def radii(largest: float) -> NDArray[np.float64]:
    """Return the 4096 radii of ``noisy_radius``, 0.7 % apart, from 1e-12 of the largest up."""
    return np.asarray(np.geomspace(_LEAST * largest, largest, CELLS))


def rank_release(
    quantity: str, adjacency: Adjacency, epsilon: float, count: int = 1
) -> RankRelease:
    """Declare choices by the number of rows up to a candidate.

    Privacy: ``BoundedRange(epsilon)`` each. Adding, erasing or replacing a row moves either end
    of the interval of ranks by at most 1, so every score by at most 1. Scores are whole numbers:
    nothing is rounded.
    """
    mechanism = ExponentialMechanismOverRuns(epsilon)
    return Release(quantity, mechanism, adjacency, 1.0, count=count, diameter=1.0)


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


def unbounded_radius_release(
    data: DataSpec, adjacency: Adjacency, quantile: float, epsilon: float
) -> CountRelease:
    """Declare the choice of a radius within which a given share of the rows lies.

    Privacy: ``Pure(epsilon)``; a distance is computed from its own row alone, and counts within a
    radius grow with the radius.
    """
    threshold = round(quantile * data.n_rows)
    return Release("unbounded radius of rows", AboveThreshold(epsilon, threshold), adjacency, 1.0)


def noisy_unbounded_radius(
    oracle: Oracle, declared: CountRelease, center: NDArray[np.float64]
) -> float:
    """Release the first of ``UNBOUNDED_RADII`` within which, up to noise, enough rows lie.

    Except with probability p, the number of rows within the radius is at least the share less ``2
    log(3573 / p) / epsilon``, and at the radius before it exceeds the share by no more than that,
    under zero-out (Durfee, "Unbounded differentially private quantile and maximum estimation",
    NeurIPS 2023).
    """
    ordered = np.sort(distances(oracle, center))
    counts = np.searchsorted(ordered, UNBOUNDED_RADII, side="right").astype(np.int64)
    chosen = oracle.curator.release(declared, Bounded(counts, 1.0))
    return float(UNBOUNDED_RADII[chosen])


def distances(oracle: Oracle, center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of the rows, without the intercept column, from a public point. Private."""

    def block_distances(block: Block) -> NDArray[np.float64]:
        return row_lengths(centered_rows(block, center))

    return _by_row(oracle, block_distances, ())


def noisy_medians(
    oracle: Oracle, declared: RankRelease, basis: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Release the median of the rows along each of some public directions of length 1.

    ``basis`` has shape (n_features, directions). Medians are multiples of ``2^-39`` of the row
    norm.

    Privacy: ``declared.event`` (``rank_release``) for each direction. Positions are within a row
    norm of zero and computed from each row alone: where one row more shifts others, without matrix
    products, whose last bits could depend on a row's place.
    """
    spec, curator = oracle.rows.spec, oracle.curator
    width = 2.0 * spec.row_norm / _FINE_CELLS
    rank = round(0.5 * spec.n_rows)
    chosen = [
        choose_quantile(curator, declared, cells, _FINE_CELLS, rank)
        for first in range(0, basis.shape[1], _DIRECTIONS)
        for cells in cells_along(oracle, basis[:, first : first + _DIRECTIONS], width)
    ]
    return (np.array(chosen) + 0.5) * width - spec.row_norm


def cells_along(oracle: Oracle, basis: NDArray[np.float64], width: float) -> NDArray[np.int64]:
    """Cell of each row's position along each direction, of shape (directions, rows). Private.

    Cells of the given width divide ``[-row_norm, row_norm]``.
    """
    row_norm = oracle.rows.spec.row_norm
    row_by_row = not oracle.places_are_fixed

    def block_cells(block: Block) -> NDArray[np.float64]:
        X = block.features().astype(np.float64)
        along = row_by_row_product(X, basis) if row_by_row else X @ basis
        return np.clip(np.floor((along + row_norm) / width), 0.0, _FINE_CELLS - 1.0).T

    return _by_row(oracle, block_cells, basis.shape[1:]).astype(np.int64)


def _by_row(oracle: Oracle, function: Kernel, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a function's values, rows last, for all rows but erased ones. Private."""

    def of_counted(block: Block) -> NDArray[np.float64]:
        return function(block)[..., counted(block) > 0.0]

    parts = list(oracle.map_blocks(of_counted, oracle.rows.blocks()))
    oracle.rows.watch.check()
    return np.concatenate([np.empty((*shape, 0)), *parts], axis=-1)
