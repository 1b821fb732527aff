"""Descriptions that protect all rows of a group together."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import dpglm
from dpglm.certificate import verify
from dpglm.data.rows import GroupBound
from dpglm.exploration import plan_description
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import ApproximateDP, GaussianDP, Unit

PERSONS, EACH = 500, 4
SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 20, "high": 80},
        "arm": {"type": "categorical", "categories": ["control", "treated"]},
    },
    "provenance": "drawn so",
}


def visits():
    """A table of people with repeated rows, in the order of people."""
    rng = np.random.default_rng(0)
    who = np.repeat(np.arange(PERSONS), EACH)
    age = rng.uniform(20.0, 80.0, PERSONS)[who]
    arm = np.where(rng.uniform(size=PERSONS) < 0.4, "treated", "control")[who]
    return {"age": age, "arm": arm, "who": who}


def described(table, **settings):
    facts = {"groups": "who", "max_rows_per_group": EACH, "epsilon": 20.0, "random_state": 0}
    return dpglm.describe(table, SCHEMA, **facts | settings)


def test_it_states_that_it_protects_people():
    table = visits()
    found = described(table, random_state=None)
    assert found.privacy_.data.unit is Unit.GROUP
    assert "all rows of any one group (person)" in found.privacy_.statement()
    assert verify(found.privacy_).ok
    assert found["age"].mean.estimate == pytest.approx(table["age"].mean(), abs=0.5)
    limited = described(table, max_rows_per_group=1)
    assert limited.privacy_.data.n_rows == limited.privacy_.data.n_units == PERSONS


def test_intervals_allow_for_rows_that_are_alike():
    wide = described(visits(), epsilon=1e4)["age"].mean
    narrow = dpglm.describe(visits(), SCHEMA, epsilon=1e4, random_state=0)["age"].mean
    widths = [one.population_high - one.population_low for one in (wide, narrow)]
    assert widths[0] == pytest.approx(np.sqrt(EACH) * widths[1], rel=0.05)


def test_noise_is_made_for_the_rows_of_a_person():
    rows, persons = (
        plan_description(SCHEMA, 2000, GaussianDP(0.5), bins={"age": 6}, groups=groups)
        for groups in (None, GroupBound(PERSONS, 4.0))
    )
    noises = [one.plan.coefficient_noise for one in (rows, persons)]
    assert noises[1] == pytest.approx(4.0 * noises[0], rel=1e-6)


def test_parquet(tmp_path):
    table = visits()
    parquet.write_table(pyarrow.table(table), tmp_path / "visits.parquet")
    one, other = (described(rows) for rows in (table, tmp_path / "visits.parquet"))
    np.testing.assert_allclose(one.solution.w, other.solution.w)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_rows_per_group": None}, "max_rows_per_group must be given with groups"),
        ({"groups": None}, "groups must be given with max_rows_per_group=4"),
        ({"n_groups": 3}, "n_groups must be the number of groups, 500"),
        ({"adjacency": "replace_one"}, "n_rows must be given"),
        ({"groups": [1, 2]}, r"groups must have shape \(2000,\)"),
    ],
)
def test_errors_are_found_before_spending(settings, message, tmp_path):
    ledger = PrivacyLedger.create(
        tmp_path / "l", data="x", budget=ApproximateDP(99, 0.1), unit="group"
    )
    with pytest.raises(ValueError, match=message):
        described(visits(), ledger=ledger, random_state=None, **settings)
    assert ledger.contents().entries == ()
