"""song2021 Lemma 5.1 and Theorem 5.3: the loss that clipped row gradients minimise, if any."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpglm.problem import (
    ClippedLoss,
    ConvexScalarLoss,
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Savage,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredHinge,
    Target,
    clipped_slope,
    clipped_value,
)

Array = NDArray[Any]
Z = np.linspace(-8, 8, 3201)
LOSSES: list[tuple[ConvexScalarLoss, float]] = [
    (Logistic(), 0.3),
    (Logistic(), 0.9),
    (Squared(), 1.5),
    (Huber(2.0), 0.5),
    (Poisson(), 0.7),
    (Poisson(), 5.0),
    (Hinge(), 0.4),
    (SquaredHinge(), 1.0),
    (SmoothedHinge(0.5), 0.6),
]
every_clip = pytest.mark.parametrize(("loss", "c"), LOSSES, ids=str)


def targets(loss: ConvexScalarLoss) -> list[float]:
    samples: dict[Target, list[float]] = {
        Target.BINARY: [-1.0, 1.0],
        Target.REAL: [-2.0, 0.0, 3.0],
        Target.COUNT: [0.0, 0.5, 4.0],
    }
    return samples[loss.target]


def crossing(loss: ConvexScalarLoss, level: float, y: float) -> float:
    """Find sup {z : l' < level} by bisection on the slope."""
    low, high = -1e3, 1e3
    for _ in range(200):
        middle = (low + high) / 2
        if loss.slope([middle], [y])[0] < level:
            low = middle
        else:
            high = middle
    return high


@every_clip
def test_slope_is_the_clipped_slope(loss: ConvexScalarLoss, c: float) -> None:
    for y in targets(loss):
        t = np.full_like(Z, y)
        expected = np.clip(loss.slope(Z, t), -c, c)
        np.testing.assert_array_equal(ClippedLoss(loss, c).slope(Z, t), expected)


@every_clip
def test_value_is_that_of_the_lemma(loss: ConvexScalarLoss, c: float) -> None:
    """The three branches of Lemma 5.1, with its y_1 and y_2 found by bisection."""
    for y in targets(loss):
        t = np.full_like(Z, y)
        value, slope = loss.value(Z, t), loss.slope(Z, t)
        y1, y2 = crossing(loss, -c, y), crossing(loss, np.nextafter(c, 9), y)
        below = -c * (Z - y1) + loss.value([y1], [y])[0]
        above = c * (Z - y2) + loss.value([y2], [y])[0]
        expected = np.where(slope < -c, below, np.where(slope > c, above, value))
        np.testing.assert_allclose(ClippedLoss(loss, c).value(Z, t), expected, rtol=1e-9, atol=1e-9)


@every_clip
def test_value_is_the_largest_lipschitz_minorant(loss: ConvexScalarLoss, c: float) -> None:
    """An independent form of the same loss: ``min_u l(u) + c |z - u|``."""
    u = np.linspace(-12, 12, 6001)
    for y in targets(loss):
        z = Z[::80]
        candidates = loss.value(u, np.full_like(u, y)) + c * np.abs(z[:, None] - u)
        value = ClippedLoss(loss, c).value(z, np.full_like(z, y))
        assert np.all(value <= candidates.min(axis=1) + 1e-9)
        np.testing.assert_allclose(value, candidates.min(axis=1), atol=5e-3)


@every_clip
def test_clipped_loss_is_convex_and_original_if_clip_is_slack(
    loss: ConvexScalarLoss, c: float
) -> None:
    clipped = ClippedLoss(loss, c)
    for y in targets(loss):
        t = np.full_like(Z, y)
        value = clipped.value(Z, t)
        assert np.diff(value, 2).min() >= -1e-11
        assert np.abs(np.diff(value)).max() <= c * (Z[1] - Z[0]) * (1 + 1e-9)
        free = np.abs(loss.slope(Z, t)) <= c
        assert free.any()
        assert not free.all() or y == 0
        np.testing.assert_array_equal(value[free], loss.value(Z, t)[free])
        assert np.all(value <= loss.value(Z, t) + 1e-12)


@every_clip
def test_slope_is_the_derivative_of_value(loss: ConvexScalarLoss, c: float) -> None:
    clipped, h = ClippedLoss(loss, c), 1e-6
    z = np.random.default_rng(0).uniform(-8, 8, 500)
    for y in targets(loss):
        t = np.full_like(z, y)
        numeric = (clipped.value(z + h, t) - clipped.value(z - h, t)) / (2 * h)
        np.testing.assert_allclose(clipped.slope(z, t), numeric, atol=1e-6)
        # The same check refutes the value of the unclipped loss.
        unclipped = (loss.value(z + h, t) - loss.value(z - h, t)) / (2 * h)
        assert y == 0 or np.abs(clipped.slope(z, t) - unclipped).max() > 1e-2


def test_a_clip_that_never_binds_changes_nothing() -> None:
    t = np.ones_like(Z)
    np.testing.assert_array_equal(ClippedLoss(Logistic(), 1.0).value(Z, t), Logistic().value(Z, t))


def test_the_clipped_squared_loss_is_hubers() -> None:
    t = np.full_like(Z, 0.5)
    clipped = ClippedLoss(Squared(), 1.3)
    np.testing.assert_allclose(clipped.value(Z, t), Huber(1.3).value(Z, t), atol=1e-12)
    np.testing.assert_array_equal(clipped.slope(Z, t), Huber(1.3).slope(Z, t))
    np.testing.assert_array_equal(clipped.curvature(Z, t), Huber(1.3).curvature(Z, t))


def test_clipping_twice_is_clipping_once_at_the_smaller() -> None:
    t = np.ones_like(Z)
    for a, b in itertools.permutations((0.3, 0.7)):
        twice = ClippedLoss(ClippedLoss(Logistic(), a), b)
        once = ClippedLoss(Logistic(), 0.3)
        np.testing.assert_allclose(twice.value(Z, t), once.value(Z, t), rtol=1e-14)
        np.testing.assert_array_equal(twice.slope(Z, t), once.slope(Z, t))
        assert twice.smoothness == once.smoothness


def test_clipping_lowers_the_declared_constants() -> None:
    assert ClippedLoss(Logistic(), 0.3).slope_bound == 0.3
    assert ClippedLoss(Logistic(), 0.3).smoothness == pytest.approx(0.21)
    assert ClippedLoss(Logistic(), 0.6).smoothness == 0.25
    assert ClippedLoss(Logistic(), 5.0).slope_bound == 1
    assert Poisson().smoothness_on(math.inf, 0, 10) == math.inf
    assert ClippedLoss(Poisson(), 2.0).smoothness_on(math.inf, 0, 10) == 12
    assert ClippedLoss(Poisson(), 2.0).smoothness_on(1.0, 0, 10) == pytest.approx(math.e)


def test_smoothness_where_the_clip_always_binds_is_zero() -> None:
    assert Logistic().smoothness_below(0.1, z_bound=1.0, y_low=-1, y_high=1) == 0
    assert Poisson().smoothness_below(0.1, z_bound=1.0, y_low=0, y_high=0) == 0
    np.testing.assert_array_equal(
        ClippedLoss(Logistic(), 0.1).curvature(np.linspace(-1, 1, 9), np.ones(9)), 0
    )


@every_clip
def test_float32_stays_float32_and_close(loss: ConvexScalarLoss, c: float) -> None:
    for y in targets(loss):
        t = np.full_like(Z, y)
        narrow = ClippedLoss(loss, c).value(Z.astype(np.float32), t.astype(np.float32))
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, ClippedLoss(loss, c).value(Z, t), rtol=1e-4, atol=1e-4)


