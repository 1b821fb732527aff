"""The folder of a study that can go on after an interruption: its split, and what was released."""

from __future__ import annotations

import contextlib
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
from dpglm.exceptions import PlanMismatchError
from dpglm.solvers.checkpoint import locked
from dpglm.solvers.checkpoint_file import read_arrays, write_arrays
from dpglm.solvers.description import described, differences

__all__ = ["Kept", "files_of", "kept_in"]

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
