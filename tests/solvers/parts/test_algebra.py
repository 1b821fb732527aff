"""Linear algebra that never fails: exact where matrices allow, NaN where nothing is known."""

import numpy as np
import pytest

from dpglm.solvers.second_order.likelihood import at_least, stabilized
from dpglm.solvers.uncertainty import eigen, inverted, solved

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(4, 4))
DEFINITE = ROOT @ ROOT.T + np.eye(4)


def test_definite_matrices_are_inverted_in_any_units():
    units = np.array([1e-60, 1e-8, 1.0, 1e40])
    scaled = units * DEFINITE * units[:, np.newaxis]
    expected = np.linalg.inv(DEFINITE) / units / units[:, np.newaxis]
    np.testing.assert_allclose(inverted(scaled), expected, rtol=1e-9)


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((2, 2)),
        np.ones((2, 2)),
        # The direction of curvature 1 is lost next to the other.
        np.eye(2) + 1e32 * np.outer([0.6, 0.8], [0.6, 0.8]),
        np.diag([1.0, np.inf]),
        np.diag([1.0, np.nan]),
    ],
)
def test_hidden_inverses_are_unknown(matrix):
    with np.errstate(all="ignore"):
        assert np.isnan(inverted(matrix)).all()


def test_solutions_below_rounding_are_zero():
    np.testing.assert_allclose(solved(DEFINITE, DEFINITE @ np.ones(4)), np.ones(4))
    np.testing.assert_allclose(solved(np.diag([2.0, 0.0]), np.array([4.0, 0.0])), [2.0, 0.0])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("entry", [np.nan, np.inf])
def test_overflow_raises_nothing(entry):
    matrix = np.full((3, 3), entry)
    assert not np.isfinite(solved(matrix, np.ones(3))).any()
    assert np.isnan(eigen(matrix)[0]).all()
    assert np.isnan(stabilized(matrix, 1.0, np.ones(3), np.ones(3))).all()
    assert np.isnan(at_least(matrix, np.eye(3))).all()


def test_at_least_raises_curvature_in_every_direction():
    least = 2.0 * DEFINITE
    assert (np.linalg.eigvalsh(at_least(DEFINITE, least) - least) > -1e-9).all()
    np.testing.assert_allclose(at_least(3.0 * DEFINITE, least), 3.0 * DEFINITE)
