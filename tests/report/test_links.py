"""Every loss of `dpglm.problem` has a link, and a saved model predicts as its estimator does."""

import inspect
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import dpglm.problem
from dpglm.estimators import LinearSVC, LogisticRegression, RobustClassifier
from dpglm.problem import (
    BinaryLink,
    ClassLink,
    ClippedLoss,
    Hinge,
    IdentityLink,
    Link,
    Logistic,
    LogitLink,
    LogLink,
    Loss,
    OneVsRest,
    OneVsRestLink,
    Poisson,
    Squared,
    Target,
)
from dpglm.report import load_model, save_model
from dpglm.solvers import NoisyGD
from tests.fits import make_rows
from tests.laws.test_loss_laws import CASES
from tests.slowly import together

LOSSES = {repr(case.loss): case.loss for case in CASES}
BINARY = {name: loss for name, loss in LOSSES.items() if loss.target is Target.BINARY}


def test_all_losses_are_here():
    public = vars(dpglm.problem).values()
    concrete = {
        one
        for one in public
        if inspect.isclass(one) and issubclass(one, Loss) and not inspect.isabstract(one)
    }
    assert concrete == {type(loss) for loss in LOSSES.values()}


@together("name", LOSSES)
def test_links_fit_their_targets(name):
    link, target = LOSSES[name].link, LOSSES[name].target
    if target is Target.BINARY:
        assert link is None or isinstance(link, BinaryLink)
    elif target is Target.CLASS:
        assert link is None or (isinstance(link, ClassLink) and not isinstance(link, BinaryLink))
    else:
        assert isinstance(link, Link)


def test_links_of_wrapped_losses():
    assert ClippedLoss(Poisson(), 1.0).link == LogLink()
    assert OneVsRest(Logistic(), 3).link == OneVsRestLink(LogitLink())
    assert OneVsRest(Hinge(), 3).link is None
    assert ClippedLoss(Squared(), 1.0).link == IdentityLink()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("kind", [LinearSVC, RobustClassifier], ids=lambda kind: kind.__name__)
def test_saved_models_predict_as_their_estimators(kind, name, n_classes, tmp_path):
    X, y = make_rows(n_classes=n_classes)
    labels = list(range(n_classes))
    estimator = kind(
        loss=BINARY[name], classes=labels, row_norm=2.0, solver=NoisyGD(n_steps=2, clip=1.0)
    ).fit(X, y)
    save_model(estimator, tmp_path / "model.json")
    model = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    scores = estimator.decision_function(X)
    np.testing.assert_array_equal(model.decision_function(X), scores)
    assert model.has_probabilities == hasattr(estimator, "predict_proba")
    if model.has_probabilities:
        np.testing.assert_array_equal(model.predict_proba(X), estimator.predict_proba(X))
        logs = estimator.predict_log_proba(X)
        np.testing.assert_array_equal(model.predict_log_proba(X), logs)


@dataclass(frozen=True)
class OwnProbit(BinaryLink):
    """A link of the user's."""

    def inverse(self, z):
        return ndtr(z)

    def log_inverse(self, z):
        return log_ndtr(z)


@dataclass(frozen=True)
class Mine(Loss):
    """A loss of the user's: the logistic one with another link."""

    own: Link | None = None

    target = Target.BINARY
    convex = nonnegative = True
    link = property(lambda self: self.own)
    _value, _slope, _curvature = Logistic._value, Logistic._slope, Logistic._curvature
    _slope_bound_on, _smoothness_on = Logistic._slope_bound_on, Logistic._smoothness_on


def fitted_with(loss):
    X, y = make_rows()
    solver = NoisyGD(n_steps=2, clip=1.0)
    return LinearSVC(loss=loss, classes=[0, 1], row_norm=2.0, solver=solver).fit(X, y), X


def test_custom_losses_predict_by_their_declared_link(tmp_path):
    for loss in (Mine(), Mine(LogitLink())):
        estimator, X = fitted_with(loss)
        save_model(estimator, tmp_path / "model.json")
        model = load_model(tmp_path / "model.json")
        assert model.link == loss.link
        assert model.has_probabilities == hasattr(estimator, "predict_proba")
        np.testing.assert_array_equal(model.predict(X), estimator.predict(X))


def test_a_link_of_ones_own_is_that_of_the_loss(tmp_path):
    estimator, X = fitted_with(Mine(OwnProbit()))
    save_model(estimator, tmp_path / "model.json")
    model = load_model(tmp_path / "model.json")
    assert model.link == OwnProbit()
    np.testing.assert_array_equal(model.predict_proba(X), estimator.predict_proba(X))


def test_probabilities_of_logistic_regression(tmp_path):
    for n_classes in (2, 3):
        X, y = make_rows(n_classes=n_classes)
        fitted = LogisticRegression(classes=list(range(n_classes)), row_norm=2.0).fit(X, y)
        save_model(fitted, tmp_path / "model.json")
        model = load_model(tmp_path / "model.json")
        np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
