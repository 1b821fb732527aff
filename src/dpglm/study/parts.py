"""The parts of a study: exploration, model and evaluation."""

from __future__ import annotations

import abc
import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from dpglm import estimators
from dpglm._registry import ESTIMATORS
from dpglm._validation import check_real, in_one_line
from dpglm._words import plain_number
from dpglm.data.protection import Protection
from dpglm.data.split import EVALUATION, EXPLORATION, MODEL
from dpglm.estimators._private import PrivateFit
from dpglm.estimators.additive._base import AdditiveModel
from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor
from dpglm.estimators.composed.pipeline import PrivatePipeline, from_formula
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.evaluation import (
    BinaryTask,
    ClassesTask,
    EvaluationPlan,
    RegressionTask,
    plan_evaluation,
    predictions_of,
)
from dpglm.evaluation.evaluate import has_probabilities
from dpglm.evaluation.task import EvaluationTask
from dpglm.exceptions import PlanMismatchError
from dpglm.exploration import DescriptionPlan, plan_description
from dpglm.guidance.expectation import guidance
from dpglm.preprocessing.encoders import SchemaEncoder, as_schema
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema
from dpglm.tabulate.numbers import normal_quantile

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""A table in memory: its columns by name."""


@final
@dataclass(frozen=True)
class Expected:
    """The precision to expect of a part, before anything is spent.

    Parameters
    ----------
    part : str
        Name of the part.
    quantity : str
        The quantity, in words.
    precision : str
        Its precision, in words.
    """

    part: str
    quantity: str
    precision: str


@final
@dataclass(frozen=True, eq=False)
class PartInput:
    """The rows of a part, and everything else that its run needs.

    ``groups`` holds the person id of each row where persons are protected, ``where`` the rows that
    count. ``model`` is the fitted model, for the evaluation.
    """

    table: Columns
    groups: NDArray[Any] | None
    where: NDArray[np.bool_] | None
    noise: NoiseSource
    checkpoint: str | os.PathLike[str] | None
    model: Any


@final
@dataclass(frozen=True, eq=False)
class PlannedPart:
    """A part with all settings decided.

    ``details`` is the description's plan, the unfitted model or the evaluation's plan.
    ``noise_to_sampling`` is the mean ratio of noise variance to sampling variance. ``run`` executes
    the plan; its result has a certificate, ``privacy_``. ``by`` names the column of an evaluation's
    subgroups.
    """

    plan: Plan
    details: Any
    noise_to_sampling: float
    expected: Callable[[], tuple[Expected, ...]]
    run: Callable[[PartInput], Any]
    by: str | None = None


class StudyPart(abc.ABC):
    """A declared part of a study."""

    @abc.abstractmethod
    def planned(self, schema: Schema, protection: Protection) -> PlannedPart:
        """Plan the part within the budget of ``protection``."""


def proportion_ratio(noise_std: float, n_rows: int, share: float) -> float:
    """Return the ratio of noise variance to sampling variance, for an estimated proportion.

    >>> round(proportion_ratio(0.003, 10_000, 0.1), 3)
    1.0
    """
    return noise_std**2 * n_rows / (share * (1.0 - share))


def coefficient_ratio(values: int, n_rows: int, mu: float) -> float:
    """Return the ratio of noise variance to sampling variance, for ``values`` coefficients.

    A sum of n scores of norm at most b, released with mu, gets noise of variance ``b^2 / mu^2`` in
    each of k values. Its sampling variance is at most ``n b^2 / 4`` in all, since the score of a
    logistic loss has variance ``p (1 - p)``, at most a quarter.

    >>> coefficient_ratio(100, 10_000, 0.2)
    1.0
    """
    return 4.0 * values / (n_rows * mu * mu)


# Exploration.

_PROPORTION = "share of rows"
# A typical category or bin holds a tenth of the rows.
_TYPICAL = 0.1


@final
@dataclass(frozen=True)
class Exploration(StudyPart):
    """A description of the table; ``options`` are those of ``plan_description``."""

    options: Mapping[str, Any]

    def planned(self, schema: Schema, protection: Protection) -> PlannedPart:
        description = plan_description(
            schema,
            protection.n_rows,
            protection.budget,
            adjacency=protection.adjacency.value,
            groups=protection.groups,
            **self.options,
        )
        ratios = [
            proportion_ratio(one.half_width / description.z, protection.n_rows, _TYPICAL)
            for one in description.precision()
            if one.quantity == _PROPORTION
        ]

        def run(given: PartInput) -> Any:
            chosen = given.where is not None
            return dataclasses.replace(description, chosen=chosen).run(
                given.table,
                groups=given.groups,
                where=given.where,
                random_state=given.noise,
                checkpoint=given.checkpoint,
            )

        ratio = math.fsum(ratios) / len(ratios)
        return PlannedPart(
            description.plan, description, ratio, lambda: _expected_counts(description), run
        )


def _expected_counts(description: DescriptionPlan) -> tuple[Expected, ...]:
    widest: dict[str, float] = {}
    for one in description.precision():
        if one.quantity != "mean":  # Means have different units.
            widest[one.quantity] = max(widest.get(one.quantity, 0.0), one.half_width)
    return tuple(
        Expected(EXPLORATION, quantity, f"± {plain_number(width, 2)} at most")
        for quantity, width in widest.items()
    )


# Model.

ADDITIVE = "additive"
"""Name of the additive model of a schema's target."""
_OF_THE_STUDY = tuple(one.name for one in dataclasses.fields(PrivateFit))


