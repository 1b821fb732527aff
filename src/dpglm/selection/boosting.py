"""Confidence boosting: several models on disjoint chunks of the rows, and the best of them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import final

from dpglm._validation import check_integer, check_real
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.selection.choices import LeastLoss, epsilon_of_choice
from dpglm.selection.loss_bounds import default_loss_bound
from dpglm.selection.method import SelectionMethod, Training
from dpglm.selection.partition import part_sizes
from dpglm.solvers.base import Plan, Solver
from dpglm.solvers.gradient.noisy_gd import NoisyGD

__all__ = ["ConfidenceBoosting"]


@final
@dataclass(frozen=True)
class ConfidenceBoosting(Solver):
    """Models trained on disjoint chunks of the rows, and a private choice of the best.

    For solvers that fail now and then: the chance that all m models are bad is small. Where a
    solver does not fail, one model on all rows is better.

    Parameters
    ----------
    solver : Solver, default=NoisyGD()
        Trains each model.
    n_models : int, default=5
        Number m of models, at least 1.
    choice_fraction : float, default=0.2
        Share of the rows in the chunk that chooses, in (0, 1); the others are divided equally
        among the models.
    loss_bound : float, optional
        Losses above this count as this, above 0; by default four times the largest loss at
        prediction zero.

    Notes
    -----
    Privacy: rows are divided by public randomness, so every training and the choice each spend
    the whole budget on their own rows: parallel composition. The choice is permute-and-flip on
    clipped losses. Needs a relation with a public number of rows and an (epsilon, delta)
    budget. All models are paid for; their losses are not released.

    References
    ----------
    Arora et al. 2022, "Confidence boosting" in section 5, and Appendix D.

    Examples
    --------
    >>> from dpglm.privacy import ApproximateDP
    >>> from dpglm.problem import Logistic
    >>> solver = ConfidenceBoosting(NoisyGD(n_steps=50), n_models=3)
    >>> plan = solver.plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), DataSpec(10_000, 20))
    >>> plan.method.part_sizes
    (2667, 2667, 2666, 2000)
    """

    solver: Solver = field(default_factory=NoisyGD)
    n_models: int = 5
    choice_fraction: float = 0.2
    loss_bound: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.solver, Solver):
            raise ValueError(f"solver must be a Solver, got {self.solver!r}")
        check_integer("n_models", self.n_models, least=1)
        check_real("choice_fraction", self.choice_fraction, above=0.0, below=1.0)
        if self.loss_bound is not None:
            check_real("loss_bound", self.loss_bound, above=0.0)

    def needs_float64(self, problem: Problem, budget: PrivacyBudget) -> bool:
        return self.solver.needs_float64(problem, budget)

    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        sizes = part_sizes(data.n_rows, self.n_models, self.choice_fraction, adjacency)
        trainings = tuple(
            Training(
                f"model {part + 1}",
                part,
                self.solver.plan(
                    problem, budget, dataclasses.replace(data, n_rows=size), adjacency
                ),
            )
            for part, size in enumerate(sizes[:-1])
        )
        bound = default_loss_bound(problem.loss, data)
        method = SelectionMethod(
            title="confidence boosting",
            data=data,
            adjacency=adjacency,
            trainings=trainings,
            part_sizes=sizes,
            choice=LeastLoss(
                bound if self.loss_bound is None else self.loss_bound,
                epsilon_of_choice(budget, adjacency),
            ),
        )
        return Plan(problem, data, budget, adjacency, method)
