"""Maps from fitted coefficients to effects in the units of a table."""

import numpy as np
import pytest
from scipy import sparse

from dpglm.tables.columns import CategoricalColumn, NumericColumn, indicator_ball
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget

AGE = NumericColumn("age", 16, 90)
PAY = NumericColumn("pay", -2e3, 1e5)
SEX = CategoricalColumn("sex", ("female", "male"))
REGION = CategoricalColumn("region", ("north", "south", "west"))
TABLE = {
    "age": [16.0, 90.0, 41.5, 30.0, 77.0],
    "pay": [0.0, 1e5, -2e3, 31_000.0, 12.5],
    "sex": ["female", "male", "male", "female", "male"],
    "region": ["north", "west", "south", "south", "west"],
}


def schema_of(*columns, reference=None):
    schema = Schema(columns, ClassTarget("ill", ("no", "yes")), "made up")
    return schema.with_reference(reference)


REFERENCES = [
    None,
    "first",
    {"sex": "male"},
    {"region": "south"},
    {"sex": "male", "region": "west"},
]


@pytest.fixture(params=REFERENCES, ids=str)
def schema(request):
    return schema_of(AGE, SEX, PAY, REGION, reference=request.param)


def score(schema, effects, row):
    """The score of a row, by hand, from effects in the table's units."""
    by_name = dict(zip(schema.units.names, effects[:-1], strict=True))
    total = effects[-1]
    for column in schema.columns:
        value = TABLE[column.name][row]
        if isinstance(column, NumericColumn):
            total += by_name.pop(column.name) * value
        else:
            own = {name: by_name.pop(name) for name in list(by_name) if f"{column.name}=" in name}
            base = "mean" if column.reference is None else column.reference
            assert set(own) == {
                f"{column.name}={one} vs {base}" for one in column.categories if one != base
            }
            total += own.get(f"{column.name}={value} vs {base}", 0.0)
    assert not by_name
    return total


def test_scores_in_the_tables_units_are_those_of_the_fit(schema):
    rng = np.random.default_rng(0)
    w = rng.normal(size=len(schema.feature_names) + 1)
    effects = schema.units.coefficients(w)
    encoded = schema.encode(TABLE) @ w[:-1] + w[-1]
    by_hand = [score(schema, effects, row) for row in range(len(encoded))]
    np.testing.assert_allclose(by_hand, encoded, rtol=1e-12, atol=1e-12)


def test_effects_from_the_mean_average_to_zero():
    units = schema_of(AGE, SEX, REGION).units
    w = np.array([0.5, 1.0, 3.0, 2.0, 5.0, 8.0, -1.0])
    effects = units.coefficients(w)
    assert effects[1:3].tolist() == [-1.0, 1.0]
    np.testing.assert_allclose(effects[3:6], [-3.0, 0.0, 3.0], atol=1e-12)
    moved = w + np.array([0.0, 7.0, 7.0, 0.0, 0.0, 0.0, -7.0])
    np.testing.assert_allclose(units.coefficients(moved), effects, atol=1e-12)


def test_covariances_are_those_of_mapped_coefficients(schema):
    rng = np.random.default_rng(1)
    draws = rng.normal(size=(len(schema.feature_names) + 1, 60))
    units = schema.units
    expected = np.cov(units.coefficients(draws))
    np.testing.assert_allclose(units.covariance(np.cov(draws)), expected, rtol=1e-9, atol=1e-9)


def test_several_outputs_at_once(schema):
    w = np.random.default_rng(2).normal(size=(len(schema.feature_names) + 1, 3))
    together = schema.units.coefficients(w)
    for output in range(3):
        np.testing.assert_allclose(together[:, output], schema.units.coefficients(w[:, output]))


def test_one_map_after_another():
    inner = LinearUnits(sparse.csr_array(np.diag([3.0, 3.0, 3.0])), 0.5)
    columns = LinearUnits.of_columns([1.0, -2.0], [2.0, 4.0], intercept=5.0, names=["a", "b"])
    w = np.array([1.0, 2.0, 3.0])
    both = columns.after(inner)
    np.testing.assert_allclose(both.coefficients(w), columns.coefficients(inner.coefficients(w)))
    np.testing.assert_allclose(
        inner.after(columns).coefficients(w), inner.coefficients(columns.coefficients(w))
    )
    assert both.names == inner.after(columns).names == ("a", "b")


