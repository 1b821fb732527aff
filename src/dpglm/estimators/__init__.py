"""Private estimators with scikit-learn's interface."""

# ruff: noqa: F403 - each module lists what it exports, so that a new estimator is listed once

from typing import TYPE_CHECKING

from dpglm.estimators.additive import models
from dpglm.estimators.additive.models import *
from dpglm.estimators.composed import pipeline, search
from dpglm.estimators.composed.pipeline import *
from dpglm.estimators.composed.search import *
from dpglm.estimators.linear import classifiers, regressors
from dpglm.estimators.linear.classifiers import *
from dpglm.estimators.linear.regressors import *

_MODULES = (classifiers, regressors, models, pipeline, search)

if not TYPE_CHECKING:  # type checkers do not evaluate it
    __all__ = sorted(name for module in _MODULES for name in module.__all__)
