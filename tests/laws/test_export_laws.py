"""A law over exports: SQL, Python and ONNX give the scores of the model, and refuse its refusals.

Models, tables and cells are generated: names and categories that must be quoted, cells at and
beyond bounds, missing, infinite, unlisted, malformed, and in other spellings.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm.export import sql as sql_module
from dpglm.export import written
from dpglm.export.scoring import scoring_of
from dpglm.problem import (
    ComplementaryLogLogLink,
    IdentityLink,
    LogitLink,
    LogLink,
    OneVsRestLink,
    ProbitLink,
    SoftmaxLink,
    TangentLink,
)
from dpglm.tables import derived as derived_module
from dpglm.tables.additive import Additive
from dpglm.tables.schema import Schema
from tests.export import scored
from tests.laws.budgets import examples

NAMES = ("age", 'pay "net"', "drop table; --", "größe", "select", "o'clock", "100%", "a\tb", "a.b")
TEXTS = ("north", "O'Brien", 'say "no"', "café", "ü", "a  b", "NULL", "1", "x; --", "it''s", "é")
ONE_SCORE = (
    LogitLink(),
    LogLink(),
    IdentityLink(),
    ProbitLink(),
    ComplementaryLogLogLink(),
    TangentLink(),
)
MANY_SCORES = (SoftmaxLink(), OneVsRestLink(LogitLink()), None)


@st.composite
def numeric(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.sampled_from([-50.0, 0.0, 1e-3, 16.0]))
    found: dict[str, Any] = {"type": "numeric", "low": low}
    found["high"] = low + draw(st.sampled_from([1.0, 74.0, 1e6]))
    found["scale"] = draw(st.sampled_from(["linear", "log"]))
    if draw(st.booleans()):
        found["missing"] = draw(st.sampled_from([-1.0, 20.0, 1e9]))
        if draw(st.booleans()):
            found["missing"] = {"value": found["missing"], "indicator": True}
    return found


@st.composite
def times(draw: st.DrawFn) -> dict[str, Any]:
    if draw(st.booleans()):
        unit = draw(st.sampled_from(["hours", "days", "minutes"]))
        found: dict[str, Any] = {"type": "duration", "low": -2, "high": 50, "unit": unit}
        gap: Any = 1.5
    else:
        found = {"type": "date", "low": "2015-01-01T12:00", "high": "2026-12-31"}
        gap = draw(st.sampled_from(["2020-02-29T05:00", "1960-12-31", "2030-01-01T23:59"]))
        forms = st.sampled_from(["cyclic", "categorical"])
        parts = st.sampled_from(["month", "weekday", "hour"])
        found["parts"] = draw(st.dictionaries(parts, forms))
        if "weekday" in found["parts"]:
            stated = {"type": found["parts"]["weekday"], "reference": "Sunday"}
            found["parts"]["weekday"] = stated
    if draw(st.booleans()):
        found["missing"] = {"value": gap, "indicator": True} if draw(st.booleans()) else gap
    return found


@st.composite
def categorical(draw: st.DrawFn) -> dict[str, Any]:
    pools: list[list[Any]] = [list(TEXTS), [1, 2.5, -3, 10_000], [True, False]]
    pool = draw(st.sampled_from(pools))
    size = len(pool) if isinstance(pool[0], bool) else draw(st.integers(2, 4))
    listed = draw(st.permutations(pool))[:size]
    listed += [""] if draw(st.booleans()) else []
    found: dict[str, Any] = {"type": "categorical", "categories": listed}
    if draw(st.booleans()):
        found["other"] = draw(st.sampled_from(listed))
    if draw(st.booleans()):
        found["reference"] = draw(st.sampled_from(listed))
    found["ordered"] = len(listed) > 3 and draw(st.booleans())
    return found


TIMES = ("date", "duration")
# Texts that the model reads, and databases do not.
OTHER_DATES = ("27.11.2026", "1.3.2020 3:05", "2026-11-27 3:05")
OTHER_SPANS = ("-1 days 02:00:00",)
DATES = (
    *("2024-02-29", "2023-02-29", "1900-02-29", "2000-02-29", "2026-04-31", "2020-13-01"),
    *("2020-00-10", "2020-01-00", "0000-01-01", "0001-01-01", "9999-12-31 23:59-01:00"),
    *("2019-12-31T23:59:59.999Z", "2020-01-01 00:30:00+02:00", "2019-12-31 13:05-1130"),
    *("2026-11-27Z", "2026-11-27-05:00", "2026-11-27T", "2026-11-27 ", " 2020-01-01", "2020-1-1"),
    *("2026-11-27 24:00", "2026-11-27 23:60", "2026-11-27 13:05.5", "2026-11-27 13:05:1"),
    *("2026-11-27+01:00+0100", "2026-11-27 13:05:30.123456", "2026-11-27 13", "20261127"),
    *("", "  ", "abc", "12", "2026/11/27", "2026-11-27 13:05:", "2026-11-27\t", "-", "+00:00"),
    *("2026-11-27 13:05:09.", "2026-11-27 1a:05", "x026-11-27", "2026-11-27T13:05:00,5"),
)
SPANS = (
    *("36:15:00", "1 day 12:15:00", "2 days", "-3:00", "-1 day", "1 day, 12:15", "12:15:30.5"),
    *("12", "", " ", "1:2", "5 days12:00", "x", "12:15:30.", "1 day x", "12:75:75", "::", "1:30.5"),
    *("0:00", "-0:00", "days", " day 1:00", "1  day", "1 day,,1:00", "--1:00", "1:00:00\t", ":30"),
)


def time_cells(column: dict[str, Any]) -> st.SearchStrategy[Any]:
    if column["type"] == "duration":
        clock = st.timedeltas(datetime.timedelta(0), datetime.timedelta(9)).map(str)
        return st.one_of(clock, st.sampled_from([*SPANS, *OTHER_SPANS, None]))
    least, most = datetime.datetime(2014, 1, 1), datetime.datetime(2028, 1, 1)
    moments = st.datetimes(least, most).map(lambda one: one.isoformat(" ", "milliseconds"))
    days = st.dates(least.date(), most.date())
    return st.one_of(moments, days, st.sampled_from([*DATES, *OTHER_DATES, None]))


def kind_of(column: dict[str, Any]) -> str:
    if column["type"] in TIMES:
        return "text"
    if column["type"] == "numeric":
        return "number"
    sample = next(one for one in column["categories"] if one != "")
    return {str: "text", bool: "bool"}.get(type(sample), "number")


def cells_of(column: dict[str, Any]) -> st.SearchStrategy[Any]:
    if column["type"] in TIMES:
        return time_cells(column)
    if column["type"] == "numeric":
        low, high = column["low"], column["high"]
        inside = st.floats(low, high).filter(lambda x: x == 0.0 or abs(x) > 1e-9)
        edges = [low, high, low - 1.0, high + 1.0, -0.0, 1e300, -1e300, 2.0**53 + 2.0]
        return st.one_of(inside, st.sampled_from([*edges, math.inf, -math.inf, math.nan, None]))
    listed = [one for one in column["categories"] if one != ""]
    if kind_of(column) == "bool":
        return st.sampled_from([True, False, None])
    if kind_of(column) == "number":
        return st.sampled_from([*listed, 0.0, 7.0, math.nan, math.inf, None])
    forms = [unicodedata.normalize("NFD", one) for one in listed]
    padded = [f"  {one} " for one in listed] + [f"{one}\t" for one in listed]
    return st.sampled_from([*listed, *forms, *padded, "elsewhere", "NORTH", "", "  ", None])


@st.composite
def models(draw: st.DrawFn) -> tuple[Schema, dict[str, str], dict[str, list[Any]], Any, int]:
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 3))]
    columns = {name: draw(st.one_of(numeric(), categorical(), times())) for name in names}
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    if draw(st.booleans()):
        pairs = ((names[0], names[1]),) if len(names) > 1 and draw(st.booleans()) else ()
        settings = Additive(draw(st.sampled_from([1, 3, 20])), 1.0, pairs, pair_segments=2)
        schema = schema.with_additive(settings)
    table = {
        name: draw(st.lists(cells_of(column), min_size=6, max_size=6))
        for name, column in columns.items()
    }
    link = draw(st.sampled_from([*ONE_SCORE, *MANY_SCORES]))
    kinds = {name: kind_of(column) for name, column in columns.items()}
    return schema, kinds, table, link, draw(st.integers(0, 100))


def expected(schema: Schema, table: dict[str, list[Any]], link: Any, w: Any, b: Any) -> Any:
    """The model's own predictions, NaN for rows that it refuses."""
    found = []
    for i in range(6):
        try:
            features = schema.encode({name: cells[i : i + 1] for name, cells in table.items()})
        except ValueError:
            found.append(np.full(len(w), math.nan))
            continue
        z = features @ w.T + b
        if link in MANY_SCORES:
            found.append((z if link is None else link.probabilities(z))[0])
        else:
            found.append(np.ravel(link.inverse(z[:, 0])))
    return np.array(found)


