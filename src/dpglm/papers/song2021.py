"""Noisy gradient descent with the settings of Song et al. (2021), by the rank of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from dpglm.data.rows import DataSpec
from dpglm.papers import theorems
from dpglm.problem import Problem
from dpglm.selection.choices import BestIterate
from dpglm.solvers.base import Facts, Solver
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.schedules import UniformAverage

# Chosen on validation parts of the training rows of Adult and ACS employment.
_NORM = 4.0


@final
@dataclass(frozen=True)
class Song2021(theorems.TheoremSettings):
    """Unconstrained noisy gradient descent with an error that depends on rank, not dimension.

    Constant steps, no momentum, the average of all iterates, row gradients clipped at a bound that
    they cannot exceed (or at ``clip``). Number and size of the steps minimise the error bound
    below.

    Parameters
    ----------
    rank : int, optional
        Public bound r on the rank of the rows without the intercept's column, at least 1. By
        default the number of columns.
    norm : float, optional
        Public guess B of the norm of the minimiser within the span of the rows, above 0, in units
        of the prepared rows. By default ``4 slope / curvature / row norm``, with a large slope and
        curvature of the loss. Privacy holds for every guess.
    clip : float, optional
        Clipping threshold of a row's gradient, above 0. By default its largest norm, for which the
        loss must have bounded slopes.
    n_steps : int, optional
        Number of steps T, at least 1. By default the least for which the bound is within a factor
        sqrt(2) of the best of all T, or n^2 for the population, but at most 2000.
    population : bool, default=False
        Whether the bound is on the risk on new rows from the same distribution (Theorem 3.2), not
        on these rows.

    Notes
    -----
    The step minimises the bound that ``docs/solvers/paper_settings.md`` states, for the average of
    the first T iterates from the start on; the average here is of iterates 1 to T, at a cost of
    ``1/T`` of the second term. An L2 penalty enters by its prox, which keeps iterates in the span
    of the rows (other penalties do not). Clipping below the largest norm is for one output alone
    (Lemma 5.1).

    For the population the step minimises the first bound plus ``4 G^2 eta (sqrt(T) + T/n)``, a
    bound on the change of the loss of the result by one row (Bassily et al. 2020); so T must be
    n^2.

    Privacy: that of ``NoisyGD``; it does not rest on the theorem.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta, "Evading the Curse of Dimensionality in Unconstrained
    Private GLMs", AISTATS 2021, Theorem 3.1, with a clip Corollary 5.2, for the population Theorem
    3.2. Bassily, Feldman, Guzmán and Talwar, "Stability of stochastic gradient descent on nonsmooth
    convex losses", NeurIPS 2020, Theorem 3.2.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> data = DataSpec(n_rows=1_000, n_features=5_000)
    >>> plan = Song2021(rank=10).plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), data)
    >>> plan.n_steps, plan.method.step_sizes[0]
    (340, 3.98...)
    """

    rank: int | None = None
    norm: float | None = None
    clip: float | None = None
    n_steps: int | None = None
    population: bool = False

    @property
    def theorem(self) -> str:
        return f"song2021, Theorem 3.{2 if self.population else 1}"

    def settled(self, facts: Facts) -> tuple[Solver, float]:
        problem, data = facts.problem, facts.data
        known = theorems.constants(facts, self.clip, convex=True, bounded=False)
        steepest = problem.loss.slope_bound * data.augmented_row_norm
        if data.n_outputs > 1 and known.lipschitz < steepest:
            raise ValueError(
                "clip must be None, or above every row gradient, for several outputs, got "
                f"{self.clip!r}"
            )
        norm = self.norm or guessed_norm(problem, data)
        directions = gradient_rank(data, self.rank)
        needed = theorems.needed_steps(norm, known, directions)
        if self.population:
            needed = float(data.n_rows) ** 2
        n_steps = self.n_steps or theorems.whole_steps(needed)
        step_size = theorems.best_step_size(norm, known, directions, n_steps)
        if self.population:
            noise = directions * n_steps * known.noise_of_one_step**2
            stability = 8.0 * known.lipschitz**2 * (math.sqrt(n_steps) + n_steps / data.n_rows)
            step_size = norm / math.sqrt(n_steps * (known.lipschitz**2 + noise + stability))
        return theorems.plain_descent(problem, known, n_steps, step_size, UniformAverage()), needed


@final
@dataclass(frozen=True)
class Song2021NonConvex(theorems.TheoremSettings):
    """Noisy gradient steps of size ``1/H``, and a private choice of the shortest gradient.

    For smooth losses, convex or not. ``BestIterate`` with row gradients clipped at a bound that
    they cannot exceed.

    Parameters
    ----------
    rank : int, optional
        Public bound r on the rank of the rows, as in ``Song2021``.
    n_steps : int, optional
        Number of steps T, at least 1. By default ``sqrt(2 (H + lambda) Y^2 / r) / s``, lambda the
        strength of an L2 penalty, but at most 2000.
    choice_share : float, default=0.1
        Share of epsilon for the choice, in (0, 1).

    Notes
    -----
    Some of the first T iterates has the bound of ``Wang2017NonConvex`` with r for d, and T makes
    its terms equal. The paper has ``T >= H Y^2 / s^2``, where the second term no longer falls with
    the number of rows (docs/evidence/errata.md); ``n_steps`` runs that, too.

    Privacy: that of ``BestIterate``; it does not rest on the theorem.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Theorem 4.1.
    """

    theorem: ClassVar[str] = "song2021, Theorem 4.1 (corrected)"

    rank: int | None = None
    n_steps: int | None = None
    choice_share: float = 0.1

    def settled(self, facts: Facts) -> tuple[Solver, float]:
        problem, data = facts.problem, facts.data
        theorems.check_penalty(problem)
        known = theorems.constants(facts, bounded=False, smooth=True)
        needed = theorems.steps_to_stationary(facts, known, gradient_rank(data, self.rank))
        n_steps = self.n_steps or theorems.whole_steps(needed)
        step_size = 1.0 / (known.smoothness + problem.regularizer.smoothness)
        solver = BestIterate(n_steps, step_size, known.lipschitz, self.choice_share)
        # The choice is a step of the plan as well.
        return solver, needed + 1.0


def gradient_rank(data: DataSpec, rank: int | None) -> int:
    """Bound the rank of the gradients, those of several outputs together."""
    of_rows = data.n_features if rank is None else min(rank, data.n_features)
    return (of_rows + (data.intercept > 0.0)) * data.n_outputs


def guessed_norm(problem: Problem, data: DataSpec) -> float:
    """Guess the norm of the minimiser: at four ranges of slopes for a row of the row norm."""
    return _NORM * defaults.slope_range(problem.loss, data) / data.row_norm
