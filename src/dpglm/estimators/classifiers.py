"""Private linear classifiers."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import check_integer, check_one_of, check_real
from dpglm.data.collection import as_collection
from dpglm.data.matrix import MatrixRows
from dpglm.data.spec import DataSpec
from dpglm.estimators._base import PrivateLinearModel
from dpglm.estimators._docs import shared_parameters
from dpglm.estimators._prediction import (
    AccuracyTally,
    ClassLabels,
    accuracy,
    class_probabilities,
    scores,
)
from dpglm.estimators._private import PublicFacts
from dpglm.estimators._targets import ClassFactors, ClassTargets
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.problem import (
    L2,
    Constraint,
    ElasticNet,
    Hinge,
    Logistic,
    Loss,
    NoPenalty,
    OneVsRest,
    Problem,
    Regularizer,
    Savage,
    SmoothedHinge,
    Softmax,
    SquaredHinge,
    Tangent,
    Target,
    Tempered,
    class_shares,
)
from dpglm.solvers.base import Plan, Solver, StepInfo

__all__ = ["LinearSVC", "LogisticRegression", "RobustClassifier"]

_HINGES: Mapping[str, Callable[[], Loss]] = MappingProxyType(
    {"hinge": Hinge, "squared_hinge": SquaredHinge, "smoothed_hinge": SmoothedHinge}
)
_ROBUST: Mapping[str, Callable[[], Loss]] = MappingProxyType(
    {"savage": Savage, "tangent": Tangent, "tempered": lambda: Tempered(0.5)}
)


class _PrivateClassifier(ClassifierMixin, PrivateLinearModel):
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
        weight_bound = self._class_weight_bound() * self._weight_bound()
        spec = self._planned_spec(
            n_rows,
            n_features,
            dtype=dtype,
            is_sparse=sparse,
            weight_bound=weight_bound,
            n_outputs=n_classes if n_classes > 2 else 1,
        )
        return self._make_plan(spec, self._problem(spec))

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
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
            Weights in [0, ``weight_bound``]; larger ones count as ``weight_bound``.
        checkpoint : path-like, optional
            File in which the state is kept after each step. If the process is killed, the same
            call goes on from there and spends nothing twice; after the end, it returns the same
            model again until the file is deleted.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing is released or spent then.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent and which facts were treated as public.
        """
        facts = PublicFacts()
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            X, y = self._validated(X, y)
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
        weight_bound *= self._class_weight_bound()
        weights = None
        if self.class_weight is not None:
            facts.declared("class_weight", {str(k): v for k, v in self.class_weight.items()})
            weights = ClassFactors(self.classes_, self._class_factors())
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

    def _class_weight_bound(self) -> float:
        if self.class_weight is None:
            return 1.0
        if not isinstance(self.class_weight, Mapping):
            raise ValueError(
                "class_weight must be a dict from label to weight or None, got "
                f"{self.class_weight!r}; 'balanced' would read private class counts"
            )
        weights = [
            check_real(f"class_weight[{label!r}]", weight, least=0.0)
            for label, weight in self.class_weight.items()
        ]
        # Classes that are not named have weight 1.
        return max([1.0, *weights]) if len(weights) else 1.0

    def _class_factors(self) -> NDArray[np.float64]:
        assert self.class_weight is not None
        unknown = [label for label in self.class_weight if label not in self.classes_]
        if unknown:
            raise ValueError(
                f"class_weight has labels {unknown} that are not in classes "
                f"{self.classes_.tolist()}"
            )
        return np.array([float(self.class_weight.get(c, 1.0)) for c in self.classes_.tolist()])

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
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        self._check_features(rows)
        return accuracy(rows.parts(AccuracyTally(self._row_prediction(ClassLabels(self.classes_)))))


