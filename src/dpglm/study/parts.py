"""The model of a study, and the declarations of model and evaluation."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import clone, is_classifier

from dpglm import estimators
from dpglm._registry import ESTIMATORS
from dpglm._validation import in_one_line
from dpglm._words import plain_number
from dpglm.certificate.execution import Expected, PartInput, StudyPart
from dpglm.data.protection import MODEL, Protection
from dpglm.estimators._predictor import FitData
from dpglm.estimators._private import PrivateFit
from dpglm.estimators.additive._base import AdditiveModel
from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor
from dpglm.estimators.composed.pipeline import PrivatePipeline, from_formula
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.evaluation import BinaryTask, ClassesTask, RegressionTask
from dpglm.evaluation.planning import EvaluationPart, has_probabilities
from dpglm.evaluation.task import EvaluationTask
from dpglm.guidance.expectation import guidance
from dpglm.preprocessing.encoders import SchemaEncoder, as_schema
from dpglm.solvers.base import Plan
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.schema import Schema

ADDITIVE = "additive"
"""Name of the additive model of a schema's target."""
_OF_THE_STUDY = tuple(one.name for one in dataclasses.fields(PrivateFit))


def coefficient_ratio(values: int, n_rows: int, mu: float) -> float:
    """Return the ratio of noise variance to sampling variance, for ``values`` coefficients.

    A sum of n scores of norm at most b, released with mu, gets noise of variance ``b^2 / mu^2`` in
    each of k values. Its sampling variance is at most ``n b^2 / 4`` in all, since the score of a
    logistic loss has variance ``p (1 - p)``, at most a quarter.

    >>> coefficient_ratio(100, 10_000, 0.2)
    1.0
    """
    return 4.0 * values / (n_rows * mu * mu)


@final
@dataclass(frozen=True, eq=False)
class ModelPart(StudyPart):
    """A model of a table; ``model`` is unfitted, ``schema`` describes the table."""

    model: Any
    schema: Schema

    def _protected(self, protection: Protection) -> Any:
        """Return the unfitted model with the protection of its part."""
        model = clone(self.model)
        model.set_params(budget=protection.budget, adjacency=protection.adjacency.value)
        if not protection.adjacency.n_is_public:
            model.set_params(n_rows=protection.n_rows)
        if protection.groups is not None:
            bound = protection.groups
            model.set_params(n_groups=bound.n_groups, max_rows_per_group=int(bound.rows))
        return model

    def plan(self, protection: Protection) -> Plan:
        model = self._protected(protection)
        options = {"n_classes": self.schema.target.n_classes} if is_classifier(model) else {}
        plan: Plan = model.plan(protection.n_rows, **options)
        return plan

    def noise_to_sampling(self, protection: Protection) -> float:
        model = self._protected(protection)
        n_outputs = self.schema.target.n_classes or 1
        values = model.n_planned_columns(protection.n_rows) * (n_outputs if n_outputs > 2 else 1)
        mu = protection.budget.gdp_mu() / protection.adjacency.sum_sensitivity(1.0)
        return coefficient_ratio(values, protection.n_rows, mu)

    def title(self, plan: Plan) -> str:
        return f"a model of {plan.data.n_rows} rows"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        return (("a coefficient of an encoded column", plan.coefficient_noise),)

    def expected(self, plan: Plan) -> tuple[Expected, ...]:
        noise = plain_number(plan.coefficient_noise, 2)
        return (
            Expected(MODEL, "as a whole", guidance(plan).verdict),
            Expected(MODEL, "a coefficient of an encoded column", f"noise ± {noise}"),
        )

    def run(self, plan: Plan, given: PartInput) -> Any:
        fitted = self._protected(plan.protection).set_params(
            ledger=given.ledger, random_state=given.random_state
        )
        if given.max_rows_per_group is not None:
            fitted.set_params(max_rows_per_group=given.max_rows_per_group)
        (table,), groups, where = given.rows, given.groups, given.where
        data = FitData(table, groups=groups, where=where, checkpoint=given.checkpoint, plan=plan)
        fitted._fit(data)
        return fitted


