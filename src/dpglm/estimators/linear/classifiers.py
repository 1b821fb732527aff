"""Private linear classifiers."""

from __future__ import annotations

import math
from typing import Literal, final

import numpy as np
from scipy import sparse

from dpglm._validation import check_one_of, check_real
from dpglm.estimators._predictor import FitTask
from dpglm.estimators.linear._classifier import (
    PrivateClassifier,
    PrivateMarginClassifier,
    named_loss,
)
from dpglm.privacy.budget import is_pure
from dpglm.problem import (
    L2,
    LOSSES,
    ElasticNetPenalty,
    Logistic,
    Loss,
    OneVsRest,
    Regularizer,
    Softmax,
    Sparsemax,
    Squared,
    Target,
)
from dpglm.solvers.second_order.random_intercepts import MOST_FIXED
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.schema import Schema

__all__ = [
    "GeneralizedLinearClassifier",
    "LinearSVC",
    "LogisticRegression",
    "RidgeClassifier",
    "RobustClassifier",
]


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
        n_fixed = len(schema.feature_names) - sum(b - a for a, b in schema.large.values())
        is_plain = self.regularizer is None and self.constraint is None and self.l1_ratio == 0.0
        is_binary = schema.has_target and schema.target.n_classes == 2 and bool(self.fit_intercept)
        few = n_fixed <= MOST_FIXED and not is_pure(self._budget(1))
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

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import GeneralizedLinearClassifier
    >>> from dpglm.problem import Tempered
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = X @ [3.0, -2.0, 0.0] > 0
    >>> model = GeneralizedLinearClassifier(
    ...     loss=Tempered(0.8), classes=[False, True], feature_bounds=(-1, 1)
    ... ).fit(X[:5000], y[:5000])
    >>> model.score(X[5000:], y[5000:]) > 0.9
    True
    """

    loss: str | Loss = "logistic"

    def _loss(self, n_classes: int) -> Loss:
        loss = LOSSES.get(self.loss, self.loss) if isinstance(self.loss, str) else self.loss
        if not isinstance(loss, Loss) or loss.target is not Target.CLASS:
            return named_loss(loss, _is_of_labels, n_classes)
        if n_classes == 2:
            raise ValueError(f"loss must be for binary labels with two classes, got {loss!r}")
        # The loss refuses another number of classes.
        loss.value(np.zeros((1, n_classes)), np.zeros(1, dtype=np.intp))
        return loss


def _is_of_labels(loss: Loss) -> bool:
    return not loss.target.is_number


@final
class RidgeClassifier(PrivateClassifier):
    """Private ridge classifier: least squares for two classes, sparsemax loss for more.

    Two classes are least squares of targets 1 and -1,
    ``(1/n) sum (y - X w)^2 / 2 + alpha/(2 n) |w|^2``: scikit-learn's objective, scaled. For more
    classes the sparsemax loss (``dpglm.problem.Sparsemax``) with the same penalty replaces the
    squares. It equals them while scores lie between the class codes, and is constant for rows that
    are well inside their class, so gradients are bounded.

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

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import RidgeClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(6000, 3))
    >>> y = X.argmax(axis=1)
    >>> model = RidgeClassifier(epsilon=1.0, classes=[0, 1, 2], feature_bounds=(-1, 1))
    >>> model = model.fit(X[:5000], y[:5000])
    >>> model.score(X[5000:], y[5000:]) > 0.8
    True
    """

    alpha: float = 1.0

    def _loss(self, n_classes: int) -> Loss:
        return Squared() if n_classes == 2 else Sparsemax()

    def _penalty(self, n_rows: int) -> Regularizer:
        return L2(check_real("alpha", self.alpha, least=0.0) / n_rows)

    def _target_range(self, n_classes: int) -> tuple[float, float]:
        return (-1.0, 1.0) if n_classes == 2 else super()._target_range(n_classes)

    def _target_units(self, task: FitTask, n_features: int) -> LinearUnits | None:
        if task.n_outputs == 1:
            return None
        # Codes 1 and -1 are twice the centred ones plus ``2 / K - 1``, the same for every class, so
        # it is left out without an intercept.
        twice = sparse.csr_array(sparse.diags_array(np.full(n_features + 1, 2.0)))
        return LinearUnits(twice, 2.0 / task.n_outputs - 1.0 if self.fit_intercept else 0.0)