@shared_parameters
class LogisticRegression(_PrivateClassifier):
    """Private logistic regression: binary, or multinomial (softmax) for more classes.

    Minimises ``(1/n) sum loss + 1/(C n) (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2)``, which is
    scikit-learn's objective.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, above 0; ``numpy.inf`` for none.
    l1_ratio : float, default=0.0
        Share of the L1 norm in the penalty, in [0, 1].
    multi_class : {"multinomial", "ovr"}, default="multinomial"
        For more than two classes: one softmax model, or one binary model for each class against
        the rest, whose probabilities are scaled to add up to 1. Some solvers take one output
        at a time and need "ovr".
    classes : sequence, optional
        All possible labels, public. Default: those in the data, with a warning.
    class_weight : dict, optional
        Public weight of each label.
    <parameters>

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of X.
    <attributes>

    Notes
    -----
    Privacy: what leaves, and what pays for it, is the solver's to say; one release covers all
    coefficients, the intercept and (for softmax) all classes together. ``privacy_`` lists them.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Algorithm 1, and Lemma 5.1 for what clipping
    minimises; Arora et al. 2022, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(5000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = LogisticRegression(epsilon=1.0, classes=[False, True], feature_bounds=(-1, 1)).fit(
    ...     X, y
    ... )
    >>> model.score(X, y) > 0.9
    True
    >>> model.privacy_.epsilon <= 1.0
    True
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        C: float = 1.0,
        l1_ratio: float = 0.0,
        multi_class: Literal["multinomial", "ovr"] = "multinomial",
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.C = C
        self.l1_ratio = l1_ratio
        self.multi_class = multi_class
        self.classes = classes
        self.class_weight = class_weight

    def _loss(self, n_classes: int) -> Loss:
        one_by_one = check_one_of("multi_class", self.multi_class, ("multinomial", "ovr")) == "ovr"
        if n_classes == 2:
            return Logistic()
        return OneVsRest(Logistic(), n_classes) if one_by_one else Softmax()

    def _penalty(self, n_rows: int) -> Regularizer:
        return _penalty(self.C, self.l1_ratio, n_rows)

    def predict_proba(self, X: Any) -> Any:
        """Predict class probabilities.

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
        one_by_one = len(self.classes_) > 2 and self.multi_class == "ovr"
        return self._predicted(X, class_shares if one_by_one else class_probabilities)


@shared_parameters
class LinearSVC(_PrivateClassifier):
    """Private linear support vector classifier, one against the rest for more than two classes.

    Minimises ``(1/n) sum loss + 1/(2 C n) |w|^2``, which is scikit-learn's objective up to its
    treatment of the intercept (``penalize_intercept=True`` for that).

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, above 0; ``numpy.inf`` for none.
    loss : {"squared_hinge", "hinge", "smoothed_hinge"} or Loss, default="squared_hinge"
        Loss of the margin.
    classes : sequence, optional
        All possible labels, public. Default: those in the data, with a warning.
    class_weight : dict, optional
        Public weight of each label.
    <parameters>

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of X.
    <attributes>

    Notes
    -----
    Privacy: as for ``LogisticRegression``.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Algorithm 1.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        C: float = 1.0,
        loss: str | Loss = "squared_hinge",
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.C = C
        self.loss = loss
        self.classes = classes
        self.class_weight = class_weight

    def _loss(self, n_classes: int) -> Loss:
        return _named_loss(self.loss, _HINGES, n_classes)

    def _penalty(self, n_rows: int) -> Regularizer:
        return _penalty(self.C, 0.0, n_rows)


@shared_parameters
class RobustClassifier(_PrivateClassifier):
    """Private linear classifier with a bounded, non-convex loss that mislabelled rows move little.

    Minimises ``(1/n) sum loss + 1/(2 C n) |w|^2`` locally, starting at zero; one against the
    rest for more than two classes.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty, above 0; ``numpy.inf`` for none.
    loss : {"savage", "tangent", "tempered"} or Loss, default="savage"
        Loss of the margin.
    classes : sequence, optional
        All possible labels, public. Default: those in the data, with a warning.
    class_weight : dict, optional
        Public weight of each label.
    <parameters>

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        Coefficients, in the units of X.
    <attributes>

    Notes
    -----
    Privacy: as for ``LogisticRegression``; it does not depend on convexity.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, section 4 (noisy gradient descent on non-convex
    GLMs); Wang, Ye and Xu 2017, section 6.2.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        C: float = 1.0,
        loss: str | Loss = "savage",
        classes: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.C = C
        self.loss = loss
        self.classes = classes
        self.class_weight = class_weight

    def _loss(self, n_classes: int) -> Loss:
        return _named_loss(self.loss, _ROBUST, n_classes)

    def _penalty(self, n_rows: int) -> Regularizer:
        return _penalty(self.C, 0.0, n_rows)


def _penalty(C: float, l1_ratio: float, n_rows: int) -> Regularizer:
    ratio = check_real("l1_ratio", l1_ratio, least=0.0, most=1.0)
    if math.inf == C:
        return NoPenalty()
    strength = 1.0 / (check_real("C", C, above=0.0) * n_rows)
    return ElasticNet(strength, ratio) if ratio > 0.0 else L2(strength)


def _named_loss(loss: Any, known: Mapping[str, Callable[[], Loss]], n_classes: int) -> Loss:
    if isinstance(loss, str):
        check_one_of("loss", loss, tuple(known))
        loss = known[loss]()
    if not isinstance(loss, Loss) or loss.target is not Target.BINARY:
        raise ValueError(
            f"loss must be one of {list(known)} or a Loss of a binary margin, got {loss!r}"
        )
    return loss if n_classes == 2 else OneVsRest(loss, n_classes)