# Rows of different norms: gradient norm C means slope C / |x_i|.


def numeric_gradient(f: Callable[[Array], float], w: Array) -> Array:
    h = 1e-6
    return np.array([(f(w + h * e) - f(w - h * e)) / (2 * h) for e in np.eye(w.size)])


def test_mean_clipped_gradient_is_gradient_of_clipped_loss() -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(30, 3)) * rng.uniform(0.1, 6, size=(30, 1))
    X[7] = 0
    y, w, C = rng.choice([-1.0, 1.0], size=30), rng.normal(size=3), 0.8
    norms = np.linalg.norm(X, axis=1)
    c = np.divide(C, norms, out=np.full(30, np.inf), where=norms > 0)

    rows = Logistic().slope(X @ w, y)[:, None] * X
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped_rows = rows * np.minimum(1, C / np.maximum(lengths, 1e-300))
    assert 3 < np.count_nonzero(lengths > C) < 27

    by_slope = clipped_slope(Logistic(), X @ w, y, c)[:, None] * X
    np.testing.assert_allclose(by_slope, clipped_rows, atol=1e-14)
    numeric = numeric_gradient(lambda v: clipped_value(Logistic(), X @ v, y, c).mean(), w)
    np.testing.assert_allclose(numeric, clipped_rows.mean(axis=0), atol=1e-8)
    # One clip for all rows, whatever their norms, is another objective.
    one = numeric_gradient(lambda v: clipped_value(Logistic(), X @ v, y, C).mean(), w)
    assert np.abs(one - clipped_rows.mean(axis=0)).max() > 1e-2


