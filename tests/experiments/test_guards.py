"""Trials of guards change the named setting, and restore it."""

import pytest

from dpglm.data.rows import DataSpec
from dpglm.privacy import GaussianDP
from dpglm.problem import Logistic, Problem, Savage
from dpglm.solvers.auto import Auto
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from experiments import guards


def clip():
    data = DataSpec(100_000, 5)
    return Auto().plan(Problem(Savage()), GaussianDP(1.0), data).method.clipping.bound


def share():
    solvers = (NoisyGD(n_steps=100), NoisyGD(n_steps=100, compare=True))
    plans = [one.plan(Problem(Logistic()), GaussianDP(0.5), DataSpec(1000, 5)) for one in solvers]
    plain, with_comparison = (one.method.noise_multiplier for one in plans)
    return 1.0 - (plain / with_comparison) ** 2


@pytest.mark.parametrize("tried", guards.CLIPS)
def test_the_clip_that_is_tried_is_taken(tried):
    usual = clip()
    with guards._clip(tried):
        assert clip() == pytest.approx(tried * usual)
    assert clip() == usual


@pytest.mark.parametrize("tried", guards.SHARES)
def test_the_share_that_is_tried_is_spent(tried):
    usual = share()
    with guards._comparison(tried):
        assert share() == pytest.approx(tried[0], rel=1e-3)
    assert share() == usual
