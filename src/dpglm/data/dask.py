"""Collections of Dask, arrays and data frames, as rows that are prepared where they lie."""

from __future__ import annotations

import copy
import functools
import hashlib
import secrets
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.collection import NO_TARGETS, Collection, Preparation
from dpglm.data.compiled.kernels import arithmetic
from dpglm.data.groups import MIXTURE, GroupedRows, Groups, Ids, warn_of_near_ids
from dpglm.data.memory import ArrayRows
from dpglm.data.partitions import Partition, PartitionFacts, current_workers, rows_on
from dpglm.data.rows import FloatType, Rows
from dpglm.privacy.noise import NoiseSource, SeededNoise
from dpglm.tables.cells import (
    NUMBER_KINDS,
    check_finite,
    check_no_date_cells,
    check_no_dates,
    column_in_words,
    unmasked,
)
from dpglm.tables.given import as_weights, check_shape

# Groups of rows in the chunks of a Dask array, none of them in two.


def groups_of_partitions(lengths: Sequence[int], ids: Any, most: int | None) -> tuple[int, int]:
    """Check that each group lies in one partition; count rows that are used, and groups.

    Names are compared by keyed hashes, and do not leave the workers. ``ValueError`` if a group is
    in two partitions: its parts would be bounded one by one.
    """
    import dask

    ask = dask.delayed(functools.partial(chunk_facts, secrets.token_bytes(16), most), pure=False)
    return check_apart(dask.compute(*map(ask, lengths, ids.to_delayed().ravel())))


Limit: TypeAlias = tuple[int | None, int | None]
"""The most rows of a group, and the seed that chooses those that are used. Private."""
NO_GROUPS: Limit = (None, None)


def limit_of(most: int | None, noise: NoiseSource) -> Limit:
    """Return the limit of rows in groups, with a new seed if larger groups are subsampled."""
    return most, 0 if most is None else int(noise.words(1)[0])


def check_apart(found: Sequence[ChunkFacts]) -> tuple[int, int]:
    """Check that each group lies in one partition; count used rows and groups."""
    if len({one.is_text for one in found} - {None}) > 1:
        raise ValueError(MIXTURE)
    names = [name for one in found for name in one.names]
    warn_of_near_ids(names, [name for one in found for name in one.folded])
    if len(set(names)) < len(names):
        raise ValueError(
            "groups must each have all their rows in one partition, but there is one in several: "
            "bring them together first, as with frame.shuffle(on=...) or a larger rechunk of Dask, "
            "or frame.repartition(...) of Spark"
        )
    return sum(one.n_rows for one in found), len(names)


@final
@dataclass(frozen=True, eq=False)
class ChunkFacts:
    """Keyed hashes of the ids of a partition, as spelled and folded, and its rows that are used."""

    names: list[bytes]
    folded: list[bytes]
    n_rows: int
    is_text: bool | None


def chunk_facts(key: bytes, most: int | None, length: int, ids: Any) -> ChunkFacts:
    """Return what ``check_apart`` needs to know of the ids of a partition."""
    found = Ids.of(ids, length)
    used = Groups(found.codes, len(found.names)).n_used(most)
    # Numbers that were text are apart from other text, and equal ones are one in all partitions.
    spelled = [one if isinstance(one, str) else Fraction(one) for one in found.names]
    names, folded = (
        [hashlib.blake2b(repr(one).encode(), key=key, digest_size=16).digest() for one in each]
        for each in (spelled, found.folded)
    )
    return ChunkFacts(names, folded, used, found.is_text)


T = TypeVar("T")


