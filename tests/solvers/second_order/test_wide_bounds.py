"""Bounds a hundred times too wide lengthen intervals little; rare indicators stay as they are."""

import math
import warnings

import numpy as np
import pytest

from dpglm import LinearRegression, LogisticRegression
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import constant_column, noisy_second_moments, second_moment_sum
from dpglm.oracle.targets import N_NEAR, near_sum, noisy_near_counts
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Squared
from dpglm.solvers.second_order import preconditioner
from dpglm.solvers.second_order.preconditioner import Basis, Columns, centers_of

N = 10_000


def columns_found(X, noise=3.0, seed=0):
    """Return the scales that releases with this noise find for columns within [-1, 1]."""
    spec = DataSpec(len(X), X.shape[1], row_norm=np.sqrt(X.shape[1]), intercept=1.0)
    rows = prepare_rows(X, np.zeros(len(X)), spec)
    oracle = Oracle(rows, Squared(), Curator(Adjacency.ZERO_OUT, SeededNoise(seed)))
    first, near = (
        one.release(spec, Adjacency.ZERO_OUT, GaussianNoise(noise))
        for one in (second_moment_sum(spec), near_sum(spec))
    )
    moments = noisy_second_moments(oracle, first, constant_column(spec))
    centers, unit = centers_of(moments, first.noise_std, spec)
    counts = noisy_near_counts(oracle, near, centers, unit)
    return Columns.of(moments, first.noise_std, counts, near.noise_std, spec)


def test_near_counts_are_those_of_the_definition():
    rng = np.random.default_rng(1)
    X, centers = rng.uniform(-1, 1, size=(3000, 2)) * [1.0, 0.05], np.array([0.2, 0.0])
    spec = DataSpec(3000, 2, row_norm=2.0)
    oracle = Oracle(
        prepare_rows(X, np.zeros(3000), spec),
        Squared(),
        Curator(Adjacency.ZERO_OUT, SeededNoise(0)),
    )
    declared = near_sum(spec).release(spec, Adjacency.ZERO_OUT, GaussianNoise(1e-3))
    found = noisy_near_counts(oracle, declared, centers, 1.0)
    far = X - centers
    level = np.clip(np.floor(-np.log2(np.abs(far))), 0, N_NEAR - 1).astype(int)
    for column in range(2):
        for side, is_there in enumerate((far > 0.0, far <= 0.0)):
            own = level[is_there[:, column], column]
            expected = np.bincount(own, minlength=N_NEAR)
            np.testing.assert_allclose(found[:, side, column], expected, atol=0.1)


def test_narrow_columns_are_found_and_others_are_not():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(N, 5))
    X[:, 1] = 0.33 + 0.01 * X[:, 1]  # A year within centuries.
    X[:, 2] = rng.random(N) < 0.002  # A rare indicator.
    X[:, 3] = 0.01 * (rng.random(N) < 0.5)  # An indicator within bounds that are too wide.
    X[:, 4] = 0.0
    found = columns_found(X)
    assert found.scales.tolist()[0] == found.scales.tolist()[2] == found.scales.tolist()[4] == 1.0
    assert 0.01 <= found.scales[1] <= 0.04
    assert found.means[1] == pytest.approx(0.33, abs=0.01)
    assert found.scales[3] <= 0.04
    # Where noise is large, nothing is.
    assert (columns_found(X, 500.0).scales == 1.0).all()


def test_rare_centred_indicators_are_not_narrow(monkeypatch):
    """Planted: counts of the largest cell without allowance for noise."""
    rng = np.random.default_rng(5)
    X = (rng.random((N, 60)) < 0.002) - 1.0 / 60.0

    def narrow():
        return sum((columns_found(X, 14.0, seed).scales < 1.0).sum() for seed in range(10))

    assert narrow() == 0
    monkeypatch.setattr(preconditioner, "_ONE_VALUE", 0.9 + preconditioner.FEW)
    assert narrow() > 0


