"""The part of a study that learns a model."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from dpglm import estimators
from dpglm._estimator_names import ESTIMATORS
from dpglm._validation import in_one_line
from dpglm._words import plain_number
from dpglm.estimators._private import PrivateFit
from dpglm.estimators.additive._base import AdditiveModel
from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor
from dpglm.estimators.composed.formula import from_formula
from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.exceptions import PlanMismatchError
from dpglm.guidance.expectation import guidance
from dpglm.preprocessing.schema_encoder import SchemaEncoder
from dpglm.preprocessing.table_encoder import as_schema
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.study.division import ratio_of_slopes
from dpglm.study.parts.part import MODEL, Columns, DeclaredPart, Expected, PlannedPart
from dpglm.study.persons import Persons
from dpglm.tables.schema import Schema

__all__ = ["ADDITIVE", "Learning", "PlannedModel"]

ADDITIVE = "additive"
"""Name of the additive model of a schema's target, of classes or numbers."""

_OF_THE_STUDY = tuple(one.name for one in dataclasses.fields(PrivateFit))


@final
@dataclass(frozen=True)
class Learning(DeclaredPart):
    """What is to be learned; see ``Study.fit``."""

    estimator: Any
    formula: str | None
    settings: Mapping[str, Any]

    def model(self, schema: Schema, adjacency: Adjacency) -> Any:
        """Return the unfitted model of a table."""
        given = _named(self.estimator or schema.target.default_estimator, schema)
        known = given.get_params()
        for name in self.settings:
            if name not in known:
                own = [one for one in sorted(known) if one not in _OF_THE_STUDY]
                raise ValueError(
                    f"{name} is no parameter of {type(given).__name__}, which has {', '.join(own)}"
                )
        found = clone(given).set_params(**self.settings)
        _check_spending(found)
        if isinstance(found, PrivateLinearModel):
            return self._of_features(found, schema).set_params(adjacency=adjacency.value)
        if self.formula is not None:
            raise ValueError(
                f"formula must be None for {type(found).__name__}, which says itself what columns "
                "become"
            )
        if isinstance(found, AdditiveModel):
            _check_schema(found, schema)
            last = found
        else:
            last = found.steps[-1]
            last = last[1] if isinstance(last, tuple) else last
        _tell(last, schema)
        return found.set_params(adjacency=adjacency.value)

    def _of_features(self, estimator: PrivateLinearModel, schema: Schema) -> Any:
        """Return a pipeline that encodes the table for a linear model."""
        _tell(estimator, schema)
        if self.formula is not None:
            return from_formula(self.formula, schema, estimator)
        if not schema.has_intercept:
            estimator.set_params(fit_intercept=False)
        return PrivatePipeline([SchemaEncoder(schema), estimator])

    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedModel:
        model = self.model(schema, adjacency).set_params(budget=budget)
        if persons is not None:
            model.set_params(**persons.parameters)
        classes = schema.target.n_classes
        plan: Plan = model.plan(n_rows, **({"n_classes": classes} if is_classifier(model) else {}))
        if not adjacency.n_is_public:
            model.set_params(n_rows=n_rows)
        return PlannedModel(model, plan)


def _named(given: Any, schema: Schema) -> Any:
    """Return an estimator of any kind that can be learned, from its name or as it is."""
    if given == ADDITIVE:
        is_class = schema.target.n_classes is not None
        return AdditiveClassifier(schema) if is_class else AdditiveRegressor(schema)
    if isinstance(given, str):
        kind = getattr(estimators, ESTIMATORS.get(given, given), None)
        given = kind() if isinstance(kind, type) and issubclass(kind, PrivateLinearModel) else given
    if not isinstance(given, PrivateLinearModel | AdditiveModel | PrivatePipeline):
        raise ValueError(
            f"estimator must be one of {', '.join([ADDITIVE, *ESTIMATORS])}, a linear or additive "
            f"model of dpglm, a PrivatePipeline or None, got {in_one_line(given)}"
        )
    return given


def _check_spending(model: Any) -> None:
    """Refuse what the study says, so that nothing else is spent, recorded or protected."""
    for name in _OF_THE_STUDY:
        if getattr(model, name) != getattr(type(model), name):
            raise ValueError(
                f"{name} is for the study to say: leave the model's at "
                f"{getattr(type(model), name)!r}, got {in_one_line(getattr(model, name))}"
            )


def _tell(estimator: Any, schema: Schema) -> None:
    """Tell a model what the schema says of the target; a ValueError where they disagree."""
    for name, fact in schema.target.estimator_parameters().items():
        if name not in estimator.get_params(deep=False):
            raise ValueError(
                f"estimator {type(estimator).__name__} cannot predict the target "
                f"{schema.target.name!r} as the schema describes it"
            )
        own = getattr(estimator, name)
        if own is not None and sorted(own) != sorted(fact):
            raise ValueError(
                f"{name} must be that of the schema's target, {in_one_line(fact)}, or None, got "
                f"{in_one_line(own)}"
            )
        estimator.set_params(**{name: fact})


def _check_schema(model: AdditiveModel, schema: Schema) -> None:
    if as_schema(model.schema) != schema:
        raise ValueError("schema of an additive model must be that of the study")


@final
@dataclass(frozen=True, eq=False)
class PlannedModel(PlannedPart):
    """A model with its budget, unfitted, and the plan that its fit executes."""

    estimator: Any
    own_plan: Plan

    @property
    def plan(self) -> Plan:
        return self.own_plan

    @property
    def noise_to_sampling(self) -> float:
        mu = self.plan.budget.gdp_mu() / self.plan.adjacency.sum_sensitivity(1.0)
        return ratio_of_slopes(self.plan.data.n_coefficients, self.plan.data.n_rows, mu)

    def expected(self) -> tuple[Expected, ...]:
        said = guidance(self.plan)
        noise = plain_number(self.plan.coefficient_noise, 2)
        return (
            Expected(MODEL, "as a whole", said.verdict),
            Expected(MODEL, "a coefficient of an encoded column", f"noise ± {noise}"),
        )

    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        groups: NDArray[Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Any:
        fitted = clone(self.estimator).set_params(random_state=noise)
        fitted.fit(table, groups=groups, where=where, checkpoint=checkpoint)
        happened = fitted.solution_.plan.event
        if happened != self.plan.event:
            raise PlanMismatchError(f"planned to release {self.plan.event}, but {happened}")
        return fitted
