"""Rows as a backend sees them, and the public facts that a plan may depend on."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, final

import numpy as np
from joblib import cpu_count
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dpglm._validation import (
    LARGEST,
    SMALLEST,
    check_bools,
    check_count,
    check_kind,
    check_one_of,
    check_real,
    is_number,
)
from dpglm.data.compiled.kernels import SlopeRule
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.budget import Adjacency, PrivacyBudget, Unit, default_delta
from dpglm.tables.given import Watch

__all__ = ["LARGEST", "SMALLEST", "DataSpec", "FloatType", "GroupBound", "Protection"]


_LARGEST_TARGET = 1e100

FloatType = Literal["float32", "float64"]
"""Name of a floating-point type."""


@final
@dataclass(frozen=True)
class GroupBound:
    """How much the rows of one group may contribute to a sum, all of them together.

    Parameters
    ----------
    n_groups : int
        Number of groups, at least 1. Under ``add_remove`` a public stand-in for it.
    rows : float
        Number m of rows of a group that the bounds are made for, at least 1: a typical one.
        Groups with more rows are scaled down where they exceed their bound.

    Notes
    -----
    Independent contributions in all directions, such as scores, add up to about ``sqrt(m)`` times
    one of them. Products ``z z^T`` of rows with the same spread in d directions add up to
    ``sqrt(m (1 + (m - 1) / d))`` times one (in Frobenius norm). Counts, and contributions of equal
    rows, add up to m times one. ``reach`` is the geometric mean of the two extremes.

    Examples
    --------
    >>> bound = GroupBound(n_groups=4000, rows=16.0)
    >>> bound.reach(), bound.reach(directions=1)
    (8.0, 16.0)
    """

    n_groups: int
    rows: float

    def __post_init__(self) -> None:
        check_count("n_groups", self.n_groups)
        check_real("rows", self.rows, least=1.0, most=LARGEST)

    @classmethod
    def typical(cls, n_rows: int, n_groups: int, max_rows: int | None = None) -> GroupBound:
        """Return the bound for the mean number of rows of a group, at most ``max_rows``."""
        rows = max(1.0, n_rows / n_groups)
        return cls(n_groups, rows if max_rows is None else min(rows, float(max_rows)))

    def reach(self, directions: float = math.inf) -> float:
        """Bound on a group's contribution, in units of the bound on that of a row.

        Parameters
        ----------
        directions : float, default=inf
            The d of products of rows; 1 for contributions that cannot cancel, infinite for those
            that point to every side.
        """
        apart = math.sqrt(self.rows * (1.0 + (self.rows - 1.0) / directions))
        return math.sqrt(apart * self.rows)


@final
@dataclass(frozen=True)
class DataSpec:
    """Public facts about a data set, and bounds that its prepared rows will satisfy.

    Parameters
    ----------
    n_rows : int
        Number of rows, at least 1. Under ``add_remove`` a public stand-in for it.
    n_features : int
        Number of columns without the intercept's, at least 1.
    n_outputs : int, default=1
        1 for a scalar prediction; the number of classes for softmax.
    row_norm : float, default=1.0
        Bound ``R`` on the L2 norm of every prepared row, intercept column excluded; from 1e-15
        to 1e15.
    entry_bound : float, optional
        Declared bound on the magnitude of every entry of a row, intercept column excluded.
        Methods that rely on it clip entries to it.
    intercept : float, default=0.0
        Value of the constant column that is appended to every row; 0 for none.
    dtype : {"float32", "float64"}, default="float64"
        Floating-point type of the rows.
    sparse : bool, default=False
        Whether rows are stored as CSR (sums are then accumulated in float64).
    weight_bound : float, default=1.0
        Bound on the weight of any row.
    groups : GroupBound, optional
        How much a group may contribute, where the rows of each group are protected together.
    target_low, target_high : float, optional
        Bounds on the prepared targets, where the loss has real-valued targets; up to 1e100, and
        equal or at least 1e-100 apart.

    Attributes
    ----------
    unit : Unit
        The unit of protection: a row, or all rows of a group.
    n_units : int
        Number of units of protection: rows, or groups.
    unit_weight : float
        Bound on a unit's contribution, in units of the bound on that of a row of weight 1.
    typical_weight : float
        Mean weight of the rows to plan for, as the true one is private: the geometric mean of the
        bound and 1, the weight of rows without weights. A bound below 1 is the weight of all rows
        without weights.
    centers_columns : bool
        Whether prepared columns may be centred: dense ones, with an intercept.
    n_columns : int
        Number of columns with the intercept's.
    augmented_row_norm : float
        Bound on the L2 norm of a row with its intercept column.
    coefficient_shape : tuple of int
        Shape of the parameter: ``(columns,)``, or ``(columns, outputs)`` for K > 1.
    n_coefficients : int
        Number of entries of the parameter.

    Examples
    --------
    >>> DataSpec(n_rows=1000, n_features=3, row_norm=2.0, intercept=1.5).augmented_row_norm
    2.5
    """

    n_rows: int
    n_features: int
    n_outputs: int = 1
    row_norm: float = 1.0
    intercept: float = 0.0
    dtype: FloatType = "float64"
    sparse: bool = False
    weight_bound: float = 1.0
    target_low: float = -math.inf
    target_high: float = math.inf
    entry_bound: float = math.inf
    groups: GroupBound | None = None

    if TYPE_CHECKING:  # Derived, so no fields.
        unit: Unit = field(init=False)
        n_units: int = field(init=False)
        unit_weight: float = field(init=False)
        typical_weight: float = field(init=False)
        centers_columns: bool = field(init=False)
        n_columns: int = field(init=False)
        augmented_row_norm: float = field(init=False)
        coefficient_shape: tuple[int, ...] = field(init=False)
        n_coefficients: int = field(init=False)

    def __post_init__(self) -> None:
        check_bools(self)
        check_count("n_rows", self.n_rows)
        check_count("n_features", self.n_features)
        check_count("n_outputs", self.n_outputs)
        check_real("row_norm", self.row_norm, least=SMALLEST, most=LARGEST)
        if self.intercept != 0.0:
            check_real("intercept", self.intercept, least=SMALLEST, most=LARGEST)
        if self.entry_bound != math.inf:
            check_real("entry_bound", self.entry_bound, least=SMALLEST, most=LARGEST)
        check_real("weight_bound", self.weight_bound, least=SMALLEST, most=LARGEST)
        check_one_of("dtype", self.dtype, ("float32", "float64"))
        for name in ("target_low", "target_high"):
            if not is_number(getattr(self, name)):
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not self.target_low <= self.target_high:
            raise ValueError(
                f"target_low must not exceed target_high, got {self.target_low!r} and "
                f"{self.target_high!r}"
            )
        check_target_bounds(self.target_low, self.target_high)
        check_kind("groups", self.groups, GroupBound | None, "a GroupBound or None")
        columns = self.n_features + (self.intercept > 0.0)
        vars(self).update(
            unit=Unit.ROW if self.groups is None else Unit.GROUP,
            n_units=self.n_rows if self.groups is None else self.groups.n_groups,
            unit_weight=self.weight_bound * self.reach(),
            typical_weight=min(self.weight_bound, math.sqrt(self.weight_bound)),
            centers_columns=self.intercept > 0.0 and not self.sparse,
            n_columns=columns,
            augmented_row_norm=math.hypot(self.row_norm, self.intercept),
            coefficient_shape=(columns,) if self.n_outputs == 1 else (columns, self.n_outputs),
            n_coefficients=columns * self.n_outputs,
        )

    def reach(self, directions: float = math.inf) -> float:
        """Bound on a unit's contribution over that of a row, see ``GroupBound.reach``."""
        return 1.0 if self.groups is None else self.groups.reach(directions)

    def of_units(self, count: int) -> DataSpec:
        """Return the facts about some of the rows or groups; of groups with a share of the rows."""
        if self.groups is None:
            return dataclasses.replace(self, n_rows=count)
        share = count / self.groups.n_groups
        return dataclasses.replace(
            self,
            n_rows=max(1, round(self.n_rows * share)),
            groups=dataclasses.replace(self.groups, n_groups=count),
        )

    def target_range(self, admitted: tuple[float, float]) -> tuple[float, float]:
        """Bounds on the targets within the range that a loss admits."""
        return max(self.target_low, admitted[0]), min(self.target_high, admitted[1])


