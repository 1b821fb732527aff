"""Predictions and scores of linear models, and of estimators that hold one."""

from __future__ import annotations

import abc
from typing import Any

from sklearn.utils.metaestimators import available_if

from dpglm.data.collection import Collection, Output, scores, with_offset
from dpglm.problem import ClassLink

__all__ = ["NO_OFFSET", "ClassPredictor", "Predictor"]

NO_OFFSET = "offset and exposure must be None for a classifier: BinomialRegressor takes an offset"
"""Scores of labels have no known terms."""


class Predictor(abc.ABC):
    """Predicts by a function of linear scores."""

    @abc.abstractmethod
    def _predicted(self, X: Any, output: Output) -> Any:
        """Apply a function of linear scores to rows; the result is an array of the same kind."""

    @abc.abstractmethod
    def _classifies(self) -> bool:
        """Whether predictions are labels."""

    @abc.abstractmethod
    def _answer(self) -> Output:
        """Return what makes labels, or means of the target, of linear scores."""

    @abc.abstractmethod
    def _score(self, X: Any, y: Any, sample_weight: Any, offset: Any, exposure: Any) -> float:
        """Return the accuracy, or R squared."""

    def predict(self, X: Any, *, offset: Any = None, exposure: Any = None) -> Any:
        """Predict labels of a classifier, or targets of a regressor.

        Parameters
        ----------
        X : array_like, table, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.
        offset, exposure : array_like of shape (n,) or float, optional
            As for ``fit``; arrays for rows in memory only. By default those of rows that have
            their own (``ParquetRows``), else an offset of 0: an exposure of 1.

        Returns
        -------
        array of shape (n,)
            A NumPy array; a lazy Dask array for Dask rows; a tensor on the same device for a
            tensor. String labels always in a NumPy array.
        """
        self._check_offset(offset, exposure)
        if isinstance(X, Collection) and X.has_offset and not (offset is exposure is None):
            raise ValueError("offset and exposure must be None for rows with offsets")
        answer = with_offset(self._answer(), offset, exposure)
        return self._predicted(X, answer)

    def _check_offset(self, offset: Any, exposure: Any) -> None:
        if self._classifies() and (offset is not None or exposure is not None):
            raise ValueError(NO_OFFSET)

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        exposure: Any = None,
    ) -> float:
        """Return the accuracy of a classifier, or R squared of a regressor.

        Parameters
        ----------
        X : array_like, table, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes. They should be public: a score of private rows
            is one more release, which is not accounted for (``dpglm.evaluate`` is). On the rows of
            the fit it warns, once.
        y : array_like of shape (n,)
            Labels or targets; None for a ``Collection`` that has its own.
        sample_weight : array_like of shape (n,), optional
            Weights.
        offset, exposure : array_like of shape (n,), optional
            As for ``predict``.

        Returns
        -------
        float
        """
        return self._score(X, y, sample_weight, offset, exposure)


def _has_class_link(predictor: ClassPredictor) -> bool:
    try:
        return predictor._class_link() is not None
    except ValueError:  # of an invalid loss, which fit refuses
        return False


_if_it_classifies = available_if(lambda predictor: predictor._classifies())
_if_the_link_has_them = available_if(_has_class_link)


class ClassPredictor(Predictor):
    """Predicts classes, with probabilities where the link of the loss defines them."""

    @abc.abstractmethod
    def _class_link(self) -> ClassLink:
        """Return the link of the fitted loss, or before the fit of the chosen one.

        AttributeError where it does not define probabilities.
        """

    @_if_it_classifies  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Predict the linear scores of a classifier.

        Parameters
        ----------
        X : array_like, table, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,) for two classes, (n, n_classes) for more
            For two classes, positive scores mean ``classes_[1]``. A NumPy array; a lazy Dask array
            for Dask rows; a tensor on the same device for a tensor.
        """
        return self._predicted(X, scores)

    @_if_the_link_has_them  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities, if the link of the loss defines them.

        Parameters
        ----------
        X : array_like, table, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n, n_classes)
            Columns in the order of ``classes_``; rows sum to 1. An array as
            ``decision_function`` returns it.
        """
        return self._predicted(X, self._class_link().probabilities)

    @_if_the_link_has_them  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Predict logarithms of class probabilities, if the link of the loss defines them.

        Parameters
        ----------
        X : array_like, table, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n, n_classes)
            As ``predict_proba``, but finite where probabilities underflow to 0.
        """
        return self._predicted(X, self._class_link().log_probabilities)