@final
@dataclass(frozen=True)
class Learning(StudyPart):
    """A model that is fitted; see ``Study.fit``."""

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
                    f"{name} must be a parameter of {type(given).__name__}: {', '.join(own)}"
                )
        found = clone(given).set_params(**self.settings)
        _check_spending(found)
        if isinstance(found, PrivateLinearModel):
            return self._of_features(found, schema).set_params(adjacency=adjacency.value)
        if self.formula is not None:
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
        return found.set_params(adjacency=adjacency.value)

    def _of_features(self, estimator: PrivateLinearModel, schema: Schema) -> Any:
        """Return a pipeline that encodes the table for a linear model."""
        _set_target(estimator, schema)
        if self.formula is not None:
            return from_formula(self.formula, schema, estimator)
        if not schema.has_intercept:
            estimator.set_params(fit_intercept=False)
        return PrivatePipeline([SchemaEncoder(schema), estimator])

    def planned(self, schema: Schema, protection: Protection) -> PlannedPart:
        adjacency, n_rows = protection.adjacency, protection.n_rows
        model = self.model(schema, adjacency).set_params(budget=protection.budget)
        if protection.groups is not None:
            bound = protection.groups
            model.set_params(n_groups=bound.n_groups, max_rows_per_group=int(bound.rows))
        classes = schema.target.n_classes
        plan: Plan = model.plan(n_rows, **({"n_classes": classes} if is_classifier(model) else {}))
        if not adjacency.n_is_public:
            model.set_params(n_rows=n_rows)

        def run(given: PartInput) -> Any:
            fitted = clone(model).set_params(random_state=given.noise)
            fitted.fit(
                given.table, groups=given.groups, where=given.where, checkpoint=given.checkpoint
            )
            if fitted.solution_.plan.event != plan.event:
                raise PlanMismatchError(
                    f"planned to release {plan.event}, but released {fitted.solution_.plan.event}"
                )
            return fitted

        mu = plan.budget.gdp_mu() / adjacency.sum_sensitivity(1.0)
        ratio = coefficient_ratio(plan.data.n_coefficients, plan.data.n_rows, mu)
        return PlannedPart(plan, model, ratio, lambda: _expected_model(plan), run)


def _expected_model(plan: Plan) -> tuple[Expected, ...]:
    noise = plain_number(plan.coefficient_noise, 2)
    return (
        Expected(MODEL, "as a whole", guidance(plan).verdict),
        Expected(MODEL, "a coefficient of an encoded column", f"noise ± {noise}"),
    )


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

