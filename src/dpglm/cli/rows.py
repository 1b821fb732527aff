"""Rows of a command: conditions on them, rows of a fit, and rows to predict."""

from __future__ import annotations

import dataclasses
import operator
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.cli.console import CommandError, note
from dpglm.tables.cells import as_cells, as_numbers
from dpglm.tables.columns import Column
from dpglm.tables.databases import Address
from dpglm.tables.files import named_errors, storage_types
from dpglm.tables.given import Where
from dpglm.tables.targets import CountTarget, TargetColumn

if TYPE_CHECKING:
    from dpglm.report.model_file import LinearModel
    from dpglm.tables.schema import Schema

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


Condition: TypeAlias = tuple[str, str, str]
"""A comparison of the cells of a column with a value: column, sign and value."""


def read_conditions(texts: Sequence[str], columns: Collection[str]) -> list[Condition]:
    """Read conditions; names of columns may contain signs."""
    found = []
    for text in texts:
        for name in sorted(columns, key=len, reverse=True):
            rest = text.removeprefix(name).lstrip() if text.startswith(name) else ""
            sign = next(filter(rest.startswith, _SIGNS), None)
            if sign is not None:
                found.append((name, sign, rest.removeprefix(sign).strip()))
                break
        else:
            raise CommandError(
                f"--where {text}: must be COLUMN, one of {' '.join(_SIGNS)}, and a value, with a "
                f"column of the data: {', '.join(columns)}"
            )
    return found


def holds(sign: str, value: str, cells: Any) -> NDArray[np.bool_]:
    """Return whether a condition holds for each cell.

    Missing cells only equal a missing value. Numbers are compared by value, other cells as text.
    """
    compare, number = _SIGNS[sign], _number(value)
    found = np.zeros(len(cells), dtype=np.bool_)
    for place, cell in enumerate(np.asarray(cells, dtype=object).tolist()):
        text = _text(cell)
        if not text or not value:
            missing = compare(text, "") if sign in ("=", "!=") else False
            found[place] = missing and not value
            continue
        own = _number(text) if number is not None else None
        if number is not None and own is None:
            found[place] = sign == "!="
        else:
            left, right = (text, _text(value)) if own is None else (own, number)
            found[place] = compare(left, right)
    return found


def _fulfilled(condition: Condition, cells: Any, column: Column | None) -> NDArray[np.bool_]:
    """Return whether a condition holds for each cell; dates of the schema are compared as dates."""
    name, sign, value = condition
    if column is None or not value:
        return holds(sign, value, cells)
    try:
        column.read([value], gaps=True)
    except ValueError:
        raise CommandError(
            f"--where {name}{sign}{value}: must compare {name!r} with a value that its entry in "
            f"the schema allows, got {value!r}"
        ) from None
    (found,) = np.asarray(column.plain_cells([value])).tolist()
    return holds(sign, str(found), column.plain_cells(cells))


def selected(
    conditions: Sequence[Condition],
    table: Mapping[str, Any],
    schema: Schema | None,
    kept: str | None = None,
) -> tuple[Where | None, dict[str, Any]]:
    """Return which rows count, and these rows of a table; None and the table without conditions.

    A column that is ``kept``, of group ids, keeps all rows.
    """
    if not conditions:
        return None, dict(table)
    known = {} if schema is None else {column.name: column for column in schema.columns}
    every = [_fulfilled(one, table[one[0]], known.get(one[0])) for one in conditions]
    where = Where(np.logical_and.reduce(every))
    found = {name: cells if name == kept else where.rows(cells) for name, cells in table.items()}
    return dataclasses.replace(where, is_applied=True), found


def _text(cell: Any) -> str:
    """Return a cell as text in its normal form; "" for missing ones."""
    if cell is None or cell is np.ma.masked or cell != cell:
        return ""
    return unicodedata.normalize("NFC", str(cell).strip())


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None


# Rows of a fit, encoded in memory or streamed from Parquet; and those of a prediction.

STREAMED_BYTES = 1 << 28
"""Parquet files from this size on are streamed without being asked to."""
_SUFFIXES = (".parquet", ".pq")


@final
@dataclass(frozen=True)
class TrainingRows:
    """Rows, targets (None where X holds them), other arguments of ``fit``, and the data's columns.

    Rows are encoded, or a table for an estimator that encodes it.
    """

    X: Any
    y: Any
    groups: Any
    given: dict[str, Any]
    columns: tuple[str, ...]
    is_streamed: bool


