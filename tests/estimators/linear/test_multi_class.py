"""Logistic regression of one class against the rest."""

import numpy as np
import pytest

from dpglm import LogisticRegression
from dpglm.problem import LogitLink, OneVsRest, OneVsRestLink
from dpglm.report import load_model, save_model


def three_classes(n=4000):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    return X, (X @ [[2.0, 0.0, -2.0], [0.0, 3.0, 0.0]] + rng.gumbel(size=(n, 3))).argmax(axis=1)


def model(**options):
    options = {"classes": [0, 1, 2], "feature_bounds": (-1, 1), "epsilon": 8.0} | options
    return LogisticRegression(multi_class="ovr", random_state=0, **options)


def test_one_model_for_each_class_with_probabilities_of_sum_1(tmp_path):
    X, y = three_classes()
    fitted = model().fit(X, y)
    assert isinstance(fitted.solution_.plan.problem.loss, OneVsRest)
    p = fitted.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(p.argmax(axis=1), fitted.predict(X))
    assert fitted.score(X, y) > 0.55
    one = 1.0 / (1.0 + np.exp(-fitted.decision_function(X)))
    np.testing.assert_allclose(p, one / one.sum(axis=1, keepdims=True))
    save_model(fitted, tmp_path / "model.json")
    np.testing.assert_allclose(load_model(tmp_path / "model.json").predict_proba(X), p)


def test_two_classes_are_plain_logistic_regression():
    X, y = three_classes()
    both = [
        LogisticRegression(
            multi_class=kind, classes=[0, 1], feature_bounds=(-1, 1), random_state=0
        ).fit(X, y == 1)
        for kind in ("ovr", "multinomial")
    ]
    np.testing.assert_array_equal(both[0].coef_, both[1].coef_)


def test_scores_beyond_floating_point_still_make_probabilities():
    scores = [[-800.0, -900.0], [-800.0, -800.0], [900.0, -900.0]]
    shares = OneVsRestLink(LogitLink()).probabilities(scores)
    np.testing.assert_allclose(shares, [[1.0, 0.0], [0.5, 0.5], [1.0, 0.0]])


def test_unknown_kind_is_refused():
    X, y = three_classes(50)
    with pytest.raises(ValueError, match="multi_class must be one of"):
        model(classes=[0, 1, 2]).set_params(multi_class="all").fit(X, y)
