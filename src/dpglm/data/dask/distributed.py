"""Prepared rows in partitions that stay on the workers of a Dask cluster."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
import pickle
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.compiled.arithmetic import arithmetic
from dpglm.data.dask.partials import Partial, add, joined
from dpglm.data.dask.workers import Placement, Workers, here
from dpglm.data.groups.rows import GroupedRows
from dpglm.data.prepare import derived_rows
from dpglm.data.rows import SERIAL, Block, BlockMap, Kernel, Rows
from dpglm.data.sampled import SampledRows, sampled_rows
from dpglm.data.spec import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Unit

__all__ = ["MOST_PARTITIONS", "DaskRows", "Partition", "PartitionFacts", "rows_on"]

MOST_PARTITIONS = 2**14
"""More are refused; the bound on the rounding of ``DaskRows.sum`` counts on it."""

# A power of 2, so that sums of sums form one binary tree, whoever adds them.
_FAN_IN = 8
_DRIVER_BYTES = 1 << 27
_MESSAGE_BYTES = 1 << 16

_SUMS_ONLY = (
    "solver must use only sums over rows and row-wise maps where rows are on a cluster, as all of "
    "dpglm.solvers do with default settings; got one that needs the rows themselves"
)
_ALIKE = "workers must have the same processors, NumPy, SciPy and BLAS, as these round alike"


@final
@dataclass(frozen=True)
class PartitionFacts:
    """What the driver knows of a partition, and what its tasks must find again.

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

    Arrays that travel beside a message may come to lie at any address. Where that is no multiple
    of their items' size, NumPy sums them in another order and so to other bits. A partition
    travels as one string of bytes, out of which arrays are copied.
    """

    facts: PartitionFacts
    rows: Rows

    def __reduce__(self) -> tuple[Any, ...]:
        import cloudpickle

        # The last protocol in which NumPy's arrays are not views of what they are read from.
        return _unpacked, (cloudpickle.dumps((self.facts, self.rows), protocol=4),)


def _unpacked(message: bytes) -> Partition:
    return Partition(*pickle.loads(message))


@final
@dataclass(frozen=True, eq=False)
class _Answer:
    """The result of one task: its worker's address, and sums over partitions."""

    where: str
    partials: tuple[Partial, ...]


