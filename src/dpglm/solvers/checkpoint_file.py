"""A checkpoint's file: released arrays and values, written whole or not at all, read with care."""

from __future__ import annotations

import dataclasses
import math
import re
import struct
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._codec import decode as decoded
from dpglm._codec import each, items, line
from dpglm._json import at, shown
from dpglm.ledger.files import replacing

__all__ = ["decode", "encode", "read_arrays", "same_kind", "write_arrays"]

_PLAIN = frozenset({type(None), bool, int, float, str})
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


def encode(value: Any, arrays: dict[str, NDArray[Any]], names: dict[int, str]) -> Any:
    """Turn a state into JSON values and ``arrays``; what is one array stays one, by ``names``."""

    def encoded(part: Any) -> Any:
        return encode(part, arrays, names)

    if type(value) is float and not math.isfinite(value):
        return {"float": repr(value)}
    if type(value) in _PLAIN:
        return value
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        name = names.setdefault(id(value), f"array_{len(names)}")
        arrays[name] = value
        return {"array": name}
    if isinstance(value, tuple):
        return {"tuple": [encoded(part) for part in value]}
    kind = type(value)
    if not dataclasses.is_dataclass(kind):
        raise ValueError(
            f"checkpoint must be None for this solver: its state holds a {kind.__name__}, which "
            "cannot be written to a file"
        )
    fields = {one.name: encoded(getattr(value, one.name)) for one in dataclasses.fields(kind)}
    return {"module": kind.__module__, "class": kind.__qualname__, "fields": fields}


def decode(value: Any, arrays: Mapping[str, NDArray[Any]], package: str) -> Any:
    """Read back what ``encode`` wrote: dataclasses of one package, and nothing that runs."""
    if not isinstance(value, dict):
        return value
    if set(value) == {"float"}:
        return float(line(value["float"]))
    if set(value) == {"array"}:
        name = line(value["array"])
        if name not in arrays:
            raise ValueError(f"must be the name of an array, got {shown(name)}")
        return arrays[name]
    if set(value) == {"tuple"}:
        with at("tuple"):
            return items(lambda part: decode(part, arrays, package))(value["tuple"])
    return _made(decoded(_State, value), arrays, package)


@final
@dataclass(frozen=True)
class _State:
    module: str
    class_: str
    fields: Mapping[str, Any]


def _made(state: _State, arrays: Mapping[str, NDArray[Any]], package: str) -> Any:
    kind = getattr(sys.modules.get(state.module), state.class_, None)
    known = state.module.partition(".")[0] in (package, "dpglm")
    if not (known and isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"a checkpoint names an unknown state: {state.module}.{state.class_}")
    names = [one.name for one in dataclasses.fields(kind)]
    if set(state.fields) != set(names):
        raise ValueError(f"a {kind.__name__} must have the fields {names}")
    with at("fields"):
        fields = each(
            (name, lambda part: decode(part, arrays, package), part)
            for name, part in state.fields.items()
        )
    try:
        return kind(**fields)
    except (TypeError, AttributeError) as error:
        raise ValueError(f"no {kind.__name__} can be made of these fields: {error}") from error


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
