"""What all private classifiers share: classes, class weights, decisions and scores."""

from __future__ import annotations

import abc
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpglm._all_or_nothing import all_or_nothing
from dpglm._validation import check_integer
from dpglm.data.collection import as_collection
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.spec import DataSpec
from dpglm.estimators._private import PublicFacts
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear._class_weights import class_factors, heaviest_class, weights_by_text
from dpglm.estimators.linear._prediction import AccuracyTally, ClassLabels, accuracy, scores
from dpglm.estimators.linear._targets import ClassFactors, ClassTargets
from dpglm.problem import ClassLink, Loss, Problem, Regularizer
from dpglm.solvers.base import Plan
from dpglm.solvers.checkpoint import CheckpointFile

__all__ = ["PrivateClassifier"]


def _has_class_link(classifier: PrivateClassifier) -> bool:
    try:
        return classifier._class_link() is not None
    except ValueError:  # of an invalid loss, which fit refuses
        return False


_if_the_link_has_them = available_if(_has_class_link)


class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """Classes, class weights and decisions."""

    classes: Sequence[Any] | None
    class_weight: Mapping[Any, float] | None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # With the default epsilon and a few dozen rows, noise rightly drowns the signal.
        tags.classifier_tags.poor_score = True
        return tags

    @abc.abstractmethod
    def _loss(self, n_classes: int) -> Loss:
        """Loss for labels -1, +1, or for class indices if there are more than two classes."""

    @abc.abstractmethod
    def _penalty(self, n_rows: int) -> Regularizer:
        """Penalty in prepared coordinates."""

    def _problem(self, spec: DataSpec) -> Problem:
        return Problem(self._loss(max(spec.n_outputs, 2)), self._penalty(spec.n_rows))

    def plan(
        self,
        n_rows: int,
        n_features: int,
        n_classes: int = 2,
        dtype: str = "float64",
        sparse: bool = False,
    ) -> Plan:
        """Say what ``fit`` will release, without seeing a row.

        Parameters
        ----------
        n_rows, n_features : int
            Size of the data.
        n_classes : int, default=2
            Number of classes, at least 2.
        dtype : {"float64", "float32"}, default="float64"
            Type of the matrix that ``fit`` will get.
        sparse : bool, default=False
            Whether it will be a sparse matrix.

        Returns
        -------
        Plan
            Events, noise multiplier, steps and expected noise per coefficient. ``fit`` on data
            of that size executes exactly this plan; ``dpglm.report.guidance`` says what to
            expect of it.

        Raises
        ------
        ValueError
            If a parameter is invalid, or neither ``row_norm`` nor ``feature_bounds`` is given.
        """
        check_integer("n_classes", n_classes, least=2)
        if self.classes is not None:
            class_factors(self.class_weight, np.unique(np.asarray(self.classes)))
        weight_bound = heaviest_class(self.class_weight) * self._weight_bound()
        spec = self._planned_spec(
            n_rows,
            n_features,
            dtype=dtype,
            is_sparse=sparse,
            weight_bound=weight_bound,
            n_outputs=n_classes if n_classes > 2 else 1,
        )
        return self._make_plan(spec, self._problem(spec))

    @all_or_nothing
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        checkpoint: str | os.PathLike[str] | CheckpointFile | None = None,
    ) -> Self:
        """Fit the model under differential privacy.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows: NumPy, pandas, polars, or SciPy sparse (read as CSR); float32 stays float32.
            Or rows that are not one matrix in memory, with all public facts declared: a large
            memory-mapped array, a torch tensor, Dask, or ``ParquetRows`` and its like, which
            have their own targets and weights.
        y : array_like of shape (n,)
            Labels, all among ``classes`` where these are declared.
        sample_weight : array_like of shape (n,), optional
            Weights in [0, ``weight_bound``]; larger ones count as ``weight_bound``. Not all zero:
            such rows are refused before anything is spent.
        checkpoint : path-like or CheckpointFile, optional
            File in which the state is kept after each step. If the process is killed, the same
            call goes on from there and spends nothing twice; after the end, it returns the same
            model again until the file is deleted. One of a fit with other parameters or public
            facts is refused.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing is released or spent then.
        PlanMismatchError
            If the checkpoint is of another fit; the message names the fact that differs.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent and which facts were treated as public.
        """
        facts = PublicFacts()
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            X, y = self._validated(X, y)
            if self.classes is None:
                check_classification_targets(y)
            self.classes_ = self._classes_of(y, facts)
            own_weights, weight_bound = self._weights(sample_weight, X.shape[0], facts)
            rows = MatrixRows(X, y, own_weights)
        else:
            if self.classes is None:
                raise ValueError(
                    "classes must be declared for rows that are not one matrix in memory, got None"
                )
            self.classes_ = self._classes_of(None, facts)
            weight_bound = self._accept(rows, facts)
        weight_bound *= heaviest_class(self.class_weight)
        weights = None
        if self.class_weight is not None:
            weights = ClassFactors(self.classes_, class_factors(self.class_weight, self.classes_))
            facts.declared("class_weight", weights_by_text(self.class_weight, self.classes_))
        n_classes = len(self.classes_)
        w = self._fit(
            rows,
            facts,
            self._problem,
            targets=ClassTargets(self.classes_),
            weights=weights,
            weight_bound=weight_bound,
            checkpoint=checkpoint,
            n_outputs=n_classes if n_classes > 2 else 1,
        )
        self.coef_ = np.ascontiguousarray(w[:-1].T)
        self.intercept_ = w[-1].copy()
        self._certify(facts)
        return self

    def _classes_of(self, y: Any, facts: PublicFacts) -> NDArray[Any]:
        """Sorted classes: those declared, or else those in ``y``."""
        if self.classes is None:
            classes = np.unique(y)
            if len(classes) > 1:
                cure = "Give classes= the list of possible labels."
                facts.from_data("classes", classes.tolist(), cure)
        else:
            classes = np.asarray(self.classes)
            if classes.ndim != 1 or len(classes) == 0:
                raise ValueError(f"classes must be a list of labels, got {self.classes!r}")
            classes = np.unique(classes)
            facts.declared("classes", classes.tolist())
        if len(classes) < 2:
            raise ValueError(
                f"a classifier needs at least 2 classes, got {len(classes)} class: "
                f"{classes.tolist()}; if y may lack some, give classes= all possible labels"
            )
        return classes

    def decision_function(self, X: Any) -> Any:
        """Predict the linear scores.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,) for two classes, (n, n_classes) for more
            For two classes, above 0 means ``classes_[1]``. Of NumPy; for rows of Dask, of Dask
            and not yet computed; for a tensor, a tensor where that is.
        """
        return self._predicted(X, scores)

    def predict(self, X: Any) -> Any:
        """Predict labels.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,)
            Of the kind that ``decision_function`` returns; labels that are text are never in a
            tensor.
        """
        check_is_fitted(self)
        return self._predicted(X, ClassLabels(self.classes_))

    @_if_the_link_has_them  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities; for losses whose link gives them.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n, n_classes)
            Columns in the order of ``classes_``; rows add up to 1. Of the kind that
            ``decision_function`` returns.
        """
        check_is_fitted(self)
        return self._predicted(X, self._class_link().probabilities)

    @_if_the_link_has_them  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Any:
        """Predict logarithms of class probabilities; for losses whose link gives them.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n, n_classes)
            As ``predict_proba`` returns them, and finite where these underflow to 0.
        """
        check_is_fitted(self)
        return self._predicted(X, self._class_link().log_probabilities)

    def _class_link(self) -> ClassLink:
        """Return the link of the fitted loss, or before the fit of the one that is asked for."""
        solution = getattr(self, "solution_", None)
        loss = self._loss(2) if solution is None else solution.plan.problem.loss
        if not isinstance(loss.link, ClassLink):
            raise AttributeError(f"{loss!r} does not model probabilities")
        return loss.link

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the share of rows whose label is predicted.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes; of public rows, or the score is one more release.
        y : array_like of shape (n,)
            Labels; None for a ``Collection`` that has its own.
        sample_weight : array_like of shape (n,), optional
            Weights.

        Returns
        -------
        float
        """
        rows = self._scored(X, y, sample_weight)
        predict = self._row_prediction(ClassLabels(self.classes_))
        return accuracy(rows.parts(AccuracyTally(predict, self.classes_)))
