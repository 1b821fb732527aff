"""Default settings at the worst corners: never far worse than the model that a fit starts from."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm import LogisticRegression, RidgeClassifier
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.preprocessing import Center
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    Gamma,
    Hinge,
    L2Ball,
    Logistic,
    Poisson,
    Problem,
    Savage,
    Simplex,
    Softmax,
    Squared,
    SquaredHinge,
)
from dpglm.solvers import Auto, Newton, NoisyGD, Preprocessed, SufficientStatistics, run
from dpglm.solvers.minimizer import strongly_convex as pure_strength
from dpglm.solvers.parts import defaults as shrinkage
from dpglm.solvers.parts.defaults import is_neutral, shrinkage_factor, shrunk, slope_unit
from dpglm.solvers.second_order import newton


def make_problem(n, d, loss, outputs, signal, seed, constraint=None):
    """Rows of normal columns, intercept included, and the public facts about them."""
    rng = np.random.default_rng(seed)
    X, norm = rng.normal(size=(n, d)), math.sqrt(d)
    z = signal * X @ rng.normal(size=(d, outputs)) / norm
    if outputs > 1:
        y, bounds = (z + rng.gumbel(size=z.shape)).argmax(axis=1), {}
    elif isinstance(loss, Squared):
        y, bounds = rng.uniform(-1.0, 1.0, size=n), {"target_low": -1.0, "target_high": 1.0}
    else:
        y, bounds = np.where(z[:, 0] + rng.logistic(size=n) > 0.0, 1.0, -1.0), {}
    data = DataSpec(n, d, outputs, row_norm=norm, intercept=norm, **bounds)
    problem = Problem(loss) if constraint is None else Problem(loss, constraint=constraint)
    return problem, prepare_rows(X, y, data), data


def excess(n, d, loss, outputs, epsilon, delta, signal=0.0, solver=None, draws=4):
    """Mean risk above the zero model's, over draws of rows and noise."""
    found = []
    for seed in range(draws):
        problem, rows, data = make_problem(n, d, loss, outputs, signal, seed)
        plan = (solver or Auto()).plan(problem, ApproximateDP(epsilon, delta), data)
        w = run(plan, rows, SeededNoise(seed)).w
        assert np.isfinite(w).all()
        (block,) = rows.blocks()
        risks = loss.value(block.predict(w), block.targets)
        zero = loss.value(block.predict(np.zeros_like(w)), block.targets)
        found.append(float(np.mean(risks - zero)))
    return float(np.mean(found))


# Where shrinkage makes the difference, and where smaller steps do already.
SHRUNK = [
    (500, 5, Logistic(), 1, 0.05, 1e-5),
    (500, 5, Softmax(), 20, 0.05, 1e-5),
    (500, 30, Softmax(), 10, 1.0, 0.0),
]
# Where a strong penalty or shrinkage does.
PENALIZED = [(500, 100, Logistic(), 1, 1.0, 0.0), (500, 100, Squared(), 1, 1.0, 0.0)]
CORNERS = [
    *SHRUNK,
    *PENALIZED,
    (500, 5, Logistic(), 1, 1.0, 1e-5),
    (2000, 50, Logistic(), 1, 1.0, 1e-5),
    (500, 100, Logistic(), 1, 0.05, 1e-5),
    (500, 100, SquaredHinge(), 1, 0.05, 1e-5),
    (500, 30, Softmax(), 10, 0.3, 1e-5),
    # Least squares has shrinkage of its own, tested with its solver.
    (500, 5, Squared(), 1, 0.05, 1e-5),
    (500, 5, Squared(), 1, 0.3, 1e-5),
]


@pytest.mark.parametrize("corner", CORNERS, ids=str)
def test_pure_noise_fit_is_not_worse_than_zero(corner):
    assert excess(*corner) < 0.02


@pytest.mark.parametrize(("n", "d", "epsilon"), [(500, 5, 0.5), (5000, 20, 0.1)])
def test_pure_noise_in_rare_columns_is_not_taken_for_signal(n, d, epsilon):
    # Rows that show a rare column are long, and damp less: a mean over all rows left a loss of .83.
    losses = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X = (rng.random((n, d)) < 0.03).astype(float)
        data = DataSpec(n, d, row_norm=math.sqrt(d), intercept=math.sqrt(d))
        rows = prepare_rows(X, rng.choice([-1.0, 1.0], n), data)
        plan = newton.Newton().plan(Problem(Logistic()), ApproximateDP(epsilon, 1e-5), data)
        w = run(plan, rows, SeededNoise(seed)).w
        (block,) = rows.blocks()
        losses.append(Logistic().value(block.predict(w), block.targets).mean())
    assert np.mean(losses) < 0.70


