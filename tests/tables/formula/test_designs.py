"""Design matrices of formulas: formulaic's columns, bounded, each row by itself."""

import pickle

import formulaic
import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpglm.tables.schema import Schema
from tests.tables.formula.formulas import (
    FORMULAS,
    OWN_FORMULAS,
    SCHEMA,
    learned_from_others,
    table_of,
)

TABLE = table_of(301)
ALL = [*FORMULAS, *OWN_FORMULAS]


@pytest.mark.parametrize("formula", FORMULAS)
def test_columns_and_names_are_those_of_formulaic(formula):
    schema = SCHEMA.with_formula(formula)
    expected = formulaic.model_matrix(formula.split("~")[1], TABLE)
    names = [name for name in expected.columns if name != "Intercept"]
    assert list(schema.feature_names) == names
    assert schema.encoding.has_intercept == ("Intercept" in expected.columns)
    # Scores tell all columns apart, and say that units are right.
    w = np.random.default_rng(1).normal(size=(len(names) + 1, 3))
    w[-1] *= schema.encoding.has_intercept
    effects = schema.units.coefficients(w)
    scores = expected[names].to_numpy(dtype=float) @ effects[:-1] + effects[-1]
    encoded = schema.encode(TABLE)
    np.testing.assert_allclose(encoded @ w[:-1] + w[-1], scores, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("formula", ALL)
def test_rows_keep_to_their_bound_which_cannot_be_much_smaller(formula):
    schema = SCHEMA.with_formula(formula)
    norms = np.linalg.norm(schema.encode(table_of(20_000)), axis=1)
    assert (norms <= schema.row_norm * (1.0 + 1e-12)).all()
    assert norms.max() >= 0.7 * schema.row_norm


@pytest.mark.parametrize("formula", ALL)
def test_each_row_is_encoded_by_itself(formula):
    schema = SCHEMA.with_formula(formula)
    other = table_of(2, seed=9)[1:].assign(age=90.0, x=3.0)
    assert not learned_from_others(schema.encode, TABLE, other)


@pytest.mark.parametrize(
    "term",
    ["center(x)", "scale(x)", "poly(x, 2)", "bs(x, df=5)", "cr(x, df=4)", "I(x - np.mean(x))"],
)
def test_check_finds_learning_steps(term):
    """These are formulaic's own columns; here the terms are refused, or have fixed knots."""
    other = table_of(2, seed=9)[1:].assign(x=3.0)

    def encode(table):
        return formulaic.model_matrix(f"~ {term}", table).to_numpy(dtype=float)

    assert learned_from_others(encode, TABLE, other)


def test_knots_are_even_on_the_declared_range():
    narrow = TABLE.assign(x=np.clip(TABLE["x"], 0.4, 0.6))
    by_number, by_hand = (
        SCHEMA.with_formula(f"y ~ bs(x, {knots})").encode(narrow)
        for knots in ("df=6", "knots=[-0.75, 0.5, 1.75]")
    )
    np.testing.assert_array_equal(by_number, by_hand)


def test_cells_are_clipped_and_filled_as_the_schema_says():
    schema = SCHEMA.with_formula("y ~ x + z + h")
    odd = pd.DataFrame({"x": [99.0, -99.0], "z": [None, 2.0], "h": ["unknown", "p"]})
    even = pd.DataFrame({"x": [3.0, -2.0], "z": [1.5, 2.0], "h": ["r", "p"]})
    np.testing.assert_array_equal(schema.encode(odd), schema.encode(even))
    with pytest.raises(ValueError, match="column 'x', row 1: the value is missing"):
        schema.encode(even.assign(x=[None, 1.0]))
    with pytest.raises(ValueError, match="lack column 'z'"):
        schema.encode(even.drop(columns="z"))


def test_columns_that_are_not_named_are_not_read():
    schema = SCHEMA.with_formula("y ~ age:sex")
    assert schema.column_names == ("age", "sex")
    used = {name: TABLE[name].to_numpy() for name in ("sex", "age")}
    for table in (used, pd.DataFrame(used), pl.DataFrame(used)):
        np.testing.assert_array_equal(schema.encode(table), schema.encode(TABLE))


def test_references_of_the_schema_are_kept():
    schema = SCHEMA.with_reference({"g": "b"}).with_formula("y ~ g + C(sex)")
    assert schema.feature_names == ("g[T.a]", "g[T.c]", "C(sex)[T.male]")


def test_indicators_are_centred_with_an_intercept():
    assert SCHEMA.with_formula("y ~ sex").row_norm == 0.5
    assert SCHEMA.with_formula("y ~ g").row_norm == np.sqrt(0.5)
    assert SCHEMA.with_formula("y ~ bs(x, df=4)").row_norm == np.sqrt(0.75)
    assert SCHEMA.with_formula("y ~ 0 + bs(x, df=4)").row_norm == 1.0
    assert SCHEMA.with_formula("y ~ 0 + g").row_norm == 1.0
    assert SCHEMA.with_formula("y ~ sex + x").row_norm == np.sqrt(1.25)
    assert SCHEMA.with_formula("y ~ 0 + sex").row_norm == 1.0


def test_scales_are_those_of_declared_ranges():
    """Hand-made: age is centred at 53 with half range 37, alone and in the interaction."""
    schema = SCHEMA.with_formula("y ~ age * x")
    encoded = schema.encode({"age": [90.0, 53.0], "x": [0.5, 3.0]})
    np.testing.assert_allclose(encoded, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]], atol=1e-15)
    alone = SCHEMA.with_formula("y ~ age:x").encode({"age": [90.0], "x": [3.0]})
    np.testing.assert_allclose(alone, [[1.0]])


