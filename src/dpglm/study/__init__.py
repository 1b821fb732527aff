"""A whole study under one budget: look at a table, learn a model, evaluate it on rows held out."""

from dpglm.study.certificate import StudyCertificate, verify_study
from dpglm.study.division import Purpose, Split
from dpglm.study.parts import Expected
from dpglm.study.planning import StudyPlan
from dpglm.study.running import StudyResult
from dpglm.study.study import Study

__all__ = [
    "Expected",
    "Purpose",
    "Split",
    "Study",
    "StudyCertificate",
    "StudyPlan",
    "StudyResult",
    "verify_study",
]
