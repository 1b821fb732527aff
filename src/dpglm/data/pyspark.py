"""Rows of a Spark data frame, prepared and summed by its executors."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
import operator
import os
import pickle
import secrets
import shutil
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._registry import require
from dpglm._validation import in_one_line
from dpglm.data import partitions
from dpglm.data.collection import Collection, Preparation
from dpglm.data.dask import (
    NO_GROUPS,
    ChunkFacts,
    Settings,
    check_apart,
    chunk_facts,
    digest_of,
    limit_of,
    prepared_partition,
)
from dpglm.data.rows import Floats, FloatType, Rows
from dpglm.data.stream.arrow import ArrowRows, RowEncoder, encoded_rows
from dpglm.data.stream.batches import Batches, table_batches
from dpglm.data.stream.stored import StoredRows
from dpglm.data.stream.streamed import ArraySource, load, save
from dpglm.exceptions import RowsChangedError
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import column_in_words, normal
from dpglm.tables.given import changed
from dpglm.tables.schema import Schema

T = TypeVar("T")
_STABLE = (
    "Spark must return the same rows in the same partitions and order each time: read a table or "
    "files, or call df.persist() or df.checkpoint() after a shuffle"
)


# Rows of partitions, encoded and prepared, that executors keep in files.


@final
@dataclass(frozen=True, eq=False)
class Encoded:
    """The rows of a partition with their digest; ``refused`` says why only features are right."""

    digest: str
    refused: ValueError | None
    X: Floats
    y: NDArray[Any]
    weights: NDArray[Any] | None
    offset: NDArray[Any] | None
    ids: NDArray[Any] | None

    @property
    def rows(self) -> StoredRows:
        """The rows as a collection."""
        source = ArraySource(self.X, self.y, self.weights, self.offset)
        return StoredRows(source, None, has_targets=True)

    @property
    def with_targets(self) -> Encoded:
        """The same; the error of refused targets, weights or ids is raised here."""
        if self.refused is not None:
            raise self.refused
        return self


@final
class LostError(Exception):
    """An executor does not keep the rows of a partition."""


@final
@dataclass(frozen=True, eq=False)
class Recipe:
    """How a partition becomes rows, and the files that executors keep.

    ``kinds`` is the schema of pyarrow of the columns that are read, ``read`` makes rows of a
    partition's table, ``digests`` are those of the partitions, once they are known.
    """

    kinds: Any = field(repr=False)
    read: Callable[[Batches], StoredRows]
    keep: bool
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    key: bytes = field(default_factory=lambda: secrets.token_bytes(16), repr=False)
    digests: tuple[str, ...] | None = None


@final
class Store:
    """The rows of the partition at a ``place`` on its executor: just read, or kept in files."""

    def __init__(self, recipe: Recipe, place: int, table: Batches | None = None) -> None:
        self._recipe, self.place, self._table = recipe, place, table

    @functools.cached_property
    def rows(self) -> Encoded:
        """The encoded rows; ``LostError`` if the executor does not keep them."""
        return self._checked(self.kept(self._recipe.token, self._encoded))

    def column(self, name: str) -> Any:
        """Return a column if the rows that were just read are those that were encoded."""
        self._checked(self._encoded())
        assert self._table is not None
        return self._table.read_columns([name])[name]

    def _encoded(self) -> Encoded:
        if self._table is None:
            raise LostError
        *columns, refused = self._recipe.read(self._table).loaded()
        return Encoded(digest_of(self._recipe.key, *columns), refused, *columns)

    def _checked(self, rows: Encoded) -> Encoded:
        """Compare with the rows of the first job; ``RowsChangedError`` if they differ."""
        digests = self._recipe.digests
        # A partition more than there were is refused by the driver.
        if digests is not None and digests[self.place :][:1] not in ((), (rows.digest,)):
            raise changed(f"partition {self.place + 1} has other rows or another order. {_STABLE}")
        return rows

    def kept(self, token: str, make: Callable[[], T]) -> T:
        """Return a value that depends on the partition alone, from a file where there is one.

        A new one comes from its file too: sums of arrays at other addresses may round otherwise.
        """
        roots = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")
        if not self._recipe.keep or not roots[0]:
            return make()
        path = _folder(roots[self.place % len(roots)], token) / str(self.place)
        if not path.exists():
            save(path, make())
        value: T = load(path)
        return value


def _folder(root: str, token: str) -> Path:
    return Path(root, f"dpglm-{token}")


Task: TypeAlias = Callable[[Store], Any]
"""A function of the rows of a partition."""


@final
@dataclass(frozen=True, eq=False)
class Call:
    """A function of other results about one partition, as a handle of ``Workers``.

    With a token it is one of the partition's place and rows, which prepares them, and the executor
    keeps the result.
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    token: str | None = None

    def __call__(self, store: Store) -> Any:
        """Compute the result."""
        if self.token is None:
            return self.function(*(_value(one, store) for one in self.arguments))
        kept = store.kept(self.token, lambda: self.function(store.place, store.rows))
        # A partition itself is pickled in one piece, with its arrays.
        return partitions.Partition(*kept)


