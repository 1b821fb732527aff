"""Cells of columns: every value counts in one, and bins are made of public facts."""

import numpy as np
import pytest

from dpglm.tables.described import CountedColumn, bin_edges, counted_columns, given_edges
from dpglm.tables.schema import Schema
from tests.slowly import together

AGE = CountedColumn("age", (17.0, 20.0, 30.0, 40.0), n_parts=10)
SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 17, "high": 90},
            "sex": {"type": "categorical", "categories": ["f", "m"]},
            "job": {"type": "categorical", "categories": ["clerk", "other", ""], "other": "other"},
        },
        "target": {"name": "visits", "type": "count", "high": 12},
        "provenance": "a questionnaire",
    }
)


def encoded(column, values):
    out = np.zeros((len(values), column.width))
    column.encode(values, out)
    return out


def test_a_number_is_in_its_cell():
    values = [16.0, 17.0, 17.01, 19.9, 20.0, 40.0, 40.1, None, np.nan]
    cells = encoded(AGE, values)[:, 0].astype(int)
    assert [AGE.labels[i] for i in cells] == [
        "below 17",
        "exactly 17",
        "17 to 20",
        "17 to 20",
        "20 to 30",
        "30 to 40",
        "above 40",
        "missing",
        "missing",
    ]


def test_parts_divide_bins_and_are_zero_elsewhere():
    parts = encoded(AGE, [16.0, 17.0, 17.31, 20.0, 29.99, 40.0, 41.0, None])[:, 1]
    assert parts.tolist() == [0, 0, 1, 0, 9, 9, 0, 0]
    assert AGE.part_edges[[0, 10, 20, 30]].tolist() == [17.0, 20.0, 30.0, 40.0]


def test_numbers_are_clipped_and_missing_ones_add_nothing():
    x, q = encoded(AGE, [10.0, 17.0, 28.5, 40.0, 99.0, None])[:, 2:].T
    assert x.tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0, 0.0]
    assert q.tolist() == [0.5, 0.5, -0.5, 0.5, 0.5, 0.0]


def test_levels_that_are_not_listed_and_missing_ones_have_cells():
    sex = CountedColumn("sex", levels=("f", "m"))
    assert sex.labels == ("f", "m", "not listed", "missing")
    assert encoded(sex, ["f", "m", "x", None, " m"]).tolist() == [
        [0.0, -1.0, 0.5],
        [1.0, 1.0, 0.5],
        [2.0, 0.0, 0.0],
        [3.0, 0.0, 0.0],
        [1.0, 1.0, 0.5],
    ]


def test_a_level_for_all_others_and_one_for_missing_values():
    job = counted_columns(SCHEMA, ["job"], None, 10)["job"]
    assert job.labels == ("clerk", "other", "missing")
    assert job.missing is None
    assert encoded(job, ["clerk", "smith", "", None])[:, 0].tolist() == [0, 1, 2, 2]


def test_whole_numbers_have_bins_of_whole_numbers():
    visits = counted_columns(SCHEMA, ["visits"], None, 20)["visits"]
    assert visits.labels[:3] == ("below 0", "0", "1")
    assert visits.labels[-3:] == ("11 to 12", "above 12", "missing")
    few = counted_columns(SCHEMA, ["visits"], None, 5)["visits"]
    assert few.labels[1:4] == ("0 to 4", "5 to 9", "10 to 12")
    assert encoded(few, [0, 4, 5, 12, 13])[:, :2].tolist() == [
        [1, 0],
        [1, 4],
        [2, 0],
        [3, 4],
        [4, 0],
    ]


@together("most", range(1, 30))
@together(("low", "high"), [(17, 90), (-1e6, 3.7e6), (0.0, 1e-3), (-7.3, -7.2)])
def test_edges_are_in_order_and_not_too_many(low, high, most):
    edges = bin_edges(low, high, most)
    assert edges[0] == low
    assert edges[-1] == high
    assert (np.diff(edges) > 0.0).all()
    assert len(edges) - 1 <= most
    assert len(edges) - 1 >= 0.35 * most - 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "integer of at least 1"),
        (1000, "at most 200"),
        ((1.0, 1.0, 2.0), "ascending"),
        ("many", "integer"),
        ((0.0, float("nan")), "finite"),
    ],
)
def test_bins_that_make_no_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        given_edges("age", given, 0.0, 10.0)


@pytest.mark.parametrize(
    ("columns", "bins", "message"),
    [
        (["agee"], None, "columns must name columns of the schema"),
        ("age", None, "must be a list of names"),
        (["age", "age"], None, "its own name"),
        (None, {"sex": 4}, "has categories"),
        (None, {"sexx": 4}, "bins must name columns"),
        (["sex"], {"age": 4}, "not in columns="),
    ],
)
def test_names_that_make_no_sense_are_refused(columns, bins, message):
    with pytest.raises(ValueError, match=message):
        counted_columns(SCHEMA, columns, bins, 10)
