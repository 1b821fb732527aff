"""Private linear classifiers."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

from dpglm._validation import check_one_of, check_real
from dpglm.data.feature_bounds import FeatureBounds
from dpglm.estimators.linear._classifier import PrivateClassifier
from dpglm.estimators.linear._docs import shared_parameters
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
    Regularizer,
    Savage,
    SmoothedHinge,
    Softmax,
    SquaredHinge,
    Tangent,
    Target,
    Tempered,
)
from dpglm.solvers.base import Solver, StepInfo

__all__ = ["LinearSVC", "LogisticRegression", "RobustClassifier"]

_HINGES: Mapping[str, Callable[[], Loss]] = MappingProxyType(
    {"hinge": Hinge, "squared_hinge": SquaredHinge, "smoothed_hinge": SmoothedHinge}
)
_ROBUST: Mapping[str, Callable[[], Loss]] = MappingProxyType(
    {"savage": Savage, "tangent": Tangent, "tempered": lambda: Tempered(0.5)}
)


@shared_parameters
class LogisticRegression(PrivateClassifier):
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
        Public weight of each label, at least 0; 1 for those that are not named. Labels that are
        no text may be written as text, as in JSON.
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
        feature_bounds: FeatureBounds | None = None,
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


@shared_parameters
class LinearSVC(PrivateClassifier):
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
        Public weight of each label, at least 0; 1 for those that are not named. Labels that are
        no text may be written as text, as in JSON.
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
        feature_bounds: FeatureBounds | None = None,
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
class RobustClassifier(PrivateClassifier):
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
        Public weight of each label, at least 0; 1 for those that are not named. Labels that are
        no text may be written as text, as in JSON.
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
        feature_bounds: FeatureBounds | None = None,
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
