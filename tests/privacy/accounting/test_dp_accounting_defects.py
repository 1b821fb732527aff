"""Two defects of dp-accounting 0.6.0, shown to be there, and shown not to reach our claims."""

import math

import numpy as np
import pytest

from dpglm.privacy import gdp
from dpglm.privacy.accounting.fourier import FourierAccountant
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian, Laplace, PoissonSampled, Repeated
from tests.privacy.pld import PLD

dp_accounting = pytest.importorskip("dp_accounting")
pld = pytest.importorskip("dp_accounting.pld")
rdp = pytest.importorskip("dp_accounting.rdp")
REPLACE_ONE = dp_accounting.NeighboringRelation.REPLACE_ONE
RESPONSE = dp_accounting.RandomizedResponseDpEvent(0.5, 2)


def epsilon(accountant, event, count=1):
    made = accountant(neighboring_relation=REPLACE_ONE)
    return made.compose(event, count).get_epsilon(1e-5)


def test_pld_accountant_forgets_randomized_response_counts():
    once = epsilon(pld.PLDAccountant, RESPONSE)
    repeated = epsilon(pld.PLDAccountant, dp_accounting.SelfComposedDpEvent(RESPONSE, 20))
    listed = epsilon(pld.PLDAccountant, dp_accounting.ComposedDpEvent([RESPONSE] * 20))
    assert repeated == epsilon(pld.PLDAccountant, RESPONSE, 20) == once
    assert listed > 19.0 * once


def test_rdp_accountant_halves_replace_one_sensitivity():
    # Its multipliers are relative to the clip C; the sum moves by 2 C. Its own PLD knows.
    gaussian = dp_accounting.GaussianDpEvent(2.0)
    exact = gdp.epsilon(1e-5, 2.0 / 2.0)
    assert epsilon(pld.PLDAccountant, gaussian) == pytest.approx(exact, rel=1e-3)
    assert epsilon(rdp.RdpAccountant, gaussian) < 0.5 * exact


def test_subsampled_replace_one_claim_is_refuted_by_one_step():
    q, sigma = 0.5, 2.0
    sampled = dp_accounting.SampledWithoutReplacementDpEvent(
        100, 50, dp_accounting.GaussianDpEvent(sigma)
    )
    claimed = epsilon(rdp.RdpAccountant, sampled)
    # All other rows zero: the row is drawn with probability q and moves the sum to +1 or -1.
    x = np.linspace(-30.0, 30.0, 200_001)
    normal = lambda center: np.exp(-0.5 * ((x - center) / sigma) ** 2)  # noqa: E731
    p = (1.0 - q) * normal(0.0) + q * normal(1.0)
    r = (1.0 - q) * normal(0.0) + q * normal(-1.0)
    scale = (x[1] - x[0]) / (sigma * math.sqrt(2.0 * math.pi))
    exact_delta = np.maximum(p - math.exp(claimed) * r, 0.0).sum() * scale
    assert exact_delta > 5.0 * 1e-5


@pytest.mark.parametrize("accountant", [PLD(), FourierAccountant()], ids=lambda a: a.name)
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize(
    "make",
    [Laplace, lambda s: PoissonSampled(0.3, Gaussian(s))],
    ids=["laplace", "poisson"],
)
def test_ours_remember_the_count(accountant, adjacency, make):
    repeated = accountant.epsilon(Repeated(make(3.0), 20), adjacency, 1e-5)
    # Multipliers that differ a little cannot be merged, so these are composed one by one.
    listed = Composed(tuple(make(3.0 * (1.0 + 1e-7 * j)) for j in range(20)))
    assert accountant.epsilon(listed, adjacency, 1e-5) == pytest.approx(repeated, rel=2e-3)
    assert repeated > 3.0 * accountant.epsilon(make(3.0), adjacency, 1e-5)


def test_ours_have_the_factor_two_of_replace_one():
    # Noise of standard deviation 2 and clip 1: a multiplier of 1 under replace-one.
    for accountant in (PLD(), FourierAccountant()):
        found = accountant.epsilon(
            Gaussian(2.0 / Adjacency.REPLACE_ONE.sum_sensitivity(1.0)), Adjacency.REPLACE_ONE, 1e-5
        )
        assert found == pytest.approx(gdp.epsilon(1e-5, 1.0), rel=1e-3)
