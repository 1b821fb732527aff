"""An array that is written row after row, in memory or in a file without a name."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

__all__ = ["Spool"]


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