def test_a_fit_without_intercept_gets_one_from_its_centers():
    units = LinearUnits.of_columns([1.0, -2.0], [2.0, 4.0], intercept=0.0)
    assert units.coefficients([4.0, 8.0]).tolist() == [2.0, 2.0, 2.0]


def test_a_million_columns_take_no_square_matrix():
    n = 1_000_000
    units = LinearUnits.identity(n).after(LinearUnits.of_columns(np.ones(n), np.full(n, 2.0)))
    assert units.coefficients(np.ones(n + 1))[-1] == pytest.approx(1.0 - n / 2)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 10, 100])
def test_ball_of_indicators_is_the_smallest(n):
    (center, radius), corners = indicator_ball(n), np.vstack([np.zeros(n), np.eye(n)])

    def needed(t):
        return np.linalg.norm(corners - t, axis=1).max()

    assert needed(center) == pytest.approx(radius, rel=1e-12)
    # Of all centers with equal coordinates, which suffice by symmetry and convexity.
    assert radius <= min(needed(t) for t in np.linspace(0.0, 1.0, 2001)) * (1.0 + 1e-12)
    assert indicator_ball(1)[1] == 0.5


class TestReferences:
    def test_norm_of_rows(self, schema):
        encoded = schema.encode(TABLE)
        assert (np.linalg.norm(encoded, axis=1) <= schema.row_norm * (1 + 1e-12)).all()

    def test_it_shrinks_with_the_ball_of_the_indicators(self):
        assert schema_of(AGE, SEX).row_norm == np.sqrt(2.0)
        assert schema_of(AGE, SEX, reference="first").row_norm == np.sqrt(1.25)
        assert schema_of(AGE, REGION, reference="first").row_norm == np.sqrt(1.5)

    def test_encoding(self):
        schema = schema_of(SEX, REGION, reference={"sex": "female", "region": "south"})
        assert schema.feature_names == ("sex=male", "region=north", "region=west")
        assert schema.encode({"sex": ["male", "female"], "region": ["west", "south"]}).tolist() == [
            [0.5, -0.5, 0.5],
            [-0.5, -0.5, -0.5],
        ]

    def test_other_and_missing_can_be_references(self):
        column = CategoricalColumn("job", ("", "a", "b"), other="a", reference="")
        encoded = schema_of(column).encode({"job": [None, "zzz", "b"]})
        assert (encoded + 0.5).tolist() == [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]

    def test_json_and_back(self, schema):
        assert Schema.from_dict(schema.to_dict()) == schema

    def test_first_keeps_named_items(self):
        named = schema_of(AGE, SEX, REGION, reference={"region": "west"})
        columns = named.with_reference("first").columns
        assert [getattr(one, "reference", None) for one in columns] == [None, "female", "west"]

    @pytest.mark.parametrize(
        ("reference", "words"),
        [
            ({"regoin": "west"}, "reference must name columns of the schema.*'region'.*'regoin'"),
            ({"region": "east"}, "'east' is not among the categories of column 'region'.*north"),
            ({"age": 16}, "column 'age' has no categories and cannot have a reference"),
            ("last", "reference must be one of"),
            (["west"], "reference must be 'first', a mapping"),
        ],
    )
    def test_wrong_ones_are_refused_by_name(self, reference, words):
        with pytest.raises(ValueError, match=words):
            schema_of(AGE, SEX, REGION, reference=reference)

    def test_in_a_schema_file(self):
        entry = {"type": "categorical", "categories": ["a", "b"], "reference": "c"}
        document = {
            "columns": {"x": entry},
            "target": {"name": "y", "type": "binary", "classes": [0, 1]},
            "provenance": "made up",
        }
        with pytest.raises(ValueError, match="column 'x': reference must be one of the categories"):
            Schema.from_dict(document)
        entry["reference"] = "b"
        assert Schema.from_dict(document).feature_names == ("x=a",)
