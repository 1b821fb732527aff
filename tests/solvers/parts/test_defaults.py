"""Defaults of the gradient solvers: functions of public facts, in the right units, usable."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import math

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.problem import (
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    OneVsRest,
    Poisson,
    Problem,
    Savage,
    Simplex,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredHinge,
    Tangent,
    Tempered,
    Unconstrained,
)
from dpglm.solvers import Constant, LinearDecay, NoisyGD
from dpglm.solvers.parts import defaults

LOSSES = [
    (Logistic(), 1),
    (Hinge(), 1),
    (SquaredHinge(), 1),
    (SmoothedHinge(1.0), 1),
    (Savage(), 1),
    (Tangent(), 1),
    (Tempered(0.5), 1),
    (Squared(), 1),
    (Huber(0.2), 1),
    (Poisson(), 1),
    (Softmax(), 5),
    (OneVsRest(Hinge(), 5), 5),
]


def spec_for(n_outputs=1, **changes):
    base = DataSpec(n_rows=10_000, n_features=5, n_outputs=n_outputs, intercept=1.0)
    return dataclasses.replace(base, target_low=0.0, target_high=1.0, **changes)


def decided(loss, spec, mu=1.0, **settings):
    method = NoisyGD(**settings).plan(Problem(loss), GaussianDP(mu), spec).method
    return method.n_steps, method.step_sizes[0], method.clipping.bound


def test_no_default_can_see_a_row():
    # Every argument is a public fact or a setting; rows cannot be passed.
    for function in (defaults.clip, defaults.slope_unit, defaults.steps, NoisyGD.plan):
        names = set(inspect.signature(function).parameters)
        assert not names & {"X", "y", "rows", "w", "oracle"}
    assert {type(f) for f in dataclasses.asdict(spec_for()).values()} <= {
        *(int, float, str, bool),
        type(None),
    }


@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=str)
def test_defaults_are_positive_finite_and_deterministic(loss, n_outputs):
    for n, norm, mu in itertools.product((1, 2, 100, 10**7), (1e-3, 1.0, 1e3), (1e-3, 1.0, 1e3)):
        spec = spec_for(n_outputs, n_rows=n, row_norm=norm)
        spec = dataclasses.replace(spec, intercept=norm)
        n_steps, step_size, clip = decided(loss, spec, mu)
        assert 1 <= n_steps <= 400
        assert 0.0 < step_size < math.inf
        assert 0.0 < clip < math.inf
        assert decided(loss, spec, mu) == (n_steps, step_size, clip)


@pytest.mark.parametrize(("loss", "n_outputs"), LOSSES, ids=str)
def test_units_of_the_rows_do_not_matter(loss, n_outputs):
    # Rows k times as long: clip times k, and steps over k squared.
    spec = spec_for(n_outputs)
    longer = dataclasses.replace(spec, row_norm=8.0, intercept=8.0)
    n_steps, step_size, clip = decided(loss, spec)
    assert decided(loss, longer) == pytest.approx((n_steps, step_size / 64.0, clip * 8.0))


def test_given_settings_are_kept():
    spec = spec_for()
    assert decided(Logistic(), spec, n_steps=7)[0] == 7
    assert decided(Logistic(), spec, step_size=0.123)[1] == 0.123
    assert decided(Logistic(), spec, clip=0.077)[2] == 0.077
    assert decided(Logistic(), spec, n_steps=1, step_size=5.0, clip=9.0) == (1, 5.0, 9.0)


def test_travel_grows_with_budget_and_rows():
    def travel(mu, n):
        n_steps, step_size, clip = decided(Logistic(), spec_for(n_rows=n), mu)
        return clip * step_size * float(LinearDecay().factors(n_steps).sum())

    by_mu = [travel(mu, 100) for mu in (0.001, 0.01, 0.1, 1.0, 10.0)]
    by_n = [travel(0.1, n) for n in (10, 100, 1000, 10_000, 10**6)]
    assert by_mu == sorted(by_mu)
    assert by_n == sorted(by_n)
    assert by_n[0] < by_n[-1]


@pytest.mark.parametrize("schedule", [Constant(), LinearDecay()], ids=repr)
def test_small_budgets_keep_the_noise_of_predictions_bounded(schedule):
    # The promise of the docstring: noise in a coefficient is about travel / (mu n).
    for mu in (0.01, 0.1):
        spec = spec_for(n_rows=100)
        method = NoisyGD(schedule=schedule).plan(Problem(Logistic()), GaussianDP(mu), spec).method
        curvature = 0.25
        assert method.coefficient_noise * spec.row_norm <= 1.5 * 0.7 / curvature


def travel(loss, data, mu=1.0):
    method = NoisyGD().plan(Problem(loss), GaussianDP(mu), data).method
    return method.clipping.bound * math.fsum(method.step_sizes)


def test_many_columns_let_the_iterate_travel_less_far():
    # Noise in the prediction of a large row, in units of the noise allowed with data.
    for columns, share in ((9, 1.0), (199, 0.625), (999, 0.25), (159_999, 0.125)):
        data = DataSpec(n_rows=10_000, n_features=columns, intercept=1.0)
        assert travel(Logistic(), data) == pytest.approx(share * 0.7 * 4.0 * 10_000, rel=1e-3)


def test_thin_constraint_removes_most_noise_of_many_columns():
    def travel(constraint):
        data = DataSpec(n_rows=10_000, n_features=999, intercept=1.0)
        problem = Problem(Logistic(), constraint=constraint)
        method = NoisyGD().plan(problem, GaussianDP(1.0), data).method
        return method.clipping.bound * math.fsum(method.step_sizes)

    assert travel(L1Ball(4.0)) == travel(Simplex(4.0)) == pytest.approx(4 * travel(L2Ball(4.0)))
    assert travel(L2Ball(4.0)) == pytest.approx(travel(Unconstrained()))


def test_only_convex_two_sided_losses_travel_less():
    few, many = (DataSpec(10_000, d, target_low=0.0, target_high=1.0) for d in (10, 1000))
    for loss in (Savage(), Poisson()):
        assert travel(loss, many) == pytest.approx(travel(loss, few))
    few, many = (dataclasses.replace(one, n_outputs=3) for one in (few, many))
    assert travel(Softmax(), many) == pytest.approx(travel(Softmax(), few))


def test_slope_units():
    spec = spec_for()
    assert defaults.slope_unit(Logistic(), spec) == 1.0
    assert defaults.slope_unit(Softmax(), spec_for(3)) == pytest.approx(math.sqrt(2.0))
    assert defaults.slope_unit(Huber(0.2), spec) == pytest.approx(0.2)
    wide = dataclasses.replace(spec, target_low=-3.0, target_high=2.0)
    assert defaults.slope_unit(Squared(), wide) == 3.0
    constant = dataclasses.replace(spec, target_low=0.0, target_high=0.0)
    assert defaults.slope_unit(Squared(), constant) == 1.0


def test_the_clip_leaves_balanced_logistic_slopes_alone():
    # A row of full length with its intercept has slope one half where classes are balanced.
    spec = spec_for()
    assert defaults.clip(Logistic(), spec) >= 0.5 * spec.augmented_row_norm


def test_twice_the_sensitivity_is_met_by_half_the_travel():
    # The noise in coefficients limits the travel, under every relation.
    spec = spec_for(n_rows=1000)
    one, two = (
        NoisyGD().plan(Problem(Logistic()), ApproximateDP(0.1, 1e-5), spec, a).method
        for a in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
    )
    assert two.clipping == one.clipping
    assert two.coefficient_noise == pytest.approx(one.coefficient_noise, rel=1e-3)


def test_step_sizes_follow_the_schedule():
    method = (
        NoisyGD(n_steps=4, step_size=2.0, schedule=LinearDecay())
        .plan(Problem(Logistic()), GaussianDP(1.0), spec_for())
        .method
    )
    np.testing.assert_allclose(method.step_sizes, [2.0, 1.5, 1.0, 0.5])


def test_unbounded_targets_are_refused_if_slopes_need_bounds():
    spec = DataSpec(n_rows=100, n_features=2)
    with pytest.raises(ValueError, match="clip"):
        NoisyGD().plan(Problem(Squared()), GaussianDP(1.0), spec)


def test_a_clip_is_in_proportion_to_the_rows():
    data = DataSpec(n_rows=100, n_features=3)
    assert defaults.checked_clip(Logistic(), data, None) == 0.75
    assert defaults.checked_clip(Logistic(), data, 3.0) == 3.0
    for clip in (1e-16, 1e16):
        with pytest.raises(ValueError, match="clip must be 1e-15 to 1e\\+15 times the row norm"):
            defaults.checked_clip(Logistic(), data, clip)
