"""A study's budget is divided for the model and its evaluation."""

import pytest

from dpglm import Study
from dpglm.study.planning import exploration_share
from tests.study.support import SCHEMA


@pytest.mark.parametrize("n_rows", [3000, 100_000])
def test_description_is_at_most_as_precise_as_its_sampling(n_rows):
    plan = Study(SCHEMA, 0.5, 1e-5).explore().fit().evaluate().plan(n_rows)
    alone = Study(SCHEMA, 0.5, 1e-5).explore().plan(n_rows).planned["exploration"]
    ratio = alone.part.noise_to_sampling(alone.plan.protection)
    assert 0.0 < plan.exploration_share <= (1.0 + 1e-12) * ratio
    planned = plan.planned["model"]
    model = planned.part.noise_to_sampling(planned.plan.protection)
    whole = Study(SCHEMA, 0.5, 1e-5).fit().plan(n_rows).planned["model"]
    # Next to the model alone, which has all rows, a fifth is held out.
    loss = model / whole.part.noise_to_sampling(whole.plan.protection)
    assert 1.0 / 0.8 < loss < 1.05 / 0.8 / (1.0 - plan.exploration_share)


def test_division_has_the_least_sum_of_weighted_variances():
    def total(share):
        return 0.8 / share + 10.0 * 0.3 / (1.0 - share)

    best = exploration_share(0.8, 0.3)
    assert total(best) < min(total(best * 0.99), total(best * 1.01))
    assert exploration_share(0.2, 0.03) == 0.2
