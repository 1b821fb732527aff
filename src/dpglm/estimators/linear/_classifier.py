"""What all private classifiers share: classes, class weights, predictions and scores."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import check_integer, check_real
from dpglm.data.collection import Collection
from dpglm.data.prediction import ClassLabels, Output, RowPrediction
from dpglm.data.spec import DataSpec
from dpglm.estimators._predictor import ClassPredictor, Predictor
from dpglm.estimators._private import PublicFacts
from dpglm.estimators._sklearn import ClassifierMixin
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear._class_weights import class_factors, heaviest_class, weights_by_text
from dpglm.estimators.linear._tallies import AccuracyTally, accuracy
from dpglm.estimators.linear._targets import ClassFactors, ClassTargets, Task, stated_loss
from dpglm.problem import (
    L2,
    ClassLink,
    Loss,
    NoPenalty,
    OneVsRest,
    Problem,
    Regularizer,
    Target,
)
from dpglm.solvers.base import Plan
from dpglm.tables.given import different_labels

__all__ = ["PrivateClassifier", "PrivateMarginClassifier", "named_loss"]


class PrivateClassifier(ClassifierMixin, PrivateLinearModel, ClassPredictor):
    """Classes, class weights and decisions.

    Parameters
    ----------
    classes : sequence, optional
        Public list of all possible labels. Default: those in the data, with a warning.
    class_weight : dict, optional
        Public weight of each label, at least 0; labels that are not listed have weight 1. Labels
        other than strings may be written as strings, as in JSON.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of X.
    intercept_ : ndarray of shape (1,) or (n_classes,)
        Intercepts.

    Notes
    -----
    Privacy: the releases are those of the solver's plan, listed in ``privacy_``; each covers the
    coefficients of all classes and the intercepts jointly.
    """

    # Not the mixin's, which knows rows in memory only.
    score = Predictor.score

    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

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
        n_classes: int | None = None,
        dtype: str = "float64",
        sparse: bool = False,
    ) -> Plan:
        """Plan a fit from public parameters, without data.

        Parameters
        ----------
        n_rows, n_features : int
            Size of the data.
        n_classes : int, optional
            Number of classes, at least 2. Default: that of ``classes``, or 2.
        dtype : {"float64", "float32"}, default="float64"
            Type of the matrix that ``fit`` will get.
        sparse : bool, default=False
            Whether it will be a sparse matrix.

        Returns
        -------
        Plan
            Releases, noise, steps and expected noise per coefficient. ``fit`` on data of that
            size executes exactly this plan; ``dpglm.report.guidance`` predicts its accuracy.

        Raises
        ------
        ValueError
            If a parameter is invalid, or neither ``row_norm`` nor ``feature_bounds`` is given.
        """
        classes = self._declared_classes()
        if n_classes is None:
            n_classes = 2 if classes is None else len(classes)
        check_integer("n_classes", n_classes, least=2)
        if classes is not None:
            class_factors(self.class_weight, classes)
            if n_classes != len(classes):
                raise ValueError(
                    f"n_classes must be that of classes, {len(classes)}, got {n_classes}"
                )
        return self._planned(
            n_rows,
            n_features,
            self._problem,
            dtype=dtype,
            is_sparse=sparse,
            weight_bound=heaviest_class(self.class_weight) * self._weight_bound(),
            n_outputs=n_classes if n_classes > 2 else 1,
            target_range=self._target_range(n_classes),
        )

    def _target_range(self, n_classes: int) -> tuple[float, float]:
        """Bounds on the targets of the loss, where it is one of numbers."""
        return -math.inf, math.inf

    def _task(self, y: NDArray[Any] | None, facts: PublicFacts) -> Task:
        if self.classes is None:
            if y is None:
                raise ValueError(
                    "classes must be declared for rows that are not one matrix in memory, got None"
                )
            check_classification_targets(y)
        self.classes_ = self._classes_of(y, facts)
        weights = None
        if self.class_weight is not None:
            weights = ClassFactors(self.classes_, class_factors(self.class_weight, self.classes_))
            facts.declared("class_weight", weights_by_text(self.class_weight, self.classes_))
        n_classes = len(self.classes_)
        return Task(
            ClassTargets(self.classes_),
            self._problem,
            n_outputs=n_classes if n_classes > 2 else 1,
            target_range=self._target_range(n_classes),
            weights=weights,
            heaviest=heaviest_class(self.class_weight),
        )

    def _model(self, w: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        return np.ascontiguousarray(w[:-1].T), w[-1].copy()

    def _classes_of(self, y: Any, facts: PublicFacts) -> NDArray[Any]:
        """Sorted classes: those declared, or else those in ``y``."""
        declared = self._declared_classes()
        if declared is not None:
            facts.declared("classes", declared.tolist())
            return declared
        classes = _at_least_two(different_labels(y))
        cure = "Give classes= the list of possible labels."
        facts.from_data("classes", classes.tolist(), cure)
        return classes

    def _declared_classes(self) -> NDArray[Any] | None:
        """Sorted classes that were declared, if they were."""
        if self.classes is None:
            return None
        classes = np.asarray(self.classes)
        if classes.ndim != 1 or len(classes) == 0:
            raise ValueError(f"classes must be a list of labels, got {self.classes!r}")
        return _at_least_two(different_labels(classes))

    def _classifies(self) -> bool:
        return True

    def _answer(self) -> Output:
        check_is_fitted(self)
        return ClassLabels(self.classes_)

    def _class_link(self) -> ClassLink:
        solution = getattr(self, "solution_", None)
        loss = self._loss(3) if solution is None else solution.plan.problem.loss
        if not isinstance(loss.link, ClassLink):
            raise AttributeError(f"{loss!r} does not model probabilities")
        return loss.link

    def _score_of(self, rows: Collection, predict: RowPrediction) -> float:
        return accuracy(rows.parts(AccuracyTally(predict, self.classes_)))


class PrivateMarginClassifier(PrivateClassifier):
    """Classifiers whose penalty is scikit-learn's C.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, above 0; ``numpy.inf`` for none.
    """

    C: float = 1.0

    def _penalty(self, n_rows: int) -> Regularizer:
        if math.inf == self.C:
            return NoPenalty()
        return L2(1.0 / (check_real("C", self.C, above=0.0) * n_rows))


def named_loss(loss: Any, names: Callable[[Loss], bool], n_classes: int) -> Loss:
    """Read a parameter ``loss`` of binary labels; for more than two classes one against the rest.

    ``names`` says of each loss of ``dpglm.problem`` whether it may be given by name.
    """
    binary = stated_loss(loss, names, (Target.BINARY,), "a binary margin")
    return binary if n_classes == 2 else OneVsRest(binary, n_classes)


def _at_least_two(classes: NDArray[Any]) -> NDArray[Any]:
    """Return the classes of a classifier, or refuse a single one."""
    if len(classes) < 2:
        raise ValueError(
            f"a classifier needs at least 2 classes, got {len(classes)} class: "
            f"{classes.tolist()}; if y may lack some, give classes= all possible labels"
        )
    return classes
