"""Private evaluation of predictions on held-out rows."""

from dpglm.evaluation.binary import BinaryResult as BinaryResult
from dpglm.evaluation.binary import BinaryTask as BinaryTask
from dpglm.evaluation.binary import CalibrationBin as CalibrationBin
from dpglm.evaluation.classes import ClassesResult as ClassesResult
from dpglm.evaluation.classes import ClassesTask as ClassesTask
from dpglm.evaluation.estimates import LARGEST_LOSS as LARGEST_LOSS
from dpglm.evaluation.evaluate import METRICS as METRICS
from dpglm.evaluation.evaluate import evaluate as evaluate
from dpglm.evaluation.evaluate import evaluate_predictions as evaluate_predictions
from dpglm.evaluation.evaluate import private_scorer as private_scorer
from dpglm.evaluation.evaluation import Evaluation as Evaluation
from dpglm.evaluation.planning import plan_evaluation as plan_evaluation
from dpglm.evaluation.planning import predictions_of as predictions_of
from dpglm.evaluation.planning import task_of as task_of
from dpglm.evaluation.regression import RegressionResult as RegressionResult
from dpglm.evaluation.regression import RegressionTask as RegressionTask
from dpglm.evaluation.task import Metric as Metric