@final
class DaskRows(Rows):
    """Rows whose partitions lie on workers and never come to the driver; see ``rows_on``.

    ``chosen`` holds the ascending positions of the rows, or groups, that count in each partition;
    None for all. A group lies in one partition, and its part of a sum is held to ``bound`` there.

    What is sent to a worker is a function of blocks; what comes back is a sum. The driver draws
    the noise, once, after every partition has answered.

    The sum of a partition is a pure function of the partition and of what was sent. One task
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

    def __init__(
        self,
        workers: Workers,
        partitions: Sequence[Any],
        facts: Sequence[PartitionFacts],
        spec: DataSpec,
        chosen: Sequence[NDArray[Any] | None],
        placement: Placement | None = None,
        bound: float | None = None,
        step: float | None = None,
    ) -> None:
        self.spec, self._bound, self._step = spec, bound, step
        self._workers, self._partitions = workers, tuple(partitions)
        self._facts, self._chosen = tuple(facts), tuple(chosen)
        self._placement = placement or Placement(workers, self._partitions)
        self._token, self._asked = uuid.uuid4().hex, itertools.count()

    @property
    def n_rows(self) -> int:
        return sum(facts.n_rows for facts in self._of_chosen)

    @property
    def unit(self) -> Unit:
        return Unit.ROW if self._facts[0].sizes is None else Unit.GROUP

    @property
    def n_units(self) -> int:
        return sum(self._lengths)

    @property
    def _of_chosen(self) -> list[PartitionFacts]:
        pairs = zip(self._facts, self._chosen, strict=True)
        return [facts.chosen(chosen) for facts, chosen in pairs]

    @property
    def _lengths(self) -> list[int]:
        return [
            facts.n_units if chosen is None else len(chosen)
            for facts, chosen in zip(self._facts, self._chosen, strict=True)
        ]

    def bounded(self, bound: float) -> DaskRows:
        if self.unit is Unit.ROW:
            super().bounded(bound)
            return self
        return self._with(self.spec, self._chosen, bound)

    def _with(
        self,
        spec: DataSpec,
        chosen: Sequence[NDArray[Any] | None],
        bound: float | None,
        step: float | None = None,
    ) -> DaskRows:
        return DaskRows(
            self._workers,
            self._partitions,
            self._facts,
            spec,
            chosen,
            self._placement,
            bound,
            self._step if step is None else step,
        )

    def blocks(self) -> Iterator[Block]:
        raise ValueError(_SUMS_ONLY)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> DaskRows:
        # In ascending order, whatever that of the positions is.
        ends = np.cumsum(self._lengths)
        ascending = np.sort(indices)
        shares = np.split(ascending, np.searchsorted(ascending, ends[:-1]))
        chosen = []
        for share, end, length, before in zip(
            shares, ends, self._lengths, self._chosen, strict=True
        ):
            local = share - (end - length)
            chosen.append(local.astype(np.uint32) if before is None else before[local])
        return self._with(spec, chosen, self._bound)

    def clip_entries(self, bound: float) -> DaskRows:
        return self._changed(operator.methodcaller("clip_entries", bound), self.spec)

    def _changed(self, change: Callable[[Rows], Rows], spec: DataSpec) -> DaskRows:
        """Change rows one by one where they lie, and keep the changed ones there too."""
        partitions = self._workers.map(
            _change,
            self._name("dpglm_change"),
            self._partitions,
            self._facts,
            self._chosen,
            [self._sent(change)] * len(self._partitions),
        )
        facts = self._of_chosen
        return DaskRows(self._workers, partitions, facts, spec, (None,) * len(facts))

    def sum(
        self, kernel: Kernel, map_blocks: BlockMap = SERIAL, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Add up a kernel's arrays over the blocks of each partition; ``map_blocks`` is not used.

        The kernel must be a closure over public values that can be pickled. The error of the
        result is at most ``u |sum| + gamma_k**2 sum |parts|``, k = b + 30, with b the most blocks
        of any partition. Every sum is a pair: a rounded value and the sum of its rounding errors,
        each of which is exact (Knuth's TwoSum). Blocks are added one after the other, partitions
        in a binary tree whose shape depends on their number only, of at most 14 levels. So a part
        passes at most b + 14 additions, which lose at most ``gamma_{b + 14} sum |parts|``
        together, and an error at most b + 28 more, two in each level; what the pair ends as is
        rounded once. This is the argument of Ogita, Rump and Oishi (2005), Proposition 4.5, with
        the height of a tree for the number of terms.

        Privacy: ``oracle.rounding.sum_rounding`` covers this. It allows for ``gamma_m**2 sum
        |parts|`` with m at least b. The rest is below ``(60 m + 900) u**2`` for each of the n
        rows, and so, for all n up to ``MOST_ROWS``, far below what the allowance for a block,
        ``gamma_16384`` for each of its rows, leaves over: no block adds up more than some thousand
        terms one after the other. Of rows in groups read "batch of groups" for "block": the
        allowance of ``oracle.rounding.group_rounding`` for a batch has two additions to spare.
        """
        if self.unit is Unit.GROUP and self._bound is None:
            raise PlanMismatchError("sums over groups need a bound on what a group contributes")
        array_shape = self.spec.coefficient_shape if shape is None else shape
        count, size = len(self._partitions), 16 * math.prod(array_shape)
        few = count <= _FAN_IN or size * count <= _DRIVER_BYTES
        groups = self._placement.groups() if few else [[place] for place in range(count)]
        answers = self._workers.map(
            _sums,
            self._name("dpglm_sum"),
            *(
                [[column[place] for place in group] for group in groups]
                for column in (self._partitions, self._facts, self._chosen)
            ),
            [self._sent(kernel)] * len(groups),
            [array_shape] * len(groups),
            [self._bound] * len(groups),
            [self._step] * len(groups),
        )
        while not few and len(answers) > _FAN_IN and size * len(answers) > _DRIVER_BYTES:
            neighbours = itertools.zip_longest(*[iter(answers)] * _FAN_IN)
            answers = self._workers.map(
                _add_answers, self._name("dpglm_add"), *map(list, zip(*neighbours, strict=True))
            )
        self._placement.hold(answers)
        collected = self._workers.collect(answers)
        partials = [partial for answer in collected for partial in answer.partials]
        answered = [index for partial in partials for index in partial.indices]
        asked = list(itertools.chain.from_iterable(groups))
        if answered != asked or sorted(answered) != list(range(count)):
            raise RuntimeError(f"{count} partitions must answer once each, got {answered}")
        if few:
            self._placement.answered([answer.where for answer in collected])
        total, lost = joined(sorted(partials, key=lambda partial: partial.indices)).pair
        return total + lost

    def _name(self, name: str) -> str:
        return f"{name}-{self._token}-{next(self._asked)}"

    def _sent(self, function: Callable[..., Any]) -> Any:
        """Pickle what all workers need: with each task if it is short, else once."""
        import cloudpickle

        message: bytes = cloudpickle.dumps(function)
        return message if len(message) <= _MESSAGE_BYTES else self._workers.share(message)

    def __reduce__(self) -> NoReturn:
        # Kernels sent to workers must not carry rows, nor the curator.
        raise ValueError(_SUMS_ONLY)


