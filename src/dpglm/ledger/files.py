"""Files that appear whole or not at all, and never in the place of a ledger."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

from dpglm.ledger.store import refuse_ledger

__all__ = ["write_json", "write_text"]


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file so that neither a reader nor a crash meets half of it; never over a ledger."""
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
