"""Fit, predictions and scores of linear models, and of estimators that hold one."""

from __future__ import annotations

import abc
import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, final

from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from dpglm._calls import all_or_nothing, checked
from dpglm.certificate.statement import PublicFact
from dpglm.data.collection import Collection, Output, scores, with_offset
from dpglm.export.forms import export
from dpglm.problem import ClassLink
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile
from dpglm.tables.given import Where
from dpglm.tables.schema import Schema

NO_OFFSET = "offset and exposure must be None for a classifier: BinomialRegressor takes an offset"

Facts: TypeAlias = tuple[PublicFact, ...]
Finish: TypeAlias = Callable[[Any, Facts], Facts]
"""Called with a fitted linear model and its public facts before these are certified.

It may change the coefficients by post-processing, and returns the facts for the certificate.
"""


@final
@dataclass(frozen=True, eq=False)
class FitData:
    """The arguments of ``fit``, and the plan where it is made already."""

    X: Any
    y: Any = None
    sample_weight: Any = None
    groups: Any = None
    offset: Any = None
    exposure: Any = None
    where: Any = None
    checkpoint: str | os.PathLike[str] | CheckpointFile | None = None
    plan: Plan | None = None

    def chosen(self) -> FitData:
        """Keep the rows in memory for which ``where`` holds, and remember which these are."""
        if self.where is None or isinstance(self.where, Where):
            return self
        where = Where.of(self.where, self.X)
        names = ("X", "y", "sample_weight", "offset", "exposure")
        rows = {name: where.rows(getattr(self, name)) for name in names}
        return dataclasses.replace(self, where=where, **rows)