@pytest.mark.parametrize("corner", SHRUNK, ids=str)
def test_without_shrinkage_they_would_be(corner):
    with mock.patch.object(shrinkage, "shrinkage_factor", return_value=1.0):
        assert excess(*corner) > 0.02


@pytest.mark.parametrize("corner", PENALIZED, ids=str)
def test_without_a_strong_penalty_and_shrinkage_they_would_be(corner):
    with (
        mock.patch.object(pure_strength, "_strength_for_noise", return_value=0.0),
        mock.patch.object(shrinkage, "shrinkage_factor", return_value=1.0),
    ):
        assert excess(*corner) > 0.02


WEAK = [
    (500, 5, Logistic(), 1, 0.05, 0.0),
    (500, 5, Squared(), 1, 0.05, 0.0),
    (5000, 70, Squared(), 1, 0.3, 1e-5),
]


@pytest.mark.parametrize("corner", WEAK, ids=str)
def test_shrinkage_takes_most_of_little_noise(corner):
    shrunken = excess(*corner)
    with mock.patch.object(shrinkage, "shrinkage_factor", return_value=1.0):
        assert shrunken < 0.2 * excess(*corner)


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=str)
def test_many_columns_need_shrinkage_too(loss):
    corner = (500, 400, loss, 1, 0.3, 1e-5)
    assert excess(*corner) < 0.002
    assert excess(*corner, solver=Preprocessed([Center()], NoisyGD())) > 0.005


def test_squared_hinge_is_not_flat_where_slopes_are_clipped():
    corner = (5000, 100, SquaredHinge(), 1, 1.0, 1e-5)
    assert excess(*corner) < 0.02
    with mock.patch.object(newton, "_steepness", return_value=1.0):
        assert excess(*corner) > 0.02


@pytest.mark.parametrize(
    "corner",
    [
        (500, 5, Savage(), 1, 0.05, 1e-5),
        (500, 100, Savage(), 1, 1.0, 1e-5),
        (2000, 50, Savage(), 1, 0.3, 1e-5),
    ],
    ids=str,
)
def test_losses_that_are_not_convex_are_shrunk_and_compared(corner):
    assert excess(*corner, draws=2) < 0.02
    assert excess(*corner, solver=NoisyGD(), draws=2) > 0.02


def test_losses_that_are_not_convex_are_not_flat_at_zero():
    corner = (2000, 5, Savage(), 1, 20.0, 1e-5)
    data = DataSpec(2000, 5, row_norm=math.sqrt(5), intercept=math.sqrt(5))
    small = 0.75 * slope_unit(Savage(), data) * data.row_norm
    assert excess(*corner, solver=NoisyGD(), draws=1) < 0.002
    assert excess(*corner, solver=NoisyGD(clip=small), draws=1) > 0.005


def sparse_risks(signal, solver):
    """Mean squared error over that of zero, where 2000 rows have 20 of 3000 words each."""
    found = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        frequency = 1.0 / np.arange(1, 3001) ** 1.1
        words = rng.choice(3000, size=(2000, 20), p=frequency / frequency.sum())
        places = np.repeat(np.arange(2000), 20), words.ravel()
        X = sparse.csr_array((np.full(words.size, 0.15), places), shape=(2000, 3000))
        y = np.clip(signal * X @ rng.normal(size=3000) + rng.uniform(-1.0, 1.0, size=2000), -4, 4)
        bounds = {"target_low": -4.0, "target_high": 4.0}
        data = DataSpec(2000, 3000, row_norm=1.5, intercept=1.5, sparse=True, **bounds)
        plan = solver.plan(Problem(Squared()), ApproximateDP(1.0, 1e-5), data)
        rows = prepare_rows(X, y, data)
        w = run(plan, rows, SeededNoise(seed)).w
        found.append(np.mean((X @ w[:-1] + 1.5 * w[-1] - y) ** 2) / np.mean(y**2))
    return float(np.mean(found))


def test_sparse_rows_are_compared_with_the_start():
    assert sparse_risks(0.0, Auto()) < 1.02
    assert sparse_risks(0.0, NoisyGD()) > 1.04
    assert sparse_risks(6.0, Auto()) < sparse_risks(6.0, NoisyGD()) + 0.03 < 0.9


