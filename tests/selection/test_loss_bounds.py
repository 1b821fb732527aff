"""Bounds for clipped losses: public, and true where stated."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.problem import (
    Hinge,
    Huber,
    Logistic,
    OneVsRest,
    Poisson,
    Savage,
    Softmax,
    Squared,
    Tangent,
    Target,
    Tempered,
)
from dpglm.selection.choices import default_loss_bound, largest_at_zero, largest_within

LOSSES = [
    Logistic(),
    Hinge(),
    Squared(),
    Huber(0.5),
    Savage(),
    Tangent(),
    Tempered(0.5),
    Softmax(),
    OneVsRest(Hinge(), 4),
]


def spec_for(loss, **options):
    is_class = loss.target is Target.CLASS
    options = {"target_low": -2.0, "target_high": 1.0} | options
    return DataSpec(100, 3, n_outputs=4 if is_class else 1, row_norm=2.0, intercept=1.5, **options)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("norm", [1e-3, 1.0, 30.0])
def test_no_row_loses_more_within_the_ball(loss, norm):
    rng = np.random.default_rng(0)
    spec = spec_for(loss)
    n = 2000
    x = rng.normal(size=(n, 4))
    x *= spec.augmented_row_norm / np.linalg.norm(x, axis=1, keepdims=True)
    shape = (4, 4) if spec.n_outputs > 1 else (4,)
    w = x[0][:, None] * np.array([1, -1, 0, 0]) if spec.n_outputs > 1 else x[0].copy()
    w *= norm / np.linalg.norm(w)
    targets = {
        Target.BINARY: [-1.0, 1.0],
        Target.CLASS: [0, 1, 2, 3],
        Target.REAL: [-2.0, 0.3, 1.0],
    }
    y = rng.choice(targets[loss.target], n)
    assert w.shape == shape
    worst = loss.value(x @ w, y).max()
    bound = largest_within(loss, spec, norm)
    assert worst <= bound
    at_zero = loss.value(np.zeros_like(x @ w), y).max()
    assert at_zero == pytest.approx(largest_at_zero(loss, spec))
    assert largest_at_zero(loss, spec) <= bound
    assert default_loss_bound(loss, spec) == 4.0 * largest_at_zero(loss, spec)


def test_bounds_that_cannot_be_had_are_named():
    with pytest.raises(ValueError, match=r"loss must be nonnegative.*Poisson"):
        largest_at_zero(Poisson(), spec_for(Poisson(), target_low=0.0))
    unbounded = spec_for(Squared(), target_high=np.inf)
    with pytest.raises(ValueError, match="targets must have public bounds"):
        default_loss_bound(Squared(), unbounded)


def test_a_target_that_is_always_zero_has_a_bound_all_the_same():
    constant = spec_for(Squared(), target_low=0.0, target_high=0.0)
    assert largest_at_zero(Squared(), constant) == 1.0
