"""Solvers: plans made before data, one loop that runs them, and one file per algorithm."""

from dpglm._registry import makers_in as _makers_in
from dpglm.data.maps import Embedding as Embedding
from dpglm.data.maps import GaussianEmbedding as GaussianEmbedding
from dpglm.data.maps import SparseEmbedding as SparseEmbedding
from dpglm.solvers.auto import Auto as Auto
from dpglm.solvers.auto import choose as choose
from dpglm.solvers.base import Facts as Facts
from dpglm.solvers.base import Method as Method
from dpglm.solvers.base import Outcome as Outcome
from dpglm.solvers.base import Plan as Plan
from dpglm.solvers.base import Solver as Solver
from dpglm.solvers.base import StepInfo as StepInfo
from dpglm.solvers.base import Theorem as Theorem
from dpglm.solvers.checkpoint import CheckpointFile as CheckpointFile
from dpglm.solvers.composite.calibrated import Calibrated as Calibrated
from dpglm.solvers.composite.johnson_lindenstrauss import (
    JohnsonLindenstrauss as JohnsonLindenstrauss,
)
from dpglm.solvers.composite.preprocessed import Preprocessed as Preprocessed
from dpglm.solvers.composite.preprocessed import dpsgd_f as dpsgd_f
from dpglm.solvers.gradient.accelerated_mirror_descent import (
    AcceleratedMirrorDescent as AcceleratedMirrorDescent,
)
from dpglm.solvers.gradient.d2p2 import D2P2 as D2P2
from dpglm.solvers.gradient.frank_wolfe import FrankWolfe as FrankWolfe
from dpglm.solvers.gradient.local_sgd import LocalSGD as LocalSGD
from dpglm.solvers.gradient.noisy_gd import NoisyGD as NoisyGD
from dpglm.solvers.gradient.noisy_gd import NoisySGD as NoisySGD
from dpglm.solvers.gradient.noisy_gd import pure_gd as pure_gd
from dpglm.solvers.gradient.svrg import SVRG as SVRG
from dpglm.solvers.gradient.svrg import SVRGPlusPlus as SVRGPlusPlus
from dpglm.solvers.minimizer.objective_perturbation import (
    ObjectivePerturbation as ObjectivePerturbation,
)
from dpglm.solvers.minimizer.output_perturbation import OutputPerturbation as OutputPerturbation
from dpglm.solvers.parts.schedules import Constant as Constant
from dpglm.solvers.parts.schedules import Exponential as Exponential
from dpglm.solvers.parts.schedules import Given as Given
from dpglm.solvers.parts.schedules import InverseSqrt as InverseSqrt
from dpglm.solvers.parts.schedules import Last as Last
from dpglm.solvers.parts.schedules import LeastSquares as LeastSquares
from dpglm.solvers.parts.schedules import Lift as Lift
from dpglm.solvers.parts.schedules import LinearDecay as LinearDecay
from dpglm.solvers.parts.schedules import Output as Output
from dpglm.solvers.parts.schedules import RandomIterate as RandomIterate
from dpglm.solvers.parts.schedules import Schedule as Schedule
from dpglm.solvers.parts.schedules import TailAverage as TailAverage
from dpglm.solvers.parts.schedules import Transpose as Transpose
from dpglm.solvers.parts.schedules import UniformAverage as UniformAverage
from dpglm.solvers.run import run as run
from dpglm.solvers.second_order.newton import Newton as Newton
from dpglm.solvers.second_order.newton_raphson import NewtonRaphson as NewtonRaphson
from dpglm.solvers.second_order.prototypes import Prototypes as Prototypes
from dpglm.solvers.second_order.random_intercepts import RandomIntercepts as RandomIntercepts
from dpglm.solvers.second_order.sufficient_statistics import (
    SufficientStatistics as SufficientStatistics,
)
from dpglm.solvers.uncertainty import NoiseCovariance as NoiseCovariance
from dpglm.solvers.uncertainty import Solution as Solution
from dpglm.solvers.uncertainty import Uncertainty as Uncertainty

SOLVERS = _makers_in(globals(), Solver)
"""A solver with its default settings for each name that estimators accept."""