@final
@dataclass(frozen=True)
class Protection:
    """The protection of a table: neighbouring relation, budget and public sizes.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation.
    budget : PrivacyBudget
        The total budget.
    n_rows : int
        Public number of rows, at least 1.
    groups : GroupBound, optional
        Bound on the rows of a group (person), where whole groups are protected.

    Attributes
    ----------
    unit : Unit
        The protected unit: a row, or a group with all its rows.
    n_units : int
        Public number of rows, or of groups where these are protected.
    delta : float
        The budget's delta, or the default one where the budget has none.
    """

    adjacency: Adjacency
    budget: PrivacyBudget
    n_rows: int
    groups: GroupBound | None = None

    if TYPE_CHECKING:  # Derived, so no fields.
        unit: Unit = field(init=False)
        n_units: int = field(init=False)
        delta: float = field(init=False)

    def __post_init__(self) -> None:
        check_kind("budget", self.budget, PrivacyBudget, "a PrivacyBudget")
        check_kind("groups", self.groups, GroupBound | None, "a GroupBound or None")
        check_count("n_rows", self.n_rows)
        n_units = self.n_rows if self.groups is None else self.groups.n_groups
        vars(self).update(
            unit=Unit.ROW if self.groups is None else Unit.GROUP,
            n_units=n_units,
            delta=vars(self.budget).get("delta", default_delta(n_units)),
        )

    @property
    def sizes(self) -> str:
        """The number of rows, and of groups where these are protected, in words."""
        rows = f"{self.n_rows} rows"
        return rows if self.groups is None else f"{rows} of {self.groups.n_groups} persons"

    def of_part(self, budget: PrivacyBudget, n_rows: int, n_units: int) -> Protection:
        """Return the protection of a part of the rows, or of the groups, with a part's budget."""
        groups = self.groups
        if groups is not None:
            groups = dataclasses.replace(groups, n_groups=n_units)
        return Protection(self.adjacency, budget, n_rows, groups)


