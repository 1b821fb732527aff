"""Rows of a Spark data frame, prepared and summed by its executors."""

from __future__ import annotations

import copy
import functools
import itertools
import math
import pickle
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._registry import require
from dpglm._validation import in_one_line
from dpglm.data.collection import Collection, Preparation
from dpglm.data.dask.arrays import (
    ChunkFacts,
    Settings,
    check_apart,
    chunk_facts,
    digest_of,
    prepared_partition,
    seed_of_draws,
)
from dpglm.data.dask.distributed import Partition, Workers, rows_on, with_one_blas_thread
from dpglm.data.rows import Rows
from dpglm.data.spec import FloatType
from dpglm.data.stream.arrow import ArrowRows
from dpglm.data.stream.batches import Batches, Part, types_of
from dpglm.exceptions import RowsChangedError
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import column_in_words, normal, plain_column
from dpglm.tables.files import changed
from dpglm.tables.named import OffsetColumn
from dpglm.tables.schema import Schema

T = TypeVar("T")
_STABLE = (
    "Spark must return the same rows in the same partitions and order each time: read a table or "
    "files, or call df.persist() or df.checkpoint() after a shuffle"
)


def partition_table(title: str, table: Any) -> Batches:
    """Return the rows of one partition; the digest of prepared rows finds changes."""

    def read(names: list[str], rows: int, _: Any) -> Generator[Any]:
        import pyarrow as pa

        some = [plain_column(table.column(name)) for name in names]
        # As long batches: those of Spark are short. There is at least one.
        whole = pa.Table.from_arrays(some, names=names).combine_chunks()
        yield from whole.to_batches(rows) or [pa.RecordBatch.from_pylist([], whole.schema)]

    return Batches(title, (Part(title, types_of(table.schema), int(table.num_rows), read),))


# Tasks: functions of the rows of one partition, which executors compute anew in each pass.


@final
@dataclass(frozen=True, eq=False)
class SparkSource:
    """The result of a function of the rows of a partition, as a handle of ``Workers``."""

    index: int
    function: Callable[[int, ArrowRows], Any]


@final
@dataclass(frozen=True, eq=False)
class Call:
    """The result of a function of other results about one partition."""

    index: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def _value(handle: Any, rows: ArrowRows) -> Any:
    """Compute a handle, those in a list, or a plain value."""
    match handle:
        case SparkSource():
            return handle.function(handle.index, rows)
        case Call():
            return handle.function(*(_value(one, rows) for one in handle.arguments))
        case list():
            return [_value(one, rows) for one in handle]
        case _:
            return handle


def by_partition(found: Iterable[tuple[int, bytes]], count: int | None) -> list[Any]:
    """Return the answers of tasks by partition; an error of a task is raised here.

    Spark gives one answer for each partition, whichever of its tasks made it. RowsChangedError if
    one is missing, repeated or of another partition than the first ``count``.
    """
    answers = sorted(found, key=lambda one: one[0])
    places = [place for place, _ in answers]
    if places != list(range(len(places) if count is None else count)):
        known = "each" if count is None else f"the partitions 0 to {count - 1}"
        raise changed(f"one answer was expected for {known}, got those for {places}. {_STABLE}")
    results = []
    for _, message in answers:
        result, error = pickle.loads(message)
        if error is not None:
            raise error
        results.append(result)
    return results


@final
@dataclass(frozen=True, eq=False)
class SparkFrame:
    """A Spark data frame of the columns that are read, and how a partition becomes rows.

    ``kinds`` is its schema of pyarrow, and ``read`` makes rows of a partition.
    """

    frame: Any
    kinds: Any = field(repr=False)
    read: Callable[[Batches], ArrowRows]

    def ask(
        self, handles: Sequence[SparkSource | Call] | SparkSource, count: int | None
    ) -> list[Any]:
        """Compute one handle for each partition in one pass, or one for all of them."""
        task = functools.partial(_answer, self.kinds, self.read, handles)
        found = self.frame.mapInArrow(task, "place int, answer binary").collect()
        return by_partition(((row[0], bytes(row[1])) for row in found), count)


def _answer(
    kinds: Any,
    read: Callable[[Batches], ArrowRows],
    handles: Sequence[SparkSource | Call] | SparkSource,
    batches: Iterator[Any],
) -> Iterator[Any]:
    """Answer for one partition, on an executor."""
    import cloudpickle
    import pyarrow as pa

    index = require("pyspark", "spark").TaskContext.get().partitionId()
    parts = list(batches)
    table = pa.Table.from_batches(parts) if parts else kinds.empty_table()
    answer: Any = (None, None)
    try:
        rows = read(partition_table(f"partition {index + 1} of the Spark table", table))
        if isinstance(handles, SparkSource):
            answer = handles.function(index, rows), None
        elif index < len(handles):
            answer = with_one_blas_thread(_value, handles[index], rows), None
    except (ValueError, RuntimeError, RowsChangedError) as error:
        # Raised on the driver: running the task again would not help.
        answer = None, error
    message = cloudpickle.dumps(answer, protocol=4)
    yield pa.RecordBatch.from_pydict({"place": pa.array([index], pa.int32()), "answer": [message]})


