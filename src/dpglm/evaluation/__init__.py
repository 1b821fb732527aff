"""Private evaluation: how good predictions are on held-out private rows, on one budget."""

from dpglm.evaluation.binary import BinaryResult, BinaryTask, CalibrationBin
from dpglm.evaluation.classes import ClassesResult, ClassesTask
from dpglm.evaluation.estimates import LARGEST_LOSS
from dpglm.evaluation.evaluate import evaluate, evaluate_predictions, predictions_of, task_of
from dpglm.evaluation.evaluation import Evaluation
from dpglm.evaluation.planning import EvaluationPlan, plan_evaluation
from dpglm.evaluation.regression import RegressionResult, RegressionTask
from dpglm.evaluation.scorer import PrivateScorer, private_scorer

__all__ = [
    "LARGEST_LOSS",
    "BinaryResult",
    "BinaryTask",
    "CalibrationBin",
    "ClassesResult",
    "ClassesTask",
    "Evaluation",
    "EvaluationPlan",
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
