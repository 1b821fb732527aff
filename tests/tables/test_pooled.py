"""Pooled columns: their indicators, unlisted levels, and models that pool them."""

import math
import warnings

import numpy as np
import pytest

import dpglm
from dpglm import LogisticRegression, PrivatePipeline
from dpglm.preprocessing import SchemaEncoder
from dpglm.privacy.noise import SeededNoise
from dpglm.tables.schema import Schema

LEVELS = ["a", "b", "c"]


def schema_of(levels=LEVELS, **ward):
    return {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "ward": {"type": "categorical", "categories": list(levels), **ward},
        },
        "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
        "provenance": "generated",
    }


TABLE = {"age": [0.0, 50.0, 100.0, 75.0], "ward": ["b", "unheard of", "a", "c"]}
INDICATORS = [[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]


@pytest.mark.parametrize(
    "formula", [None, "age + (1 | ward)", "age + re(ward)", "(1|`ward`) + age"]
)
def test_pooled_column_has_an_indicator_for_each_level(formula):
    made = schema_of(**({"pooled": True} if formula is None else {}))
    schema = Schema.from_dict(made).with_formula(formula)
    ((_, (start, stop)),) = schema.encoding.pooled.items()
    encoded = schema.encode(TABLE)
    assert encoded[:, start:stop].tolist() == INDICATORS
    np.testing.assert_array_equal(schema.encode_sparse(TABLE).toarray(), encoded)
    assert schema.row_norm == pytest.approx(math.sqrt(2.0))
    # Coefficients of levels are effects, which do not change the intercept.
    effects = schema.units.coefficients(
        np.r_[np.zeros(start), [1.0, 2.0, 3.0], np.zeros(2 - start)]
    )
    assert effects[start:stop].tolist() == [1.0, 2.0, 3.0]
    assert effects[-1] == 0.0


def test_pooled_name_in_a_formula_is_a_random_intercept():
    schema = Schema.from_dict(schema_of(pooled=True))
    assert list(schema.with_formula("age + ward").encoding.pooled) == ["(1 | ward)"]
    assert not schema.with_formula("age + C(ward)").encoding.pooled


def test_unlisted_levels_stay_errors_where_they_have_no_place():
    with pytest.raises(ValueError, match="unheard of"):
        Schema.from_dict(schema_of()).encode(TABLE)
    with pytest.raises(ValueError, match="unheard of"):
        Schema.from_dict(schema_of(pooled=True)).columns[1].read(TABLE["ward"])
    listed = Schema.from_dict(schema_of(pooled=True, other="c")).encode(TABLE)
    assert listed[1, 1:].tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("odd", [{"reference": "a"}, {"ordered": True}])
def test_pooled_column_refuses_an_order_or_a_reference(odd):
    with pytest.raises(ValueError, match='"pooled" must be false'):
        Schema.from_dict(schema_of(pooled=True, **odd))


def fitted(model, table):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(table)


def drawn(n_levels, n=4000):
    rng = np.random.default_rng(0)
    codes, effects = rng.integers(0, n_levels, n), rng.normal(size=n_levels)
    return {
        "age": rng.uniform(0.0, 100.0, n),
        "ward": np.array([f"w{one}" for one in codes], dtype=object),
        "ill": 1 * (effects[codes] + rng.logistic(size=n) > 0.0),
    }, [f"w{one}" for one in range(n_levels)]


def test_unseen_level_is_predicted_at_the_mean_of_the_term():
    table, levels = drawn(20)
    model = dpglm.from_formula(
        "ill ~ age + (1 | ward)",
        schema_of(levels),
        epsilon=8.0,
        inference=True,
        random_state=SeededNoise(0),
    )
    fitted(model, table)
    rows = {"age": np.full(2, 50.0), "ward": np.array(["never seen", "w0"], dtype=object)}
    inference = model.inference_
    logits = inference.params[0] + 50.0 * inference.params[1] + np.array([0.0, inference.params[2]])
    np.testing.assert_allclose(
        model.predict_proba(rows)[:, 1], 1.0 / (1.0 + np.exp(-logits)), atol=1e-9
    )
    summary = inference.summary()
    assert summary.names == ("intercept", "age")
    assert dict(summary.facts)["Random intercepts"].startswith("(1 | ward): SD ")
    ((scale, low, high),) = inference.variance_components.values()
    assert low < scale < high
    assert inference.conf_int().shape == (22, 2)


def test_many_levels_are_pooled_by_default():
    table, levels = drawn(250, n=3000)

    def solver(classifier, **ward):
        pipeline = PrivatePipeline(
            [SchemaEncoder(schema_of(levels, **ward)), classifier],
            epsilon=1.0,
            random_state=SeededNoise(0),
        )
        return type(fitted(pipeline, table).solution_.plan.method).__name__

    pooled = "RandomInterceptsMethod"
    assert solver(LogisticRegression()) == pooled
    assert solver(LogisticRegression(), pooled=True) == pooled
    assert solver(LogisticRegression(l1_ratio=1.0)) != pooled
    assert solver(LogisticRegression(solver="noisy_gd")) != pooled
    with pytest.raises(ValueError, match="solver must be 'auto' for the pooled columns ward"):
        solver(LogisticRegression(solver="noisy_gd"), pooled=True)
