"""Private linear classifiers, and their base: classes, class weights and decisions."""

from __future__ import annotations

import abc
import dataclasses
import functools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import check_integer, check_one_of, check_real
from dpglm.data.collection import Collection, Output, RowPrediction, TargetMap, best_labels
from dpglm.data.rows import DataSpec
from dpglm.estimators._parameters import ClassifierMixin
from dpglm.estimators._predictor import (
    ByLabel,
    ClassPredictor,
    FitTask,
    Predictor,
    check_labels,
    stated_loss,
)
from dpglm.estimators._private import PublicFacts
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.problem import (
    L2,
    LOSSES,
    ClassLink,
    ElasticNetPenalty,
    Logistic,
    Loss,
    NoPenalty,
    OneVsRest,
    Problem,
    Regularizer,
    Softmax,
    Sparsemax,
    Squared,
    Target,
)
from dpglm.solvers.base import Plan
from dpglm.solvers.second_order.random_intercepts import MOST_FIXED
from dpglm.tables.cells import normal
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import NO_WEIGHT, as_weights, different_labels
from dpglm.tables.schema import Schema

__all__ = [
    "GeneralizedLinearClassifier",
    "LinearSVC",
    "LogisticRegression",
    "RidgeClassifier",
    "RobustClassifier",
]


# Public class weights by label.