def is_stripped(cell: Any) -> bool:
    return not isinstance(cell, str) or cell == cell.strip()


def is_odd(cell: Any) -> bool:
    """Whether databases refuse a cell that the model reads."""
    return str(cell).endswith("\t") or cell in OTHER_DATES + OTHER_SPANS


def as_text(cell: Any) -> Any:
    return str(cell) if isinstance(cell, datetime.date) else cell


def numbers_of(column: Any, cells: list[Any]) -> list[float]:
    """Cells of dates and durations as numbers for ONNX, infinite where the model refuses them."""
    found = []
    for cell in cells:
        try:
            found.append(float(np.asarray(column.plain_cells([cell]))[0]))
        except ValueError:
            found.append(math.inf)
    return found


def check(model: Any) -> None:
    schema, kinds, table, link, seed = model
    rng = np.random.default_rng(seed)
    n_outputs = 3 if link in MANY_SCORES else 1
    w = rng.normal(size=(n_outputs, len(schema.feature_names)))
    b = rng.normal(size=n_outputs)
    labels = ['a"b', "it's", "c"] if n_outputs > 1 else None
    scoring = scoring_of(w, b, labels, link, schema)
    want = expected(schema, table, link, w, b)
    scale = np.maximum(1.0, np.abs(np.nan_to_num(want)))

    def agree(found: Any, tolerance: float, rows: Any = slice(None)) -> None:
        gap = (np.abs(found - want) / scale)[rows]
        assert np.array_equal(np.isnan(found[rows]), np.isnan(want[rows])), (found, want)
        assert np.nanmax(gap, initial=0.0) <= tolerance, (found, want)

    agree(scored.python(written(scoring, "python"), table, n_outputs), 1e-9)
    # A database removes spaces around a cell; cells with other blanks are NULL.
    rows = list(zip(*table.values(), strict=True))
    odd = np.array([any(map(is_odd, row)) for row in rows])
    # SQLite stores NaN as NULL.
    sql = written(scoring, "sql")
    texts = {name: list(map(as_text, cells)) for name, cells in table.items()}
    for found in (scored.sqlite(sql, texts, kinds), scored.duck(sql, texts, kinds)):
        agree(found, 1e-9, ~odd)
        assert np.isnan(found[odd]).all()
    # ONNX takes cells without blanks; others are NaN.
    for column in schema.columns:
        if column.name in table and getattr(column, "time", None) is not None:
            table = {**table, column.name: numbers_of(column, table[column.name])}
    rows = list(zip(*table.values(), strict=True))
    plain = np.array([all(map(is_stripped, row)) for row in rows])
    found = scored.onnx(written(scoring, "onnx"), table)
    # Runtimes have some functions in single precision only.
    agree(found, 1e-5, plain)
    assert np.isnan(found[~plain]).all()


