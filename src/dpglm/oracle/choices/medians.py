"""Private medians of the rows along public directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Block
from dpglm.oracle.choices.quantiles import RankRelease, choose_quantile
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.row_sums.moments import row_by_row_product

__all__ = ["cells_along", "noisy_medians"]

_CELLS = 2**40
# So many directions at a time keep memory low.
_DIRECTIONS = 64


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
    width = 2.0 * spec.row_norm / _CELLS
    rank = round(0.5 * spec.n_rows)
    chosen = [
        choose_quantile(curator, declared, cells, _CELLS, rank)
        for first in range(0, basis.shape[1], _DIRECTIONS)
        for cells in cells_along(oracle, basis[:, first : first + _DIRECTIONS], width)
    ]
    return (np.array(chosen) + 0.5) * width - spec.row_norm


def cells_along(oracle: Oracle, basis: NDArray[np.float64], width: float) -> NDArray[np.int64]:
    """Cell of every row's position along each direction, of shape (directions, n). Private.

    Cells of the given width divide ``[-row_norm, row_norm]``.
    """
    row_norm = oracle.rows.spec.row_norm
    row_by_row = not oracle.curator.adjacency.n_is_public

    def block_cells(block: Block) -> NDArray[np.float64]:
        X = block.features().astype(np.float64)
        along = row_by_row_product(X, basis) if row_by_row else X @ basis
        return np.clip(np.floor((along + row_norm) / width), 0.0, _CELLS - 1.0).T

    parts = list(oracle.map_blocks(block_cells, oracle.rows.blocks()))
    oracle.rows.watch.check()
    return np.concatenate([np.empty((basis.shape[1], 0)), *parts], axis=1).astype(np.int64)
