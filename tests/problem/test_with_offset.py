"""Offsets: the loss at the score plus a known term, with constants that hold for all of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.problem import (
    Binomial,
    ClippedLoss,
    Gamma,
    Logistic,
    NegativeBinomial,
    Poisson,
    Softmax,
    Tweedie,
    WithOffset,
)

LOSSES = [Poisson(), Gamma(), Tweedie(1.3), NegativeBinomial(0.5), Binomial()]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=repr)


def rows(bound, n=4000):
    rng = np.random.default_rng(0)
    y = rng.uniform(0.1, 1.0, n)
    return rng.uniform(-2, 2, n), y, rng.uniform(-bound, bound, n)


@every_loss
def test_it_is_the_loss_of_the_sum(loss):
    z, y, offsets = rows(3.0)
    shifted, both = WithOffset(loss), np.column_stack([y, offsets])
    for name in ("value", "slope", "curvature"):
        expected = getattr(loss, name)(z + offsets, y)
        np.testing.assert_array_equal(getattr(shifted, name)(z, both), expected)
        np.testing.assert_array_equal(getattr(shifted, name)(z, y), getattr(loss, name)(z, y))
    slope = shifted.slope(z, both)
    np.testing.assert_allclose(shifted.slope_inverse(slope, both), z, atol=1e-6)


@every_loss
@pytest.mark.parametrize("bound", [0.5, 3.0])
def test_constants_hold_for_every_offset_within_the_bound(loss, bound):
    z, y, offsets = rows(bound, 100_000)
    z = np.append(z, [-2.0, 2.0, -2.0, 2.0])
    y = np.append(y, [0.1, 0.1, 1.0, 1.0])
    offsets = np.append(offsets, [-bound, bound, -bound, bound])
    both, shifted = np.column_stack([y, offsets]), WithOffset(loss, bound)
    slopes, curvatures = np.abs(shifted.slope(z, both)), shifted.curvature(z, both)
    assert slopes.max() <= shifted.slope_bound_on(2.0, 0.1, 1.0) * (1 + 1e-12)
    assert curvatures.max() <= shifted.smoothness_on(2.0, 0.1, 1.0) * (1 + 1e-12)
    few = curvatures[slopes <= 0.3]
    assert few.max() <= shifted.smoothness_below(0.3, 2.0, 0.1, 1.0) * (1 + 1e-9)
    # Constants that forget the offsets do not hold.
    if not isinstance(loss, Binomial):
        assert slopes.max() > loss.slope_bound_on(2.0, 0.1, 1.0)


def test_slope_without_prediction_bound_is_unbounded():
    assert Poisson().slope_bound_on(1.0, 0.0, 1.0) < 3.0
    assert WithOffset(Poisson()).slope_bound_on(1.0, 0.0, 1.0) == math.inf
    assert WithOffset(Binomial()).slope_bound == 1.0


def test_clipped_loss_uses_offsets():
    clipped = ClippedLoss(WithOffset(Poisson(), 2.0), 0.5)
    assert clipped.offset_bound == 2.0
    assert clipped.slope([0.0], [[0.0, 2.0]]).tolist() == [0.5]
    z, y, offsets = rows(2.0, 100)
    both = np.column_stack([y, offsets])
    expected = ClippedLoss(Poisson(), 0.5).value(z + offsets, y)
    np.testing.assert_allclose(clipped.value(z, both), expected)


@pytest.mark.parametrize("shape", [(3, 1), (3, 3), (2, 2), (6,), (1, 2), (3, 2, 1)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="shape"):
        WithOffset(Poisson()).slope(np.zeros(3), np.ones(shape))


def test_offset_of_models_without_one_is_refused():
    with pytest.raises(ValueError, match="convex loss of one output"):
        WithOffset(Softmax())
    for bound in (-1.0, math.nan):
        with pytest.raises(ValueError, match="bound"):
            WithOffset(Logistic(), bound)
