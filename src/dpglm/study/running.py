"""Running a study: the split, the ledger, then each part on its own rows."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import Format
from dpglm._json import in_file, parse
from dpglm._progress import stage
from dpglm._words import card, rounded_up
from dpglm.certificate.statement import WHERE_IN_WORDS
from dpglm.certificate.verify import Verification
from dpglm.data.groups import Groups
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.checkpoint import locked, read_arrays, write_arrays
from dpglm.solvers.description import described, differences
from dpglm.solvers.run import record
from dpglm.study.certificate import StudyCertificate, certify_study, verify_study
from dpglm.study.parts import EVALUATION, EXPLORATION, MODEL, Columns
from dpglm.study.planning import StudyPlan
from dpglm.tables.cells import WHOSE_CURE, as_cells, is_missing
from dpglm.tables.files import read_table
from dpglm.tables.given import Where
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema

# The folder of a study that can go on after an interruption: its split, and what was released.

_NAME = "study"
_NAMED = 4


@final
@dataclass(frozen=True)
class _Header:
    """What a study must be, and be about, to go on; ``key`` is that of its entry in a ledger."""

    identity: str
    rows: str
    key: str


_FORMAT = Format("dpglm study in progress", 1, _Header)


@final
@dataclass(frozen=True, eq=False)
class Kept:
    """What a run of a study keeps: which rows are held out, and where each part is kept.

    Privacy: the split is drawn once, and on the disk before anything is spent. A second split
    would hold out rows that the model has learned from, and these would pay twice; so it is that of
    the folder, whatever happens, and of the very same table.
    """

    folder: Path | None
    held_out: NDArray[np.bool_] | None
    key: str | None

    def file(self, part: str) -> Path | None:
        """Return the checkpoint of a part."""
        return None if self.folder is None else self.folder / part


def files_of(folder: Path) -> tuple[Path, ...]:
    """Return all files that a study may keep in a folder, whether or not they exist."""
    names = (_NAME, "exploration", "model", "evaluation")
    return tuple(folder / one for name in names for one in (name, f".{name}.lock"))


@contextlib.contextmanager
def kept_in(
    folder: str | os.PathLike[str] | None,
    facts: Mapping[str, Any],
    rows: str,
    draw: Callable[[], NDArray[np.bool_] | None],
) -> Iterator[Kept]:
    """Open what a folder keeps of a study, or begin to keep it; None keeps nothing.

    ``facts`` are public, ``rows`` a digest of the table. A PlanMismatchError says that the folder
    keeps another study, or one of another table; OSError that another process is using it.
    """
    if folder is None:
        yield Kept(None, draw(), None)
        return
    where = Path(folder)
    where.mkdir(mode=0o700, parents=True, exist_ok=True)
    identity = json.dumps({name: described(fact) for name, fact in facts.items()})
    with locked(where / f".{_NAME}.lock"), warnings.catch_warnings():
        # That a part is complete is what is wanted here.
        warnings.filterwarnings("ignore", ".* holds a fit that is complete", UserWarning)
        found = _load(where / _NAME, identity, rows)
        if found is None:
            found = _Header(identity, rows, secrets.token_hex(16)), draw()
            _save(where / _NAME, *found)
        header, held_out = found
        yield Kept(where, held_out, header.key)


def _load(path: Path, identity: str, rows: str) -> tuple[_Header, NDArray[np.bool_] | None] | None:
    if not path.exists():
        return None
    with in_file(path):
        arrays = read_arrays(path)
        if "header" not in arrays:
            raise ValueError("is not a study of this version of dpglm")
        header = _FORMAT.read(parse(arrays["header"].tobytes()))
        held_out = arrays.get("held_out")
        if held_out is not None and held_out.dtype != np.bool_:
            raise ValueError("is damaged: which rows are held out is no mask")
    different = [] if header.identity == identity else _different(header.identity, identity)
    if header.rows != rows:
        different.append("the table, or the order of its rows")
    if different:
        raise PlanMismatchError(
            f"{path.parent} keeps another study: {'; '.join(different[:_NAMED])}. Give another "
            "folder, or delete this one to start anew (what was spent stays spent)"
        )
    return header, held_out


def _different(written: str, identity: str) -> list[str]:
    return differences(json.loads(written), json.loads(identity))


def _save(path: Path, header: _Header, held_out: NDArray[np.bool_] | None) -> None:
    document = json.dumps(_FORMAT.write(header)).encode()
    arrays: dict[str, NDArray[Any]] = {"header": np.frombuffer(document, np.uint8)}
    if held_out is not None:
        arrays["held_out"] = held_out
    write_arrays(path, arrays)


# What a study has found, with its certificate.


@final
@dataclass(frozen=True, eq=False)
class StudyResult:
    """What a study has found.

    Parameters
    ----------
    plan : StudyPlan
        What was planned, and happened.
    privacy_ : StudyCertificate
        The certificate of everything together, with those of the parts.
    exploration : Description or None
        Counts, quantiles and tables of all rows.
    model : estimator or None
        The fitted model.
    evaluation : Evaluation or None
        How good the model is on rows held out.

    Notes
    -----
    Privacy: all of it was released, and may be published.
    """

    plan: StudyPlan
    privacy_: StudyCertificate
    exploration: Any = None
    model: Any = None
    evaluation: Any = None

    @property
    def parts(self) -> Iterator[tuple[str, Any]]:
        """The results by the names of their parts."""
        for name in (EXPLORATION, MODEL, EVALUATION):
            result = getattr(self, name)
            if result is not None:
                yield name, result

    def statement(self) -> str:
        """Return the guarantee in plain words, as text of several paragraphs."""
        return self.privacy_.statement()

    def verify(self) -> Verification:
        """Check that the certificate's claim follows from what it records."""
        return verify_study(self.privacy_)

    def _repr_html_(self) -> str:
        return card(
            "Results of a study",
            [
                ("parts", ", ".join(name for name, _ in self.parts)),
                ("epsilon", rounded_up(self.privacy_.epsilon)),
                ("delta", rounded_up(self.privacy_.delta)),
            ],
            warnings=self.privacy_.caveats(),
        )


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
