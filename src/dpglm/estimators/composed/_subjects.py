"""The subject of a search: a private linear model, or a pipeline that ends with one."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar, final

from sklearn.base import clone

from dpglm._validation import in_one_line
from dpglm.estimators._private import PrivateEstimator
from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.solvers.base import Solver

__all__ = ["Subject", "subject_of"]

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
_E = TypeVar("_E", PrivateLinearModel, PrivatePipeline)


class Subject(abc.ABC, Generic[_E]):
    """An estimator, never changed, with the budget of a search, and the candidates derived from it.

    ``spent`` has the search's epsilon, delta and ledger.
    """

    def __init__(self, estimator: _E, spent: Mapping[str, Any]) -> None:
        self._estimator: _E = estimator
        self._spent = dict(spent)

    def _with(self, parameters: Mapping[str, Any]) -> _E:
        """Return a copy of the estimator with other parameters."""
        copy: _E = clone(self._estimator).set_params(**self._spent).set_params(**parameters)
        return copy

    def check(self, parameters: Mapping[str, Any]) -> None:
        """Check that a candidate sets only what candidates may differ in."""
        allowed = sorted(self._allowed(parameters))
        for name, value in parameters.items():
            if name not in allowed:
                raise ValueError(
                    f"candidates must not set {name!r}, which is the same for all of them or "
                    f"unknown, got {value!r}; they may set {', '.join(allowed)}"
                )

    @abc.abstractmethod
    def _allowed(self, parameters: Mapping[str, Any]) -> Iterable[str]:
        """List what candidates may set; names can depend on what this one sets."""

    @abc.abstractmethod
    def candidate(self, parameters: Mapping[str, Any]) -> PrivateLinearModel:
        """Return the model of a candidate; only its solver accesses rows."""

    @abc.abstractmethod
    def searching(self, solver: Solver) -> _E:
        """Return an estimator whose ``fit`` is the search."""

    @abc.abstractmethod
    def model_in(self, fitted: _E) -> PrivateLinearModel:
        """Return the fitted model in what ``searching`` returned."""

    def settle(self, fitted: _E, parameters: Mapping[str, Any]) -> None:
        """Give a fitted estimator the parameters of the candidate that won."""
        chosen = self.candidate(parameters).get_params(deep=False)
        self.model_in(fitted).set_params(**chosen)


@final
class _Model(Subject[PrivateLinearModel]):
    def _allowed(self, parameters: Mapping[str, Any]) -> set[str]:
        return set(self._estimator.get_params()) - _SHARED

    def candidate(self, parameters: Mapping[str, Any]) -> PrivateLinearModel:
        return self._with(parameters)

    def searching(self, solver: Solver) -> PrivateLinearModel:
        return self._with({"solver": solver})

    def model_in(self, fitted: PrivateLinearModel) -> PrivateLinearModel:
        return fitted


@final
class _Pipeline(Subject[PrivatePipeline]):
    """A pipeline; fixed transformers are common to all candidates and map the rows once.

    Privacy: they learn nothing from rows. Private steps are part of each candidate's solver, so
    that they are learned from the rows on which it is trained, and accounted for in its plan.
    """

    def __init__(self, estimator: PrivatePipeline, spent: Mapping[str, Any]) -> None:
        super().__init__(estimator, spent)
        self._parts = estimator._parts()
        self._fixed = [name for name, _ in self._parts.transformers]
        self._last = estimator._named()[-1][0]

    def _allowed(self, parameters: Mapping[str, Any]) -> Iterator[str]:
        names = {name for name, _ in self._estimator._named()} - {*self._fixed, self._last}
        replaced = self._with({name: parameters[name] for name in names & set(parameters)})
        for name in replaced.get_params():
            step, _, setting = name.partition("__")
            of_model = step == self._last and setting and setting not in _SHARED
            if of_model or step in names or name == "shares":
                yield name

    def candidate(self, parameters: Mapping[str, Any]) -> PrivateLinearModel:
        pipeline = self._with(parameters)
        parts = pipeline._parts()
        if [name for name, _ in parts.transformers] != self._fixed:
            raise ValueError(
                f"candidates must have the fixed transformers {self._fixed!r}, and private steps "
                f"or 'passthrough' in other places, got {in_one_line(dict(parameters))}"
            )
        model: PrivateLinearModel = pipeline._configured(parts)
        return model

    def searching(self, solver: Solver) -> PrivatePipeline:
        estimator = clone(self._parts.estimator).set_params(solver=solver)
        steps = [*self._parts.transformers, (self._last, estimator)]
        return self._with({"steps": steps, "shares": None})

    def model_in(self, fitted: PrivatePipeline) -> PrivateLinearModel:
        model: PrivateLinearModel = fitted.estimator_
        return model

    def settle(self, fitted: PrivatePipeline, parameters: Mapping[str, Any]) -> None:
        super().settle(fitted, parameters)
        chosen = self._with(parameters)
        fitted.set_params(steps=chosen.steps, shares=chosen.shares)


_KINDS: tuple[tuple[type[Any], type[Subject[Any]]], ...] = (
    (PrivateLinearModel, _Model),
    (PrivatePipeline, _Pipeline),
)


def subject_of(estimator: Any, spent: Mapping[str, Any]) -> Subject[Any]:
    """Return the subject of a search over an estimator that is not fitted."""
    for kind, subject in _KINDS:
        if isinstance(estimator, kind):
            return subject(estimator, spent)
    raise ValueError(
        "estimator must be a private linear model or a PrivatePipeline of dpglm, which takes the "
        f"steps that scikit-learn's Pipeline does, got {in_one_line(estimator)}"
    )
