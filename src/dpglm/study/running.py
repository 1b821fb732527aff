"""Running a study: the split, the ledger, then each part on its own rows."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpglm._progress import stage
from dpglm.certificate.facts import WHERE_IN_WORDS
from dpglm.data.groups.ids import Groups
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.recording import record
from dpglm.study.certificate import certify_study
from dpglm.study.kept import kept_in
from dpglm.study.parts.part import EVALUATION, EXPLORATION, MODEL, Columns
from dpglm.study.planning import StudyPlan
from dpglm.study.results import StudyResult
from dpglm.tables.cells import as_cells, is_missing
from dpglm.tables.files import read_table
from dpglm.tables.finite import WHOSE_CURE
from dpglm.tables.given import Where
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema

__all__ = ["read_columns", "run"]


def read_columns(
    table: Any, schema: Schema, persons: str | None, where: Any = None
) -> tuple[Columns, Where | None]:
    """Read the columns of a schema, its target and that of persons, and check every cell.

    With ``where`` these are the cells of rows that count, and whose each row is. A ValueError names
    what does not match; row numbers are those of the rows that count.
    """
    names = [column.name for column in schema.columns]
    if schema.has_target:
        names.append(schema.target.name)
    if persons is not None and persons not in names:
        names.append(persons)
    if isinstance(table, str | os.PathLike):
        table = read_table(Path(table), names)
    expected = "table must be a CSV or Parquet file, or have columns by name"
    table = by_name(None if isinstance(table, np.ndarray) else table, expected)
    lacking = [name for name in names if name not in table]
    if lacking:
        raise ValueError(f"the table must have the columns of the schema, and lacks {lacking}")
    columns = {name: as_cells(table[name], f"column {name!r}") for name in names}
    sizes = {len(cells) for cells in columns.values()}
    if len(sizes) > 1 or 0 in sizes:
        raise ValueError(f"the table must have rows, as many in each column, got {sorted(sizes)}")
    chosen = None if where is None else Where.of(where, columns)
    counted = columns if chosen is None else chosen.rows(columns)
    dataclasses.replace(schema, formula=None, additive=None).encode(counted)
    if schema.has_target:
        schema.encode_target(counted[schema.target.name])
    if persons is not None:
        # As given: in an array the numbers of a mixed list would be texts.
        _check_persons(persons, columns[persons], table[persons])
    return columns, chosen


def _check_persons(name: str, cells: NDArray[Any], given: Any) -> None:
    missing = [row for row, cell in enumerate(cells.tolist()) if is_missing(cell)]
    if missing:
        raise ValueError(
            f"column {name!r}, row {missing[0] + 1}: the value is missing. {WHOSE_CURE}"
        )
    try:
        Groups.of(given, len(cells))
    except ValueError as error:
        raise ValueError(f"column {name!r}: {error}") from None


def run(
    plan: StudyPlan,
    table: Columns,
    noise: NoiseSource,
    ledger: PrivacyLedger | None,
    folder: str | os.PathLike[str] | None,
    where: Where | None = None,
) -> StudyResult:
    """Execute a plan on a table that ``read_columns`` has checked, and on the rows that count.

    Privacy: the split is fixed, and the whole recorded in the ledger, before anything is released.
    """
    n_rows = len(next(iter(table.values())))

    def draw() -> NDArray[np.bool_] | None:
        if plan.split is None:
            return None
        whose = None if plan.split.persons is None else table[plan.split.persons]
        return plan.split.draw(n_rows, plan.adjacency, noise, whose)

    facts = {
        "schema": plan.schema.to_dict(),
        "split": plan.split,
        "persons": plan.persons,
        "noise": noise.name,
        **{f"plan of the {name}": part.plan.document for name, part in plan.parts},
    }
    counts = np.ones(n_rows, np.bool_) if where is None else where.counts
    if where is not None:
        facts["where"] = WHERE_IN_WORDS
    with kept_in(folder, facts, _digest({**table, "": counts}), draw) as kept:
        parts = ", ".join(name for name, _ in plan.parts)
        what = f"study{'' if plan.title is None else f' {plan.title!r}'}: {parts}"
        entry = None if ledger is None else record(plan, ledger, noise, what, kept.key, plan.unit)
        results: dict[str, Any] = {}
        planned = list(plan.parts)
        with stage("Parts of the study", len(planned)) as advance:
            for name, part in planned:
                rows = _rows_of(name, {**table, "": counts}, kept.held_out)
                some = rows.pop("")
                whose = None if plan.persons is None else plan.persons.of(rows)
                model = results.get(MODEL)
                results[name] = part.run(
                    rows, noise, whose, kept.file(name), model, None if where is None else some
                )
                advance(1)
    return StudyResult(
        plan,
        certify_study(plan, {name: one.privacy_ for name, one in results.items()}, entry),
        results.get(EXPLORATION),
        results.get(MODEL),
        results.get(EVALUATION),
    )


def _rows_of(
    part: str, table: Columns, held_out: NDArray[np.bool_] | None
) -> dict[str, NDArray[Any]]:
    """Return the rows that a part is about."""
    if held_out is None or part == EXPLORATION:
        return dict(table)
    mask = held_out if part == EVALUATION else ~held_out
    return {name: cells[mask] for name, cells in table.items()}


def _digest(table: Columns) -> str:
    """Return a digest of a table, by which the same one is known again; as private as it is."""
    digest = hashlib.sha256()
    for name, cells in table.items():
        plain = cells if cells.dtype.kind in "biufc" else cells.astype(str)
        digest.update(f"{name} {plain.dtype} {plain.shape}".encode())
        digest.update(np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()
