"""Disjoint parts of the rows, each with an oracle of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.oracle.gradients import Oracle

__all__ = ["part_oracles"]


def part_oracles(oracle: Oracle, parts: Sequence[NDArray[np.intp]]) -> tuple[Oracle, ...]:
    """Return one oracle for each of some disjoint, non-empty parts of the rows.

    The row indices of each part must be public: they may not depend on any row's values.

    Privacy: all parts together release ``Parallel``, see ``Curator.parts``. A row in two parts
    would be paid for once and used twice, so ``ValueError`` is raised before anything is released.
    """
    if (np.bincount(np.concatenate(parts), minlength=oracle.rows.n_units) > 1).any():
        raise ValueError("parts must be disjoint, but some row is in more than one place")
    curators = oracle.curator.parts(len(parts))
    return tuple(
        Oracle(oracle.rows.part(indices), oracle.loss, curator, oracle.map_blocks)
        for indices, curator in zip(parts, curators, strict=True)
    )