def test_the_comparison_costs_less_where_rows_are_many():
    shares = []
    for n_rows in (1000, 100_000, 10_000_000):
        data = DataSpec(n_rows, 20)
        multipliers = [
            NoisyGD(compare=compare, n_steps=100)
            .plan(Problem(Logistic()), GaussianDP(0.5), data)
            .method.noise_multiplier
            for compare in (False, True)
        ]
        shares.append(1.0 - (multipliers[0] / multipliers[1]) ** 2)
    assert shares[0] == pytest.approx(0.02, rel=1e-3)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 1e-3


def test_a_rare_class_needs_its_intercept():
    rng = np.random.default_rng(0)
    problem, _, data = make_problem(5000, 100, Logistic(), 1, 0.0, 0)
    X = rng.normal(size=(5000, 100))
    rows = prepare_rows(X, np.where(rng.random(5000) < 0.01, 1.0, -1.0), data)
    (block,) = rows.blocks()

    def risk(**changes):
        plan = Auto().plan(problem, ApproximateDP(0.05, 1e-5), data)
        plan = dataclasses.replace(plan, method=dataclasses.replace(plan.method, **changes))
        z = block.predict(run(plan, rows, SeededNoise(0)).w)
        return float(np.mean(problem.loss.value(z, block.targets)))

    assert risk() < 0.3
    assert risk(intercept_pace=1.0) > 0.4


def test_nothing_is_shrunk_where_data_damp_the_noise():
    for n_rows, shrinks in ((500, True), (50_000, False)):
        data = DataSpec(n_rows, 400, intercept=1.0)
        method = NoisyGD(shrink=True).plan(Problem(Logistic()), GaussianDP(0.1), data).method
        assert method.shrink == shrinks


def test_steps_that_the_budget_cannot_carry_would_be_far_worse():
    corner = (500, 100, Logistic(), 1, 0.05, 1e-5)
    with mock.patch.object(shrinkage, "shrinkage_factor", return_value=1.0):
        assert excess(*corner, solver=Newton(step_size=2.0)) > 1.0
        assert excess(*corner) < 0.02


@pytest.mark.parametrize(
    ("corner", "gain"),
    [
        ((500, 5, Logistic(), 1, 1.0, 1e-5), 0.1),
        ((3000, 30, Logistic(), 1, 1.0, 1e-5), 0.1),
        ((2000, 5, Softmax(), 5, 1.0, 1e-5), 0.2),
        ((5000, 5, Logistic(), 1, 1.0, 0.0), 0.1),
    ],
    ids=str,
)
def test_a_signal_is_still_found(corner, gain):
    assert excess(*corner, signal=3.0) < -gain


def test_shrinkage_stays_within_the_constraint():
    for loss, solver in ((Logistic(), Newton()), (Squared(), SufficientStatistics())):
        for constraint in (Simplex(), L2Ball(0.1)):
            problem, rows, data = make_problem(500, 5, loss, 1, 0.0, 0, constraint)
            plan = solver.plan(problem, ApproximateDP(0.05, 1e-5), data)
            w = run(plan, rows, SeededNoise(0)).w
            assert constraint.contains(w[:-1], 1e-9)


def test_the_share_grows_from_a_tenth_to_one():
    for alike in (True, False):
        for m in (1, 6, 100, 10_000):
            shares = [
                shrinkage_factor(size, 0.5, m, alike=alike)
                for size in np.linspace(0.0, 4.0 * m, 4000)
            ]
            assert shares == sorted(shares)
            assert shares[0] == 0.1
            assert shares[-1] == 1.0


def test_noise_alone_is_mostly_shrunk_and_signal_is_not():
    rng = np.random.default_rng(0)
    for m in (2, 6, 100):
        noise = rng.normal(size=(2000, m))
        alone = [shrinkage_factor(float(np.linalg.norm(b)), 1.0, m, alike=True) for b in noise]
        assert np.mean(np.array(alone) == 0.1) > 0.8
        # Twice as much signal as noise, and a bit, in each coordinate.
        seen = [shrinkage_factor(float(np.linalg.norm(b + 2.5)), 1.0, m, alike=True) for b in noise]
        assert np.mean(seen) > 0.9


