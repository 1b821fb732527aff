"""Estimators, and the ways that rows are stored and summed."""

from __future__ import annotations

import contextlib
import dataclasses
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import torch
from sklearn.base import is_regressor

import dpglm
import dpglm.estimators
from dpglm.data.rows import DataSpec
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.oracle import gradients
from dpglm.preprocessing import Center
from dpglm.privacy import Adjacency
from experiments.audits.case import (
    ADD_REMOVE,
    BUDGET,
    RELATIONS,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
    of_plan,
)
from experiments.audits.solvers import LOGISTIC, SAMPLED, STEPS

__all__ = ["CASES"]

LIMIT = {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta, "row_norm": 1.0}
TARGETS = {"target_bounds": (0.0, 1.0)}
# At the log link a fit starts at the largest mean, so the smallest target is farthest from it.
LOG_LINKS = {
    "PoissonRegressor": 0.0,
    "NegativeBinomialRegressor": 0.0,
    "TweedieRegressor": 0.0,
    "GammaRegressor": 0.1,
}
# Attacked with other targets, and in other variants.
APART = ("LogisticRegression", *LOG_LINKS)
PUBLIC = (getattr(dpglm.estimators, name) for name in dpglm.estimators.__all__)
LINEAR_MODELS: list[type[PrivateLinearModel]] = [
    kind for kind in PUBLIC if issubclass(kind, PrivateLinearModel) and kind.__name__ not in APART
]


def public_facts(kind: type[PrivateLinearModel]) -> dict[str, Any]:
    """Declare the bounds of targets, for a regressor."""
    return TARGETS if is_regressor(kind()) else {}


def estimator_case(
    name: str,
    variant: str = "",
    relation: Adjacency = ZERO_OUT,
    *,
    n_classes: int = 2,
    why: str = "",
    **settings: Any,
) -> Case:
    """Attack the plan of an estimator on rows that it prepared itself."""

    def make() -> Setup:
        options = {"solver": STEPS, **LIMIT, **settings, "adjacency": relation.value}
        return Setup(getattr(dpglm, name)(**options))

    return Case("estimators", name, make, relation, variant, why, options={"n_classes": n_classes})


def log_link_case(
    name: str, relation: Adjacency, variant: str = "", *, offset: bool = False
) -> Case:
    """Attack a regressor with a log link."""
    least = LOG_LINKS[name]

    def make() -> Setup:
        # Slopes of a negative binomial with little dispersion come near their bound.
        own = {"dispersion": 0.05} if name == "NegativeBinomialRegressor" else {}
        model = getattr(dpglm, name)(
            **own,
            **LIMIT,
            solver=STEPS,
            target_bounds=(least, 10.0),
            adjacency=relation.value,
            n_rows=3,
        )
        return of_plan(model.plan(3, 2, offset=offset), target=least / 10.0)

    return Case("estimators", name, make, relation, variant)


def pipeline_case(relation: Adjacency) -> Case:
    """Attack preprocessing and model together."""

    def make() -> Setup:
        model = dpglm.LogisticRegression(solver=STEPS, row_norm=1.0)
        limit = {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta, "adjacency": relation.value}
        return Setup(dpglm.PrivatePipeline([("center", Center()), ("model", model)], **limit))

    return Case("estimators", "PrivatePipeline", make, relation, "centring, then a model")


def stored_case(
    variant: str, data: DataSpec, under: Any = contextlib.nullcontext, **rest: Any
) -> Case:
    """Attack gradient descent on rows that are stored, or summed, in another way."""

    def make() -> Setup:
        plan = STEPS.plan(LOGISTIC, BUDGET, data, ZERO_OUT)
        return dataclasses.replace(of_plan(plan, **rest), under=under)

    return Case("rows and sums", "noisy_gd", make, ZERO_OUT, variant)


def without_compiled_sums() -> AbstractContextManager[Any]:
    """Make sums in NumPy, as without a compiler."""
    return mock.patch.object(gradients, "compiled_rule", return_value=None)


CASES: list[Case] = [
    *(estimator_case("LogisticRegression", "with an intercept", one) for one in RELATIONS),
    estimator_case("LogisticRegression", "without", fit_intercept=False),
    estimator_case("LogisticRegression", "three classes", n_classes=3),
    estimator_case(
        "LogisticRegression", "three classes, one against the rest", n_classes=3, multi_class="ovr"
    ),
    estimator_case("LogisticRegression", "class weights", class_weight={0: 0.2, 1: 1.0}),
    estimator_case(
        "LogisticRegression",
        "Poisson samples",
        solver=dataclasses.replace(STEPS, sampling_rate=0.5),
        why=SAMPLED,
    ),
    estimator_case(
        "LogisticRegression", "feature bounds", row_norm=None, feature_bounds=(-1.0, 3.0)
    ),
    estimator_case("LinearRegression", relation=REPLACE_ONE, **TARGETS),
    *(estimator_case(kind.__name__, **public_facts(kind)) for kind in LINEAR_MODELS),
    *(log_link_case(name, ZERO_OUT) for name in LOG_LINKS),
    log_link_case("PoissonRegressor", ADD_REMOVE),
    log_link_case("PoissonRegressor", ZERO_OUT, "with offsets", offset=True),
    estimator_case("LinearSVC", "three classes", n_classes=3),
    pipeline_case(ZERO_OUT),
    pipeline_case(REPLACE_ONE),
    stored_case("dense, compiled sums", DataSpec(3, 2)),
    stored_case("dense, sums in NumPy", DataSpec(3, 2), without_compiled_sums),
    stored_case("single precision", DataSpec(3, 2, dtype="float32")),
    stored_case("CSR", DataSpec(3, 2, sparse=True)),
    stored_case(
        "CSR, single precision, an intercept",
        DataSpec(3, 2, sparse=True, dtype="float32", intercept=1.0),
    ),
    stored_case("torch tensors", DataSpec(3, 2), stored=torch.as_tensor),
    stored_case(
        "torch tensors, single precision", DataSpec(3, 2, dtype="float32"), stored=torch.as_tensor
    ),
    stored_case("weights up to 5", DataSpec(3, 2, weight_bound=5.0)),
]
