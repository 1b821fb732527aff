"""What is spent at a time that results choose: brackets of a budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

__all__ = ["USUAL_DELTA", "Bracket", "brackets"]

USUAL_DELTA = 1e-6
"""The delta of statements for budgets that have none."""


@final
@dataclass(frozen=True)
class Bracket:
    """A limit, ``most / 2^(k - 1)``, and its share ``6 / (pi k)^2`` of delta; shares sum to 1."""

    limit: float
    share: float


def brackets(spent: float, most: float) -> tuple[Bracket, ...]:
    """List the limits that cover what was spent, any of which may be stated.

    Privacy: *if whatever stays within the k-th limit is (e_k, d_k)-DP, chosen adaptively, then
    what was shown up to any moment, chosen by looking at it, satisfies
    ``P(S) <= E_Q(exp(e_k) 1_S) + sum d_k`` for every set S of outcomes, k being a bracket that
    covers what was spent, chosen by the outcome.* Proof: let the outcomes of S that choose
    bracket k be ``S_k``. They are outcomes of the interaction that a filter with the k-th limit
    ends, so ``P(S_k) <= exp(e_k) Q(S_k) + d_k``; add over k. Limits and shares are fixed before
    anything is spent.

    Rogers, Roth, Ullman and Vadhan, "Privacy odometers and filters: pay-as-you-go composition",
    NeurIPS 2016, Definition 3.3. Whitehouse, Ramdas, Rogers and Wu, "Fully-adaptive composition
    in differential privacy", ICML 2023, for tighter ones.

    >>> [one.limit for one in brackets(0.3, 1.0)]
    [1.0, 0.5]
    """
    halvings = max(0, math.floor(math.log2(most / spent)))
    while halvings > 0 and math.ldexp(most, -halvings) < spent:
        halvings -= 1
    return tuple(
        Bracket(max(spent, math.ldexp(most, -k)), 6.0 / (math.pi * (k + 1)) ** 2)
        for k in range(halvings + 1)
    )
