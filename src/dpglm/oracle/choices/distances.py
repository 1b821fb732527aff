"""Distances of rows from a public point, each from its own row alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Block
from dpglm.oracle.gradients import Oracle

__all__ = ["centered_rows", "distances", "row_lengths"]


def centered_rows(block: Block, center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Subtract a public point from the rows of a block, in float64. Private."""
    # Row after row in memory, so that sums over a row do not depend on where it stands.
    return block.features().astype(np.float64, order="C") - center


def row_lengths(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """L2 norms of rows. Private."""
    squares: NDArray[np.float64] = np.einsum("ij,ij->i", X, X)
    return np.sqrt(squares)


def distances(oracle: Oracle, center: NDArray[np.float64]) -> NDArray[np.float64]:
    """Distances of all rows, without the intercept column, from a public point. Private."""

    def block_distances(block: Block) -> NDArray[np.float64]:
        return row_lengths(centered_rows(block, center))

    parts = list(oracle.map_blocks(block_distances, oracle.rows.blocks()))
    oracle.rows.watch.check()
    return np.concatenate([np.empty(0), *parts])