@pytest.mark.parametrize("pace", [1.0, 4.0])
@pytest.mark.parametrize("in_basis", [False, True])
def test_intercepts_have_a_share_of_their_own(pace, in_basis):
    rng = np.random.default_rng(0)
    start, noise = rng.normal(size=21), rng.normal(size=21)
    inverse = rng.normal(size=(21, 21)) if in_basis else np.eye(21)
    given = {"inverse": inverse if in_basis else None, "pace": pace}
    way = np.linalg.solve(inverse, noise)
    far = way.copy()
    far[-1] += 20.0 * pace / np.linalg.norm(inverse[:, -1])
    alone = shrunk(start + way, start, 1.0, **given, own_intercept=True)
    np.testing.assert_allclose((alone - start)[:-1], 0.1 * way[:-1])
    if pace == 1.0:
        np.testing.assert_allclose(alone - start, 0.1 * way)
    seen = shrunk(start + far, start, 1.0, **given, own_intercept=True) - start
    share = seen[0] / far[0]
    # The part along the intercept is kept, and a share of the orthogonal part.
    along = inverse[:, -1]
    np.testing.assert_allclose(along @ (inverse @ seen), along @ (inverse @ far), rtol=0.02)
    np.testing.assert_allclose(seen[:-1], share * far[:-1])


@pytest.mark.parametrize("in_basis", [False, True])
def test_shrunk_classes_rank_as_before(in_basis):
    """Also where one class is so frequent that its intercept alone would have every row."""
    rng = np.random.default_rng(0)
    inverse = rng.normal(size=(21, 21)) if in_basis else None
    w, rows = rng.normal(size=(21, 5)), rng.normal(size=(50, 21))
    rows[:, -1] = 1.0
    w[-1, 0] += 4.0
    moved = shrunk(w, np.zeros_like(w), 1e3, inverse=inverse, own_intercept=True)
    assert np.linalg.norm(moved) < 0.2 * np.linalg.norm(w)
    assert np.array_equal((rows @ moved).argsort(axis=1), (rows @ w).argsort(axis=1))


def test_a_frequent_class_does_not_have_every_row():
    """Half of the rows in one of six classes, with slopes in noise."""
    rng = np.random.default_rng(0)
    y = rng.choice(6, size=10_000, p=[0.5, 0.1, 0.1, 0.1, 0.1, 0.1])
    X = rng.normal(size=(6, 80))[y] + 1.5 * rng.normal(size=(10_000, 80))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    for kind, epsilon in ((LogisticRegression, 0.03), (RidgeClassifier, 0.1)):
        model = kind(
            epsilon=epsilon, delta=1e-5, classes=range(6), row_norm=1.0, random_state=0
        ).fit(X, y)
        right = model.predict(X) == y
        assert np.mean([right[y == k].mean() for k in range(6)]) > 0.6


def test_clear_results_are_returned_exactly():
    w = np.random.default_rng(0).normal(size=30)
    for own_intercept in (False, True):
        kept = shrunk(w, np.zeros(30), 0.01, inverse=np.eye(30), own_intercept=own_intercept)
        assert np.array_equal(kept, w)


def test_neutral_values():
    counts = DataSpec(100, 2, target_low=0.0, target_high=1.0)
    assert is_neutral(Logistic(), DataSpec(100, 2))
    assert is_neutral(Hinge(), DataSpec(100, 2))
    assert is_neutral(Softmax(), DataSpec(100, 2, 3))
    assert is_neutral(Squared(), DataSpec(100, 2, target_low=-1.0, target_high=2.0))
    assert not is_neutral(Poisson(), counts)
    assert not is_neutral(Squared(), counts)


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_newton_least_squares_keeps_strong_signals(epsilon):
    def risks(w, rows):
        (block,) = rows.blocks()
        return float(np.mean((block.predict(w) - block.targets) ** 2))

    data = DataSpec(10_000, 8, row_norm=3.0, intercept=3.0, target_low=-1.0, target_high=1.0)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 8))
    y = np.clip(X @ rng.normal(size=8) * 0.1 + rng.normal(0.0, 0.3, 10_000), -1.0, 1.0)
    rows = prepare_rows(X, y, data)
    plan = Newton().plan(Problem(Squared()), ApproximateDP(epsilon, 1e-5), data)
    w = run(plan, rows, SeededNoise(0)).w
    with mock.patch.object(newton.NewtonMethod, "_noise_damped_by", return_value=1.0):
        lost = run(plan, rows, SeededNoise(0)).w
    zero = risks(np.zeros_like(w), rows)
    assert risks(w, rows) < 0.7 * zero < risks(lost, rows)


@pytest.mark.parametrize("solver", [Auto(), Newton(), NoisyGD(n_steps=3)], ids=str)
def test_targets_above_zero_have_a_bound_above_zero(solver):
    data = DataSpec(40, 3, target_low=0.0, target_high=0.0)
    with pytest.raises(ValueError, match=r"target_high must be above 0 for Gamma\(\), got 0\.0"):
        solver.plan(Problem(Gamma()), ApproximateDP(1.0, 1e-5), data)