@examples(40)
@given(model=models())
def test_exports_agree_with_the_model(model):
    check(model)


FORMULAS = (
    "~ age * job + I(age ** 2)",
    "~ bs(age, df=5) + isna(rent) + log1p(rent):job",
    "~ s(rent, segments=4):job + I(age > 30):flag + I(tanh(age / 50))",
    "~ 0 + job + flag:bs(age, knots=[30, 40], degree=2) + I(abs(age - 40))",
    "~ I(maximum(age, 60)) + I(minimum(rent, age)) + sqrt(rent) + I(expm1(age / 90))",
    "~ I(np.arctan(rent - 5)) + log10(age) + I(1 / age) + I(16 < age < 30) + I(rent != 0)",
    "~ exp(age / 20) + log2(age + rent) + I(age ** -1.5) + C(job, Treatment('b'))",
    "~ opened_month * job + rent_missing + bs(opened, df=4) + is.na(opened) + age",
    "~ took:opened_hour + opened_weekday + is.na(took) + opened_missing:rent",
)
COLUMNS = {
    "age": {"type": "numeric", "low": 16, "high": 90},
    "rent": {
        "type": "numeric",
        "low": 0,
        "high": 1e4,
        "scale": "log",
        "missing": {"value": 500, "indicator": True},
    },
    "job": {"type": "categorical", "categories": ["a", "b", "c"], "other": "c"},
    "flag": {"type": "categorical", "categories": [True, False]},
    "opened": {
        "type": "date",
        "low": "2015-01-01",
        "high": "2026-12-31",
        "missing": {"value": "2020-05-01", "indicator": True},
        "parts": {"month": "categorical", "weekday": "cyclic", "hour": "cyclic"},
    },
    "took": {"type": "duration", "low": 0, "high": 90, "unit": "minutes", "missing": 5},
}


