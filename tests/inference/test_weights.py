"""Weights in least squares: errors of precision weights, and weights below their bound."""

import numpy as np
import pytest

from dpglm import LinearRegression

N, TRUTH = 20_000, np.array([0.0, 0.5, -0.3, 0.0])


def fitted(y, X, w, **options):
    model = LinearRegression(
        feature_bounds=(-3, 3), target_bounds=(-8, 8), random_state=0, **options
    )
    return model.fit(X, y, sample_weight=w).inference_


def drawn(mean, seed=0):
    """Rows with weights that divide the variance of the target, which is 1 for a weight of 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3)).clip(-3, 3)
    w = np.minimum(mean * (0.05 + rng.gamma(4, 0.25, size=N)), 3 * mean)
    return X @ TRUTH[1:] + rng.normal(size=N) / np.sqrt(w), X, w


@pytest.mark.parametrize("mean", [1.0, 30.0])
def test_errors_of_precision_weights_are_those_of_weighted_least_squares(mean):
    y, X, w = drawn(mean)
    found = fitted(y, X, w, inference=True, weight_bound=3 * mean, epsilon=100.0)
    Z = np.column_stack([np.ones(N), X])
    expected = np.sqrt(np.diag(np.linalg.inv((Z * w[:, None]).T @ Z)))
    np.testing.assert_allclose(found.standard_errors, expected, rtol=0.06)
    assert found.estimates.dispersion == pytest.approx(1.0, abs=0.05)
    assert (np.abs(found.params - TRUTH) < 4.0 * expected).all()


def test_weights_in_other_units_give_the_same_errors():
    y, X, w = drawn(1.0)
    options = {"inference": "robust", "epsilon": 3.0}
    one = fitted(y, X, w, weight_bound=3.0, **options)
    other = fitted(y, X, 4.0 * w, weight_bound=12.0, **options)
    np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=0.1)


def test_summary_states_how_weights_are_shrunk():
    y, X, w = drawn(1.0)
    found = str(fitted(y, X, w, inference="robust", weight_bound=3.0))
    words = " ".join(found.split())
    assert "multiplied by sqrt(3 / w)" in words
    assert "the weights of few rows" in words
    assert "sqrt(" not in str(fitted(y, X, None, inference="robust"))
