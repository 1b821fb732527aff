"""Estimators whose model is the fitted estimator inside them."""

from __future__ import annotations

import abc
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpglm.certificate.certificate import Certificate
from dpglm.solvers.solution import Solution

__all__ = ["FittedModel"]


def _if_inner_has(method: str) -> Any:
    def has_it(self: FittedModel) -> bool:
        # Raises AttributeError where there is none, which is what scikit-learn expects.
        getattr(self._inner(), method)
        return True

    return available_if(has_it)


class FittedModel(abc.ABC):
    """Predicts by the estimator inside it, and shows what that learned once it is fitted."""

    @abc.abstractmethod
    def _inner(self) -> Any:
        """Return the fitted estimator, or before the fit the one that will be."""

    def _transformed(self, X: Any) -> Any:
        """Return rows as the inner estimator takes them."""
        return X

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
    def n_features_in_(self) -> int:
        """Number of columns that come in."""
        return int(self._first().n_features_in_)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """Names of the columns that come in, where they had any."""
        names: NDArray[Any] = self._first().feature_names_in_
        return names

    def predict(self, X: Any) -> Any:
        """Predict labels or targets.

        Parameters
        ----------
        X : table or matrix
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,)
        """
        return self._fitted().predict(self._transformed(X))

    @_if_inner_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Predict the linear scores of a classifier.

        Parameters
        ----------
        X : table or matrix
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,) for two classes, (n, n_classes) for more
        """
        return self._fitted().decision_function(self._transformed(X))

    @_if_inner_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities.

        Parameters
        ----------
        X : table or matrix
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n, n_classes)
        """
        return self._fitted().predict_proba(self._transformed(X))

    @_if_inner_has("predict_log_proba")  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Predict logarithms of class probabilities.

        Parameters
        ----------
        X : table or matrix
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n, n_classes)
        """
        return self._fitted().predict_log_proba(self._transformed(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the model's score: accuracy, or R squared.

        Parameters
        ----------
        X : table or matrix
            Rows, of all kinds that ``fit`` takes; of public rows, or the score is one more release.
        y : array_like of shape (n,)
            Labels or targets; None for a ``Collection`` that has its own.
        sample_weight : array_like of shape (n,), optional
            Weights.

        Returns
        -------
        float
        """
        return float(self._fitted().score(self._transformed(X), y, sample_weight=sample_weight))