@pytest.mark.parametrize("formula", FORMULAS)
def test_exports_agree_with_formulas(formula):
    schema = Schema.from_dict({"columns": COLUMNS, "provenance": "made up", "formula": formula})
    table = {
        "age": [16.0, 30.0, 95.0, 41.3, 60.0, None],
        "rent": [0.0, None, 1e9, 3.25, 29.9, 5.0],
        "job": ["a", "b ", "zzz", "c", None, "a"],
        "flag": [True, False, True, False, True, True],
        "opened": ["2016-02-29", "2026-12-31 23:59:59", None, "2015-1-1", "", "2031-07-15T12:00Z"],
        "took": ["0:30", None, "1:20:30.5", "0:10", "2 days", "-1 day"],
    }
    table = {name: cells for name, cells in table.items() if name in schema.column_names}
    kinds = {"age": "number", "rent": "number", "job": "text", "flag": "bool"}
    kinds |= {"opened": "text", "took": "text"}
    kinds = {name: kind for name, kind in kinds.items() if name in table}
    for link in (LogitLink(), SoftmaxLink()):
        check((schema, kinds, table, link, 3))


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("_identifier", lambda name: f'"{name}"'),
        ("_literal", lambda text: f"'{text}'"),
        ("forms", lambda text: [str(text)]),
    ],
)
def test_export_law_notices_wrong_quoting(monkeypatch, name, planted):
    columns = {
        'a"b': {"type": "numeric", "low": 0, "high": 1},
        "c": {"type": "categorical", "categories": ["O'Brien", "café"]},
    }
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    decomposed = unicodedata.normalize("NFD", "café")
    table = {'a"b': [0.5] * 6, "c": ["O'Brien", decomposed] * 3}
    model = (schema, {'a"b': "number", "c": "text"}, table, IdentityLink(), 0)
    check(model)
    monkeypatch.setattr(sql_module, name, planted)
    with pytest.raises(Exception, match=r"."):
        check(model)


@pytest.mark.parametrize(
    ("module", "name", "planted"),
    [
        (derived_module, "_UNIX_DAY", 719_469.0),
        (derived_module, "_FIRST", -1e12),
        (sql_module, "_TEN", "012345678"),
        (sql_module, "_MARKS", {"+": "'+', '-'", "T": "'T'"}),
    ],
)
def test_export_law_notices_wrong_dates(monkeypatch, module, name, planted):
    opened = {"type": "date", "low": "0001-01-01", "high": "2026-12-31", "parts": {}}
    columns = {"opened": opened | {"parts": {"month": "categorical"}}}
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    cells = ["2024-02-29", "2026-04-31", "2019-12-31 23:59", "2020-01-01T00:30:00-02:00"]
    cells += ["0001-01-01 00:00+01:00", None]
    model = (schema, {"opened": "text"}, {"opened": cells}, IdentityLink(), 0)
    check(model)
    monkeypatch.setattr(module, name, planted)
    with pytest.raises(AssertionError):
        check(model)
