"""Where stored rows come from: pieces of arrays, mapped into memory or not."""

from __future__ import annotations

import abc
import mmap
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, final

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import DTypeLike, NDArray

from dpglm.data.rows import Floats, FloatType
from dpglm.tables.cells import column_in_words
from dpglm.tables.given import Watch, as_floats, check_length, memory_maps

Piece: TypeAlias = "tuple[Floats, NDArray[Any], NDArray[Any] | None]"
"""Features, targets and weights of some rows, in the user's units."""
_NONE: NDArray[Any] = np.empty(0)
# Numbers of these types are exact in float32.
_SHORT = frozenset({"bool", "int8", "uint8", "int16", "uint16", "float16", "float32"})
# Defined on Linux and macOS.
_FORGET: int | None = getattr(mmap, "MADV_DONTNEED", None)
_ANNOUNCE: int | None = getattr(mmap, "MADV_WILLNEED", None)


class Source(abc.ABC):
    """Rows in storage."""

    shape: tuple[int, int]
    """Rows and features."""
    dtype: FloatType
    """Type of the features."""
    is_weighted: bool
    """Whether rows have weights."""
    has_offset: bool
    """Whether targets have a second column, of offsets."""
    may_seek: ClassVar[bool] = True
    """Whether rows can be read in any order."""
    is_view: bool
    """Whether pieces in the order of storage are views, which cost nothing to make."""

    @abc.abstractmethod
    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        """Read rows in pieces of at most ``rows``; all pieces of views but the last have that many.

        ``indices`` lists the positions of the rows wanted, in order; by default all, as they are
        stored. ``ValueError`` if a value is not of the right kind, or rows cannot be had in this
        order; ``OSError`` if rows cannot be read, or a mapped file has become shorter.
        """

    @abc.abstractmethod
    def without_targets(self) -> Source:
        """Return the rows as they are predicted: without targets and weights, with offsets."""

    @abc.abstractmethod
    def watch(self) -> Watch:
        """Return a watch for changes of the rows; a new one for each use of them."""

    def column_name(self, column: int) -> str:
        """Name a feature, given by its number from 0, for messages."""
        return column_in_words(None, column)


@final
class ArraySource(Source):
    """Rows of an array of real numbers, which may be mapped from a file.

    Pages of a mapped file count as the process's memory once they were touched, until they are
    given back; this is done after each piece (they stay in the system's page cache, and a view
    that is still in use gets them back). The next piece is announced to the system, which reads it
    from disk meanwhile.
    """

    def __init__(
        self,
        X: NDArray[Any],
        y: NDArray[Any] | None = None,
        weights: NDArray[Any] | None = None,
        offset: NDArray[Any] | None = None,
    ) -> None:
        self.shape = (X.shape[0], X.shape[1])
        self.dtype = "float32" if X.dtype.name in _SHORT else "float64"
        self.is_weighted, self.has_offset = weights is not None, offset is not None
        self.is_view = X.dtype == self.dtype
        self._X, self._y, self._weights = np.asarray(X), y, weights
        self._offsets = offset
        self._mapping = _mapping_of(X)
        self._offset = 0
        if self._mapping is not None:
            mapped = np.frombuffer(self._mapping, np.uint8)
            self._offset = byte_bounds(self._X)[0] - byte_bounds(mapped)[0]

    def pieces(
        self, rows: int, indices: NDArray[np.intp] | None = None, *, features_only: bool = False
    ) -> Iterator[Piece]:
        for start in range(0, self.shape[0] if indices is None else len(indices), rows):
            for array in (self._X, self._y, self._weights, self._offsets):
                check_length(array)
            which: Any = slice(start, start + rows)
            if indices is None:
                self._announce(start + rows, start + 2 * rows)
            else:
                which = indices[which]
            X = self._X[which].astype(self.dtype, copy=False)
            if features_only:
                yield X, _NONE, None
            else:
                y = np.zeros(len(X)) if self._y is None else np.asarray(self._y[which])
                if self._offsets is not None:
                    y = np.column_stack([as_floats("y", y), self._offsets[which]])
                yield X, y, None if self._weights is None else np.asarray(self._weights[which])
            if self._mapping is not None and _FORGET is not None:
                self._mapping.madvise(_FORGET)

    def without_targets(self) -> ArraySource:
        return ArraySource(self._X, offset=self._offsets)

    def watch(self) -> Watch:
        return Watch.over((self._X, self._y, self._weights, self._offsets))

    def _announce(self, start: int, stop: int) -> None:
        if self._mapping is None or _ANNOUNCE is None or not self._X.flags.c_contiguous:
            return
        size = self._X.strides[0]
        first = (self._offset + start * size) // mmap.PAGESIZE * mmap.PAGESIZE
        length = self._offset + min(stop, self.shape[0]) * size - first
        if length > 0:
            self._mapping.madvise(_ANNOUNCE, first, length)


def _mapping_of(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the mapping in which an array lies, if its pages may be dropped."""
    maps = list(memory_maps(array))
    # Changes of pages without a file, or of this process alone, would be lost.
    is_shared = bool(maps) and {one.mode for one in maps} <= {"r", "r+", "w+"}
    base: Any = maps[-1].base if is_shared else None
    return base if isinstance(base, mmap.mmap) else None


# An array that is written row after row, in memory or in a file without a name.


@final
class Spool:
    """An array that is written row after row, in memory or in an unnamed file.

    The file vanishes with the array, and with the process, however that ends.
    """

    def __init__(self, folder: Path | None, shape: tuple[int, ...], dtype: DTypeLike) -> None:
        self._shape, self._dtype, self._filled = shape, np.dtype(dtype), 0
        self._file = None if folder is None else tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        # Memory is taken page by page as it is written.
        self._array = np.empty(shape, dtype) if folder is None else np.empty(0, dtype)

    def append(self, rows: NDArray[Any]) -> None:
        """Write the next rows; ``OSError`` if the disk is full."""
        if self._file is None:
            self._array[self._filled : self._filled + len(rows)] = rows
        else:
            # Not through a mapping, where a full disk would kill the process.
            self._file.write(np.ascontiguousarray(rows, self._dtype).data)
        self._filled += len(rows)

    def close(self) -> None:
        """Close the file; arrays that were returned stay valid."""
        if self._file is not None:
            self._file.close()

    def array(self) -> NDArray[Any]:
        """Return all that was written; of a file, a read-only memory map."""
        if self._file is None:
            return self._array
        self._file.flush()
        # A mapping keeps the file open.
        return np.memmap(self._file, self._dtype, "r", shape=self._shape)
