"""Scores, Hessians and squared scores: right values, bounded contributions on worst-case rows."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.compiled import kernels
from dpglm.data.compiled.kernels import score_sum
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import rounding as rounding_module
from dpglm.oracle import scores as scores_module
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import pack_symmetric
from dpglm.oracle.scores import (
    ClippedScores,
    curvature_sum,
    score_product_sum,
    score_with_limits,
    sum_of_scores,
)
from dpglm.oracle.targets import (
    SLOPES,
    SQUARED_SLOPES,
    noisy_mean_slope,
    noisy_squared_slope,
    noisy_target_means,
    target_mean_sum,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Gamma, Logistic, Poisson, Squared, WithOffset
from tests.audit.attack import released_sums

LAYOUTS = [("C", "float64"), ("C", "float32"), ("F", "float64"), ("csr", "float32")]
MULTIPLIER = 3.0
BASIS = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0] * np.logspace(-1, 1.5, 5)
V = np.array([0.3, -0.2, 0.1, 0.05, -0.01])


def make_rows(X, y, *, layout="C", dtype="float64", weights=None, most=2.0, low=0.0, high=20.0):
    spec = DataSpec(
        len(X),
        X.shape[1],
        intercept=1.0,
        dtype=dtype,
        sparse=layout == "csr",
        weight_bound=most,
        target_low=low,
        target_high=high,
    )
    matrix = X.astype(dtype)
    stored = sparse.csr_array(matrix) if layout == "csr" else np.asarray(matrix, order=layout)
    return prepare_rows(stored, y, spec, weights=weights)


def columns_of(size, n_features):
    units = np.logspace(-2, 2, n_features)
    return np.random.default_rng(1).normal(size=(size, n_features)) * units


def ask(rows, loss, scores, adjacency=Adjacency.ZERO_OUT, v=V):
    """Return the exact sums of all five kinds, and the sensitivity that each was due."""
    oracle, noise = (
        Oracle(rows, loss, Curator(adjacency, SeededNoise(0))),
        GaussianNoise(MULTIPLIER),
    )
    spec = rows.spec
    with released_sums() as seen:
        declared = sum_of_scores(spec, scores.clip).release(spec, adjacency, noise)
        scores.mean_score(oracle, declared, v)
        hessian = curvature_sum(spec, scores.clip, scores.square)
        scores.mean_curvatures(oracle, hessian.release(spec, adjacency, noise), v)[0]
        both = curvature_sum(spec, scores.clip, scores.square, with_variance=True)
        scores.mean_curvatures(oracle, both.release(spec, adjacency, noise), v, with_variance=True)
        declared = score_product_sum(spec, scores.clip).release(spec, adjacency, noise)
        scores.mean_score_products(oracle, declared, v)
        declared = score_with_limits(spec, scores.clip)
        columns = columns_of(scores.basis.shape[1], spec.n_features)
        scores.mean_score_and_limits(
            oracle, declared.release(spec, adjacency, noise), v, columns, cuts_slopes=True
        )
    return [(value, std / MULTIPLIER) for value, std in seen]


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE])
def test_sums_equal_the_definition(layout, dtype, adjacency):
    if (dtype, adjacency, layout) == ("float32", Adjacency.ADD_REMOVE, "C"):
        pytest.skip("refused: one row more shifts the rounding of all others")
    rng = np.random.default_rng(1)
    X = rng.uniform(-0.5, 0.5, size=(2500, 4)) * (rng.random((2500, 4)) < 0.7)
    y, weights = rng.poisson(2.0, 2500).astype(float), rng.uniform(0, 2, 2500)
    scores = ClippedScores(BASIS, 6.0, 48.0, slope=1.5, curvature=1.2)
    rows = make_rows(X, y, layout=layout, dtype=dtype, weights=weights)
    asked = ask(rows, Poisson(), scores, adjacency)
    score, hessian, both, products, last = (sums for sums, _ in asked)

    z = np.column_stack([X.astype(dtype).astype(float), np.ones(2500)]) @ BASIS
    mean, w = np.exp(z @ V), np.minimum(weights.astype(dtype).astype(float), 2.0)
    lengths = np.linalg.norm(z, axis=1)
    f = np.minimum(np.minimum(1.0, 6.0 / lengths), 48.0 / lengths**2)
    assert (lengths > 8.0).mean() > 0.05
    slopes = np.clip((mean - y) / 1.5, -1.0, 1.0)
    assert 0.1 < (f < 1.0).mean() < 0.9
    assert 0.1 < (abs(slopes) == 1.0).mean() < 0.9
    close = {"rtol": 1e-4, "atol": 1e-2} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-8}
    np.testing.assert_allclose(score, z.T @ (w * f * slopes), **close)
    bends = w * f * np.minimum(mean / 1.2, 1.0)
    np.testing.assert_allclose(hessian, pack_symmetric((z * bends[:, None]).T @ z), **close)
    variance = pack_symmetric((z * (f * bends)[:, None]).T @ z)
    np.testing.assert_allclose(both, np.append(hessian, 0.5 * variance), **close)
    squares = (w * f * slopes) ** 2
    np.testing.assert_allclose(products, pack_symmetric((z * squares[:, None]).T @ z), **close)
    np.testing.assert_allclose(last[:5], score, **close)
    u = (z @ columns_of(5, 4)) ** 2
    is_long = (f < 1.0)[:, None]
    parts = is_long, 1.0 - f[:, None], 2.0 * (abs(slopes) < 1.0)[:, None]
    met = np.hstack([*parts, is_long * u / u.sum(axis=1, keepdims=True)]) / 4.0
    slack = np.sqrt(1.0 - np.minimum((f * slopes * lengths / 6.0) ** 2, 1.0))
    fits = np.minimum(1.0, slack / np.maximum(np.linalg.norm(met, axis=1), 1e-9))
    assert 0.05 < (fits < 1.0).mean() < 0.5
    np.testing.assert_allclose(last[5:], (w * fits) @ met * 6.0, **close)


@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
@pytest.mark.parametrize("columns", [1, 30])
def test_compiled_sums_are_those_of_numpy(layout, dtype, columns):
    rng = np.random.default_rng(3)
    X = rng.uniform(-0.5, 0.5, size=(1100, columns))
    y, weights = rng.choice([-1.0, 1.0], 1100), rng.uniform(0, 2, 1100)
    basis = rng.normal(size=(columns + 1, columns + 1))
    scores = ClippedScores(basis, np.sqrt(columns / 2), columns, slope=0.6, curvature=0.2)
    for given in (None, weights):
        rows = make_rows(X, y, layout=layout, dtype=dtype, weights=given, low=-1.0, high=1.0)
        v = rng.normal(size=columns + 1)
        fast = ask(rows, Logistic(), scores, v=v)
        with mock.patch.object(kernels, "_library", None):
            slow = ask(rows, Logistic(), scores, v=v)
        for (one, _), (other, _) in zip(fast, slow, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    assert not kernels.COMPILED or (fast[0][0] != slow[0][0]).any()


@pytest.mark.skipif(not kernels.COMPILED, reason="no C compiler")
def test_compiled_scores_do_not_depend_on_the_place_of_a_row():
    rng = np.random.default_rng(5)
    row, v = rng.normal(size=5), rng.normal(size=5)
    limits = (0.6, 0.2, 2.0, 5.0, 1.0)
    for of in ("scores", "curvature", "squares", "variance"):
        sums = []
        for n, place in ((1, 0), (200, 0), (200, 63), (200, 64), (200, 199)):
            X, weights = np.zeros((n, 5)), np.zeros(n)
            X[place], weights[place] = row, 1.0
            sums.append(score_sum(of, limits, X, BASIS, 0.0, v, np.ones(n), weights))
        assert abs(sums[0]).max() > 0.0
        assert all((np.triu(one) == np.triu(sums[0])).all() for one in sums)


def test_numpy_replaces_missing_compiled_scores():
    X = np.ones((3, 200))
    args = ("scores", (1.0, 1.0, 1.0, 1.0, 1.0))
    facts = (0.0, np.ones(2), np.ones(3), None)
    assert score_sum(*args, X, np.ones((200, 2)), *facts) is None
    assert score_sum(*args, X[:, :4].astype(int), np.ones((4, 2)), *facts) is None
    with pytest.raises(ValueError, match="shape"):
        score_sum(*args, X[:, :4], np.ones((4, 2)), 0.0, np.ones(2), np.ones(2), None)


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Gamma()])
@pytest.mark.parametrize(("layout", "dtype"), LAYOUTS)
def test_one_row_attains_the_declared_sensitivity(loss, layout, dtype):
    rng = np.random.default_rng(2)
    X = rng.uniform(-0.5, 0.5, size=(200, 4))
    binary = isinstance(loss, Logistic)
    y = np.where(rng.random(200) < 0.5, 1.0, -1.0 if binary else 2.0)
    options = {"layout": layout, "dtype": dtype}
    if binary:
        options |= {"low": -1.0, "high": 1.0}
    # Scores are longest for rows with a norm in the basis between clip and square over clip.
    longest = float(np.linalg.norm(BASIS[0] + BASIS[4]))
    reached = np.zeros(5)
    for row in (*np.eye(4), -np.eye(4)[0], 1e-30 * np.ones(4), 1e6 * np.ones(4)):
        for target in (-1.0, 1.0) if binary else (1e-3, 20.0):
            X[7], y[7] = row, target
            heavy, gone = np.full(200, 2.0), np.full(200, 2.0)
            gone[7] = 0.0
            full = make_rows(X, y, weights=heavy, **options)
            absent = make_rows(X, y, weights=gone, **options)
            for scores in (
                ClippedScores(BASIS, longest, longest**2, slope=1e-3, curvature=1e-6),
                ClippedScores(BASIS, 0.7 * longest, 0.7 * longest**2, slope=1e-3, curvature=1e-6),
                ClippedScores(1e3 * BASIS, 2.0, 6.0, slope=0.5, curvature=0.1),
                ClippedScores(1e-3 * BASIS, 2.0, 6.0, slope=0.5, curvature=0.1),
            ):
                for k, (one, other) in enumerate(
                    zip(
                        *(ask(rows, loss, scores, v=0.0 * V) for rows in (full, absent)),
                        strict=True,
                    )
                ):
                    moved = np.linalg.norm(one[0] - other[0])
                    assert moved <= one[1]
                    reached[k] = max(reached[k], moved / one[1])
    # The bound is tight, so a score that was not weighted, or not cut, would be found.
    assert reached == pytest.approx(1.0, abs=2e-3)


def test_a_missing_weight_is_found():
    X, y = np.zeros((50, 4)), np.full(50, 3.0)
    X[0] = [1.0, 0.0, 0.0, 0.0]
    heavy, gone = np.full(50, 2.0), np.full(50, 2.0)
    gone[0] = 0.0
    scores = ClippedScores(1e3 * BASIS, 2.0, 4.0, slope=1e-3, curvature=0.1)
    wrong = dataclasses.replace(scores, clip=1e9, square=1e18)
    full, absent = (make_rows(X, y, weights=weights) for weights in (heavy, gone))
    due = [sensitivity for _, sensitivity in ask(full, Poisson(), scores, v=0.0 * V)[:4]]
    sums = (ask(rows, Poisson(), wrong, v=0.0 * V)[:4] for rows in (full, absent))
    for (bad, _), (good, _), sensitivity in zip(*sums, due, strict=True):
        assert np.linalg.norm(bad - good) > 10.0 * sensitivity


def test_limits_beyond_the_slack_of_a_score_are_found(monkeypatch):
    """Planted: counts of limits are added whatever the score leaves of its bound."""
    X, y = np.zeros((50, 4)), np.full(50, 3.0)
    heavy, gone = np.full(50, 2.0), np.full(50, 2.0)
    gone[0] = 0.0
    scores = ClippedScores(1e3 * BASIS, 2.0, 1e9, slope=1e-3, curvature=0.1)
    full, absent = (make_rows(X, y, weights=weights) for weights in (heavy, gone))

    def moved():
        (one, sensitivity), (other, _) = (
            ask(rows, Poisson(), scores, v=0.0 * V)[-1] for rows in (full, absent)
        )
        return np.linalg.norm(one - other) / sensitivity

    assert 0.97 < moved() <= 1.0
    monkeypatch.setattr(rounding_module, "within_slack", lambda squares, more: more)
    assert moved() > 1.05


def test_weights_that_rounding_lowers_are_full():
    f = np.array([1.0, 1.0 - 2.0**-52, 1.0 - 2.0**-30])
    met = scores_module.limits_of(f, np.ones((3, 2)), f > 0.0)
    assert (met[:, 0] > 0.0).tolist() == [False, False, True]


@pytest.mark.parametrize("loss", [Logistic(), Poisson()])
@pytest.mark.parametrize("position", [0, 1500, 2999])
def test_a_row_more_stays_within_the_declared_sensitivity(position, loss):
    rng = np.random.default_rng(4)
    X, y = rng.uniform(-0.5, 0.5, size=(3000, 4)), rng.poisson(2.0, 3000).astype(float)
    if isinstance(loss, Logistic):
        y = np.where(y > 1.0, 1.0, -1.0)
    rows = make_rows(X, y, low=-1.0)
    fewer = rows.take(np.delete(np.arange(3000), position))
    scores = ClippedScores(BASIS, 1.0, 2.0, slope=0.5, curvature=0.5)
    asked = (ask(one, loss, scores, Adjacency.ADD_REMOVE) for one in (rows, fewer))
    for (one, sensitivity), (other, _) in zip(*asked, strict=True):
        assert np.linalg.norm(one - other) <= sensitivity


class TestTargets:
    def oracle(self, y, weights, adjacency=Adjacency.ZERO_OUT):
        rows = make_rows(np.zeros((len(y), 1)), y, weights=weights)
        return Oracle(rows, Poisson(), Curator(adjacency, SeededNoise(0)))

    def test_means_are_weighted_and_bounded(self):
        rng = np.random.default_rng(0)
        y, w = rng.uniform(0, 30, 4000), rng.uniform(0, 2, 4000)
        oracle, noise = self.oracle(y, w), GaussianNoise(MULTIPLIER)
        declared = target_mean_sum(has_offset=False).release(
            oracle.rows.spec, Adjacency.ZERO_OUT, noise
        )
        with released_sums() as seen:
            mean, _, weight = noisy_target_means(oracle, declared, 0.0, 20.0)
            square = noisy_squared_slope(
                oracle,
                SQUARED_SLOPES.release(oracle.rows.spec, Adjacency.ZERO_OUT, noise),
                score=1.0,
                most=8.0,
                weight=weight,
            )
        assert weight == pytest.approx(w.sum())
        assert mean == pytest.approx(np.average(np.minimum(y, 20.0), weights=w))
        cut = np.minimum(abs(np.exp(1.0) - y), 8.0)
        assert square == pytest.approx(np.average(cut**2, weights=w))
        assert [std / MULTIPLIER for _, std in seen] == pytest.approx([2.0 * 2**0.5, 2.0], rel=1e-6)

    @pytest.mark.parametrize("y", [0.0, 20.0, 1e9])
    def test_one_row_moves_sums_by_no_more_than_declared(self, y):
        seen = []
        for weight in (2.0, 0.0):
            oracle, noise = (
                self.oracle(np.array([y, 3.0]), np.array([weight, 1.0])),
                GaussianNoise(1),
            )
            spec = oracle.rows.spec
            with released_sums() as sums:
                noisy_target_means(
                    oracle,
                    target_mean_sum(has_offset=False).release(spec, Adjacency.ZERO_OUT, noise),
                    0.0,
                    20.0,
                )
                declared = SQUARED_SLOPES.release(spec, Adjacency.ZERO_OUT, noise)
                noisy_squared_slope(oracle, declared, 0.0, 0.5, 1.0)
                declared = SLOPES.release(spec, Adjacency.ZERO_OUT, noise)
                noisy_mean_slope(oracle, declared, np.zeros(spec.coefficient_shape), 0.5)
            seen.append(sums)
        for (one, std), (other, _) in zip(*seen, strict=True):
            moved = float(np.linalg.norm(one - other))
            assert moved <= std
            assert moved == pytest.approx(std, rel=1e-6)

    @pytest.mark.parametrize("other", [0.0, 1.0])
    def test_slopes_of_rows_in_single_precision_are_added_in_double(self, other):
        """Half an ulp above 8192 would round away or up with the first row, in every run."""
        n = 16_384
        y = np.where(np.arange(n) <= 8192, -1.0, 0.0)
        y[8192 + 1024 :: 1024] = 2.0**-11 * (1.0 - 2.0**-9)
        spec = DataSpec(n, 2, intercept=1.0, target_low=-1.0, target_high=1.0, dtype="float32")
        adjacency = Adjacency.REPLACE_ONE if other else Adjacency.ZERO_OUT
        declared, sums = SLOPES.release(spec, adjacency, GaussianNoise(1.0)), []
        for first in (-1.0, other):
            y[0] = first
            rows = prepare_rows(np.zeros((n, 2), np.float32), y, spec)
            oracle = Oracle(rows, Squared(), Curator(adjacency, SeededNoise(0)))
            with released_sums() as seen:
                noisy_mean_slope(oracle, declared, np.zeros(3), 1.0)
            sums.append(float(seen[0][0][0]))
        assert abs(sums[0] - sums[1]) <= declared.noise_std

    @pytest.mark.parametrize("n_rows", [1, 2, 3])
    def test_offsets_that_can_only_be_zero_count_for_nothing(self, n_rows):
        pairs = np.zeros((n_rows, 2))
        rows, noise = make_rows(np.zeros((n_rows, 1)), pairs), GaussianNoise(1.0)
        loss = WithOffset(Poisson(), 0.0)
        oracle = Oracle(rows, loss, Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
        declared = target_mean_sum(has_offset=False).release(rows.spec, Adjacency.ZERO_OUT, noise)
        with released_sums() as seen:
            noisy_target_means(oracle, declared, 0.0, 20.0)
        assert seen[0][0].tolist() == [-n_rows, n_rows]

    def test_hopeless_noise_leaves_a_mean_within_the_range(self):
        oracle, noise = self.oracle(np.full(3, 20.0), None), GaussianNoise(1e6)
        declared = target_mean_sum(has_offset=False).release(
            oracle.rows.spec, Adjacency.ZERO_OUT, noise
        )
        mean, _, weight = noisy_target_means(oracle, declared, 0.0, 20.0)
        assert 0.0 <= mean <= 20.0
        assert weight > 0.0
