"""Cells as numbers and as entries of a public list, from every kind of column that users have."""

import datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpglm.tables.cells import Vocabulary, as_cells, as_numbers, check_unique
from tests.slowly import together

COLUMN = "column 'x'"
GAP = "row 2: the value is missing"


def readable(value):
    """Name a case by its repr, unless that holds a memory address, which no two workers share."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


class TestNumbers:
    @pytest.mark.parametrize(
        "values",
        [
            [1, 2, 3],
            ("1", " 2 ", "3.0"),
            np.array([1, 2, 3], dtype=np.uint8),
            np.array([1.0, 2.0, 3.0], dtype=np.float32),
            np.array(["1", "2", "3e0"]),
            np.array([1, "2", Decimal(3)], dtype=object),
            pd.Series([1, 2, 3], dtype="Int64"),
            pd.Series(["1", "2", "3"]),
            pd.Series([1, 2, 3], dtype="category"),
            pl.Series([1, 2, 3]),
            pa.chunked_array([["1"], ["2", "3"]]),
        ],
        ids=lambda values: type(values).__module__ + str(getattr(values, "dtype", "")),
    )
    def test_are_read_from_any_column(self, values):
        numbers = as_numbers(values, COLUMN)
        assert numbers.dtype == np.float64
        assert numbers.tolist() == [1.0, 2.0, 3.0]

    def test_truth_values_count_as_numbers(self):
        assert as_numbers([True, False], COLUMN).tolist() == [1.0, 0.0]

    @pytest.mark.parametrize(
        "values",
        [
            ["1", ""],
            ["1", "  "],
            ["1", "nan"],
            [1.0, np.nan],
            [1, None],
            pd.Series([1, pd.NA], dtype="Int64"),
            pd.Series([1, pd.NA], dtype=object),
            pl.Series([1, None]),
            pa.chunked_array([[1, None]]),
        ],
        ids=readable,
    )
    def test_missing_values_are_an_error_unless_declared(self, values):
        with pytest.raises(ValueError, match=f"{COLUMN}, {GAP}.*fixed number"):
            as_numbers(values, COLUMN)
        assert as_numbers(values, COLUMN, missing=7.0).tolist() == [1.0, 7.0]

    @pytest.mark.parametrize("cell", ["1_0", "\uff11\uff12", "\u0661", "0x10", b"1_0", "1,5"])
    def test_text_that_only_python_takes_for_a_number_is_none(self, cell):
        values = np.array(["1", cell], dtype=object)
        with pytest.raises(ValueError, match=r"'x', row 2: .* is not a number"):
            as_numbers(values, "column 'x'")

    def test_number_list_ignores_python_spelling(self):
        with pytest.raises(ValueError, match="row 1: '1_0' is not in the schema's list"):
            Vocabulary((10, 2)).positions(["1_0"], "column 'x'", "Correct it")

    def test_masked_cells_are_refused(self):
        with pytest.raises(ValueError, match="column 'x' must not have masked entries, got 1"):
            as_numbers(np.ma.array([1.0, 2.0], mask=[0, 1]), "column 'x'")

    @pytest.mark.parametrize("values", [["1", "inf"], [1.0, -np.inf]])
    def test_infinity_is_an_error_even_where_missing_values_are_not(self, values):
        with pytest.raises(ValueError, match="'x', row 2: the value is infinite"):
            as_numbers(values, COLUMN, missing=0.0)

    @pytest.mark.parametrize("cell", ["abc", "1,5", [1], np.array([1.0]), 10**400, b"x"])
    def test_non_number_is_named_with_its_row(self, cell):
        values = np.empty(3, dtype=object)
        values[:] = 1, cell, 2
        with pytest.raises(ValueError, match=r"'x', row 2: .* is not a number"):
            as_numbers(values, COLUMN)

    @together(
        "cells",
        [
            [[1.0], [2.0]],
            [np.array([1.0]), np.array([2.0])],
            [np.array([]), np.array([np.nan])],
            [(), ()],
            [{}, {}],
            [np.array(np.nan), np.array(1.0)],
            [np.complex128(1 + 2j), 1.0],
            [1 + 0j, 1.0],
        ],
    )
    @together("wrap", ["list", "objects", "pandas", "pyarrow"])
    def test_cells_of_several_values_are_not_missing(self, cells, wrap):
        objects = np.empty(2, dtype=object)
        objects[:] = cells
        made = {
            "list": lambda: list(cells),
            "objects": lambda: objects,
            "pandas": lambda: pd.Series(objects),
            "pyarrow": lambda: pa.array(list(cells)),
        }
        try:
            values = made[wrap]()
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            pytest.skip("pyarrow has no such cells")
        for missing in (None, 5.0):
            with pytest.raises(ValueError, match=r"is not a number|values of type"):
                as_numbers(values, COLUMN, missing=missing)

    @pytest.mark.parametrize(
        "values",
        [
            np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
            np.array([1, 2], dtype="timedelta64[D]"),
            [np.datetime64("2020-01-01"), 1.0],
            [1.0, np.timedelta64(1, "D")],
            [datetime.date(2020, 1, 1), None],
            [datetime.time(1), None],
            [datetime.timedelta(1), None],
            pd.Series(pd.to_datetime(["2020-01-01", None])),
            pd.Series(pd.to_datetime(["2020-01-01", None])).dt.tz_localize("UTC"),
            pd.Series(pd.to_timedelta([1, 2], "D")),
            pd.Series(pd.period_range("2020", "2021", freq="Y")),
            pl.Series([datetime.date(2020, 1, 1), None]),
            pl.Series([datetime.datetime(2020, 1, 1), None]),
            pl.Series([datetime.time(1), None]),
            pl.Series([datetime.timedelta(1), None]),
            pa.array([datetime.date(2020, 1, 1), None]),
            pa.array([datetime.time(1), None]),
            pa.array([datetime.timedelta(1), None]),
        ],
    )
    def test_dates_of_every_library_are_refused_in_one_message(self, values):
        with pytest.raises(ValueError, match="must not contain dates, times or durations"):
            as_numbers(values, COLUMN, missing=5.0)

    @pytest.mark.parametrize("cell", [pd.NaT, np.datetime64("NaT"), pd.NA, Decimal("sNaN"), None])
    def test_missing_objects_count_as_missing(self, cell):
        values = np.empty(2, dtype=object)
        values[:] = 1, cell
        assert as_numbers(values, COLUMN, missing=7.0).tolist() == [1.0, 7.0]

    def test_missing_cells_of_encoded_columns_are_not_others(self):
        encoded = pa.array([1, None, 3]).dictionary_encode()
        assert as_numbers(encoded, COLUMN, missing=7.0).tolist() == [1.0, 7.0, 3.0]

    def test_dates_are_not_silently_numbers(self):
        with pytest.raises(ValueError, match=r"must not contain dates.*turn them into numbers"):
            as_numbers(np.array(["2020-01-01"], dtype="datetime64[D]"), COLUMN)

    @pytest.mark.parametrize("values", [3.0, np.zeros((2, 1))])
    def test_a_column_has_one_axis(self, values):
        with pytest.raises(ValueError, match="one value per row, got shape"):
            as_cells(values, COLUMN)


class TestVocabulary:
    @pytest.mark.parametrize(
        ("entries", "values", "positions"),
        [
            (("a", "b"), ["b", "a", " b "], [1, 0, 1]),
            (("a", "b"), np.array(["b", "a"]), [1, 0]),
            (("a", "b"), pd.Series(["b", "a"], dtype="category"), [1, 0]),
            (("a", "b"), pl.Series(["b", "a"], dtype=pl.Categorical), [1, 0]),
            (("a", "b"), pa.chunked_array([["b"], ["a"]]), [1, 0]),
            ((3, 4.5), ["3", "4.5", "3.0", " 3"], [0, 1, 0, 0]),
            ((3, 4.5), [3.0, 4.5], [0, 1]),
            ((0, 1), np.array([True, False]), [1, 0]),
            ((False, True), ["TRUE", "false", True, 0], [1, 0, 1, 0]),
            (("a", "b", ""), ["", None, " ", np.nan, pd.NA, pd.NaT, "a"], [2] * 6 + [0]),
            ((1, 2, ""), ["", "2", None], [2, 1, 2]),
        ],
        ids=readable,
    )
    def test_finds_a_value_however_it_is_spelled(self, entries, values, positions):
        if isinstance(values, list):
            values = np.array(values, dtype=object)
        assert Vocabulary(entries).positions(values, COLUMN, "Correct it").tolist() == positions

    @pytest.mark.parametrize(
        ("cell", "says"),
        [
            (
                "Privat",
                r"row 2: 'Privat' is not in .* \(did you mean 'Private'\?\). Correct it",
            ),
            ("zzz", "row 2: 'zzz' is not in .*'Private', '7'\\). Correct it"),
            (7, "row 2: the data contain the number 7, .* without quotes"),
            (None, "row 2: the value is missing. Correct it"),
            ([1], "row 2: a list is not a single value"),
        ],
        ids=readable,
    )
    def test_names_row_cell_and_cure(self, cell, says):
        values = np.empty(2, dtype=object)
        values[:] = "Private", cell
        with pytest.raises(ValueError, match=says):
            Vocabulary(("Private", "7")).positions(values, COLUMN, "Correct it")

    def test_unlisted_values_can_count_as_another(self):
        found = Vocabulary(("a", "b")).positions(["a", "zzz", "", "zzz"], COLUMN, "Correct it", 1)
        assert found.tolist() == [0, 1, 1, 1]

    def test_text_is_never_a_number(self):
        with pytest.raises(ValueError, match=r"row 1: '1\.0' is not in"):
            Vocabulary(("1", "2")).positions(["1.0"], COLUMN, "Correct it")

    @pytest.mark.parametrize(
        "entries",
        [(), ("a",), ("a", 1), (True, 2), ("a", None), (1.0, float("nan")), ("", "")],
        ids=readable,
    )
    def test_must_list_two_values_of_one_kind(self, entries):
        with pytest.raises(ValueError, match="at least two values"):
            Vocabulary(entries)

    def test_blanks_around_entries_do_not_count(self):
        found = Vocabulary((" no ", "yes", "")).positions(["no", " yes", " "], COLUMN, "")
        assert found.tolist() == [0, 1, 2]

    @pytest.mark.parametrize("entries", [("no", " no"), ("a", "b", " "), ("e\u0301", "\u00e9")])
    def test_entries_that_look_alike_are_refused(self, entries):
        with pytest.raises(ValueError, match=r"must list each value once|must write a missing"):
            Vocabulary(entries)

    @pytest.mark.parametrize("entries", [(0, 2**53), (0, -(2**60)), (1e300, 0.5)])
    def test_whole_numbers_that_floats_run_together_are_refused(self, entries):
        with pytest.raises(ValueError, match=r"magnitude below 2\^53"):
            Vocabulary(entries)
        found = Vocabulary((0, 2**53 - 1)).positions([2**53 - 1, 2**53], COLUMN, "", 2)
        assert found.tolist() == [1, 2]

    @pytest.mark.parametrize("entries", [("a", "b", "a"), (1, 2, 1.0)])
    def test_lists_each_value_once(self, entries):
        with pytest.raises(ValueError, match="occurs twice"):
            Vocabulary(entries)

    def test_a_long_list_is_shortened_in_messages(self):
        with pytest.raises(ValueError, match=r"11, \.\.\. \(100 in all\)"):
            Vocabulary(tuple(range(100))).positions(["x"], COLUMN, "Correct it")


def test_repeated_names_are_found():
    check_unique(["a", "b"], "column")
    with pytest.raises(ValueError, match="each column must have its own name, but 'a'"):
        check_unique(["b", "a", "a"], "column")
