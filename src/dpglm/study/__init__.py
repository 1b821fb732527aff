"""A whole study under one budget: explore a table, fit a model, evaluate it on held-out rows."""

from dpglm.certificate.execution import Expected, PartPlan
from dpglm.data.split import Split
from dpglm.study.planning import StudyPlan
from dpglm.study.running import StudyResult
from dpglm.study.study import Study

__all__ = ["Expected", "PartPlan", "Split", "Study", "StudyPlan", "StudyResult"]
