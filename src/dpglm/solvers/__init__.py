"""Solvers: plans made before data, one loop that runs them, and one file per algorithm."""

from dpglm.data.projection import Embedding, GaussianEmbedding, SparseEmbedding
from dpglm.solvers.accelerated_mirror_descent import AcceleratedMirrorDescent
from dpglm.solvers.auto import Auto, choose
from dpglm.solvers.base import Method, Plan, Solution, Solver, StepInfo
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.solvers.d2p2 import D2P2
from dpglm.solvers.frank_wolfe import FrankWolfe
from dpglm.solvers.johnson_lindenstrauss import JohnsonLindenstrauss
from dpglm.solvers.lifts import LeastSquares, Lift, Transpose
from dpglm.solvers.local_sgd import LocalSGD
from dpglm.solvers.newton import Newton
from dpglm.solvers.noisy_gd import NoisyGD
from dpglm.solvers.noisy_sgd import NoisySGD
from dpglm.solvers.objective_perturbation import ObjectivePerturbation
from dpglm.solvers.output_perturbation import OutputPerturbation
from dpglm.solvers.outputs import Last, Output, RandomIterate, TailAverage, UniformAverage
from dpglm.solvers.paper_settings import (
    Arora2022Lipschitz,
    Arora2022Smooth,
    Song2021,
    Wang2017NonConvex,
    Wang2017PolyakLojasiewicz,
    dpsgd_f,
    dpsgd_f_theoretical,
)
from dpglm.solvers.preprocessed import Preprocessed
from dpglm.solvers.pure_gd import PureGD
from dpglm.solvers.registry import SOLVERS
from dpglm.solvers.run import run
from dpglm.solvers.schedules import (
    Constant,
    Exponential,
    Given,
    InverseSqrt,
    LinearDecay,
    Schedule,
)
from dpglm.solvers.sufficient_statistics import SufficientStatistics
from dpglm.solvers.svrg import SVRG
from dpglm.solvers.svrg_plus_plus import SVRGPlusPlus

__all__ = [
    "D2P2",
    "SOLVERS",
    "SVRG",
    "AcceleratedMirrorDescent",
    "Arora2022Lipschitz",
    "Arora2022Smooth",
    "Auto",
    "CheckpointFile",
    "Constant",
    "Embedding",
    "Exponential",
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
    "NoisyGD",
    "NoisySGD",
    "ObjectivePerturbation",
    "Output",
    "OutputPerturbation",
    "Plan",
    "Preprocessed",
    "PureGD",
    "RandomIterate",
    "SVRGPlusPlus",
    "Schedule",
    "Solution",
    "Solver",
    "Song2021",
    "SparseEmbedding",
    "StepInfo",
    "SufficientStatistics",
    "TailAverage",
    "Transpose",
    "UniformAverage",
    "Wang2017NonConvex",
    "Wang2017PolyakLojasiewicz",
    "choose",
    "dpsgd_f",
    "dpsgd_f_theoretical",
    "run",
]
