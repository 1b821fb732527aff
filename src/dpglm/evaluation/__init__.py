"""Private evaluation: how good predictions are on held-out private rows, on one budget."""

from dpglm.evaluation.binary import BinaryTask
from dpglm.evaluation.binary_result import BinaryResult, CalibrationBin
from dpglm.evaluation.cells import LARGEST_LOSS
from dpglm.evaluation.classes import ClassesResult, ClassesTask
from dpglm.evaluation.evaluate import evaluate, evaluate_predictions
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.planning import EvaluationPlan, plan_evaluation
from dpglm.evaluation.predictions import predictions_of, task_of
from dpglm.evaluation.regression import RegressionResult, RegressionTask

__all__ = [
    "LARGEST_LOSS",
    "BinaryResult",
    "BinaryTask",
    "CalibrationBin",
    "ClassesResult",
    "ClassesTask",
    "Evaluation",
    "EvaluationPlan",
    "RegressionResult",
    "RegressionTask",
    "evaluate",
    "evaluate_predictions",
    "plan_evaluation",
    "predictions_of",
    "task_of",
]
