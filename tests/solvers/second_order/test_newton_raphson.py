"""Newton-Raphson: maximum likelihood where noise is small, honest covariance, all as declared."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L1,
    L2,
    Gamma,
    Hinge,
    Huber,
    L2Ball,
    Logistic,
    NoPenalty,
    Pinball,
    Poisson,
    Problem,
    Softmax,
    Squared,
)
from dpglm.solvers import Auto, NewtonRaphson, SufficientStatistics, run
from dpglm.solvers.second_order import newton_raphson_settings, posterior, preconditioner
from dpglm.solvers.second_order.newton_raphson_settings import hessian_noise
from tests.audit.attack import released_sums

NEARLY_FREE = GaussianDP(1e4)


def make_data(loss, n=4000, d=3, seed=0, level=0.5):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, d)) / math.sqrt(d)
    z = 1.5 * X @ np.linspace(1.0, -1.0, d) + level
    if isinstance(loss, Logistic):
        return X, np.where(rng.random(n) < 1 / (1 + np.exp(-z)), 1.0, -1.0)
    if isinstance(loss, Gamma):
        return X, np.maximum(np.exp(z) * rng.gamma(2.0, 0.5, n), 1e-6)
    if isinstance(loss, Squared):
        return X, z + rng.normal(size=n)
    return X, rng.poisson(np.exp(z)).astype(float)


def spec_of(X, loss, **options):
    low, high = (-1.0, 1.0) if isinstance(loss, Logistic) else (1e-6, 400.0)
    low = 0.0 if isinstance(loss, Poisson) else low
    low, high = (-6.0, 6.0) if isinstance(loss, Squared) else (low, high)
    facts = {"intercept": 1.0, "target_low": low, "target_high": high} | options
    return DataSpec(len(X), X.shape[1], **facts)


def solve(X, y, problem, budget=NEARLY_FREE, adjacency=Adjacency.ZERO_OUT, seed=0, **options):
    spec = spec_of(X, problem.loss)
    solver = SufficientStatistics if isinstance(problem.loss, Squared) else NewtonRaphson
    plan = solver(**options).plan(problem, budget, spec, adjacency)
    return run(plan, prepare_rows(X, y, spec), SeededNoise(seed))


def likelihood(X, y, loss, strength=0.0):
    design = np.column_stack([X, np.ones(len(X))])

    def objective(w):
        mean = design.T @ loss.slope(design @ w, y) / len(X)
        penalty = strength * np.append(w[:-1], 0.0)
        return loss.value(design @ w, y).mean() + 0.5 * penalty @ w, mean + penalty

    start = np.zeros(design.shape[1])
    w = optimize.minimize(objective, start, jac=True, tol=1e-14, options={"gtol": 1e-10}).x
    bends = loss.curvature(design @ w, y)
    hessian = (design * bends[:, None]).T @ design + len(X) * strength * np.diag(
        np.append(np.ones(X.shape[1]), 0.0)
    )
    slopes = loss.slope(design @ w, y)
    return w, np.linalg.inv(hessian), (design * (slopes**2)[:, None]).T @ design


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Gamma()])
@pytest.mark.parametrize("strength", [0.0, 0.05])
def test_fit_at_huge_epsilon_is_maximum_likelihood(loss, strength):
    X, y = make_data(loss)
    problem = Problem(loss, L2(strength) if strength else NoPenalty())
    # At a mu of 1e4 noise in sums of squared scores moves standard errors of counts by 5 %.
    solution = solve(X, y, problem, GaussianDP(1e6), inference="robust", seed=2)
    w, inverse, products = likelihood(X, y, loss, strength)
    errors = np.sqrt(np.diag(inverse))
    assert abs(solution.w - w).max() < 0.01 * errors.max()
    sandwich = np.sqrt(np.diag(inverse @ products @ inverse))
    found = solution.uncertainty
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), sandwich, rtol=0.02)
    assert np.trace(found.privacy) < 0.01 * np.trace(found.sampling)
    np.testing.assert_array_equal(found.center, solution.w)


def test_dispersion_is_estimated_only_if_the_model_has_one():
    for loss, factor in ((Gamma(), 0.5), (Poisson(), 1.0), (Logistic(), 1.0)):
        X, y = make_data(loss)
        found = solve(X, y, Problem(loss), inference="model").uncertainty
        _, inverse, _ = likelihood(X, y, loss)
        expected = np.sqrt(factor * np.diag(inverse))
        np.testing.assert_allclose(np.sqrt(np.diag(found.covariance)), expected, rtol=0.05)


def test_a_rare_class_and_large_counts_converge():
    for loss, level in ((Logistic(), -5.0), (Logistic(), 4.0), (Poisson(), 3.0), (Poisson(), -3.0)):
        X, y = make_data(loss, n=20_000, level=level)
        w, inverse, _ = likelihood(X, y, loss)
        found = solve(X, y, Problem(loss)).w
        assert abs(found - w).max() < 0.1 * np.sqrt(np.diag(inverse)).max()


def test_penalties_and_constraints_hold():
    X, y = make_data(Logistic())
    solution = solve(X, y, Problem(Logistic(), L1(0.2)))
    assert (solution.w[:-1] == 0.0).any()
    ball = solve(X, y, Problem(Logistic(), NoPenalty(), L2Ball(0.3)))
    assert np.linalg.norm(ball.w[:-1]) <= 0.3 + 1e-12


def test_releases_spend_the_budget():
    # Of Gaussian releases the squares of mu add up.
    for loss in (Logistic(), Poisson(), Gamma()):
        for inference in (None, "model", "robust"):
            plan = NewtonRaphson(inference=inference).plan(
                Problem(loss), GaussianDP(0.7), spec_of(np.zeros((5000, 4)), loss)
            )
            squares = sum(one.count / one.noise_multiplier**2 for one in plan.method.releases)
            assert math.sqrt(squares) == pytest.approx(0.7, rel=1e-3)
            assert math.sqrt(squares) <= 0.7 * (1 + 1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_coefficient_noise_equals_its_report(adjacency):
    X, y = make_data(Logistic(), n=5000, d=4)
    found, said = [], []
    for seed in range(50):
        solution = solve(
            X, y, Problem(Logistic()), ApproximateDP(2.0, 1e-5), adjacency, seed, inference="model"
        )
        found.append(solution.w)
        said.append(np.sqrt(np.diag(solution.uncertainty.privacy)))
        np.testing.assert_allclose(said[-1], solution.coefficient_noise)
    ratio = np.mean(said, axis=0) / np.std(found, axis=0)
    assert ratio == pytest.approx(np.ones(5), rel=0.25)


def test_pooling_is_worth_one_release_with_the_whole_budget():
    # Noise of the estimate, in units of that of a single score with all that pooled scores spend.
    X, y = make_data(Logistic(), n=20_000)
    spec, problem = spec_of(X, Logistic()), Problem(Logistic())
    plan = NewtonRaphson(inference="model").plan(problem, ApproximateDP(1.0, 1e-5), spec)
    # The last pooled score is a release of its own, with the same noise.
    single = plan.method.declared["final"].noise_std / math.sqrt(plan.method.n_pooled) / len(X)
    rows = prepare_rows(X, y, spec)
    runs = np.array([run(plan, rows, SeededNoise(seed)).w for seed in range(40)])
    with released_sums():
        exact = run(plan, rows, SeededNoise(0))
    design = np.column_stack([X, np.ones(len(X))])
    bends = Logistic().curvature(design @ exact.w, y)
    squares = np.einsum("ij,ij->i", design, design @ np.linalg.inv(design.T @ design / len(X)))
    limits = plan.method.limits
    bends *= np.minimum(1.0, np.minimum(limits.clip / squares**0.5, limits.square / squares))
    metric = (design * bends[:, None]).T @ design / len(X)
    moments = design.T @ design / len(X)
    # In the basis, where moments are the identity, a score's noise has one size in all directions.
    noise = np.linalg.inv(metric) @ moments @ np.linalg.inv(metric)
    ratio = runs.std(axis=0) / (single * np.sqrt(np.diag(noise)))
    assert ratio == pytest.approx(np.ones(4), rel=0.3)


def test_some_rows_approach_where_there_are_very_many():
    data = DataSpec(3_000_000, 20, intercept=1.0)
    problem, budget = Problem(Logistic()), ApproximateDP(1.0, 1e-7)
    method = NewtonRaphson().plan(problem, budget, data).method
    assert 100_000 <= method.n_first_rows <= data.n_rows // 2
    # Which rows are which is private where their number is.
    private = NewtonRaphson().plan(problem, budget, data, Adjacency.ADD_REMOVE).method
    assert private.n_first_rows is None
    few = DataSpec(100_000, 20, intercept=1.0)
    assert NewtonRaphson().plan(problem, budget, few).method.n_first_rows is None


def test_rows_that_do_not_approach_still_count(monkeypatch):
    monkeypatch.setattr(newton_raphson_settings, "_ENOUGH_ROWS", 500)
    X, y = make_data(Logistic(), n=8000)
    solution = solve(X, y, Problem(Logistic()), inference="model")
    assert solution.plan.method.n_first_rows == 500
    w, inverse, _ = likelihood(X, y, Logistic())
    errors = np.sqrt(np.diag(inverse))
    # Far nearer to the estimate of all rows than 500 of them could be.
    assert abs(solution.w - w).max() < 0.5 * errors.max()
    found = np.sqrt(np.diag(solution.uncertainty.covariance))
    np.testing.assert_allclose(found, errors, rtol=0.15)


class TestRefusals:
    @pytest.mark.parametrize("loss", [Hinge(), Pinball(), Squared(), Softmax()])
    def test_losses_without_a_curvature(self, loss):
        outputs = 3 if isinstance(loss, Softmax) else 1
        data = DataSpec(1000, 2, n_outputs=outputs, target_low=-1.0, target_high=1.0)
        with pytest.raises(ValueError, match="loss must be convex and smooth"):
            NewtonRaphson().plan(Problem(loss), NEARLY_FREE, data)

    def test_targets_without_bounds(self):
        with pytest.raises(ValueError, match="target_low and target_high must be finite"):
            NewtonRaphson().plan(Problem(Huber()), NEARLY_FREE, DataSpec(1000, 2))

    @pytest.mark.parametrize(
        ("problem", "message"),
        [
            (Problem(Logistic(), L1(0.1)), "regularizer must be none or L2 for inference"),
            (
                Problem(Logistic(), NoPenalty(), L2Ball(1.0)),
                "constraint must be None for inference",
            ),
        ],
    )
    def test_problems_without_a_normal_limit(self, problem, message):
        data = DataSpec(10_000, 2)
        NewtonRaphson().plan(problem, NEARLY_FREE, data)
        with pytest.raises(ValueError, match=message):
            NewtonRaphson(inference="model").plan(problem, NEARLY_FREE, data)

    def test_settings(self):
        with pytest.raises(ValueError, match="n_pooled must be"):
            NewtonRaphson(n_pooled=0)
        with pytest.raises(ValueError, match="inference must be"):
            NewtonRaphson(inference="both")


def test_a_covariance_that_overflowed_costs_no_fit(monkeypatch):
    # Eigenvalues of it would be an error after all had been spent.
    X, y = make_data(Logistic(), n=200)
    plan = NewtonRaphson().plan(Problem(Logistic()), NEARLY_FREE, spec_of(X, Logistic()))
    assert run(plan, prepare_rows(X, y, plan.data), SeededNoise(0)).precision is not None
    overflowed = np.full((4, 4), np.inf)
    monkeypatch.setattr(type(plan.method), "_covariance", lambda self, state: (overflowed,) * 2)
    assert run(plan, prepare_rows(X, y, plan.data), SeededNoise(0)).precision is None


def test_noise_in_the_hessian_falls_with_rows_and_budget():
    values = [
        hessian_noise(mu, DataSpec(n, 10, intercept=1.0))
        for n, mu in ((1000, 0.1), (1000, 1.0), (10_000, 1.0), (10**6, 1.0), (10**9, 1.0))
    ]
    assert all(one > other for one, other in itertools.pairwise(values))
    assert values[-1] < 1e-3


def test_the_default_takes_it_where_hessians_are_seen():
    loud, seen = DataSpec(2000, 50, intercept=1.0), DataSpec(100_000, 10, intercept=1.0)
    problem, budget = Problem(Logistic()), ApproximateDP(1.0, 1e-6)
    assert "upper bound" in Auto().plan(problem, budget, loud).method.algorithm
    assert "pooled" in Auto().plan(problem, budget, seen).method.algorithm
    assert "pooled" in Auto(may_copy=False).plan(problem, budget, seen).method.algorithm


@pytest.mark.parametrize("level", [-6.0, 7.0])
def test_without_an_intercept_it_starts_near_the_constant_model(level):
    """Means far from 1 took more steps than there are, where columns span the constant."""
    rng = np.random.default_rng(3)
    X = np.column_stack([np.full(8000, 0.5), rng.uniform(-0.5, 0.5, 8000)])
    w = np.array([2.0 * level, 1.0])
    y = rng.poisson(np.exp(X @ w)) + 0.0
    data = DataSpec(8000, 2, row_norm=1.0, target_low=0.0, target_high=10_000.0)
    plan = NewtonRaphson().plan(Problem(Poisson()), NEARLY_FREE, data)
    found = run(plan, prepare_rows(X, y, data), SeededNoise(0)).w
    slopes = X.T @ (np.exp(X @ found) - y) / y.sum()
    np.testing.assert_allclose(slopes, 0.0, atol=2e-3)


@pytest.mark.parametrize("loss", [Poisson(), Squared()])
def test_constant_columns_keep_their_prior(loss, monkeypatch):
    """Planted: noise in the curvature of a constant column is taken for information."""

    def shares_of_prior(n_fits=6):
        """Return the standard errors of the constant column over the prior's."""
        X, y = make_data(loss, n=5000)
        X[:, -1] = -0.2
        for seed in range(n_fits):
            budget, scales = GaussianDP(0.3), (math.inf,) * 3
            found = solve(
                X, y, Problem(loss), budget, seed=seed, inference="model", prior_scales=scales
            ).uncertainty
            own = (found.sampling + found.privacy)[2, 2] / found.prior[2, 2]
            # The intercept's prior is at the mean of the columns.
            assert (np.linalg.eigvalsh(found.prior) > 0.0).all()
            yield math.sqrt(own)

    assert list(shares_of_prior()) == pytest.approx([1.0] * 6)
    monkeypatch.setattr(
        posterior.Prior, "shown", lambda self, curvature, noise: np.eye(len(curvature))
    )
    assert min(shares_of_prior()) < 0.5


