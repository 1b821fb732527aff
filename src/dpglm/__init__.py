"""Linear and generalized linear models under differential privacy, in scikit-learn's style."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from dpglm._version import __version__ as __version__

if TYPE_CHECKING:
    from dpglm.data.pyspark import SparkRows as SparkRows
    from dpglm.data.stream.arrow import ArrowRows as ArrowRows
    from dpglm.data.stream.arrow import ParquetRows as ParquetRows
    from dpglm.data.stream.stored import MappedRows as MappedRows
    from dpglm.effects import ate as ate
    from dpglm.effects import load_effect as load_effect
    from dpglm.estimators import *  # noqa: F403
    from dpglm.estimators.composed.pipeline import from_formula as from_formula
    from dpglm.evaluation import evaluate as evaluate
    from dpglm.evaluation import evaluate_predictions as evaluate_predictions
    from dpglm.exceptions import LowSignalWarning as LowSignalWarning
    from dpglm.exceptions import NearIdsWarning as NearIdsWarning
    from dpglm.exceptions import PlanMismatchError as PlanMismatchError
    from dpglm.exceptions import PublicInformationWarning as PublicInformationWarning
    from dpglm.exceptions import SeededNoiseWarning as SeededNoiseWarning
    from dpglm.exceptions import SlowSumsWarning as SlowSumsWarning
    from dpglm.exceptions import UnpaidReleaseWarning as UnpaidReleaseWarning
    from dpglm.exploration import describe as describe
    from dpglm.inference import table as table
    from dpglm.ledger import PrivacyLedger as PrivacyLedger
    from dpglm.moments import load_moments as load_moments
    from dpglm.moments import release_moments as release_moments
    from dpglm.preprocessing import SplineEncoder as SplineEncoder
    from dpglm.privacy import Adjacency as Adjacency
    from dpglm.privacy import ApproximateDP as ApproximateDP
    from dpglm.privacy import GaussianDP as GaussianDP
    from dpglm.privacy import ZeroConcentratedDP as ZeroConcentratedDP
    from dpglm.solvers import NoisyGD as NoisyGD
    from dpglm.study import Study as Study

# Loaded when first used, so that `import dpglm` does not wait for scikit-learn.
_NAMES = {
    "dpglm.data.pyspark": ("SparkRows",),
    "dpglm.data.stream.arrow": ("ArrowRows", "ParquetRows"),
    "dpglm.data.stream.stored": ("MappedRows",),
    "dpglm.effects": ("ate", "load_effect"),
    "dpglm.estimators.composed.pipeline": ("from_formula",),
    "dpglm.evaluation": ("evaluate", "evaluate_predictions"),
    "dpglm.exceptions": (
        *("LowSignalWarning", "NearIdsWarning", "PlanMismatchError", "PublicInformationWarning"),
        *("SeededNoiseWarning", "SlowSumsWarning", "UnpaidReleaseWarning"),
    ),
    "dpglm.exploration": ("describe",),
    "dpglm.inference": ("table",),
    "dpglm.ledger": ("PrivacyLedger",),
    "dpglm.moments": ("load_moments", "release_moments"),
    "dpglm.preprocessing": ("SplineEncoder",),
    "dpglm.privacy": ("Adjacency", "ApproximateDP", "GaussianDP", "ZeroConcentratedDP"),
    "dpglm.solvers": ("NoisyGD",),
    "dpglm.study": ("Study",),
}
_HOME = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    # Other names with a capital letter are estimators.
    home = _HOME.get(name, "dpglm.estimators" if name[:1].isupper() else None)
    # Subpackages are imported on access, as in `dpglm.report.guidance(plan)`.
    is_package = home is None and name.isidentifier() and not name.startswith("_")
    if is_package and importlib.util.find_spec(f"dpglm.{name}") is not None:
        return importlib.import_module(f"dpglm.{name}")
    if name == "__all__":
        value: Any = sorted(
            [*_HOME, *importlib.import_module("dpglm.estimators").__all__, "__version__"]
        )
    elif home is None or not hasattr(importlib.import_module(home), name):
        raise AttributeError(f"module 'dpglm' has no attribute {name!r}")
    else:
        value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
