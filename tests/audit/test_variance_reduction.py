"""Attacks on anchors and on gradient differences: under the claim, near it, deadly for bugs."""

from __future__ import annotations

import dataclasses
from unittest import mock

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.oracle import gradients as differences_module
from dpglm.oracle.clipping import Clipping
from dpglm.privacy import GaussianDP
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem, Squared
from dpglm.solvers import SVRG, SVRGPlusPlus, run
from dpglm.solvers.gradient import svrg as module
from tests.audit.attack import mu_at_least, one_row, planted_noise, views
from tests.planted import unchecked
from tests.slowly import first_quickly

MU = 2.0
RUNS, FEW = 500, 60
N = 3


# 1. Anchors: a row with a clipped gradient of full norm.


def anchor_attack(plan, runs):
    data, row = plan.data, np.array([1e6, 0.0])
    first = one_row(data, row, 1.0)
    second = (
        one_row(data, -row, 1.0)
        if plan.adjacency is Adjacency.REPLACE_ONE
        else one_row(data, row, 1.0, present=False)
    )
    a, b = (
        -views(plan, rows, range(start, start + runs)).gradients[:, :, 0].sum(axis=1)
        for rows, start in ((first, 0), (second, runs))
    )
    full = plan.method.clip * plan.n_steps / N
    middle = 0.0 if plan.adjacency is Adjacency.REPLACE_ONE else full / 2.0
    return mu_at_least(a > middle, b > middle)


def anchors_only(adjacency=Adjacency.ZERO_OUT):
    solver = SVRG(n_epochs=2, inner_steps=1, clip=0.25, step_size=1e-3)
    data = DataSpec(n_rows=N, n_features=2, row_norm=1.0)
    return solver.plan(Problem(Logistic()), GaussianDP(MU), data, adjacency)


@pytest.mark.parametrize("adjacency", first_quickly(Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE))
def test_anchors_are_as_private_as_claimed_and_no_more(adjacency):
    assert 0.7 * MU <= anchor_attack(anchors_only(adjacency), RUNS) <= MU


def test_an_anchor_without_noise_is_refuted():
    def exact(add):
        return lambda value, std, k, source: np.array(value)

    with planted_noise(exact):
        assert anchor_attack(anchors_only(), FEW) > MU


# 2. Differences: with the squared loss and one column, a row's difference is |w - anchor| long,
# which is all that the bound allows. The attacker knows the row, and sees w and the anchor.

DATA = DataSpec(n_rows=N, n_features=1, row_norm=1.0, target_low=-1.0, target_high=1.0)
SETTINGS = {"clip": 100.0, "step_size": 0.02, "sampling_rate": 1.0, "anchor_share": 0.02}


def differences_plan(kind=SVRG, **changes):
    solver = kind(**{"n_epochs": 2, "inner_steps": 3, **SETTINGS, **changes})
    return solver.plan(Problem(Squared()), GaussianDP(MU), DATA)


def log_ratios(plan, rows, seeds):
    """Log-likelihood ratio of "the row is present" from the released differences."""
    found = []
    original = module.noisy_difference

    def listening(oracle, declared, w, anchor, clipping, bound):
        noisy = original(oracle, declared, w, anchor, clipping, bound)
        shift = float((w - anchor)[0])
        std = declared.scale.std
        found.append(shift * (N * float(noisy[0]) - shift / 2.0) / std**2)
        return noisy

    ratios = []
    with mock.patch.object(module, "noisy_difference", listening):
        for seed in seeds:
            found.clear()
            run(plan, rows, SeededNoise(seed))
            assert len(found) == plan.method.n_differences
            ratios.append(sum(found))
    return np.array(ratios)


def difference_attack(plan, runs):
    first = one_row(plan.data, np.array([1.0]), 0.5)
    second = one_row(plan.data, np.array([1.0]), 0.5, present=False)
    a = log_ratios(plan, first, range(runs))
    b = log_ratios(plan, second, range(runs, 2 * runs))
    return mu_at_least(a > 0.0, b > 0.0)


@pytest.mark.parametrize("kind", first_quickly(SVRG, SVRGPlusPlus))
def test_differences_are_as_private_as_claimed_and_no_more(kind):
    assert 0.7 * MU <= difference_attack(differences_plan(kind), RUNS) <= MU


def test_noise_for_half_the_bound_is_refuted():
    # The multiplier times a bound that is not the one that rows are clipped to.
    plan = differences_plan()
    original = differences_module.clipped_difference_sum

    def looser(rows, loss, clipping, bound, *rest):
        return original(rows, loss, clipping, 2.0 * bound, *rest)

    with (
        mock.patch.object(differences_module, "clipped_difference_sum", looser),
        mock.patch.object(module, "row_smoothness", return_value=0.5),
    ):
        assert difference_attack(plan, FEW) > MU
    # The wrong smoothness alone costs accuracy, not privacy: differences are clipped to it.
    with mock.patch.object(module, "row_smoothness", return_value=0.5):
        assert difference_attack(plan, FEW) <= MU


def test_differences_without_noise_for_the_distance_are_refuted():
    # Noise made for the anchors' multiplier alone, as if differences came for free.
    plan = differences_plan()
    free = dataclasses.replace(plan.method, difference_noise_multiplier=0.1)
    with mock.patch.object(type(plan.method), "mechanisms", free.mechanisms):
        assert difference_attack(unchecked(plan, method=free), FEW) > MU


def test_bound_rests_on_clipping():
    # Rows ten times longer than promised, with no clip of differences.
    plan = differences_plan()

    class Forgotten(Clipping):
        def __init__(self, bound):
            self.bound = bound

        def factor(self, norms):
            return np.ones_like(norms)

    def attack():
        shown = []
        for present, start in ((True, 0), (False, 2 * FEW)):
            rows = one_row(plan.data, np.array([1.0]), 0.5, present=present)
            rows._X[0] = 10.0
            shown.append(log_ratios(plan, rows, range(start, start + 2 * FEW)))
        return mu_at_least(shown[0] > 0.0, shown[1] > 0.0)

    with mock.patch.object(differences_module, "FlatClipping", Forgotten):
        assert attack() > MU
