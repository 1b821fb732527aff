"""Solvers that train several models, or keep several iterates, and choose one privately."""

from dpglm.selection.choices import BestIterate
from dpglm.selection.search import ConfidenceBoosting, NormGridSearch

__all__ = ["BestIterate", "ConfidenceBoosting", "NormGridSearch"]
