"""Gradients clipped in a basis: right values, bounded contributions, nothing kept too long."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradient_sums.preconditioned import noisy_preconditioned_gradient, rows_turned
from dpglm.oracle.gradients import Oracle, gradient_release
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy import ApproximateDP
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.curator import Curator
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.problem import Logistic, Poisson, Problem, Softmax, Squared
from dpglm.solvers import run
from dpglm.solvers.second_order import newton
from tests.audit.attack import released_sums
from tests.oracle.test_clipped_sum import make_rows, make_targets, row_by_row

LAYOUTS = [("C", "float64"), ("C", "float32"), ("F", "float64"), ("csr", "float32")]
LOSSES = [(Logistic(), 1), (Squared(), 1), (Poisson(), 1), (Softmax(), 3)]


def make_oracle(rows, loss, adjacency=Adjacency.ZERO_OUT):
    return Oracle(rows, loss, Curator(adjacency, SeededNoise(0)))


def ask(oracle, basis, v, clip, multiplier):
    """Declare a release and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = gradient_release(spec, adjacency, FlatClipping(clip), GaussianNoise(multiplier))
    return noisy_preconditioned_gradient(oracle, declared, rows_turned(oracle, basis), v, clip)


def exact_sum(rows, loss, basis, v, clip):
    with released_sums() as sums:
        ask(make_oracle(rows, loss), basis, v, clip, 1.0)
    return sums[0][0]


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
def test_equals_the_definition(layout, dtype, loss, n_outputs):
    rng = np.random.default_rng(1)
    n, d = 500, 4
    X = rng.uniform(-0.5, 0.5, size=(n, d)) * (rng.random((n, d)) < 0.7)
    y, weights = make_targets(rng, loss, n, n_outputs), rng.uniform(0, 2, n)
    rows = make_rows(
        X, y, layout=layout, dtype=dtype, n_outputs=n_outputs, weights=weights, weight_bound=2.0
    )
    basis = rng.normal(size=(5, 5))
    v = rng.normal(size=(5,) if n_outputs == 1 else (5, n_outputs))
    z = np.column_stack([X.astype(dtype), np.ones(n)]) @ basis
    expected = row_by_row(z, y, loss, FlatClipping(0.7), v, np.inf, 0.0, weights)
    got = exact_sum(rows, loss, basis, v, 0.7)
    np.testing.assert_allclose(got, expected, atol=1e-4 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
def test_one_row_stays_within_the_declared_sensitivity(layout, dtype, row_norm):
    rng = np.random.default_rng(2)
    n, d, clip = 300, 4, 0.3
    X, y = rng.normal(size=(n, d)) * row_norm, rng.choice([-1.0, 1.0], n)
    options = {"layout": layout, "dtype": dtype, "row_norm": row_norm, "intercept": row_norm}
    basis = np.linalg.qr(rng.normal(size=(5, 5)))[0] * np.logspace(-3, 4, 5) / row_norm
    for huge in (1e6, 1e30, 1e-30):
        one, other, gone = X.copy(), X.copy(), np.ones(n)
        one[17], other[17], gone[17] = huge, [-huge, huge, 0.0, 0.0], 0.0
        full = make_rows(one, y, weights=np.ones(n), **options)
        absent = make_rows(one, y, weights=gone, **options)
        replaced = make_rows(other, -y, weights=np.ones(n), **options)
        replaced._y[np.arange(n) != 17] = full._y[np.arange(n) != 17]
        for size in (0.0, 1.0, 1e6):
            v = size * rng.normal(size=5)
            for adjacency, neighbour in (
                (Adjacency.ZERO_OUT, absent),
                (Adjacency.REPLACE_ONE, replaced),
            ):
                moved = exact_sum(full, Logistic(), basis, v, clip) - exact_sum(
                    neighbour, Logistic(), basis, v, clip
                )
                bound = clip + sum_rounding(full.spec, adjacency, clip)
                assert np.linalg.norm(moved) <= adjacency.sum_sensitivity(bound)


def test_the_bound_is_attained_in_the_basis_and_a_clip_elsewhere_would_be_seen():
    # A row that the basis makes 1000 times as long; clipped before, it would stay so.
    rows = make_rows(np.array([[1.0, 0.0]]), np.ones(1), intercept=0.0)
    basis = np.diag([1000.0, 1.0])
    attained = exact_sum(rows, Logistic(), basis, np.zeros(2), 0.25)
    assert np.linalg.norm(attained) == pytest.approx(0.25, rel=1e-12)
    inside = exact_sum(rows, Logistic(), np.eye(2), np.zeros(2), 0.25)
    assert np.linalg.norm(basis.T @ inside) > 100.0 * 0.25


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_release_is_recorded_with_noise_for_its_bound(adjacency):
    rows = make_rows(np.ones((5, 2)), np.ones(5), weights=np.ones(5), weight_bound=2.0)
    oracle = make_oracle(rows, Logistic(), adjacency)
    with released_sums() as sums:
        g = ask(oracle, np.eye(3), np.zeros(3), 0.4, 7.0)
    assert oracle.curator.event == Gaussian(7.0)
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    rel = 0.03 if adjacency is Adjacency.ADD_REMOVE else 1e-5
    assert sums[0][1] == pytest.approx(7.0 * factor * 2.0 * 0.4, rel=rel)
    np.testing.assert_allclose(g, sums[0][0] / 5.0)


def test_rows_in_a_basis_are_computed_once_and_forgotten_with_the_run(monkeypatch):
    kept = []

    def noting(oracle, basis):
        rows = rows_turned(oracle, basis)
        kept.append(weakref.ref(rows))
        return rows

    monkeypatch.setattr(newton, "rows_turned", noting)
    rng = np.random.default_rng(0)
    rows = make_rows(rng.normal(size=(50, 2)), rng.choice([-1.0, 1.0], 50))
    budget = ApproximateDP(1.0, 1e-5)
    plan = newton.Newton(n_steps=5).plan(Problem(Logistic()), budget, rows.spec, Adjacency.ZERO_OUT)
    # Another run on the same rows starts anew.
    for runs in (1, 2):
        run(plan, rows, SeededNoise(0))
        assert len(kept) == runs
    gc.collect()
    assert [one() for one in kept] == [None, None]
