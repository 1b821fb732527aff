"""Costs of networks, by accountants that share nothing with the library's."""

from __future__ import annotations

import math

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from scipy import integrate, stats

from dpglm.privacy import ApproximateDP, PoissonSampled, ProjectedGaussian, gdp
from dpglm.privacy.accounting.calibrate import spent
from dpglm.privacy.events import Gaussian, Repeated, canonical
from dpglm.solvers import D2P2, Exponential
from tests.torch_networks.networks import planned

SETTINGS = {"step_size": 0.2, "clip": 0.5}


def test_dp_sgd_cost_equals_dp_accounting():
    plan = planned(D2P2.dp_sgd(n_steps=100, sampling_rate=0.05, **SETTINGS))
    noise = plan.method.noise_multiplier
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(noise)), 100)
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)
    assert canonical(plan.event) == Repeated(PoissonSampled(0.05, Gaussian(noise)), 100)


def test_fading_noise_cost_equals_dp_accounting():
    solver = D2P2.d2p_sgd(
        n_steps=30, sampling_rate=0.2, noise_schedule=Exponential(0.5), noise_levels=4, **SETTINGS
    )
    method = planned(solver).method
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    for factor in method.noise_factors:
        own = dp_event.GaussianDpEvent(factor * method.noise_multiplier)
        accountant.compose(dp_event.PoissonSampledDpEvent(0.2, own))
    assert len(set(method.noise_factors)) == 4
    assert accountant.get_epsilon(1e-5) == pytest.approx(1.0, rel=2e-3)


def test_block_projections_cost_the_integral_over_all_columns():
    plan = planned(D2P2.dp2_sgd(n_steps=10, dimension=4, **SETTINGS), block_size=16)
    method = plan.method
    columns = 4 * method.blocks
    law = stats.chi2(10 * columns)
    scale = 1.0 / (columns * method.noise_multiplier**2)
    delta, _ = integrate.quad(
        lambda x: law.pdf(x) * gdp.delta(1.0, math.sqrt(scale * x)), *law.interval(1 - 1e-12)
    )
    assert method.blocks == 4
    assert 0.97e-5 <= delta <= 1e-5
    assert canonical(plan.event) == Repeated(
        ProjectedGaussian(method.noise_multiplier, columns), 10
    )


def test_million_columns_cost_about_as_no_projection():
    plan = planned(D2P2.dp_sgd(n_steps=10, sampling_rate=0.1, **SETTINGS))
    projected = ProjectedGaussian(plan.method.noise_multiplier, 10**6)
    event = Repeated(PoissonSampled(0.1, projected), 10)
    cost = spent(event, plan.adjacency, ApproximateDP(1.0, 1e-5))
    assert cost["epsilon"] == pytest.approx(1.0, rel=5e-3)