def model_of(
    schema: Schema, estimator: Any, formula: str | None, settings: Mapping[str, Any]
) -> Any:
    """Return the unfitted model of a table that ``Study.fit`` declares."""
    given = _named(estimator or schema.target.default_estimator, schema)
    known = given.get_params()
    for name in settings:
        if name not in known:
            own = [one for one in sorted(known) if one not in _OF_THE_STUDY]
            raise ValueError(
                f"{name} must be a parameter of {type(given).__name__}: {', '.join(own)}"
            )
    found = clone(given).set_params(**settings)
    _check_spending(found)
    if isinstance(found, PrivateLinearModel):
        return _of_features(found, schema, formula)
    if formula is not None:
        raise ValueError(
            f"formula must be None for {type(found).__name__}, which encodes the columns itself"
        )
    if isinstance(found, AdditiveModel):
        if as_schema(found.schema) != schema:
            raise ValueError("schema of an additive model must be the schema of the study")
        last = found
    else:
        last = found.steps[-1]
        last = last[1] if isinstance(last, tuple) else last
    _set_target(last, schema)
    return found


def _of_features(estimator: PrivateLinearModel, schema: Schema, formula: str | None) -> Any:
    """Return a pipeline that encodes the table for a linear model."""
    _set_target(estimator, schema)
    if formula is not None:
        return from_formula(formula, schema, estimator)
    if not schema.has_intercept:
        estimator.set_params(fit_intercept=False)
    return PrivatePipeline([SchemaEncoder(schema), estimator])


def _named(given: Any, schema: Schema) -> Any:
    """Return an estimator that a study can fit, from its name or as given."""
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
    """Refuse settings of the model that belong to the study."""
    for name in _OF_THE_STUDY:
        default, found = getattr(type(model), name), getattr(model, name)
        if found != default:
            raise ValueError(
                f"{name} must be set on the Study: leave the model's at {default!r}, got "
                f"{in_one_line(found)}"
            )


def _set_target(estimator: Any, schema: Schema) -> None:
    """Set the parameters that describe the target; a ValueError where they disagree."""
    for name, fact in schema.target.estimator_parameters().items():
        if name not in estimator.get_params(deep=False):
            raise ValueError(
                f"estimator {type(estimator).__name__} cannot predict the target "
                f"{schema.target.name!r} of the schema"
            )
        own = getattr(estimator, name)
        if own is not None and sorted(own) != sorted(fact):
            raise ValueError(
                f"{name} must be None or match the schema's target, {in_one_line(fact)}, got "
                f"{in_one_line(own)}"
            )
        estimator.set_params(**{name: fact})


# Evaluation.


def evaluation_of(
    part: ModelPart, thresholds: Sequence[float] | None, by: str | None, level: float
) -> EvaluationPart:
    """Return the evaluation of a model that ``Study.evaluate`` declares."""
    task, schema = _task(part, None if thresholds is None else tuple(thresholds)), part.schema
    column = None if by is None else _categories(by, schema)
    return EvaluationPart(task, () if column is None else column.categories, level, schema, column)


def _task(part: ModelPart, thresholds: tuple[float, ...] | None) -> EvaluationTask:
    known, model = part.schema.target.estimator_parameters(), part.model
    if "target_bounds" in known:
        _check_no_thresholds("numbers", thresholds)
        low, high = known["target_bounds"]
        return RegressionTask(float(low), float(high))
    # In the order of fitted classifiers.
    classes = tuple(np.unique(known["classes"]).tolist())
    if len(classes) == 2:
        # A regressor of two labels predicts probabilities.
        has_them = has_probabilities(model) or not is_classifier(model)
        return BinaryTask(classes, thresholds, has_them)
    _check_no_thresholds(f"{len(classes)} classes", thresholds)
    if not has_probabilities(model):
        raise ValueError(
            f"evaluating a model of {len(classes)} classes requires probabilities, which "
            f"{type(model).__name__} does not have"
        )
    return ClassesTask(classes)


def _check_no_thresholds(target: str, thresholds: tuple[float, ...] | None) -> None:
    if thresholds is not None:
        raise ValueError(f"thresholds require a target of two classes, got a target of {target}")


def _categories(name: Any, schema: Schema) -> CategoricalColumn:
    found = {one.name: one for one in schema.columns if isinstance(one, CategoricalColumn)}
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"by must name a categorical column, one of {list(found)}, got {name!r}")
    return found[name]
