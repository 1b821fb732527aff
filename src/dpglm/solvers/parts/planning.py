"""What solvers do alike when they plan: they check what may be left open, and calibrate noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpglm._validation import check_count, check_real
from dpglm.data.spec import DataSpec
from dpglm.privacy.accounting.calibrate import calibrate
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.problem import Problem
from dpglm.solvers.base import Method, Plan

__all__ = ["calibrated", "check_given"]


_COUNTS = frozenset({"n_steps", "n_blocks", "n_epochs", "rank"})
_SIZES = frozenset({"step_size", "clip", "radius", "norm", "growth"})

_SHARES = frozenset({"choice_share", "anchor_share", "first_share", "failure"})


def check_given(settings: object) -> None:
    """Check the fields of a solver with these names; None leaves one open."""
    for name, value in vars(settings).items():
        if name in _COUNTS and value is not None:
            check_count(name, value)
        if name in _SIZES and value is not None:
            check_real(name, value, above=0.0)
        if name in _SHARES:
            check_real(name, value, above=0.0, below=1.0)


def calibrated(
    with_noise: Callable[[float], Method[Any]],
    problem: Problem,
    budget: PrivacyBudget,
    data: DataSpec,
    adjacency: Adjacency,
) -> Plan:
    """Plan the method with the least noise within the budget; its cost falls as noise grows."""
    # Penalties and constraints that do not fit the parameter fail here, not in the run.
    with_noise(1.0).init(0)
    scale = calibrate(lambda scale: with_noise(scale).event, budget, adjacency)
    return Plan(problem, data, budget, adjacency, with_noise(scale))
