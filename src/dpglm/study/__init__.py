"""A whole study under one budget: explore a table, fit a model, evaluate it on held-out rows."""

from dpglm.data.split import Split
from dpglm.study.parts import Expected
from dpglm.study.planning import Purpose, StudyPlan
from dpglm.study.running import StudyResult
from dpglm.study.study import Study

__all__ = ["Expected", "Purpose", "Split", "Study", "StudyPlan", "StudyResult"]
