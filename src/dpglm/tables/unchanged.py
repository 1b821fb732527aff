"""Checks that files do not change while rows are read from them."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.exceptions import RowsChangedError

__all__ = ["FileMark", "Watch", "check_length", "in_memory", "memory_maps"]


@final
@dataclass(frozen=True)
class FileMark:
    """Identity, size in bytes and time of the last change (ns) of a file at one time."""

    path: Path
    size: int
    modified: int
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> FileMark:
        """Ask the system; OSError if there is no such file."""
        found = os.stat(path)
        return cls(path, found.st_size, found.st_mtime_ns, found.st_dev, found.st_ino)

    def difference(self) -> str | None:
        """Say how the file differs from what it was, or None if it does not."""
        try:
            now = FileMark.of(self.path)
        except OSError as error:
            return f"{self.path} cannot be found any more ({error.strerror})"
        if (now.device, now.inode) != (self.device, self.inode):
            return f"{self.path} is another file than before"
        if now.size != self.size:
            return f"{self.path} had {self.size} bytes and has {now.size}"
        if now.modified != self.modified:
            return f"{self.path} was written to"
        return None


@final
@dataclass(frozen=True)
class Watch:
    """Files that must not change, as they were at the start."""

    marks: tuple[FileMark, ...] = ()

    @classmethod
    def over(cls, arrays: Iterable[Any]) -> Watch:
        """Watch the named files that arrays are mapped from."""
        maps = (mapped for array in arrays for mapped in memory_maps(array))
        names = {Path(mapped.filename) for mapped in maps if mapped.filename is not None}
        return cls(tuple(map(FileMark.of, sorted(names))))

    def check(self) -> None:
        """Raise RowsChangedError if a file's size, time of last change or identity has changed."""
        for mark in self.marks:
            difference = mark.difference()
            if difference is not None:
                raise changed(difference)


def changed(difference: str) -> RowsChangedError:
    """Return the error about a changed file, and what follows from the change."""
    return RowsChangedError(
        f"rows changed while they were in use: {difference}. Nothing is released of what was read "
        "since; what a fit had released before stays spent, and its entry in a ledger stays"
    )


def memory_maps(array: Any) -> Iterator[np.memmap[Any, Any]]:
    """Yield the maps that an array is a view of, itself first."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            yield array
        array = array.base


def check_length(array: Any) -> None:
    """Raise RowsChangedError if the file of a mapped array has become too short to be read.

    Touching a page beyond the end would kill the process.
    """
    for mapped in memory_maps(array):
        pages: Any = mapped.base
        if isinstance(pages, mmap.mmap):
            end = mapped.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
            if pages.size() < end + len(pages):
                raise changed(f"{mapped.filename} was cut off at {pages.size()} bytes")


def in_memory(X: Any) -> Any:
    """Return a matrix without memory mapped from files; the same object if there is none."""
    if isinstance(X, np.ndarray):
        return _own(X)
    parts = (X.data, X.indices, X.indptr)
    own = tuple(map(_own, parts))
    same = all(one is other for one, other in zip(own, parts, strict=True))
    return X if same else sparse.csr_array(own, shape=X.shape)


def _own(array: NDArray[Any]) -> NDArray[Any]:
    if next(memory_maps(array), None) is None:
        return array
    check_length(array)
    return np.array(array, order="K")
