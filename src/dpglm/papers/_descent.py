"""What the papers' settings of noisy gradient descent have in common."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import ClassVar, final

from dpglm.data.spec import DataSpec
from dpglm.papers._constants import Constants, check_penalty
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.solvers.base import Plan, Solver
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from dpglm.solvers.parts.outputs import Output
from dpglm.solvers.parts.planning import check_given
from dpglm.solvers.parts.schedules import Constant
from dpglm.solvers.theorem import Theorem

__all__ = ["MOST_STEPS", "TheoremDescent", "TheoremSettings", "whole_steps"]

MOST_STEPS = 2000
"""Unless a number of steps is given; a plan says where its theorem needs more."""

_COUNTED = 10**15


class TheoremSettings(Solver):
    """A solver with the settings of a theorem. Nothing of privacy rests on the theorem."""

    @property
    @abc.abstractmethod
    def theorem(self) -> str:
        """Its name, as in ``Theorem``."""

    def __post_init__(self) -> None:
        check_given(self)

    @abc.abstractmethod
    def settled(
        self, problem: Problem, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
    ) -> tuple[Solver, float]:
        """Return the solver with its settings, and the number of steps that the bound needs.

        Raises ValueError where a condition of the theorem does not hold.
        """

    @final
    def plan(
        self,
        problem: Problem,
        budget: PrivacyBudget,
        data: DataSpec,
        adjacency: Adjacency = Adjacency.ZERO_OUT,
    ) -> Plan:
        solver, needed = self.settled(problem, budget, data, adjacency)
        steps = max(1, math.ceil(min(needed, _COUNTED)))
        plan = solver.plan(problem, budget, data, adjacency)
        return dataclasses.replace(plan, theorem=Theorem(self.theorem, steps))


class TheoremDescent(TheoremSettings):
    """Full-batch noisy gradient descent with constant steps and no momentum, set by a theorem.

    Row gradients are clipped at a bound that they cannot exceed.
    """

    output: ClassVar[Output]

    n_steps: int | None

    @abc.abstractmethod
    def known(
        self, problem: Problem, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
    ) -> Constants:
        """Find the theorem's constants, or raise ValueError where a condition does not hold."""

    @abc.abstractmethod
    def needed_steps(self, problem: Problem, data: DataSpec, known: Constants) -> float:
        """Return the number of steps that the theorem's bound needs."""

    @abc.abstractmethod
    def step_size(self, problem: Problem, data: DataSpec, known: Constants, n_steps: int) -> float:
        """Return the theorem's step size for so many steps."""

    @final
    def settled(
        self, problem: Problem, budget: PrivacyBudget, data: DataSpec, adjacency: Adjacency
    ) -> tuple[Solver, float]:
        check_penalty(problem)
        known = self.known(problem, budget, data, adjacency)
        needed = self.needed_steps(problem, data, known)
        n_steps = self.n_steps or whole_steps(needed)
        descent = NoisyGD(
            n_steps=n_steps,
            step_size=self.step_size(problem, data, known, n_steps),
            schedule=Constant(),
            clip=known.lipschitz,
            momentum=0.0,
            output=self.output,
        )
        return descent, needed


def whole_steps(needed: float) -> int:
    """Round a number of steps up, to at least 1 and at most ``MOST_STEPS``."""
    return max(1, math.ceil(min(needed, MOST_STEPS)))
