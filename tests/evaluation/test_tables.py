"""evaluate takes a table, and names of its columns for targets, levels and groups."""

import numpy as np
import pytest

import dpglm
from dpglm.evaluation import evaluate
from dpglm.privacy import GaussianDP

N = 2000
FACTS = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
    },
    "target": {"name": "ill", "type": "classes", "classes": ["no", "yes"]},
    "provenance": "generated",
}
GIVEN = {"budget": GaussianDP(2.0), "random_state": 0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    age = rng.uniform(0.0, 100.0, N)
    return {
        "age": age,
        "sex": rng.choice(["f", "m"], N),
        "ill": np.where(rng.uniform(0.0, 100.0, N) < age, "yes", "no"),
        "person": np.repeat(np.arange(N // 2), 2),
    }


@pytest.fixture(scope="module")
def model(table):
    return dpglm.AdditiveClassifier(FACTS, epsilon=5.0, random_state=0).fit(table)


def test_evaluate_reads_target_and_levels_from_the_schema(model, table):
    found = evaluate(model, table, by="sex", **GIVEN)
    same = evaluate(model, table, table["ill"], by=table["sex"], levels=["f", "m"], **GIVEN)
    assert (found.solution.w == same.solution.w).all()
    assert list(found.by_level) == ["f", "m", None]
    assert (found.by, same.by) == ("sex", "level")


def test_evaluate_takes_names_of_columns(table):
    class Public:
        classes_ = ("no", "yes")

        def decision_function(self, X):
            return np.asarray(X["age"]) - 50.0

    found = evaluate(
        Public(),
        table,
        "ill",
        by="sex",
        levels=["f"],
        groups="person",
        max_rows_per_group=2,
        **GIVEN,
    )
    assert found.auc > 0.7
    assert found.solution.plan.data.n_units == N // 2
    here = table["age"] > 20.0
    some = evaluate(Public(), table, "ill", by="sex", levels=["f"], where=here, **GIVEN)
    assert some.all_rows.rows.estimate == pytest.approx(here.sum(), abs=50)
    with pytest.raises(
        ValueError, match=r"where must be True or False .* got 'age>=65'. Conditions"
    ):
        evaluate(Public(), table, "ill", by="sex", levels=["f"], where="age>=65", **GIVEN)
    with pytest.raises(ValueError, match="y must be given"):
        evaluate(Public(), table, **GIVEN)
    with pytest.raises(ValueError, match="by must be an array or name a column of X, got 'region'"):
        evaluate(Public(), table, "ill", by="region", levels=["f"], **GIVEN)
    with pytest.raises(ValueError, match="levels must list the public levels of by"):
        evaluate(Public(), table, "ill", by="sex", **GIVEN)
