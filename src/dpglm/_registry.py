"""Registries filled by the exports of a package, optional packages, and short names."""

from __future__ import annotations

import functools
import importlib
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")


@functools.cache
def snake_case(name: str) -> str:
    """Return the name of a class in lower case with underscores.

    >>> [snake_case(name) for name in ("NoisyGD", "SVRGPlusPlus", "D2P2", "L2Ball")]
    ['noisy_gd', 'svrg_plus_plus', 'd2p2', 'l2_ball']
    """
    return _WORDS.sub("_", name).lower()


def makers_in(namespace: Mapping[str, Any], kind: type) -> Mapping[str, Callable[[], Any]]:
    """Return the callables of a module that make an object of a kind without arguments.

    These are concrete subclasses, under their names in snake case, and functions annotated to
    return the kind.
    """
    found: dict[str, Callable[[], Any]] = {}
    for value in namespace.values():
        if inspect.isclass(value):
            made: Any = value
        elif inspect.isfunction(value) and _needs_nothing(value):
            made = typing.get_type_hints(value).get("return")
        else:
            continue
        is_kind = inspect.isclass(made) and issubclass(made, kind) and not inspect.isabstract(made)
        if is_kind and (made is not value or _needs_nothing(value)):
            found[snake_case(value.__name__)] = value
    return MappingProxyType(dict(sorted(found.items())))


def _needs_nothing(make: Callable[..., Any]) -> bool:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(
        one.default is not inspect.Parameter.empty or one.kind in optional
        for one in inspect.signature(make).parameters.values()
    )


def require(module: str, extra: str) -> Any:
    """Import an optional package; an ImportError names the extra of dpglm that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}, which is not installed: pip install 'dpglm[{extra}]'"
        ) from error


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
"""Short names of linear models for command lines and files; class names work as well."""
