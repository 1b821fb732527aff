"""Random partition of the rows, which depends on their number only."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.adjacency import Adjacency

__all__ = ["part_sizes", "partition"]


def part_sizes(
    n_rows: int, n_parts: int, choice_fraction: float, adjacency: Adjacency = Adjacency.ZERO_OUT
) -> tuple[int, ...]:
    """Return the sizes of the parts for training, and of the last, on which a model is chosen.

    They are at least 1 and add up to ``n_rows``, which must be public: otherwise a row more or less
    would move others into another part.

    Examples
    --------
    >>> part_sizes(100, 3, 0.2)
    (27, 27, 26, 20)
    """
    if not adjacency.n_is_public:
        raise ValueError(
            "adjacency must be 'zero_out' or 'replace_one' for disjoint parts of the rows, "
            f"got {adjacency.value!r}"
        )
    if n_rows <= n_parts:
        raise ValueError(
            f"n_rows must be at least {n_parts + 1}, one for each part of the rows, got {n_rows!r}"
        )
    choice = min(max(1, math.floor(choice_fraction * n_rows)), n_rows - n_parts)
    each, rest = divmod(n_rows - choice, n_parts)
    return (*(each + (j < rest) for j in range(n_parts)), choice)


def partition(seed: int, sizes: tuple[int, ...]) -> tuple[NDArray[np.intp], ...]:
    """Draw the rows of each part, ascending: a uniform permutation by public randomness, cut.

    Examples
    --------
    >>> partition(1, (2, 3))
    (array([0, 4]), array([1, 2, 3]))
    """
    order = np.random.default_rng([seed, 0]).permutation(sum(sizes))
    # In ascending order rows are read from memory as they lie there.
    return tuple(np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1]))
