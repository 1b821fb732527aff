"""Attacks on local messages: those of one row, and the sum of a block."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.privacy.budget import Adjacency, GaussianDP
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.problem import Logistic, Problem
from dpglm.solvers import LocalSGD, run
from dpglm.solvers.gradient import local_sgd
from tests.audit.attack import mu_at_least, one_row

MU, CLIP = 2.0, 0.25
HUGE = np.array([1e6, 0.0])
DATA = DataSpec(n_rows=3, n_features=2, row_norm=1.0)


def plan_of(adjacency=Adjacency.ZERO_OUT, n_blocks=3):
    solver = LocalSGD(n_blocks=n_blocks, step_size=1e-3, clip=CLIP)
    return solver.plan(Problem(Logistic()), GaussianDP(MU), DATA, adjacency)


def neighbours(plan):
    first = one_row(plan.data, HUGE, 1.0)
    if plan.adjacency is Adjacency.REPLACE_ONE:
        return first, one_row(plan.data, -HUGE, 1.0)
    return first, one_row(plan.data, HUGE, 1.0, present=False)


def block_sums(plan, rows, seeds):
    """The releases of the row's own block, found by the run's public randomness."""
    found = []
    for seed in seeds:
        with (
            mock.patch.object(local_sgd, "locally_noised_gradient", heard(shown := [])),
            mock.patch.object(local_sgd, "part_oracles", divided(blocks := [])),
        ):
            run(plan, rows, SeededNoise(seed))
        position = next(j for j, block in enumerate(blocks) if 0 in block)
        found.append(-shown[position][0] * len(blocks[position]))
    return np.array(found)


def heard(seen, original=local_sgd.locally_noised_gradient):
    def listening(*args):
        seen.append(original(*args))
        return seen[-1]

    return listening


def divided(blocks, original=local_sgd.part_oracles):
    def listening(oracle, parts):
        blocks.extend(parts)
        return original(oracle, parts)

    return listening


def attack(plan, runs):
    first, second = neighbours(plan)
    a = block_sums(plan, first, range(runs))
    b = block_sums(plan, second, range(runs, 2 * runs))
    middle = 0.0 if plan.adjacency is Adjacency.REPLACE_ONE else 0.5 * CLIP
    return mu_at_least(a > middle, b > middle)


def test_a_row_that_sends_in_every_block_is_refused():
    plan = plan_of()
    everybody, original = [np.array([0]), np.array([0]), np.array([0])], local_sgd.part_oracles
    drawn = mock.patch.object(additive, "add_gaussian")
    overlapping = lambda oracle, parts: original(oracle, everybody)  # noqa: E731
    with mock.patch.object(local_sgd, "part_oracles", overlapping):
        with drawn as noise, pytest.raises(ValueError, match="parts must be disjoint"):
            run(plan, neighbours(plan)[0], SeededNoise(0))
        assert not noise.called
