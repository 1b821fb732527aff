"""Linear and generalized linear models under differential privacy, in scikit-learn's style."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpglm._version import __version__ as __version__

if TYPE_CHECKING:
    from dpglm.data.stream.mapped import MappedRows as MappedRows
    from dpglm.data.stream.parquet import ParquetRows as ParquetRows
    from dpglm.estimators import ElasticNet as ElasticNet
    from dpglm.estimators import GeneralizedLinearClassifier as GeneralizedLinearClassifier
    from dpglm.estimators import GeneralizedLinearRegressor as GeneralizedLinearRegressor
    from dpglm.estimators import HuberRegressor as HuberRegressor
    from dpglm.estimators import Lasso as Lasso
    from dpglm.estimators import LinearRegression as LinearRegression
    from dpglm.estimators import LinearSVC as LinearSVC
    from dpglm.estimators import LogisticRegression as LogisticRegression
    from dpglm.estimators import PoissonRegressor as PoissonRegressor
    from dpglm.estimators import PrivateGridSearchCV as PrivateGridSearchCV
    from dpglm.estimators import PrivatePipeline as PrivatePipeline
    from dpglm.estimators import PrivateRandomizedSearchCV as PrivateRandomizedSearchCV
    from dpglm.estimators import PrivateTransformer as PrivateTransformer
    from dpglm.estimators import Ridge as Ridge
    from dpglm.estimators import RobustClassifier as RobustClassifier
    from dpglm.exceptions import LowSignalWarning as LowSignalWarning
    from dpglm.exceptions import PlanMismatchError as PlanMismatchError
    from dpglm.exceptions import PublicInformationWarning as PublicInformationWarning
    from dpglm.exceptions import SlowSumsWarning as SlowSumsWarning
    from dpglm.ledger import PrivacyLedger as PrivacyLedger
    from dpglm.privacy import Adjacency as Adjacency
    from dpglm.privacy import ApproximateDP as ApproximateDP
    from dpglm.privacy import GaussianDP as GaussianDP
    from dpglm.privacy import ZeroConcentratedDP as ZeroConcentratedDP
    from dpglm.solvers import NoisyGD as NoisyGD

# Loaded when first used, so that `import dpglm` does not wait for scikit-learn.
_HOME = {
    "Adjacency": "dpglm.privacy",
    "ApproximateDP": "dpglm.privacy",
    "ElasticNet": "dpglm.estimators",
    "GaussianDP": "dpglm.privacy",
    "GeneralizedLinearClassifier": "dpglm.estimators",
    "GeneralizedLinearRegressor": "dpglm.estimators",
    "HuberRegressor": "dpglm.estimators",
    "Lasso": "dpglm.estimators",
    "LinearRegression": "dpglm.estimators",
    "LinearSVC": "dpglm.estimators",
    "LogisticRegression": "dpglm.estimators",
    "LowSignalWarning": "dpglm.exceptions",
    "MappedRows": "dpglm.data.stream.mapped",
    "NoisyGD": "dpglm.solvers",
    "ParquetRows": "dpglm.data.stream.parquet",
    "PlanMismatchError": "dpglm.exceptions",
    "PoissonRegressor": "dpglm.estimators",
    "PrivacyLedger": "dpglm.ledger",
    "PrivateGridSearchCV": "dpglm.estimators",
    "PrivatePipeline": "dpglm.estimators",
    "PrivateRandomizedSearchCV": "dpglm.estimators",
    "PrivateTransformer": "dpglm.estimators",
    "PublicInformationWarning": "dpglm.exceptions",
    "Ridge": "dpglm.estimators",
    "RobustClassifier": "dpglm.estimators",
    "SlowSumsWarning": "dpglm.exceptions",
    "ZeroConcentratedDP": "dpglm.privacy",
}

__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpglm' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
