"""Solvers: plans made before data, one loop that runs them, and one file per algorithm."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from dpglm._registry import makers_in
from dpglm.data.projection import Embedding, GaussianEmbedding, SparseEmbedding
from dpglm.solvers.auto import Auto, choose
from dpglm.solvers.base import (
    Facts,
    Method,
    Outcome,
    Plan,
    Solver,
    StepInfo,
    Theorem,
)
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.composite.calibrated import Calibrated
from dpglm.solvers.composite.johnson_lindenstrauss import JohnsonLindenstrauss
from dpglm.solvers.composite.preprocessed import Preprocessed, dpsgd_f
from dpglm.solvers.gradient.accelerated_mirror_descent import AcceleratedMirrorDescent
from dpglm.solvers.gradient.d2p2 import D2P2
from dpglm.solvers.gradient.frank_wolfe import FrankWolfe
from dpglm.solvers.gradient.local_sgd import LocalSGD
from dpglm.solvers.gradient.noisy_gd import NoisyGD, NoisySGD, pure_gd
from dpglm.solvers.gradient.svrg import SVRG, SVRGPlusPlus
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbation
from dpglm.solvers.minimizer.output_perturbation import OutputPerturbation
from dpglm.solvers.parts.schedules import (
    Constant,
    Exponential,
    Given,
    InverseSqrt,
    Last,
    LeastSquares,
    Lift,
    LinearDecay,
    Output,
    RandomIterate,
    Schedule,
    TailAverage,
    Transpose,
    UniformAverage,
)
from dpglm.solvers.run import run
from dpglm.solvers.second_order.newton import Newton
from dpglm.solvers.second_order.newton_raphson import NewtonRaphson
from dpglm.solvers.second_order.prototypes import Prototypes
from dpglm.solvers.second_order.random_intercepts import RandomIntercepts
from dpglm.solvers.second_order.sufficient_statistics import SufficientStatistics
from dpglm.solvers.uncertainty import NoiseCovariance, Solution, Uncertainty

__all__ = [
    "D2P2",
    "SOLVERS",
    "SVRG",
    "AcceleratedMirrorDescent",
    "Auto",
    "Calibrated",
    "CheckpointFile",
    "Constant",
    "Embedding",
    "Exponential",
    "Facts",
    "FrankWolfe",
    "GaussianEmbedding",
    "Given",
    "InverseSqrt",
    "JohnsonLindenstrauss",
    "Last",
    "LeastSquares",
    "Lift",
    "LinearDecay",
    "LocalSGD",
    "Method",
    "Newton",
    "NewtonRaphson",
    "NoiseCovariance",
    "NoisyGD",
    "NoisySGD",
    "ObjectivePerturbation",
    "Outcome",
    "Output",
    "OutputPerturbation",
    "Plan",
    "Preprocessed",
    "Prototypes",
    "RandomIntercepts",
    "RandomIterate",
    "SVRGPlusPlus",
    "Schedule",
    "Solution",
    "Solver",
    "SparseEmbedding",
    "StepInfo",
    "SufficientStatistics",
    "TailAverage",
    "Theorem",
    "Transpose",
    "Uncertainty",
    "UniformAverage",
    "choose",
    "dpsgd_f",
    "pure_gd",
    "run",
]

SOLVERS: Mapping[str, Callable[[], Solver]] = MappingProxyType(makers_in(globals(), Solver))
"""A solver with its default settings for each name that estimators accept."""
