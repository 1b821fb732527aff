"""Exports of dates and durations from a database's own types and from Python's objects."""

import datetime

import duckdb
import numpy as np
import pytest

from dpglm.export import written
from dpglm.export.scoring import scoring_of
from dpglm.problem import IdentityLink, ProbitLink, SoftmaxLink
from dpglm.tables.additive import Additive
from dpglm.tables.schema import Schema
from tests.export import scored

PARTS = {"month": "cyclic", "weekday": "categorical", "hour": "categorical"}
OPENED = {"type": "date", "low": "2015-01-01", "high": "2026-12-31", "parts": PARTS}
TOOK = {"type": "duration", "low": -20, "high": 90, "unit": "hours"}


def schema_of(columns):
    return Schema.from_dict({"columns": columns, "provenance": "made up"})


def weights(schema, n_outputs=1):
    return np.random.default_rng(0).normal(size=(n_outputs, len(schema.feature_names)))


def exported(schema, to):
    return written(scoring_of(weights(schema), [0.25], None, IdentityLink(), schema), to)


def wanted(schema, table):
    return schema.encode(table) @ weights(schema)[0] + 0.25


@pytest.mark.parametrize(
    ("kind", "cells"),
    [
        ("DATE", [datetime.date(2024, 2, 29), datetime.date(2031, 1, 1)]),
        ("TIMESTAMP", [datetime.datetime(2024, 2, 29, 13, 5, 9, 250_000)]),
        ("INTERVAL", [datetime.timedelta(1, 7), datetime.timedelta(hours=36, minutes=5)]),
        ("TIME", [datetime.time(13, 5), datetime.time(23, 59, 59, 500_000)]),
    ],
)
def test_export_reads_types_of_times(kind, cells):
    column = OPENED if kind in ("DATE", "TIMESTAMP") else TOOK
    schema = schema_of({"x": column})
    want = wanted(schema, {"x": cells})
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rows_to_score (nr INTEGER, x {kind})")
        connection.executemany("INSERT INTO rows_to_score VALUES (?, ?)", list(enumerate(cells)))
        sql = f"SELECT {exported(schema, 'sql')} FROM rows_to_score ORDER BY nr"
        found = [score for (score,) in connection.execute(sql).fetchall()]
    np.testing.assert_allclose(found, want, rtol=1e-9)
    predict = scored.function_of(exported(schema, "python"))
    np.testing.assert_allclose([predict({"x": cell}) for cell in cells], want, rtol=1e-9)


def test_negative_interval_of_a_database_is_not_misread():
    # DuckDB writes it as the text that the model reads as -26 hours.
    sql = exported(schema_of({"x": TOOK}), "sql")
    value = "INTERVAL '-1 day' + INTERVAL '2 hours'"
    assert duckdb.sql(f"SELECT {sql} FROM (SELECT {value} AS x)").fetchall() == [(None,)]


@pytest.mark.parametrize("link", [ProbitLink(), SoftmaxLink()])
@pytest.mark.parametrize("settings", [None, Additive(5, 1.0, (("a_month", "b_hour"), ("a", "c")))])
def test_many_dates_are_within_limits_of_parsers(link, settings):
    columns = dict.fromkeys("abcd", OPENED) | {"took": TOOK}
    schema = schema_of(columns)
    schema = schema if settings is None else schema.with_additive(settings)
    n_outputs = 3 if isinstance(link, SoftmaxLink) else 1
    w = weights(schema, n_outputs)
    labels = ["u", "v", "w"] if n_outputs > 1 else ["u", "v"]
    sql = written(scoring_of(w, np.zeros(n_outputs), labels, link, schema), "sql")
    cells = ["2016-05-01", "2019-12-31 12:30", "2024-02-29T23:59:59Z"]
    table = dict.fromkeys(columns, cells) | {"took": ["1:00", "2 days", "-3:00:30"]}
    z = schema.encode(table) @ w.T
    want = link.probabilities(z if n_outputs > 1 else z[:, 0])
    kinds = dict.fromkeys(table, "text")
    found = scored.sqlite(sql, table, kinds)
    np.testing.assert_allclose(found, want if n_outputs > 1 else want[:, 1:], atol=1e-9)


def test_stated_form_of_dates_is_for_onnx():
    schema = schema_of({"x": OPENED | {"format": "%d/%m/%Y"}})
    for to in ("sql", "python"):
        with pytest.raises(ValueError, match=r"column 'x' has dates in the form '%d/%m/%Y'"):
            exported(schema, to)
    days = (datetime.date(2020, 3, 31) - datetime.date(1970, 1, 1)).days + 0.75
    (found,) = scored.onnx(exported(schema, "onnx"), {"x": [days]})
    want = wanted(schema, {"x": [datetime.datetime(2020, 3, 31, 18)]})
    np.testing.assert_allclose(found, want, atol=1e-5)


def test_python_names_a_malformed_date():
    predict = scored.function_of(exported(schema_of({"x": OPENED}), "python"))
    with pytest.raises(ValueError, match=r"column 'x': the model does not take '2026-02-30'"):
        predict({"x": "2026-02-30"})
