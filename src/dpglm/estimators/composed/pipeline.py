"""PrivatePipeline: fixed transformers, private steps and an estimator under one budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Self, final

from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import _name_estimators
from sklearn.utils import Bunch, Tags, get_tags

from dpglm._validation import in_one_line
from dpglm.estimators._predictor import Finish, FitData
from dpglm.estimators._private import OF_THE_FIT, warn_of_prior
from dpglm.estimators.composed._composed import (
    OF_THE_MODEL,
    SKIPPED,
    ComposedModel,
    Parts,
    parts_of,
)
from dpglm.estimators.composed._transformers import check_fixed
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear.classifiers import LogisticRegression
from dpglm.estimators.linear.regressors import LinearRegression, PoissonRegressor
from dpglm.preprocessing.base import Preprocessor
from dpglm.preprocessing.encoders import SchemaEncoder
from dpglm.solvers.base import Plan
from dpglm.tables.schema import Schema

__all__ = ["PrivatePipeline"]


@final
class PrivatePipeline(ComposedModel):
    """Transformers, private preprocessing and a private estimator that share one budget.

    Parameters
    ----------
    steps : list of step, or of (str, step)
        In this order: any number of fixed transformers, which learn nothing from rows
        (``SchemaEncoder``, ``SplineEncoder``, scikit-learn's ``Normalizer``,
        ``OneHotEncoder(categories=[...])``, a ``FrozenEstimator`` that was fitted on public data,
        ``ColumnTransformer`` of such steps with listed columns, ...); any number of private steps
        (``dpglm.preprocessing.Center``, ...); an estimator of dpglm. ``"passthrough"`` in place of
        a step skips it.
    shares : mapping from str to float, optional
        Share of the budget (of mu squared in Gaussian DP) for private steps by name, each in
        (0, 1), together below 1. Other steps follow their own rule, a function of public facts. The
        estimator gets the rest.

    Attributes
    ----------
    estimator_ : estimator
        The last step, fitted, with the pipeline's budget; its solver is
        ``Preprocessed(private steps, its own solver, shares)``.
    transformers_ : list of (str, transformer)
        The fixed transformers, ready to transform.
    classes_, coef_, intercept_, n_iter_, privacy_, solution_
        Those of ``estimator_``. Coefficients belong to the columns after the fixed transformers,
        see ``coefficient_names``.
    n_features_in_, feature_names_in_
        Those of the first step.

    Notes
    -----
    Budget, ledger, neighbouring relation, number of rows and randomness are parameters of the
    pipeline: those of the estimator must be left at their defaults, or equal the pipeline's.

    If the estimator has neither ``row_norm`` nor ``feature_bounds``, the row norm that the last
    fixed transformer's settings imply is used.

    Privacy: the whole is a single run with a single certificate, ``privacy_``; its ``spending()``
    lists the cost by step. Gaussian stages compose exactly, so splitting loses nothing. A
    transformer that would learn from rows is refused; the list of transformers is recorded as a
    declared public fact.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import Normalizer
    >>> from dpglm import LogisticRegression, PrivatePipeline
    >>> from dpglm.preprocessing import Center
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(25_000, 5)) + 4.0
    >>> y = X[:, 0] > X[:, 1]
    >>> model = PrivatePipeline(
    ...     [Normalizer(), Center(), LogisticRegression(classes=[False, True])], epsilon=1.0
    ... ).fit(X[:20_000], y[:20_000])
    >>> model.score(X[20_000:], y[20_000:]) > 0.9
    True
    >>> [one.stage for one in model.privacy_.spending()]
    ['center', 'model']
    """

    steps: Sequence[Any] = field(kw_only=False)
    shares: Mapping[str, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        steps = [step for _, step in self._named()]
        if not steps or not isinstance(steps[-1], PrivateLinearModel):
            return tags  # fit raises the error
        last = get_tags(steps[-1])
        for name in OF_THE_MODEL:
            setattr(tags, name, getattr(last, name))
        first = next(step for step in steps if isinstance(step, BaseEstimator))
        tags.input_tags = get_tags(first).input_tags
        return tags

    def _named(self) -> list[tuple[str, Any]]:
        """Return the steps with their names, unchecked; none if ``steps`` is not a list."""
        steps = self.steps if isinstance(self.steps, list | tuple) else []
        unnamed = iter(_name_estimators([step for step in steps if not _is_pair(step)]))
        return [step if _is_pair(step) else next(unnamed) for step in steps]

    def _checked(self) -> list[tuple[str, Any]]:
        """Return the steps with their names, which must differ."""
        named = self._named()
        if not named:
            raise ValueError(
                f"steps must be a list of at least one step, got {in_one_line(self.steps)}"
            )
        names = [name for name, _ in named]
        taken = set(super().get_params(deep=False))
        if len(set(names)) < len(names) or taken & set(names) or any("__" in n for n in names):
            raise ValueError(
                "steps must have names that differ from each other and from the parameters, "
                f"without '__' in them, got {names!r}"
            )
        return named

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; ``deep`` adds steps by name, and settings as ``name__setting``."""
        parameters: dict[str, Any] = super().get_params(deep=False)
        if deep:
            for name, step in self._named():
                parameters[name] = step
                for key, value in _settings(step).items():
                    parameters[f"{name}__{key}"] = value
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters, named as in ``get_params``; others are a ValueError."""
        if "steps" in parameters:
            self.steps = parameters.pop("steps")
        steps = dict(self._named())
        own: dict[str, Any] = {}
        of_steps: dict[str, dict[str, Any]] = {}
        for key, value in parameters.items():
            name, _, setting = key.partition("__")
            if name not in steps:
                own[key] = value
            elif setting:
                of_steps.setdefault(name, {})[setting] = value
            else:
                steps[name] = value
        super().set_params(**own)
        for name, settings in of_steps.items():
            steps[name] = _with_settings(steps[name], settings)
        if len(own) < len(parameters):
            self._checked()
            self.steps = list(steps.items())
        return self

    def plan(self, n_rows: int, n_features: int | None = None, **options: Any) -> Plan:
        """Plan a fit from public parameters, without data, like the estimator's ``plan``.

        ``n_features`` is the number of columns after the fixed transformers; required unless these
        are a single ``SchemaEncoder`` or ``SplineEncoder``. A ValueError if the row norm is not
        public.
        """
        return self._planned(self._planned_parts(), n_rows, n_features, options)

    def _fit(self, data: FitData, finish: Finish | None = None) -> None:
        self._fit_parts(self._planned_parts(), data, finish)
        if self.estimator_.inference:
            warn_of_prior(self.inference_)

    def _planned_parts(self, n_rows: int = 1) -> Parts:
        """Check the steps and their order."""
        *before, (_, estimator) = self._checked()
        if not isinstance(estimator, PrivateLinearModel):
            raise ValueError(
                f"steps must end with a linear model of dpglm, got {in_one_line(estimator)}"
            )
        transformers: list[tuple[str, Any]] = []
        private: list[tuple[str, Preprocessor]] = []
        for name, step in before:
            if isinstance(step, str) and step == SKIPPED:
                continue
            if isinstance(step, Preprocessor):
                private.append((name, step))
                continue
            if private:
                raise ValueError(
                    f"steps must have fixed transformers first, then private steps, got {name!r} "
                    f"after {private[-1][0]!r}"
                )
            check_fixed(name, step)
            transformers.append((name, step))
        return Parts(transformers, private, estimator, self.shares)

    @property
    def named_steps(self) -> Bunch:
        """The steps by name; fitted ones after ``fit``."""
        steps = self._named()
        if not self.__sklearn_is_fitted__():
            return Bunch(**dict(steps))
        return Bunch(**dict(steps) | dict(self.transformers_) | {steps[-1][0]: self.estimator_})

    def _inner(self) -> Any:
        return vars(self).get("estimator_") or self._planned_parts().model


@parts_of.register
def _(pipeline: PrivatePipeline) -> Parts:
    if pipeline.__sklearn_is_fitted__():
        return Parts(pipeline.transformers_, [], pipeline.estimator_)
    return pipeline._planned_parts()


def _is_pair(step: Any) -> bool:
    return isinstance(step, tuple) and len(step) == 2 and isinstance(step[0], str)


def _settings(step: Any) -> dict[str, Any]:
    if isinstance(step, Preprocessor):
        own = [field.name for field in dataclasses.fields(step) if field.init]  # type: ignore[arg-type]
        return {name: getattr(step, name) for name in own}
    settings: dict[str, Any] = getattr(step, "get_params", dict)()
    return settings


def _with_settings(step: Any, settings: dict[str, Any]) -> Any:
    if not isinstance(step, Preprocessor):
        return step.set_params(**settings)
    if unknown := set(settings) - set(_settings(step)):
        raise ValueError(f"{sorted(unknown)} are not settings of {step!r}")
    return dataclasses.replace(step, **settings)  # type: ignore[type-var]


def from_formula(
    formula: str,
    schema: Schema | Mapping[str, Any],
    estimator: PrivateLinearModel | None = None,
    **parameters: Any,
) -> PrivatePipeline:
    """Return an unfitted model of a table from a formula, as in R and statsmodels.

    Parameters
    ----------
    formula : str
        In Wilkinson notation: ``"visits ~ age + C(region) + bs(income, df=5)"``. Columns are those
        of the schema; the left-hand side is its target or empty. docs/formulas.md lists the
        supported terms.
    schema : Schema or mapping
        The public facts about the table, or their JSON form.
    estimator : estimator, optional
        A linear model of dpglm. Default, without a penalty, by the type of the target:
        ``LogisticRegression(C=inf)``, ``LinearRegression()`` or ``PoissonRegressor(alpha=0)``.
    **parameters
        Parameters of the pipeline (``epsilon=0.5``) and of the estimator (``solver="newton"``).
        Inference with exposures requires ``offset_bounds``, on the exposures' logarithms.

    Returns
    -------
    PrivatePipeline
        ``SchemaEncoder(schema, formula=formula)`` and the estimator, with the classes or bounds of
        the target, and with an intercept unless the formula omits it. ``fit(table)`` takes the
        targets from the table; ``predict(table)`` does not require them.

    Raises
    ------
    ValueError
        If a term would learn from the rows or is not supported, or the estimator cannot predict
        the target.
    ImportError
        If formulaic is not installed (``pip install 'dpglm[formula]'``).

    Notes
    -----
    Privacy: the formula is public, and each row is mapped by itself: knots, levels, bounds and the
    row norm follow from the schema, never from the table. Python in a formula is parsed, not run.

    Examples
    --------
    >>> import dpglm
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> model = dpglm.from_formula("income ~ age + I(age**2) + C(sex)", adult.schema, epsilon=1.0)
    >>> model = model.fit({**adult.data, "income": adult.target})
    >>> model.coefficient_names().tolist()
    ['age', 'I(age ** 2)', 'C(sex)[T.Male]']
    """
    encoder = SchemaEncoder(schema, formula=formula)
    design = encoder.stated_schema()
    if estimator is None:
        # The usual model of the target, by maximum likelihood.
        usual: Mapping[str, PrivateLinearModel] = {
            "logistic": LogisticRegression(C=math.inf),
            "ridge": LinearRegression(),
            "poisson": PoissonRegressor(alpha=0.0),
        }
        estimator = usual[design.target.default_estimator]
    if not isinstance(estimator, PrivateLinearModel):
        raise ValueError(
            f"estimator must be a linear model of dpglm or None, got {in_one_line(estimator)}"
        )
    facts = design.target.estimator_parameters()
    if not set(facts) <= set(estimator.get_params()):
        raise ValueError(
            f"estimator {in_one_line(estimator)} cannot predict the target {design.target.name!r} "
            "as the schema describes it"
        )
    own = {name: value for name, value in parameters.items() if name not in OF_THE_FIT}
    configured = clone(estimator).set_params(**facts | own)
    if not design.encoding.has_intercept:
        configured.set_params(fit_intercept=False)
    elif not configured.fit_intercept:
        raise ValueError(
            f"fit_intercept must be True for the formula {formula!r}, which has an intercept: "
            "without one write '0 +' before its terms"
        )
    shared = {name: value for name, value in parameters.items() if name in OF_THE_FIT}
    return PrivatePipeline([encoder, configured], **shared)
