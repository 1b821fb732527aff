"""Every loss of `dpglm.problem` has a link, and a saved model predicts as its estimator does."""

import inspect

import numpy as np
import pytest

import dpglm.problem
from dpglm.estimators import LinearSVC, LogisticRegression, RobustClassifier
from dpglm.problem import ClippedLoss, Logistic, Loss, OneVsRest, Poisson, Squared, Target
from dpglm.report import load_model, save_model
from dpglm.report.links import link_of, link_of_words
from dpglm.solvers import NoisyGD
from tests.laws.test_loss_laws import CASES
from tests.report.conftest import make_rows

LOSSES = {repr(case.loss): case.loss for case in CASES}
BINARY = {name: loss for name, loss in LOSSES.items() if loss.target is Target.BINARY}


def test_all_losses_are_here():
    public = [getattr(dpglm.problem, name) for name in dpglm.problem.__all__]
    concrete = {
        one
        for one in public
        if inspect.isclass(one) and issubclass(one, Loss) and not inspect.isabstract(one)
    }
    assert concrete == {type(loss) for loss in LOSSES.values()}


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_has_a_link_which_its_words_tell_too(name):
    assert link_of_words(name) == link_of(LOSSES[name])


def test_links_of_wrapped_losses():
    assert link_of(ClippedLoss(Poisson(), 1.0)) == "exp"
    assert link_of(OneVsRest(Logistic(), 3)) == "ovr"
    assert link_of(ClippedLoss(Squared(), 1.0)) == "identity"


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


class Cubic:
    """Stands in for a loss of numbers that nobody here knows."""

    target = Target.REAL


class Margin:
    """Stands in for a loss of labels that nobody here knows."""

    target = Target.BINARY


def test_unknown_losses_of_numbers_are_refused_and_of_labels_need_no_link():
    with pytest.raises(ValueError, match=r"loss must be one of dpglm\.problem for a model file"):
        link_of(Cubic())
    assert link_of(Margin()) == "identity"
    assert link_of_words("Cubic()") is None


def test_probabilities_of_logistic_regression(tmp_path):
    for n_classes in (2, 3):
        X, y = make_rows(n_classes=n_classes)
        fitted = LogisticRegression(classes=list(range(n_classes)), row_norm=2.0).fit(X, y)
        save_model(fitted, tmp_path / "model.json")
        model = load_model(tmp_path / "model.json")
        np.testing.assert_array_equal(model.predict_proba(X), fitted.predict_proba(X))
