"""Pitfalls of sensitivity: the effect of one row on a sum, and missing clips."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import integrate, sparse

from dpglm import NoisyGD, Ridge
from dpglm.data import collection, prepare
from dpglm.data.compiled import kernels
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.oracle import clipping, gradients, rounding
from dpglm.oracle import objective as minimizers
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import LastIterate, Repeated
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.problem import L2, Logistic, Problem, Softmax, Squared
from dpglm.solvers import Constant, OutputPerturbation, run
from dpglm.solvers import base as planning
from dpglm.solvers.gradient import noisy_gd_method
from dpglm.solvers.gradient import noisy_gd_method as amplification
from dpglm.tables.encoding import ColumnScaling, column_scaling
from tests.laws.transcripts import listening
from tests.pitfalls.support import SHORT, caught, model, small, unasked
from tests.planted import pythonic, unclipped


def asked(estimator, X, y, **fit):
    """Exact sums that a fit asks for, in order."""
    with listening() as seen:
        estimator.fit(X, y, **fit)
    return seen.asked


def first_sum(estimator, X, y, **fit):
    return asked(estimator, X, y, **fit)[0].exact


# 1. Bounds misread: lower bound used twice, so that a statistic was released exactly.


def both_ends_are_used(bounds):
    low, high = bounds
    inside = np.array([[low], [high], [(low + high) / 2], [low - 9.0], [high + 9.0]])
    scaled = column_scaling(bounds, 1).apply(inside).ravel()
    np.testing.assert_allclose(scaled, [-1, 1, 0, -1, 1], atol=1e-12)


def nothing_is_released_exactly(bounds):
    X = np.linspace(bounds[0] - 1, bounds[1] + 1, 20)[:, np.newaxis]
    y = np.arange(20) % 2
    for make, target in (
        (lambda: model(row_norm=None, feature_bounds=bounds), y),
        (lambda: Ridge(row_norm=2.0, target_bounds=bounds, solver=SHORT), X.ravel()),
    ):
        one, two = (make().fit(X, target) for _ in range(2))
        assert not np.isin(one.coef_, two.coef_).any()
        assert not np.isin(one.intercept_, two.intercept_).any()


BOUNDS = [(-1.0, 3.0), (0.0, 4.0), (-4.0, 0.0), (2.0, 3.0), (-3.0, -2.0)]


@pytest.mark.parametrize("bounds", BOUNDS)
def test_pitfall_01_asymmetric_bounds_use_both_ends(bounds):
    def lower_twice(self, X):
        return np.clip(X, self.low, self.low)

    caught(mock.patch.object(ColumnScaling, "clip", lower_twice), both_ends_are_used, bounds)


@pytest.mark.parametrize("bounds", BOUNDS[:3])
def test_pitfall_01_nothing_is_released_exactly(bounds):
    silent = mock.patch.object(additive, "add_gaussian", lambda value, *_: np.array(value))
    caught(silent, nothing_is_released_exactly, bounds)


# 2. The curvature of a row's loss is c R^2, not c R.


def steps_are_amplified_up_to_two_over_the_curvature(norm):
    spec = DataSpec(n_rows=100, n_features=1, row_norm=norm)
    largest = 2.0 / (0.25 * norm**2)
    for factor, holds in ((1.0 - 1e-9, True), (1.0 + 1e-6, False)):
        solver = NoisyGD(
            n_steps=5,
            step_size=largest * factor,
            clip=norm,
            momentum=0.0,
            schedule=Constant(),
        )
        plan = solver.plan(Problem(Logistic(), L2(0.1 * norm**2)), GaussianDP(1.0), spec)
        assert (plan.method.amplified is not None) is holds


@pytest.mark.parametrize("norm", [0.01, 100.0])
def test_pitfall_02_curvature_grows_with_squared_row_norm(norm):
    honest = Logistic.smoothness_on

    def for_linear(self, *args):
        return honest(self, *args) / norm

    bug = mock.patch.object(Logistic, "smoothness_on", for_linear)
    caught(bug, steps_are_amplified_up_to_two_over_the_curvature, norm)


def exact_delta(epsilon, norm, sigma, eta, penalty):
    """Hockey-stick divergence of two noisy steps on one row of that norm, against none, in 1-D."""
    clip = norm
    shrink = 1.0 / (1.0 + eta * penalty)

    def log_density(w, present):
        # w2 = shrink (w1 - eta (g(w1) + noise)), w1 likewise from zero; integrate over w1.
        scale = shrink * eta * sigma * clip

        def g(u):
            return np.where(present, -norm / (1.0 + np.exp(np.clip(norm * u, -700, 700))), 0.0)

        grid = np.linspace(-9 * scale, 9 * scale + shrink * eta * clip, 4001)
        first = -0.5 * ((grid + shrink * eta * g(0.0)) / scale) ** 2
        mean = shrink * (grid - eta * g(grid))
        second = -0.5 * ((w[:, np.newaxis] - mean) / scale) ** 2
        total = first + second
        top = total.max(axis=1)
        step = grid[1] - grid[0]
        inner = np.exp(total - top[:, np.newaxis]).sum(axis=1) * step
        return top + np.log(inner) - math.log(2 * math.pi * scale**2)

    reach = 20 * shrink * eta * sigma * clip
    w = np.linspace(-reach, reach, 801)
    p, q = log_density(w, True), log_density(w, False)
    one = integrate.trapezoid(np.maximum(np.exp(p) - np.exp(epsilon + q), 0.0), w)
    other = integrate.trapezoid(np.maximum(np.exp(q) - np.exp(epsilon + p), 0.0), w)
    return max(float(one), float(other))


def density_ratios_stay_under_the_claim(norm):
    penalty, eta = 0.5 * norm**2, 1.0 / norm**2
    spec = DataSpec(n_rows=1, n_features=1, row_norm=norm)
    solver = NoisyGD(n_steps=2, step_size=eta, clip=norm, momentum=0.0, schedule=Constant())
    plan = solver.plan(Problem(Logistic(), L2(penalty)), ApproximateDP(1.0, 1e-3), spec)
    assert isinstance(plan.event, LastIterate)
    assert exact_delta(1.0, norm, plan.method.noise.multiplier, eta, penalty) <= 1e-3


@pytest.mark.parametrize("norm", [0.01, 1.0, 100.0])
def test_pitfall_02_exact_densities_stay_under_the_claim(norm):
    # The wrong curvature gives a false contraction, and too little noise.
    honest = planning.calibrate

    def too_little(*args, **options):
        return 0.4 * honest(*args, **options)

    bug = unasked(mock.patch.object(planning, "calibrate", too_little))
    caught(bug, density_ratios_stay_under_the_claim, norm)


# 3. An intercept without a penalty breaks strong convexity.


def a_free_intercept_is_not_amplified():
    solver = NoisyGD(n_steps=9, step_size=0.1, clip=0.5, momentum=0.0, schedule=Constant())
    X, y = small()
    free = model(solver=solver, C=0.1).fit(X, y)
    tied = model(solver=solver, C=0.1, penalize_intercept=True).fit(X, y)
    assert isinstance(free.privacy_.event, Repeated)
    assert isinstance(tied.privacy_.event, LastIterate)


def test_pitfall_03_a_free_intercept_is_never_amplified():
    honest = amplification.contraction

    def as_if_tied(problem, *args, **options):
        tied = dataclasses.replace(problem, penalize_intercept=True)
        return honest(tied, *args, **options)

    caught(
        mock.patch.object(noisy_gd_method, "contraction", as_if_tied),
        a_free_intercept_is_not_amplified,
    )


# 4. One path that never clips: tests/laws/test_option_laws.py covers all options.


def a_huge_row_is_clipped(fit_intercept, layout):
    X, y = small()
    X[3] = 1e6
    other = X.copy()
    other[3] = -1e6
    totals = [
        first_sum(
            model(fit_intercept=fit_intercept),
            sparse.csr_array(data) if layout == "csr" else data,
            y,
        )
        for data in (X, other)
    ]
    assert np.linalg.norm(totals[0] - totals[1]) <= 1.0 + 1e-9


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_pitfall_04_row_of_1e6_without_intercept_is_clipped(fit_intercept, layout):
    caught(unclipped(), a_huge_row_is_clipped, fit_intercept, layout)


def no_row_weighs_more_than_declared():
    X, y = small()
    light = model(weight_bound=0.5)
    (first, *_) = asked(light, X[:1] + 9.0, y[:1])
    assert np.linalg.norm(first.exact) <= first.made_for


def test_pitfall_04_unweighted_rows_are_clipped():
    # dpglm's own: such rows counted as 1 where less was declared.
    honest = prepare.prepare_rows

    def weights_left_out(X, y, spec, scaling=None, weights=None, *rest):
        rows = honest(X, y, spec, scaling, weights, *rest)
        rows._weights = weights
        return rows

    bug = mock.patch.object(collection, "prepare_rows", weights_left_out)
    caught(bug, no_row_weighs_more_than_declared)


def clipping_holds(dtype, norm, ratio):
    # Slopes from 1e-40 to 1: squares of small ones underflow, and so may factors.
    clip = ratio * norm
    spec = DataSpec(n_rows=1, n_features=2, n_outputs=3, row_norm=norm, dtype=dtype)
    bound = clip + sum_rounding(spec, Adjacency.ZERO_OUT, clip)
    for gap in np.linspace(0.0, 90.0, 46):
        X = np.array([[0.1 * norm, 0.9 * norm]], dtype=dtype)
        rows = prepare_rows(X, np.array([0]), spec)
        w = np.array([[gap / (0.1 * norm), 0.0, 0.0], [0.0, 0.0, 0.0]])
        total = clipped_gradient_sum(rows, Softmax(), FlatClipping(clip), w)
        assert np.linalg.norm(total) <= bound


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", [1e-15, 1.0, 1e15])
@pytest.mark.parametrize("ratio", [1e-15, 0.5])
def test_pitfall_04_clipping_holds_under_underflow(dtype, norm, ratio):
    caught(unclipped(), clipping_holds, dtype, norm, ratio)


# 5. NaN and infinity as distinguishing events.


def bad_values_are_refused():
    X, y = small()
    for bad in (np.nan, np.inf, -np.inf):
        broken = X.copy()
        broken[2, 1] = bad
        with listening() as seen, pytest.raises(ValueError, match="X must be finite"):
            model().fit(broken, y)
        assert not seen.asked


def overflow_leaves_finite_sums():
    spec = DataSpec(n_rows=3, n_features=1, dtype="float32", target_low=-1.0, target_high=1.0)
    rows = prepare_rows(np.ones((3, 1), dtype=np.float32), np.ones(3), spec)
    for w in (1e300, -1e300):
        total = clipped_gradient_sum(rows, Squared(), FlatClipping(1e30), np.array([w]))
        assert np.isfinite(total).all()


def test_pitfall_05_values_that_are_not_finite_are_refused():
    # Rows that are left out in silence: the divisor is then another, but not the sensitivity.
    def dropped(self, X, y, **options):
        keep = np.isfinite(X).all(axis=1)
        return X[keep], y[keep]

    caught(mock.patch.object(PrivateLinearModel, "_validated", dropped), bad_values_are_refused)


def test_pitfall_05_predictions_that_overflow_do_not_spoil_a_sum():
    with pythonic(), np.errstate(all="ignore"):
        bug = mock.patch.object(gradients, "finite", lambda values: values)
        unbounded = mock.patch.object(FlatClipping, "scale", lambda self, slopes, norms: slopes)
        overflow_leaves_finite_sums()
        with unbounded:
            caught(bug, overflow_leaves_finite_sums)


# 6. The solver stops early, but the proof assumes the exact minimiser.


def released_minimisers_are_exact():
    X, y = np.tile([[0.9, 0.0], [0.1, 0.2]], (25, 1)), np.ones(50)
    spec = DataSpec(n_rows=50, n_features=2, target_low=-1.0, target_high=1.0)
    solver = OutputPerturbation(clip=1.0, strength=0.5)
    plan = solver.plan(Problem(Squared()), GaussianDP(1.0), spec)
    with listening() as seen:
        run(plan, prepare_rows(X, y, spec), SeededNoise(0))
    # No slope is clipped, so the minimiser is that of least squares with a ridge.
    exact = np.linalg.solve(X.T @ X / 50 + 0.5 * np.eye(2), X.T @ y / 50)
    (released,) = seen.asked
    assert np.linalg.norm(released.exact - exact) <= 1e-3 * released.made_for


def test_pitfall_06_minimisers_are_certified():
    # With the rule "stop when the gradient is small":
    # tests/solvers/minimizer/test_output_perturbation.py.
    honest = minimizers.certify

    def trusting(objective, w, gradient):
        return dataclasses.replace(honest(objective, w, gradient), distance=0.0)

    caught(mock.patch.object(minimizers, "certify", trusting), released_minimisers_are_exact)


# 11. Softmax gradients are up to sqrt(2) |x| long; an intercept without noise.


def softmax_gradients_are_clipped_at_their_true_length():
    spec = DataSpec(n_rows=1, n_features=1, n_outputs=3)
    rows = prepare_rows(np.ones((1, 1)), np.array([0]), spec)
    w = np.array([[-60.0, 60.0, 0.0]])
    free = clipped_gradient_sum(rows, Softmax(), FlatClipping(9.0), w)
    short = clipped_gradient_sum(rows, Softmax(), FlatClipping(1.0), w)
    assert np.linalg.norm(free) == pytest.approx(math.sqrt(2.0))
    assert np.linalg.norm(short) == pytest.approx(1.0)
    assert Softmax().slope_bound == pytest.approx(math.sqrt(2.0))


def test_pitfall_11_softmax_slopes_are_clipped_at_true_norm():
    def largest(slopes):
        return abs(slopes).max(axis=1) if slopes.ndim > 1 else abs(slopes)

    with pythonic():
        bug = mock.patch.object(clipping, "_lengths", largest)
        caught(bug, softmax_gradients_are_clipped_at_their_true_length)


def intercepts_have_noise(n_classes):
    X, _ = small()
    y = np.arange(20) % n_classes
    options = {"classes": list(range(n_classes)), "solver": NoisyGD(n_steps=1)}
    fits = [model(**options).fit(X, y).intercept_ for _ in range(2)]
    assert not np.isin(*fits).any()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_pitfall_11_intercepts_get_noise(n_classes):
    add = additive.add_gaussian

    def but_the_last(value, std, k, source):
        noisy = add(value, std, k, source)
        noisy[-1] = value[-1]
        return noisy

    caught(
        mock.patch.object(additive, "add_gaussian", but_the_last),
        intercepts_have_noise,
        n_classes,
    )


# 14. Data clipped, then the unclipped data used. Centring from a slice that something else spends
# too: tests/estimators/composed/test_pipeline.py shows that it is charged once, and not asked for
# twice.


def what_was_clipped_is_summed():
    X, y = small()
    outside, clipped = X * 10.0, np.clip(X * 10.0, -1.0, 1.0)
    options = {"row_norm": None, "feature_bounds": (-1.0, 1.0)}
    np.testing.assert_array_equal(
        first_sum(model(**options), outside, y), first_sum(model(**options), clipped, y)
    )
    ridge = Ridge(row_norm=2.0, target_bounds=(0.0, 1.0), solver=SHORT)
    np.testing.assert_array_equal(first_sum(ridge, X, y * 99.0), first_sum(ridge, X, y * 1.0))


def test_pitfall_14_clipped_rows_are_summed():
    def checked_only(self, X):
        np.clip(X, self.low, self.high)
        return X.copy()

    bug = mock.patch.multiple(ColumnScaling, clip=checked_only)
    with mock.patch.object(kernels, "prepare", return_value=None):
        caught(bug, what_was_clipped_is_summed)


# 16. Sums in another order; noise with low bits that reveal the value.


def rounding_is_in_the_sensitivity():
    X, y = small()
    fitted = model()
    (first, *_) = asked(fitted, X.astype(np.float32), y)
    assert first.made_for > 0.5 + 1e-5
    release = fitted.privacy_.releases[0]
    assert release.scale.std > release.noise_multiplier * (0.5 + 1e-5)


def released_sums_are_on_a_public_grid():
    plan = SHORT.plan(Problem(Logistic()), GaussianDP(1.0), DataSpec(n_rows=4, n_features=2))
    step = 2.0 ** (math.floor(math.log2(plan.method.noise_std * 4.0)) - 25)
    for scale in (0.1, 0.7):
        rows = prepare_rows(np.full((4, 2), scale / 3.0), np.ones(4), plan.data)
        with listening() as seen:
            run(plan, rows, SeededNoise(0))
        for release in seen.asked:
            assert (release.answer % step == 0.0).all()


def test_pitfall_16_rounding_is_in_the_sensitivity():
    # The bound itself, against exact arithmetic: tests/oracle/test_exact_sums.py.
    bugs = mock.patch.multiple(
        rounding, contribution_rounding=lambda spec: 0.0, _gamma=lambda terms, unit: 0.0
    )
    caught(bugs, rounding_is_in_the_sensitivity)


def test_pitfall_16_noise_is_on_a_grid():
    add = additive.add_gaussian

    def naive(value, std, k, source):
        return value + add(np.zeros_like(value), std, k, source)

    bug = mock.patch.object(additive, "add_gaussian", naive)
    caught(bug, released_sums_are_on_a_public_grid)


def no_repair_changes_how_others_are_summed():
    base = np.random.default_rng(0).uniform(0.2, 0.3, size=(3000, 10)).astype(np.float32)
    weights = (np.arange(3000) != 7).astype(float)
    sums = []
    for value in (0.1, 3.0):
        base[7] = value
        spec = DataSpec(n_rows=3000, n_features=5, dtype="float32")
        rows = prepare_rows(base[:, ::2], np.full(3000, 0.4), spec, weights=weights)
        w = np.full(5, 1.0 / 3.0)
        sums.append(clipped_gradient_sum(rows, Squared(), FlatClipping(1.0), w))
    np.testing.assert_array_equal(*sums)


def test_pitfall_16_shortened_row_keeps_order_of_other_sums():
    # dpglm's own: another layout in memory took sums over all rows another way.
    bug = mock.patch.object(prepare, "_in_order", lambda X: X)
    caught(bug, no_repair_changes_how_others_are_summed)