def check_target_bounds(low: float, high: float) -> None:
    """Refuse bounds on targets if their squares overflow or vanish; infinite ends are none."""
    finite = [abs(end) for end in (low, high) if math.isfinite(end)]
    if max(finite, default=0.0) > _LARGEST_TARGET or 0.0 < high - low < 1.0 / _LARGEST_TARGET:
        raise ValueError(
            f"bounds on targets must be at most {_LARGEST_TARGET:g} in magnitude, and equal or "
            f"at least {1.0 / _LARGEST_TARGET:g} apart, so that squares do not overflow or "
            f"vanish, got {low!r} and {high!r}: give targets in other units"
        )


Floats: TypeAlias = NDArray[np.floating[Any]]


class Block(abc.ABC):
    """Some rows, few enough to stay in cache while they are used twice."""

    targets: NDArray[Any]
    """Targets as the loss wants them, shape ``(rows,)``."""
    norms: Floats
    """Upper bounds on the L2 norm of each row with its intercept column, shape ``(rows,)``."""
    weights: Floats | None
    """Weight of each row, shape ``(rows,)``, or None for all ones."""
    starts: NDArray[np.intp] | None = None
    """Where each of several groups starts, and the number of rows: a kernel returns the sum over
    the rows of each group then, along a first axis. None for one sum over all rows."""

    def __init__(
        self, stored: Any, which: Any, targets: Any, norms: Any, weights: Any, intercept: float
    ) -> None:
        # Arrays of which ``which`` are the block's rows, if not all.
        self._stored, self._which, self._intercept = stored, which, intercept
        self.targets, self.norms, self.weights = targets, norms, weights

    @abc.abstractmethod
    def predict(self, w: NDArray[np.float64]) -> Floats:
        """Linear predictions ``z``, shape ``(rows,)`` or ``(rows, outputs)``; a fresh array.

        Privacy: where neighbours shift rows, no bit of a prediction may depend on the row's place.
        """

    @abc.abstractmethod
    def features(self) -> Floats:
        """Rows without their intercept column, dense; not to be written to."""

    def stored(self) -> Any:
        """Rows without their intercept column, dense or CSR as they are stored."""
        return self.features()

    def located(self) -> tuple[Any, NDArray[np.int64] | None]:
        """Return an array of rows, and the places of the block's rows in it; None for all."""
        return self.stored(), None

    @abc.abstractmethod
    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        """``sum_i slopes_i x_i`` in the shape of the parameter."""

    def bounded_sum(
        self, rule: SlopeRule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        """Sum of clipped, weighted slopes times rows in compiled code; None where there is none.

        ``targets`` and ``norms`` are the block's own, or a view's.
        """
        return None


T = TypeVar("T")
R = TypeVar("R")
Kernel: TypeAlias = Callable[[Block], NDArray[np.float64]]


@final
@dataclass(frozen=True)
class AnyArrays:
    """A kernel for blocks of NumPy arrays and of tensors, with float64 values of their kind.

    Rows on a device give it blocks there; a kernel without this mark gets copies on the host.
    With ``apart`` it takes blocks of several groups, too, and returns the sum of each; other
    kernels get the groups one by one.
    """

    kernel: Kernel
    apart: bool = False

    def __call__(self, block: Block) -> NDArray[np.float64]:
        """Call the kernel."""
        return self.kernel(block)


class Rows(abc.ABC):
    """Prepared rows: their norms, targets and weights satisfy the bounds of ``spec``.

    A backend implements this class and ``Block``; every solver then runs on it. Neighbouring data
    sets of equal length are cut into the same blocks, so that one row changes the sum of one block
    only; the rounding bound of a sum rests on that.
    """

    spec: DataSpec
    watch: Watch = Watch()
    """Files in which the rows lie, to be checked after a pass and before its result is used."""
    unit: Unit = Unit.ROW
    """The unit of protection: a row, or all rows of a group."""

    @property
    @abc.abstractmethod
    def n_rows(self) -> int:
        """The true number of rows; private under ``add_remove``."""

    @property
    def n_units(self) -> int:
        """The true number of rows, or of groups."""
        return self.n_rows

    def bounded(self, bound: float) -> Rows:
        """Return rows that clip each unit's contribution to a sum to an L2 norm.

        Rows alone stay as they are, since kernels bound each row. Rows in groups can be summed
        only after this.
        """
        if self.spec.unit is not self.unit:
            raise PlanMismatchError(
                f"rows must be in groups where each {self.spec.unit.value} is protected"
            )
        return self

    def on_host(self) -> Rows:
        """Return these rows in the host's memory and in C order, where positions change no bit."""
        return self

    def alike(self, rows: Rows) -> Rows:
        """Put new rows, one for each of these, into the groups of these."""
        return rows

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in order, in blocks with boundaries that depend on their number only."""

    def chunks(self) -> Iterator[Rows]:
        """All rows, in order, in parts that are in memory."""
        yield self

    def map_native(self, function: Callable[[Block], Any]) -> Iterable[Any]:
        """Apply a function of any arrays to blocks in the rows' own storage, in order."""
        yield from map_blocks(function, self.blocks())
        self.watch.check()

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """Take the rows, or groups, at the given positions, in that order."""
        return self._taken(indices, self.spec)

    def part(self, indices: NDArray[np.intp]) -> Rows:
        """Take rows, or groups, as a data set of its own: its ``spec`` has their number."""
        return self._taken(indices, self.spec.of_units(len(indices)))

    @abc.abstractmethod
    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> Rows: ...

    @abc.abstractmethod
    def clip_entries(self, bound: float) -> Rows:
        """Clip every entry to [-bound, bound], except in the intercept column."""

    def sum(self, kernel: Kernel, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Add up a kernel's arrays, by default of the parameter's shape, in the blocks' order.

        The error of the result is at most ``u |sum| + gamma_m**2 sum |parts|`` for m blocks,
        coordinate by coordinate: Ogita, Rump and Oishi, "Accurate sum and dot product", SIAM J.
        Sci. Comput. 26 (2005), Proposition 4.5.
        """
        zero = np.zeros(self.spec.coefficient_shape if shape is None else shape)
        total = compensated_sum(map_blocks(kernel, self.blocks()), zero)
        if self.watch.marks:
            self.watch.check()
        return total


def compensated_sum(
    parts: Iterable[NDArray[np.float64]], zero: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Add up float64 arrays, or tensors, in their order, with twice the precision of float64."""
    total, lost = zero, zero + 0.0
    for part in parts:
        total, error = two_sum(total, part)
        lost += error
    return total + lost


def two_sum(
    a: NDArray[np.float64], b: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the rounded sum and its exact error (Knuth's TwoSum)."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


# Threads over blocks of rows.

_PARALLEL_ENTRIES = 1 << 20
_MOST_BLOCKS_EACH = 8
_MOST_BLOCKS = 32
"""In memory at a time where blocks are read from files, but at least one for each thread."""
_MAP: ContextVar[Callable[..., Iterable[Any]]] = ContextVar("dpglm_map_blocks", default=map)


def map_blocks(function: Callable[[T], R], blocks: Iterable[T]) -> Iterable[R]:
    """Apply a function to parts of rows, in order; on threads within ``threads_over``."""
    return _MAP.get()(function, blocks)


@contextlib.contextmanager
def threads_over(n_entries: int) -> Iterator[None]:
    """Map blocks of ``n_entries`` on threads, each with a single-threaded BLAS, where that pays."""
    threads = cpu_count() if n_entries >= _PARALLEL_ENTRIES else 1  # Counting reads files.
    if threads == 1:
        yield
        return
    with (
        ThreadPoolExecutor(threads, "dpglm", _stay_on_one_of, (_processors(threads),)) as pool,
        threadpool_limits(1, user_api="blas"),
    ):

        def map_on_threads(kernel: Callable[[T], R], blocks: Iterable[T]) -> Iterator[R]:
            remaining = iter(blocks)
            each = max(1, min(_MOST_BLOCKS_EACH, _MOST_BLOCKS // threads))
            while wave := list(itertools.islice(remaining, threads * each)):
                yield from _on_threads(pool, threads, kernel, wave)

        token = _MAP.set(map_on_threads)
        try:
            yield
        finally:
            _MAP.reset(token)


def _processors(threads: int) -> Iterator[int]:
    """Return a processor for each thread, or none unless there are as many of them as threads.

    A thread that hands the interpreter's lock to another has it woken on its own processor, where
    both then stay for longer than a step takes. With processors to spare, placing threads is left
    to the system.
    """
    if sys.platform != "linux":
        return iter(())
    usable = sorted(os.sched_getaffinity(0))
    return iter(usable if len(usable) == threads else ())


def _stay_on_one_of(processors: Iterator[int]) -> None:
    """Keep this thread on the next processor."""
    processor = next(processors, None)
    if sys.platform == "linux" and processor is not None:
        # It may have been taken away meanwhile.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {processor})


def _on_threads(
    pool: ThreadPoolExecutor, threads: int, kernel: Callable[[T], R], blocks: list[T]
) -> list[R]:
    """Apply a kernel to blocks; whichever thread is free takes the next."""
    sums: list[Any] = [None] * len(blocks)
    # All threads draw from one iterator: handing out single blocks from here would make them
    # wait for each other at the interpreter's lock.
    positions = iter(range(len(blocks)))

    def work(_: int) -> None:
        # Threads do not inherit this from ``run``, which has the reason.
        with np.errstate(all="ignore"):
            for position in positions:
                sums[position] = kernel(blocks[position])

    for _ in pool.map(work, range(threads)):
        pass
    return sums
