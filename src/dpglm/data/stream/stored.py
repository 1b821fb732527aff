"""Collections in storage, read a part at a time."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm.data.collection import NO_TARGETS, Collection, Preparation
from dpglm.data.groups import GroupedRows, Groups
from dpglm.data.rows import FloatType, Rows
from dpglm.data.stream.streamed import ArraySource, Piece, Source, prepared_stream
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import NUMBER_KINDS, check_finite, check_no_date_cells, unmasked
from dpglm.tables.given import as_column, as_offset, as_weights

T = TypeVar("T")
_PART_BYTES = 1 << 24


class StoredRows(Collection):
    """Rows read from a source a part at a time; ``cache`` is a folder for prepared rows."""

    dtype: FloatType = "float64"

    def __init__(
        self, source: Source, cache: str | os.PathLike[str] | None, *, has_targets: bool
    ) -> None:
        if cache is not None and not Path(cache).is_dir():
            raise ValueError(f"cache must be an existing folder or None, got {cache!r}")
        self._cache = None if cache is None else Path(cache)
        self._source, self._has_targets = source, has_targets
        self.dtype, self.is_weighted = source.dtype, source.is_weighted
        self.has_offset = source.has_offset
        # Positions of the rows, group by group, where that is not their order; starts of groups.
        self._places: NDArray[np.intp] | None = None
        self._starts: NDArray[np.intp] | None = None

    @property
    def shape(self) -> tuple[int, int]:
        n_rows, n_features = self._source.shape
        return n_rows if self._starts is None else int(self._starts[-1]), n_features

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> Self:
        places, starts = Groups.of(ids, self._source.shape[0]).arranged(most, noise)
        may_seek = self._source.may_seek or self._cache is not None
        if places is not None and not may_seek and bool((np.diff(places) <= 0).any()):
            raise ValueError(
                "groups must have their rows one after the other in a data set that is read in its "
                "order: sort it by group, or give cache= a folder"
            )
        found = copy.copy(self)
        found._places, found._starts, found.n_groups = places, starts, len(starts) - 1
        return found

    def prepared(self, how: Preparation) -> Rows:
        self._require_targets()
        rows = prepared_stream(self._source, how, self._cache)
        if self._starts is None:
            return rows
        return GroupedRows(rows.arranged(self._places), self._starts)

    def apply(self, function: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        n_rows, n_features = self.shape
        like = function(np.zeros((1, n_features), self.dtype))
        results = np.empty((n_rows, *like.shape[1:]), like.dtype)
        source, start = self._source.without_targets(), 0
        for X, y, _ in self._checked_pieces(source, features_only=not source.has_offset):
            offsets = (as_offset(y[:, 1], len(X)),) if source.has_offset else ()
            results[start : start + len(X)] = function(X, *offsets)
            start += len(X)
        return results

    def parts(self, function: Callable[[Any, Any, Any], T]) -> Iterator[T]:
        self._require_targets()
        for piece in self._checked_pieces(self._source, features_only=False):
            yield function(*piece)

    def _checked_pieces(self, source: Source, *, features_only: bool) -> Iterator[Piece]:
        rows = max(1, _PART_BYTES // (np.dtype(self.dtype).itemsize * self.shape[1]))
        start, watch = 0, source.watch()
        for X, y, weights in source.pieces(rows, features_only=features_only):
            yield check_finite(X, source.column_name, start), y, weights
            start += len(X)
        watch.check()

    def loaded(self) -> tuple[Any, ...]:
        """Return all features, targets, weights, offsets and group ids, and a refusal or None.

        Where targets, weights or ids are refused only features are right. ``ValueError`` if a
        feature is refused.
        """
        source, ids, refused = self._source, None, None
        try:
            self._require_targets()
            pieces, ids = list(self._checked_pieces(source, features_only=False)), self.group_ids
        except ValueError as error:
            source, refused = source.without_targets(), error
            pieces = list(self._checked_pieces(source, features_only=False))
        columns: Any = zip(*pieces, strict=True)
        every: Any = (None if one[0] is None else np.concatenate(one) for one in columns)
        X, y, weights = every
        y, offset = (y[:, 0], y[:, 1]) if source.has_offset else (y, None)
        return X, y, weights, offset, ids, refused

    def _require_targets(self) -> None:
        if not self._has_targets:
            raise ValueError(NO_TARGETS)


# Memory-mapped arrays as a collection: rows are read where they lie.

STREAMED_BYTES = 1 << 27
"""Least size of a memory-mapped X that is streamed by default."""


@checked
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
        Offsets, see the estimator's ``fit``.
    cache : path-like, optional
        Folder for a copy of the prepared rows while a fit lasts, which makes steps as fast as in
        memory where rows have to be scaled or shortened. It holds private rows: keep it where
        you keep X. The copy is unnamed and vanishes with the process. By default nothing is
        copied.

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
