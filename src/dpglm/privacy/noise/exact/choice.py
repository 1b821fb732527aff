"""Uniform choices, and coins that each have a probability of their own, from uniform bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.noise.exact.refined import Words

__all__ = ["coins", "uniform_indices"]


def uniform_indices(words: Words, draws: int, size: int) -> NDArray[np.int64]:
    """Return those of so many draws that fall below ``size``, from 1 to 2^62; perhaps none.

    They are independent and exactly uniform; more than half of the draws are expected.
    """
    mask = np.uint64((1 << (size - 1).bit_length()) - 1)
    drawn = (words(draws) & mask).astype(np.int64)
    return drawn[drawn < size]


def coins(words: Words, probabilities: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return independent bits, true with exactly the given probabilities, of shape (k,) in [0, 1].

    Entry i says whether the uniform ``U_i``, an infinite string of random bytes, is below
    ``probabilities[i]``; bytes are drawn until that is decided.
    """
    heads = np.zeros(probabilities.size, dtype=np.bool_)
    undecided, rest = np.arange(probabilities.size), probabilities
    while undecided.size:
        scaled = 256.0 * rest
        digit = np.floor(scaled)
        drawn = words(-(-undecided.size // 8)).view(np.uint8)[: undecided.size]
        heads[undecided[drawn < digit]] = True
        tied = (drawn == digit) & (scaled > digit)
        undecided, rest = undecided[tied], (scaled - digit)[tied]
    return heads
