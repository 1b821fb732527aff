"""Additive classifiers and regressors of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from sklearn.utils import Tags

from dpglm.estimators._parameters import ClassifierMixin, RegressorMixin
from dpglm.estimators._predictor import Predictor
from dpglm.estimators.additive._base import AdditiveModel
from dpglm.estimators.additive._curves import Directions
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear.classifiers import LogisticRegression
from dpglm.estimators.linear.regressors import GeneralizedLinearRegressor, Ridge
from dpglm.problem import Loss
from dpglm.tables.schema import Schema

__all__ = ["AdditiveClassifier", "AdditiveRegressor"]


@final
class AdditiveClassifier(ClassifierMixin, AdditiveModel):
    """Private additive logistic regression of a table: two classes, or more by softmax.

    The log-odds of a row are an intercept plus the value of a curve or level for each column.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the L2 penalty on the features' coefficients, above 0.
    classes : sequence, optional
        Public list of all possible labels. Default: the labels in the schema.
    class_weight : dict, optional
        Public weight of each label, as in ``LogisticRegression``.

    Examples
    --------
    >>> from dpglm import AdditiveClassifier
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult(as_frame=True)
    >>> model = AdditiveClassifier(adult.schema, epsilon=1.0)
    >>> model = model.fit(adult.data.iloc[adult.train], adult.target[adult.train])
    >>> model.score(adult.data.iloc[adult.test], adult.target[adult.test]) > 0.85
    True
    """

    # The mixin's score takes rows in memory only.
    score = Predictor.score

    C: float = 1.0
    classes: Sequence[Any] | None = None
    class_weight: Mapping[Any, float] | None = None

    def _linear_model(self, schema: Schema) -> PrivateLinearModel:
        known = schema.target.estimator_parameters()
        if not set(known) <= {"classes"}:
            raise ValueError(
                "schema must describe a target with classes for a classifier; use "
                "AdditiveRegressor for numbers"
            )
        classes = known.get("classes") if self.classes is None else self.classes
        return LogisticRegression(C=self.C, classes=classes, class_weight=self.class_weight)

    def _check_directions(self, directions: Directions, linear: PrivateLinearModel) -> None:
        classes = linear.classes  # type: ignore[attr-defined]
        if directions and (classes is None or len(classes) > 2):
            raise ValueError(
                "monotone must be None unless two classes are declared: several classes cannot be "
                f"ordered by a score, got {dict(directions)!r}"
            )


@final
class AdditiveRegressor(RegressorMixin, AdditiveModel):
    """Private additive regression of a table: numbers, counts, amounts or proportions.

    The score of a row is an intercept plus the value of a curve or level for each column. The
    prediction is the score, or the inverse link of it.

    Parameters
    ----------
    loss : str or Loss, default="auto"
        A loss of numbers, as in ``GeneralizedLinearRegressor``: ``"squared"``, ``"poisson"``,
        ``"gamma"``, ``"huber"``, ... "auto" is Poisson for a target of type "count", else squared.
    alpha : float, default=1.0
        Strength of the L2 penalty for squared loss, as in ``Ridge``.
    target_bounds : pair of float, optional
        Public bounds of the target. Default: the bounds in the schema.
    offset_bounds : pair of float, optional
        Public bounds of offsets, as in the linear regressors.

    Examples
    --------
    >>> from dpglm import AdditiveRegressor
    >>> from dpglm.datasets import load_california_housing
    >>> housing = load_california_housing()
    >>> model = AdditiveRegressor(housing.schema, interactions=[("Latitude", "Longitude")])
    >>> model = model.fit(housing.data[housing.train], housing.target[housing.train])
    >>> model.score(housing.data[housing.test], housing.target[housing.test]) > 0.7
    True
    """

    # The mixin's score takes rows in memory only.
    score = Predictor.score

    loss: str | Loss = "auto"
    alpha: float = 1.0
    target_bounds: tuple[float, float] | None = None
    offset_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _linear_model(self, schema: Schema) -> PrivateLinearModel:
        target = schema.target
        known = target.estimator_parameters()
        if not set(known) <= {"target_bounds"}:
            raise ValueError(
                "schema must describe a numeric target for a regressor; use AdditiveClassifier "
                "for classes"
            )
        bounds = known.get("target_bounds") if self.target_bounds is None else self.target_bounds
        loss = self.loss
        if isinstance(loss, str) and loss == "auto":
            loss = "poisson" if known and target.default_estimator == "poisson" else "squared"
        if isinstance(loss, str) and loss == "squared":
            return Ridge(alpha=self.alpha, target_bounds=bounds, offset_bounds=self.offset_bounds)
        return GeneralizedLinearRegressor(
            loss=loss, target_bounds=bounds, offset_bounds=self.offset_bounds
        )

    def _check_directions(self, directions: Directions, linear: PrivateLinearModel) -> None:
        pass
