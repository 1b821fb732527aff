"""Estimators for any loss: the named ones are these with a loss chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor

from dpglm import (
    GeneralizedLinearClassifier,
    GeneralizedLinearRegressor,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NoisyGD,
    PoissonRegressor,
    PrivateGridSearchCV,
    RobustClassifier,
)
from dpglm.problem import (
    LOSSES,
    ConvexScalarLoss,
    Huber,
    IdentityLink,
    Link,
    Logistic,
    OneVsRest,
    Softmax,
    Squared,
    Target,
    Tempered,
)
from dpglm.report import load_model, save_model

FACTS = {"row_norm": 1.8, "random_state": 0, "epsilon": 2.0}


def rows(n=400):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    return X, X @ [1.0, -1.0, 0.5] + 2.0


def same(one, other, X, y):
    fitted = [each.set_params(**FACTS).fit(X, y) for each in (one, other)]
    np.testing.assert_array_equal(fitted[0].coef_, fitted[1].coef_)
    np.testing.assert_array_equal(fitted[0].intercept_, fitted[1].intercept_)
    np.testing.assert_array_equal(fitted[0].predict(X), fitted[1].predict(X))
    return fitted


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(
    ("named", "loss"),
    [
        (LinearSVC(C=0.1), "squared_hinge"),
        (LinearSVC(C=0.1, loss="hinge"), "hinge"),
        (RobustClassifier(C=0.1), "savage"),
        (RobustClassifier(C=0.1, loss=Tempered(0.3)), Tempered(0.3)),
        (LogisticRegression(C=0.1, multi_class="ovr"), "logistic"),
    ],
    ids=str,
)
def test_named_classifiers(named, loss, n_classes):
    X, z = rows()
    labels = {"classes": list(range(n_classes))}
    generic = GeneralizedLinearClassifier(loss=loss, C=0.1, **labels)
    y = np.digitize(z, [1.5, 2.5][: n_classes - 1])
    one, other = same(named.set_params(**labels), generic, X, y)
    assert hasattr(one, "predict_proba") == hasattr(other, "predict_proba")
    if hasattr(one, "predict_proba"):
        np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize("loss", ["softmax", Softmax(), OneVsRest(Logistic(), 3)])
def test_losses_of_classes_need_three_of_them(loss):
    X, z = rows()
    model = GeneralizedLinearClassifier(loss=loss, classes=[0, 1, 2], **FACTS)
    assert hasattr(model, "predict_proba")
    model.fit(X, np.digitize(z, [1.5, 2.5]))
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="loss must be for binary labels with two classes"):
        GeneralizedLinearClassifier(loss=loss, classes=[0, 1], **FACTS).plan(100, 3)


def test_loss_of_other_class_number_is_refused_before_spending():
    loss = OneVsRest(Logistic(), 4)
    with pytest.raises(ValueError, match=r"shape \(n, K\) with K = 4"):
        GeneralizedLinearClassifier(loss=loss, **FACTS).plan(100, 3, n_classes=3)


@pytest.mark.parametrize(
    ("named", "loss"),
    [
        (LinearRegression(), "squared"),
        (HuberRegressor(threshold=0.5, alpha=0.0), Huber(0.5)),
        (PoissonRegressor(alpha=0.0), "poisson"),
    ],
    ids=str,
)
def test_named_regressors(named, loss):
    X, y = rows()
    bounds = {"target_bounds": (0.0, 4.5)}
    y = np.maximum(y, 0.0)
    same(named.set_params(**bounds), GeneralizedLinearRegressor(loss=loss, **bounds), X, y)


def test_kinds_are_known_to_scikit_learn_and_follow_the_loss():
    assert is_classifier(GeneralizedLinearClassifier())
    assert is_regressor(GeneralizedLinearRegressor())
    counts = GeneralizedLinearRegressor(loss="poisson").__sklearn_tags__().target_tags
    assert counts.positive_only
    assert not GeneralizedLinearRegressor(loss="?").__sklearn_tags__().target_tags.positive_only


GENERIC = {
    True: GeneralizedLinearClassifier(row_norm=1.0, classes=[0, 1, 2]),
    False: GeneralizedLinearRegressor(row_norm=1.0, target_bounds=(0.25, 1.0)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_each_loss_is_taken_by_the_one_and_refused_by_the_other(name):
    loss = LOSSES[name]
    of_labels = loss.target in (Target.BINARY, Target.CLASS)
    for value in (name, loss):
        taking = clone(GENERIC[of_labels]).set_params(loss=value)
        assert taking.plan(1000, 2, **({"n_classes": 3} if of_labels else {}))
        with pytest.raises(ValueError, match="loss must be one of"):
            clone(GENERIC[not of_labels]).set_params(loss=value).plan(1000, 2)


@dataclass(frozen=True)
class LogCosh(ConvexScalarLoss):
    """A loss of the user's, which says nothing of scaled targets."""

    shown: Link | None

    target = Target.REAL
    nonnegative = True
    link = property(lambda self: self.shown)

    def _value(self, z, y):
        r = np.abs(z - y)
        return r + np.log1p(np.exp(-2.0 * r)) - math.log(2.0)

    def _slope(self, z, y):
        return np.tanh(z - y)

    def _curvature(self, z, y):
        return 1.0 - np.tanh(z - y) ** 2

    def _slope_bound_on(self, z_bound, y_low, y_high):
        return 1.0

    def _smoothness_on(self, z_bound, y_low, y_high):
        return 1.0

    def slope_inverse(self, slope, y):
        return y + np.arctanh(slope)


def test_a_loss_of_the_users_own(tmp_path):
    X, y = rows(20_000)
    model = GeneralizedLinearRegressor(
        loss=LogCosh(IdentityLink()), row_norm=1.8, target_bounds=(-1.0, 5.0), random_state=0
    ).fit(X, y)
    assert model.solution_.plan.problem.loss == LogCosh(IdentityLink())
    assert model.solution_.plan.data.target_high == 5.0
    assert model.score(X, y) > 0.8


def test_numeric_loss_without_link_is_refused_before_spending():
    model = GeneralizedLinearRegressor(loss=LogCosh(None), row_norm=1.0, target_bounds=(0.0, 1.0))
    X, y = rows(50)
    for attempt in (lambda: model.plan(50, 3), lambda: model.fit(X, y)):
        with pytest.raises(ValueError, match="loss must have a link"):
            attempt()


def test_search_over_losses_with_other_links(tmp_path):
    X, z = rows()
    y = (z > 2.0).astype(int)
    search = PrivateGridSearchCV(
        GeneralizedLinearClassifier(classes=[0, 1], row_norm=1.8, solver=NoisyGD(n_steps=3)),
        {"loss": ["logistic", "hinge", "savage"]},
        method="held_out",
    ).fit(X, y)
    save_model(search.best_estimator_, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").has_probabilities == (
        search.best_params_["loss"] != "hinge"
    )


def test_search_over_losses_with_other_target_scales_is_refused():
    X, y = rows()
    model = GeneralizedLinearRegressor(row_norm=1.8, target_bounds=(0.0, 4.5))
    search = PrivateGridSearchCV(model, {"loss": ["squared", "poisson"]})
    with pytest.raises(ValueError, match="candidates must standardize targets alike"):
        search.fit(X, y)
    losses = {"loss": [Squared(), Huber(0.5)]}
    PrivateGridSearchCV(model, losses, method="held_out").fit(X, y)
