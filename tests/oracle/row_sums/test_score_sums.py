"""Sums of scores and counts of them: right values, bounded contributions on worst-case rows."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import linear as module
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.linear import (
    N_SHELLS,
    SHELL_COUNTS,
    LinearView,
    ScoreShares,
    Shells,
    noisy_score_sums,
    noisy_shell_counts,
    score_moment_sum,
    score_sums,
    shell_counts,
)
from dpglm.oracle.moments import n_symmetric
from dpglm.oracle.rounding import sum_rounding
from dpglm.oracle.scores import n_limits
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Squared

CENTER, REACH = 0.4, 0.3
SHELLS = Shells(0.05, 1.3)
SHARES = [ScoreShares(0.2, 0.7, 0.1), ScoreShares(0.2, 0.4, 0.1, 0.3)]


def make_rows(X, y, *, row_norm=1.0, intercept=1.0, weights=None, most=1.0):
    spec = DataSpec(
        len(X),
        X.shape[1],
        row_norm=row_norm,
        intercept=intercept,
        weight_bound=most,
        target_low=0.0,
        target_high=1.0,
    )
    return prepare_rows(X, y, spec, weights=weights)


def view_of(basis, cap, level=0.0):
    v = np.linspace(-0.1, 0.2, basis.shape[1]) / max(1.0, float(np.abs(basis).max()))
    return LinearView(basis, cap, level, CENTER, v, REACH)


def score_sum(rows, view, shares, row_by_row=False):
    size = view.vectors.shape[1]
    limits = n_limits(rows.spec)
    shape = ((1 + (shares.products > 0.0)) * n_symmetric(size) + size + 1 + limits,)
    columns = columns_of(view, rows.spec)
    return rows.sum(score_sums(rows.spec, view, shares, columns, row_by_row), shape=shape)


def columns_of(view, spec):
    return np.random.default_rng(8).normal(size=(view.vectors.shape[1], spec.n_features))


def counted(rows, view, row_by_row=False):
    return rows.sum(shell_counts(rows.spec, view, SHELLS, row_by_row), shape=(N_SHELLS,))


def drawn(level, weights=True):
    """Rows, and by the definition their coordinates, weights, factors and residuals."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(2500, 3)) * 0.3, rng.uniform(-0.5, 1.5, size=2500)
    w = rng.uniform(0, 2, 2500) if weights else np.ones(2500)
    rows = make_rows(X, y, intercept=0.7, weights=w if weights else None, most=2.0)
    kept = np.concatenate([np.asarray(block.features()) for block in rows.blocks()])
    view = view_of(3.0 * rng.normal(size=(4, 4)), 4.0, level)
    z = np.column_stack([kept, np.full(2500, 0.7)]) @ view.vectors
    squares = w / 2.0 * (z[:, : 3 if level else 4] ** 2).sum(axis=1)
    z[:, 3] = level or z[:, 3]
    return (
        rows,
        view,
        z,
        w,
        4.0 / np.maximum(squares, 4.0),
        np.clip(y, 0.0, 1.0) - CENTER - z @ view.v,
    )


