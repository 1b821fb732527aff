"""Short names of the estimators, for command lines and files."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["ESTIMATORS"]

ESTIMATORS: Mapping[str, str] = MappingProxyType(
    {
        "logistic": "LogisticRegression",
        "svm": "LinearSVC",
        "robust": "RobustClassifier",
        "ridge_classifier": "RidgeClassifier",
        "linear": "LinearRegression",
        "ridge": "Ridge",
        "lasso": "Lasso",
        "elasticnet": "ElasticNet",
        "huber": "HuberRegressor",
        "quantile": "QuantileRegressor",
        "poisson": "PoissonRegressor",
        "negative_binomial": "NegativeBinomialRegressor",
        "gamma": "GammaRegressor",
        "tweedie": "TweedieRegressor",
        "binomial": "BinomialRegressor",
        "classifier": "GeneralizedLinearClassifier",
        "regressor": "GeneralizedLinearRegressor",
    }
)
"""Short names of classes in ``dpglm.estimators``; any of its linear models goes by its own, too."""
