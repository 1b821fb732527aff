"""Projected sums: the right products, rounding within its bound, and the law of their lengths."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import log_ndtr

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import projection as module
from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum
from dpglm.oracle.projection import (
    GaussianMatrix,
    noisy_projected_gradient,
    projected_gradient_release,
    projected_magnitude,
    projected_rounding,
)
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import PoissonSampled, ProjectedGaussian, Repeated
from dpglm.privacy.noise import SeededNoise, additive, grid_sensitivity
from dpglm.privacy.noise.additive import ProjectedGaussianNoise
from dpglm.privacy.noise.exact import noise_scale
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Softmax
from tests.audit.attack import released_sums

CLIP = AutomaticClipping(0.4)


def make(n=50, d=4, *, layout="dense", dtype="float64", n_outputs=1, X=None, **facts):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) if X is None else X
    y = rng.integers(0, 3, n) if n_outputs > 1 else rng.choice([-1.0, 1.0], n)
    spec = DataSpec(n, d, n_outputs, intercept=1.0, dtype=dtype, sparse=layout == "csr", **facts)
    stored = X.astype(dtype)
    return prepare_rows(sparse.csr_array(stored) if layout == "csr" else stored, y, spec)


def oracle_of(rows, adjacency=Adjacency.ZERO_OUT, seed=0):
    loss = Softmax() if rows.spec.n_outputs > 1 else Logistic()
    return Oracle(rows, loss, Curator(adjacency, SeededNoise(seed)))


def declared_for(spec, adjacency, clipping, multiplier, columns, rate=1.0):
    noise = ProjectedGaussianNoise(multiplier, columns)
    return projected_gradient_release(spec, adjacency, clipping, noise, sampling_rate=rate)


def ask(oracle, w, clipping, multiplier, matrix, rate=1.0):
    """Declare a release and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = declared_for(spec, adjacency, clipping, multiplier, matrix.columns, rate)
    return noisy_projected_gradient(oracle, declared, w, clipping, matrix)


# 1. The matrix.


