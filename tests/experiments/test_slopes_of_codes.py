"""Rules for slopes of classes' codes, and least squares in released directions."""

import numpy as np
import pytest

from experiments import slopes_of_codes as trials


@pytest.mark.parametrize("name", trials.RULES)
def test_slopes_at_zero_lift_the_row_s_class_and_no_score_of_all(name):
    rule, _, _ = trials.RULES[name]
    y = np.arange(trials.K)
    slopes = rule(np.zeros((trials.K, trials.K), np.float32), y)
    np.testing.assert_allclose(slopes.sum(axis=1), 0.0, atol=1e-6)
    assert (slopes.argmin(axis=1) == y).all()


@pytest.mark.parametrize("name", [name for name in trials.RULES if name != "least squares"])
def test_all_rules_but_least_squares_leave_a_row_that_is_far_ahead(name):
    rule, _, _ = trials.RULES[name]
    y = np.arange(trials.K)
    assert np.abs(rule(50.0 * trials.CODES, y)).max() < 1e-6


def test_anew_in_all_directions_is_least_squares():
    rng = np.random.default_rng(0)
    y = rng.integers(trials.K, size=500)
    X = rng.standard_normal((500, 4)).astype(np.float32)
    X[:, 0] += y
    squares = X.T @ X
    squares += 1e-3 * np.diag(np.diag(squares))
    expected = np.linalg.solve(squares, X.T @ trials.CODES[y])
    found = trials.refitted(X, y, np.eye(4, dtype=np.float32))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_steps_find_classes_that_stand_out(monkeypatch):
    monkeypatch.setattr(trials, "N_STEPS", 50)
    rng = np.random.default_rng(0)
    y = rng.integers(trials.K, size=2000)
    X = np.eye(trials.K, dtype=np.float32)[y]
    X += 0.1 * rng.standard_normal(X.shape, np.float32)
    parameters, blocks = trials.descend(X, y, 0.9)
    assert all(np.mean((X @ w).argmax(axis=1) == y) > 0.99 for w in parameters)
    assert {one.shape for one in blocks} == {(trials.K, trials.N_BLOCKS * trials.K)}
