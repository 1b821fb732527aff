"""The largest share of a budget that fits: never over it, close to it, in few tries."""

import math

import pytest

from dpglm.privacy.accounting.calibrate import largest_share

# Excess of a plan that gets a share, which is 0 at the share given.
CURVES = {
    "proportional": (0.3, lambda share: math.log(share / 0.3)),
    "beside much else": (0.2, lambda share: 0.5 * math.log((1.0 + share**2) / 1.04)),
    "steep": (0.7, lambda share: 3.0 * (share - 0.7)),
    "a step to infinity": (0.5, lambda share: math.inf if share > 0.5 else math.log(share / 0.5)),
}


@pytest.mark.parametrize("start", [0.05, 0.4, 1.0])
@pytest.mark.parametrize("name", CURVES)
def test_finds_the_share_in_few_tries(name, start):
    root, excess = CURVES[name]
    tried = []
    found = largest_share(lambda share: tried.append(share) or share, excess, start)
    assert -2e-3 < excess(found) <= 0.0
    assert found == pytest.approx(root, rel=0.03)
    assert len(tried) <= 8


def test_all_of_it_is_taken_where_it_fits_and_no_more():
    assert largest_share(lambda share: share, lambda share: share - 2.0, 0.5) == 1.0
    assert largest_share(lambda share: share, lambda share: share - 2.0, 0.5, most=5.0) <= 2.0


def test_nothing_fits():
    assert largest_share(lambda share: share, lambda share: 1.0, 0.5) is None
