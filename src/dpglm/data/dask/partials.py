"""Compensated partial sums, and the binary tree that adds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import two_sum

__all__ = ["Pair", "Partial", "add", "joined"]

Pair: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""A rounded sum and its rounding error."""


@final
@dataclass(frozen=True, eq=False)
class Partial:
    """A sum over the partitions of some indices, in order."""

    indices: tuple[int, ...]
    pair: Pair


def add(first: Pair, second: Pair) -> Pair:
    """Add two pairs."""
    total, error = two_sum(first[0], second[0])
    return total, (first[1] + second[1]) + error


def joined(partials: list[Partial]) -> Partial:
    """Add neighbours, then neighbours of these, and so on."""
    while len(partials) > 1:
        alone = partials[len(partials) // 2 * 2 :]
        pairs = zip(partials[::2], partials[1::2], strict=False)
        partials = [_join(*two) for two in pairs] + alone
    return partials[0]


def _join(first: Partial, second: Partial) -> Partial:
    return Partial(first.indices + second.indices, add(first.pair, second.pair))
