"""Evaluations that protect all rows of a group together."""

import numpy as np
import pytest

import dpglm
from dpglm.certificate import verify
from dpglm.data.rows import GroupBound
from dpglm.evaluation import BinaryTask, plan_evaluation
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, Unit

PERSONS, EACH = 1000, 4


def people(seed=0):
    """Scores and labels of people with repeated rows."""
    rng = np.random.default_rng(seed)
    scores = np.repeat(rng.uniform(size=PERSONS), EACH)
    y = np.repeat(rng.uniform(size=PERSONS) < scores[::EACH], EACH).astype(int)
    order = rng.permutation(len(y))
    return y[order], scores[order], np.repeat(np.arange(PERSONS), EACH)[order]


def evaluated(y, scores, ids, **settings):
    facts = {"classes": [0, 1], "epsilon": 20.0, "random_state": 0}
    return dpglm.evaluate_predictions(y, scores, groups=ids, **facts | settings)


def test_it_states_that_it_protects_people():
    y, scores, ids = people()
    found = evaluated(y, scores, ids, max_rows_per_group=EACH, random_state=None)
    certificate = found.privacy_
    assert certificate.data.unit is Unit.GROUP
    assert certificate.data.n_units == PERSONS
    assert "all rows of any one group (person)" in certificate.statement()
    assert verify(certificate).ok
    assert abs(found.accuracy() - np.mean((scores >= 0.5) == y)) < 0.01


def test_intervals_allow_for_rows_that_are_alike():
    y, scores, ids = people()
    of_persons = evaluated(y, scores, ids, max_rows_per_group=EACH, epsilon=1e3)
    of_rows = dpglm.evaluate_predictions(y, scores, classes=[0, 1], epsilon=1e3, random_state=0)
    wide, narrow = (float(np.diff(one.conf_int("auc"))[0]) for one in (of_persons, of_rows))
    assert wide == pytest.approx(np.sqrt(EACH) * narrow, rel=0.1)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_noise_is_made_for_the_rows_of_a_person(adjacency):
    task, budget = BinaryTask((0, 1)), GaussianDP(0.5)
    plans = [
        plan_evaluation(task, 4000, budget, adjacency=adjacency.value, groups=groups).plan
        for groups in (None, GroupBound(PERSONS, 4.0))
    ]
    of_rows, of_persons = (one.method.releases[0].contribution_bound for one in plans)
    assert of_persons == pytest.approx(4.0 * of_rows)
    assert plans[1].method.releases[0].unit is Unit.GROUP


def test_rows_beyond_the_limit_are_left_out():
    y, scores, ids = people()
    found = evaluated(y, scores, ids, max_rows_per_group=1)
    assert found.privacy_.data.n_rows == found.privacy_.data.n_units == PERSONS


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "max_rows_per_group must be given with groups"),
        ({"groups": None, "max_rows_per_group": 3}, "groups must be given"),
        ({"groups": None, "n_groups": 3}, "groups must be given with n_groups=3"),
        ({"max_rows_per_group": 4, "n_groups": 3}, "n_groups must be the number of groups, 1000"),
        ({"max_rows_per_group": 4, "adjacency": "replace_one"}, "n_rows must be given"),
        ({"max_rows_per_group": 0}, "max_rows_per_group must be"),
        ({"max_rows_per_group": 4, "groups": [1, 2]}, r"groups must have shape \(4000,\)"),
    ],
)
def test_errors_are_found_before_spending(settings, message, tmp_path):
    y, scores, ids = people()
    ledger = PrivacyLedger.create(
        tmp_path / "l", data="x", budget=ApproximateDP(99, 0.1), unit="group"
    )
    facts = {"groups": ids, "classes": [0, 1], "ledger": ledger}
    with pytest.raises(ValueError, match=message):
        dpglm.evaluate_predictions(y, scores, **facts | settings)
    assert ledger.contents().entries == ()


def test_a_plan_is_for_as_many_rows_and_groups():
    y, scores, ids = people()
    plan = plan_evaluation(
        BinaryTask((0, 1)), len(y), GaussianDP(1.0), groups=GroupBound(PERSONS, 2.0)
    )
    with pytest.raises(dpglm.PlanMismatchError, match="for 4000 rows in them, and these are 2000"):
        plan.run(y, scores, groups=ids, random_state=0)
    with pytest.raises(ValueError, match="groups must be given for a plan with groups"):
        plan.run(y, scores, random_state=0)
    with pytest.raises(ValueError, match="and for no other"):
        plan_evaluation(BinaryTask((0, 1)), len(y), GaussianDP(1.0)).run(y, scores, groups=ids)
    with pytest.raises(ValueError, match="rows must be targets, predictions and"):
        plan.run(y, groups=ids)
