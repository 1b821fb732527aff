"""Sums for pooled levels: right values, and bounded contributions of worst-case rows."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import moments as module
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import (
    LevelScores,
    fixed_moment_sum,
    level_hessian_sum,
    level_score_sum,
    noisy_fixed_moments,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Poisson, Probit
from tests.audit.attack import mu_at_least

N_FIXED, N_LEVELS = 3, 5
SIZE = N_FIXED + N_LEVELS
QUIET = GaussianNoise(1e-9)


def scores_of(seed=0, **limits):
    rng = np.random.default_rng(seed)
    basis = np.eye(N_FIXED) + 0.2 * rng.normal(size=(N_FIXED, N_FIXED))
    basis[:-1, -1] = 0.0
    fixed, levels = np.arange(N_FIXED - 1), np.arange(N_FIXED - 1, SIZE - 1)
    scales = rng.uniform(0.5, 2.0, N_LEVELS)
    made = LevelScores(fixed, levels, basis, scales, 0.7, clip=0.8, square=0.3, reach=4.0)
    return dataclasses.replace(made, **limits)


def oracle_of(X, y, loss, adjacency=Adjacency.ZERO_OUT, weights=None, *, is_sparse=False):
    facts = {"target_low": 0.0, "target_high": 50.0} if loss == Poisson() else {}
    spec = DataSpec(
        len(X), X.shape[1], row_norm=3.0, intercept=0.7, weight_bound=2.0, sparse=is_sparse, **facts
    )
    rows = prepare_rows(sparse.csr_array(X) if is_sparse else X, y, spec, weights=weights)
    return Oracle(rows, loss, Curator(adjacency, SeededNoise(0)))


def drawn(loss, n=500, seed=1):
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.uniform(-1.0, 1.0, (n, N_FIXED - 1)), np.eye(N_LEVELS)[rng.integers(0, N_LEVELS, n)]]
    )
    X[::7, N_FIXED - 1 :] = 0.0  # Unlisted levels.
    y = rng.poisson(2.0, n).astype(float) if loss == Poisson() else rng.choice([-1.0, 1.0], n)
    y = np.maximum(y, 0.0) if loss == Probit() else y
    return X, y, rng.uniform(0.0, 2.0, n), 0.5 * rng.normal(size=SIZE)


@pytest.mark.parametrize("loss", [Logistic(), Probit(), Poisson()])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_level_sums_are_those_of_the_definition(loss, is_sparse):
    X, y, weights, v = drawn(loss)
    oracle, scores = oracle_of(X, y, loss, weights=weights, is_sparse=is_sparse), scores_of()
    adjacency, data = Adjacency.ZERO_OUT, oracle.rows.spec
    g = scores.mean_score(oracle, level_score_sum(SIZE).release(data, adjacency, QUIET), v)
    parts = scores.mean_hessian(
        oracle, level_hessian_sum(N_FIXED, N_LEVELS).release(data, adjacency, QUIET), v
    )
    rows = np.column_stack([X[:, : N_FIXED - 1], np.full(len(X), 0.7)])
    z = np.column_stack([rows @ scores.basis, X[:, N_FIXED - 1 :] * scores.scales])
    eta, norms = z @ v, np.linalg.norm(z, axis=1)
    if loss == Poisson():
        h = np.exp(eta)
        m = 4.0 * np.sqrt(h) + 1.0
    else:
        both = [np.full(len(X), one) for one in loss.target.bounds]
        m = np.max([np.abs(loss.slope(eta, one)) for one in both], axis=0)
        h = np.max([loss.curvature(eta, one) for one in both], axis=0)
    f = np.minimum.reduce([np.ones(len(X)), 0.8 / (m * norms), 0.3 / (h * norms**2)])
    assert (f < 1.0).mean() > 0.1
    slopes = np.clip(loss.slope(eta, y), -m, m)
    np.testing.assert_allclose(g, (weights * f * slopes) @ z / len(X), atol=1e-7)
    hessian = (z * (weights * f * h)[:, np.newaxis]).T @ z / len(X)
    np.testing.assert_allclose(parts.fixed, hessian[:N_FIXED, :N_FIXED], atol=1e-7)
    np.testing.assert_allclose(parts.crossed, hessian[N_FIXED:, :N_FIXED], atol=1e-7)
    np.testing.assert_allclose(parts.diagonal, np.diag(hessian)[N_FIXED:], atol=1e-7)
    fixed = fixed_moment_sum(N_FIXED).release(data, adjacency, QUIET)
    rows[:, -1] = 0.4
    lengths = weights / (rows**2).sum(axis=1)
    np.testing.assert_allclose(
        noisy_fixed_moments(oracle, fixed, scores.fixed, 0.4),
        (rows * lengths[:, np.newaxis]).T @ rows,
        atol=1e-5,
    )


def distances(adjacency, loss, scores, v, row, other, target):
    """Return, for each sum, the distance of two neighbours over the declared sensitivity."""
    X, y, weights, _ = drawn(loss, n=40)
    weights = np.full(40, 2.0)
    X[3], y[3] = row, target
    second, targets, seconds = X.copy(), y.copy(), weights.copy()
    if adjacency is Adjacency.ZERO_OUT:
        second[3], seconds[3] = 0.0, 0.0
    elif adjacency is Adjacency.ADD_REMOVE:
        second, targets, seconds = (np.delete(one, 3, axis=0) for one in (X, y, weights))
    else:
        second[3], targets[3] = other, -target if loss != Poisson() else 0.0
    found = []
    noise = GaussianNoise(1.0)
    data = oracle_of(X, y, loss).rows.spec
    makers = (
        level_score_sum(SIZE).release(data, adjacency, noise),
        level_hessian_sum(N_FIXED, N_LEVELS).release(data, adjacency, noise),
        fixed_moment_sum(N_FIXED).release(data, adjacency, noise),
    )
    asked = (
        lambda one: scores.mean_score(one, makers[0], v),
        lambda one: scores.mean_hessian(one, makers[1], v),
        lambda one: noisy_fixed_moments(one, makers[2], scores.fixed, 0.4),
    )
    for declared, ask in zip(makers, asked, strict=True):
        sums = [
            sum_before_noise(ask, oracle_of(*one[:2], loss, adjacency, one[2]))
            for one in ((X, y, weights), (second, targets, seconds))
        ]
        found.append(float(np.linalg.norm(sums[0] - sums[1])) / declared.sensitivity)
    return found


def sum_before_noise(ask, oracle):
    """Return the exact sum that a release would add noise to."""
    seen = []

    class AskedError(Exception):
        pass

    def noisy(self, of, declared, kernel, within=1.0):
        seen.append(of.rows.sum(kernel, (self.size,)))
        raise AskedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.RowSum, "noisy", noisy)
        with pytest.raises(AskedError):
            ask(oracle)
    return seen[0]


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("loss", [Logistic(), Poisson()])
def test_level_contributions_stay_within_the_sensitivity(adjacency, loss):
    rng, most = np.random.default_rng(0), np.zeros(3)
    for seed in range(12):
        scores, v = scores_of(seed, clip=0.05, square=0.02), 3.0 * rng.normal(size=SIZE)
        # Not only indicators: rows of any kind, up to the row norm.
        row = rng.normal(size=SIZE - 1) * 10.0 ** rng.uniform(-2.0, 12.0)
        target = 50.0 if loss == Poisson() else rng.choice([-1.0, 1.0])
        most = np.maximum(most, distances(adjacency, loss, scores, v, row, -row, target))
    assert (most <= 1.0).all()
    # Bounds are attained, but for opposite contributions of second moments.
    least = 0.4 if adjacency is Adjacency.REPLACE_ONE else 0.9
    assert (most >= least).all(), most


def blind(self, oracle, block, v, margin):
    """Planted: the norm of levels is forgotten."""
    z, levels, eta, _ = ORIGINAL(self, oracle, block, v, margin)
    m, h = self.bounds(oracle.loss, eta)
    squares = (z**2).sum(axis=1)
    excess = np.maximum(np.sqrt(squares) * m / self.clip, squares * h / self.square)
    return z, levels, eta, margin / np.maximum(excess, 1.0)


ORIGINAL = LevelScores._coordinates
ROW = np.r_[np.zeros(N_FIXED - 1), np.ones(N_LEVELS)]


def test_levels_beyond_the_clip_would_be_caught(monkeypatch):
    scores, v = scores_of(0, clip=0.05, square=0.02), np.zeros(SIZE)
    honest = distances(Adjacency.ZERO_OUT, Logistic(), scores, v, ROW, ROW, 1.0)
    monkeypatch.setattr(LevelScores, "_coordinates", blind)
    planted = distances(Adjacency.ZERO_OUT, Logistic(), scores, v, ROW, ROW, 1.0)
    assert max(honest) <= 1.0 < 2.0 < min(planted[:2])


def attacked(mu, runs=400):
    """Return a lower bound on mu from guesses whether one row is there, from noisy scores."""
    scores, v, signals = scores_of(0, clip=0.05, square=1e3), np.zeros(SIZE), []
    for weight in (2.0, 0.0):
        X, y = np.vstack([ROW, np.zeros((2, SIZE - 1))]), np.ones(3)
        oracle = oracle_of(X, y, Logistic(), weights=np.array([weight, 0.0, 0.0]))
        declared = level_score_sum(SIZE).release(
            oracle.rows.spec, Adjacency.ZERO_OUT, GaussianNoise(1.0 / mu)
        )
        answers = [scores.mean_score(oracle, declared, v) for _ in range(runs)]
        signals.append(np.array(answers) @ np.r_[np.zeros(N_FIXED), scores.scales])
    middle = 0.5 * (np.mean(signals[0]) + np.mean(signals[1]))
    sign = np.sign(np.mean(signals[0]) - np.mean(signals[1]))
    return mu_at_least(*(sign * (one - middle) > 0.0 for one in signals))


def test_score_attack_comes_near_the_claim_and_finds_the_bug(monkeypatch):
    assert 1.0 < attacked(2.0) <= 2.0
    monkeypatch.setattr(LevelScores, "_coordinates", blind)
    assert attacked(2.0) > 2.0


def test_level_sums_ignore_arithmetic_that_overflows():
    X, y, _, _ = drawn(Poisson(), n=20)
    oracle, v = oracle_of(X, y, Poisson()), np.full(SIZE, 1e4)
    with np.errstate(all="ignore"):
        for point in (v, -v, np.full(SIZE, math.nan)):
            data = oracle.rows.spec
            declared = level_score_sum(SIZE).release(data, Adjacency.ZERO_OUT, QUIET)
            assert np.isfinite(scores_of().mean_score(oracle, declared, point)).all()
            declared = level_hessian_sum(N_FIXED, N_LEVELS).release(data, Adjacency.ZERO_OUT, QUIET)
            assert np.isfinite(scores_of().mean_hessian(oracle, declared, point).diagonal).all()
