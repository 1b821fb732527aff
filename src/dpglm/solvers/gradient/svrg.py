"""DP-SVRG: epochs that start at an anchor with a noisy full gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

from dpglm.solvers.gradient.variance_reduction import VarianceReduction

__all__ = ["SVRG"]


@final
@dataclass(frozen=True)
class SVRG(VarianceReduction):
    """Stochastic variance-reduced gradient descent with noisy anchors and noisy differences.

    Each epoch releases the mean clipped gradient ``g`` of all rows at its anchor ``a``, starts
    at ``w = a``, and takes inner steps ``w <- project(prox(w - eta (g + h)))``. Here ``h`` is the
    noisy mean over a Poisson batch of each row's gradient at ``w`` minus that at ``a``, clipped
    to ``min(2 C, L |w - a|)``, so that its noise shrinks as ``w`` comes near to ``a``. At the
    first step of an epoch ``h`` is zero and nothing is released. The epoch's iterates make the
    next anchor; the last anchor is returned.

    Parameters
    ----------
    n_epochs : int, default=5
        Number of epochs T, at least 1.
    inner_steps : int, optional
        Steps m of each epoch, at least 1.
    step_size : float, optional
        Size of every step, above 0.
    clip : float, optional
        Clip norm C of a row's gradient, above 0, in units of the prepared rows.
    sampling_rate : float, optional
        Probability q with which each row enters each batch of differences, in (0, 1].
    anchor_share : float, default=0.6
        Share of the budget for the anchors, in (0, 1); differences get the rest.
    averaging : Output, default=Last()
        Which inner iterate, or average of them, is the next anchor. ``UniformAverage()`` is what
        the paper prints.
    momentum : float, default=0.0
        The b of accelerated SVRG, in [0, 1): gradients are taken at ``w + b (w - w')``, with w' the
        iterate before w, in each epoch anew. With m the strong convexity, and steps ``eta``, the
        accelerated method has ``b = (1 - s) / (1 + s)`` for ``s = sqrt(eta m)``.

    Notes
    -----
    Privacy: T Gaussian releases of full gradients, and ``T (m - 1)`` Poisson-sampled ones of
    differences, composed exactly by privacy-loss distributions (in closed form for
    ``sampling_rate=1``). As printed, the algorithm adds the exact anchor gradient in every step,
    which no subsampling hides; here it is released once, with noise of its own.

    References
    ----------
    Wang, Ye and Xu 2017, Algorithm 1 (corrected). Xiao and Zhang, "A proximal stochastic gradient
    method with progressive variance reduction", SIAM J. Optim. 2014. Nitanda, "Stochastic proximal
    gradient descent with acceleration techniques", NIPS 2014, for the momentum of Remark 4.2.

    Examples
    --------
    >>> from dpglm.data.spec import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import L2, Logistic, Problem
    >>> solver = SVRG(n_epochs=3, inner_steps=11, sampling_rate=0.05)
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = solver.plan(Problem(Logistic(), L2(0.01)), ApproximateDP(1.0, 1e-5), data)
    >>> [release.count for release in plan.method.releases]
    [3, 30]
    >>> plan.method.gradient_evaluations / data.n_rows
    6.0
    """

    growth: ClassVar[int] = 1
    restarts: ClassVar[bool] = True
    least_steps: ClassVar[int] = 1

    n_epochs: int = 5
