"""Default settings at the worst corners: never far worse than the model that a fit starts from."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.preprocessing import Center
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    Hinge,
    L2Ball,
    Logistic,
    Poisson,
    Problem,
    Simplex,
    Softmax,
    Squared,
    SquaredHinge,
)
from dpglm.solvers import (
    Auto,
    Newton,
    NoisyGD,
    Preprocessed,
    SufficientStatistics,
    newton,
    run,
    shrinkage,
    sufficient_statistics,
)
from dpglm.solvers.shrinkage import is_neutral, kept_share


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


def excess(n, d, loss, outputs, epsilon, delta, signal=0.0, solver=None):
    """Mean risk above the zero model's, over four draws."""
    found = []
    for seed in range(4):
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
    (500, 5, Logistic(), 1, 1.0, 1e-5),
    (2000, 50, Logistic(), 1, 1.0, 1e-5),
    (500, 5, Softmax(), 20, 0.05, 1e-5),
    (500, 5, Squared(), 1, 0.05, 1e-5),
    (500, 100, Logistic(), 1, 1.0, 0.0),
    (500, 100, Squared(), 1, 1.0, 0.0),
    (500, 30, Softmax(), 10, 1.0, 0.0),
]
CORNERS = [
    *SHRUNK,
    (500, 100, Logistic(), 1, 0.05, 1e-5),
    (500, 100, SquaredHinge(), 1, 0.05, 1e-5),
    (500, 30, Softmax(), 10, 0.3, 1e-5),
    (500, 5, Squared(), 1, 0.3, 1e-5),
]


@pytest.mark.parametrize("corner", CORNERS, ids=str)
def test_nothing_to_learn_is_no_worse_than_zero(corner):
    assert excess(*corner) < 0.02


@pytest.mark.parametrize("corner", SHRUNK, ids=str)
def test_without_shrinkage_they_would_be(corner):
    with (
        mock.patch.object(newton, "kept_share", return_value=1.0),
        mock.patch.object(shrinkage, "kept_share", return_value=1.0),
        mock.patch.object(sufficient_statistics, "kept_share", return_value=1.0),
    ):
        assert excess(*corner) > 0.02


@pytest.mark.parametrize("loss", [Logistic(), Squared()], ids=str)
def test_many_columns_need_shrinkage_too(loss):
    corner = (500, 400, loss, 1, 0.3, 1e-5)
    assert excess(*corner) < 0.02
    assert excess(*corner, solver=Preprocessed([Center()], NoisyGD())) > 0.02


def test_nothing_is_shrunk_where_data_damp_the_noise():
    for n_rows, shrinks in ((500, True), (50_000, False)):
        data = DataSpec(n_rows, 400, intercept=1.0)
        method = NoisyGD(shrink=True).plan(Problem(Logistic()), GaussianDP(0.1), data).method
        assert method.settings()["shrink"] == shrinks


def test_steps_that_the_budget_cannot_carry_would_be_far_worse():
    corner = (500, 100, Logistic(), 1, 0.05, 1e-5)
    with mock.patch.object(newton, "kept_share", return_value=1.0):
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
                kept_share(size, 0.5, m, alike=alike) for size in np.linspace(0.0, 4.0 * m, 4000)
            ]
            assert shares == sorted(shares)
            assert shares[0] == 0.1
            assert shares[-1] == 1.0


def test_noise_alone_is_mostly_shrunk_and_signal_is_not():
    rng = np.random.default_rng(0)
    for m in (2, 6, 100):
        noise = rng.normal(size=(2000, m))
        alone = [kept_share(float(np.linalg.norm(b)), 1.0, m, alike=True) for b in noise]
        assert np.mean(np.array(alone) == 0.1) > 0.8
        # Twice as much signal as noise, and a bit, in each coordinate.
        seen = [kept_share(float(np.linalg.norm(b + 2.5)), 1.0, m, alike=True) for b in noise]
        assert np.mean(seen) > 0.9


def test_what_is_neutral():
    counts = DataSpec(100, 2, target_low=0.0, target_high=1.0)
    assert is_neutral(Logistic(), DataSpec(100, 2))
    assert is_neutral(Hinge(), DataSpec(100, 2))
    assert is_neutral(Softmax(), DataSpec(100, 2, 3))
    assert is_neutral(Squared(), DataSpec(100, 2, target_low=-1.0, target_high=2.0))
    assert not is_neutral(Poisson(), counts)
    assert not is_neutral(Squared(), counts)
