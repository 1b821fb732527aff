"""Noisy gradient descent as Wang, Ye and Xu (2017) set it beyond convexity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from dpglm.data.spec import DataSpec
from dpglm.papers._constants import (
    Constants,
    check_smooth,
    check_unconstrained,
    constants,
    loss_at_zero,
)
from dpglm.papers._descent import TheoremDescent
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.solvers.parts.outputs import Last, Output, RandomIterate

__all__ = ["Wang2017NonConvex", "Wang2017PolyakLojasiewicz"]


@final
@dataclass(frozen=True)
class Wang2017PolyakLojasiewicz(TheoremDescent):
    """A few noisy gradient steps, of which the last is returned, for objectives without plateaus.

    The objective F must satisfy ``|grad F(w)|^2 >= 2 m (F(w) - min F)`` everywhere (the
    condition of Polyak and Lojasiewicz), as every m-strongly convex one does. Steps of size
    ``1/H``, H the smoothness of the mean loss, no momentum.

    Parameters
    ----------
    growth : float, optional
        The m above, above 0, known publicly. By default the strong convexity of the penalty,
        which must then be on all coefficients.
    n_steps : int, optional
        Number of steps T, at least 1. By default ``(H + lambda) / m * log(G^2 / (d s^2))``,
        lambda the strength of an L2 penalty, but at most 2000.

    Notes
    -----
    Let s be the noise in each coordinate of a mean gradient divided by sqrt(T), G the bound on
    row gradients and d the number of coefficients. Then

        E F(w_T) - min F <= (1 - m / (H + lambda))^T G^2 / (2 m) + d T s^2 / (2 m),

    as the condition at zero bounds the first gap by ``G^2 / (2 m)``; and T makes the first term
    at most ``1/T`` of the second. An L2 penalty enters by its prox, and
    ``(w - eta g) / (1 + eta lambda)`` with ``eta = 1/H`` is exactly a gradient step of size
    ``1 / (H + lambda)`` on the loss and the penalty together.

    Privacy: ``NoisyGD`` plans, calibrates and runs; nothing here is relied on, the condition
    neither. Where it can show more (a convex loss, a ridge on all coefficients), the noise is
    that of releasing the last iterate alone, which does not grow with T.

    References
    ----------
    Wang, Ye and Xu, "Differentially Private Empirical Risk Minimization Revisited: Faster and
    More General", NIPS 2017, Algorithm 4 and Theorem 6.2.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import L2, Logistic
    >>> problem = Problem(Logistic(), L2(0.05))
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = Wang2017PolyakLojasiewicz().plan(problem, ApproximateDP(1.0, 1e-5), data)
    >>> plan.n_steps, plan.method.step_sizes[0]
    (77, 4.0)
    """

    theorem: ClassVar[str] = "wang2017, Theorem 6.2"
    output: ClassVar[Output] = Last()

    growth: float | None = None
    n_steps: int | None = None

    def known(
        self, problem: Problem, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
    ) -> Constants:
        check_unconstrained(problem)
        known = constants(problem, budget, data, adjacency)
        check_smooth(problem, known)
        return known

    def needed_steps(self, problem: Problem, data: DataSpec, known: Constants) -> float:
        condition = (known.smoothness + problem.regularizer.smoothness) / self._growth(
            problem, data
        )
        ratio = known.lipschitz / known.noise_of_one_step
        return condition * math.log(ratio**2 / data.n_coefficients)

    def step_size(self, problem: Problem, data: DataSpec, known: Constants, n_steps: int) -> float:
        return 1.0 / known.smoothness

    def _growth(self, problem: Problem, data: DataSpec) -> float:
        if self.growth is not None:
            return self.growth
        covered = data.intercept == 0.0 or problem.penalize_intercept
        if not (problem.loss.convex and covered and problem.regularizer.strong_convexity > 0.0):
            raise ValueError(
                "growth must be given unless the loss is convex and an L2 penalty is on all "
                f"coefficients, got None for {problem!r}"
            )
        return problem.regularizer.strong_convexity


@final
@dataclass(frozen=True)
class Wang2017NonConvex(TheoremDescent):
    """Noisy gradient steps of which a random one is returned, for smooth losses, convex or not.

    The returned iterate is close to where the gradient vanishes, which need not be a minimum.
    Steps of size ``1/H``, H the smoothness of the mean loss, no momentum.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1. By default ``sqrt(2 (H + lambda) Y^2 / d) / s``, lambda
        the strength of an L2 penalty, but at most 2000.

    Notes
    -----
    Let s be the noise in each coordinate of a mean gradient divided by sqrt(T), d the number of
    coefficients and Y^2 a bound on the loss at zero, where the iteration starts. For an iterate
    drawn uniformly from the first T::

        E |grad F(w)|^2 <= 2 (H + lambda) Y^2 / T + d T s^2,

    and T makes the terms equal. The draw is from iterates 1 to T; one more step, not taken,
    turns the bound into one for those, and the first step may raise Y^2 by
    ``d T s^2 / (2 (H + lambda))``, so that the second term grows by ``1/T`` of itself. The draw
    is a public random number. A penalty enters as in ``Wang2017PolyakLojasiewicz``.

    Privacy: ``NoisyGD`` plans, calibrates and runs; all T steps are paid for, and nothing here
    is relied on.

    References
    ----------
    Wang, Ye and Xu, "Differentially Private Empirical Risk Minimization Revisited: Faster and
    More General", NIPS 2017, Algorithm 4 and Theorem 6.3.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Savage
    >>> data = DataSpec(n_rows=10_000, n_features=20)
    >>> plan = Wang2017NonConvex().plan(Problem(Savage()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.n_steps
    562
    """

    theorem: ClassVar[str] = "wang2017, Theorem 6.3"
    output: ClassVar[Output] = RandomIterate()

    n_steps: int | None = None

    def known(
        self, problem: Problem, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
    ) -> Constants:
        check_unconstrained(problem)
        known = constants(problem, budget, data, adjacency)
        check_smooth(problem, known)
        return known

    def needed_steps(self, problem: Problem, data: DataSpec, known: Constants) -> float:
        smoothness = known.smoothness + problem.regularizer.smoothness
        drop = 2.0 * smoothness * loss_at_zero(problem, data)
        return math.sqrt(drop / data.n_coefficients) / known.noise_of_one_step

    def step_size(self, problem: Problem, data: DataSpec, known: Constants, n_steps: int) -> float:
        return 1.0 / known.smoothness
