"""D2P2-SGD as its theorems set it."""

from __future__ import annotations

import math

from dpglm._calls import checked
from dpglm._validation import check_integer
from dpglm.solvers.gradient.d2p2 import D2P2
from dpglm.solvers.parts.schedules import MOST_LEVELS, RandomIterate, UniformAverage


@checked
def d2p2_theorems(
    n_steps: int, base_step: float, *, convex: bool = True, sampling_rate: float = 1.0
) -> D2P2:
    """Make D2P2-SGD with steps of size ``base_step / sqrt(n_steps)`` and noise ``1/sqrt(k)``.

    Parameters
    ----------
    n_steps : int
        Number of steps K, at least 1.
    base_step : float
        The theorems' ``alpha_0``, above 0.
    convex : bool, default=True
        Whether the average of the iterates is returned (Theorem 2), or a random one, with a
        gradient that is on average no longer than the mean (Theorem 3).
    sampling_rate : float, default=1.0
        Probability with which each row enters each batch.

    Notes
    -----
    The theorems hold for every K; their batch size ``sigma^2 / xi^2`` depends on the rows. Fading
    noise makes their bound larger, and Theorem 2's has a term that is infinite on an unbounded set
    (docs/errata.md).

    Privacy: that of ``D2P2``.

    References
    ----------
    "D2P2-SGD: Dynamically differentially private projected stochastic gradient descent", Theorems 2
    and 3.

    Examples
    --------
    >>> d2p2_theorems(100, 2.0).step_size
    0.2
    """
    check_integer("n_steps", n_steps, least=1)
    return D2P2(
        n_steps=n_steps,
        step_size=base_step / math.sqrt(n_steps),
        noise_levels=MOST_LEVELS,
        sampling_rate=sampling_rate,
        output=UniformAverage() if convex else RandomIterate(),
    )
