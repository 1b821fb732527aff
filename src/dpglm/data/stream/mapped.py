"""Memory-mapped arrays as a collection: rows are read where they lie."""

from __future__ import annotations

import os
from typing import Any, final

import numpy as np

from dpglm.data.stream.source import ArraySource
from dpglm.data.stream.stored import StoredRows
from dpglm.tables.finite import NUMBER_KINDS, check_no_date_cells, unmasked
from dpglm.tables.given import as_column, as_offset, as_weights

__all__ = ["STREAMED_BYTES", "MappedRows", "mapped_rows"]

STREAMED_BYTES = 1 << 27
"""Size from which a memory-mapped X is streamed by default."""


@final
class MappedRows(StoredRows):
    """Rows of an array that need not fit into memory, such as a memory-mapped file.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Real numbers, as from ``numpy.load(path, mmap_mode="r")``. Never copied as a whole.
    y : array_like of shape (n,), optional
        Targets; not needed for predictions.
    sample_weight : array_like of shape (n,), optional
        Weights; the estimator's ``weight_bound`` must be declared.
    offset : array_like of shape (n,), optional
        Offsets, as of the estimator's ``fit``.
    cache : path-like, optional
        Folder for a copy of the prepared rows while a fit lasts, which makes steps as fast as in
        memory where rows have to be scaled or shortened. It holds private rows: keep it where
        you keep X. It has no name, and vanishes with the process. By default there is none.

    Raises
    ------
    ValueError
        If shapes or types are not these, or the folder does not exist.

    Notes
    -----
    Estimators take a large memory-mapped X (from 128 MiB) in this way by themselves.

    Examples
    --------
    >>> import numpy as np
    >>> rows = MappedRows(np.zeros((5, 2), np.float32), np.zeros(5))
    >>> rows.shape, rows.dtype
    ((5, 2), 'float32')
    """

    def __init__(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        offset: Any = None,
        cache: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(X, np.ndarray):
            check_no_date_cells("X", X)
        if not isinstance(X, np.ndarray) or X.ndim != 2 or X.dtype.kind not in NUMBER_KINDS:
            raise ValueError("X must be a NumPy array of real numbers with two axes")
        if X.shape[1] == 0:
            raise ValueError("X must have at least one column, got none")
        X = unmasked("X", X)
        y = None if y is None else as_column(y, len(X))
        if sample_weight is not None:
            sample_weight = as_weights(sample_weight, len(X))
        if offset is not None:
            offset = as_offset(offset, len(X))
        source = ArraySource(X, y, sample_weight, offset)
        super().__init__(source, cache, has_targets=y is not None)
        self._arrays = X, y, sample_weight

    def with_offset(self, offset: Any) -> MappedRows:
        return MappedRows(*self._arrays, offset=offset, cache=self._cache)


def mapped_rows(X: Any, y: Any, sample_weight: Any) -> MappedRows | None:
    """Return a large memory-mapped array as a collection, and None for any other."""
    if not isinstance(X, np.memmap) or X.nbytes < STREAMED_BYTES:
        return None
    return MappedRows(X, y, sample_weight)