@final
class DaskArrays(Collection):
    """Rows in the chunks of a Dask array of known chunk sizes; each chunk is one partition."""

    def __init__(
        self,
        X: Any,
        y: Any = None,
        weights: Any = None,
        feature_names: tuple[str, ...] | None = None,
        offset: Any = None,
    ) -> None:
        check_no_dates("X", X.dtype)
        if X.ndim != 2 or X.dtype.kind not in NUMBER_KINDS:
            raise ValueError(
                f"X must have two dimensions of real numbers, got {X.ndim} of {X.dtype}"
            )
        if np.isnan(X.shape).any():
            raise ValueError(
                "X must have chunks of known sizes: call X.compute_chunk_sizes() first"
            )
        self._X = X.rechunk({1: -1})
        self._y = None if y is None else self._aligned("y", y)
        self._weights = None if weights is None else self._aligned("sample_weight", weights)
        self.feature_names = feature_names
        self.is_weighted, self.has_offset = weights is not None, offset is not None
        self._n_rows, self._limit = int(self._X.shape[0]), NO_GROUPS
        # Delayed ids of each chunk's rows, where rows are in groups.
        self._ids: Sequence[Any] = [None] * len(self._X.chunks[0])
        if offset is not None:
            import dask.array

            columns = [self._y, self._aligned("offset", offset)]
            self._y = dask.array.stack(columns, axis=1).rechunk({1: -1})

    def _aligned(self, name: str, column: Any) -> Any:
        check_shape(name, column.shape, int(self._X.shape[0]))
        return column.reshape(-1).rechunk(self._X.chunks[:1])

    @property
    def shape(self) -> tuple[int, int]:
        return self._n_rows, int(self._X.shape[1])

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> DaskArrays:
        """Take the rows of each group together; each group must lie in one chunk of X."""
        found = copy.copy(self)
        columns = self._aligned("groups", _array("groups", ids))
        found._n_rows, found.n_groups = groups_of_partitions(self._X.chunks[0], columns, most)
        found._limit, found._ids = limit_of(most, noise), columns.to_delayed().ravel()
        return found

    @property
    def dtype(self) -> FloatType:
        return "float32" if self._X.dtype == np.float32 else "float64"

    def with_offset(self, offset: Any) -> DaskArrays:
        if self._y is None:
            raise ValueError(NO_TARGETS)
        offset = _array("offset", offset)
        return DaskArrays(self._X, self._y, self._weights, self.feature_names, offset)

    @property
    def _name(self) -> Callable[[int], str]:
        return functools.partial(column_in_words, self.feature_names)

    def prepared(self, how: Preparation) -> Rows:
        import dask

        # Keys are new each time, so that rows of one fit never stand in for those of another.
        token = uuid.uuid4().hex
        preparation = dask.delayed(
            Settings(how, self._name, secrets.token_bytes(16), *self._limit),
            name=f"dpglm_settings-{token}",
            traverse=False,
        )
        prepare = dask.delayed(_prepare, pure=False, traverse=False)
        workers = current_workers()
        partitions = workers.start(
            [
                prepare(
                    preparation, index, *parts, ids, dask_key_name=f"dpglm_rows-{token}-{index}"
                )
                for index, (parts, ids) in enumerate(zip(self._chunks(), self._ids, strict=True))
            ]
        )
        return rows_on(workers, partitions, how.spec)

    def apply(self, function: Callable[[Any], NDArray[Any]]) -> Any:
        like = function(np.zeros((1, self.shape[1]), self.dtype))
        is_column = like.ndim == 1
        return self._X.map_blocks(
            _applied,
            function=function,
            name_of=self._name,
            drop_axis=[1] if is_column else [],
            chunks=self._X.chunks[:1] if is_column else (self._X.chunks[0], like.shape[1:]),
            dtype=like.dtype,
            meta=like[:0],
        )

    def parts(self, function: Callable[[Any, Any, Any], T]) -> list[T]:
        import dask

        call = dask.delayed(_called, pure=False, traverse=False)
        calls = [call(function, self._name, *parts) for parts in self._chunks()]
        return list(dask.compute(*calls))

    def _chunks(self) -> list[tuple[Any, ...]]:
        """Features, targets and weights of each chunk, as Dask's delayed values."""
        if self._y is None:
            raise ValueError("y must be of Dask, as X is, got None")
        X = self._X.to_delayed()[:, 0]
        weights = [None] * len(X) if self._weights is None else self._weights.to_delayed()
        y = self._y.to_delayed().ravel()
        return list(zip(self._X.chunks[0], X, y, weights, strict=True))


def collection_of(X: Any, y: Any, weights: Any) -> Collection:
    """Make a collection of Dask's arrays, or of its data frames and series."""
    names = tuple(map(str, X.columns)) if _is_frame(X) else None
    y = None if y is None else _array("y", y)
    weights = None if weights is None else _array("sample_weight", weights)
    return DaskArrays(_array("X", X), y, weights, names)


def _is_frame(value: Any) -> bool:
    return type(value).__module__.startswith("dask.dataframe")


