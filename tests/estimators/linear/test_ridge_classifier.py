"""Classes by their codes: no class is masked by its neighbours, and many are told apart."""

import numpy as np
import pytest
from sklearn import linear_model

from dpglm import LogisticRegression, RidgeClassifier


def in_a_row(n=6000):
    """Three classes one behind the other: least squares of codes never names the middle one."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=n)
    X = 0.1 * rng.normal(size=(n, 4))
    X[:, 0] += 0.5 * (y - 1)
    return X, y


def test_no_class_is_masked():
    X, y = in_a_row()
    model = RidgeClassifier(epsilon=1.0, classes=range(3), row_norm=1.5, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95
    assert linear_model.RidgeClassifier().fit(X, y).score(X, y) < 0.75


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_many_classes_are_told_apart_as_by_softmax(epsilon):
    """Two hundred classes of a hundred rows each."""
    rng = np.random.default_rng(0)
    y = rng.integers(200, size=24_000)
    X = rng.normal(size=(200, 128))[y] + rng.normal(size=(24_000, 128))
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    scores = []
    for kind in (RidgeClassifier, LogisticRegression):
        model = kind(
            epsilon=epsilon, delta=1e-5, classes=range(200), row_norm=1.0, random_state=0
        ).fit(X[:20_000], y[:20_000])
        scores.append(model.score(X[20_000:], y[20_000:]))
    assert scores[0] > scores[1]
