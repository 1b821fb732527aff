"""Pure releases composed with sampled ones under replace-one are not charged twice."""

import pytest

from dpglm.certificate.recompute import recompute
from dpglm.privacy.accounting.accountant import pure_group
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import (
    BoundedRange,
    Composed,
    Gaussian,
    PoissonSampled,
    Pure,
    Repeated,
)
from tests.slowly import first_quickly

REPLACE_ONE = Adjacency.REPLACE_ONE
DELTA = 1e-5
QUIET = PoissonSampled(1e-3, Gaussian(10.0))


@pytest.mark.parametrize(
    ("pure", "most"),
    first_quickly(
        (Pure(1.0), 1.001),
        (Repeated(BoundedRange(0.1), 50), 1.479),
        (Repeated(Pure(0.1), 10), 1.001),
    ),
    ids=["2.003 once", "3.469 once", "many"],
)
def test_sampled_step_does_not_double_pure_ones(pure, most):
    event = Composed((pure, QUIET))
    accountant = accountant_for(event, REPLACE_ONE)
    epsilon = accountant.epsilon(event, REPLACE_ONE, DELTA)
    alone = accountant_for(pure, REPLACE_ONE).epsilon(pure, REPLACE_ONE, DELTA)
    assert alone <= epsilon <= most
    assert accountant.delta(event, REPLACE_ONE, epsilon) <= 1.002 * DELTA
    for one in recompute(event, REPLACE_ONE, epsilon, DELTA):
        assert one.delta <= DELTA * (1.0 + one.tolerance)
    # Planted bug: the sampled part for nothing.
    loud = Composed((pure, Repeated(PoissonSampled(0.1, Gaussian(2.0)), 30)))
    assert accountant.epsilon(loud, REPLACE_ONE, DELTA) > alone + 0.5


def test_groups_exist_only_to_avoid_double_charges():
    event = Composed((Pure(0.5), Gaussian(2.0), QUIET))
    assert pure_group(event, REPLACE_ONE) == (Composed((Gaussian(2.0), QUIET)), Pure(0.5))
    assert pure_group(event, Adjacency.ZERO_OUT) is None
    assert pure_group(Composed((Pure(0.5), Gaussian(2.0))), REPLACE_ONE) is None
    assert pure_group(QUIET, REPLACE_ONE) is None
