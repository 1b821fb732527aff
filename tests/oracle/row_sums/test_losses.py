"""Sums of clipped loss differences: right values, bounded contributions, declared noise."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

from dpglm.oracle import gradients as module
from dpglm.oracle.gradients import (
    Oracle,
    clipped_loss_difference_sum,
    loss_difference_sum,
    noisy_loss_difference,
)
from dpglm.oracle.rounding import sum_magnitude, sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.noise.exact import noise_scale
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, OneVsRest, Poisson, Savage, Softmax, Squared, SquaredHinge
from tests.audit.attack import released_sums
from tests.oracle.test_clipped_sum import LAYOUTS, make_rows, make_targets

pytestmark = pytest.mark.one_in(3)

LOSSES = [
    (Logistic(), 1),
    (Savage(), 1),
    (Squared(), 1),
    (Poisson(), 1),
    (Softmax(), 3),
    (OneVsRest(SquaredHinge(), 3), 3),
]
every_loss = pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=lambda p: type(p).__name__)
every_kind = pytest.mark.parametrize(
    ("layout", "dtype"), [(layout, dtype) for layout in LAYOUTS for dtype in ("float32", "float64")]
)


@every_kind
@every_loss
@pytest.mark.parametrize("bound", [0.05, 0.8])
def test_equals_the_definition(layout, dtype, loss, n_outputs, bound):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 5))
    X /= np.maximum(1.001 * np.linalg.norm(X, axis=1, keepdims=True), 1.0)
    y = make_targets(rng, loss, 300, n_outputs)
    weights = rng.uniform(0, 2, 300)
    shape = (6,) if n_outputs == 1 else (6, n_outputs)
    w, anchor = rng.normal(size=(2, *shape))
    rows = make_rows(
        X, y, layout=layout, dtype=dtype, n_outputs=n_outputs, weights=weights, weight_bound=2.0
    )
    total = clipped_loss_difference_sum(rows, loss.value, bound, w, anchor)
    extended = np.hstack([X, np.full((300, 1), rows.spec.intercept)])
    differences = loss.value(extended @ w, y) - loss.value(extended @ anchor, y)
    expected = np.sum(weights * np.clip(differences, -bound, bound))
    assert total.shape == (1,)
    assert total[0] == pytest.approx(expected, abs=1e-3 if dtype == "float32" else 1e-9)


def ask(oracle, w, anchor, bound, multiplier):
    """Declare a release and make it."""
    declared = loss_difference_sum(bound).release(
        oracle.rows.spec, oracle.curator.adjacency, GaussianNoise(multiplier)
    )
    return noisy_loss_difference(oracle, declared, w, anchor, bound)


def released(rows, loss, w, anchor, bound, adjacency=Adjacency.ZERO_OUT):
    curator = Curator(adjacency, SeededNoise(0))
    with released_sums() as seen:
        ask(Oracle(rows, loss, curator), w, anchor, bound, 3.0)
    assert curator.event == Gaussian(3.0)
    return float(seen[0][0][0]), seen[0][1]


@every_kind
@pytest.mark.parametrize("n", [1, 2, 1000])
@pytest.mark.parametrize("size", [1e-2, 1.0, 1e15])
def test_one_row_moves_the_sum_by_the_bound_at_most(layout, dtype, n, size):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3)) / 3.0
    X[n // 2] = [size, -size, size]
    w, anchor = np.array([1e3, -1e3, 1e3, 5.0]), np.zeros(4)
    moved = []
    for target in (-1.0, 1.0):
        y = np.ones(n)
        y[n // 2] = target
        sums = []
        for weight in (2.0, 0.0):
            weights = np.full(n, 1.5)
            weights[n // 2] = weight
            rows = make_rows(X, y, layout=layout, dtype=dtype, weights=weights, weight_bound=2.0)
            sums.append(released(rows, Logistic(), w, anchor, 0.3)[0])
        moved.append(sums[0] - sums[1])
    allowed = 0.6 + sum_rounding(rows.spec, Adjacency.ZERO_OUT, 0.6)
    assert np.abs(moved).max() <= allowed
    # Both ends are reached, so a smaller bound would be refuted.
    assert min(moved) < -0.59
    assert max(moved) > 0.59


def test_without_the_clip_one_row_would_move_it_more():
    X, y = np.full((10, 3), 0.3), np.r_[-1.0, np.ones(9)]
    w = np.full(4, 1e6)
    rows = make_rows(X, y)
    assert released(rows, Logistic(), w, np.zeros(4), 0.3)[0] == pytest.approx(0.3 * (1 - 9))
    with mock.patch.object(module.np, "where", side_effect=lambda _, x, __: np.maximum(x, 1e3)):
        assert released(rows, Logistic(), w, np.zeros(4), 0.3)[0] > 100.0


@pytest.mark.filterwarnings("error")
def test_overflow_counts_as_the_bound():
    class Broken(type(Logistic())):
        def value(self, z, y):
            return np.array([np.nan, np.inf, -np.inf, 1.0]) if z.any() else np.zeros(4)

    rows = make_rows(np.ones((4, 3)) / 3, np.ones(4))
    total = clipped_loss_difference_sum(rows, Broken().value, 2.0, np.ones(4), np.zeros(4))
    assert total[0] == 2.0 + 2.0 - 2.0 + 1.0


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_equals_declaration(adjacency):
    rows = make_rows(np.ones((50, 3)) / 3, np.ones(50))
    exact, std = released(rows, Logistic(), np.ones(4), np.zeros(4), 0.3, adjacency)
    declared = 0.3 + sum_rounding(rows.spec, adjacency, 0.3)
    magnitude = sum_magnitude(rows.spec, adjacency, 0.3)
    sensitivity = adjacency.sum_sensitivity(declared)
    assert std == noise_scale(adjacency, sensitivity, 3.0, 1, magnitude).std
    assert std == pytest.approx(3.0 * adjacency.sum_sensitivity(0.3), rel=1e-2)
    drawn = [
        ask(
            Oracle(rows, Logistic(), Curator(adjacency, SeededNoise(seed))),
            np.ones(4),
            np.zeros(4),
            0.3,
            3.0,
        )
        for seed in range(2000)
    ]
    assert np.mean(drawn) == pytest.approx(exact, abs=4.0 * std / math.sqrt(2000))
    assert np.std(drawn) == pytest.approx(std, rel=0.06)
