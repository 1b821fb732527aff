"""Columns that others make redundant in every row are refused by name, and no others."""

import numpy as np
import pytest

from dpglm.tables.schema import Schema
from tests.tables.formula.formulas import SCHEMA, table_of

ALIASED = {
    "age + I(2*age + 3)": "'I(2 * age + 3)' is a linear combination of 'age'",
    "age + I(age)": r"'I(age)' is a linear combination of 'age'",
    "sex + C(sex)": "'C(sex)[T.male]' is a linear combination of 'sex[T.male]'",
    "g + x + C(g, Treatment('b'))": "[T.a]\" is a linear combination of 'the intercept', 'g[T.b]'",
    "bs(x, df=5) + x": "'x' is a linear combination of 'the intercept', 'bs(x, df=5)[1]'",
    "s(x) + x": "'x' is a linear combination of 's(x)[0]'",
    "I(age > 40) + I(age <= 40)": "'I(age <= 40)' is a linear combination of 'I(age > 40)'",
    "np.log(age) + np.log2(age)": "'np.log2(age)' is",
    "I(x + z) + age + I(x - z) + I(3 * z)": "of 'I(x + z)', 'I(x - z)' in every row",
    "np.maximum(x, 0) + np.minimum(x, 0) + x": "'np.maximum(x, 0)', 'np.minimum(x, 0)'",
    "I(x - x) + age": "'I(x - x)' is zero in every row",
    "g*h*sex*C(h, Treatment('q'))": "is a linear combination of 'the intercept', 'h[T.q]'",
    "g:x + I(2*x):g": "I(2 * x)",
}


@pytest.mark.parametrize("terms", ALIASED)
def test_a_column_that_others_make_is_named(terms):
    with pytest.raises(ValueError, match="in every row") as raised:
        SCHEMA.with_formula(f"y ~ {terms}")
    assert ALIASED[terms] in str(raised.value)


FREE = [
    "0 + I(age > 40) + I(age <= 40)",  # without an intercept
    "age * I(age > 40)",
    "I(age > 40):sex + I(age > 40)",
    "age + I(age**2) + I(age**3) + I(age**4)",
    "I(x == 0) + I(x == 0.123)",
    "I(age > 89.9999) + I(age < 16.0001)",
    "bs(age, knots=[16.0001, 16.0002])",
    "x + I(x - x + 1e-9 * age)",
    "g:h + g + h",
    "s(age) * sex + age:sex - age:sex",
    "g*h*sex*bs(age, 20)",
]


@pytest.mark.parametrize("terms", FREE)
def test_informative_columns_are_kept(terms):
    assert len(SCHEMA.with_formula(f"y ~ {terms}").feature_names) > 0


def test_very_wide_bounds_keep_results():
    entry = {"type": "numeric", "low": 0, "high": 1e9}
    schema = Schema.from_dict({"columns": {"pay": entry}, "provenance": "made up"})
    formula = "pay + I(pay > 5e4) + bs(pay, knots=[1e4, 2e4, 5e4], degree=1) - pay + np.log1p(pay)"
    assert len(schema.with_formula(f"~ {formula}").feature_names) == 6


def test_the_verdict_is_that_of_the_rank_of_real_rows():
    """Random sums of a pool of terms: refused just where formulaic's columns lack rank."""
    import formulaic

    contrasts = "C(g, contr.treatment(base='b'))"
    pool = ["x", "I(2*x + 1)", "age", "sex", "C(sex)", "g", "g:x", "I(x**2)", contrasts]
    pool += ["I((x - 1)**2)", "I(x > 0.5)", "I(x <= 0.5):sex", "np.log(age)"]
    rng, table, seen = np.random.default_rng(4), table_of(400), set()
    for _ in range(40):
        formula = " + ".join(rng.choice(pool, size=rng.integers(2, 6), replace=False))
        design = formulaic.model_matrix(f"~ {formula}", table).to_numpy(dtype=float)
        design /= np.abs(design).max(axis=0)
        is_full = bool(np.linalg.matrix_rank(design) == design.shape[1])
        assert is_read(formula) == is_full, formula
        seen.add(is_full)
    assert seen == {True, False}


def is_read(formula):
    try:
        SCHEMA.with_formula(f"y ~ {formula}")
    except ValueError:
        return False
    return True


def test_column_of_many_categories_is_coded_independently():
    many = {"type": "categorical", "categories": [f"c{i}" for i in range(3000)]}
    schema = Schema.from_dict({"columns": {"many": many}, "provenance": "made up"})
    assert len(schema.with_formula("~ many").feature_names) == 2999