def test_columns_map_bases_and_parameters():
    rng = np.random.default_rng(3)
    spec = DataSpec(100, 3, row_norm=2.0, intercept=0.5)
    by = Columns(np.array([0.3, 0.0, -0.2]), np.array([0.1, 1.0, 0.02]))
    vectors = rng.normal(size=(4, 4))
    basis = by.basis(Basis(vectors, np.linalg.inv(vectors)), spec)
    np.testing.assert_allclose(basis.inverse @ basis.vectors, np.eye(4), atol=1e-9)
    X = rng.normal(size=(6, 3))
    u = np.column_stack([(X - by.means) / by.scales, np.full(6, 0.5)])
    np.testing.assert_allclose(np.column_stack([X, np.full(6, 0.5)]) @ basis.vectors, u @ vectors)
    assert (np.linalg.norm(u @ vectors, axis=1) <= basis.longest(spec) * 3.0).all()


def lengths(kind, wide, seeds=3):
    """Return median lengths of intervals with bounds this many times too wide, and coverage."""
    theta, found, covered = np.array([1.0, -0.5, 0.7]), [], []
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, size=(N, 3))
        z = X @ theta
        bounds = np.array([-wide, -1.0, -1.0]), np.array([wide, 1.0, 1.0])
        facts = {"epsilon": 2.0, "feature_bounds": bounds, "inference": True, "random_state": seed}
        if kind == "logistic":
            y = (z + rng.logistic(size=N) > 0.0).astype(int)
            model = LogisticRegression(C=np.inf, classes=[0, 1], **facts)
        else:
            y, model = z + rng.normal(size=N), LinearRegression(target_bounds=(-8, 8), **facts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ends = model.fit(X, y).inference_.conf_int()[1:]
        found.append(ends[:, 1] - ends[:, 0])
        covered.append((ends[:, 0] <= theta) & (theta <= ends[:, 1]))
    return np.median(found, axis=0), np.mean(covered)


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_declared_prior_holds_for_wide_bounds(kind, monkeypatch):
    """Planted: the prior of a column in units of the bounds that were found."""
    scale = 0.01

    def error():
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, size=(N, 3))
        bounds = np.array([-100.0, -1.0, -1.0]), np.array([100.0, 1.0, 1.0])
        facts = {"feature_bounds": bounds, "inference": True, "prior_scales": scale}
        if kind == "logistic":
            y = (X[:, 0] + rng.logistic(size=N) > 0.0).astype(int)
            model = LogisticRegression(C=np.inf, classes=[0, 1], random_state=0, **facts)
        else:
            y, facts = X[:, 0] + rng.normal(size=N), facts | {"target_bounds": (-8, 8)}
            model = LinearRegression(random_state=0, **facts)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X, y).inference_.standard_errors[1]

    # That of least squares is in standard deviations of the target.
    assert error() <= scale * (1.0 if kind == "logistic" else math.sqrt(1.0 + 1.0 / 3.0))
    sound = preconditioner.prior_deviations
    monkeypatch.setattr(
        preconditioner,
        "prior_deviations",
        lambda *given: sound(*given[:-1], given[-1] * [100.0, 1.0, 1.0]),
    )
    assert error() > (2.0 if kind == "logistic" else 1.5) * scale


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_intervals_keep_length_with_wide_bounds(kind, monkeypatch):
    usual, _ = lengths(kind, 1.0)
    for wide, most in ((10.0, 1.15), (100.0, 1.4)):
        own, covered = lengths(kind, wide)
        assert (own <= most * usual).all()
        assert covered > 0.7
    # Without the scales the interval of the wide column is wrong.
    monkeypatch.setattr(preconditioner, "_ONE_VALUE", -1.0)
    own, covered = lengths(kind, 100.0)
    assert covered < 0.7 or own[0] > 1.4 * usual[0]
