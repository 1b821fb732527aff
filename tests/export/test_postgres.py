"""Exported SQL in PostgreSQL, from Debian's package."""

import csv
import io
import math
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from dpglm.export import written
from dpglm.export.scoring import scoring_of
from dpglm.problem import LogitLink, LogLink, ProbitLink, SoftmaxLink
from dpglm.tables.additive import Additive
from dpglm.tables.schema import Schema
from tests.export import scored

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAMS, reason="needs Debian's package postgresql"),
]


@pytest.fixture(scope="module")
def server():
    """A server of its own, as a user that may run one; yields a function from SQL to rows."""
    # A short path, since those of sockets are limited.
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))
    as_user = []
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")
        as_user = ["runuser", "-u", "postgres", "--"]
    programs = PROGRAMS[-1].parent

    def call(program, *arguments, text=None):
        done = subprocess.run(
            [*as_user, str(programs / program), *arguments],
            check=True,
            text=True,
            input=text,
            stdout=subprocess.PIPE if text else subprocess.DEVNULL,
            cwd="/",
        )
        return done.stdout

    data = str(folder / "data")
    call("initdb", "-D", data, "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-locale")
    options = f"-k {folder} -c listen_addresses=''"
    call("pg_ctl", "-D", data, "-l", str(folder / "log"), "-w", "-o", options, "start")

    def query(sql):
        flags = ["-h", str(folder), "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-q", "--csv", "-t"]
        return list(csv.reader(io.StringIO(call("psql", *flags, text=sql))))

    try:
        yield query
    finally:
        call("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder)


def literal(cell):
    if cell is None:
        return "NULL"
    if isinstance(cell, str):
        return "'" + cell.replace("'", "''") + "'"
    return f"'{cell}'" if isinstance(cell, float) else str(cell)


COLUMNS = {
    'age "now"': {"type": "numeric", "low": 16, "high": 90},
    "pay": {"type": "numeric", "low": 0, "high": 1e5, "scale": "log", "missing": 100},
    "job": {"type": "categorical", "categories": ["", "O'Brien", "café", "x"], "other": "x"},
    "level": {"type": "categorical", "categories": [1, 2, 3.5]},
    "flag": {"type": "categorical", "categories": [False, True]},
    "opened": {
        "type": "date",
        "low": "2015-01-01",
        "high": "2026-12-31",
        "missing": {"value": "2020-05-01", "indicator": True},
        "parts": {"month": "categorical", "weekday": "cyclic", "hour": "cyclic"},
    },
    "took": {"type": "duration", "low": -9, "high": 90, "unit": "hours", "missing": 5},
}
KINDS = {'age "now"': "number", "pay": "number", "job": "text", "level": "number", "flag": "bool"}
KINDS |= {"opened": "text", "took": "text"}
TABLE = {
    'age "now"': [16.0, 95.0, -3.0, 41.5, 60.0, math.nan, math.inf, 50.0],
    "pay": [None, math.nan, 0.0, 1e9, 250.0, 3.0, 3.0, math.inf],
    "job": ["O'Brien", "  café", "cafe\N{COMBINING ACUTE ACCENT}", "", None, "zz", "x", "x"],
    "level": [1.0, 2.0, 3.5, 1.0, 2.0, 3.5, 1.0, 1.0],
    "flag": [True, False, True, False, True, True, True, True],
    "opened": [
        *("2024-02-29", " 2019-12-31 23:59:59.5 ", None, "2026-11-27T13:05-11:30", "2031-01-01Z"),
        *("", "2023-02-29", "x"),
    ],
    "took": ["1 day 12:15:00", None, "-3:00", "2 days", "0:07:30.25", "x", "12", "::"],
}
SETTINGS = Additive(5, 1.0, (('age "now"', "job"), ('age "now"', "pay")))


@pytest.mark.parametrize("link", [LogitLink(), LogLink(), ProbitLink(), SoftmaxLink()])
@pytest.mark.parametrize("settings", [None, SETTINGS], ids=["linear", "additive"])
def test_postgres_agrees_with_the_model(server, settings, link):
    schema = Schema.from_dict({"columns": COLUMNS, "provenance": "made up"})
    schema = schema if settings is None else schema.with_additive(settings)
    many = isinstance(link, SoftmaxLink)
    rng = np.random.default_rng(1)
    w = rng.normal(size=(3 if many else 1, len(schema.feature_names)))
    labels = ["a", 'b"', "c"] if many else None
    sql = written(scoring_of(w, np.ones(len(w)), labels, link, schema), "sql")
    rows = [", ".join(map(literal, row)) for row in scored.rows_of(TABLE)]
    values = ", ".join(f"({row})" for row in rows)
    answers = server(
        f"DROP TABLE IF EXISTS rows_to_score; {scored.created(KINDS)};"
        f"INSERT INTO rows_to_score VALUES {values};"
        f"SELECT nr, {sql} FROM rows_to_score ORDER BY nr;"
    )
    found = np.array([[float(cell) if cell else math.nan for cell in row[1:]] for row in answers])
    good = {name: np.array(cells[:5], dtype=object) for name, cells in TABLE.items()}
    z = schema.encode(good) @ w.T + 1.0
    want = link.probabilities(z) if many else np.asarray(link.inverse(z[:, :1]))
    np.testing.assert_allclose(found[:5], want, rtol=1e-9, atol=1e-12)
    assert np.isnan(found[5:]).all()


def test_postgres_has_types_for_times(server):
    columns = {name: COLUMNS[name] for name in ("opened", "took")}
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    w = np.random.default_rng(1).normal(size=(1, len(schema.feature_names)))
    sql = written(scoring_of(w, [1.0], None, LogLink(), schema), "sql")
    opened, took = ("2024-02-29", "2019-12-31 23:59:59.5"), ("1 day 12:15:00", "36:00:00")
    for i, kind in enumerate(("DATE", "TIMESTAMP")):
        cells = f"{kind} '{opened[i]}' AS opened, INTERVAL '{took[i]}' AS took"
        ((answer,),) = server(f"SELECT {sql} FROM (SELECT {cells}) AS t;")
        z = schema.encode({"opened": [opened[i]], "took": [took[i]]}) @ w[0] + 1.0
        np.testing.assert_allclose(float(answer), np.exp(z), rtol=1e-9)
