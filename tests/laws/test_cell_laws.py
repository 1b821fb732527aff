"""A row of a table is encoded by itself, whatever others hold, and however they are spelled."""

import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm.tables.described import CountedColumn
from dpglm.tables.schema import Schema

COLUMNS = {
    "number": {"type": "numeric", "low": 0, "high": 1, "missing": 0.5},
    "texts": {"type": "categorical", "categories": ["1", "2", "", "rest"], "other": "rest"},
    "numbers": {"type": "categorical", "categories": [0, 1, 2, ""], "other": 2},
    "truths": {"type": "categorical", "categories": [False, True, ""], "other": False},
}
CELLS = st.sampled_from(
    [
        *(0, 1, 2, 7, 0.1, 1.0, 2.0, np.float32(0.1), np.int8(1), True, False, None, float("nan")),
        *("", " ", "0", "1", "1.0", "01", " 2", "7", "0.1", "true", "False", "nan", "word", b"1"),
    ]
)
# Python's types as files spell them; pandas takes a type for a column from all that it holds.
WORDS = st.sampled_from(["0", "1", "01", "1.0", "2", "7", "true", "True", "word", "", "NA"])


def encoded(name, cells):
    """Return the rows of one column, or None where a cell is refused."""
    schema = Schema.from_dict({"columns": {name: COLUMNS[name]}, "provenance": "made up"})
    try:
        return schema.encode({name: cells})
    except ValueError:
        return None


def counted(name, cells):
    facts = COLUMNS[name]
    column = CountedColumn(name, levels=tuple(facts["categories"]), other=facts["other"])
    out = np.zeros((len(cells), column.width))
    try:
        column.encode(cells, out)
    except ValueError:
        return None
    return out


def check_rows_alone(encode, name, cells, alone):
    together = encode(name, cells)
    if together is not None:
        assert np.array_equal(together, np.concatenate([encode(name, one) for one in alone]))


@pytest.mark.parametrize("name", COLUMNS)
@given(cells=st.lists(CELLS, min_size=1, max_size=6))
def test_rows_are_encoded_alone(name, cells):
    alone = [[cell] for cell in cells]
    check_rows_alone(encoded, name, cells, alone)
    if "other" in COLUMNS[name]:
        check_rows_alone(counted, name, cells, alone)


@pytest.mark.parametrize("name", COLUMNS)
@given(words=st.lists(WORDS, min_size=1, max_size=6), more=WORDS)
def test_types_that_pandas_infers_from_all_rows_move_none(name, words, more):
    def read(words):
        return pd.read_csv(io.StringIO("\n".join(["x", *words])), skip_blank_lines=False)["x"]

    for encode in (encoded, counted) if "other" in COLUMNS[name] else (encoded,):
        before, after = encode(name, read(words)), encode(name, read([*words, more]))
        if before is not None and after is not None:
            assert np.array_equal(before, after[: len(before)])
