"""Projected descent along noisy gradients: steps, output, and noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.data.rows import DataSpec
from dpglm.problem import L1, L2, L2Ball, Logistic, Problem
from dpglm.solvers import Last, RandomIterate, TailAverage, UniformAverage
from dpglm.solvers.gradient.noisy_gd_method import Descent

DATA = DataSpec(100, 2, intercept=1.0)
SIZES = (1.0, 0.7, 0.4, 0.4, 0.1)


def returned(descent, gradients, seed=0):
    state = descent.init(seed)
    for g in gradients:
        state, _ = descent.step(state, g, 0.5)
    return state


def test_steps_are_prox_and_projection_of_coefficients():
    problem = Problem(Logistic(), L1(0.5), L2Ball(1.0))
    state = returned(Descent(problem, DATA, (1.0, 2.0), Last()), [np.array([-3.0, 0.2, -9.0])])
    np.testing.assert_allclose(state.w, [1.0, 0.0, 9.0])
    covered = Problem(Logistic(), L1(0.5), L2Ball(1.0), penalize_intercept=True)
    state = returned(Descent(covered, DATA, (1.0, 2.0), Last()), [np.array([-3.0, 0.2, -4.5])])
    np.testing.assert_allclose(state.w, np.array([2.5, 0.0, 4.0]) / math.hypot(2.5, 4.0))


def test_diagnostics_are_of_the_released_gradient():
    descent = Descent(Problem(Logistic()), DATA, (1.0, 0.25), Last())
    state, _ = descent.step(descent.init(0), np.zeros(3), 0.5)
    _, info = descent.step(state, np.array([3.0, 4.0, 0.0]), 0.5)
    assert (info.step, info.step_size, info.gradient_norm) == (2, 0.25, 5.0)
    assert info.noise_norm == pytest.approx(0.5 * math.sqrt(3.0))


@pytest.mark.parametrize(
    "output", [Last(), UniformAverage(), TailAverage(0.4), RandomIterate()], ids=repr
)
@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_noise_growth_is_the_linear_response(output, strength):
    penalty = {"regularizer": L2(strength)} if strength else {}
    descent = Descent(Problem(Logistic(), penalize_intercept=True, **penalty), DATA, SIZES, output)
    responses = []
    for k in range(len(SIZES)):
        gradients = [np.full(3, float(j == k)) for j in range(len(SIZES))]
        responses.append(returned(descent, gradients, seed=2**63).returned[0])
    assert descent.noise_growth() == pytest.approx(np.linalg.norm(responses))
