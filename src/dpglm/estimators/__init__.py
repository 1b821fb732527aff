"""scikit-learn's surface: estimators that validate, assemble and store."""

from dpglm.estimators.classifiers import LinearSVC, LogisticRegression, RobustClassifier
from dpglm.estimators.regressors import (
    ElasticNet,
    HuberRegressor,
    Lasso,
    LinearRegression,
    PoissonRegressor,
    Ridge,
)

__all__ = [
    "ElasticNet",
    "HuberRegressor",
    "Lasso",
    "LinearRegression",
    "LinearSVC",
    "LogisticRegression",
    "PoissonRegressor",
    "Ridge",
    "RobustClassifier",
]