def read_rows(
    data: Path | Address,
    schema: Schema,
    *,
    exposure: str | None,
    trials: str | None,
    groups: str | None,
    stream: bool,
    cache: Path | None,
    encode: bool = True,
    where: Sequence[str] = (),
) -> TrainingRows:
    """Read a table, or prepare for streaming it.

    ``exposure``, ``trials`` and ``groups`` name columns; ``where`` are conditions.
    """
    is_streamed = True
    if not isinstance(data, Address):
        is_parquet = data.is_dir() or data.name.lower().endswith(_SUFFIXES)
        if stream and not is_parquet:
            raise CommandError(f"--stream needs Parquet, got {data}: convert the file first")
        is_large = data.is_dir() or data.stat().st_size >= STREAMED_BYTES
        is_streamed = is_parquet and (stream or is_large)
    if is_streamed:
        if where:
            raise CommandError(f"--where {where[0]}: needs rows in memory, and these are streamed")
        from dpglm.data.stream.arrow import ArrowRows

        if trials is not None:
            raise CommandError(
                f"--trials {trials}: needs rows in memory, and these are streamed: fit shares of "
                "successes by ArrowRows(..., sample_weight=) in Python"
            )
        rows = ArrowRows(data, schema=schema, exposure=exposure, groups=groups, cache=cache)
        note(f"Streaming {rows.shape[0]} rows from {data}; first, all of them are checked once")
        ids = None if groups is None else rows.group_ids
        return TrainingRows(rows, None, ids, {}, rows.columns, is_streamed=True)
    others = [name for name in (exposure, trials, groups) if name is not None]
    numbers = [name for name in (exposure, trials) if name is not None]
    columns = tuple(storage_types(data, schema.csv))
    conditions = read_conditions(where, columns)
    used = [*schema.column_names, schema.target.name, *others]
    every = dict.fromkeys([*used, *(name for name, *_ in conditions)])
    counted, found = selected(
        conditions, schema.read_file(data, list(every), numbers), schema, groups
    )
    table = {name: found[name] for name in used}
    with named_errors(data), Where.numbering(counted):
        y, made = encoded_target(schema.target, table, trials)
        del table[schema.target.name]
        exposures = None
        if exposure is not None:
            exposures = {exposure: as_numbers(table.pop(exposure), exposure)}
        ids = None if groups is None else as_cells(table.pop(groups), groups)
        X = schema.encode(table) if encode else table
        given = {"sample_weight": made, "exposure": exposures, "groups": ids, "where": counted}
        given = {name: one for name, one in given.items() if one is not None}
        return TrainingRows(X, y, ids, given, columns, is_streamed=False)


def encoded_target(
    target: TargetColumn, table: Mapping[str, Any], trials: str | None
) -> tuple[Any, Any]:
    """Return the targets of a table and, where its column is named, each row's trials, or None."""
    if trials is None:
        return target.encode(table[target.name]), None
    assert isinstance(target, CountTarget)
    return target.shares(table[target.name], table[trials], trials)


def columns_of(model: LinearModel) -> Sequence[str]:
    """Return the columns of a table that a model needs."""
    if model.schema is not None:
        return model.schema.column_names
    if model.feature_names is None:
        raise ValueError(
            "the model file does not name the columns that the model needs: in Python, fit a "
            "DataFrame or save the model with its schema"
        )
    return model.feature_names


def numbers_of(model: LinearModel) -> list[str]:
    """Return the model's columns of numbers."""
    if model.schema is None:
        return list(columns_of(model))
    return [column.source for column in model.schema.columns if column.has_numbers]


def features_of(model: LinearModel, table: Mapping[str, Any]) -> Any:
    """Return those columns in the form that the model takes."""
    if model.schema is not None:
        return table
    return np.column_stack([as_numbers(table[name], f"column {name!r}") for name in table])


def offset_of(
    model: LinearModel, exposure: str | None, offset: str | None, present: Collection[str]
) -> dict[str, str | float]:
    """Return the keyword of ``predict`` with a column or a number; empty without offsets."""
    fitted = model.offset_column
    given = [(kind, text) for kind, text in (("exposure", exposure), ("offset", offset)) if text]
    if len(given) > 1:
        raise CommandError("--exposure and --offset must not both be given")
    if fitted is None:
        if given:
            raise CommandError(f"--{given[0][0]} {given[0][1]}: the model was fitted without one")
        return {}
    kind, text = given[0] if given else (fitted.kind, fitted.name)
    cure = f"name it with --{kind} COLUMN, or give " + (
        "--exposure 1 for means at an exposure of 1" if fitted.kind == "exposure" else "--offset 0"
    )
    if text is None:
        raise CommandError(
            f"the model was fitted with an {kind}, and its file does not name the column: {cure}"
        )
    number = _number(text) if given else None
    if number is not None:
        return {kind: number}
    if text not in present:
        raise CommandError(f"the data lack the column {text!r} of the model's {kind}: {cure}")
    return {kind: text}


def columns_in(offset: Mapping[str, str | float]) -> list[str]:
    """Return the column of ``offset_of``, if there is one."""
    return [one for one in offset.values() if isinstance(one, str)]


def values_of(offset: Mapping[str, str | float], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword of ``predict`` for a table."""
    return {
        kind: as_numbers(table[one], f"column {one!r}") if isinstance(one, str) else one
        for kind, one in offset.items()
    }
