"""The algorithms of Arora et al. (2022) with the settings of their theorems."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

from dpglm.data.rows import LARGEST
from dpglm.papers import theorems
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.selection.choices import largest_within
from dpglm.selection.search import ConfidenceBoosting, NormGridSearch
from dpglm.solvers.base import Facts, Solver
from dpglm.solvers.minimizer.output_perturbation import OutputPerturbation
from dpglm.solvers.parts import defaults
from dpglm.solvers.parts.schedules import UniformAverage


@final
@dataclass(frozen=True)
class Arora2022Smooth(theorems.TheoremSettings):
    """Projected noisy gradient descent for smooth, non-negative losses, Lipschitz or not.

    Row gradients are clipped at a bound that holds within the constraint; constant steps, no
    momentum, the average of all iterates. The problem's constraint is ``L2Ball(B)``, or another
    bounded set.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1. By default n, as in the theorem, but at most 2000.

    Notes
    -----
    ``docs/solvers/paper_settings.md`` has the step size. For ``n >= H B^2 / Y^2`` independent rows
    the excess population risk is of order ``sqrt(H) B Y / sqrt(n) + G B sqrt(d) / (n mu)``, with G
    the supremum of the slope on the predictions that the set allows.

    Privacy: that of ``NoisyGD``; it does not rest on the theorem.

    References
    ----------
    Arora, Bassily, Guzmán, Menart and Ullah, "Differentially Private Generalized Linear Models
    Revisited", NeurIPS 2022, Theorem 1 (where the root in the step size spans one letter too
    many).

    Examples
    --------
    >>> from dpglm.data.rows import DataSpec
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import L2Ball, Squared
    >>> problem = Problem(Squared(), constraint=L2Ball(2.0))
    >>> data = DataSpec(n_rows=1000, n_features=5, target_low=-1.0, target_high=1.0)
    >>> plan = Arora2022Smooth().plan(problem, ApproximateDP(1.0, 1e-5), data)
    >>> plan.n_steps, plan.method.clipping.bound
    (1000, 3.0)
    """

    theorem: ClassVar[str] = "arora2022, Theorem 1"

    n_steps: int | None = None

    def settled(self, facts: Facts) -> tuple[Solver, float]:
        problem, data = facts.problem, facts.data
        known = theorems.constants(facts, convex=True, bounded=True, smooth=True)
        n_steps = self.n_steps or theorems.whole_steps(data.n_rows)
        gradient = math.sqrt(known.smoothness * theorems.loss_at_zero(problem, data))
        noise = known.noise_of_one_step * math.sqrt(n_steps * data.n_coefficients)
        step_size = min(
            known.radius / (math.sqrt(n_steps) * max(gradient, noise)),
            1.0 / (4.0 * known.smoothness),
        )
        return theorems.plain_descent(
            problem, known, n_steps, step_size, UniformAverage()
        ), data.n_rows


@final
@dataclass(frozen=True)
class Arora2022Lipschitz(theorems.TheoremSettings):
    """Projected noisy gradient descent for losses with bounded slopes, smooth or not.

    As ``Arora2022Smooth``, with number and size of the steps from the bound of ``Song2021``, with
    the dimension for the rank: a projection mixes noise from every direction.

    Parameters
    ----------
    n_steps : int, optional
        Number of steps T, at least 1. By default the least for which the bound is within a factor
        sqrt(2) of the best of all T, but at most 2000.

    Notes
    -----
    Privacy: that of ``NoisyGD``; it does not rest on the theorem.

    References
    ----------
    Arora et al. 2022, Algorithm 1, which section 4 and appendix B run in the projected space for
    Lipschitz losses; Bassily, Smith and Thakurta, "Private Empirical Risk Minimization", FOCS 2014,
    for the bound, which is Theorem 2.7 of Song et al. 2021.
    """

    theorem: ClassVar[str] = "song2021, Theorem 2.7"

    n_steps: int | None = None

    def settled(self, facts: Facts) -> tuple[Solver, float]:
        problem, data = facts.problem, facts.data
        known = theorems.constants(facts, convex=True, bounded=True)
        needed = theorems.needed_steps(known.radius, known, data.n_coefficients)
        n_steps = self.n_steps or theorems.whole_steps(needed)
        step_size = theorems.best_step_size(known.radius, known, data.n_coefficients, n_steps)
        return theorems.plain_descent(problem, known, n_steps, step_size, UniformAverage()), needed


@final
@dataclass(frozen=True)
class Arora2022OutputPerturbation(theorems.TheoremSettings):
    """Output perturbation at a clip that never binds, with the regularisation of a theorem.

    The problem's constraint is ``L2Ball(B)``, which must hold all coefficients.

    Parameters
    ----------
    lipschitz : bool, default=False
        Whether the strength is that for losses with bounded slopes (Theorem 5), not that for smooth
        ones (Theorem 3).

    Notes
    -----
    The strengths are those of ``docs/solvers/output_perturbation.md``. The certificate of the
    minimiser needs smoothness, so the plain hinge is refused, though Theorem 5 covers it:
    ``SmoothedHinge(w)`` is at most ``w / 2`` below it, so ``w = B R / sqrt(n)`` keeps the rate.

    Privacy: that of ``OutputPerturbation``; it does not rest on the theorem.

    References
    ----------
    Arora et al. 2022, Algorithm 3, Theorems 3 and 5.
    """

    lipschitz: bool = False

    @property
    def theorem(self) -> str:
        return f"arora2022, Theorem {5 if self.lipschitz else 3}"

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        return True

    def settled(self, facts: Facts) -> tuple[Solver, float]:
        problem, data = facts.problem, facts.data
        theorems.check_penalty(problem)
        known = theorems.constants(facts, convex=True, bounded=True)
        if not math.isfinite(known.smoothness):
            raise ValueError(
                "loss must be smooth, such as SmoothedHinge(width) in place of Hinge(), got "
                f"{problem.loss!r}"
            )
        noise, radius = known.noise_of_one_step, known.radius
        strength = (2.0 * known.smoothness) ** (1 / 3) * (noise / radius) ** (2 / 3)
        if self.lipschitz:
            strength = math.sqrt(2.0 * known.lipschitz * noise) / radius
        return OutputPerturbation(strength, LARGEST * data.augmented_row_norm), 1.0


@final
@dataclass(frozen=True)
class Arora2022GridSearch(theorems.TheoremSettings):
    """A private grid search over the norm, for smooth non-negative losses without a known norm.

    Parameters
    ----------
    solver : Solver, optional
        Trains each model on its ball. By default boosted output perturbation, as in Theorem 8; with
        another solver the settings are those of Theorem 7.
    failure : float, default=0.1
        Probability with which the bound may fail, in (0, 1).

    Notes
    -----
    Half of the rows train, half choose among the balls of radius ``2^j b``, j = 1, ..., K, with ``b
    = Y / (sqrt(H) R)`` and ``K = log2(max(sqrt(n), (n mu)^(1/3)))``: zero has as good a bound as
    larger balls. The printed radii and K depend on units (docs/evidence/errata.md). Boosting
    takes ``log2(2 / failure)`` models.

    Privacy: that of ``NormGridSearch``.

    References
    ----------
    Arora et al. 2022, Algorithm 4, Theorems 7 and 8.
    """

    solver: Solver | None = None
    failure: float = 0.1

    @property
    def theorem(self) -> str:
        return f"arora2022, Theorem {8 if self.solver is None else 7} (corrected)"

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        return self.solver is None or super().needs_float64(problem, budget)

    def settled(self, facts: Facts) -> tuple[Solver, float]:
        problem, data = facts.problem, facts.data
        smoothness = defaults.smoothness(problem.loss, data)
        if not (math.isfinite(smoothness) and problem.loss.nonnegative):
            raise ValueError(f"loss must be smooth and non-negative, got {problem.loss!r}")
        unit = (
            math.sqrt(theorems.loss_at_zero(problem, data) / smoothness) / data.augmented_row_norm
        )
        largest = max(math.sqrt(data.n_rows), math.cbrt(data.n_rows * facts.mu))
        radii = [unit * 2.0**j for j in range(1, max(1, math.ceil(math.log2(largest))) + 1)]
        models = math.ceil(math.log2(2.0 / self.failure))
        solver = self.solver or ConfidenceBoosting(Arora2022OutputPerturbation(), models)
        search = NormGridSearch(
            solver,
            radii,
            choice_fraction=0.5,
            loss_bound=largest_within(problem.loss, data, radii[-1]),
            failure=self.failure,
            penalized=True,
        )
        return search, 1.0