# Softmax: no function has the clipped gradients as its gradient.


def by_norm(g: Array, c: float) -> Array:
    return g * min(1.0, c / float(np.linalg.norm(g)))


def by_class(g: Array, c: float) -> Array:
    return np.clip(g, -c, c)


def asymmetry(field: Callable[[Array], Array], z: Array) -> float:
    """Largest difference between mixed partial derivatives; 0 for every gradient field."""
    h = 1e-6
    J = np.array([(field(z + h * e) - field(z - h * e)) / (2 * h) for e in np.eye(z.size)])
    return float(np.abs(J - J.T).max())


def circulation(field: Callable[[Array], Array], n_classes: int) -> float:
    """Integral of the field around a circle in the plane of two classes."""
    angle = (np.arange(2000) + 0.5) * 2 * np.pi / 2000
    a, b = np.eye(n_classes)[:2] * 1.0
    start = np.linspace(0.5, -0.5, n_classes)
    total = 0.0
    for t in angle:
        tangent = -np.sin(t) * a + np.cos(t) * b
        total += float(field(start + np.cos(t) * a + np.sin(t) * b) @ tangent)
    return total * 2 * np.pi / 2000


def softmax_slope(z: Array) -> Array:
    return Softmax().slope(z[None], [0])[0]


@pytest.mark.parametrize("n_classes", [3, 4, 10])
@pytest.mark.parametrize("clip", [by_norm, by_class])
def test_clipped_softmax_is_not_a_gradient_field(
    n_classes: int, clip: Callable[[Array, float], Array]
) -> None:
    z = np.random.default_rng(1).normal(size=n_classes)
    g = softmax_slope(z)
    # The clip binds: on the norm, and on the largest entry.
    c = 0.7 * float(np.abs(g).max())

    def clipped(v: Array) -> Array:
        return clip(softmax_slope(v), c)

    assert asymmetry(softmax_slope, z) < 1e-8
    assert asymmetry(clipped, z) > 1e-3


def test_clipped_softmax_does_work_around_a_closed_path() -> None:
    assert abs(circulation(softmax_slope, 3)) < 1e-10
    assert abs(circulation(lambda v: by_norm(softmax_slope(v), 0.3), 3)) > 1e-2
    assert abs(circulation(lambda v: by_norm(softmax_slope(v), 0.3), 2)) < 1e-8


def test_clipped_softmax_of_two_classes_is_a_gradient_field() -> None:
    for z in np.random.default_rng(2).normal(size=(5, 2)) * 2:
        assert asymmetry(lambda v: by_norm(softmax_slope(v), 0.2), z) < 1e-8


@pytest.mark.parametrize("loss", [Softmax(), Savage()], ids=repr)
def test_only_convex_losses_of_one_output_can_be_clipped(loss: Any) -> None:
    with pytest.raises(ValueError, match="loss must be a convex loss of one output"):
        ClippedLoss(loss, 1.0)


@pytest.mark.parametrize("c", [0.0, -1.0, math.nan, math.inf])
def test_clip_slope_is_checked(c: float) -> None:
    with pytest.raises(ValueError, match="clip_slope must be a finite number above 0"):
        ClippedLoss(Logistic(), c)
