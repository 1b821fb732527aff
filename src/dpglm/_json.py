"""Strict reading of untrusted JSON; errors name the place in the document."""

from __future__ import annotations

import contextlib
import json
import math
import os
import reprlib
import unicodedata
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np


def file_identity(path: str | os.PathLike[str]) -> Hashable:
    """Return a value that two paths share if and only if they are the same file or folder.

    Existing files are identified by device and inode, as in ``os.path.samefile``. Others are
    identified by folder and name, where names that differ only in case or Unicode composition
    count as equal, as they may on disk.
    """
    # Links and ".." must be resolved before the first missing part.
    real = Path(os.path.realpath(path))
    try:
        found = real.stat()
    except (FileNotFoundError, NotADirectoryError):
        name = unicodedata.normalize("NFC", real.name).casefold()
        return file_identity(real.parent), name
    return found.st_dev, found.st_ino


def is_below(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> bool:
    """Whether a path lies in a folder at any depth; neither need exist."""
    around = file_identity(folder)
    return any(file_identity(one) == around for one in Path(os.path.realpath(path)).parents)


_MOST_BYTES = 1 << 30
_DEEPEST = 64
_MOST_DIGITS = 20
_INTEGERS = range(-(2**63), 2**64)
_shorten = reprlib.Repr()
_shorten.maxlevel, _shorten.maxstring, _shorten.maxother, _shorten.maxlong = 2, 80, 80, 60


@final
class DocumentError(ValueError):
    """A part of a document is invalid.

    ``place`` is the part, such as ``releases[2].event``, or empty for the whole. ``problem`` may
    continue the sentence after the place with "must" or "is".
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    def __str__(self) -> str:
        joint = " " if self.problem.startswith(("must ", "is ")) else ": "
        return f"{self.place}{joint}{self.problem}" if self.place else self.problem


@contextlib.contextmanager
def at(place: str | int) -> Iterator[None]:
    """Add a key or position to the place of each ValueError in a block."""
    is_name = isinstance(place, str) and place.isidentifier() and len(place) <= 80
    step = str(place) if is_name else f"[{shown(place)}]"
    try:
        yield
    except DocumentError as error:
        joint = "." if error.place and not error.place.startswith("[") else ""
        raise DocumentError(f"{step}{joint}{error.place}", error.problem) from None
    except ValueError as error:
        raise DocumentError(step, str(error)) from None


@contextlib.contextmanager
def in_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Add a file name to each ValueError in a block."""
    try:
        yield
    except ValueError as error:
        raise DocumentError(os.fspath(path), str(error)) from error


def load(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file of at most 1 GiB with ``parse``."""
    with Path(path).open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"must have at most {_MOST_BYTES} bytes")
    return parse(content)


def parse(content: str | bytes) -> Any:
    """Read JSON strictly; bytes are UTF-8, with or without a byte order mark.

    A ValueError names the place of more than 64 levels, repeated keys, NaN, infinite floats,
    integers beyond 64 bits, or text that UTF-8 cannot encode (lone surrogates).

    >>> parse('{"steps": [{"noise": 1e400}]}')
    Traceback (most recent call last):
    ...
    dpglm._json.DocumentError: steps[0].noise must be a finite number
    """
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8-sig")
        value = json.loads(
            content,
            parse_int=_integer,
            parse_constant=lambda name: _Refused(f"must be a finite number, got {name}"),
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text in UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not a JSON file: {error}") from None
    except RecursionError:
        raise ValueError(f"must be nested at most {_DEEPEST} levels deep") from None
    check_writable(value)
    return value


def canonical_json(document: Mapping[str, Any]) -> str:
    """Write a JSON object in canonical form, for digests."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def text(value: Any) -> str:
    """Return text if UTF-8 can encode it, else raise ValueError."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, got {shown(value)}")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"must be Unicode text without lone surrogates, got {shown(value)}"
        ) from None
    return value


def shown(value: Any) -> str:
    """Return a short representation of a value for a message."""
    return _shorten.repr(value)


def plain_json(value: Any) -> Any:
    """Return ``value`` in types that JSON preserves."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


@final
@dataclass(frozen=True)
class _Refused:
    """Stands for a refused part of a document until its place is known."""

    problem: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for i, key in enumerate(keys) if key in keys[:i])
        return _Refused(f"must have each key once, but {shown(repeated)} is repeated")
    return found


def _integer(digits: str) -> int | _Refused:
    # Python's own error for more than 4300 digits does not name the place.
    if len(digits) <= _MOST_DIGITS and int(digits) in _INTEGERS:
        return int(digits)
    return _Refused(f"must be an integer of at most 64 bits, got {shown(digits)}")


def check_writable(value: Any, depth: int = 0) -> None:
    """Check that ``parse`` can read a JSON value back; a ValueError names the place."""
    if depth > _DEEPEST:
        raise DocumentError("", f"must be nested at most {_DEEPEST} levels deep")
    entries: Iterable[tuple[str | int, Any]] = ()
    match value:
        case float() if not math.isfinite(value):
            raise ValueError("must be a finite number")
        case int() if value not in _INTEGERS:
            raise ValueError("must be an integer of at most 64 bits")
        case str():
            text(value)
        case list():
            entries = enumerate(value)
        case dict():
            entries = ((text(key), entry) for key, entry in value.items())
        case _Refused():
            raise ValueError(value.problem)
    for place, entry in entries:
        # A context manager for each number of a long list is slow.
        try:
            check_writable(entry, depth + 1)
        except ValueError:
            with at(place):
                raise
