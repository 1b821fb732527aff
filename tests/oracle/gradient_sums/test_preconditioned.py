"""Gradients clipped in a basis: right values, bounded contributions, nothing kept too long."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest

from dpglm.data.rows import DataSpec, GroupBound
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.projection import (
    noisy_preconditioned_gradient,
    preconditioned_release,
    rotated_rows,
    type_in_basis,
)
from dpglm.privacy import ApproximateDP
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Poisson, Problem, Softmax, Squared
from dpglm.solvers import run
from dpglm.solvers.second_order import newton
from tests.audit.attack import released_sums
from tests.oracle.test_clipped_sum import make_rows, make_targets, row_by_row

LAYOUTS = [("C", "float64"), ("C", "float32"), ("F", "float64"), ("csr", "float32")]
TYPES = ["float64", "float32"]
LOSSES = [(Logistic(), 1), (Squared(), 1), (Poisson(), 1), (Softmax(), 3)]


def make_oracle(rows, loss, adjacency=Adjacency.ZERO_OUT):
    return Oracle(rows, loss, Curator(adjacency, SeededNoise(0)))


def declare(spec, adjacency, clip, multiplier, dtype):
    return preconditioned_release(spec, adjacency, dtype, clip, GaussianNoise(multiplier))


def ask(oracle, basis, v, clip, multiplier, dtype="float64"):
    """Declare a release and make it."""
    declared = declare(oracle.rows.spec, oracle.curator.adjacency, clip, multiplier, dtype)
    turned = rotated_rows(oracle, basis, dtype)
    return noisy_preconditioned_gradient(oracle, declared, turned, v, FlatClipping(clip))


def exact_sum(rows, loss, basis, v, clip, dtype="float64"):
    with released_sums() as sums:
        ask(make_oracle(rows, loss), basis, v, clip, 1.0, dtype)
    return sums[0][0]


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("turned", TYPES)
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
def test_equals_the_definition(layout, dtype, turned, loss, n_outputs):
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
    got = exact_sum(rows, loss, basis, v, 0.7, turned)
    np.testing.assert_allclose(got, expected, atol=1e-4 if "float32" in (dtype, turned) else 1e-9)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("turned", TYPES)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
def test_one_row_stays_within_the_declared_sensitivity(layout, dtype, turned, row_norm):
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
                sums = [
                    exact_sum(one, Logistic(), basis, v, clip, turned) for one in (full, neighbour)
                ]
                declared = declare(full.spec, adjacency, clip, 1.0, turned)
                bound = declared.contribution_bound + declared.rounding
                assert np.linalg.norm(sums[0] - sums[1]) <= adjacency.sum_sensitivity(bound)


def test_single_precision_sums_need_their_declared_rounding():
    # A row of exactly the clip moves the others' sum by the rounding of single precision.
    rng = np.random.default_rng(3)
    X, y, clip = rng.normal(size=(64, 4)), rng.choice([-1.0, 1.0], 64), 0.3
    excess = {}
    for turned in TYPES:
        moved = []
        for row in range(64):
            weights = np.ones(64)
            full = make_rows(X, y, weights=weights, row_norm=10.0)
            weights = np.where(np.arange(64) == row, 0.0, 1.0)
            gone = make_rows(X, y, weights=weights, row_norm=10.0)
            sums = [
                exact_sum(one, Logistic(), np.eye(5), np.zeros(5), clip, turned)
                for one in (full, gone)
            ]
            moved.append(np.linalg.norm(sums[0] - sums[1]))
        excess[turned] = max(moved) - clip
    allowed = {
        turned: declare(full.spec, Adjacency.ZERO_OUT, clip, 1.0, turned).rounding
        for turned in TYPES
    }
    assert excess["float64"] <= allowed["float64"] < excess["float32"] <= allowed["float32"]
    assert allowed["float32"] < 1e-3 * clip


def test_single_precision_is_used_if_faster_and_declared():
    many = DataSpec(40_000, 110, intercept=1.0)
    in_groups = dataclasses.replace(many, groups=GroupBound(1_000, 40.0))
    binary, several = Logistic(), Softmax()
    zero, other, replaced = Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
    for data, adjacency, loss, bound, expected in (
        (many, zero, binary, 0.3, "float32"),
        (many, replaced, several, 0.3, "float32"),
        (in_groups, zero, binary, 0.3, "float32"),
        (dataclasses.replace(many, n_rows=30_000), zero, binary, 0.3, "float64"),
        (many, other, binary, 0.3, "float64"),
        (in_groups, replaced, binary, 0.3, "float64"),
        (many, zero, Squared(), 0.3, "float64"),
        (many, zero, binary, 1e-12, "float64"),
        (many, zero, binary, 1e12, "float64"),
    ):
        assert type_in_basis(data, adjacency, loss, bound) == expected
        declare(data, adjacency, bound, 1.0, expected)


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1e3, 1e20, 1e150])
def test_no_basis_makes_rows_overflow(size):
    rng = np.random.default_rng(4)
    rows = make_rows(rng.normal(size=(20, 4)), rng.choice([-1.0, 1.0], 20), row_norm=1e3)
    total = exact_sum(rows, Logistic(), size * np.eye(5), np.ones(5), 0.3, "float32")
    assert np.isfinite(total).all()
    assert np.linalg.norm(total) <= 20.0 * 0.3 * (1.0 + 1e-3)


def test_bound_is_attained_in_basis_and_other_clips_are_detected():
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


def test_rows_in_a_basis_are_computed_once_for_a_run(monkeypatch):
    kept = []

    def noting(*asked):
        rows = rotated_rows(*asked)
        kept.append(weakref.ref(rows))
        return rows

    monkeypatch.setattr(newton, "rotated_rows", noting)
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
