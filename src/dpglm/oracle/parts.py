"""Disjoint parts of the rows, each with an oracle of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.gradients import Oracle

__all__ = ["part_oracles"]


def part_oracles(oracle: Oracle, parts: Sequence[NDArray[np.intp]]) -> tuple[Oracle, ...]:
    """Make an oracle for each of some disjoint parts of the rows.

    Parameters
    ----------
    oracle : Oracle
        Answers for all rows.
    parts : sequence of ndarray of int, each of shape (m,) with m at least 1
        Numbers of the rows in each part. Public: they must not depend on any row's values.

    Returns
    -------
    tuple of Oracle
        One for each part; the ``spec`` of its rows gives the part's size as the number of rows.

    Raises
    ------
    ValueError
        If a row is in two parts or twice in one, or the number of rows is private.

    Notes
    -----
    Privacy: what all of them release together is ``Parallel``, see ``Curator.parts``. A row in
    two parts would be paid for once and used twice, so it is refused here, at run time.
    """
    if (np.bincount(np.concatenate(parts), minlength=oracle.rows.n_rows) > 1).any():
        raise ValueError("parts must be disjoint, but some row is in more than one place")
    curators = oracle.curator.parts(len(parts))
    return tuple(
        Oracle(oracle.rows.part(indices), oracle.loss, curator, oracle.map_blocks)
        for indices, curator in zip(parts, curators, strict=True)
    )
