"""Solvers that train several models, or keep several iterates, and choose one privately."""

from dpglm.selection.choices import BestIterate as BestIterate
from dpglm.selection.search import ConfidenceBoosting as ConfidenceBoosting
from dpglm.selection.search import NormGridSearch as NormGridSearch
