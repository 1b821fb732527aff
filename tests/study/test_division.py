"""A study's budget is divided for its purpose: nothing else makes that part more precise."""

import math

import pytest

from dpglm import Study
from dpglm.study import Purpose
from dpglm.study.planning import exploration_share
from tests.study.support import SCHEMA


def precisions(purpose, n_rows):
    """Expected error of each part; that of the evaluation includes sampling."""
    made = Study(SCHEMA, 0.5, 1e-5, purpose=purpose).explore().fit().evaluate()
    plan = made.plan(n_rows)
    (_, reach), *_ = plan.evaluation.precision()
    return {
        "exploration": plan.exploration.plan.coefficient_noise,
        "model": plan.model.part.noise_to_sampling(plan.model.plan.protection),
        "evaluation": math.hypot(reach, 0.98 / math.sqrt(plan.rows_of("evaluation"))),
    }


@pytest.mark.parametrize("n_rows", [3000, 100_000])
def test_each_purpose_is_served_best_by_its_own_name(n_rows):
    found = {purpose: precisions(purpose, n_rows) for purpose in Purpose}
    for part in ("exploration", "model", "evaluation"):
        best = min(found, key=lambda purpose: found[purpose][part])
        assert best is Purpose(part)
        # And not by a hair: at the least against a balanced study.
        assert found[best][part] < 0.999 * found[Purpose.BALANCED][part]


def test_a_balanced_division_has_the_least_sum_of_variances():
    def total(share):
        return 0.02 / share + 0.3 / (1.0 - share)

    best = exploration_share(0.02, 0.3, Purpose.BALANCED)
    assert total(best) < min(total(best * 0.99), total(best * 1.01))
