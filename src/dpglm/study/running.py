"""The run of a study: the split, the ledger entry, then each part on its own rows."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import stage
from dpglm._codec import Format
from dpglm._json import in_file, parse
from dpglm.certificate.certificate import Certificate, certify_study
from dpglm.certificate.execution import PartInput
from dpglm.certificate.statement import WHERE_IN_WORDS
from dpglm.certificate.verify import Verification, verify
from dpglm.data.collection import Collection
from dpglm.data.groups import Groups
from dpglm.data.split import EFFECTS, EVALUATION, EXPLORATION, MODEL, side_of
from dpglm.data.stream.arrow import ArrowRows
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.checkpoint import described, differences, locked, read_arrays, write_arrays
from dpglm.solvers.run import record
from dpglm.study.planning import StudyPlan
from dpglm.tables.cells import WHOSE_CURE, as_cells, is_missing
from dpglm.tables.given import Where
from dpglm.tables.named import named_columns
from dpglm.tables.schema import Schema

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""A table in memory: its columns by name."""

# The folder of a study that can be resumed: its split, and the checkpoints of its parts.

_Mask: TypeAlias = NDArray[np.bool_]
_NAME = "study"
_MAX_DIFFERENCES = 4


@final
@dataclass(frozen=True)
class _StudyHeader:
    """Digests of the study and of its table; ``key`` identifies its ledger entry."""

    identity: str
    rows: str
    key: str


_FORMAT = Format("dpglm study in progress", 1, _StudyHeader)


def files_of(folder: Path) -> tuple[Path, ...]:
    """Return all files that a study may keep in a folder."""
    return tuple(
        folder / one
        for name in (_NAME, EXPLORATION, MODEL, EFFECTS, EVALUATION)
        for one in (name, f".{name}.lock")
    )


@contextlib.contextmanager
def _opened(
    folder: str | os.PathLike[str] | None,
    facts: Mapping[str, Any],
    rows: str,
    draw: Callable[[], _Mask | None],
) -> Iterator[tuple[Path | None, _Mask | None, str | None]]:
    """Open or create the checkpoint of a study: its folder, split and key of its ledger entry.

    ``facts`` are public, ``rows`` is a digest of the table. Without a folder nothing is kept.
    Raises PlanMismatchError if it belongs to another study or table, and OSError if it is in use.

    Privacy: the split is drawn once, and written to disk before anything is released. A second
    split would hold out rows that the model was fitted to, and these would be charged twice.
    """
    if folder is None:
        yield None, draw(), None
        return
    where = Path(folder)
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = json.dumps({name: described(fact) for name, fact in facts.items()})
    with locked(where / f".{_NAME}.lock"), warnings.catch_warnings():
        # Completed parts are expected here.
        warnings.filterwarnings("ignore", ".* holds a fit that is complete", UserWarning)
        if (where / _NAME).exists():
            header, held_out = _load(where / _NAME, identity, rows)
        else:
            header, held_out = _StudyHeader(identity, rows, secrets.token_hex(16)), draw()
            document = json.dumps(_FORMAT.write(header)).encode()
            arrays: dict[str, NDArray[Any]] = {"header": np.frombuffer(document, np.uint8)}
            write_arrays(
                where / _NAME, arrays | ({} if held_out is None else {"held_out": held_out})
            )
        yield where, held_out, header.key


def _load(path: Path, identity: str, rows: str) -> tuple[_StudyHeader, _Mask | None]:
    with in_file(path):
        arrays = read_arrays(path)
        if "header" not in arrays:
            raise ValueError("is not a study of this version of dpglm")
        header = _FORMAT.read(parse(arrays["header"].tobytes()))
        held_out = arrays.get("held_out")
        if held_out is not None and held_out.dtype != np.bool_:
            raise ValueError("is damaged: held_out is not a mask")
    different = []
    if header.identity != identity:
        different = differences(json.loads(header.identity), json.loads(identity))
    if header.rows != rows:
        different.append("the table, or the order of its rows")
    if different:
        raise PlanMismatchError(
            f"{path.parent} contains another study: {'; '.join(different[:_MAX_DIFFERENCES])}. Use "
            "another folder, or delete this one to start again (its cost is not refunded)"
        )
    return header, held_out


def _result(name: str, doc: str) -> Any:
    """Return a property: the result of a part."""
    return property(lambda found: found.results.get(name), doc=doc)


@final
@dataclass(frozen=True, eq=False)
class StudyResult:
    """The results of a study.

    Parameters
    ----------
    plan : StudyPlan
        The plan that was executed.
    privacy_ : Certificate
        The certificate of all parts together.
    results : mapping from str
        The result of each part, by its name.

    Notes
    -----
    Privacy: everything in it was released, and may be published.
    """

    plan: StudyPlan
    privacy_: Certificate
    results: Mapping[str, Any]

    exploration = _result(EXPLORATION, "The description, or None.")
    model = _result(MODEL, "The fitted model, or None.")
    effects = _result(EFFECTS, "The standardised means, or None.")
    evaluation = _result(EVALUATION, "The evaluation, or None.")

    def methods(self) -> str:
        """Return a paragraph for the methods section of a paper; see ``Certificate.methods``."""
        return self.privacy_.methods()

    def verify(self) -> Verification:
        """Check that the claim of the certificate follows from its record."""
        return verify(self.privacy_)


