"""D2P2-SGD as its theorems set it, and DPSGD-F of Sun et al. (2023) in its theoretical form."""

from __future__ import annotations

import math

from dpglm._calls import checked
from dpglm._validation import check_integer
from dpglm.papers.song2021 import Song2021
from dpglm.preprocessing.steps import ClipToQuantile, InstanceOptimalCenter
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.preprocessed import Preprocessed
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
    Fading noise makes the theorems' bound larger, and Theorem 2's has a term that is infinite on an
    unbounded set (docs/evidence/errata.md).

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


def dpsgd_f_theoretical(
    solver: Solver | None = None, shares: tuple[float | None, float | None] | None = None
) -> Preprocessed:
    """Make DPSGD-F in its theoretical form, for rows far from zero relative to their spread.

    Parameters
    ----------
    solver : Solver, optional
        Fits the model to preprocessed rows; ``Song2021()`` by default, with an error that depends
        on the rank of the rows as in the paper's Theorem 1.
    shares : pair of float or None, optional
        Shares of the budget (of mu squared) for the mean and for the radius. By default rules of
        the steps; the paper has ``(1/3, 1/3)``.

    Notes
    -----
    The paper clips the whole row, intercept column included; here that column stays, so that
    coefficients can be mapped back exactly. ``docs/solvers/dpsgd_f.md`` has the steps.

    Privacy: that of ``Preprocessed``.

    References
    ----------
    Sun et al. 2023, Algorithm 2 and Theorem 1.
    """
    steps = [InstanceOptimalCenter(), ClipToQuantile(quantile=None)]
    return Preprocessed(steps, solver or Song2021(), shares=shares)
