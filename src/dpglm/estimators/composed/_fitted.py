"""Estimators whose model is the fitted estimator inside them."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpglm.certificate.certificate import Certificate
from dpglm.data.prediction import Output
from dpglm.estimators._predictor import ClassPredictor
from dpglm.inference.inference import Inference
from dpglm.problem import ClassLink
from dpglm.solvers.solution import Solution

__all__ = ["FittedModel"]


class FittedModel(ClassPredictor):
    """Predicts by the estimator inside it, and shows what that learned once it is fitted."""

    @abc.abstractmethod
    def _inner(self) -> Any:
        """Return the fitted estimator, or before the fit the one that will be."""

    def _transformed(self, X: Any) -> Any:
        """Return rows as the inner estimator takes them."""
        return X

    def _targets(self, X: Any, y: Any) -> Any:
        """Return the targets of rows, which some tables hold themselves."""
        return y

    def _first(self) -> Any:
        """Return what rows come to first."""
        return self._fitted()

    def _fitted(self) -> Any:
        check_is_fitted(self)
        return self._inner()

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels of a classifier, sorted."""
        classes: NDArray[Any] = self._fitted().classes_
        return classes

    @property
    def coef_(self) -> NDArray[np.float64]:
        """Coefficients of the columns that enter the private steps."""
        coef: NDArray[np.float64] = self._fitted().coef_
        return coef

    @property
    def intercept_(self) -> Any:
        """Intercepts."""
        return self._fitted().intercept_

    @property
    def n_iter_(self) -> int:
        """Number of steps of the run, private preprocessing included."""
        return int(self._fitted().n_iter_)

    @property
    def privacy_(self) -> Certificate:
        """The certificate of the whole."""
        certificate: Certificate = self._fitted().privacy_
        return certificate

    @property
    def solution_(self) -> Solution:
        """The plan that was executed, and public diagnostics of each step."""
        solution: Solution = self._fitted().solution_
        return solution

    @property
    def inference_(self) -> Inference:
        """Standard errors, intervals and tests, where the estimator was asked for them."""
        inference: Inference = self._fitted().inference_
        return inference

    @property
    def n_features_in_(self) -> int:
        """Number of columns that come in."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns that come in, where they had any."""
        names: NDArray[Any] = self._first().feature_names_in_
        return names

    def _predicted(self, X: Any, output: Output) -> Any:
        return self._fitted()._predicted(self._transformed(X), output)

    def _classifies(self) -> bool:
        classifies: bool = self._inner()._classifies()
        return classifies

    def _answer(self) -> Output:
        output: Output = self._fitted()._answer()
        return output

    def _score(self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any) -> float:
        y, rows = self._targets(X, y), self._transformed(X)
        score: float = self._fitted()._score(rows, y, sample_weight, offset, exposure)
        return score

    def _class_link(self) -> ClassLink:
        link: ClassLink = self._inner()._class_link()
        return link
