"""A checkpoint's file: released arrays and values, written whole or not at all, read with care."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import arrays_apart, named
from dpglm.ledger.files import replacing

__all__ = ["AnyState", "read_arrays", "same_kind", "states", "write_arrays"]

# What NumPy writes for arrays of numbers, and nothing else: no text is evaluated.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|][biufc]\d{1,2})', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]{0,200})\), \} *\n",
    re.DOTALL,
)
# What zipfile, struct and NumPy raise for damaged files.
_DAMAGES = (ValueError, TypeError, OverflowError, EOFError, RuntimeError, struct.error)


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read what ``write_arrays`` wrote, or raise ValueError; nothing in the file is trusted.

    Arrays of numbers, together no larger than the file; flipped bits show in their checksums.
    """
    try:
        with zipfile.ZipFile(path) as file:
            members = file.infolist()
            if sum(one.file_size for one in members) > path.stat().st_size or any(
                one.compress_type != zipfile.ZIP_STORED for one in members
            ):
                raise ValueError("its parts are larger than the file")
            return {one.filename.removesuffix(".npy"): _array(file.read(one)) for one in members}
    except (*_DAMAGES, zipfile.BadZipFile) as error:
        raise ValueError(f"is damaged, or no checkpoint: {error}") from error


def _array(content: bytes) -> NDArray[Any]:
    header = _HEADER.match(content)
    if header is None:
        raise ValueError("a part is no array of numbers")
    dtype = np.dtype(header[1].decode())
    shape = tuple(int(size) for size in header[3].decode().replace(" ", "").split(",") if size)
    if math.prod(shape) * dtype.itemsize != len(content) - header.end():
        raise ValueError("an array is not of the size that it claims")
    values = np.frombuffer(content[header.end() :], dtype)
    return values.reshape(shape, order="F" if header[2] == b"True" else "C").copy()


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Put a file with arrays in place of the one before, or leave that one as it is."""
    with replacing(path, mode=0o600) as file:
        np.savez(file, allow_pickle=False, **arrays)


_KINDS: ContextVar[tuple[type, ...]] = ContextVar("dpglm_states", default=())
AnyState: TypeAlias = (
    NDArray[np.float64]
    | Annotated[
        Any, named("state of this plan", _KINDS.get, lambda value: type(value) in _KINDS.get())
    ]
)
"""A state of one of the methods of the plan that is run: an array or a dataclass."""


@contextlib.contextmanager
def states(kinds: Iterable[type], arrays: dict[str, NDArray[Any]]) -> Iterator[None]:
    """Read and write states of these kinds, their arrays apart."""
    token = _KINDS.set(tuple(kinds))
    try:
        with arrays_apart(arrays):
            yield
    finally:
        _KINDS.reset(token)


def same_kind(value: Any, other: Any) -> bool:
    """Whether a state is of the classes and shapes of ``other``, that with which a method begins.

    What is None there, or a tuple without entries, is filled in later, and is not compared.
    """
    if other is None or (isinstance(other, tuple) and not other):
        return True
    if type(value) is not type(other):
        return False
    if isinstance(other, np.ndarray):
        return bool(value.shape == other.shape and value.dtype == other.dtype)
    if isinstance(other, tuple):
        # Iterates so far are all of one kind.
        longer = (*other, *other[:1] * (len(value) - len(other)))
        return len(value) >= len(other) and all(map(same_kind, value, longer))
    fields = dataclasses.fields(other) if dataclasses.is_dataclass(other) else ()
    return all(same_kind(getattr(value, one.name), getattr(other, one.name)) for one in fields)
