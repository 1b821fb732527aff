"""Attacks on the choices of Frank-Wolfe: exact laws, and estimates from many runs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from scipy.stats import binom

from dpglm.data.memory import ArrayRows
from dpglm.data.rows import DataSpec
from dpglm.oracle import choices as coordinates
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.selection import choices as selections
from dpglm.problem import L1Ball, Logistic, Problem
from dpglm.solvers import FrankWolfe, run
from tests.audit.attack import delta_at_least, one_row
from tests.slowly import first_quickly

HUGE = np.array([1e6])
STEPS, RUNS = 9, 200
EPSILON = 0.1
BUDGET = ApproximateDP(6.0, 1e-3)
ONE_COLUMN = DataSpec(n_rows=3, n_features=1, row_norm=1.0)
WITH_INTERCEPT = DataSpec(n_rows=3, n_features=1, row_norm=1.0, intercept=10.0)


def plan_of(adjacency=Adjacency.ZERO_OUT, data=ONE_COLUMN, *, penalize_intercept=False):
    # The ball is so small that all slopes stay clipped.
    problem = Problem(Logistic(), constraint=L1Ball(1e-3), penalize_intercept=penalize_intercept)
    return FrankWolfe(n_steps=STEPS, slope_clip=0.25).plan(problem, BUDGET, data, adjacency)


def neighbours(plan, row=HUGE):
    first = one_row(plan.data, row, 1.0)
    if plan.adjacency is Adjacency.REPLACE_ONE:
        return first, one_row(plan.data, -row, 1.0)
    return first, one_row(plan.data, row, 1.0, present=False)


def choices(plan, rows, seeds):
    """Return the choice of each step of each run."""
    original, chosen = selections.exponential_mechanism, []

    def listening(*args):
        chosen.append(original(*args))
        return chosen[-1]

    with mock.patch.object(selections, "exponential_mechanism", listening):
        for seed in seeds:
            run(plan, rows, SeededNoise(seed))
    return np.reshape(chosen, (len(seeds), STEPS))


def claimed_delta(plan, epsilon=EPSILON):
    accountant = accountant_for(plan.event, plan.adjacency)
    return accountant.delta(plan.event, plan.adjacency, epsilon)


def attack(plan, rows=None, column=0, share=None):
    """Count upward choices of a coordinate; guess at the middle of the expected counts."""
    first, second = rows or neighbours(plan)
    a = (choices(plan, first, range(RUNS)) == column).sum(axis=1)
    b = (choices(plan, second, range(RUNS, 2 * RUNS)) == column).sum(axis=1)
    share = share or (0.5 if plan.adjacency is Adjacency.REPLACE_ONE else 0.65)
    return delta_at_least(a > share * STEPS, b > share * STEPS, EPSILON)


def _share(plan, rows):
    """Chance of the first coordinate, upwards, from the definition of the mechanism."""
    sensitivity = plan.adjacency.sum_sensitivity(0.25)
    weights = rows._weights
    gradient = -0.25 * float(weights[0] * np.clip(rows._X[0, 0], -1.0, 1.0))
    rate = plan.method.choice_epsilon / (2.0 * sensitivity)
    return math.exp(-rate * gradient) / (2.0 * math.cosh(rate * gradient))


def exact_delta(plan, epsilon):
    """Largest gap between the laws of the choices: the number of upward ones is sufficient."""
    p, q = (_share(plan, rows) for rows in neighbours(plan))
    counts = np.arange(STEPS + 1)
    a, b = binom.pmf(counts, STEPS, p), binom.pmf(counts, STEPS, q)
    one_way = np.maximum(a - math.exp(epsilon) * b, 0.0).sum()
    other_way = np.maximum(b - math.exp(epsilon) * a, 0.0).sum()
    return max(one_way, other_way)


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE], ids=str)
def test_exact_laws_stay_under_the_claim_and_come_near(adjacency):
    plan = plan_of(adjacency)
    for epsilon in (0.0, 0.1, 1.0, 3.0, 4.5):
        assert exact_delta(plan, epsilon) <= claimed_delta(plan, epsilon)
    # At the budget's delta, in epsilon.
    low, high = 0.0, BUDGET.epsilon
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exact_delta(plan, middle) > BUDGET.delta else (low, middle)
    assert 0.7 * BUDGET.epsilon <= high <= BUDGET.epsilon


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE], ids=str)
def test_runs_follow_the_exact_laws(adjacency):
    plan = plan_of(adjacency)
    for rows in neighbours(plan):
        count = int((choices(plan, rows, range(100)) == 0).sum())
        expected = 100 * STEPS * _share(plan, rows)
        assert abs(count - expected) < 4.0 * math.sqrt(100 * STEPS / 4.0)


def test_slopes_that_are_not_clipped_are_refuted():
    plan = plan_of()
    unclipped = SimpleNamespace(clip=lambda values, low, high, out=None: values)
    with mock.patch.object(coordinates, "namespace", return_value=unclipped):
        assert attack(plan, share=0.7) > claimed_delta(plan)


def test_entries_that_are_not_clipped_are_refuted():
    plan = plan_of()
    first, second = neighbours(plan)
    first._X[0] = 1e3
    with mock.patch.object(ArrayRows, "clip_entries", lambda self, bound: self):
        assert attack(plan, (first, second), share=0.8) > claimed_delta(plan)


def intercept_neighbours(plan):
    """A row of zeros, which only the intercept shows; the other two rows cancel."""
    pair = [one_row(plan.data, np.zeros(1), 1.0, present=present) for present in (True, False)]
    for rows in pair:
        rows._y[1] = -1.0
    return pair


@pytest.mark.parametrize("penalize_intercept", first_quickly(False, True))
def test_the_intercept_is_protected_like_the_rest(penalize_intercept):
    plan = plan_of(data=WITH_INTERCEPT, penalize_intercept=penalize_intercept)
    found = attack(plan, intercept_neighbours(plan), column=1, share=0.4)
    assert 0.0 < found <= claimed_delta(plan)


def test_intercept_above_entry_bound_is_refuted():
    # The bound of the features taken for the intercept's column, which is ten times as large.
    with mock.patch.object(coordinates, "largest_entry", coordinates.entry_bound):
        plan = plan_of(data=WITH_INTERCEPT, penalize_intercept=True)
        found = attack(plan, intercept_neighbours(plan), column=1, share=0.7)
    assert found > claimed_delta(plan)
