"""Sums of gradient differences: right values, bounded contributions whatever rows and points."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from dpglm.oracle import gradients as differences_module
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import (
    Oracle,
    clipped_difference_sum,
    clipped_gradient_sum,
    gradient_release,
    noisy_difference,
)
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian, PoissonSampled
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.noise.exact import noise_scale
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, OneVsRest, Poisson, Softmax, Squared, SquaredHinge
from tests.audit.attack import released_sums
from tests.oracle.test_clipped_sum import LAYOUTS, make_rows, make_targets

pytestmark = pytest.mark.one_in(3)

LOSSES = [
    (Logistic(), 1),
    (Squared(), 1),
    (Poisson(), 1),
    (Softmax(), 3),
    (OneVsRest(SquaredHinge(), 3), 3),
]


def row_by_row(X, y, loss, clip, bound, w, anchor, weights):
    """The definition: clip both gradients, subtract, clip the difference, weigh, add up."""

    def clipped(vector, limit):
        return vector * (limit / max(limit, np.linalg.norm(vector)))

    total = np.zeros_like(w)
    for x, target, weight in zip(X, y, weights, strict=True):
        parts = []
        for point in (w, anchor):
            z = x @ point
            slope = loss.slope(z[None] if w.ndim == 2 else np.array([z]), [target])[0]
            parts.append(clipped(np.multiply.outer(x, slope), clip))
        total += weight * clipped(parts[0] - parts[1], bound)
    return total


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("bound", [0.05, 0.8])
def test_equals_the_definition(layout, dtype, loss, n_outputs, bound):
    rng = np.random.default_rng(1)
    n, d = 500, 5
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.7) + 0.1
    X /= np.maximum(1.001 * np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = make_targets(rng, loss, n, n_outputs)
    weights = rng.uniform(0, 2, n)
    rows = make_rows(
        X, y, layout=layout, dtype=dtype, n_outputs=n_outputs, weights=weights, weight_bound=2.0
    )
    w, anchor = rng.normal(size=(2, *rows.spec.coefficient_shape))
    full = np.column_stack([X.astype(dtype).astype(float), np.ones(n)])
    expected = row_by_row(full, y, loss, 0.4, bound, w, anchor, weights)
    got = clipped_difference_sum(rows, loss, FlatClipping(0.4), bound, w, anchor)
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, atol=2e-3 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("layout", ["C", "csr"])
def test_unclipped_result_is_difference_of_gradient_sums(layout):
    rng = np.random.default_rng(2)
    rows = make_rows(rng.normal(size=(300, 4)), rng.choice([-1, 1], 300), layout=layout)
    w, anchor = rng.normal(size=(2, 5))
    clipping = FlatClipping(0.5)
    at_w, at_anchor = (
        clipped_gradient_sum(rows, Logistic(), clipping, point) for point in (w, anchor)
    )
    got = clipped_difference_sum(rows, Logistic(), clipping, 1.0 + 1e-9, w, anchor)
    np.testing.assert_allclose(got, at_w - at_anchor, atol=1e-12)
    assert not clipped_difference_sum(rows, Logistic(), clipping, 1.0, w, w).any()


def distance(a, b, loss, clip, bound, w, anchor):
    one, other = (
        clipped_difference_sum(rows, loss, FlatClipping(clip), bound, w, anchor) for rows in (a, b)
    )
    return float(np.linalg.norm(one - other))


@pytest.mark.parametrize("layout", ["C", "csr"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("n", [1, 60])
def test_one_row_stays_within_the_declared_sensitivity(layout, dtype, loss, n_outputs, row_norm, n):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 4)) * row_norm
    y = make_targets(rng, loss, n, n_outputs)
    options = {
        "layout": layout,
        "dtype": dtype,
        "n_outputs": n_outputs,
        "row_norm": row_norm,
        "intercept": row_norm,
        "weight_bound": 3.0,
    }
    clip = 0.3 * row_norm
    weights = np.full(n, 3.0)
    gone = weights.copy()
    gone[n // 2] = 0.0
    for huge in (1e6, 1e30):
        one, other = X.copy(), X.copy()
        one[n // 2], other[n // 2] = huge, -huge
        y_other = y.copy()
        y_other[n // 2] = y[0]
        a = make_rows(one, y, weights=weights, **options)
        b = make_rows(other, y_other, weights=weights, **options)
        absent = make_rows(one, y, weights=gone, **options)
        for size, bound in itertools.product((1e-3, 1.0, 1e8), (1e-6 * clip, 2.0 * clip)):
            w, anchor = rng.normal(size=(2, *a.spec.coefficient_shape)) * size / row_norm
            for adjacency, second in ((Adjacency.REPLACE_ONE, b), (Adjacency.ZERO_OUT, absent)):
                rounding = sum_rounding(a.spec, adjacency, 3.0 * bound)
                most = adjacency.sum_sensitivity(3.0 * bound + rounding)
                assert distance(a, second, loss, clip, bound, w, anchor) <= most


def test_bound_is_attained_and_a_forgotten_clip_is_detected():
    X = np.zeros((40, 2))
    X[3] = [1.0, 0.0]
    weights = np.ones(40)
    weights[3] = 0.0
    rows = (
        make_rows(X, np.ones(40), intercept=0.0),
        make_rows(X, np.ones(40), intercept=0.0, weights=weights),
    )
    # The slope is 0 at one point and -1, clipped to -1/2, at the other.
    w, anchor = np.array([50.0, 0.0]), np.array([-50.0, 0.0])
    assert distance(*rows, Logistic(), 0.5, 0.4, w, anchor) == pytest.approx(0.4, rel=1e-9)

    class Forgotten:
        def __init__(self, bound):
            pass

        def scale(self, slopes, row_norms):
            return slopes

    with mock.patch.object(differences_module, "FlatClipping", Forgotten):
        # The function then breaks its declared bound.
        assert distance(*rows, Logistic(), 0.5, 0.1, w, anchor) > 0.1 * 4.0


def test_clipped_differences_are_bounded_by_clip_and_smoothness():
    # The solvers' bound rests on this; a clip is a projection, hence nonexpansive.
    rng = np.random.default_rng(4)
    for (loss, n_outputs), clip in itertools.product(LOSSES, (0.1, 1.0)):
        for _ in range(20):
            X = rng.normal(size=(1, 4))
            y = make_targets(rng, loss, 1, n_outputs)
            rows = make_rows(X, y, n_outputs=n_outputs)
            w = rng.normal(size=rows.spec.coefficient_shape)
            anchor = w + rng.normal(size=w.shape) * 10.0 ** rng.uniform(-3, 1)
            length = np.linalg.norm(
                clipped_difference_sum(rows, loss, FlatClipping(clip), 1e3, w, anchor)
            )
            limit = min(2.0 * clip, loss.smoothness * 2.0 * np.linalg.norm(w - anchor))
            assert length <= limit * (1.0 + 1e-9)


def test_overflowing_slopes_leave_no_nan():
    rows = make_rows(np.array([[1.0], [1.0], [0.5]]), np.array([0.0, 1.0, 1.0]), intercept=0.0)
    points = [np.array([value]) for value in (-1e308, -1.0, 1e6, 1e308)]
    for w, anchor in itertools.product(points, points):
        total = clipped_difference_sum(rows, Poisson(), FlatClipping(1.0), 0.5, w, anchor)
        assert np.isfinite(total).all()
        assert np.linalg.norm(total) <= 1.5 * (1 + 1e-9)


def ask(oracle, w, anchor, clipping, bound, multiplier, rate):
    """Declare a release and make it."""
    spec, adjacency = oracle.rows.spec, oracle.curator.adjacency
    declared = gradient_release(
        spec,
        adjacency,
        FlatClipping(bound),
        GaussianNoise(multiplier),
        quantity="gradient difference sum",
        sampling_rate=rate,
    )
    return noisy_difference(oracle, declared, w, anchor, clipping, bound)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_release_is_recorded_with_noise_proportional_to_bound(adjacency, rate):
    rng = np.random.default_rng(5)
    rows = make_rows(rng.normal(size=(50, 3)), rng.choice([-1, 1], 50), weight_bound=2.0)
    w, anchor = rng.normal(size=(2, 4))
    stds = []
    for bound in (1e-3, 1.0):
        curator = Curator(adjacency, SeededNoise(0))
        oracle = Oracle(rows, Logistic(), curator)
        with released_sums() as sums:
            got = ask(oracle, w, anchor, FlatClipping(0.5), bound, 4.0, rate)
        ((value, std),) = sums
        np.testing.assert_allclose(got, value / (rate * 50.0))
        event = Gaussian(4.0)
        assert curator.event == (event if rate == 1.0 else PoissonSampled(rate, event))
        contribution = 2.0 * bound
        least = 4.0 * adjacency.sum_sensitivity(contribution)
        assert least <= std <= least * (1.0 + 1e-2)
        expected = noise_scale(
            adjacency,
            adjacency.sum_sensitivity(
                contribution + sum_rounding(rows.spec, adjacency, contribution, rate)
            ),
            4.0,
            4,
            sum_magnitude(rows.spec, adjacency, contribution),
        )
        assert std == expected.std
        stds.append(std)
    assert stds[1] == pytest.approx(1e3 * stds[0], rel=1e-2)


def test_batches_are_poisson_and_the_divisor_is_public():
    rows = make_rows(np.ones((40, 1)), np.ones(40), intercept=0.0)
    oracle = Oracle(rows, Squared(), Curator(Adjacency.ZERO_OUT, SeededNoise(0)))
    w, anchor = np.array([0.7]), np.array([0.2])
    counts = []
    for _ in range(300):
        with released_sums() as sums:
            got = ask(oracle, w, anchor, FlatClipping(9.0), 0.5, 1.0, 0.05)
        # Every row adds one half.
        counts.append(round(float(sums[0][0][0]) / 0.5))
        assert got[0] == pytest.approx(counts[-1] * 0.5 / (0.05 * 40))
    assert np.mean(counts) == pytest.approx(2.0, abs=0.4)
    assert counts.count(0) > 10
    assert np.var(counts) == pytest.approx(40 * 0.05 * 0.95, rel=0.35)