def read_columns(
    table: Any, schema: Schema, persons: str | None, where: Any = None
) -> tuple[Columns, Where | None]:
    """Read the columns of the schema, the target and the person ids, and check every cell.

    With ``where`` only cells of the selected rows are checked.
    """
    names = list(dict.fromkeys(column.source for column in schema.columns))
    if schema.has_target:
        names.append(schema.target.name)
    if persons is not None and persons not in names:
        names.append(persons)
    if isinstance(table, str | os.PathLike):
        table = schema.read_file(table, names)
    elif isinstance(table, ArrowRows):
        table = table.table.read_columns(names)
    elif isinstance(table, Collection):
        from dpglm.data.pyspark import SparkRows

        if isinstance(table, SparkRows):
            table = table.read_columns(names)
    expected = "table must be a CSV or Parquet file, or have columns by name"
    table = named_columns(None if isinstance(table, np.ndarray) else table, names, expected)
    columns = {name: as_cells(table[name], f"column {name!r}") for name in names}
    sizes = {len(cells) for cells in columns.values()}
    if len(sizes) > 1:
        raise ValueError(f"columns must have the same number of rows, got {sorted(sizes)}")
    chosen = None if where is None else Where.of(where, columns)
    counted = columns if chosen is None else chosen.rows(columns)
    with contextlib.nullcontext() if chosen is None else Where.numbering(chosen):
        for column in schema.columns:
            column.read(counted[column.source])
        if schema.has_target:
            schema.encode_target(counted[schema.target.name])
    if persons is not None:
        for row, cell in enumerate(columns[persons].tolist()):
            if is_missing(cell):
                raise ValueError(
                    f"column {persons!r}, row {row + 1}: the value is missing. {WHOSE_CURE}"
                )
        try:
            # As given: an array would turn the numbers of a mixed list into texts.
            Groups.of(table[persons], len(columns[persons]))
        except ValueError as error:
            raise ValueError(f"column {persons!r}: {error}") from None
    return columns, chosen


def run(
    plan: StudyPlan,
    table: Columns,
    noise: NoiseSource,
    ledger: PrivacyLedger | None,
    folder: str | os.PathLike[str] | None,
    where: Where | None = None,
) -> StudyResult:
    """Execute a plan on a table that ``read_columns`` has checked.

    Privacy: the split is fixed, and the whole is charged to the ledger, before the first release.
    """
    n_rows = len(next(iter(table.values())))
    stated = plan.protection

    def draw() -> _Mask | None:
        if plan.split is None:
            return None
        persons = None if plan.split.persons is None else table[plan.split.persons]
        return plan.split.draw(n_rows, stated.adjacency, noise, persons)

    facts = {
        "schema": plan.schema.to_dict(),
        "split": plan.split,
        "groups": [plan.groups, stated.groups],
        "noise": noise.name,
        **{f"plan of the {name}": part.plan.document for name, part in plan.planned.items()},
    }
    counts = np.ones(n_rows, np.bool_) if where is None else where.counts
    if where is not None:
        facts["where"] = WHERE_IN_WORDS
    every = {**table, "": counts}
    with _opened(folder, facts, _digest(every), draw) as (kept, held_out, key):
        title = "" if plan.title is None else f" {plan.title!r}"
        what = f"study{title}: {', '.join(plan.planned)}"
        entry = None
        if ledger is not None:
            entry = record(plan.event, stated, ledger, noise, what, key)
        results: dict[str, Any] = {}
        most = None if stated.groups is None else int(stated.groups.rows)
        with stage("Parts of the study", len(plan.planned)) as advance:
            for name, part in plan.planned.items():
                rows = _rows_of(name, every, held_out)
                selected = rows.pop("")
                given = PartInput(
                    (rows,),
                    None if plan.groups is None else rows[plan.groups],
                    None if where is None else selected,
                    random_state=noise,
                    checkpoint=None if kept is None else kept / name,
                    earlier=results,
                    held_out=held_out,
                    max_rows_per_group=most,
                )
                results[name] = part.part.run(part.plan, given)
                advance(1)
    certificate = certify_study(
        {name: one.privacy_.part for name, one in results.items()}, stated, noise, plan.split, entry
    )
    if certificate.event != plan.event:
        raise PlanMismatchError(
            f"planned to release {plan.event}, but released {certificate.event}"
        )
    return StudyResult(plan, certificate, results)


def _rows_of(part: str, table: Columns, held_out: _Mask | None) -> dict[str, NDArray[Any]]:
    """Return the rows that a part uses."""
    side = side_of(part)
    if held_out is None or side is None:
        return dict(table)
    mask = held_out if side else ~held_out
    return {name: cells[mask] for name, cells in table.items()}


def _digest(table: Columns) -> str:
    """Return a digest that identifies a table; as private as the table."""
    digest = hashlib.sha256()
    for name, cells in table.items():
        plain = cells if cells.dtype.kind in "biufc" else cells.astype(str)
        digest.update(f"{name} {plain.dtype} {plain.shape}".encode())
        digest.update(np.ascontiguousarray(plain).tobytes())
    return digest.hexdigest()
