"""Solvers by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpglm.solvers.auto import Auto
from dpglm.solvers.base import Solver
from dpglm.solvers.composite.dpsgd_f import dpsgd_f
from dpglm.solvers.composite.johnson_lindenstrauss import JohnsonLindenstrauss
from dpglm.solvers.gradient.accelerated_mirror_descent import AcceleratedMirrorDescent
from dpglm.solvers.gradient.d2p2 import D2P2
from dpglm.solvers.gradient.frank_wolfe import FrankWolfe
from dpglm.solvers.gradient.local_sgd import LocalSGD
from dpglm.solvers.gradient.noisy_gd import NoisyGD, pure_gd
from dpglm.solvers.gradient.noisy_sgd import NoisySGD
from dpglm.solvers.gradient.svrg import SVRG
from dpglm.solvers.gradient.svrg_plus_plus import SVRGPlusPlus
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbation
from dpglm.solvers.minimizer.output_perturbation import OutputPerturbation
from dpglm.solvers.second_order.newton import Newton
from dpglm.solvers.second_order.sufficient_statistics import SufficientStatistics

__all__ = ["SOLVERS"]

SOLVERS: Mapping[str, Callable[[], Solver]] = MappingProxyType(
    {
        "accelerated_mirror_descent": AcceleratedMirrorDescent,
        "auto": Auto,
        "d2p2": D2P2,
        "dpsgd_f": dpsgd_f,
        "frank_wolfe": FrankWolfe,
        "johnson_lindenstrauss": JohnsonLindenstrauss,
        "local_sgd": LocalSGD,
        "newton": Newton,
        "noisy_gd": NoisyGD,
        "noisy_sgd": NoisySGD,
        "objective_perturbation": ObjectivePerturbation,
        "output_perturbation": OutputPerturbation,
        "pure_gd": pure_gd,
        "sufficient_statistics": SufficientStatistics,
        "svrg": SVRG,
        "svrg_plus_plus": SVRGPlusPlus,
    }
)
"""A solver with its default settings for each name that estimators accept."""
