"""Solvers: plans made before data, one loop that runs them, and one file per algorithm."""

from dpglm.solvers.base import Method, Plan, Solution, Solver, StepInfo
from dpglm.solvers.noisy_gd import NoisyGD
from dpglm.solvers.outputs import Last, Output, RandomIterate, TailAverage, UniformAverage
from dpglm.solvers.run import run
from dpglm.solvers.schedules import Constant, Exponential, InverseSqrt, LinearDecay, Schedule

__all__ = [
    "Constant",
    "Exponential",
    "InverseSqrt",
    "Last",
    "LinearDecay",
    "Method",
    "NoisyGD",
    "Output",
    "Plan",
    "RandomIterate",
    "Schedule",
    "Solution",
    "Solver",
    "StepInfo",
    "TailAverage",
    "UniformAverage",
    "run",
]