_HALF = 0.5


@final
@dataclass(frozen=True)
class Evaluating(StudyPart):
    """An evaluation of the study's model; see ``Study.evaluate``."""

    learning: Learning
    thresholds: tuple[float, ...] | None = None
    by: str | None = None
    level: float = 0.95

    def check(self, schema: Schema, adjacency: Adjacency) -> None:
        """Refuse an evaluation that cannot be planned, whatever the budget."""
        check_real("level", self.level, above=0.0, below=1.0)
        self._task(schema, self.learning.model(schema, adjacency))
        if self.by is not None:
            _categories(self.by, schema)

    def planned(self, schema: Schema, protection: Protection) -> PlannedPart:
        column = None if self.by is None else _categories(self.by, schema)
        evaluation = plan_evaluation(
            self._task(schema, self.learning.model(schema, protection.adjacency)),
            protection.n_rows,
            protection.budget,
            adjacency=protection.adjacency.value,
            levels=() if column is None else column.categories,
            level=self.level,
            groups=protection.groups,
        )

        def run(given: PartInput) -> Any:
            chosen = None if given.where is None else Where(given.where)
            table = given.table if chosen is None else chosen.rows(given.table)
            return dataclasses.replace(evaluation, chosen=chosen is not None).run(
                schema.encode_target(table[schema.target.name]),
                # Means of counts may overflow; they are clipped below.
                np.nan_to_num(predictions_of(given.model, table)),
                by=None
                if column is None
                else np.asarray(column.categories)[column.read(table[column.name])],
                groups=given.groups,
                where=chosen,
                random_state=given.noise,
                checkpoint=given.checkpoint,
            )

        (_, reach), *_ = evaluation.precision()
        ratio = proportion_ratio(reach / normal_quantile(self.level), protection.n_rows, _HALF)
        return PlannedPart(
            evaluation.plan,
            evaluation,
            ratio,
            lambda: _expected_performance(evaluation),
            run,
            self.by,
        )

    def _task(self, schema: Schema, model: Any) -> EvaluationTask:
        known = schema.target.estimator_parameters()
        if "target_bounds" in known:
            self._check_no_thresholds("numbers")
            low, high = known["target_bounds"]
            return RegressionTask(float(low), float(high))
        # In the order of fitted classifiers.
        classes = tuple(np.unique(known["classes"]).tolist())
        if len(classes) == 2:
            # A regressor of two labels predicts probabilities.
            has_them = has_probabilities(model) or not is_classifier(model)
            return BinaryTask(classes, self.thresholds, has_them)
        self._check_no_thresholds(f"{len(classes)} classes")
        if not has_probabilities(model):
            raise ValueError(
                f"evaluating a model of {len(classes)} classes requires probabilities, which "
                f"{type(model).__name__} does not have"
            )
        return ClassesTask(classes)

    def _check_no_thresholds(self, target: str) -> None:
        if self.thresholds is not None:
            raise ValueError(
                f"thresholds require a target of two classes, got a target of {target}"
            )


def _categories(name: Any, schema: Schema) -> CategoricalColumn:
    found = {one.name: one for one in schema.columns if isinstance(one, CategoricalColumn)}
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"by must name a categorical column, one of {list(found)}, got {name!r}")
    return found[name]


def _expected_performance(evaluation: EvaluationPlan) -> tuple[Expected, ...]:
    (share, reach), *means = evaluation.precision()
    z, n_rows = normal_quantile(evaluation.level), evaluation.plan.data.n_rows
    both = plain_number(math.hypot(reach, z * _HALF / math.sqrt(n_rows)), 2)
    found = [(share, f"± {plain_number(reach, 2)} of noise, ± {both} with sampling, at most")]
    found += [(name, f"± {plain_number(width, 2)} of noise") for name, width in means]
    return tuple(Expected(EVALUATION, *one) for one in found)
