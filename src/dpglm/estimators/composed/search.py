"""Hyperparameter search under one privacy budget, with scikit-learn's interface."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid, ParameterSampler
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import check_integer, check_one_of, check_real, in_one_line
from dpglm.certificate.certificate import loss_in_words
from dpglm.data.rows import DataSpec
from dpglm.estimators._parameters import MetaEstimatorMixin
from dpglm.estimators._predictor import Finish, FitData
from dpglm.estimators._private import BudgetParameters, PrivateEstimator
from dpglm.estimators.composed._composed import OF_THE_MODEL, FittedModel, Parts, parts_of
from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.privacy.selection.repetitions import NegativeBinomialNumber
from dpglm.problem import Problem
from dpglm.selection.method import Candidate
from dpglm.selection.search import HeldOutSearch, RepeatedSearch
from dpglm.solvers.base import Plan, Solver

__all__ = ["PrivateGridSearchCV", "PrivateRandomizedSearchCV"]

_SPENT = ("epsilon", "delta", "budget", "ledger")
# Parameters that are the same for all candidates.
_SHARED = {one.name for one in dataclasses.fields(PrivateEstimator)} | {
    "callback",
    "class_weight",
    "classes",
    "fit_intercept",
    "inference",
    "target_bounds",
    "verbose",
    "weight_bound",
}
_SCORE_SHARE = 0.1
_TRIES_PER_CANDIDATE = 3.0


def _unpaid(name: str) -> Any:
    """Return a property that does not exist."""

    def missing(search: Any) -> Any:
        raise AttributeError(
            f"{name} does not exist, as scores of private rows are not released; score "
            "best_estimator_ on public rows"
        )

    return property(missing, doc="Not available: scores of private rows are not released.")


class _PrivateSearch(MetaEstimatorMixin, FittedModel, BudgetParameters):
    """Base of grid search and randomized search.

    Parameters
    ----------
    estimator : private linear model or PrivatePipeline
        Its ``epsilon``, ``delta``, ``budget`` and ``ledger`` must be left at their defaults: the
        search sets them. Neighbouring relation, public parameters and ``random_state`` are those of
        the estimator.
    epsilon : float, default=1.0
        Privacy budget epsilon of the whole search, above 0.
    delta : float or "auto", default="auto"
        Privacy budget delta, as in the estimators. 0 requires ``method="held_out"``.
    method : {"repeated", "held_out"}, default="repeated"
        "repeated" trains randomly drawn candidates on all rows, a random and secret number of
        times, and releases the one with the best noisy score. "held_out" trains every candidate
        on one part of the rows and chooses on the other; its running time is fixed.
    choice_fraction : float, default=0.2
        Share of the rows held out for the choice, in (0, 1); for "held_out" only.
    repetitions : float, optional
        Expected number of trainings for "repeated", above 1, at most 10000; by default three per
        candidate, so each candidate is skipped with probability about 1/6. The number itself has a
        negative binomial distribution and is not released.

    Attributes
    ----------
    best_estimator_ : estimator
        The best model or pipeline, fitted. Save this one.
    best_params_ : dict
        Parameters of the best candidate.
    best_index_ : int
        Index of the best candidate.
    candidates_ : list of dict
        Parameters of all candidates.
    candidate_privacy_ : list of dict
        Privacy of a single training by candidate.
    privacy_ : dpglm.certificate.Certificate
        The privacy guarantee of the whole search.
    solution_ : dpglm.solvers.Solution
        The plan that was executed.
    classes_, coef_, intercept_, n_iter_, n_features_in_, feature_names_in_
        Those of the best estimator.
    """

    estimator: PrivateLinearModel | PrivatePipeline = field(kw_only=False)
    method: Literal["repeated", "held_out"] = "repeated"
    choice_fraction: float = 0.2
    repetitions: float | None = None

    @abc.abstractmethod
    def _parameters(self) -> list[dict[str, Any]]:
        """List the parameters of each candidate."""

    def __sklearn_tags__(self) -> Tags:
        inner = get_tags(self._inner())
        tags = super().__sklearn_tags__()
        for name in (*OF_THE_MODEL, "input_tags", "non_deterministic"):
            setattr(tags, name, getattr(inner, name))
        return tags

    def plan(self, n_rows: int, n_features: int, **options: Any) -> Plan:
        """Plan the whole search from public parameters, as the estimator's ``plan``.

        Sizes are those after the fixed transformers of a pipeline. ``plan.method.trainings`` has a
        plan for each candidate.
        """
        solver = self._solver(self._parameters(), None)
        plan: Plan = self._searching(solver).plan(n_rows, n_features, **options)
        return plan

    def _fit(self, data: FitData, finish: Finish | None = None) -> None:
        if data.groups is not None:
            raise ValueError(
                "groups must be None for a private search, which protects rows only: choose "
                "parameters from public knowledge, and give groups= to the estimator's own fit"
            )
        for name in ("offset", "exposure", "checkpoint"):
            if getattr(data, name) is not None:
                raise ValueError(f"{name} must be None for a private search")
        parameters = self._parameters()
        best = self._searching(self._solver(parameters, data.y))
        best._family = self._family
        best._fit(data, finish)
        model: Any = parts_of(best).model
        self.candidates_ = parameters
        self.best_index_ = int(model.solution_.chosen)
        self.best_params_ = parameters[self.best_index_]
        plan = model.solution_.plan
        self.candidate_privacy_ = [one.plan.privacy() for one in plan.method.trainings]
        chosen = plan.method.trainings[self.best_index_].plan
        method = dataclasses.replace(plan.method, problem=chosen.problem)
        plan = dataclasses.replace(plan, method=method)
        model.solution_ = dataclasses.replace(model.solution_, plan=plan)
        model.n_iter_ = chosen.n_steps
        model.privacy_ = model.privacy_.with_part(
            estimator=f"{type(self).__name__}({type(model).__name__})",
            loss=loss_in_words(plan),
            plan=plan.document,
        )
        self._settle(best, self.best_params_)
        self.best_estimator_ = best

    def _with(self, parameters: Mapping[str, Any]) -> Any:
        """Return a copy of the estimator with the search's budget and other parameters."""
        spent = {"epsilon": self.epsilon, "delta": self.delta, "ledger": self.ledger}
        return clone(self.estimator).set_params(**spent).set_params(**parameters)

    def _searching(self, solver: Solver) -> Any:
        """Return an estimator with the search as its solver.

        Privacy: fixed transformers learn nothing, so they map the rows once for all candidates.
        Private steps are part of each candidate's solver and plan.
        """
        if isinstance(self.estimator, PrivateLinearModel):
            return self._with({"solver": solver})
        parts = parts_of(self._with({}))
        model = clone(parts.model).set_params(solver=solver)
        last = self.estimator._named()[-1][0]
        return self._with({"steps": [*parts.transformers, (last, model)], "shares": None})

    def _settle(self, fitted: Any, parameters: Mapping[str, Any]) -> None:
        """Set the parameters of the best candidate on the fitted estimator."""
        chosen = self._candidate_model(parameters).get_params(deep=False)
        parts_of(fitted).model.set_params(**chosen)
        if isinstance(fitted, PrivatePipeline):
            pipeline = self._with(parameters)
            fitted.set_params(steps=pipeline.steps, shares=pipeline.shares)

    def _candidate_model(self, parameters: Mapping[str, Any]) -> PrivateLinearModel:
        """Return the model of a candidate; only its solver reads rows."""
        candidate = self._with(parameters)
        if not isinstance(candidate, PrivatePipeline):
            return candidate  # type: ignore[no-any-return]
        parts, own = parts_of(candidate), parts_of(self._with({}))
        names, fixed = ([name for name, _ in one.transformers] for one in (parts, own))
        if names != fixed:
            raise ValueError(
                f"candidates must have the fixed transformers {fixed!r}, and private steps "
                f"or 'passthrough' in other places, got {in_one_line(dict(parameters))}"
            )
        return candidate._configured(parts)  # type: ignore[no-any-return]

    def _allowed(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        """List the parameters that this candidate may set, which depend on its private steps."""
        private: set[str] = set()
        replaced, last = self._with({}), ""
        if isinstance(replaced, PrivatePipeline):
            fixed = {name for name, _ in parts_of(replaced).transformers}
            *before, last = [name for name, _ in replaced._named()]
            private = set(before) - fixed
            replaced.set_params(**{name: parameters[name] for name in private & set(parameters)})
        for name in replaced.get_params():
            step, _, setting = name.partition("__") if last else ("", "", name)
            of_model = step == last and setting and setting not in _SHARED
            if of_model or step in private or name == "shares":
                yield name

    def _solver(self, parameters: list[dict[str, Any]], y: Any) -> Solver:
        """Return the search over candidates, which are checked first."""
        if not isinstance(self.estimator, PrivateLinearModel | PrivatePipeline):
            raise ValueError(
                "estimator must be a private linear model or a PrivatePipeline of dpglm, which "
                "takes the steps that scikit-learn's Pipeline does, got "
                f"{in_one_line(self.estimator)}"
            )
        for name in _SPENT:
            value = getattr(self.estimator, name)
            if value != getattr(type(self.estimator), name):
                raise ValueError(
                    f"{name} must be set on the search, which spends it once for all candidates, "
                    f"got {name}={value!r} on the estimator"
                )

        if not parameters:
            raise ValueError("there must be at least one candidate, got none")
        for one in parameters:
            allowed = sorted(self._allowed(one))
            for name in (name for name in one if name not in allowed):
                raise ValueError(
                    f"candidates must not set {name!r}, which is the same for all of them or "
                    f"unknown, got {one[name]!r}; they may set {', '.join(allowed)}"
                )
        candidates = [self._candidate(one, y) for one in parameters]
        method = check_one_of("method", self.method, ("repeated", "held_out"))
        fraction = check_real("choice_fraction", self.choice_fraction, above=0.0, below=1.0)
        mean = _TRIES_PER_CANDIDATE * len(candidates)
        if self.repetitions is not None:
            mean = check_real("repetitions", self.repetitions, above=1.0, most=1e4)
        if method == "held_out":
            return HeldOutSearch(tuple(candidates), fraction)
        # A negative binomial of two successes is rarely small; this success has the mean.
        success = 0.5 * (math.sqrt(1.0 + 8.0 / mean) - 1.0)
        return RepeatedSearch(tuple(candidates), NegativeBinomialNumber(success, 2), _SCORE_SHARE)

    def _candidate(self, parameters: dict[str, Any], y: Any) -> Candidate:
        model = self._candidate_model(parameters)
        if model._covariance() is not None:
            raise ValueError(
                f"inference must be False for the estimator of a search, got {model.inference!r}: "
                "intervals of a model that was chosen on the same rows would not cover. Fit the "
                "chosen parameters with inference on a separate budget"
            )

        def problem(spec: DataSpec) -> Problem:
            # Without declared bounds ``fit`` takes them from the data, with a warning.
            if getattr(model, "target_bounds", ()) is None and y is not None:
                targets = np.asarray(y, dtype=np.float64)
                model.set_params(target_bounds=(float(targets.min()), float(targets.max())))
            return model._stated(model._problem(spec))

        # Find invalid candidates before any row is read.
        dry = clone(model)
        if getattr(dry, "target_bounds", ()) is None:
            dry.set_params(target_bounds=(0.0, 1.0))
        dry._stated(dry._problem(DataSpec(n_rows=1, n_features=1, n_outputs=3)))
        if not model._standardizes_as(self._candidate_model({})):
            raise ValueError(
                "candidates must standardize targets alike, as targets are prepared once, got "
                f"{parameters!r}"
            )
        return Candidate(parameters, model._solver(), problem)

    cv_results_ = _unpaid("cv_results_")
    best_score_ = _unpaid("best_score_")

    def _inner(self) -> Any:
        return vars(self).get("best_estimator_", self.estimator)


@parts_of.register
def _(search: _PrivateSearch) -> Parts:
    check_is_fitted(search, "best_estimator_")
    return parts_of(search.best_estimator_)


class PrivateGridSearchCV(_PrivateSearch):
    """Grid search under one privacy budget that covers the search.

    scikit-learn's ``GridSearchCV`` around a private model spends the budget of each fit, and
    releases scores without accounting. Here ``privacy_`` covers all trainings, all scores and the
    choice. Classifiers are compared by their number of errors on private rows, regressors by their
    absolute errors.

    Parameters
    ----------
    param_grid : dict or list of dict
        As in ``GridSearchCV``, with names such as ``"center__row_norm"`` for a pipeline.
        Candidates may differ in solver, penalty, constraint and loss, and in a pipeline's private
        steps (``"center": [Center(), "passthrough"]``), their settings and ``shares``; not in
        fixed transformers or public facts about the rows.

    Notes
    -----
    Privacy: ``cv_results_`` and ``best_score_`` do not exist, as scores and the number of trainings
    stay private. Private steps of a pipeline are learned in each training from its rows and its
    budget. "repeated" is ``RandomlyRepeated``: the best of a random number of tries costs little
    more than a single one, for any number of candidates. "held_out" is ``Parallel``: each of K
    candidates gets a K-th of the budget, or ``1 / sqrt(K)`` of its mu if trainings are Gaussian.
    Both require a public number of rows. The running time of "repeated" reveals the secret number
    of tries: keep it private.

    References
    ----------
    Papernot and Steinke, "Hyperparameter tuning with Renyi differential privacy", ICLR 2022. Liu
    and Talwar, "Private selection from private candidates", STOC 2019. McKenna and Sheldon 2020,
    for the choice on rows held out.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LogisticRegression, PrivateGridSearchCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = LogisticRegression(classes=[False, True], feature_bounds=(-1, 1))
    >>> search = PrivateGridSearchCV(model, {"C": [0.1, 1.0]}, epsilon=1.0).fit(X[:5000], y[:5000])
    >>> search.best_params_ in search.candidates_, search.score(X[5000:], y[5000:]) > 0.9
    (True, True)
    >>> search.privacy_.epsilon <= 1.0
    True
    """

    param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]] = field(
        kw_only=False
    )

    def _parameters(self) -> list[dict[str, Any]]:
        return list(ParameterGrid(self.param_grid))


class PrivateRandomizedSearchCV(_PrivateSearch):
    """Randomized search under one privacy budget that covers the search.

    Parameters
    ----------
    param_distributions : dict or list of dict
        As in ``RandomizedSearchCV``: lists, or distributions with a method ``rvs``; names as in
        ``PrivateGridSearchCV``.
    n_iter : int, default=10
        Number of candidates drawn.
    random_state : int, optional
        Seed of the candidates, which are public; it does not seed noise. With None each call of
        ``plan`` or ``fit`` draws new candidates.

    Notes
    -----
    Privacy: as in ``PrivateGridSearchCV``; candidates do not depend on the data.
    """

    param_distributions: Mapping[str, Any] | Sequence[Mapping[str, Any]] = field(kw_only=False)
    n_iter: int = 10
    random_state: int | None = None

    def _parameters(self) -> list[dict[str, Any]]:
        n_iter = check_integer("n_iter", self.n_iter, least=1)
        sampler = ParameterSampler(self.param_distributions, n_iter, random_state=self.random_state)
        return list(sampler)
