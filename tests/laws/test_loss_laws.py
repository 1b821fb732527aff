"""Laws of every loss: derivatives, convexity, and declared constants against a witness.

A new loss is one row in CASES.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from dpglm.problem import (
    Binomial,
    ClippedLoss,
    ComplementaryLogLog,
    Gamma,
    Hinge,
    Huber,
    Logistic,
    Loss,
    NegativeBinomial,
    OneVsRest,
    Pinball,
    Poisson,
    Probit,
    Savage,
    SmoothedHinge,
    Softmax,
    Sparsemax,
    Squared,
    SquaredHinge,
    Tangent,
    Target,
    Tempered,
    Tweedie,
    WithOffset,
)

pytestmark = pytest.mark.one_in(4)

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    loss: Loss
    # False where the documentation says that the constant is an upper bound.
    slope_tight: bool = True
    smoothness_tight: bool = True
    # False where it is one even without bounds on predictions and targets.
    tight_everywhere: bool = True
    # For class targets: the numbers of classes to look for a witness in; K_SAMPLE among them.
    n_classes: tuple[int, ...] = ()


K_SAMPLE = 4

CASES = [
    Case(Logistic()),
    Case(Softmax(), slope_tight=False, n_classes=(2, 3, K_SAMPLE, 10, 200)),
    Case(Sparsemax(), slope_tight=False, n_classes=(2, 3, K_SAMPLE, 10, 200)),
    Case(OneVsRest(Logistic(), K_SAMPLE), slope_tight=False, n_classes=(K_SAMPLE,)),
    Case(OneVsRest(SmoothedHinge(), K_SAMPLE), slope_tight=False, n_classes=(K_SAMPLE,)),
    Case(OneVsRest(Savage(), K_SAMPLE), slope_tight=False, n_classes=(K_SAMPLE,)),
    Case(Squared()),
    Case(Huber()),
    Case(Huber(threshold=0.4)),
    Case(Pinball()),
    Case(Pinball(quantile=0.2)),
    Case(Poisson()),
    Case(Poisson(dispersion=None)),
    Case(Gamma()),
    Case(Tweedie()),
    Case(Tweedie(power=1.2)),
    Case(Tweedie(power=1.8)),
    Case(NegativeBinomial()),
    Case(NegativeBinomial(alpha=0.3)),
    Case(NegativeBinomial(alpha=5.0)),
    Case(Binomial()),
    Case(Probit(), smoothness_tight=False),
    Case(ComplementaryLogLog(), smoothness_tight=False),
    Case(Hinge()),
    Case(SquaredHinge()),
    Case(SmoothedHinge()),
    Case(SmoothedHinge(width=0.4)),
    Case(SmoothedHinge(width=3.0)),
    Case(Savage()),
    Case(Tangent()),
    Case(Tempered(0.0)),
    Case(Tempered(0.3)),
    Case(Tempered(0.9)),
    Case(ClippedLoss(Logistic(), 0.3)),
    Case(ClippedLoss(Logistic(), 0.8)),
    Case(ClippedLoss(ClippedLoss(Logistic(), 0.8), 0.2)),
    Case(ClippedLoss(Poisson(), 2.0)),
    Case(WithOffset(Poisson(), bound=0.0)),
    Case(WithOffset(Gamma(), bound=0.0)),
    Case(WithOffset(NegativeBinomial(0.5), bound=0.0)),
    Case(ClippedLoss(WithOffset(Poisson(), bound=0.0), 2.0)),
    Case(ClippedLoss(Gamma(), 0.6), slope_tight=False, smoothness_tight=False),
    Case(ClippedLoss(Tweedie(1.3), 2.0), smoothness_tight=False),
    Case(ClippedLoss(NegativeBinomial(0.5), 1.2), smoothness_tight=False, tight_everywhere=False),
    Case(ClippedLoss(Binomial(), 0.3), smoothness_tight=False),
    Case(ClippedLoss(Probit(), 0.7), smoothness_tight=False, tight_everywhere=False),
    Case(ClippedLoss(ComplementaryLogLog(), 0.6), smoothness_tight=False, tight_everywhere=False),
    Case(ClippedLoss(Pinball(0.3), 0.2), smoothness_tight=False),
    Case(ClippedLoss(Squared(), 0.7), smoothness_tight=False),
    Case(ClippedLoss(Huber(), 0.7), smoothness_tight=False),
    Case(ClippedLoss(Hinge(), 0.4), smoothness_tight=False),
    Case(ClippedLoss(SquaredHinge(), 1.5), smoothness_tight=False),
    Case(ClippedLoss(SmoothedHinge(), 0.5), smoothness_tight=False),
]
INF = math.inf
# (z_bound, y_low, y_high): symmetric, asymmetric, one-sided, degenerate and unbounded.
RANGES = {
    Target.BINARY: [(b, -1, 1) for b in (0.0, 0.1, 0.5, 0.99, 1.0, 1.7, 6.0, INF)]
    + [(0.5, 1, 1), (2.0, -1, -1)],
    Target.CLASS: [(b, 0, INF) for b in (0.0, 0.3, 1.0, 5.0, INF)],
    Target.REAL: [
        (1.0, -3, 3),
        (1.0, -2, 5),
        (1.0, -5, 2),
        (3.0, 4, 9),
        (2.0, -9, -7),
        (0.0, -2, 5),
        (0.0, 0, 0),
        (0.0, 0, 4),
        (1.0, 0, 0),
        (INF, -1, 2),
        (1.0, -INF, INF),
        (1.0, 0, INF),
        (0.0, -INF, 0),
    ],
    Target.COUNT: [
        (1.0, 0, 5),
        (0.0, 0, 5),
        (0.0, 0, 0),
        (2.0, 0, 0),
        (2.0, 3, 9),
        (3.0, 20, 50),
        (0.0, 1, 1),
        (INF, 0, 4),
        (1.0, 0, INF),
        (INF, 0, INF),
    ],
    Target.POSITIVE: [
        (1.0, 0.5, 5),
        (0.0, 0.5, 5),
        (2.0, 3, 9),
        (3.0, 20, 50),
        (0.0, 1, 1),
        (INF, 0.5, 4),
        (1.0, 0, INF),
        (INF, 0, INF),
    ],
    Target.PROPORTION: [(b, 0, 1) for b in (0.0, 0.1, 0.5, 1.0, 1.7, 6.0, INF)]
    + [(1.0, 0.2, 0.7), (2.0, 0, 0), (0.5, 1, 1), (0.0, 0.5, 0.5), (INF, 0, 0.4)],
}
# Finite stand-ins for infinity in a witness: for predictions and for targets.
FAR = 60.0
FAR_TARGET = 1000.0


def name(case: Case) -> str:
    return repr(case.loss)


every_loss = pytest.mark.parametrize("case", CASES, ids=name)
every_range = pytest.mark.parametrize(
    ("case", "bounds"),
    [(case, bounds) for case in CASES for bounds in RANGES[case.loss.target]],
    ids=lambda v: name(v) if isinstance(v, Case) else str(v),
)


# Samplers: points (z, y) with |z| <= z_bound that reach every corner of the range.


def scalar_points(loss: Loss, z_bound: float, y_low: float, y_high: float) -> tuple[Array, Array]:
    reach = min(z_bound, FAR)
    fine = np.linspace(-min(reach, 4), min(reach, 4), 4001)
    z = np.unique(np.concatenate([np.linspace(-reach, reach, 1201), fine]))
    low, high = max(y_low, -FAR_TARGET), min(y_high, FAR_TARGET)
    y = np.unique(np.clip([low, high, (low + high) / 2, 0, 1, 2, 4], low, high))
    if loss.target is Target.BINARY:
        y = np.unique([low, high])
    return np.tile(z, y.size), np.repeat(y, z.size)


def class_points(n_classes: int, z_bound: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(5)
    reach = min(z_bound, FAR)
    corner = np.eye(n_classes)
    directions = [(corner[1] - corner[0])[None], (1 - 2 * corner[0])[None], corner, -corner]
    directions.append(rng.normal(size=(50, n_classes)))
    unit = np.concatenate(directions)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    z = np.concatenate([unit * reach * t for t in (0, 0.01, 0.02, 0.03, 0.1, 0.3, 0.6, 1)])
    return z, np.zeros(len(z), dtype=np.int64)


def witness_slope(case: Case, z_bound: float, y_low: float, y_high: float) -> float:
    """Largest norm of a slope that was found in the range."""
    loss = case.loss
    if loss.target is Target.CLASS:
        found = [loss.slope(*class_points(k, z_bound)) for k in case.n_classes]
        return max(float(np.linalg.norm(g, axis=1).max()) for g in found)
    return float(np.abs(loss.slope(*scalar_points(loss, z_bound, y_low, y_high))).max())


def witness_smoothness(case: Case, z_bound: float, y_low: float, y_high: float) -> float:
    """Largest quotient |slope(z1) - slope(z2)| / |z1 - z2|, or curvature, found in the range."""
    loss = case.loss
    if loss.target is Target.CLASS:
        return max(class_quotient(loss, k, z_bound) for k in case.n_classes if k <= 10)
    z, y = scalar_points(loss, z_bound, y_low, y_high)
    largest = float(np.abs(loss.curvature(z, y)).max())
    g = loss.slope(z, y)
    same_y = (np.diff(y) == 0) & (np.diff(z) > 1e-9)
    quotients = np.abs(np.diff(g)[same_y] / np.diff(z)[same_y])
    return max(largest, float(quotients.max(initial=0.0)))


def class_quotient(loss: Loss, n_classes: int, z_bound: float) -> float:
    z, y = class_points(n_classes, z_bound)
    rng = np.random.default_rng(6)
    corner = np.eye(n_classes)
    step = np.concatenate([rng.normal(size=(9, n_classes)), corner, corner[:1] - corner[1:2]])
    step *= 1e-4 / np.linalg.norm(step, axis=1, keepdims=True)
    moved = [np.linalg.norm(loss.slope(z + s, y) - loss.slope(z - s, y), axis=1) for s in step]
    # No entry of the Hessian's diagonal exceeds its operator norm.
    return max(float(np.max(moved)) / 2e-4, float(np.abs(loss.curvature(z, y)).max()))


def verdict(declared: float, witness: float, *, unbounded: float = 40.0) -> str:
    """Compare a declared supremum with a witness: ok, exceeded, or loose by more than 1 %."""
    if witness > declared * (1 + 1e-7) + 1e-12:
        return "exceeded"
    attained = witness >= unbounded if declared == INF else witness >= 0.99 * declared - 1e-12
    return "ok" if attained else "loose"


@every_range
def test_slope_bound(case: Case, bounds: tuple[float, float, float]) -> None:
    declared = case.loss.slope_bound_on(*bounds)
    found = verdict(declared, witness_slope(case, *bounds))
    assert found == "ok" or (found == "loose" and not case.slope_tight)


@every_range
def test_smoothness(case: Case, bounds: tuple[float, float, float]) -> None:
    declared = case.loss.smoothness_on(*bounds)
    found = verdict(declared, witness_smoothness(case, *bounds))
    assert found == "ok" or (found == "loose" and not case.smoothness_tight)


@every_loss
def test_global_constants_are_tight(case: Case) -> None:
    loss, everything = case.loss, (INF, *case.loss.target.bounds)
    assert loss.slope_bound == loss.slope_bound_on(*everything)
    assert loss.smoothness == loss.smoothness_on(*everything)
    assert verdict(loss.slope_bound, witness_slope(case, *everything)) == "ok"
    if case.smoothness_tight or loss.smoothness < INF:
        found = verdict(loss.smoothness, witness_smoothness(case, *everything))
        assert found == "ok" or (found == "loose" and not case.tight_everywhere)


@every_loss
def test_constants_grow_with_the_range(case: Case) -> None:
    loss = case.loss
    low, high = loss.target.bounds
    inner = (max(low, 0.0), min(high, 1.0))
    for constant in (loss.slope_bound_on, loss.smoothness_on):
        values = [constant(b, *inner) for b in (0.0, 0.2, 1.0, 3.0, 50.0, 1e4, INF)]
        assert all(b >= a * (1 - 1e-12) for a, b in itertools.pairwise(values))
        assert constant(1.0, *inner) <= constant(1.0, low, high)


@every_loss
def test_a_wrong_constant_is_caught(case: Case) -> None:
    """The witness that accepts the declared constants rejects half and twice of them."""
    loss = case.loss
    low, high = loss.target.bounds
    bounds = (2.0, max(low, 1.0), min(high, 3.0))
    if loss.target is Target.CLASS:
        bounds = (INF if loss.slope_bound < INF else 2.0, low, high)
    slope, curve = witness_slope(case, *bounds), witness_smoothness(case, *bounds)
    assert verdict(loss.slope_bound_on(*bounds) / 2, slope) == "exceeded"
    assert verdict(loss.slope_bound_on(*bounds) * 2, slope) == "loose"
    if loss.smoothness_on(*bounds) < INF:
        assert verdict(loss.smoothness_on(*bounds) / 2, curve) == "exceeded"
        assert verdict(loss.smoothness_on(*bounds) * 2, curve) == "loose"
    else:
        # A jump of the slope passes any finite smoothness that one might declare.
        assert verdict(10.0, curve) == "exceeded"


def test_softmax_norm_taken_for_the_binary_one_is_caught() -> None:
    assert verdict(1.0, witness_slope(Case(Softmax(), n_classes=(3,)), INF, 0, INF)) == "exceeded"


@every_loss
@pytest.mark.parametrize("bad", [(-1.0, 0, 1), (math.nan, 0, 1), (1.0, 1, 0), (1.0, math.nan, 1)])
def test_a_bad_range_is_refused(case: Case, bad: tuple[float, float, float]) -> None:
    for constant in (case.loss.slope_bound_on, case.loss.smoothness_on):
        with pytest.raises(ValueError, match=r"z_bound|y_low"):
            constant(*bad)


def test_a_range_outside_the_target_is_refused() -> None:
    for loss, low, high in [(Poisson(), -1, 3), (Logistic(), -2, 1), (Squared(), INF, INF)]:
        with pytest.raises(ValueError, match="y_low and y_high"):
            loss.slope_bound_on(1.0, low, high)


# Derivatives.


def sample(loss: Loss, n: int, scale: float = 3.0, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    draw: dict[Target, Callable[[], Array]] = {
        Target.BINARY: lambda: rng.choice([-1.0, 1.0], size=n),
        Target.CLASS: lambda: rng.integers(0, K_SAMPLE, size=n),
        Target.REAL: lambda: rng.normal(size=n) * 2,
        Target.COUNT: lambda: rng.poisson(3.0, size=n).astype(float),
        Target.POSITIVE: lambda: rng.gamma(2.0, size=n),
        Target.PROPORTION: lambda: rng.integers(0, 5, size=n) / 4,
    }
    shape = (n, K_SAMPLE) if loss.target is Target.CLASS else (n,)
    return rng.normal(size=shape) * scale, draw[loss.target]()


def derivative_errors(loss: Loss, h: float = 1e-5) -> tuple[float, float]:
    """Largest deviation of slope and curvature from central differences, away from kinks."""
    z, y = sample(loss, 4000)
    steps = np.eye(K_SAMPLE) if loss.target is Target.CLASS else [np.float64(1)]
    slope_error = curvature_error = 0.0
    for e in steps:
        along = (lambda v, e=e: v @ e) if loss.target is Target.CLASS else (lambda v: v)
        up, down = (loss.value(z + s * h * e, y) for s in (1, -1))
        g_up, g_down = (along(loss.slope(z + s * h * e, y)) for s in (1, -1))
        c_up, c_down = (along(loss.curvature(z + s * h * e, y)) for s in (1, -1))
        scale = 1 + np.abs(g_up) + np.abs(c_up)
        kink = (np.abs(g_up - g_down) > 0.1) | (np.abs(c_up - c_down) > 0.01 * scale)
        assert kink.mean() < 0.01
        slope = np.abs((up - down) / (2 * h) - along(loss.slope(z, y))) / scale
        curve = np.abs((g_up - g_down) / (2 * h) - along(loss.curvature(z, y))) / scale
        slope_error = max(slope_error, float(slope[~kink].max()))
        curvature_error = max(curvature_error, float(curve[~kink].max()))
    return slope_error, curvature_error


def two_targets(loss: Loss) -> tuple[float, float]:
    return 1.0, max(loss.target.bounds[0], -1.0) if loss.target.bounds[1] == 1 else 4.0


@every_loss
def test_derivatives_are_those_of_the_value(case: Case) -> None:
    slope_error, curvature_error = derivative_errors(case.loss)
    assert slope_error < 1e-7
    assert curvature_error < 1e-6


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.loss.target is not Target.CLASS], ids=name
)
def test_the_value_is_the_integral_of_the_slope_across_kinks(case: Case) -> None:
    z = np.linspace(-6, 6, 24001)
    middle = (z[1:] + z[:-1]) / 2
    for y in two_targets(case.loss):
        value = case.loss.value(z, np.full_like(z, y))
        slope = case.loss.slope(middle, np.full_like(middle, y))
        integral = np.concatenate([[0.0], np.cumsum(slope * np.diff(z))])
        np.testing.assert_allclose(value - value[0], integral, atol=5e-4)


@dataclass(frozen=True)
class Planted(Loss):
    """A loss with a bug: its slope, or its curvature, is off by a factor."""

    loss: Loss
    slope_factor: float = 1.0
    curvature_factor: float = 1.0

    target = property(lambda self: self.loss.target)
    convex = property(lambda self: self.loss.convex)
    nonnegative = property(lambda self: self.loss.nonnegative)
    link = property(lambda self: self.loss.link)

    def _inputs(self, z: ArrayLike, y: ArrayLike) -> tuple[Array, Array]:
        return np.asarray(z), np.asarray(y)

    def _value(self, z: Array, y: Array) -> Array:
        return self.loss.value(z, y)

    def _slope(self, z: Array, y: Array) -> Array:
        return self.slope_factor * self.loss.slope(z, y)

    def _curvature(self, z: Array, y: Array) -> Array:
        return self.curvature_factor * self.loss.curvature(z, y)

    def _slope_bound_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.slope_bound_on(z_bound, y_low, y_high)

    def _smoothness_on(self, z_bound: float, y_low: float, y_high: float) -> float:
        return self.loss.smoothness_on(z_bound, y_low, y_high)


@every_loss
def test_a_wrong_derivative_is_caught(case: Case) -> None:
    assert derivative_errors(Planted(case.loss, slope_factor=1.001))[0] > 1e-5
    if float(np.abs(case.loss.curvature(*sample(case.loss, 400))).max()) > 0:
        assert derivative_errors(Planted(case.loss, curvature_factor=1.01))[1] > 1e-4
    # A clip that is forgotten shows as a slope above the declared bound.
    if case.loss.slope_bound < INF:
        bounds = (INF, *case.loss.target.bounds)
        planted = dataclasses.replace(case, loss=Planted(case.loss, slope_factor=1.5))
        steep = witness_slope(planted, *bounds)
        assert verdict(case.loss.slope_bound, steep) == "exceeded"


# Convexity and sign.

ENDS = {
    Target.BINARY: (-1.0, 1.0),
    Target.REAL: (0.0, 5.0),
    Target.COUNT: (0.0, 5.0),
    Target.POSITIVE: (0.5, 5.0),
    Target.PROPORTION: (0.0, 1.0),
}


@every_loss
def test_convexity_is_as_declared(case: Case) -> None:
    loss = case.loss
    if loss.target is Target.CLASS:
        z, y = sample(loss, 2000)
        u, _ = sample(loss, 2000, seed=1)
        gap = loss.value(u, y) - loss.value(z, y) - np.sum(loss.slope(z, y) * (u - z), axis=1)
        assert (gap.min() >= -1e-12) == loss.convex
        return
    z, y = scalar_points(loss, 30.0, *ENDS[loss.target])
    rises = np.diff(loss.slope(z, y))[np.diff(y) == 0]
    assert (rises.min() >= -1e-12 * np.abs(loss.slope(z, y)).max()) == loss.convex
    assert (loss.curvature(z, y).min() >= 0) == loss.convex


@every_loss
def test_the_sign_is_as_declared(case: Case) -> None:
    z, y = sample(case.loss, 4000, scale=30.0)
    assert (case.loss.value(z, y).min() >= 0) == case.loss.nonnegative


# Numbers: extreme predictions, dtypes, shapes.


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_predictions_are_finite_and_keep_the_dtype(case: Case, dtype: type) -> None:
    loss = case.loss
    z = np.array([-1e4, -800, -100, -1, 0, 1, 100, 800, 1e4], dtype=dtype)
    y = np.ones(z.size, dtype=dtype)
    if loss.target is Target.CLASS:
        z, y = np.stack([z, -z, 0 * z, z / 2], axis=1), np.arange(z.size) % K_SAMPLE
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        for sign in (1, -1) if loss.target is Target.BINARY else (1,):
            for method in (loss.value, loss.slope, loss.curvature):
                result = method(z, sign * y)
                assert result.dtype == dtype
                assert np.isfinite(result).all()
        if loss.link is not None:
            assert loss.link.inverse(z).dtype == dtype
            assert np.isfinite(loss.link.inverse(z)).all()


@every_loss
def test_slopes_at_extreme_predictions_are_those_of_the_value(case: Case) -> None:
    if case.loss.target is Target.CLASS:
        z = np.array([[1e4, -1e4, 2e3, -2e3], [-1e4, 1e4, -2e3, 2e3]])
        for e in np.eye(K_SAMPLE):
            difference = case.loss.value(z + e, [1, 1]) - case.loss.value(z - e, [1, 1])
            np.testing.assert_allclose(difference / 2, case.loss.slope(z, [1, 1]) @ e, atol=1e-9)
        return
    z = np.array([-1e4, -2e3, 2e3, 1e4])
    for y in two_targets(case.loss):
        targets = np.full_like(z, y)
        slope = case.loss.slope(z, targets)
        difference = case.loss.value(z + 1, targets) - case.loss.value(z - 1, targets)
        np.testing.assert_allclose(difference / 2, slope, rtol=1e-7, atol=1e-7)


@every_loss
def test_float32_agrees_with_float64(case: Case) -> None:
    z, y = sample(case.loss, 2000)
    z = z.astype(np.float32).astype(np.float64)
    y = y if case.loss.target is Target.CLASS else y.astype(np.float32).astype(np.float64)
    narrow_y = y if case.loss.target is Target.CLASS else y.astype(np.float32)
    for method in (case.loss.value, case.loss.slope):
        wide, narrow = method(z, y), method(z.astype(np.float32), narrow_y)
        assert narrow.dtype == np.float32
        np.testing.assert_allclose(narrow, wide, rtol=2e-5, atol=2e-5 * (1 + np.abs(z).max()))
        # The targets' dtype does not decide the result's.
        assert method(z.astype(np.float32), y).dtype == np.float32


@every_loss
def test_arguments_are_left_alone_and_results_are_new(case: Case) -> None:
    z, y = sample(case.loss, 50)
    z_before, y_before = z.copy(), y.copy()
    for method in (case.loss.value, case.loss.slope, case.loss.curvature):
        result = method(z, y)
        assert not np.shares_memory(result, z)
        assert not np.shares_memory(result, y)
        result += 1
    np.testing.assert_array_equal(z, z_before)
    np.testing.assert_array_equal(y, y_before)


@every_loss
def test_rows_do_not_see_each_other(case: Case) -> None:
    z, y = sample(case.loss, 101)
    for method in (case.loss.value, case.loss.slope, case.loss.curvature):
        one_by_one = np.concatenate([method(z[i : i + 1], y[i : i + 1]) for i in range(101)])
        np.testing.assert_allclose(method(z, y), one_by_one, rtol=1e-14, atol=1e-14)
        assert method(z[:0], y[:0]).shape[0] == 0


@every_loss
def test_shapes_that_would_broadcast_are_refused(case: Case) -> None:
    z, y = sample(case.loss, 6)
    wrong = [(z, y[:, None]), (z, y[:3]), (z, y[0]), (z[0], y), (z[:1], y), (z, y[:1])]
    if case.loss.target is not Target.CLASS:
        wrong += [(z[:, None], y), (z[:, None], y[:, None])]
    for bad_z, bad_y in wrong:
        for method in (case.loss.value, case.loss.slope, case.loss.curvature):
            with pytest.raises(ValueError, match="shape"):
                method(bad_z, bad_y)


@every_loss
def test_a_loss_is_a_value(case: Case) -> None:
    assert pickle.loads(pickle.dumps(case.loss)) == case.loss == copy.deepcopy(case.loss)
    assert hash(case.loss) == hash(copy.deepcopy(case.loss))
    with pytest.raises(AttributeError):
        case.loss.anything = 1


# Families: a slope is that of the deviance with the declared variance.


def score_factors(loss: Loss, variance: Callable[[Array], Array | None]) -> Array | None:
    """Ratio of slopes to ``(mean - y) / variance dmean/dz``: constant if it is right."""
    z, y = sample(loss, 400, scale=0.5)
    assert loss.link is not None
    h = 1e-5
    mean = loss.link.inverse(z)
    declared = variance(mean)
    if declared is None:
        return None
    rise = (loss.link.inverse(z + h) - loss.link.inverse(z - h)) / (2 * h)
    target = (y + 1) / 2 if loss.target is Target.BINARY else y
    score: Array = (mean - target) / declared * rise
    return loss.slope(z, y)[score != 0] / score[score != 0]


FAMILIES = [
    case
    for case in CASES
    if case.loss.variance(np.ones(1)) is not None and not isinstance(case.loss, ClippedLoss)
]


@pytest.mark.parametrize("case", FAMILIES, ids=name)
def test_the_variance_is_that_of_the_likelihood(case: Case) -> None:
    loss = case.loss
    factors = score_factors(loss, loss.variance)
    assert factors is not None
    np.testing.assert_allclose(factors, factors[0], rtol=1e-6)
    wrong = score_factors(loss, lambda mean: 1 + 3 * mean**3)
    assert wrong is not None
    assert wrong.max() > 1.1 * wrong.min()


@pytest.mark.parametrize("case", FAMILIES, ids=name)
def test_link_is_canonical_iff_curvature_ignores_target(case: Case) -> None:
    loss = case.loss
    assert loss.link is not None
    z, y = sample(loss, 400, scale=1.0)
    _, other = sample(loss, 400, scale=1.0, seed=1)
    same = np.allclose(loss.curvature(z, y), loss.curvature(z, other), rtol=1e-9)
    assert same == loss.canonical
    if loss.canonical:
        variance = loss.variance(loss.link.inverse(z))
        assert variance is not None
        np.testing.assert_allclose(loss.curvature(z, y), variance, rtol=1e-9)


# Targets in other units.

RANGE = {
    Target.REAL: (-3.0, 9.0),
    Target.COUNT: (0.0, 9.0),
    Target.POSITIVE: (0.5, 9.0),
    Target.PROPORTION: (0.0, 1.0),
}


def factor_of_standardized_slopes(loss: Loss, scaled: Loss) -> Array:
    """Ratio of slopes at the scores that the link makes of standardized ones."""
    low, high = RANGE[loss.target]
    assert loss.link is not None
    shift, scale = loss.link.standardization(low, high)
    y = np.linspace(low, high, 40)
    z = np.random.default_rng(0).normal(size=40)
    factor, offset = loss.link.original_scores(shift, scale)
    factors: Array = loss.slope(factor * z + offset, y) / scaled.slope(z, (y - shift) / scale)
    return factors


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.loss.for_scaled_targets(2.0) is not None], ids=name
)
def test_standardized_targets_have_the_same_minimisers(case: Case) -> None:
    assert case.loss.link is not None
    _, scale = case.loss.link.standardization(*RANGE[case.loss.target])
    scaled = case.loss.for_scaled_targets(scale)
    assert scaled is not None
    factors = factor_of_standardized_slopes(case.loss, scaled)
    assert factors.min() > 0.0
    np.testing.assert_allclose(factors, factors[0], rtol=1e-9)
    means = np.array([0.5, 2.0, 6.0])
    declared, own = case.loss.variance(means), scaled.variance(means / scale)
    if declared is not None and own is not None:
        dispersion = 1.0 if case.loss.dispersion is None else case.loss.dispersion
        ratios = declared * dispersion / (own * scale**2)
        free = case.loss.dispersion is None
        assert (scaled.dispersion is None) == free
        np.testing.assert_allclose(ratios, ratios[0] if free else scaled.dispersion, rtol=1e-12)


def test_a_loss_that_is_not_scaled_with_its_targets_is_found_out() -> None:
    factors = factor_of_standardized_slopes(Huber(2.0), Huber(2.0))
    assert factors.max() > 1.5 * factors.min()
