"""Files that appear whole or not at all, and never in the place of a ledger."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from dpglm.ledger.store import refuse_ledger, sync_folder

__all__ = ["replacing", "write_json", "write_text"]


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """Write a file durably in place of the one before, or leave that one as it is."""
    # In the same folder, because a rename is atomic only within a file system.
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError as error:
        # A full disk names no file, and the draft's name says nothing.
        if error.errno is not None:
            error.filename = os.fspath(path)
        raise
    finally:
        draft.unlink(missing_ok=True)
    # The name is durable once the folder is.
    sync_folder(path.parent)


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in UTF-8 as ``replacing`` does, but never over a ledger."""
    target = Path(path)
    refuse_ledger(target)
    with replacing(target) as file:
        file.write(text.encode())


def write_json(path: str | os.PathLike[str], document: Any) -> None:
    """Write a JSON file as ``write_text`` does; floats come back bit for bit."""
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")