@sampled_rows.register
def _(rows: DaskRows, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    taken = rows._taken(indices, rows.spec)
    if rows.unit is Unit.ROW:
        return SampledRows(taken, step)
    return taken._with(taken.spec, taken._chosen, taken._bound, step)


@derived_rows.register
def _(
    rows: DaskRows,
    function: Callable[[Block], Any],
    spec: DataSpec,
    map_blocks: BlockMap = SERIAL,
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
    return DaskRows(workers, partitions, facts, spec, (None,) * len(facts))


def _checked(partition: Partition, facts: PartitionFacts, chosen: NDArray[Any] | None) -> Rows:
    found = partition.facts
    if (found.index, found.digest) != (facts.index, facts.digest):
        raise RuntimeError(
            "a partition was lost with its worker, and what its source gave the second time is "
            "not what it gave the first time; nothing is released of this sum"
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
) -> _Answer:
    kernel: Kernel = pickle.loads(message)
    zero = np.zeros(shape)
    partials = []
    for partition, known, some in zip(partitions, facts, chosen, strict=True):
        pair = zero, zero
        for part in _parts(_checked(partition, known, some), kernel, shape, bound, step):
            pair = add(pair, (part, zero))
        partials.append(Partial((known.index,), pair))
    return _Answer(here(), tuple(partials))


def _parts(
    rows: Rows, kernel: Kernel, shape: tuple[int, ...], bound: float | None, step: float | None
) -> Iterator[NDArray[np.float64]]:
    """Return sums over the blocks of a partition, or over its batches of groups."""
    if not isinstance(rows, GroupedRows):
        yield from map(kernel, rows.blocks())
        return
    assert bound is not None
    for part in rows.held(bound, step).batch_sums(kernel, math.prod(shape)):
        yield part.reshape(shape)


def _add_answers(*answers: _Answer | None) -> _Answer:
    """Add neighbouring answers; None fills up the last group."""
    some = [partial for answer in answers if answer is not None for partial in answer.partials]
    return _Answer(here(), (joined(some),))


def _change(
    partition: Partition, facts: PartitionFacts, chosen: NDArray[Any] | None, message: bytes
) -> Partition:
    rows = _checked(partition, facts, chosen)
    return dataclasses.replace(partition, rows=pickle.loads(message)(rows))
