from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pytest

from dpglm.tables.additive import Additive
from dpglm.tables.additive_terms import MOST_CORRELATED, independent_levels, smooth_values
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema
from dpglm.tables.targets import NoTarget

COLUMNS: dict[str, Any] = {
    "age": {"type": "numeric", "low": 20, "high": 60},
    "pay": {"type": "numeric", "low": 0, "high": 1000, "scale": "log", "missing": 0},
    "size": {"type": "numeric", "low": -2, "high": 4, "knots": [-1, 3]},
    "sex": {"type": "categorical", "categories": ["f", "m", ""]},
}
TABLE = {
    "age": [20, 60, 1e9, 35.0, 40],
    "pay": [0.0, 1000.0, float("nan"), 3.0, -7.0],
    "size": [-2, 4, 0, 3, -1],
    "sex": ["f", "m", None, "f", "m"],
}
PAIRS = (("age", "pay"), ("sex", "size"))


def schema(**settings: Any) -> Schema:
    entry = {"columns": COLUMNS, "provenance": "made up"}
    return Schema.from_dict(entry).with_additive(
        Additive(**{"segments": 4, "reach": 1.0} | settings)
    )


@pytest.mark.parametrize("reach", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("count", [2, 3, 9, 33])
def test_curves_have_the_covariance_of_a_centred_process(count: int, reach: float) -> None:
    root = smooth_values(np.linspace(0.0, 1.0, count), reach)
    steps = np.abs(np.subtract.outer(np.arange(count), np.arange(count))) / (count - 1)
    process = np.exp(-steps / reach) if reach else np.eye(count)
    centre = np.eye(count) - 1.0 / count
    wanted = centre @ process @ centre
    np.testing.assert_allclose(root @ root.T, wanted / wanted.diagonal().max(), atol=1e-6)
    np.testing.assert_allclose(root.sum(axis=0), 0.0, atol=1e-9)
    assert (root**2).sum(axis=1).max() == pytest.approx(1.0, abs=1e-12)


def test_beyond_the_range_curves_become_straight() -> None:
    places = np.linspace(0.0, 1.0, 9)
    line = places - places.mean()
    bent = []
    for reach in (1.0, 10.0, 1e3, 1e6):
        root = smooth_values(places, reach)
        covariance = root @ root.T
        off = covariance - np.outer(line, line) * (line @ covariance @ line) / (line @ line) ** 2
        bent.append(np.trace(off) / np.trace(covariance))
        assert (root**2).sum(axis=1).max() == pytest.approx(1.0, abs=1e-9)
    assert all(later < 0.5 * earlier for earlier, later in itertools.pairwise(bent))
    assert bent[-1] < 1e-5


def test_knots_are_correlated_by_how_far_apart_they_are() -> None:
    entry = {"type": "numeric", "low": 18, "high": 90, "knots": [18, 18.001, 18.002, 89, 90]}
    facts = Schema.from_dict({"columns": {"age": entry}, "provenance": "made up"})
    (term,) = facts.with_additive(Additive(4, 1.0)).additive_encoding.terms
    covariance = term.root @ term.root.T
    gaps = np.diag(covariance)[1:] + np.diag(covariance)[:-1] - 2 * np.diag(covariance, 1)
    assert (gaps[[0, 1]] < 1e-3 * gaps[2]).all()
    # Knots that are the same to the eye of a float still have a root.
    assert np.isfinite(smooth_values(np.array([0.0, 1e-17, 1.0]), 1.0)).all()


@pytest.mark.parametrize(
    ("low", "high"), [(1.0, 1e9), (1e-300, 1e300), (2.0, 3.0), (-1e308, 1.7e308)]
)
def test_scales_reach_as_far_as_floats(low: float, high: float) -> None:
    for scale in ("linear", "log"):
        column = NumericColumn("x", low, high, scale=scale)
        knots = column.spaced(9)
        places = column.stretched(knots)
        np.testing.assert_allclose(places, np.linspace(0.0, 1.0, 10), atol=1e-12)
        assert (knots[0], knots[-1]) == (low, high)
        schema = Schema((column,), NoTarget(), "made up").with_additive(Additive(9, 1.0))
        encoded = Schema.from_dict(schema.to_dict()).encode({"x": [low, high]})
        assert np.isfinite(encoded).all()


def test_logarithms_have_decades_as_knots() -> None:
    knots = NumericColumn("x", 1.0, 1e9, scale="log").spaced(9)
    np.testing.assert_allclose(knots, 10.0 ** np.arange(10), rtol=1e-12)


def test_levels_are_independent_but_for_their_mean() -> None:
    root = independent_levels(5)
    np.testing.assert_allclose(root @ root.T, np.eye(5) - 0.2, atol=1e-12)


def test_one_segment_is_the_linear_encoding() -> None:
    columns = {"age": COLUMNS["age"], "sex": COLUMNS["sex"]}
    linear = Schema.from_dict({"columns": columns, "provenance": "made up"})
    straight = linear.with_additive(Additive(1, 1.0))
    np.testing.assert_allclose(straight.encode(TABLE), linear.encode(TABLE), atol=1e-12)
    assert straight.row_norm == linear.row_norm
    # Levels are centred if a model also has curves, so that the intercept has their mean.
    assert len(linear.with_additive(Additive(2, 1.0)).feature_names) == 4


@pytest.mark.parametrize("segments", [1, 3, 40])
@pytest.mark.parametrize("reach", [0.0, 0.3, 100.0])
def test_row_norms_stay_within_bound_and_linear_bound(segments: int, reach: float) -> None:
    rng = np.random.default_rng(0)
    cells = {name: rng.normal(0.0, 1e3, 500) for name in ("age", "pay", "size")}
    cells["sex"] = rng.choice(["f", "m", ""], 500)
    for pairs in ((), PAIRS):
        encoded = schema(segments=segments, reach=reach, interactions=pairs, pair_segments=3)
        lengths = np.linalg.norm(encoded.encode(cells), axis=1)
        assert lengths.max() <= encoded.row_norm * (1 + 1e-12)
        assert encoded.row_norm <= np.sqrt(len(COLUMNS) + len(pairs)) * (1 + 1e-12)
        assert lengths.max() >= 0.5 * encoded.row_norm


def test_features_are_the_basis_at_their_terms_position() -> None:
    encoded = schema(interactions=PAIRS)
    X, terms = encoded.encode(TABLE), encoded.additive_encoding.terms
    assert [term.name for term in terms][-3:] == ["sex", "age x pay", "sex x size"]
    assert (terms[0].features.start, terms[-1].features.stop) == (0, X.shape[1])
    for term in terms:
        points = [TABLE[name] for name in term.columns]
        np.testing.assert_array_equal(term.basis(*points), X[:, term.features])
        assert len(term.feature_names) == term.features.stop - term.features.start


def test_effects_are_linear_between_knots_and_constant_beyond() -> None:
    (age, pay, size, *_) = schema().additive_encoding.terms
    at = age.basis([20, 30, 25, -99, 60, 61])
    np.testing.assert_allclose(at[2], (at[0] + at[1]) / 2)
    np.testing.assert_array_equal(at[3], at[0])
    np.testing.assert_array_equal(at[5], at[4])
    knots = pay.axes[0].knots  # type: ignore[attr-defined]
    assert (knots[0], knots[-1]) == (0, 1000)
    assert knots[1] - knots[0] < 0.1 * (knots[-1] - knots[-2])
    assert size.axes[0].knots.tolist() == [-2, -1, 3, 4]  # type: ignore[attr-defined]


def test_coefficients_become_effects_at_knots_and_of_levels() -> None:
    encoded = schema(interactions=(("age", "sex"),), pair_segments=2)
    w = np.random.default_rng(1).normal(size=len(encoded.feature_names) + 1)
    effects = dict(zip(encoded.units.names or (), encoded.units.coefficients(w), strict=False))
    age, pay, *_, pair = encoded.additive_encoding.terms
    assert effects["age at 30"] == pytest.approx((age.basis([30]) @ w[age.features])[0])
    assert effects["pay missing"] == pytest.approx((pay.basis([np.nan]) @ w[pay.features])[0])
    at = pair.basis([40], ["m"]) @ w[pair.features]
    assert effects["age at 40, sex=m"] == pytest.approx(at[0])
    assert encoded.units.coefficients(w)[-1] == w[-1]


def test_missing_numbers_are_a_level_if_the_schema_allows() -> None:
    pay = schema().additive_encoding.terms[1]
    at = pay.basis([np.nan, 0.0])
    assert at[0].tolist() == [0.0] * (at.shape[1] - 1) + [1.0]
    assert at[1, -1] == 0.0
    with pytest.raises(ValueError, match="column 'age', row 2: the value is missing"):
        schema().encode(TABLE | {"age": [20, None, 20, 20, 20]})


def test_many_levels_stay_sparse() -> None:
    categories = list(range(MOST_CORRELATED + 1))
    columns = {**COLUMNS, "place": {"type": "categorical", "categories": categories}}
    settings = Additive(4, 1.0, (("place", "age"), ("age", "size")))
    encoded = Schema.from_dict({"columns": columns, "provenance": "made up"}).with_additive(
        settings
    )
    table = TABLE | {"place": [0, 200, 7, 7, 1]}
    found = encoded.additive_encoding.encode_sparse(lambda name: np.array(table[name]), 5)
    np.testing.assert_array_equal(found.toarray(), encoded.encode(table))
    assert found.nnz < 5 * 60
    assert encoded.units.coefficients(np.ones(found.shape[1] + 1))[-1] == 1


def test_the_json_form_is_read_back() -> None:
    written = json.loads(json.dumps(schema(interactions=PAIRS, pair_segments=2).to_dict()))
    assert Schema.from_dict(written) == schema(interactions=PAIRS, pair_segments=2)
    assert "target" not in written
    with pytest.raises(ValueError, match='must have a "target"'):
        schema().encode_target([1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"segments": 0}, "segments must be an integer of at least 1, got 0"),
        ({"segments": 1001}, "segments must be at most 1000"),
        ({"reach": -1.0}, r"smoothness \(reach\) must be a finite number at least 0"),
        ({"interactions": [("age",)]}, "interactions must be a list of pairs"),
        ({"interactions": [("age", "age")]}, "interactions must be a list of pairs"),
        ({"interactions": [("age", "sex"), ("sex", "age")]}, "each pair once"),
        ({"interactions": "ab"}, "interactions must be a list of pairs"),
        ({"interactions": [("age", "nose")]}, "columns of the schema"),
        ({"interactions": [("age", "pay")], "pair_segments": 200}, "at most 10000 features"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schema(**settings)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"scale": "sqrt"}, "scale must be one of"),
        ({"knots": [3, 2]}, '"knots" must be a list of increasing numbers'),
        ({"knots": [30]}, '"knots" must be a list of increasing numbers'),
    ],
)
def test_columns_that_cannot_be(entry: dict[str, Any], message: str) -> None:
    column = {"type": "numeric", "low": 0, "high": 10} | entry
    with pytest.raises(ValueError, match=message):
        Schema.from_dict({"columns": {"x": column}, "provenance": "made up"})


def test_a_formula_and_curves_exclude_each_other() -> None:
    pytest.importorskip("formulaic")
    plain = Schema.from_dict({"columns": COLUMNS, "provenance": "made up"})
    with pytest.raises(ValueError, match="formula must be None for an additive model"):
        plain.with_formula("~ age").with_additive(Additive(2, 1.0))


def test_curves_alone_are_sparse_on_demand():
    """As for 200 columns with 20 knots; a single term is not sparse by itself."""
    columns = {name: {"type": "numeric", "low": 0, "high": 1} for name in ("a", "b")}
    curves = Schema.from_dict({"columns": columns, "provenance": "made up"}).with_additive(
        Additive(20, 1.0)
    )
    table = {"a": np.linspace(0, 1, 7), "b": np.linspace(1, 0, 7)}
    np.testing.assert_array_equal(curves.encode_sparse(table).toarray(), curves.encode(table))