class Predictor(abc.ABC):
    """Fits a linear model and predicts by a function of its scores."""

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        where: ArrayLike | None = None,
        checkpoint: str | os.PathLike[str] | CheckpointFile | None = None,
    ) -> Self:
        """Fit the model under differential privacy.

        Parameters
        ----------
        X : array_like, sparse matrix, table or Collection of shape (n, n_features)
            Rows: NumPy, pandas, polars, or SciPy sparse (read as CSR); float32 stays float32.
            With all public parameters declared also a large memory-mapped array, a torch tensor,
            a Dask array, or a ``Collection`` such as ``ParquetRows`` with its own targets and
            weights. Models of a schema take a table with the schema's columns: a data frame of
            pandas, polars or Dask, a mapping from names to columns, an array in the schema's
            order, ``ParquetRows``, or the path of Parquet files.
        y : array_like of shape (n,), optional
            Labels of a classifier, all among ``classes`` if these are declared; targets of a
            regressor. None for a ``Collection`` with its own targets, and for a table with the
            target column that the schema names.
        sample_weight : array_like of shape (n,), optional
            Weights in [0, ``weight_bound``]; larger ones are clipped. A row of weight 0 is erased:
            it contributes nothing. If all weights are 0, the result is the neutral model plus
            noise; a warning says so unless the released sums exceed the noise.
        groups : array_like of shape (n,), optional
            Id of the person, household or other group of each row: numbers or texts in any order,
            of Dask if X is. Privacy then protects all rows of a group together. Searches protect
            rows only.
        offset : array_like of shape (n,), or mapping of a name to one, optional
            Known terms of the scores, for a regressor with a link other than the identity: finite,
            as private as their rows, and clipped to ``offset_bounds``. The name, or that of a
            Series, is recorded.
        exposure : array_like of shape (n,), or mapping of a name to one, optional
            In place of ``offset``, for a log link: durations, numbers of people or the like above
            0, to which means are proportional. ``offset`` is its logarithm.
        where : array_like of bool of shape (n,), optional
            Private condition for the rows that count, such as that no cell is missing. All others
            have weight 0, and their cells are not read. The public number of rows stays that of
            the table. For rows in memory.
        checkpoint : path-like or CheckpointFile, optional
            File that holds the state after each step. If the process is killed, the same call
            resumes from it and spends nothing twice; once complete, it returns the same model
            until the file is deleted. A checkpoint of a fit with other parameters is refused.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing has been released or spent.
        PlanMismatchError
            If the checkpoint belongs to another fit; the message names the difference.

        Notes
        -----
        Privacy: ``privacy_`` states the guarantee and the public parameters that it rests on.
        """
        self._fit(FitData(X, y, sample_weight, groups, offset, exposure, where, checkpoint))
        return self

    @abc.abstractmethod
    def _fit(self, data: FitData, finish: Finish | None = None) -> None:
        """Fit this estimator, which is a draft that ``fit`` installs."""

    @abc.abstractmethod
    def _predicted(self, X: Any, output: Output) -> Any:
        """Apply a function of linear scores to rows; return an array of the same kind."""

    @abc.abstractmethod
    def _classifies(self) -> bool:
        """Whether predictions are labels."""

    @abc.abstractmethod
    def _answer(self) -> Output:
        """Return the map from linear scores to labels or means."""

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
            As in ``fit``; arrays for rows in memory only. Default: the rows' own
            (``ParquetRows``), else an offset of 0 or an exposure of 1.

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

    @checked
    def export(self, to: str, *, schema: Schema | None = None) -> Any:
        """Write the predictions in another language, for scores where the rows are.

        Parameters
        ----------
        to : {"sql", "python", "onnx"}
            "sql" is an expression of the table's columns, "python" the source of a function
            ``predict(row)`` that imports nothing, and "onnx" a model for ONNX runtimes.
        schema : Schema, optional
            Schema of the table that was encoded as features; by default that of the fit.

        Returns
        -------
        str or onnx.ModelProto
            Probabilities of classes: of the second of two, or one for each. For other models
            linear scores of classes, or means of the target at an exposure of 1. A row that
            ``predict`` refuses is NULL, a ValueError or NaN.

        Raises
        ------
        ValueError
            If the model has transformers without a schema, or a link that cannot be written.
        ImportError
            If the package onnx is needed and not installed (``pip install 'dpglm[onnx]'``).

        Notes
        -----
        Privacy: post-processing of released coefficients and public facts.
        """
        estimator, own = self.linear_model()
        return export(estimator, to, own if schema is None else schema)

    @abc.abstractmethod
    def linear_model(self) -> tuple[Any, Schema | None]:
        """Return the linear model and the schema that a model file can hold.

        Returns
        -------
        estimator : estimator
            The fitted linear model of the features, with private steps undone.
        schema : Schema or None
            Encoding of a table as these features, if there is one.

        Raises
        ------
        ValueError
            If there are other transformers, which a model file cannot hold.
        """

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
            is a release without accounting, in contrast to ``dpglm.evaluate``. The first score on
            the rows of the fit warns.
        y : array_like of shape (n,)
            Labels or targets; None for a ``Collection`` with its own.
        sample_weight : array_like of shape (n,), optional
            Weights.
        offset, exposure : array_like of shape (n,), optional
            As in ``predict``.

        Returns
        -------
        float
        """
        return self._score(X, y, sample_weight, offset, exposure)


def _has_class_link(predictor: ClassPredictor) -> bool:
    try:
        return predictor._class_link() is not None
    except ValueError:  # fit refuses the loss
        return False


_if_it_classifies = available_if(lambda predictor: predictor._classifies())
_if_the_link_has_them = available_if(_has_class_link)


class ClassPredictor(Predictor):
    """Predicts classes, with probabilities if the link of the loss defines them."""

    @abc.abstractmethod
    def _class_link(self) -> ClassLink:
        """Return the link of the loss; AttributeError if it does not define probabilities."""

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
            Columns in the order of ``classes_``; rows sum to 1. The kind of array is that of
            ``decision_function``.
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
            Like ``predict_proba``, but finite where probabilities underflow to 0.
        """
        return self._predicted(X, self._class_link().log_probabilities)
