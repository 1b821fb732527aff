"""scikit-learn's surface: estimators that validate, assemble and store."""

from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.estimators.composed.search import PrivateGridSearchCV, PrivateRandomizedSearchCV
from dpglm.estimators.composed.transformer import PrivateTransformer
from dpglm.estimators.linear.classifiers import (
    GeneralizedLinearClassifier,
    LinearSVC,
    LogisticRegression,
    RobustClassifier,
)
from dpglm.estimators.linear.least_squares import ElasticNet, Lasso, LinearRegression, Ridge
from dpglm.estimators.linear.regressors import (
    GeneralizedLinearRegressor,
    HuberRegressor,
    PoissonRegressor,
)

__all__ = [
    "ElasticNet",
    "GeneralizedLinearClassifier",
    "GeneralizedLinearRegressor",
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
