"""A whole study under one budget: look at a table, learn a model, evaluate it on rows held out."""

from dpglm.study.certificate import StudyCertificate
from dpglm.study.division import Purpose
from dpglm.study.parts.part import Expected
from dpglm.study.planning import StudyPlan
from dpglm.study.results import StudyResult
from dpglm.study.split import Split
from dpglm.study.study import Study
from dpglm.study.verification import verify_study

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
