"""scikit-learn's surface: estimators that validate, assemble and store."""

from dpglm.estimators.classifiers import LinearSVC, LogisticRegression, RobustClassifier
from dpglm.estimators.least_squares import ElasticNet, Lasso, LinearRegression, Ridge
from dpglm.estimators.pipeline import PrivatePipeline
from dpglm.estimators.regressors import HuberRegressor, PoissonRegressor
from dpglm.estimators.search import PrivateGridSearchCV, PrivateRandomizedSearchCV
from dpglm.estimators.transformer import PrivateTransformer

__all__ = [
    "ElasticNet",
    "HuberRegressor",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "PrivateGridSearchCV",
    "PrivatePipeline",
    "PrivateRandomizedSearchCV",
    "PrivateTransformer",
    "Ridge",
    "RobustClassifier",
]
