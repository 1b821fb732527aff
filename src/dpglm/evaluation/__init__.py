"""Private evaluation of predictions on held-out rows."""

from dpglm.evaluation.binary import BinaryResult, BinaryTask, CalibrationBin
from dpglm.evaluation.classes import ClassesResult, ClassesTask
from dpglm.evaluation.estimates import LARGEST_LOSS
from dpglm.evaluation.evaluate import (
    METRICS,
    PrivateScorer,
    evaluate,
    evaluate_predictions,
    private_scorer,
)
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.planning import plan_evaluation, predictions_of, task_of
from dpglm.evaluation.regression import RegressionResult, RegressionTask
from dpglm.evaluation.task import Metric

__all__ = [
    "LARGEST_LOSS",
    "METRICS",
    "BinaryResult",
    "BinaryTask",
    "CalibrationBin",
    "ClassesResult",
    "ClassesTask",
    "Evaluation",
    "Metric",
    "PrivateScorer",
    "RegressionResult",
    "RegressionTask",
    "evaluate",
    "evaluate_predictions",
    "plan_evaluation",
    "predictions_of",
    "private_scorer",
    "task_of",
]