@pytest.mark.parametrize(("rows", "columns"), [(1, 2), (7, 3), (256, 5), (700, 40), (3, 3000)])
def test_products_are_those_of_the_whole_matrix(rows, columns, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_ENTRIES", 3000)
    matrix = GaussianMatrix(rows, columns, (5, 1))
    whole = matrix.dense()
    assert whole.shape == (rows, columns)
    rng = np.random.default_rng(0)
    s, r = rng.normal(size=rows), rng.normal(size=columns)
    root = math.sqrt(columns)
    np.testing.assert_allclose(matrix.project(s), whole.T @ s / root, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(matrix.lift(r), whole @ r / root, rtol=1e-11, atol=1e-12)
    assert max(block.size for block in matrix.blocks()) <= max(3000, columns)


def test_entries_are_standard_normal_and_independent():
    entries = GaussianMatrix(300, 400, (1, 2)).dense()
    assert stats.kstest(entries.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(entries[:, 0], entries[:, 1])[0, 1]) < 0.25
    gram = entries.T @ entries / 300
    assert abs(gram[np.triu_indices(400, 1)]).max() < 7 / math.sqrt(300)


def test_seeds_make_different_matrices():
    one = GaussianMatrix(5, 3, (7, 0))
    np.testing.assert_array_equal(one.dense(), GaussianMatrix(5, 3, (7, 0)).dense())
    for seed in ((7, 1), (8, 0), (2**64 - 1, 0)):
        assert not np.isin(one.dense(), GaussianMatrix(5, 3, seed).dense()).any()


def test_projecting_and_lifting_undo_each_other_on_average():
    s = np.array([1.0, -2.0, 0.5])
    drawn = [
        (matrix.lift(matrix.project(s)))
        for matrix in (GaussianMatrix(3, 10, (0, k)) for k in range(4000))
    ]
    errors = np.std(drawn, axis=0) / math.sqrt(4000)
    assert np.all(np.abs(np.mean(drawn, axis=0) - s) < 4.0 * errors)
    # The mean square grows by 1 + (m + 1)/p, which the default step size divides by.
    growth = np.mean(np.sum(np.square(drawn), axis=1)) / (s @ s)
    assert growth == pytest.approx(1.0 + 4 / 10, rel=0.04)


def test_a_matrix_that_is_too_long_is_not_used(monkeypatch):
    monkeypatch.setattr(module, "_MARGIN", -20.0)
    with pytest.raises(ArithmeticError, match="too long"):
        GaussianMatrix(30, 20, (0, 0)).project(np.zeros(30))


# 2. Rounding.


@pytest.mark.parametrize(("rows", "columns"), [(5, 2), (600, 3)])
def test_rounding_of_products_is_within_the_bound(rows, columns):
    rng = np.random.default_rng(1)
    spec = DataSpec(100, rows)
    most = 0.0
    for seed in range(8):
        matrix = GaussianMatrix(rows, columns, (seed, 0))
        # Cancelling sums of the largest magnitude that the rows allow.
        s = np.abs(rng.normal(size=rows)) * np.where(matrix.dense()[:, 0] > 0, 1, -1)
        s *= rng.choice([1.0, -1.0], rows)
        s *= sum_magnitude(spec, Adjacency.ZERO_OUT, 1.0) / np.linalg.norm(s)
        exact = []
        for column in matrix.dense().T:
            products = (
                Fraction(a) * Fraction(b) for a, b in zip(column.tolist(), s.tolist(), strict=True)
            )
            total = sum(products)
            exact.append(float(total) / math.sqrt(columns))
        error = np.linalg.norm(matrix.project(s) - exact)
        bound = projected_rounding(spec, Adjacency.ZERO_OUT, 1.0, columns, 1.0)
        bound -= sum_rounding(spec, Adjacency.ZERO_OUT, 1.0)
        most = max(most, 2.0 * error / bound)
    assert 0.0 < most <= 1.0


def test_rounding_is_small_in_practice_and_refused_at_one_column():
    large = DataSpec(60_000, 784, n_outputs=10, intercept=1.0)
    for adjacency, most in ((Adjacency.ZERO_OUT, 1e-4), (Adjacency.ADD_REMOVE, 0.2)):
        for columns in (2, 500, 8000):
            assert projected_rounding(large, adjacency, 1.0, columns, 5.0) < most
    with pytest.raises(ValueError, match="dimension must be an integer of at least 2, got 1"):
        projected_rounding(large, Adjacency.ZERO_OUT, 1.0, 1, 5.0)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("multiplier", [1e-3, 0.5, 30.0])
@pytest.mark.parametrize("columns", [2, 30])
def test_the_allowance_covers_the_grid_that_is_taken(adjacency, multiplier, columns):
    spec = DataSpec(1000, 20)
    scale = declared_for(spec, adjacency, FlatClipping(1.0), multiplier, columns).scale
    spread = math.sqrt((columns + 0.25 / multiplier**2) / (columns - 1))
    snapped = spread * grid_sensitivity(columns, scale.exponent)
    needed = 1.0 + sum_rounding(spec, adjacency, 1.0) + snapped
    assert scale.std >= multiplier * adjacency.sum_sensitivity(needed)
    # With n private the grid must hold any n, so it is coarse against the least noise.
    if adjacency.n_is_public or multiplier > 0.1:
        assert scale.std <= multiplier * adjacency.sum_sensitivity(1.0) * 1.02
    assert projected_magnitude(spec, adjacency, 1.0, columns) < 2.0 ** (52 + scale.exponent)


def gaussian_delta(epsilon, mu):
    with np.errstate(over="ignore"):
        upper = np.exp(log_ndtr(0.5 * mu - epsilon / mu))
        return upper - np.exp(epsilon + log_ndtr(-0.5 * mu - epsilon / mu))


def mean_delta(epsilon, columns, change):
    """Mean of delta over the length chi of the projection; the trapezium rule in log chi^2."""
    logs, step = np.linspace(-60.0, 8.0, 3001, retstep=True)
    squares = np.exp(logs)
    weights = step * squares * stats.chi2.pdf(squares, columns)
    return weights @ gaussian_delta(epsilon, change(np.sqrt(squares / columns)))


@pytest.mark.parametrize("columns", [2, 3, 20])
@pytest.mark.parametrize("multiplier", [0.2, 1.0, 5.0])
@pytest.mark.parametrize("rate", [1.0, 0.2])
def test_error_of_released_value_is_within_its_allowance(columns, multiplier, rate):
    # docs/solvers/d2p2.md: sigma (1 + sqrt(kappa) e) of noise for a change of chi/sqrt(p) + e.
    kappa = (columns + 0.25 / multiplier**2) / (columns - 1)
    bare = 0.0
    for error in (1e-3, 0.1, 1.0):
        for epsilon in (0.0, 0.01, 0.3, 3.0):
            # Poisson sampling turns delta at epsilon into rate times delta at a larger one.
            inner = math.log1p(math.expm1(epsilon) / rate)
            claimed, enough, too_little = (
                mean_delta(inner, columns, change)
                for change in (
                    lambda chi: chi / multiplier,
                    lambda chi, e=error: (chi + e) / (multiplier * (1 + math.sqrt(kappa) * e)),
                    lambda chi, e=error: (chi + e) / (multiplier * (1 + e)),
                )
            )
            if claimed > 1e-12:
                assert enough <= claimed * (1.0 + 1e-9)
                bare = max(bare, too_little / claimed - 1.0)
    # The planted bug: an allowance of e itself, which is right without projection.
    assert bare > 1e-4


# 3. The release.


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_release_is_projected_clipped_gradient_with_its_noise(layout, dtype, n_outputs, adjacency):
    rows = make(layout=layout, dtype=dtype, n_outputs=n_outputs, weight_bound=2.0)
    w = np.random.default_rng(2).normal(size=rows.spec.coefficient_shape)
    matrix = GaussianMatrix(w.size, 6, (3, 0))
    oracle = oracle_of(rows, adjacency)
    if (layout, dtype, adjacency) == ("dense", "float32", Adjacency.ADD_REMOVE):
        with pytest.raises(ValueError, match="dtype must be 'float64'"):
            ask(oracle, w, CLIP, 1.5, matrix)
        return
    with released_sums() as seen:
        r = ask(oracle, w, CLIP, 1.5, matrix)
    total = clipped_gradient_sum(rows, oracle.loss, CLIP, w).ravel()
    np.testing.assert_allclose(r * 50, matrix.dense().T @ total / math.sqrt(6), rtol=1e-9)
    ((_, std),) = seen
    contribution = 0.8 + projected_rounding(rows.spec, adjacency, 0.8, 6, 1.5)
    magnitude = projected_magnitude(rows.spec, adjacency, 0.8, 6)
    sensitivity = adjacency.sum_sensitivity(contribution)
    assert std == noise_scale(adjacency, sensitivity, 1.5, 6, magnitude).std
    assert oracle.curator.event == ProjectedGaussian(1.5, 6)


def test_sampled_releases_are_divided_by_the_expected_size():
    rows = make()
    oracle = oracle_of(rows)
    w, matrix = np.zeros(5), GaussianMatrix(5, 6, (3, 0))
    with released_sums() as seen:
        values = [ask(oracle, w, CLIP, 1.5, matrix, 0.3) for _ in range(40)]
    assert oracle.curator.event == Repeated(PoissonSampled(0.3, ProjectedGaussian(1.5, 6)), 40)
    np.testing.assert_allclose(values, [total / (0.3 * 50) for total, _ in seen])
    full = matrix.project(clipped_gradient_sum(rows, Logistic(), CLIP, w))
    mean = np.mean([total for total, _ in seen], axis=0)
    assert np.linalg.norm(mean - 0.3 * full) < 0.3
    assert len({total.tobytes() for total, _ in seen}) == 40


def test_an_empty_batch_is_a_batch():
    rows = make().take(np.empty(0, dtype=np.intp))
    oracle = oracle_of(rows, Adjacency.ADD_REMOVE)
    with released_sums() as seen:
        ask(oracle, np.zeros(5), CLIP, 1.0, GaussianMatrix(5, 2, (0, 0)), 0.5)
    np.testing.assert_array_equal(seen[0][0], np.zeros(2))


def test_noise_really_drawn_is_the_noise_declared():
    rows, drawn = make(), []
    original = additive.add_gaussian

    def listening(value, std, k, source):
        noisy = original(value, std, k, source)
        drawn.append((noisy - value) / std)
        return noisy

    matrix = GaussianMatrix(5, 20_000, (0, 0))
    with mock.patch.object(additive, "add_gaussian", listening):
        ask(oracle_of(rows), np.zeros(5), CLIP, 1.5, matrix)
    # A standard error of half a per cent: half the noise, or 2 % less, is seen.
    assert np.std(drawn) == pytest.approx(1.0, abs=0.015)
    assert stats.kstest(np.ravel(drawn), "norm").pvalue > 1e-3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_worst_neighbours_attain_the_law(dtype, row_norm, layout):
    # Not bounded by C: chi/sqrt(p) times that, and C for the sum before it is projected.
    rng = np.random.default_rng(5)
    n, columns, clipping = 300, 3, FlatClipping(0.3 * row_norm)
    X = rng.normal(size=(n, 4)) * row_norm
    spec = DataSpec(
        n, 4, row_norm=row_norm, intercept=row_norm, dtype=dtype, sparse=layout == "csr"
    )
    w = rng.normal(size=5) / row_norm
    allowed = clipping.bound + projected_rounding(
        spec, Adjacency.ZERO_OUT, clipping.bound, columns, 1.0
    )
    lengths = []
    for huge in (1e6, 1e30):
        sums = []
        for present in (1.0, 0.0):
            one, weights = X.copy(), np.ones(n)
            one[17], weights[17] = huge, present
            stored = one.astype(dtype)
            matrix = sparse.csr_array(stored) if layout == "csr" else stored
            rows = prepare_rows(matrix, -np.ones(n) * np.sign(w[:4].sum()), spec, weights=weights)
            sums.append(clipped_gradient_sum(rows, Logistic(), clipping, w))
        distance = np.linalg.norm(sums[0] - sums[1])
        assert 0.9 * clipping.bound <= distance <= allowed
        for seed in range(300):
            matrix = GaussianMatrix(5, columns, (seed, int(huge > 1e9)))
            change = np.linalg.norm(matrix.project(sums[0]) - matrix.project(sums[1]))
            lengths.append(change / distance)
    squares = columns * np.square(lengths)
    assert stats.kstest(squares, stats.chi2(columns).cdf).pvalue > 1e-3
    # The planted bug: C claimed for the projected value as well.
    assert np.mean(np.array(lengths) > 1.1) > 0.2


def test_forgotten_normalisation_would_be_seen():
    @dataclasses.dataclass(frozen=True)
    class Unbounded:
        bound: float = 0.4

        def scale(self, slopes, row_norms):
            return slopes

    rows = make(row_norm=100.0, X=np.full((50, 4), 1e6))
    present = clipped_gradient_sum(rows, Logistic(), CLIP, np.zeros(5))
    assert np.linalg.norm(present) <= 50 * 0.4 * (1 + 1e-9)
    free = clipped_gradient_sum(rows, Logistic(), Unbounded(), np.zeros(5))
    assert np.linalg.norm(free) > 50 * 0.4
