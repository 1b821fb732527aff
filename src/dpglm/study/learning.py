"""The part of a study that learns a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from sklearn.base import clone

from dpglm import estimators
from dpglm._estimator_names import ESTIMATORS
from dpglm._words import plain_number
from dpglm.estimators.composed.formula import from_formula
from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.exceptions import PlanMismatchError
from dpglm.guidance.expectation import guidance
from dpglm.preprocessing.schema_encoder import SchemaEncoder
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.study.division import ratio_of_slopes
from dpglm.study.part import MODEL, Columns, DeclaredPart, Expected, PlannedPart
from dpglm.tables.schema import Schema

__all__ = ["Learning", "PlannedModel"]


@final
@dataclass(frozen=True)
class Learning(DeclaredPart):
    """What is to be learned; see ``Study.fit``."""

    estimator: Any
    formula: str | None
    settings: Mapping[str, Any]

    def model(self, schema: Schema, adjacency: Adjacency) -> Any:
        """Return the unfitted model of a table."""
        if isinstance(self.estimator, PrivatePipeline):
            if self.formula is not None:
                raise ValueError("formula must be None for a pipeline, whose steps say it")
            found = clone(self.estimator).set_params(**self.settings)
        else:
            estimator = self._estimator(schema)
            if self.formula is not None:
                found = from_formula(self.formula, schema, estimator)
            else:
                facts = schema.target.estimator_parameters()
                if not schema.has_intercept:
                    facts["fit_intercept"] = False
                found = PrivatePipeline([SchemaEncoder(schema), estimator.set_params(**facts)])
        return found.set_params(adjacency=adjacency.value)

    def _estimator(self, schema: Schema) -> Any:
        given = self.estimator or schema.target.default_estimator
        if isinstance(given, str):
            kind = getattr(estimators, ESTIMATORS.get(given, given), None)
            given = kind() if isinstance(kind, type) else given
        if not isinstance(given, PrivateLinearModel):
            raise ValueError(
                f"estimator must be one of {', '.join(ESTIMATORS)}, a linear model of dpglm, a "
                f"PrivatePipeline or None, got {self.estimator!r}"
            )
        needed = set(schema.target.estimator_parameters())
        if not needed <= set(given.get_params()):
            raise ValueError(
                f"estimator {type(given).__name__} cannot predict the target "
                f"{schema.target.name!r} as the schema describes it"
            )
        return clone(given).set_params(**self.settings)

    def plan_within(
        self, schema: Schema, adjacency: Adjacency, n_rows: int, budget: PrivacyBudget
    ) -> PlannedModel:
        model = self.model(schema, adjacency).set_params(budget=budget)
        classes = schema.target.n_classes
        plan: Plan = model.plan(n_rows, **({} if classes is None else {"n_classes": classes}))
        if not adjacency.n_is_public:
            model.set_params(n_rows=n_rows)
        return PlannedModel(model, plan)


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
            Expected(MODEL, "model", said.verdict),
            Expected(MODEL, "a coefficient of an encoded column", f"noise ± {noise} at most"),
        )

    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
    ) -> Any:
        fitted = clone(self.estimator).set_params(random_state=noise)
        fitted.fit(table, checkpoint=checkpoint)
        happened = fitted.solution_.plan.event
        if happened != self.plan.event:
            raise PlanMismatchError(f"planned to release {self.plan.event}, but {happened}")
        return fitted