def _array(name: str, value: Any) -> Any:
    kind = type(value)
    if kind.__module__.partition(".")[0] != "dask":
        raise ValueError(f"{name} must be of Dask, as X is, got {kind.__module__}.{kind.__name__}")
    # The lengths of a data frame's partitions are not known before it is computed.
    return value.to_dask_array(lengths=True) if _is_frame(value) else value


@final
@dataclass(frozen=True, eq=False)
class Settings:
    """Settings for the preparation of all partitions.

    With a ``seed``, rows are in groups with at most ``most`` of them in use. The draws of a
    partition depend on its place, so that one that is lost is prepared alike.
    """

    how: Preparation
    name: Callable[[int], str]
    key: bytes = field(repr=False)
    most: int | None = None
    seed: int | None = field(default=None, repr=False)


def _applied(
    X: NDArray[Any],
    function: Callable[[Any], NDArray[Any]],
    name_of: Callable[[int], str],
) -> NDArray[Any]:
    return function(check_finite(unmasked("X", X), name_of, None))


def _called(
    function: Callable[[Any, Any, Any], T],
    name_of: Callable[[int], str],
    length: int,
    X: Any,
    y: Any,
    weights: Any,
) -> T:
    X = _checked_chunk(length, X, y, weights)
    return function(check_finite(X, name_of, None), y, weights)


def _checked_chunk(length: int, X: Any, *columns: Any) -> NDArray[Any]:
    """Return the features of a chunk after comparing it with the collection's declaration."""
    if not isinstance(X, np.ndarray):
        raise ValueError(f"X must have chunks that are NumPy arrays, got {type(X).__name__}")
    features: NDArray[Any] = unmasked("X", X)
    check_no_date_cells("X", X)
    if X.dtype.kind not in NUMBER_KINDS:
        raise ValueError(f"X must have chunks of real numbers, got the type {X.dtype}")
    for name, one in zip(("X", "y", "sample_weight"), (X, *columns), strict=True):
        if one is not None and len(one) != length:
            raise ValueError(
                f"{name} must have chunks as long as it declares, got one of {len(one)} rows where "
                f"{length} are declared"
            )
    return features


def _prepare(
    settings: Settings,
    index: int,
    length: int,
    X: Any,
    y: Any,
    weights: Any,
    ids: Any,
) -> Partition:
    """Prepare one partition, on the worker that holds it."""
    X, n_features = _checked_chunk(length, X, y, weights), settings.how.spec.n_features
    if X.shape[1] != n_features:
        raise ValueError(
            f"X must have chunks with as many columns as it declares, {n_features}, got "
            f"{X.shape[1]}"
        )
    return prepared_partition(settings, index, X, y, weights, ids)


def prepared_partition(
    settings: Settings,
    index: int,
    X: NDArray[Any],
    y: Any,
    weights: Any,
    ids: Any,
    digest: str | None = None,
) -> Partition:
    """Prepare the rows of a partition, and note their digest."""
    spec = settings.how.spec
    digest = digest or digest_of(settings.key, X, y, weights, ids)
    starts = sizes = None
    if settings.seed is not None:
        noise = SeededNoise(settings.seed + index)
        places, starts = Groups.of(ids, len(X)).arranged(settings.most, noise)
        if places is not None:
            X, y = X[places], y[places]
            weights = None if weights is None else weights[places]
    X = check_finite(X.astype(spec.dtype, copy=False), settings.name, None)
    if weights is not None:
        weights = as_weights(weights, len(X))
    rows: Rows = settings.how.rows(X, y, weights)
    if starts is not None:
        assert isinstance(rows, ArrayRows)
        rows, sizes = GroupedRows(rows, starts), np.diff(starts)
    return Partition(PartitionFacts(index, digest, len(X), arithmetic(), sizes), rows)


def digest_of(key: bytes, *arrays: NDArray[Any] | None) -> str:
    """Return a keyed fingerprint of values to find changes; useless without the key."""
    code = hashlib.blake2b(key=key, digest_size=16)
    for array in arrays:
        if array is not None:
            code.update(f"{array.dtype} {array.shape}".encode())
            if array.dtype.hasobject:
                code.update(repr(array.tolist()).encode())
            else:
                code.update(np.ascontiguousarray(array).view(np.uint8).data)
    return code.hexdigest()