@final
class SparkWorkers(Workers):
    """Executors of Spark. A handle is a recipe, and a partition is read again in each pass.

    All sums are added up on the driver: Spark refuses more than ``spark.driver.maxResultSize``.
    """

    driver_bytes = math.inf

    def __init__(self, frame: SparkFrame, count: int) -> None:
        self._frame, self._count = frame, count

    def start(self, delayed: Sequence[Any]) -> list[Any]:
        return list(delayed)

    def share(self, value: bytes) -> Any:
        # Pickled once with all handles.
        return value

    def groups(self, handles: Sequence[Any]) -> list[list[int]]:
        return [[place] for place in range(len(handles))]

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        rows = enumerate(zip(*columns, strict=True))
        return [Call(index, function, arguments) for index, arguments in rows]

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return self._frame.ask(handles, self._count)


# What tasks compute of the rows of a partition.


def _length(index: int, rows: ArrowRows) -> int:
    return rows.table.n_rows


def _ids(key: bytes, most: int | None, index: int, rows: ArrowRows) -> tuple[ChunkFacts, str]:
    ids = rows.group_ids
    return chunk_facts(key, most, len(ids), ids), digest_of(key, ids)


def _check_length(lengths: Sequence[int], index: int, rows: ArrowRows) -> None:
    if index < len(lengths) and rows.table.n_rows != lengths[index]:
        raise changed(
            f"partition {index + 1} had {lengths[index]} rows, and now it has {rows.table.n_rows}. "
            + _STABLE
        )


@final
@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of the rows: limit, seed of draws, counts, and the ids' digests by partition."""

    most: int | None
    seed: int
    n_rows: int
    n_groups: int
    digests: tuple[str, ...]
    key: bytes = field(repr=False)


def _prepared(
    settings: Settings,
    lengths: Sequence[int],
    groups: _Groups | None,
    known: Sequence[str] | None,
    index: int,
    rows: ArrowRows,
) -> Partition:
    """Prepare a partition, and compare it with the facts of the driver."""
    _check_length(lengths, index, rows)
    pieces = zip(*rows.parts(lambda *piece: piece), strict=True)
    X, y, weights = (None if one[0] is None else np.concatenate(one) for one in pieces)
    assert X is not None
    draws: tuple[Any, ...] = ()
    if groups is not None:
        draws = rows.group_ids, groups.most, groups.seed + index
        if digest_of(groups.key, draws[0]) != groups.digests[index]:
            raise changed(f"partition {index + 1} has other groups than before. {_STABLE}")
    partition = prepared_partition(settings, index, X, y, weights, *draws)
    if known is not None and partition.facts.digest != known[index]:
        raise changed(f"partition {index + 1} has other rows or another order. {_STABLE}")
    return partition


def _applied(
    lengths: Sequence[int], function: Callable[..., NDArray[Any]], index: int, rows: ArrowRows
) -> NDArray[Any]:
    _check_length(lengths, index, rows)
    return rows.apply(function)


def _called(
    lengths: Sequence[int], function: Callable[[Any, Any, Any], T], index: int, rows: ArrowRows
) -> list[T]:
    _check_length(lengths, index, rows)
    return list(rows.parts(function))


def _read(options: Mapping[str, Any], table: Batches) -> ArrowRows:
    return ArrowRows(table, **options)


