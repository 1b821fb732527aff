"""Prepared rows in partitions that stay on the workers of a Dask cluster."""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import math
import operator
import pickle
import sys
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from dpglm.data.compiled.kernels import arithmetic
from dpglm.data.groups import GroupedRows
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import Block, DataSpec, Kernel, Rows, two_sum
from dpglm.data.sampled import sampled_rows
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.budget import Unit

# Compensated partial sums, and the binary tree that adds them.

Pair: TypeAlias = tuple[NDArray[np.float64], NDArray[np.float64]]
"""A rounded sum and its rounding error."""


@final
@dataclass(frozen=True, eq=False)
class Partial:
    """A sum over the partitions of some indices, in order."""

    indices: tuple[int, ...]
    pair: Pair


def add(first: Pair, second: Pair) -> Pair:
    """Add two pairs."""
    total, error = two_sum(first[0], second[0])
    return total, (first[1] + second[1]) + error


def joined(partials: list[Partial]) -> Partial:
    """Add neighbours, then neighbours of these, and so on."""
    while len(partials) > 1:
        alone = partials[len(partials) // 2 * 2 :]
        pairs = zip(partials[::2], partials[1::2], strict=False)
        partials = [Partial(a.indices + b.indices, add(a.pair, b.pair)) for a, b in pairs] + alone
    return partials[0]


# Where the partitions of a Dask collection are computed: a cluster, or this process.


class Workers(abc.ABC):
    """Runs functions where their arguments are, and hands out handles of results.

    ``driver_bytes`` is the most memory that sums of single partitions take on the driver; larger
    ones are added up by workers.
    """

    driver_bytes: ClassVar[float] = 1 << 27

    def start(self, delayed: Sequence[Any]) -> list[Any]:
        """Compute Dask's delayed values and keep them where they are computed."""
        return list(delayed)

    def share(self, value: bytes) -> Any:
        """Send a value to all workers once; return its handle for ``map``."""
        return value

    def groups(self, handles: Sequence[Any]) -> list[list[int]]:
        """Group the positions of handles by the threads that have their results at hand."""
        return [[place] for place in range(len(handles))]

    @abc.abstractmethod
    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        """Call a pure function for each position of columns of values, handles or lists of them.

        ``name`` is never given twice: with the position it names a result, so that a repeated
        computation replaces its own result.
        """

    @abc.abstractmethod
    def collect(self, handles: Sequence[Any]) -> list[Any]:
        """Return the results of handles, in their order."""


@final
class _Cluster(Workers):
    def __init__(self, client: Any) -> None:
        self._client = client

    def start(self, delayed: Sequence[Any]) -> list[Any]:
        return list(self._client.compute(list(delayed)))

    def share(self, value: bytes) -> Any:
        # Copies on all workers outlive the death of some.
        return self._client.scatter(value, broadcast=True, hash=False)

    def groups(self, handles: Sequence[Any]) -> list[list[int]]:
        holders, threads = self._client.who_has(list(handles)), self._client.nthreads()
        places: dict[str, list[int]] = {}
        for place, handle in enumerate(handles):
            # Lost results are recomputed, on any worker.
            found = holders.get(handle.key) or [handle.key]
            least = min(found, key=lambda worker: len(places.get(worker, ())))
            places.setdefault(least, []).append(place)
        return [
            some[thread :: threads.get(worker, 1)]
            for worker, some in places.items()
            for thread in range(min(threads.get(worker, 1), len(some)))
        ]

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        names = [f"{name}-{place}" for place in range(len(columns[0]))]
        task = functools.partial(with_one_blas_thread, function)
        return list(self._client.map(task, *columns, key=names, pure=False))

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return list(self._client.gather(list(handles)))


@final
class _ThisProcess(Workers):
    def start(self, delayed: Sequence[Any]) -> list[Any]:
        import dask

        return list(dask.compute(*delayed))

    def map(self, function: Callable[..., Any], name: str, *columns: Sequence[Any]) -> list[Any]:
        with _blas_libraries().limit(limits=1, user_api="blas"):
            return list(map(function, *columns))

    def collect(self, handles: Sequence[Any]) -> list[Any]:
        return list(handles)


@final
class Placement:
    """Which partitions one task adds up; shared by all rows that lie in the same partitions."""

    def __init__(self, workers: Workers, partitions: Sequence[Any]) -> None:
        self._workers, self._partitions = workers, partitions
        self._groups: list[list[int]] = []
        self._where: list[str] = []
        self._held: list[Any] = []

    def groups(self) -> list[list[int]]:
        """Return the positions of partitions in groups that one task finds together."""
        if not self._groups:
            self._groups, self._where = self._workers.groups(self._partitions), []
        return self._groups

    def hold(self, handles: list[Any]) -> None:
        """Keep the handles of a sum that is under way, and release those of the one before.

        Releasing is a message, behind which the next one would have to wait.
        """
        self._held = handles

    def answered(self, where: list[str]) -> None:
        """Note which workers answered; if they differ from the last ones, partitions have moved."""
        if self._where and self._where != where:
            self._groups = []
        self._where = where


def here() -> str:
    """Name the worker that runs this task; empty outside of workers."""
    # A worker of Dask has imported it.
    if "distributed" not in sys.modules:
        return ""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return ""


def current_workers() -> Workers:
    """Return the cluster that Dask would use now, or else this process."""
    from dask.base import get_scheduler

    client = getattr(get_scheduler(), "__self__", None)
    return _ThisProcess() if client is None else _Cluster(client)


@functools.cache
def _blas_libraries() -> ThreadpoolController:
    # Looking for libraries takes milliseconds, and NumPy's and SciPy's are loaded by now.
    return ThreadpoolController()


_LIMITED = threading.local()


def with_one_blas_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function with one BLAS thread: a worker runs a task in each of its threads.

    The limit stays: lifting it at the end of a task would lift it for other tasks.
    """
    if not hasattr(_LIMITED, "limit"):
        _LIMITED.limit = _blas_libraries().limit(limits=1, user_api="blas")
    return function(*arguments)


MOST_PARTITIONS = 2**14
"""More are refused; the bound on the rounding of ``DaskRows.sum`` counts on it."""

# A power of 2, so that sums of sums form one binary tree, whoever adds them.
_FAN_IN = 8
_MESSAGE_BYTES = 1 << 16
_SUMS_ONLY = (
    "solver must use only sums over rows and row-wise maps where rows are on a cluster, as all of "
    "dpglm.solvers do with default settings; got one that needs the rows themselves"
)
_ALIKE = "workers must have the same processors, NumPy, SciPy and BLAS, as these round alike"


@final
@dataclass(frozen=True)
class PartitionFacts:
    """Facts about a partition on the driver, which its tasks compare with their own.

    ``index`` is the partition's place in the collection, ``digest`` that of the values it was
    prepared from, ``arithmetic`` that of the worker, ``sizes`` the numbers of rows of its groups,
    where rows are in groups.
    """

    index: int
    digest: str
    n_rows: int
    arithmetic: str
    sizes: NDArray[np.intp] | None = None

    @property
    def n_units(self) -> int:
        """Number of rows, or of groups."""
        return self.n_rows if self.sizes is None else len(self.sizes)

    def chosen(self, units: NDArray[Any] | None) -> PartitionFacts:
        """Return the facts about some rows, or groups."""
        if units is None:
            return self
        if self.sizes is None:
            return dataclasses.replace(self, n_rows=len(units))
        sizes = self.sizes[units]
        return dataclasses.replace(self, n_rows=int(sizes.sum()), sizes=sizes)


@final
@dataclass(frozen=True, eq=False)
class Partition:
    """Prepared rows as they lie on a worker.

    Arrays that are sent outside a message may arrive at any address. At an unaligned address NumPy
    sums them in another order and so to other bits. A partition is sent as one string of bytes, and
    its arrays are copied on arrival.
    """

    facts: PartitionFacts
    rows: Rows

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        # The last protocol that copies NumPy's arrays.
        return _unpacked, (cloudpickle.dumps((self.facts, self.rows), protocol=4),)


def _unpacked(message: bytes) -> Partition:
    return Partition(*pickle.loads(message))


Answer: TypeAlias = tuple[str, list[Partial]]
"""The result of one task: its worker's address, and sums over partitions."""


@final
@dataclass(frozen=True, eq=False)
class DaskRows(Rows):
    """Rows in partitions that stay on their workers; see ``rows_on``.

    ``chosen`` holds the ascending positions of the rows, or groups, that count in each partition;
    None for all. A group lies in one partition, and its part of a sum is clipped to ``bound``
    there.

    Workers receive a function of blocks and return a sum. The driver draws the noise, once, after
    every partition has answered.

    The sum of a partition is a pure function of the partition and of the message. One task
    computes those of the partitions that lie together, and is named after this sum and them. Run
    again, elsewhere, or twice at a time, it replaces its result. The driver takes one result for
    each partition and nothing else, so no row counts twice; where it cannot have that, the fit
    ends before anything is drawn for the sum.

    Dask prepares the partitions of a lost worker again from their source. Every task compares the
    digest of the values with the first one, so a source that gives other rows the second time, or
    deals the same rows out in another way, ends the fit too.

    Privacy: the rounding bound counts on neighbours that are cut alike, and on all partitions but
    one being summed to the same bits, whoever sums them. So the lengths of partitions must not
    depend on values (files and slices are fine; a shuffle or an index by a private column is not),
    except under ``add_remove``, where the bound holds for any cut; BLAS has one thread in each
    task; and workers with other processors or numerical libraries than the first are refused.
    """

    workers: Workers
    partitions: Sequence[Any]
    facts: Sequence[PartitionFacts]
    spec: DataSpec
    chosen: Sequence[NDArray[Any] | None]
    placement: Placement
    bound: float | None = None
    step: float | None = None
    _token: str = field(init=False, default_factory=lambda: uuid.uuid4().hex)
    _asked: Iterator[int] = field(init=False, default_factory=itertools.count)

    def __post_init__(self) -> None:
        if self.facts[0].sizes is not None:
            vars(self).update(unit=Unit.GROUP)

    @classmethod
    def of(
        cls,
        workers: Workers,
        partitions: Sequence[Any],
        facts: Sequence[PartitionFacts],
        spec: DataSpec,
    ) -> Self:
        """Return all rows of some partitions, given by handles."""
        placement = Placement(workers, partitions)
        return cls(workers, partitions, facts, spec, (None,) * len(facts), placement)

    @property
    def n_rows(self) -> int:
        return sum(facts.n_rows for facts in self._of_chosen)

    @property
    def n_units(self) -> int:
        return sum(self._lengths)

    @property
    def _of_chosen(self) -> list[PartitionFacts]:
        pairs = zip(self.facts, self.chosen, strict=True)
        return [facts.chosen(chosen) for facts, chosen in pairs]

    @property
    def _lengths(self) -> list[int]:
        return [facts.n_units for facts in self._of_chosen]

    def bounded(self, bound: float) -> DaskRows:
        if self.unit is Unit.ROW:
            super().bounded(bound)
            return self
        return dataclasses.replace(self, bound=bound)

    def blocks(self) -> Iterator[Block]:
        raise ValueError(_SUMS_ONLY)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> DaskRows:
        # In ascending order, whatever that of the positions is.
        ends = np.cumsum(self._lengths)
        ascending = np.sort(indices)
        shares = np.split(ascending, np.searchsorted(ascending, ends[:-1]))
        chosen = []
        for share, end, length, before in zip(
            shares, ends, self._lengths, self.chosen, strict=True
        ):
            local = share - (end - length)
            chosen.append(local.astype(np.uint32) if before is None else before[local])
        return dataclasses.replace(self, spec=spec, chosen=chosen)

    def clip_entries(self, bound: float) -> DaskRows:
        return self._changed(operator.methodcaller("clip_entries", bound), self.spec)

    def _changed(self, change: Callable[[Rows], Rows], spec: DataSpec) -> DaskRows:
        """Change rows one by one where they lie, and keep the changed ones there too."""
        partitions = self.workers.map(
            _change,
            self._name("dpglm_change"),
            self.partitions,
            self.facts,
            self.chosen,
            [self._sent(change)] * len(self.partitions),
        )
        return DaskRows.of(self.workers, partitions, self._of_chosen, spec)

    def sum(self, kernel: Kernel, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Add up a kernel's arrays over the blocks of each partition.

        The kernel must be a closure over public values that can be pickled. The error of the
        result is at most ``u |sum| + gamma_k**2 sum |parts|``, k = b + 30, with b the most blocks
        of any partition. Every sum is a pair: a rounded value and the sum of its exact rounding
        errors (Knuth's TwoSum). Blocks are added one after the other, partitions in a binary tree
        of at most 14 levels; its shape depends on their number only. So a part passes at most
        b + 14 additions, which lose at most ``gamma_{b + 14} sum |parts|`` together, and an error
        at most b + 28 more, two in each level; the final pair is rounded once. This is the argument
        of Ogita, Rump and Oishi (2005), Proposition 4.5, with the height of a tree for the number
        of terms.

        Privacy: ``oracle.rounding.sum_rounding`` covers this. It allows for ``gamma_m**2 sum
        |parts|`` with m at least b. The rest is below ``(60 m + 900) u**2`` for each of the n
        rows. For all n up to ``MOST_ROWS`` that is far below the unused allowance for a block,
        ``gamma_16384`` for each of its rows: no block adds up more than some thousand terms one
        after the other. For rows in groups read "batch of groups" for "block": the allowance of
        ``oracle.rounding.group_rounding`` for a batch has two additions to spare.
        """
        if self.unit is Unit.GROUP and self.bound is None:
            raise PlanMismatchError("sums over groups need a bound on a group's contribution")
        array_shape = self.spec.coefficient_shape if shape is None else shape
        count, size = len(self.partitions), 16 * math.prod(array_shape)
        most = self.workers.driver_bytes
        few = count <= _FAN_IN or size * count <= most
        groups = self.placement.groups() if few else [[place] for place in range(count)]
        answers = self.workers.map(
            _sums,
            self._name("dpglm_sum"),
            *(
                [[column[place] for place in group] for group in groups]
                for column in (self.partitions, self.facts, self.chosen)
            ),
            [self._sent(kernel)] * len(groups),
            [array_shape] * len(groups),
            [self.bound] * len(groups),
            [self.step] * len(groups),
        )
        while not few and len(answers) > _FAN_IN and size * len(answers) > most:
            neighbours = itertools.zip_longest(*[iter(answers)] * _FAN_IN)
            answers = self.workers.map(
                _add_answers, self._name("dpglm_add"), *map(list, zip(*neighbours, strict=True))
            )
        self.placement.hold(answers)
        collected = self.workers.collect(answers)
        partials = [partial for _, found in collected for partial in found]
        answered = [index for partial in partials for index in partial.indices]
        asked = list(itertools.chain.from_iterable(groups))
        if answered != asked or sorted(answered) != list(range(count)):
            raise RuntimeError(f"{count} partitions must answer once each, got {answered}")
        if few:
            self.placement.answered([where for where, _ in collected])
        total, lost = joined(sorted(partials, key=lambda partial: partial.indices)).pair
        return total + lost

    def _name(self, name: str) -> str:
        return f"{name}-{self._token}-{next(self._asked)}"

    def _sent(self, function: Callable[..., Any]) -> Any:
        """Pickle a message for all workers: with each task if it is short, else once."""
        import cloudpickle

        message: bytes = cloudpickle.dumps(function)
        return message if len(message) <= _MESSAGE_BYTES else self.workers.share(message)

    def __reduce__(self) -> NoReturn:
        # Kernels sent to workers must not carry rows, nor the curator.
        raise ValueError(_SUMS_ONLY)


@sampled_rows.register
def _(rows: DaskRows, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    if rows.unit is Unit.ROW:
        return sampled_rows.dispatch(Rows)(rows, indices, rate, step)
    return dataclasses.replace(rows._taken(indices, rows.spec), step=step)


@derived_rows.register
def _(
    rows: DaskRows,
    function: Callable[[Block], Any],
    spec: DataSpec,
    overwrite: bool = False,
) -> DaskRows:
    # A partition is never written to: a task may be run again.
    return rows._changed(functools.partial(derived_rows, function=function, spec=spec), spec)


def rows_on(workers: Workers, partitions: Sequence[Any], spec: DataSpec) -> DaskRows:
    """Wait for partitions, given by handles in order, to be prepared, and check them.

    ``RuntimeError`` if workers do not all round alike.
    """
    if len(partitions) > MOST_PARTITIONS:
        raise ValueError(
            f"X must have at most {MOST_PARTITIONS} partitions, got {len(partitions)}: rechunk it"
        )
    name = f"dpglm_facts-{uuid.uuid4().hex}"
    facts = workers.collect(workers.map(operator.attrgetter("facts"), name, partitions))
    kinds = sorted({each.arithmetic for each in facts})
    if len(kinds) > 1:
        raise RuntimeError(f"{_ALIKE}, got {' and '.join(kinds)}")
    return DaskRows.of(workers, tuple(partitions), facts, spec)


def _checked(partition: Partition, facts: PartitionFacts, chosen: NDArray[Any] | None) -> Rows:
    found = partition.facts
    if (found.index, found.digest) != (facts.index, facts.digest):
        raise RuntimeError(
            "a partition was lost with its worker or read again, and its source returned other "
            "values the second time; nothing of this sum is released"
        )
    if len(kinds := {facts.arithmetic, found.arithmetic, arithmetic()}) > 1:
        raise RuntimeError(f"{_ALIKE}, got {' and '.join(sorted(kinds))}")
    return partition.rows if chosen is None else partition.rows.take(chosen)


def _sums(
    partitions: Sequence[Partition],
    facts: Sequence[PartitionFacts],
    chosen: Sequence[NDArray[Any] | None],
    message: bytes,
    shape: tuple[int, ...],
    bound: float | None,
    step: float | None,
) -> Answer:
    kernel: Kernel = pickle.loads(message)
    zero = np.zeros(shape)
    partials = []
    for partition, known, some in zip(partitions, facts, chosen, strict=True):
        rows, pair = _checked(partition, known, some), (zero, zero)
        parts: Iterable[NDArray[np.float64]] = map(kernel, rows.blocks())
        if isinstance(rows, GroupedRows):
            assert bound is not None
            parts = rows.held(bound, step).batch_sums(kernel, math.prod(shape))
        for part in parts:
            pair = add(pair, (part.reshape(shape), zero))
        partials.append(Partial((known.index,), pair))
    return here(), partials


def _add_answers(*answers: Answer | None) -> Answer:
    """Add neighbouring answers; None fills up the last group."""
    some = [partial for answer in answers if answer is not None for partial in answer[1]]
    return here(), [joined(some)]


def _change(
    partition: Partition, facts: PartitionFacts, chosen: NDArray[Any] | None, message: bytes
) -> Partition:
    rows = _checked(partition, facts, chosen)
    return dataclasses.replace(partition, rows=pickle.loads(message)(rows))
