"""Attacks on runs with public random matrices: never above the claim, close to it."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.maps import GaussianEmbedding
from dpglm.data.rows import DataSpec
from dpglm.oracle.projection import GaussianMatrix
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.problem import Logistic, Problem
from dpglm.solvers import D2P2, JohnsonLindenstrauss, NoisyGD, run
from dpglm.solvers.composite import johnson_lindenstrauss
from tests.audit.attack import delta_at_least, mu_at_least, one_row, views
from tests.planted import not_shortened, unchecked
from tests.slowly import first_quickly

HUGE = np.array([1e6, 0.0])
UNIT = DataSpec(n_rows=3, n_features=2)
LOGISTIC = Problem(Logistic())
MU, RUNS, FEW = 2.0, 400, 200
FLAT = {"normalize": False, "clip": 0.25, "n_steps": 2, "step_size": 1e-4}


def neighbours(plan):
    """A row with a clipped gradient of full norm at zero, and its neighbour."""
    first = one_row(plan.data, HUGE, 1.0)
    if plan.adjacency is Adjacency.REPLACE_ONE:
        return first, one_row(plan.data, -HUGE, 1.0)
    return first, one_row(plan.data, HUGE, 1.0, present=False)


def first_word(seed):
    return int(SeededNoise(seed).words(1)[0])


# 1. The Johnson-Lindenstrauss method: the matrix is public, so attacks know where to look.


def embedded_plan(adjacency=Adjacency.ZERO_OUT, **settings):
    inner = NoisyGD(n_steps=2, step_size=1e-3, clip=0.25, momentum=0.0)
    solver = JohnsonLindenstrauss(dimension=2, gradient_descent=inner, **settings)
    return solver.plan(LOGISTIC, GaussianDP(MU), UNIT, adjacency)


def direction(plan, seed):
    matrix = plan.method.transform(first_word(seed))
    return (matrix.toarray() if sparse.issparse(matrix) else matrix)[0]


def embedded_attack(plan, seeds, others):
    scores = []
    for rows, chosen in zip(neighbours(plan), (seeds, others), strict=True):
        shown = -views(plan, rows, chosen).gradients.sum(axis=1)
        units = np.array([direction(plan, seed) for seed in chosen])
        units /= np.linalg.norm(units, axis=1, keepdims=True)
        scores.append(np.einsum("ij,ij->i", shown, units))
    full = 0.25 * plan.n_steps / plan.data.n_rows
    middle = 0.0 if plan.adjacency is Adjacency.REPLACE_ONE else full / 2.0
    return mu_at_least(scores[0] > middle, scores[1] > middle)


@pytest.mark.parametrize("adjacency", first_quickly(Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE))
def test_an_embedded_run_is_as_private_as_claimed_and_no_more(adjacency):
    found = embedded_attack(embedded_plan(adjacency), range(RUNS), range(RUNS, 2 * RUNS))
    assert 0.7 * MU <= found <= MU


def test_embedded_rows_that_are_not_shortened_are_refuted():
    plan = embedded_plan(embedding=GaussianEmbedding())
    # Whoever knows the matrix waits for one that makes the row long.
    long = [seed for seed in range(6000) if np.linalg.norm(direction(plan, seed)) > 1.5]
    seeds, others = long[:FEW], long[FEW : 2 * FEW]
    assert len(others) == FEW
    assert embedded_attack(plan, seeds, others) <= MU
    with mock.patch.object(johnson_lindenstrauss, "embedded_rows", not_shortened):
        assert embedded_attack(plan, seeds, others) > MU


# 2. D2P2: the attack with the most power there is, the likelihood ratio.

EPSILON = 0.1
BUDGET = ApproximateDP(14.0, 1e-3)


def released(plan, rows, seeds):
    """All released values, by run and step, with the noise that was due."""
    found, original = [], additive.add_gaussian

    def listening(value, std, k, source):
        noisy = original(value, std, k, source)
        found.append((noisy, std))
        return noisy

    with mock.patch.object(additive, "add_gaussian", listening):
        for seed in seeds:
            run(plan, rows, SeededNoise(seed))
    values = np.reshape([value for value, _ in found], (len(seeds), plan.n_steps, -1))
    return values, np.reshape([std for _, std in found], (len(seeds), plan.n_steps))


def claimed_delta(plan):
    accountant = accountant_for(plan.event, plan.adjacency)
    return accountant.delta(plan.event, plan.adjacency, EPSILON)


def log_ratios(plan, rows, seeds):
    """Log-likelihood that the row is there against that it is not, or is replaced."""
    values, stds = released(plan, rows, seeds)
    gradient = np.array([-0.25, 0.0])
    total = np.zeros(len(seeds))
    rate = plan.method.sampling_rate
    log_rate, stayed_out = math.log(rate), math.log(1.0 - rate) if rate < 1.0 else -math.inf
    for run_number, seed in enumerate(seeds):
        for step in range(plan.n_steps):
            matrix = GaussianMatrix(2, plan.method.dimension, (first_word(seed), step))
            shift, std = matrix.project(gradient), stds[run_number, step]
            shown = values[run_number, step]
            if plan.adjacency is Adjacency.REPLACE_ONE:
                total[run_number] += 2.0 * shift @ shown / std**2
            else:
                entered = (shift @ shown - 0.5 * shift @ shift) / std**2
                total[run_number] += np.logaddexp(stayed_out, log_rate + entered)
    return total


def projected_attack(plan, runs):
    first, second = neighbours(plan)
    a = log_ratios(plan, first, range(runs))
    b = log_ratios(plan, second, range(runs, 2 * runs))
    return delta_at_least(a > EPSILON, b > EPSILON, EPSILON)


def projected_plan(adjacency=Adjacency.ZERO_OUT, **settings):
    return D2P2(**{"dimension": 3, "noise_levels": 2, **FLAT, **settings}).plan(
        LOGISTIC, BUDGET, UNIT, adjacency
    )


@pytest.mark.parametrize(
    ("adjacency", "rate", "share"),
    [
        (Adjacency.ZERO_OUT, 1.0, 0.7),
        pytest.param(Adjacency.REPLACE_ONE, 1.0, 0.7, marks=pytest.mark.slow),
        # Sampling weakens the attack, so the bounds on rates cost relatively more.
        (Adjacency.ZERO_OUT, 0.7, 0.5),
    ],
)
def test_a_projected_run_stays_under_its_claim_and_comes_near(adjacency, rate, share):
    plan = projected_plan(adjacency, sampling_rate=rate)
    found, claim = projected_attack(plan, RUNS), claimed_delta(plan)
    assert share * claim <= found <= claim


def test_fading_noise_accounted_as_constant_is_refuted():
    # Two steps: the second has a tenth of the noise that its event claims.
    plan = projected_plan(n_steps=2)
    assert projected_attack(plan, FEW) <= claimed_delta(plan)
    faded = dataclasses.replace(plan.method, noise_factors=(1.0, 0.2))
    claim = claimed_delta(plan)
    assert projected_attack(unchecked(plan, method=faded), FEW) > claim


def test_a_forgotten_normalisation_is_refuted():
    @dataclasses.dataclass(frozen=True)
    class Unclipped:
        bound: float = 0.25

        def scale(self, slopes, row_norms):
            return 4.0 * slopes

    plan = projected_plan()
    free = dataclasses.replace(plan.method, clipping=Unclipped())
    assert projected_attack(dataclasses.replace(plan, method=free), FEW) > claimed_delta(plan)
