"""Solvers by name, and the rule by which ``"auto"`` chooses one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpglm.solvers.base import Solver
from dpglm.solvers.noisy_gd import NoisyGD

__all__ = ["SOLVERS"]

SOLVERS: Mapping[str, Callable[[], Solver]] = MappingProxyType(
    {
        "auto": NoisyGD,
        "noisy_gd": NoisyGD,
    }
)
"""A solver with its default settings for each name that estimators accept."""
