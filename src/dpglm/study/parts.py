"""A part of a study: declared, then planned, then run."""

from __future__ import annotations

import abc
import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier

from dpglm import estimators
from dpglm._registry import ESTIMATORS
from dpglm._validation import in_one_line
from dpglm._words import plain_number
from dpglm.estimators._private import PrivateFit
from dpglm.estimators.additive._base import AdditiveModel
from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveRegressor
from dpglm.estimators.composed.formula import from_formula
from dpglm.estimators.composed.pipeline import PrivatePipeline
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
from dpglm.evaluation.task import Task
from dpglm.exceptions import PlanMismatchError
from dpglm.exploration import DescriptionPlan, plan_description
from dpglm.guidance.expectation import guidance
from dpglm.preprocessing.encoders import SchemaEncoder, as_schema
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.study.division import Persons, ratio_of_share, ratio_of_slopes
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema
from dpglm.tabulate.numbers import normal_quantile

EXPLORATION, MODEL, EVALUATION = "exploration", "model", "evaluation"
"""Names of the parts, in the order in which they run."""
Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""A table in memory: its columns by name."""


@final
@dataclass(frozen=True)
class Expected:
    """What to expect of a part before anything is spent.

    Parameters
    ----------
    part : str
        Name of the part.
    quantity : str
        Of what, in words.
    precision : str
        How precise it will be, in words.
    """

    part: str
    quantity: str
    precision: str


class PlannedPart(abc.ABC):
    """A part with every setting decided, before a row is seen."""

    @property
    @abc.abstractmethod
    def plan(self) -> Plan:
        """What it will release, and what that costs."""

    @property
    @abc.abstractmethod
    def noise_to_sampling(self) -> float:
        """How much more noise varies than sampling with the plan's budget, on average."""

    @abc.abstractmethod
    def expected(self) -> tuple[Expected, ...]:
        """Say how precise its results will be, from public facts alone."""

    @abc.abstractmethod
    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        groups: NDArray[Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Any:
        """Execute the plan on its rows; the result has a certificate, ``privacy_``.

        ``groups`` says whose each row is, where persons are protected with all of theirs. ``model``
        is what the part that learns has fitted, for the part that evaluates it. ``where`` says
        which rows count, if not all.
        """


class DeclaredPart(abc.ABC):
    """What a study is to do, as it was declared."""

    @abc.abstractmethod
    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedPart:
        """Plan the part for so many rows within a budget; a ValueError says why it cannot be.

        ``persons`` are those whose rows are protected together, where these are not single rows.
        """


# The part of a study that looks at the table.

_SHARE = "share of rows"
# Categories and bins that are looked at hold some tenth of the rows.
_TYPICAL = 0.1


@final
@dataclass(frozen=True)
class Exploration(DeclaredPart):
    """What is to be looked at; ``options`` are those of ``dpglm.exploration.plan_description``."""

    options: Mapping[str, Any]

    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedExploration:
        plan = plan_description(
            schema,
            n_rows,
            budget,
            adjacency=adjacency.value,
            groups=None if persons is None else persons.bound,
            **self.options,
        )
        return PlannedExploration(plan)


@final
@dataclass(frozen=True, eq=False)
class PlannedExploration(PlannedPart):
    """A description that is planned."""

    description: DescriptionPlan

    @property
    def plan(self) -> Plan:
        return self.description.plan

    @property
    def noise_to_sampling(self) -> float:
        shown = self.description
        found = [
            ratio_of_share(one.half_width / shown.z, self.plan.data.n_rows, _TYPICAL)
            for one in shown.precision()
            if one.quantity == _SHARE
        ]
        return math.fsum(found) / len(found)

    def expected(self) -> tuple[Expected, ...]:
        widest: dict[str, float] = {}
        for one in self.description.precision():
            if one.quantity != "mean":  # Each is in units of its own column.
                widest[one.quantity] = max(widest.get(one.quantity, 0.0), one.half_width)
        return tuple(
            Expected(EXPLORATION, quantity, f"± {plain_number(width, 2)} at most")
            for quantity, width in widest.items()
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
        plan = dataclasses.replace(self.description, chosen=where is not None)
        return plan.run(
            table, groups=groups, where=where, random_state=noise, checkpoint=checkpoint
        )


# The part of a study that learns a model.

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


# The part of a study that evaluates its model on rows held out.

_HALF = 0.5


@final
@dataclass(frozen=True)
class Evaluating(DeclaredPart):
    """How the model of a study is to be evaluated; see ``Study.evaluate``."""

    learning: Learning
    thresholds: tuple[float, ...] | None = None
    by: str | None = None
    level: float = 0.95

    def plan_within(
        self,
        schema: Schema,
        adjacency: Adjacency,
        n_rows: int,
        budget: PrivacyBudget,
        persons: Persons | None = None,
    ) -> PlannedEvaluation:
        column = None if self.by is None else _categories(self.by, schema)
        plan = plan_evaluation(
            self._task(schema, self.learning.model(schema, adjacency)),
            n_rows,
            budget,
            adjacency=adjacency.value,
            levels=() if column is None else column.categories,
            level=self.level,
            groups=None if persons is None else persons.bound,
        )
        return PlannedEvaluation(plan, schema, column)

    def _task(self, schema: Schema, model: Any) -> Task:
        known = schema.target.estimator_parameters()
        if "target_bounds" in known:
            self._check_no_thresholds("numbers")
            low, high = known["target_bounds"]
            return RegressionTask(float(low), float(high))
        # As fitted classifiers have them.
        classes = tuple(np.unique(known["classes"]).tolist())
        if len(classes) == 2:
            # Of a regressor of two labels the means are probabilities.
            has_them = has_probabilities(model) or not is_classifier(model)
            return BinaryTask(classes, self.thresholds, has_them)
        self._check_no_thresholds(f"{len(classes)} classes")
        if not has_probabilities(model):
            raise ValueError(
                f"a model of {len(classes)} classes must have probabilities to be evaluated, and "
                f"{type(model).__name__} has none"
            )
        return ClassesTask(classes)

    def _check_no_thresholds(self, target: str) -> None:
        if self.thresholds is not None:
            raise ValueError(
                f"thresholds are for a target of two classes, and this one has {target}"
            )


def _categories(name: Any, schema: Schema) -> CategoricalColumn:
    found = {one.name: one for one in schema.columns if isinstance(one, CategoricalColumn)}
    if not isinstance(name, str) or name not in found:
        raise ValueError(f"by must name a column of categories, one of {list(found)}, got {name!r}")
    return found[name]


@final
@dataclass(frozen=True, eq=False)
class PlannedEvaluation(PlannedPart):
    """An evaluation that is planned."""

    evaluation: EvaluationPlan
    schema: Schema
    by: CategoricalColumn | None

    @property
    def plan(self) -> Plan:
        return self.evaluation.plan

    @property
    def noise_to_sampling(self) -> float:
        (_, reach), *_ = self.evaluation.precision()
        z = normal_quantile(self.evaluation.level)
        return ratio_of_share(reach / z, self.plan.data.n_rows, _HALF)

    def expected(self) -> tuple[Expected, ...]:
        (share, reach), *means = self.evaluation.precision()
        z, n_rows = normal_quantile(self.evaluation.level), self.plan.data.n_rows
        both = plain_number(math.hypot(reach, z * _HALF / math.sqrt(n_rows)), 2)
        said = [(share, f"± {plain_number(reach, 2)} of noise, ± {both} with sampling, at most")]
        said += [(name, f"± {plain_number(width, 2)} of noise") for name, width in means]
        return tuple(Expected(EVALUATION, *one) for one in said)

    def run(
        self,
        table: Columns,
        noise: NoiseSource,
        groups: NDArray[Any] | None,
        checkpoint: str | os.PathLike[str] | None,
        model: Any,
        where: NDArray[np.bool_] | None = None,
    ) -> Any:
        chosen = None if where is None else Where(where)
        table = table if chosen is None else chosen.rows(table)
        return dataclasses.replace(self.evaluation, chosen=chosen is not None).run(
            self.schema.encode_target(table[self.schema.target.name]),
            # The mean of a count may be beyond what floats hold, and is clipped in any case.
            np.nan_to_num(predictions_of(model, table)),
            by=self._levels(table),
            groups=groups,
            where=chosen,
            random_state=noise,
            checkpoint=checkpoint,
        )

    def _levels(self, table: Columns) -> NDArray[Any] | None:
        """Return each row's category as the schema spells it."""
        if self.by is None:
            return None
        return np.asarray(self.by.categories)[self.by.read(table[self.by.name])]