@pytest.mark.parametrize("level", [0.0, 0.8])
@pytest.mark.parametrize("shares", SHARES, ids=["model", "robust"])
def test_released_sums_are_in_their_own_units(shares, level):
    # Nearly no noise: the sums that the parts stand for.
    rows, view, z, w, f, residuals = drawn(level)
    scores = (w * f * residuals)[:, None] * z
    view = dataclasses.replace(view, reach=0.1)
    lengths, bound = np.linalg.norm(scores, axis=1), 2.0 * 0.1 * math.sqrt(view.longest)
    assert 0.02 < (lengths > bound).mean() < 0.9
    scores *= np.minimum(1.0, bound / lengths)[:, None]
    oracle = Oracle(rows, Squared(), Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
    declared = score_moment_sum(rows.spec, shares).release(
        rows.spec, Adjacency.ZERO_OUT, GaussianNoise(1e-7)
    )
    columns = columns_of(view, rows.spec)
    found, met, _ = noisy_score_sums(oracle, declared, view, shares, columns)
    np.testing.assert_allclose(found.matrix, (z * (w * f)[:, None]).T @ z, atol=1e-3)
    np.testing.assert_allclose(found.vector, scores.sum(axis=0), atol=1e-3)
    assert found.squares == pytest.approx((scores**2).sum(), abs=1e-3)
    if shares.products:
        np.testing.assert_allclose(found.products, scores.T @ scores, atol=1e-3)
    else:
        assert found.products is None
    # Counts are right but for the rows that leave too little slack.
    u, is_long = (z @ columns) ** 2, (f < 1.0)[:, None]
    parts = is_long, 1.0 - f[:, None], (lengths < bound)[:, None]
    parts = np.hstack([*parts, is_long * u / u.sum(axis=1, keepdims=True)])
    h, matrix = np.minimum(1.0, lengths / bound) ** 2, w * f * (z * z).sum(axis=1)
    matrix = matrix / 2.0 / view.longest
    norms = shares.matrix * matrix**2 + (1.0 - shares.matrix - shares.vector) * h**2
    slack = np.sqrt(np.maximum(1.0 - norms - shares.vector * h, 0.0))
    sizes = w / 2.0 * np.linalg.norm(parts * [0.25, 0.25, 0.5, 0.25, 0.25, 0.25], axis=1)
    fits = np.minimum(1.0, slack / np.maximum(sizes, 1e-9))
    assert 0.001 < (fits < 1.0).mean() < 0.9
    np.testing.assert_allclose(met, (w * fits) @ parts, atol=1e-3)


@pytest.mark.parametrize("level", [0.0, 0.8])
def test_counts_are_those_of_a_histogram(level):
    rows, view, z, w, f, residuals = drawn(level)
    lengths = w / 2.0 * f * np.abs(residuals) * np.linalg.norm(z, axis=1)
    edges = [*(SHELLS.start(k) for k in range(N_SHELLS)), math.inf]
    expected = 2.0 * np.histogram(lengths, edges)[0]
    assert (expected > 0.0).sum() >= 10
    for row_by_row in (False, True):
        np.testing.assert_allclose(counted(rows, view, row_by_row), expected, atol=1e-9)
    # The last shell is unbounded.
    far = make_rows(np.full((3, 3), 0.5), np.ones(3), intercept=0.7)
    view = view_of(1e9 * np.eye(4), 1e30)
    assert counted(far, view)[-1] == 3.0


@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_one_row_stays_within_the_declared_sensitivity(row_norm, intercept):
    rng = np.random.default_rng(3)
    n, d = 300, 4
    X, y = rng.normal(size=(n, d)) * row_norm, rng.uniform(size=n)
    options = {"row_norm": row_norm, "intercept": row_norm if intercept else 0.0, "most": 2.5}
    # An ill-conditioned basis, in which some rows become very long.
    basis = np.linalg.qr(rng.normal(size=(d + intercept, d + intercept)))[0]
    basis = basis * np.logspace(-2, 4, d + intercept) / row_norm
    for huge, weight in itertools.product((1e6, -1e6, 1e30, 1e-30), (2.5, 0.3, 1e-9)):
        one, other = X.copy(), X.copy()
        one[17], other[17] = huge, rng.permutation([huge, 0.0, 0.0, -huge])
        y_one, y_other = y.copy(), y.copy()
        y_one[17], y_other[17] = 1e30, -1e30
        heavy, gone = np.full(n, 2.5), np.full(n, 2.5)
        heavy[17], gone[17] = weight, 0.0
        full = make_rows(one, y_one, weights=heavy, **options)
        absent = make_rows(one, y_one, weights=gone, **options)
        replaced = make_rows(other, y_other, weights=np.full(n, 2.5), **options)
        for adjacency, neighbour in (
            (Adjacency.ZERO_OUT, absent),
            (Adjacency.REPLACE_ONE, replaced),
        ):
            bound = 2.5 + sum_rounding(full.spec, adjacency, 2.5)
            most = adjacency.sum_sensitivity(bound)
            for cap, half in itertools.product((0.1, 5.0, 1e6), (0.0, 0.5)):
                view = view_of(basis, cap, half * math.sqrt(cap))
                moved = [counted(full, view) - counted(neighbour, view)]
                for shares in SHARES:
                    first, second = (score_sum(rows, view, shares) for rows in (full, neighbour))
                    moved.append(first - second)
                assert max(map(np.linalg.norm, moved)) <= most


@pytest.mark.parametrize("true_n", [1, 2, 300, 5000])
def test_a_row_more_stays_within_the_declared_sensitivity(true_n):
    # Under add_remove the rows behind it move to other places.
    rng = np.random.default_rng(4)
    rows = make_rows(rng.normal(size=(true_n, 3)), rng.uniform(size=true_n))
    view = view_of(rng.normal(size=(4, 4)) @ np.diag([1e-3, 1.0, 1e3, 1e5]), 4.0, 1.0)
    most = 1.0 + sum_rounding(rows.spec, Adjacency.ADD_REMOVE, 1.0)
    for position in {0, true_n // 2, true_n - 1}:
        fewer = rows.take(np.delete(np.arange(true_n), position))
        moved = [counted(rows, view, True) - counted(fewer, view, True)]
        for shares in SHARES:
            first, second = (score_sum(one, view, shares, True) for one in (rows, fewer))
            moved.append(first - second)
        assert max(map(np.linalg.norm, moved)) <= most


@pytest.mark.parametrize("shares", SHARES, ids=["model", "robust"])
def test_the_bound_is_attained_and_a_smaller_one_would_be_seen(shares, monkeypatch):
    # A row at every bound next to rows of weight zero.
    X, weights = np.zeros((5, 2)), np.zeros(5)
    X[0, 0], weights[0] = 10.0, 1.0
    rows = make_rows(X, np.ones(5), row_norm=10.0, intercept=0.0, weights=weights)
    attained = np.linalg.norm(score_sum(rows, view_of(np.eye(2), 100.0), shares))
    assert attained == pytest.approx(1.0, rel=1e-12)
    # Scores that are not clipped are longer than declared.
    monkeypatch.setattr(module, "norm_margin", lambda size: 1e9)
    assert np.linalg.norm(score_sum(rows, view_of(np.eye(2), 100.0), shares)) > 1.5


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_releases_are_recorded_with_the_noise_that_is_said(adjacency):
    rows = make_rows(np.ones((2, 100)), np.ones(2), weights=np.zeros(2), most=2.0)
    oracle = Oracle(rows, Squared(), Curator(adjacency, SeededNoise(0)))
    view, noise = view_of(np.eye(101), 3.0), GaussianNoise(2.0)
    shares = SHARES[1]
    found, met, errors = noisy_score_sums(
        oracle,
        score_moment_sum(rows.spec, shares).release(rows.spec, adjacency, noise),
        view,
        shares,
        columns_of(view, rows.spec),
    )
    counts = SHELL_COUNTS.release(rows.spec, adjacency, noise)
    drawn = noisy_shell_counts(oracle, counts, view, SHELLS)
    assert oracle.curator.event == Repeated(Gaussian(2.0), 2)
    replaced = adjacency is Adjacency.REPLACE_ONE
    factor = math.sqrt(2.0 + 2.0 * shares.opposition) if replaced else 1.0
    rel = 0.03 if adjacency is Adjacency.ADD_REMOVE else 1e-3
    unit = 2.0 * 2.0 * factor
    length = REACH * math.sqrt(3.0)
    for name, bound, share in (
        ("matrix", 3.0, shares.matrix),
        ("vector", length, shares.vector),
        ("squares", 2.0 * length**2, shares.squares),
        ("products", 2.0 * length**2, shares.products),
    ):
        said = getattr(found, f"{name}_noise")
        assert said == pytest.approx(unit * bound / math.sqrt(share), rel=rel)
        values = np.asarray(getattr(found, name))
        if values.size > 1:
            values = np.diagonal(values) if values.ndim == 2 else values
            assert values.std() == pytest.approx(said, rel=0.3)
    assert errors == pytest.approx([4 * unit, 4 * unit, 2 * unit, *[4 * unit] * 100], rel=rel)
    assert (met / errors).std() == pytest.approx(1.0, rel=0.3)
    unit = 2.0 * 2.0 * (math.sqrt(2.0) if replaced else 1.0)
    assert counts.noise_std == pytest.approx(unit, rel=rel)
    assert drawn.std() == pytest.approx(unit, rel=0.5)


def test_weights_below_the_bound_attain_it_and_a_missing_one_would_be_seen(monkeypatch):
    # A long row with a tenth of the largest weight: its factor is the larger.
    X, weights = np.zeros((5, 2)), np.zeros(5)
    X[0, 0], weights[0] = 10.0, 0.2
    options = {"row_norm": 10.0, "intercept": 0.0, "weights": weights, "most": 2.0}
    rows, shares = make_rows(X, np.ones(5), **options), SHARES[1]
    view = dataclasses.replace(view_of(np.eye(2), 1.0), reach=0.01)
    assert np.linalg.norm(score_sum(rows, view, shares)) == pytest.approx(2.0, rel=1e-12)
    assert np.linalg.norm(counted(rows, view)) == pytest.approx(2.0, rel=1e-12)
    original = module.coordinates_of
    squares = lambda *given: (original(*given)[0], 0.01 * original(*given)[1])  # noqa: E731
    monkeypatch.setattr(module, "coordinates_of", squares)
    assert np.linalg.norm(score_sum(rows, view, shares)) > 2.5
