"""Whether two names stand for one file, however they are spelled."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Hashable
from pathlib import Path

__all__ = ["file_identity", "is_below"]


def file_identity(path: str | os.PathLike[str]) -> Hashable:
    """Return a value that two names share if and only if they stand for one file or folder.

    What exists is known by device and number, as in ``os.path.samefile``: links, hard links and
    other spellings are the same file. What does not exist yet is known by its folder and name;
    names that differ only in case, or in how accents are composed, count as one, as they may on the
    disk.
    """
    # Before links and ".." are resolved, a part that does not exist yet would hide what does.
    real = Path(os.path.realpath(path))
    try:
        found = real.stat()
    except (FileNotFoundError, NotADirectoryError):
        name = unicodedata.normalize("NFC", real.name).casefold()
        return file_identity(real.parent), name
    return found.st_dev, found.st_ino


def is_below(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether a name stands for something in a folder, at any depth; neither need exist."""
    around = file_identity(folder)
    return any(file_identity(one) == around for one in Path(os.path.realpath(path)).parents)
