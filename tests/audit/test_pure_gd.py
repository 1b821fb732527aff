"""Attacks on gradient descent with L2 noise: under e^epsilon, close to it, and deadly for bugs."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np

from dpglm.data.rows import DataSpec
from dpglm.privacy.budget import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.privacy.noise.additive import L2Noise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import pure_gd, run
from tests.audit.attack import epsilon_at_least, one_row
from tests.planted import unchecked

EPSILON = 2.0
HUGE = np.array([1e6])
RUNS = 600
DATA = DataSpec(n_rows=3, n_features=1, row_norm=1.0)
CLIP = 0.25


def plan_of(adjacency=Adjacency.ZERO_OUT, data=DATA, n_steps=1):
    solver = pure_gd(n_steps=n_steps, step_size=1e-3, clip=CLIP)
    return solver.plan(Problem(Logistic()), ApproximateDP(EPSILON, 0.0), data, adjacency)


def neighbours(plan, row=HUGE):
    first = one_row(plan.data, row, 1.0)
    if plan.adjacency is Adjacency.REPLACE_ONE:
        return first, one_row(plan.data, -row, 1.0)
    return first, one_row(plan.data, row, 1.0, present=False)


def sums(plan, rows, seeds):
    """Every released sum of every run, from the parameter alone where there is one step."""
    original, seen = additive.add_l2_noise, []

    def listening(*args):
        seen.append(original(*args))
        return seen[-1]

    with mock.patch.object(additive, "add_l2_noise", listening):
        for seed in seeds:
            run(plan, rows, SeededNoise(seed))
    return np.reshape(seen, (len(seeds), plan.n_steps, -1))


def attack(plan, runs=RUNS):
    """Guess "present" where the sum of the step lies beyond that of the row alone."""
    first, second = neighbours(plan)
    a, b = (
        sums(plan, rows, range(start, start + runs))[:, :, 0].sum(axis=1)
        for rows, start in ((first, 0), (second, runs))
    )
    beyond = -CLIP * plan.n_steps
    return epsilon_at_least(a < beyond, b < beyond)


def test_a_budget_spent_in_every_step_is_refuted():
    plan = plan_of(n_steps=3)
    method = dataclasses.replace(plan.method, noise=L2Noise(EPSILON))
    assert attack(unchecked(plan, method=method)) > EPSILON


def test_noise_in_each_coordinate_by_itself_is_refuted():
    # Independent Laplace noise of the L2 scale: an L1 mechanism with an L2 sensitivity.
    data = DataSpec(n_rows=3, n_features=16, row_norm=1.0)
    row = np.full(16, 1e6)

    def independent(value, scale, exponent, source):
        words = source.words(2 * value.size).astype(float) / 2.0**64
        signs = np.where(words[: value.size] < 0.5, -1.0, 1.0)
        return value - scale * signs * np.log(words[value.size :])

    def diagonal_attack(plan):
        # The logarithm of the likelihood ratio of independent Laplace noise.
        first, second = neighbours(plan, row)
        moved = np.full(16, -CLIP / 4.0)
        guesses = []
        for rows, start in ((first, 0), (second, RUNS)):
            seen = sums(plan, rows, range(start, start + RUNS))[:, 0]
            near = np.abs(seen - moved).sum(axis=1)
            guesses.append(near < np.abs(seen).sum(axis=1) - 1.3 * CLIP)
        return epsilon_at_least(*guesses)

    plan = plan_of(data=data)
    assert diagonal_attack(plan) <= EPSILON
    with mock.patch.object(additive, "add_l2_noise", independent):
        assert diagonal_attack(plan) > EPSILON