def class_factors(class_weight: Any, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the weight of each of the sorted classes, of shape (n_classes,).

    Keys equal the labels, or their text as in JSON.

    Examples
    --------
    >>> class_factors({"1": 5.0}, np.array([0, 1])).tolist()
    [1.0, 5.0]
    """
    factors, labels = np.ones(len(classes)), classes.tolist()
    given: dict[int, Any] = {}
    if class_weight is None:
        return factors
    for key, weight in _checked(class_weight).items():
        found = [i for i, label in enumerate(labels) if _is_label(key, label)]
        if not found:
            raise ValueError(f"class_weight must have keys among the classes {labels}, got {key!r}")
        if found[0] in given:
            raise ValueError(
                "class_weight must name each class once, got "
                f"{given[found[0]]!r} and {key!r} for {labels[found[0]]!r}"
            )
        given[found[0]] = key
        factors[found[0]] = weight
    if not factors.any():
        raise ValueError(
            f"class_weight must be above 0 for at least one class, got {class_weight!r}"
        )
    return factors


def weights_by_text(class_weight: Any, classes: NDArray[Any]) -> dict[str, float]:
    """Write the weights of all classes, in their order, as JSON that ``class_factors`` reads."""
    factors = class_factors(class_weight, classes)
    return dict(zip(map(str, classes.tolist()), factors.tolist(), strict=True))


def _checked(class_weight: Any) -> dict[Any, float]:
    if not isinstance(class_weight, Mapping):
        raise ValueError(
            f"class_weight must be a dict from label to weight or None, got {class_weight!r}; "
            "'balanced' would read private class counts"
        )
    return {
        label: check_real(f"class_weight[{label!r}]", weight, least=0.0)
        for label, weight in class_weight.items()
    }


def _is_label(key: Any, label: Any) -> bool:
    if isinstance(key, str) and not isinstance(label, str):
        return key.strip() in (str(label), json.dumps(label, default=str))
    if isinstance(key, str) and isinstance(label, str):
        return normal(key) == normal(label)
    return bool(key == label)


# Accuracy and R squared by blocks of rows.


def right_labels(
    predict: RowPrediction, classes: NDArray[Any], X: Any, y: NDArray[Any], weights: Any
) -> tuple[float, float]:
    """Return the total weight of correctly labelled rows, and of all rows, in a block."""
    y = check_labels(classes, y)
    weights = np.ones(len(y)) if weights is None else as_weights(weights, len(y))
    return float(weights[predict(X) == y].sum()), float(weights.sum())


def accuracy(parts: Iterable[tuple[float, float]]) -> float:
    """Return the accuracy over all blocks."""
    right, total = np.sum(list(parts), axis=0)
    if total == 0.0:
        raise ValueError(NO_WEIGHT)
    return float(right / total)


def squared_errors(
    predict: RowPrediction, numbers: TargetMap, X: Any, y: NDArray[Any], weights: Any
) -> tuple[float, ...]:
    """Return weight, mean, sum of squares about the mean, and squared error of a block."""
    y, offset = (y, 0.0) if y.ndim == 1 else (y[:, 0], y[:, 1])
    y = numbers(y)
    weights = np.ones(len(y)) if weights is None else as_weights(weights, len(y))
    total = float(weights.sum())
    mean = float(weights @ y) / total if total else 0.0
    errors = y - predict(X, offset)
    return total, mean, float(weights @ (y - mean) ** 2), float(weights @ errors**2)


def r_squared(parts: Iterable[tuple[float, ...]]) -> float:
    """Return R squared over all blocks; for constant targets 1 or 0, as scikit-learn."""
    totals, means, squares, errors = np.array(list(parts)).T
    if totals.sum() == 0.0:
        raise ValueError(NO_WEIGHT)
    mean = totals @ means / totals.sum()
    about = float(squares.sum() + totals @ (means - mean) ** 2)
    if about == 0.0:
        return float(errors.sum() == 0.0)
    return float(1.0 - errors.sum() / about)


class PrivateClassifier(ClassifierMixin, PrivateLinearModel, ClassPredictor):
    """Base of the classifiers: classes, class weights and decisions.

    Parameters
    ----------
    classes : sequence, optional
        Public list of all possible labels. Default: those in the data, with a warning.
    class_weight : dict, optional
        Public weight of each label, at least 0; other labels have weight 1. Labels may be written
        as strings, as in JSON.

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

    # The mixin's score takes rows in memory only.
    score = Predictor.score
    # Bounds on the encoded targets of two classes, if the loss takes numbers.
    _range_of_two = -math.inf, math.inf

    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # With the default epsilon and a few dozen rows, noise dominates.
        tags.classifier_tags.poor_score = True
        return tags

    @abc.abstractmethod
    def _loss(self, n_classes: int) -> Loss:
        """Return the loss of labels -1 and +1, or of class indices for more than two classes."""

    @abc.abstractmethod
    def _penalty(self, n_rows: int) -> Regularizer:
        """Return the penalty on the coefficients of prepared rows."""

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
        """Plan a fit from public parameters, without data; see the regressors' ``plan``.

        Parameters
        ----------
        n_rows, n_features, dtype, sparse
            Size of the data, and type of the matrix that ``fit`` will get.
        n_classes : int, optional
            Number of classes, at least 2. Default: that of ``classes``, or 2.

        Raises
        ------
        ValueError
            If a parameter is invalid, or neither ``row_norm`` nor ``feature_bounds`` is given.
        """
        classes = self._declared_classes()
        known = 2 if classes is None else len(classes)
        n_classes = known if n_classes is None else check_integer("n_classes", n_classes, least=2)
        if classes is not None:
            class_factors(self.class_weight, classes)
            if n_classes != len(classes):
                raise ValueError(
                    f"n_classes must be the number of classes, {len(classes)}, got {n_classes}"
                )
        return self._planned(n_rows, n_features, self._task_of(n_classes), dtype, sparse)

    def _task_of(self, n_classes: int) -> FitTask:
        """Return the task without the maps of labels."""
        given = {} if self.class_weight is None else _checked(self.class_weight)
        return FitTask(
            np.asarray,
            self._problem,
            n_outputs=n_classes if n_classes > 2 else 1,
            target_range=self._range_of_two if n_classes == 2 else (-math.inf, math.inf),
            heaviest=max([1.0, *given.values()]),  # Other classes have the weight 1.
        )

    def _task(self, y: NDArray[Any] | None, facts: PublicFacts) -> FitTask:
        if self.classes is None:
            if y is None:
                raise ValueError("classes must be declared for rows not in memory, got None")
            check_classification_targets(y)
        declared = self._declared_classes()
        if declared is None:
            self.classes_ = _at_least_two(different_labels(y))
            remedy = "Give classes= the list of possible labels."
            facts.from_data("classes", self.classes_.tolist(), remedy)
        else:
            self.classes_ = declared
            facts.declared("classes", declared.tolist())
        weights = None
        if self.class_weight is not None:
            weights = ByLabel(self.classes_, class_factors(self.class_weight, self.classes_))
            facts.declared("class_weight", weights_by_text(self.class_weight, self.classes_))
        n_classes = len(self.classes_)
        codes = np.arange(n_classes) if n_classes > 2 else np.array([-1, 1])
        targets = ByLabel(self.classes_, codes)
        return dataclasses.replace(self._task_of(n_classes), targets=targets, weights=weights)

    def _model(self, w: NDArray[np.float64]) -> tuple[NDArray[np.float64], Any]:
        return np.ascontiguousarray(w[:-1].T), w[-1].copy()

    def _declared_classes(self) -> NDArray[Any] | None:
        """Return the declared classes, if any, sorted."""
        return None if self.classes is None else _at_least_two(different_labels(self.classes))

    def _classifies(self) -> bool:
        return True

    def _answer(self) -> Output:
        check_is_fitted(self)
        # A partial function, which can be pickled.
        return functools.partial(best_labels, self.classes_)

    def _class_link(self) -> ClassLink:
        solution = getattr(self, "solution_", None)
        loss = self._loss(3) if solution is None else solution.plan.problem.loss
        if not isinstance(loss.link, ClassLink):
            raise AttributeError(f"{loss!r} does not model probabilities")
        return loss.link

    def _score_of(self, rows: Collection, predict: RowPrediction) -> float:
        return accuracy(rows.parts(functools.partial(right_labels, predict, self.classes_)))


class PrivateMarginClassifier(PrivateClassifier):
    """Base of the classifiers with scikit-learn's C as penalty.

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
    """Read a parameter ``loss`` of binary labels, one-vs-rest for more than two classes.

    ``names`` is a predicate of losses that may be given by name.
    """
    binary = stated_loss(loss, names, (Target.BINARY,), "a binary margin")
    return binary if n_classes == 2 else OneVsRest(binary, n_classes)


def _at_least_two(classes: NDArray[Any]) -> NDArray[Any]:
    """Check that there are two classes or more."""
    if len(classes) < 2:
        raise ValueError(
            f"a classifier needs at least 2 classes, got {len(classes)} class: "
            f"{classes.tolist()}; if y may lack some, give classes= all possible labels"
        )
    return classes


@final
class LogisticRegression(PrivateMarginClassifier):
    """Private logistic regression: binary, or multinomial (softmax) for more classes.

    Minimises ``(1/n) sum loss + 1/(C n) (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2)``, which is
    scikit-learn's objective.

    Parameters
    ----------
    l1_ratio : float, default=0.0
        Share of the L1 norm in the penalty, in [0, 1].
    multi_class : {"multinomial", "ovr"}, default="multinomial"
        For more than two classes: a softmax model, or a binary model of each class against the
        rest with probabilities normalised to sum 1. Solvers of a single output require "ovr".

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Algorithm 1, and Lemma 5.1 for the objective under
    clipping; Arora et al. 2022, Algorithm 1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = LogisticRegression(epsilon=1.0, classes=[False, True], feature_bounds=(-1, 1))
    >>> model = model.fit(X[:5000], y[:5000])
    >>> model.score(X[5000:], y[5000:]) > 0.9
    True
    >>> model.privacy_.epsilon <= 1.0
    True
    """

    l1_ratio: float = 0.0
    multi_class: Literal["multinomial", "ovr"] = "multinomial"

    def _pools(self, schema: Schema) -> bool:
        n_fixed = len(schema.feature_names) - sum(b - a for a, b in schema.encoding.large.values())
        is_plain = self.regularizer is None and self.constraint is None and self.l1_ratio == 0.0
        is_binary = schema.has_target and schema.target.n_classes == 2 and bool(self.fit_intercept)
        few = n_fixed <= MOST_FIXED and not self._budget(1).is_pure
        return is_plain and is_binary and few

    def _loss(self, n_classes: int) -> Loss:
        one_by_one = check_one_of("multi_class", self.multi_class, ("multinomial", "ovr")) == "ovr"
        if n_classes == 2:
            return Logistic()
        return OneVsRest(Logistic(), n_classes) if one_by_one else Softmax()

    def _penalty(self, n_rows: int) -> Regularizer:
        ratio = check_real("l1_ratio", self.l1_ratio, least=0.0, most=1.0)
        if ratio == 0.0 or math.inf == self.C:
            return super()._penalty(n_rows)
        return ElasticNetPenalty(1.0 / (check_real("C", self.C, above=0.0) * n_rows), ratio)


@final
class LinearSVC(PrivateMarginClassifier):
    """Private linear support vector classifier, one against the rest for more than two classes.

    Minimises ``(1/n) sum loss + 1/(2 C n) |w|^2``, which is scikit-learn's objective up to its
    treatment of the intercept (``penalize_intercept=True`` for that).

    Parameters
    ----------
    loss : {"squared_hinge", "hinge", "smoothed_hinge"} or Loss, default="squared_hinge"
        Loss of the margin.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, Algorithm 1.
    """

    loss: str | Loss = "squared_hinge"

    def _loss(self, n_classes: int) -> Loss:
        return named_loss(self.loss, lambda one: one.convex and one.link is None, n_classes)


@final
class RobustClassifier(PrivateMarginClassifier):
    """Private linear classifier with a bounded non-convex loss, robust to mislabelled rows.

    Finds a local minimum of ``(1/n) sum loss + 1/(2 C n) |w|^2`` from zero; one against the rest
    for more than two classes.

    Parameters
    ----------
    loss : {"savage", "tangent", "tempered"} or Loss, default="savage"
        Loss of the margin.

    Notes
    -----
    Privacy: as in ``LogisticRegression``; the guarantee does not depend on convexity.

    References
    ----------
    Song, Steinke, Thakkar and Thakurta 2021, section 4 (noisy gradient descent on non-convex
    GLMs); Wang, Ye and Xu 2017, section 6.2.
    """

    loss: str | Loss = "savage"

    def _loss(self, n_classes: int) -> Loss:
        return named_loss(self.loss, lambda one: not one.convex, n_classes)


@final
class GeneralizedLinearClassifier(PrivateMarginClassifier):
    """Private linear classifier with any loss of binary labels or of classes.

    Minimises ``(1/n) sum loss + 1/(2 C n) |w|^2``, locally if the loss is not convex. A loss of
    binary labels is taken one against the rest for more than two classes. ``LogisticRegression``,
    ``LinearSVC`` and ``RobustClassifier`` are this with a loss chosen.

    Parameters
    ----------
    loss : str or Loss, default="logistic"
        A loss with target ``BINARY``: a name in ``dpglm.problem.LOSSES`` or an object, also of your
        own class; for three classes or more also a loss with target ``CLASS``, such as
        ``"softmax"``. ``predict_proba`` exists if its link defines probabilities.
    """

    loss: str | Loss = "logistic"

    def _loss(self, n_classes: int) -> Loss:
        loss = LOSSES.get(self.loss, self.loss) if isinstance(self.loss, str) else self.loss
        if not isinstance(loss, Loss) or loss.target is not Target.CLASS:
            return named_loss(loss, lambda one: not one.target.is_number, n_classes)
        if n_classes == 2:
            raise ValueError(f"loss must be for binary labels with two classes, got {loss!r}")
        # The loss refuses another number of classes.
        loss.value(np.zeros((1, n_classes)), np.zeros(1, dtype=np.intp))
        return loss


@final
class RidgeClassifier(PrivateClassifier):
    """Private ridge classifier: least squares for two classes, sparsemax loss for more.

    Two classes are fitted by least squares with targets 1 and -1: the objective
    ``(1/n) sum (y - X w)^2 / 2 + alpha/(2 n) |w|^2`` is scikit-learn's, scaled. For more classes
    the sparsemax loss (``dpglm.problem.Sparsemax``) replaces the squared loss. It equals the
    squared loss while scores lie between the class codes, and is constant for rows that are well
    inside their class, so gradients are bounded.

    Scores rank the classes; they are not probabilities. Unlike softmax, the noise does not grow
    with the number of classes.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.

    Notes
    -----
    With a delta of 0 and several classes the default is the nearest private class mean
    (``dpglm.solvers.Prototypes``), as noise would dominate gradient steps.

    Privacy: the releases are those of the solver's plan. A gradient of ``Sparsemax`` with respect
    to the scores has L2 norm at most sqrt(2) for any number of classes.

    References
    ----------
    Martins and Astudillo, "From softmax to sparsemax", ICML 2016. Mehta, Krichene, Thakurta,
    Kurakin and Cutkosky, "Differentially private image classification from features", TMLR 2023.
    """

    alpha: float = 1.0
    _range_of_two = -1.0, 1.0

    def _loss(self, n_classes: int) -> Loss:
        return Squared() if n_classes == 2 else Sparsemax()

    def _penalty(self, n_rows: int) -> Regularizer:
        return L2(check_real("alpha", self.alpha, least=0.0) / n_rows)

    def _target_units(self, task: FitTask, n_features: int) -> LinearUnits | None:
        if task.n_outputs == 1:
            return None
        # Codes 1 and -1 are twice the centred ones plus ``2 / K - 1``, the same for every class, so
        # it is left out without an intercept.
        twice = sparse.csr_array(sparse.diags_array(np.full(n_features + 1, 2.0)))
        return LinearUnits(twice, 2.0 / task.n_outputs - 1.0 if self.fit_intercept else 0.0)
