"""Engines that compute exported scores of rows, each from a table with the rows' own types."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import numpy as np
import onnxruntime
from numpy.typing import NDArray

Table = Mapping[str, Sequence[Any]]
Kinds = Mapping[str, str]
"""Kind of each column: number, text or bool."""

_TYPES = {"number": "DOUBLE PRECISION", "text": "VARCHAR(200)", "bool": "BOOLEAN"}


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def created(kinds: Kinds) -> str:
    columns = (f"{quoted(name)} {_TYPES[kind]}" for name, kind in kinds.items())
    return f"CREATE TABLE rows_to_score (nr INTEGER, {', '.join(columns)})"


def rows_of(table: Table) -> list[list[Any]]:
    return [[i, *cells] for i, cells in enumerate(zip(*table.values(), strict=True))]


def _selected(sql: str) -> str:
    return f"SELECT {sql} FROM rows_to_score ORDER BY nr"


def sqlite(sql: str, table: Table, kinds: Kinds) -> NDArray[np.float64]:
    connection = sqlite3.connect(":memory:")
    connection.execute(created(kinds))
    marks = ", ".join("?" * (1 + len(kinds)))
    connection.executemany(f"INSERT INTO rows_to_score VALUES ({marks})", rows_of(table))
    return np.array(connection.execute(_selected(sql)).fetchall(), dtype=np.float64)


def duck(sql: str, table: Table, kinds: Kinds) -> NDArray[np.float64]:
    rows, row = rows_of(table), f"({', '.join('?' * (1 + len(kinds)))})"
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(created(kinds))
        marks = ", ".join([row] * len(rows))
        connection.execute(f"INSERT INTO rows_to_score VALUES {marks}", [*itertools.chain(*rows)])
        return np.array(connection.execute(_selected(sql)).fetchall(), dtype=np.float64)


def function_of(source: str) -> Callable[[Mapping[str, Any]], Any]:
    names: dict[str, Any] = {}
    exec(source, names)
    made: Callable[[Mapping[str, Any]], Any] = names["predict"]
    return made


def python(source: str, table: Table, n_outputs: int = 1) -> NDArray[np.float64]:
    predict = function_of(source)
    scores = []
    for cells in zip(*table.values(), strict=True):
        try:
            score = predict(dict(zip(table, cells, strict=True)))
        except ValueError:
            score = dict.fromkeys(range(n_outputs), np.nan)
        scores.append(list(score.values()) if isinstance(score, dict) else [score])
    return np.array(scores)


def onnx(model: Any, table: Table) -> NDArray[np.float64]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    given = {}
    for one in session.get_inputs():
        cells = table[one.name]
        if "string" in one.type:
            found = np.array(["" if cell is None else cell for cell in cells], dtype=object)
        else:
            found = np.array([np.nan if cell is None else float(cell) for cell in cells])
        given[one.name] = found[:, np.newaxis]
    scores: NDArray[np.float64] = session.run(None, given)[0]
    return scores
