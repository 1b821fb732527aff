"""Files that appear whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from dpglm.ledger.store import refuse_ledger

__all__ = ["read_json", "write_json", "write_text"]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file so that a reader, or a crash, never meets half of it.

    Parameters
    ----------
    path : path-like
        Where; what is there is replaced at the very end.
    text : str
        Content; written as UTF-8.

    Raises
    ------
    ValueError
        If a budget ledger is there: none is ever replaced.
    OSError
        If the file cannot be written; nothing is left behind then.
    """
    target = Path(path)
    refuse_ledger(target)
    # In the same folder, because a rename is atomic only within a file system.
    draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "x", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, target)
    finally:
        draft.unlink(missing_ok=True)


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON file as ``write_text`` does; floats come back bit for bit."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def read_json(path: str | os.PathLike[str], kind: str, version: int) -> dict[str, Any]:
    """Read a JSON file that says which kind of file it is.

    Parameters
    ----------
    path : path-like
        The file.
    kind : str
        What its key ``"format"`` must say.
    version : int
        The only value of its key ``"version"`` that this library reads.

    Returns
    -------
    dict
        The whole document.

    Raises
    ------
    ValueError
        If it is not JSON, not of that kind, or of another version.
    OSError
        If it cannot be read.
    """
    with open(path, encoding="utf-8") as stream:
        try:
            document = json.load(stream, parse_constant=_refuse_constant)
        except ValueError as error:
            raise ValueError(f"{os.fspath(path)!r} is not a JSON file: {error}") from None
    if not isinstance(document, dict) or document.get("format") != kind:
        raise ValueError(f"{os.fspath(path)!r} is not a {kind}: it must have format {kind!r}")
    if document.get("version") != version:
        raise ValueError(
            f"version of {os.fspath(path)!r} must be {version}, got {document.get('version')!r}"
        )
    return document


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")