def test_curves_are_those_of_additive_models():
    from dpglm.preprocessing import SplineEncoder

    encoder = SplineEncoder(SCHEMA, segments=4, smoothness=0.5).fit(TABLE)
    term = encoder.schema_.additive_encoding.terms[1]
    assert term.columns == ("x",)
    schema = SCHEMA.with_formula("y ~ s(x, segments=4, smoothness=0.5)")
    np.testing.assert_array_equal(schema.encode(TABLE), encoder.transform(TABLE)[:, term.features])
    assert schema.row_norm == pytest.approx(term.norm)
    # In a formula, a missing cell counts as the number that the schema says.
    missing = SCHEMA.with_formula("y ~ s(z)").encode({"z": [None, 1.5]})
    np.testing.assert_array_equal(missing[0], missing[1])


@pytest.mark.parametrize("written", ["is.na(z)", "is_na(z)", "isna(`z`)", "I(np.isnan(z))"])
def test_missing_indicator_is_one_for_missing_cells_only(written):
    schema = SCHEMA.with_formula(f"y ~ z + {written}")
    assert len(schema.feature_names) == 2
    encoded = schema.encode({"z": [1.0, None, 1.5, 2.0]})
    # A missing cell counts as 1.5, as it does without the indicator.
    np.testing.assert_array_equal(encoded, [[-1, -1], [0, 1], [0, -1], [1, -1]])
    effects = schema.units.coefficients([1.0, 1.0, 0.0])
    np.testing.assert_allclose(effects, [2.0, 2.0, -4.0])


def test_missing_indicator_of_a_category_is_the_empty_category():
    column = {"type": "categorical", "categories": ["a", "", "b"]}
    schema = Schema.from_dict({"columns": {"c": column}, "provenance": "made up"})
    encoded = schema.with_formula("~ is.na(c)").encode({"c": ["a", None, "b", ""]})
    np.testing.assert_array_equal(encoded, [[-1], [1], [-1], [1]])


def test_json_and_back_and_pickles():
    schema = SCHEMA.with_formula("y ~ age + C(sex)")
    for copy in (Schema.from_dict(schema.to_dict()), pickle.loads(pickle.dumps(schema))):
        assert copy == schema
        assert copy.feature_names == ("age", "C(sex)[T.male]")
        assert copy.row_norm == schema.row_norm
        np.testing.assert_array_equal(copy.encode(TABLE), schema.encode(TABLE))
        np.testing.assert_array_equal(copy.units.matrix.todense(), schema.units.matrix.todense())
    assert "formula" not in SCHEMA.to_dict()
    assert SCHEMA.with_formula(None) is SCHEMA
