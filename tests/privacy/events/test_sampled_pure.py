"""Poisson-sampled pure releases: the bound holds for every law, and some law attains it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from dpglm import LogisticRegression
from dpglm.certificate import verify
from dpglm.data.rows import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.events import Gaussian, PoissonSampled, Pure, Repeated, poisson_sampled
from dpglm.problem import Logistic, Problem
from dpglm.solvers import NoisyGD, NoisySGD

CASES = [(0.01, 0.1), (0.3, 1.0), (0.5, 3.0), (0.999, 0.5), (1e-9, 20.0)]


def worst_ratio(rate, epsilon, relation):
    """Largest ratio of an atom under two sampled laws, over all pure laws; a linear program.

    For one atom only its three masses (without the row, with it, with its other value) and those
    of all other atoms together matter. They are scaled so that the smaller mixture is 1.
    """
    # Variables: q, p, p' on the atom, in units in which the denominator's mixture is 1.
    bound = math.exp(epsilon)
    pairs = [(0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)]
    rows = np.zeros((len(pairs), 3))
    for number, (left, right) in enumerate(pairs):
        rows[number, left], rows[number, right] = 1.0, -bound
    mixture = np.array([1.0 - rate, 0.0, rate])
    numerator = np.array([1.0 - rate, rate, 0.0])
    if relation == "add":
        mixture = np.array([1.0, 0.0, 0.0])
    if relation == "remove":
        numerator, mixture = np.array([1.0, 0.0, 0.0]), np.array([1.0 - rate, 0.0, rate])
    found = linprog(-numerator, A_ub=rows, b_ub=np.zeros(6), A_eq=[mixture], b_eq=[1.0])
    assert found.success
    return -found.fun


class TestEvent:
    @pytest.mark.parametrize(("rate", "epsilon"), CASES)
    def test_no_law_exceeds_it_and_one_attains_it(self, rate, epsilon):
        claimed = math.exp(poisson_sampled(rate, Pure(epsilon)).epsilon)
        ratios = {one: worst_ratio(rate, epsilon, one) for one in ("add", "remove", "replace")}
        assert max(ratios.values()) <= claimed * (1.0 + 1e-9)
        assert ratios["add"] == pytest.approx(claimed, rel=1e-7)

    def test_a_smaller_claim_would_be_refuted(self):
        # The approximation q epsilon, which is sometimes quoted, is too small.
        assert worst_ratio(0.3, 1.0, "add") > math.exp(0.3 * 1.0) * 1.1

    def test_limits(self):
        assert poisson_sampled(1.0, Pure(0.3)) == Pure(0.3)
        assert poisson_sampled(0.1, Gaussian(2.0)) == PoissonSampled(0.1, Gaussian(2.0))
        assert poisson_sampled(1e-6, Pure(1e-9)).epsilon == pytest.approx(1e-15, rel=1e-6)
        assert poisson_sampled(0.5, Pure(1e4)).epsilon == 1e4
        assert poisson_sampled(1.0 - 1e-16, Pure(2.0)).epsilon <= 2.0


class TestSolvers:
    DATA = DataSpec(4000, 3)

    @pytest.mark.parametrize("adjacency", list(Adjacency))
    def test_step_cost_follows_sampling(self, adjacency):
        solver = NoisyGD(n_steps=20, sampling_rate=0.1)
        budget = ApproximateDP(2.0, 0.0)
        plan = solver.plan(Problem(Logistic()), budget, self.DATA, adjacency)
        each = 1.0 / plan.method.noise_multiplier
        spent = 20 * math.log1p(0.1 * math.expm1(each))
        assert spent == pytest.approx(2.0, rel=1e-6)
        assert spent <= 2.0
        assert isinstance(plan.event, Repeated)
        assert plan.method.noise_std == pytest.approx(
            plan.method.gradients.noise_std / (0.1 * 4000)
        )

    def test_noisy_sgd_takes_pure_budgets_with_a_rate(self):
        solver = NoisySGD(n_steps=20, sampling_rate=0.1)
        plan = solver.plan(Problem(Logistic()), ApproximateDP(2.0, 0.0), self.DATA)
        assert plan.method.sampling_rate == 0.1

    def test_fits_are_certified(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(4000, 3))
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1.0)
        y = (X[:, 0] > 0.0).astype(int)
        solver = NoisyGD(n_steps=20, sampling_rate=0.5)
        model = LogisticRegression(
            epsilon=4.0, delta=0.0, classes=[0, 1], row_norm=1.0, solver=solver, random_state=0
        ).fit(X, y)
        assert model.score(X, y) > 0.8
        assert verify(model.privacy_).ok