@final
class SparkRows(Collection):
    """Rows of a Spark data frame, prepared and summed by its executors.

    Each pass of a fit is one job of ``mapInArrow``: a task encodes the rows of one partition and
    returns their bounded sum. The driver adds up the sums in the order of the partitions, one for
    each, and draws the noise. Tasks that fail, or run twice, change nothing.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
        It must return the same rows in the same partitions and order each time: read a table or
        files, or call ``persist()`` or ``checkpoint()`` after a shuffle. A task holds the rows of
        one partition in memory.
    target : str, optional
        Name of the target's column; with a schema, that of the schema. Rows that are only predicted
        need none: give ``columns``, or a schema.
    columns : sequence of str, optional
        Feature columns in order, all numbers or true/false. By default all but target, weights,
        offsets and groups; with a schema, those of the schema.
    schema : Schema, optional
        Encodes the columns, as in ``ArrowRows``.
    sample_weight, offset, exposure : str, optional
        Names of columns, as in ``ArrowRows``.
    groups : str, optional
        Name of a column of person (group) ids. All rows of a group are protected together, and
        must lie in one partition (``frame.repartition("person").persist()``), which is checked.
    dtype : {"float32", "float64"}, default="float32"
        Type of the features in memory.

    Raises
    ------
    ValueError
        If the frame is not of Spark, or a column is missing or not of numbers.
    ImportError
        If pyspark is not installed.

    Notes
    -----
    Predictions return to the driver as an array, in the order of the partitions.

    Privacy: executors see rows and exact sums. Results that leave the driver are protected. It
    keeps the length and a keyed digest of each partition. Other rows, or another order, end the
    fit before anything is released from them. Under ``zero_out`` and ``replace_one``, lengths of
    partitions must not depend on private values.
    """

    def __init__(
        self,
        frame: Any,
        target: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        schema: Schema | None = None,
        sample_weight: str | None = None,
        offset: str | None = None,
        exposure: str | None = None,
        groups: str | None = None,
        dtype: FloatType = "float32",
    ) -> None:
        if not isinstance(frame, require("pyspark.sql", "spark").DataFrame):
            raise ValueError(f"frame must be a data frame of Spark, got {in_one_line(frame)}")
        self._frame = frame
        self._options: dict[str, Any] = {
            "target": target,
            "columns": columns,
            "schema": schema,
            "sample_weight": sample_weight,
            "offset": offset,
            "exposure": exposure,
            "groups": groups,
            "dtype": dtype,
        }
        kinds = frame.limit(0).toArrow().schema
        # No rows, which have the names and types of all.
        self._like = _read(self._options, partition_table("the Spark table", kinds.empty_table()))
        stored = {normal(name): name for name in kinds.names}
        names = [stored[normal(name)] for name in self._like.used_columns]
        self._source = SparkFrame(
            frame.select([f"`{name.replace('`', '``')}`" for name in names]),
            kinds.empty_table().select(names).schema,
            functools.partial(_read, self._options),
        )
        self._groups: _Groups | None = None
        self._digests: list[str] | None = None
        self._key = secrets.token_bytes(16)

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return self._source.ask(SparkSource(-1, _length), None)

    @property
    def shape(self) -> tuple[int, int]:
        n_rows = sum(self._lengths) if self._groups is None else self._groups.n_rows
        return n_rows, self._like.shape[1]

    @property
    def dtype(self) -> FloatType:
        return self._like.dtype

    @property
    def is_weighted(self) -> bool:
        return self._like.is_weighted

    @property
    def has_offset(self) -> bool:
        return self._like.has_offset

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        return self._like.feature_names

    @property
    def target_name(self) -> str | None:
        return self._like.target_name

    @property
    def schema(self) -> Schema | None:
        return self._like.schema

    @property
    def offset_column(self) -> OffsetColumn:
        return self._like.offset_column

    @property
    def group_ids(self) -> Any:
        """The name of the column of groups: their ids stay on the executors."""
        return self._options["groups"]

    @property
    def n_groups(self) -> int | None:
        return None if self._groups is None else self._groups.n_groups

    def with_schema(self, schema: Schema) -> SparkRows:
        """Return the same rows, encoded by another schema.

        Parameters
        ----------
        schema : Schema
            It describes the same target, if any.

        Returns
        -------
        SparkRows
        """
        own = self._options["target"] is not None and not schema.has_target
        target = self._options["target"] if own else None
        options = self._options | {"schema": schema, "columns": None, "target": target}
        return SparkRows(self._frame, **options)

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> SparkRows:
        """Take the rows of each group together; each group must lie in one partition."""
        if ids is not self._options["groups"]:
            raise ValueError("groups must be the name of a column, SparkRows(..., groups=)")
        key, found = secrets.token_bytes(16), copy.copy(self)
        answers = self._ask(functools.partial(_ids, key, most))
        n_rows, n_groups = check_apart([facts for facts, _ in answers])
        digests = tuple(digest for _, digest in answers)
        seed = seed_of_draws(most, noise)
        found._groups = _Groups(most, seed, n_rows, n_groups, digests, key)
        found._digests = None
        return found

    def _ask(self, function: Callable[[int, ArrowRows], Any]) -> list[Any]:
        return self._source.ask(SparkSource(-1, function), len(self._lengths))

    def _prepared(self, how: Preparation) -> Rows:
        name = functools.partial(column_in_words, self.feature_names)
        prepare = functools.partial(
            _prepared, Settings(how, name, self._key), self._lengths, self._groups, self._digests
        )
        count = len(self._lengths)
        sources = [SparkSource(index, prepare) for index in range(count)]
        rows = rows_on(SparkWorkers(self._source, count), sources, how.spec)
        self._digests = rows.digests
        return rows

    def apply(self, function: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(self._ask(functools.partial(_applied, self._lengths, function)))

    def parts(self, function: Callable[[Any, Any, Any], T]) -> Iterable[T]:
        answers = self._ask(functools.partial(_called, self._lengths, function))
        return itertools.chain.from_iterable(answers)


def collection_of(X: Any, y: Any, weights: Any) -> NoReturn:
    """Refuse a data frame of Spark by itself."""
    raise ValueError(
        "X must not be a data frame of Spark: wrap it, SparkRows(df, schema=...) or "
        f"SparkRows(df, 'target'); got {type(X).__name__}"
    )