def _value(handle: Any, store: Store) -> Any:
    """Compute a handle, those in a list, or a plain value."""
    if isinstance(handle, list):
        return [_value(one, store) for one in handle]
    return handle(store) if isinstance(handle, Call) else handle


def _own(handles: Sequence[Call], store: Store) -> Any:
    """Compute the handle of a partition."""
    handle = handles[store.place : store.place + 1]
    return partitions.with_one_blas_thread(handle[0], store) if handle else None


def by_partition(found: Iterable[tuple[int, bytes]], count: int | None) -> list[Any]:
    """Return the answers of tasks by partition; an error of a task is raised here.

    RowsChangedError if one is missing, repeated or of another partition than the first ``count``.
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


_FORGOTTEN: deque[str] = deque(maxlen=256)
"""Tokens of rows that are no longer in use: executors remove them with the next task."""
_UNUSED: list[Any] = []
"""Data frames of places that are no longer in use."""
_ANSWER = "place int, answer binary"


@final
class SparkFrame:
    """A Spark data frame of the columns that are read; its partitions are encoded once.

    A persisted data frame of places records the executor that keeps the files of a partition. Rows
    lost with an executor are encoded again, and must have the same digest.
    """

    def __init__(self, frame: Any, kinds: Any, read: Callable[[Batches], StoredRows]):
        encrypted = frame.sparkSession.conf.get("spark.io.encryption.enabled", "false")
        self._frame, self.recipe = frame, Recipe(kinds, read, encrypted != "true")
        self._forget_at_the_end()

    def _forget_at_the_end(self) -> None:
        weakref.finalize(self, _FORGOTTEN.append, self.recipe.token).atexit = False

    @functools.cached_property
    def _kept(self) -> tuple[Any, list[int]]:
        """Data frame of the places of partitions, and the lengths of these."""
        while _UNUSED:
            # The session that they belong to may have ended.
            with contextlib.suppress(Exception):
                _UNUSED.pop().unpersist()
        kept = self._source(lambda store: (len(store.rows.X), store.rows.digest), None).persist()
        weakref.finalize(self, _UNUSED.append, kept).atexit = False
        try:
            facts = by_partition(_collected(kept), None)
        except BaseException:
            kept.unpersist()
            raise
        self.recipe = replace(self.recipe, digests=tuple(digest for _, digest in facts))
        return kept, [length for length, _ in facts]

    @property
    def lengths(self) -> list[int]:
        """Number of rows of each partition."""
        return self._kept[1]

    def ask(self, task: Task) -> list[Any]:
        """Compute a function of each partition in one pass."""
        kept, lengths = self._kept
        on_executors = functools.partial(_from_files, self.recipe, task, tuple(_FORGOTTEN))
        found = _collected(kept.mapInArrow(on_executors, _ANSWER)) if self.recipe.keep else []
        answers = [one for one in found if one[1]]
        if len(answers) < len(found) or not self.recipe.keep:
            places = None if not self.recipe.keep else {one[0] for one in found if not one[1]}
            answers += _collected(self._source(task, places))
        return by_partition(answers, len(lengths))

    def column(self, name: str, frame: Any, kinds: Any) -> list[Any]:
        """Return a column of each partition of a frame that has these rows and the column."""
        count, recipe = len(self.lengths), replace(self.recipe, kinds=kinds)
        column = operator.methodcaller("column", name)
        task = functools.partial(_from_source, recipe, column, None, ())
        return by_partition(_collected(frame.mapInArrow(task, _ANSWER)), count)

    def _source(self, task: Task, places: set[int] | None) -> Any:
        forgotten = tuple(_FORGOTTEN)
        on_executors = functools.partial(_from_source, self.recipe, task, places, forgotten)
        return self._frame.mapInArrow(on_executors, _ANSWER)

    def unpersist(self) -> None:
        """Remove the files of executors; later passes encode the rows again."""
        if "_kept" in self.__dict__:
            kept = self.__dict__.pop("_kept")[0]
            _FORGOTTEN.append(self.recipe.token)
            self.recipe = replace(self.recipe, token=secrets.token_hex(8))
            self._forget_at_the_end()
            place = operator.attrgetter("place")
            task = functools.partial(_from_files, self.recipe, place, tuple(_FORGOTTEN))
            kept.mapInArrow(task, _ANSWER).collect()
            kept.unpersist()


def _collected(frame: Any) -> list[tuple[int, bytes]]:
    return [(row[0], bytes(row[1] or b"")) for row in frame.collect()]


def _from_source(
    recipe: Recipe,
    task: Task,
    places: set[int] | None,
    forgotten: tuple[str, ...],
    batches: Iterator[Any],
) -> Iterator[Any]:
    """Read a partition and answer, on an executor; other partitions than ``places`` do not."""
    import pyarrow as pa

    index = require("pyspark", "spark").TaskContext.get().partitionId()
    if places is None or index in places:
        _forget(forgotten)
        parts = list(batches)
        table = pa.Table.from_batches(parts) if parts else recipe.kinds.empty_table()
        read = table_batches(f"partition {index + 1} of the Spark table", table)
        yield _answer(Store(recipe, index, read), task)


def _from_files(
    recipe: Recipe, task: Task, forgotten: tuple[str, ...], batches: Iterator[Any]
) -> Iterator[Any]:
    """Answer for the partitions that are listed, on an executor that keeps their rows."""
    _forget(forgotten)
    for batch in batches:
        for place in batch.column(0).to_pylist():
            yield _answer(Store(recipe, place), task)


def _answer(store: Store, task: Task) -> Any:
    """Answer for one partition: a pickled result and error, or nothing if its rows are lost."""
    import cloudpickle
    import pyarrow as pa

    answer: Any = None
    with contextlib.suppress(LostError):
        try:
            answer = task(store), None
        except (ValueError, RuntimeError, RowsChangedError) as error:
            # Raised on the driver: running the task again would not help.
            answer = None, error
    message = None if answer is None else cloudpickle.dumps(answer, protocol=4)
    place = pa.array([store.place], pa.int32())
    columns = {"place": place, "answer": pa.array([message], pa.binary())}
    return pa.RecordBatch.from_pydict(columns)


def _forget(tokens: tuple[str, ...]) -> None:
    """Remove rows that are no longer in use from this executor."""
    for root in filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")):
        for token in tokens:
            shutil.rmtree(_folder(root, token), ignore_errors=True)


@final
class SparkWorkers(partitions.Workers):
    """Executors of Spark. A handle is a recipe, computed again in each pass but for its source.

    All sums are added up on the driver: Spark refuses more than ``spark.driver.maxResultSize``.
    """

    driver_bytes = math.inf

    def __init__(self, frame: SparkFrame, token: str) -> None:
        self._frame = frame
        weakref.finalize(self, _FORGOTTEN.append, token).atexit = False

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        return [Call(function, arguments) for arguments in zip(*columns, strict=True)]

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return self._frame.ask(functools.partial(_own, handles))


def _prepared(
    settings: Settings, index: int, rows: Encoded
) -> tuple[partitions.PartitionFacts, Rows]:
    """Prepare a partition. The digest of its rows is that of the prepared ones."""
    rows = rows.with_targets
    y = rows.y if rows.offset is None else np.column_stack([rows.y, rows.offset])
    found = prepared_partition(settings, index, rows.X, y, rows.weights, rows.ids, rows.digest)
    return found.facts, found.rows


@final
class SparkRows(Collection):
    """Rows of a Spark data frame, prepared and summed by its executors.

    The first job encodes the rows of each partition, and executors keep them in local files. Each
    pass of a fit is a job that returns the bounded sum of each partition. The driver adds up the
    sums in the order of the partitions, one for each, and draws the noise. Lost executors and tasks
    that fail or run twice change nothing.

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
    Predictions return to the driver as an array, in the order of the partitions. So do the columns
    that ``evaluate`` and ``Study`` read.

    Privacy: executors see rows and exact sums. They keep rows in ``spark.local.dir``, without
    encryption, until these are no longer in use, at the latest until Spark ends; where
    ``spark.io.encryption.enabled`` is set they keep none, and encode in each pass. Results that
    leave the driver are protected. It keeps the length and a keyed digest of each partition. Other
    rows, or another order, end the fit before anything is released from them. Under ``zero_out``
    and ``replace_one``, lengths of partitions must not depend on private values.
    """

    dtype: FloatType = "float32"
    _n_rows = 0
    """Number of rows that are used, where rows are in groups."""

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
        names = {"offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        names |= {"target": target, "groups": groups}
        self._options: dict[str, Any] = {**names, "columns": columns, "schema": schema}
        self._options["dtype"] = dtype
        self._kinds = frame.limit(0).toArrow().schema
        # No rows, which have the names and types of all.
        like = ArrowRows(self._no_rows, **self._options)
        self._open(like, like.used_columns, functools.partial(ArrowRows, **self._options))

    @property
    def _no_rows(self) -> Batches:
        return table_batches("the Spark table", self._kinds.empty_table())

    def _open(
        self, like: StoredRows, names: Sequence[str], read: Callable[[Batches], StoredRows]
    ) -> None:
        """Read columns in another way; ``like`` is the result for no rows."""
        self._like, self._limit, self.n_groups = like, NO_GROUPS, None
        self.dtype, self.is_weighted = like.dtype, like.is_weighted
        self.has_offset = like.has_offset
        self.feature_names, self.target_name = like.feature_names, like.target_name
        self.schema, self.offset_column = like.schema, like.offset_column
        frame, kinds = self._selected(names)
        self._source = SparkFrame(frame, kinds, read)

    def _selected(self, names: Sequence[str]) -> tuple[Any, Any]:
        """Return some columns as a frame, and their schema of pyarrow."""
        stored = {normal(name): name for name in self._kinds.names}
        found = [stored[normal(name)] for name in names]
        frame = self._frame.select([f"`{name.replace('`', '``')}`" for name in found])
        return frame, self._kinds.empty_table().select(found).schema

    @property
    def shape(self) -> tuple[int, int]:
        n_rows = sum(self._source.lengths) if self.n_groups is None else self._n_rows
        return n_rows, self._like.shape[1]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of all columns."""
        return tuple(self._kinds.names)

    def __getitem__(self, name: str) -> Any:
        """Return a column of private values, on the driver, in the order of predictions."""
        names = list(
            dict.fromkeys([*self._source.recipe.kinds.names, *self._selected([name])[1].names])
        )
        frame, kinds = self._selected(names)
        return np.concatenate(self._source.column(name, frame, kinds))

    def read_columns(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Return columns of private values, on the driver, from one job."""
        self._no_rows.require(names)
        table = self._selected(names)[0].toArrow()
        return table_batches("the Spark table", table).read_columns(names)

    def encoded(self, encoder: RowEncoder) -> SparkRows:
        """Return the rows as an encoder of tables reads them, without targets."""
        found = copy.copy(self)
        found._options = self._options | {"groups": None}
        read = functools.partial(encoded_rows, encoder=encoder)
        found._open(read(self._no_rows), encoder.names, read)
        return found

    @property
    def group_ids(self) -> Any:
        """The name of the column of groups: their ids stay on the executors."""
        return self._options["groups"]

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
        if schema == self.schema:
            return self
        own = self._options["target"] is not None and not schema.has_target
        target = self._options["target"] if own else None
        options = self._options | {"schema": schema, "columns": None, "target": target}
        return SparkRows(self._frame, **options)

    def unpersist(self) -> None:
        """Remove the encoded rows that executors keep; another use encodes the rows again.

        Without it, the next job of other rows removes them once these are no longer in use, and
        Spark does when it ends.
        """
        self._source.unpersist()

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> SparkRows:
        """Take the rows of each group together; each group must lie in one partition."""
        if ids is not self._options["groups"]:
            raise ValueError("groups must be the name of a column, SparkRows(..., groups=)")
        key = self._source.recipe.key

        def facts(store: Store) -> ChunkFacts:
            return chunk_facts(key, most, len(store.rows.X), store.rows.with_targets.ids)

        found = copy.copy(self)
        found._n_rows, found.n_groups = check_apart(self._source.ask(facts))
        found._limit = limit_of(most, noise)
        return found

    def prepared(self, how: Preparation) -> Rows:
        name = functools.partial(column_in_words, self.feature_names)
        settings = Settings(how, name, self._source.recipe.key, *self._limit)
        prepare, token = functools.partial(_prepared, settings), secrets.token_hex(8)
        sources = [Call(prepare, token=token)] * len(self._source.lengths)
        return partitions.rows_on(SparkWorkers(self._source, token), sources, how.spec)

    def apply(self, function: Callable[..., NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate(self._source.ask(lambda store: store.rows.rows.apply(function)))

    def parts(self, function: Callable[[Any, Any, Any], T]) -> Iterable[T]:
        answers = self._source.ask(lambda store: list(store.rows.with_targets.rows.parts(function)))
        return itertools.chain.from_iterable(answers)


def collection_of(X: Any, y: Any, weights: Any) -> NoReturn:
    """Refuse a data frame of Spark by itself."""
    raise ValueError(
        "X must not be a data frame of Spark: wrap it, SparkRows(df, schema=...) or "
        f"SparkRows(df, 'target'); got {type(X).__name__}"
    )
