"""Ordered categories: levels of a curve with a knot at each, a missing one apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpglm.tables.additive import Additive
from dpglm.tables.additive_terms import (
    MOST_CORRELATED,
    CategoricalAxis,
    independent_levels,
    smooth_values,
)
from dpglm.tables.schema import Schema

SCHOOL = ["none", "primary", "", "secondary", "degree"]


def school(fields):
    """Read the entry of one column."""
    (column,) = Schema.from_dict({"columns": {"school": fields}, "provenance": "-"}).columns
    return column


def entry(categories: list[Any], **fields: Any) -> dict[str, Any]:
    return {"type": "categorical", "categories": categories, "ordered": True} | fields


def axis(categories: list[Any], reach: float = 1.0, **fields: Any) -> CategoricalAxis:
    column: Any = school(entry(categories, **fields))
    return CategoricalAxis(column, reach)


def test_levels_are_values_of_a_curve_and_a_missing_one_is_apart() -> None:
    ordered = axis(SCHOOL, reach=0.4)
    root = ordered.root
    assert root is not None
    present = [0, 1, 3, 4]
    assert ordered.order.tolist() == present
    np.testing.assert_array_equal(root[present, :-1], smooth_values(np.linspace(0.0, 1.0, 4), 0.4))
    np.testing.assert_array_equal(ordered.curve, smooth_values(np.linspace(0.0, 1.0, 4), 0.4))
    assert root[2].tolist() == [0.0, 0.0, 0.0, 1.0]
    assert not root[present, -1].any()
    np.testing.assert_array_equal(ordered.line, np.arange(4) / 3.0)
    covariance = root @ root.T
    assert covariance[3, 4] > covariance[0, 4]


def test_ordered_levels_use_no_more_norm_than_unordered() -> None:
    columns = {"school": entry(SCHOOL), "size": entry([1, 2, 3])}
    table = {"school": [*SCHOOL, None], "size": [1, 2, 3, 1, 2, "3"]}
    encoded = Schema.from_dict({"columns": columns, "provenance": "made up"}).with_additive(
        Additive(4, 1.0, (("school", "size"),))
    )
    lengths = np.linalg.norm(encoded.encode(table), axis=1)
    assert lengths.max() <= encoded.row_norm <= np.sqrt(3.0) * (1 + 1e-12)
    school, size, _ = encoded.additive_encoding.terms
    assert [school.features.stop, size.features.stop] == [4, 6]
    effects = school.basis(SCHOOL)
    np.testing.assert_array_equal(effects, school.root)


def test_unordered_or_many_levels_are_independent() -> None:
    plain = axis(SCHOOL, ordered=False)
    np.testing.assert_array_equal(plain.root, independent_levels(5))
    assert plain.line is None
    many = axis(list(range(MOST_CORRELATED + 1)))
    assert many.root is None
    assert many.line is None


def test_the_order_is_written_and_read_back() -> None:
    schema = Schema.from_dict({"columns": {"school": entry(SCHOOL)}, "provenance": "made up"})
    assert schema.to_dict()["columns"]["school"] == entry(SCHOOL)
    assert Schema.from_dict(schema.to_dict()) == schema
    unordered = entry(SCHOOL, ordered=False)
    plain = Schema.from_dict({"columns": {"school": unordered}, "provenance": "made up"})
    assert "ordered" not in plain.to_dict()["columns"]["school"]
    # Linear models take no notice.
    np.testing.assert_array_equal(
        schema.encode({"school": SCHOOL}), plain.encode({"school": SCHOOL})
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ordered": "yes"}, "ordered must be true or false"),
        ({"categories": ["", "here"]}, '"ordered" needs two values'),
    ],
)
def test_orders_that_cannot_be(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        school(entry(SCHOOL) | fields)
