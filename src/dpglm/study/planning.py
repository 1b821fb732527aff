"""The parts of a study, its plan, and the budget of each part, before a row is read."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from sklearn.base import clone, is_classifier

from dpglm import estimators
from dpglm._calls import checked
from dpglm._registry import ESTIMATORS
from dpglm._validation import in_one_line
from dpglm._words import card, plain_number, rounded_up, weak
from dpglm.certificate.execution import Expected, PartInput, PartPlan, StudyPart
from dpglm.data.rows import Protection
from dpglm.data.split import (
    EVALUATION,
    MODEL,
    Split,
    composed_event,
    in_order,
    side_of,
    size_of_part,
)
from dpglm.estimators._predictor import FitData
from dpglm.estimators._private import PrivateFit
from dpglm.estimators.additive.models import AdditiveClassifier, AdditiveModel, AdditiveRegressor
from dpglm.estimators.composed.pipeline import PrivatePipeline, from_formula
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.evaluation import BinaryTask, ClassesTask, RegressionTask
from dpglm.evaluation.planning import EvaluationPart, has_probabilities
from dpglm.evaluation.task import EvaluationTask
from dpglm.guidance import guidance
from dpglm.preprocessing.encoders import SchemaEncoder, as_schema
from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import accountant_for, within_budget
from dpglm.privacy.budget import ApproximateDP, GaussianDP, PrivacyBudget
from dpglm.privacy.events import Composed, Event
from dpglm.solvers.base import Plan
from dpglm.solvers.parts.defaults import MARGIN, plan_beside
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.schema import Schema

# Weight of the model and the evaluation.
_FIRST = 10.0


def exploration_share(explored: float, others: float) -> float:
    """Return the exploration's share of mu squared, in (0, 1).

    Model and evaluation use disjoint rows, so each of them gets the rest. ``explored`` and
    ``others`` are ratios of noise variance to sampling variance with the whole budget: of the
    exploration, and summed over the other parts. A share s of mu squared multiplies the variance of
    an estimate by ``1 + r / s``. The sum of these factors, with tenfold weight of the other parts,
    is least at ``sqrt(explored) / (sqrt(explored) + sqrt(10 others))``. The exploration gets at
    most the share that makes its noise and its sampling equal.

    >>> exploration_share(0.01, 0.09)
    0.01
    """
    roots = math.sqrt(explored), math.sqrt(_FIRST * others)
    return min(roots[0] / sum(roots), explored)


@checked
@final
@dataclass(frozen=True, eq=False)
class StudyPlan:
    """The releases of a study, and the precision to expect.

    Parameters
    ----------
    title : str or None
        Title of the study.
    schema : Schema
        The public facts about the table.
    protection : Protection
        The neighbouring relation, the total budget and the public sizes.
    split : Split or None
        The split of the rows between model and evaluation; None without an evaluation.
    planned : mapping from str to PartPlan
        The parts by name, in the order in which they run.
    exploration_share : float
        Share of mu squared of the exploration; each other part gets the rest.
    groups : str or None
        Column with the person id of each row, where persons are protected.

    Raises
    ------
    ValueError
        If all parts together exceed the budget, or rows of a protected person could be in two
        parts.

    Notes
    -----
    Privacy: ``event`` is within the budget. Nothing in a plan depends on rows.
    """

    title: str | None
    schema: Schema
    protection: Protection
    split: Split | None
    planned: Mapping[str, PartPlan]
    exploration_share: float
    groups: str | None = None

    def __post_init__(self) -> None:
        persons = None if self.split is None else self.split.persons
        if self.groups is not None and self.split is not None and persons != self.groups:
            raise ValueError(
                f"split must be by the protected persons, {self.groups!r}, got {persons!r}"
            )
        if not within_budget(self.event, self.protection.adjacency, self.protection.budget):
            raise ValueError(
                f"budget must cover all parts together, got {self.protection.budget!r}, which "
                f"{self.event!r} exceeds under {self.protection.adjacency.value}"
            )

    @functools.cached_property
    def event(self) -> Event:
        """The event of all parts together."""
        events = {name: part.plan.event for name, part in self.planned.items()}
        return composed_event(events, self.split, self.protection.adjacency)

    @property
    def delta(self) -> float:
        """The budget's delta, or the default one where the budget has none."""
        return self.protection.delta

    @functools.cached_property
    def epsilon(self) -> float:
        """The cost of all parts together, at ``delta``."""
        return self._epsilon(self.event)

    def _epsilon(self, event: Event) -> float:
        adjacency = self.protection.adjacency
        return accountant_for(event, adjacency).epsilon(event, adjacency, self.delta)

    def rows_of(self, name: str) -> int:
        """Return the number of rows that a part is planned for."""
        return size_of_part(name, self.protection.n_rows, self.split)

    def expected(self) -> tuple[Expected, ...]:
        """Return the precision to expect of each part, from public facts alone."""
        return tuple(one for part in self.planned.values() for one in part.expected())

    def costs(self) -> tuple[tuple[str, int, float], ...]:
        """Return the cost of each part alone.

        Returns
        -------
        tuple of (str, int, float)
            Name, number of rows, and epsilon at ``delta``.
        """
        return tuple(
            (name, self.rows_of(name), self._epsilon(part.plan.event))
            for name, part in self.planned.items()
        )

    def cautions(self) -> tuple[str, ...]:
        """Return the weaknesses of the guarantee; often empty."""
        return weak(self.epsilon, self.delta, self.protection.n_units)

    def __str__(self) -> str:
        cost = f"epsilon {rounded_up(self.epsilon)} at delta {rounded_up(self.delta)}"
        stated = self.protection
        lines = [f"A study of {stated.sizes}: {cost}, {stated.adjacency.value}"]
        lines += [
            f"  {name}: {rows} rows, epsilon {rounded_up(epsilon)} alone"
            for name, rows, epsilon in self.costs()
        ]
        lines += [f"  {one.part}: {one.quantity}: {one.precision}" for one in self.expected()]
        lines += [f"  Caution: {one}" for one in self.cautions()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return card(
            "Plan of a study",
            [
                ("rows", plain_number(self.protection.n_rows)),
                ("epsilon", rounded_up(self.epsilon)),
                ("delta", rounded_up(self.delta)),
                ("relation", self.protection.adjacency.value),
            ],
            sections=[
                (name, [f"{one.quantity}: {one.precision}" for one in part.expected()])
                for name, part in self.planned.items()
            ],
            warnings=self.cautions(),
        )


def plan_study(
    title: str | None,
    schema: Schema,
    declared: Mapping[str, StudyPart],
    split: Split | None,
    protection: Protection,
    groups: str | None = None,
) -> StudyPlan:
    """Divide the budget between the declared parts, and plan each of them.

    Gaussian parts get exactly their shares of mu squared. A model with other releases gets the
    largest epsilon that the accounting of the whole allows. Ratios of noise to sampling with the
    whole budget decide the shares, where there is something to divide.
    """
    budget, adjacency = protection.budget, protection.adjacency
    mu = budget.gdp_mu() * MARGIN

    def of_part(name: str, within: PrivacyBudget) -> Protection:
        totals = protection.n_rows, protection.n_units
        return protection.of_part(within, *(size_of_part(name, n, split) for n in totals))

    def planned(name: str, within: PrivacyBudget) -> Plan:
        return declared[name].plan(of_part(name, within))

    def of_mu(mu: float) -> PrivacyBudget:
        """Return the budget of mu at the delta of the whole, for the part's certificate."""
        delta = vars(budget).get("delta")
        if delta is None or gdp.epsilon(delta, mu) == 0.0:  # Delta alone exceeds the budget.
            return GaussianDP(mu)
        return ApproximateDP(gdp.epsilon(delta, mu), delta)

    if len(declared) == 1:
        ((only, part),) = declared.items()
        alone = PartPlan(part, planned(only, budget))
        share = float(side_of(only) is None)
        return StudyPlan(title, schema, protection, split, {only: alone}, share, groups)
    whole = [name for name in in_order(declared) if side_of(name) is None]
    share = float(bool(whole))
    roots: dict[str, float] = {}
    if whole:
        ratios = {
            name: one.noise_to_sampling(of_part(name, budget)) for name, one in declared.items()
        }
        # The sum of ratios over shares is least for shares that are proportional to roots.
        roots = {name: math.sqrt(ratios.pop(name) or 1.0) for name in whole}
        if ratios:
            share = exploration_share(sum(roots.values()) ** 2, sum(ratios.values()))
    found: dict[str, Plan] = {}
    for name, root in roots.items():
        own = share * root / sum(roots.values())
        found[name] = planned(name, of_mu(math.sqrt(own) * mu))
    spent = Composed(tuple(plan.event for plan in found.values()))
    rest = math.sqrt(1.0 - share) * mu
    if MODEL in declared:

        def made(within: PrivacyBudget) -> Plan:
            if isinstance(within, GaussianDP) and within != budget:
                within = of_mu(within.mu)
            return planned(MODEL, within)

        plan = plan_beside(made, spent, rest, budget, adjacency)
        if plan is None:
            raise ValueError(f"budget must leave something to the model, got {budget!r}")
        found[MODEL] = plan
    if EVALUATION in declared:
        found[EVALUATION] = planned(EVALUATION, of_mu(rest))
    ordered = {name: PartPlan(declared[name], found[name]) for name in in_order(found)}
    return StudyPlan(title, schema, protection, split, ordered, share, groups)


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
    given = estimator or schema.target.default_estimator
    if given == ADDITIVE:
        is_class = schema.target.n_classes is not None
        given = AdditiveClassifier(schema) if is_class else AdditiveRegressor(schema)
    elif isinstance(given, str):
        kind = getattr(estimators, ESTIMATORS.get(given, given), None)
        given = kind() if isinstance(kind, type) and issubclass(kind, PrivateLinearModel) else given
    if not isinstance(given, PrivateLinearModel | AdditiveModel | PrivatePipeline):
        raise ValueError(
            f"estimator must be one of {', '.join([ADDITIVE, *ESTIMATORS])}, a linear or additive "
            f"model of dpglm, a PrivatePipeline or None, got {in_one_line(given)}"
        )
    known = given.get_params()
    for name in settings:
        if name not in known:
            own = [one for one in sorted(known) if one not in _OF_THE_STUDY]
            raise ValueError(
                f"{name} must be a parameter of {type(given).__name__}: {', '.join(own)}"
            )
    found = clone(given).set_params(**settings)
    for name in _OF_THE_STUDY:
        default, own = getattr(type(found), name), getattr(found, name)
        if own != default:
            raise ValueError(
                f"{name} must be set on the Study: leave the model's at {default!r}, got "
                f"{in_one_line(own)}"
            )
    if isinstance(found, PrivateLinearModel):
        _set_target(found, schema)
        if formula is not None:
            return from_formula(formula, schema, found)
        if not schema.encoding.has_intercept:
            found.set_params(fit_intercept=False)
        return PrivatePipeline([SchemaEncoder(schema), found])
    if formula is not None:
        raise ValueError(
            f"formula must be None for {type(found).__name__}, which encodes the columns itself"
        )
    last = found
    if isinstance(found, PrivatePipeline):
        step = found.steps[-1]
        last = step[1] if isinstance(step, tuple) else step
    elif as_schema(found.schema) != schema:
        raise ValueError("schema of an additive model must be the schema of the study")
    _set_target(last, schema)
    return found


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


def evaluation_of(
    part: ModelPart, thresholds: Sequence[float] | None, by: Any, level: float
) -> EvaluationPart:
    """Return the evaluation of a model that ``Study.evaluate`` declares."""
    schema, model = part.schema, part.model
    known = schema.target.estimator_parameters()
    # In the order of fitted classifiers.
    classes = tuple(np.unique(known["classes"]).tolist()) if "classes" in known else ()
    if thresholds is not None and len(classes) != 2:
        target = f"{len(classes)} classes" if classes else "numbers"
        raise ValueError(f"thresholds require a target of two classes, got a target of {target}")
    task: EvaluationTask
    if not classes:
        low, high = known["target_bounds"]
        task = RegressionTask(float(low), float(high))
    elif len(classes) == 2:
        chosen = None if thresholds is None else tuple(thresholds)
        # A regressor of two labels predicts probabilities.
        task = BinaryTask(classes, chosen, has_probabilities(model) or not is_classifier(model))
    elif has_probabilities(model):
        task = ClassesTask(classes)
    else:
        raise ValueError(
            f"evaluating a model of {len(classes)} classes requires probabilities, which "
            f"{type(model).__name__} does not have"
        )
    listed = {one.name: one for one in schema.columns if isinstance(one, CategoricalColumn)}
    if by is not None and (not isinstance(by, str) or by not in listed):
        raise ValueError(f"by must name a categorical column, one of {list(listed)}, got {by!r}")
    column = None if by is None else listed[by]
    return EvaluationPart(task, () if column is None else column.categories, level, schema, column)