@pytest.mark.parametrize(
    ("loss", "n", "d", "mu"),
    [
        (Logistic(), 2000, 10, 0.08),
        (Logistic(), 5000, 20, 0.08),
        (Logistic(), 20_000, 30, 0.03),
        (Squared(), 2000, 10, 0.08),
        (Squared(), 5000, 20, 0.07),
        (Squared(), 20_000, 30, 0.025),
    ],
)
def test_little_budget_hides_no_columns_that_vary(loss, n, d, mu, monkeypatch):
    """Planted: a column is hidden if noise explains its curvature, whatever its variance is."""

    def most_and_hidden():
        """Return the median standard error over that without declared limits; hidden columns."""
        X, y = make_data(loss, n=n, d=d)
        errors, hidden = np.zeros(2), []
        for seed in range(3):
            for place, scales in enumerate(((math.inf,) * d, None)):
                found = solve(
                    X,
                    y,
                    Problem(loss),
                    GaussianDP(mu),
                    seed=seed,
                    inference="model",
                    prior_scales=scales,
                ).uncertainty
                own = np.sqrt(np.diag(found.sampling + found.privacy)[:d])
                errors[place] += np.median(own)
                if scales is not None:
                    hidden.append(own > 0.999 * np.sqrt(np.diag(found.prior)[:d]))
        return errors[0] / errors[1], np.mean(hidden)

    ratio, hidden = most_and_hidden()
    assert ratio < 1.5
    assert hidden < 0.2
    sound, every = preconditioner.prior_deviations, np.ones(d, dtype=bool)
    monkeypatch.setattr(
        preconditioner, "prior_deviations", lambda *given: (*sound(*given)[:2], every)
    )
    assert most_and_hidden()[1] > 0.5
