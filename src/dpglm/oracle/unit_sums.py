"""Sums over the rows of a block: over all of them, or over those of each group."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import namespace
from dpglm.data.groups.ids import segment_sums
from dpglm.data.rows import Block

__all__ = ["RUN_ROWS", "crossed_of", "products_of", "sum_of"]

RUN_ROWS = 1024
"""Rows that are added up before other runs' are, so that rounding is bounded."""


def sum_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i``, of shape (size,), or (groups, size) for a block of groups."""
    if block.starts is not None:
        return segment_sums(rows, factors, block.starts)
    xp = namespace(rows)
    total = xp.zeros(rows.shape[1], dtype=rows.dtype, device=rows.device)
    for start in range(0, rows.shape[0], RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        total = total + factors[run] @ rows[run]
    return total


def products_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i rows_i^T``, of shape (size, size), or one for each group."""
    xp, size = namespace(rows), rows.shape[1]
    roots = xp.sqrt(factors)[:, None]

    def products(start: int, stop: int) -> Any:
        # A product of a matrix with its own transpose costs half as much as another.
        scaled = rows[start:stop] * roots[start:stop]
        return scaled.T @ scaled

    if block.starts is not None:
        found: NDArray[np.float64] = np.empty((len(block.starts) - 1, size, size))
        for place, (start, stop) in enumerate(itertools.pairwise(block.starts)):
            found[place] = products(start, stop)
        return found
    total = xp.zeros((size, size), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        total += products(start, start + RUN_ROWS)
    return total


def crossed_of(block: Block, factors: Any, rows: Any) -> Any:
    """``sum_i factors_i rows_i^T``, of shape (K, size), or one for each group."""
    xp = namespace(rows)
    if block.starts is not None:
        return xp.stack([sum_of(block, column, rows) for column in factors.T], axis=1)
    total = xp.zeros((factors.shape[1], rows.shape[1]), dtype=rows.dtype, device=rows.device)
    for start in range(0, len(rows), RUN_ROWS):
        run = slice(start, start + RUN_ROWS)
        total += factors[run].T @ rows[run]
    return total
