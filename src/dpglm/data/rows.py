"""Rows as a backend sees them: blocks that can predict and sum, and nothing else."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.data.compiled.kernels import Rule
from dpglm.data.spec import DataSpec
from dpglm.tables.unchanged import Watch

__all__ = [
    "SERIAL",
    "AnyArrays",
    "Block",
    "BlockMap",
    "Floats",
    "Kernel",
    "Rows",
    "compensated_sum",
    "two_sum",
]

Floats: TypeAlias = NDArray[np.floating[Any]]


class Block(abc.ABC):
    """Some rows, few enough to stay in cache while they are used twice."""

    targets: NDArray[Any]
    """Targets as the loss wants them, shape ``(rows,)``."""
    norms: Floats
    """Upper bounds on the L2 norm of each row with its intercept column, shape ``(rows,)``."""
    weights: Floats | None
    """Weight of each row, shape ``(rows,)``, or None for all ones."""

    @abc.abstractmethod
    def predict(self, w: NDArray[np.float64]) -> Floats:
        """Linear predictions ``z``, shape ``(rows,)`` or ``(rows, outputs)``; a fresh array."""

    @abc.abstractmethod
    def features(self) -> Floats:
        """Rows without their intercept column, dense; not to be written to."""

    @abc.abstractmethod
    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        """``sum_i slopes_i x_i`` in the shape of the parameter."""

    def bounded_sum(
        self, rule: Rule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        """Sum of clipped, weighted slopes times rows in compiled code; None where there is none.

        ``targets`` and ``norms`` are the block's own, or a view's.
        """
        return None


Kernel: TypeAlias = Callable[[Block], NDArray[np.float64]]
BlockMap: TypeAlias = Callable[[Kernel, Iterable[Block]], Iterable[NDArray[np.float64]]]

SERIAL: BlockMap = map


@final
@dataclass(frozen=True)
class AnyArrays:
    """A kernel for blocks of NumPy arrays and of tensors, with float64 values of their kind.

    Rows on a device give it blocks there; a kernel without this mark gets copies on the host.
    """

    kernel: Kernel

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

    @property
    @abc.abstractmethod
    def n_rows(self) -> int:
        """The true number of rows; private under ``add_remove``."""

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All rows, in order, in blocks whose boundaries depend on their number only."""

    def map_native(
        self, function: Callable[[Block], Any], map_blocks: BlockMap = SERIAL
    ) -> Iterable[Any]:
        """Apply a function of any arrays to blocks in the rows' own storage, in order."""
        yield from map_blocks(function, self.blocks())
        self.watch.check()

    def take(self, indices: NDArray[np.intp]) -> Rows:
        """Take the rows at the given positions, in that order."""
        return self._taken(indices, self.spec)

    def part(self, indices: NDArray[np.intp]) -> Rows:
        """Take rows as a data set of its own: its ``spec`` has their number."""
        return self._taken(indices, dataclasses.replace(self.spec, n_rows=len(indices)))

    @abc.abstractmethod
    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> Rows: ...

    @abc.abstractmethod
    def clip_entries(self, bound: float) -> Rows:
        """Clip every entry to [-bound, bound], except in the intercept column."""

    def sum(
        self, kernel: Kernel, map_blocks: BlockMap = SERIAL, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.float64]:
        """Add up a kernel's arrays, by default of the parameter's shape, in the blocks' order.

        The error of the result is at most ``u |sum| + gamma_m**2 sum |parts|`` for m blocks,
        coordinate by coordinate: Ogita, Rump and Oishi, "Accurate sum and dot product", SIAM J.
        Sci. Comput. 26 (2005), Proposition 4.5.
        """
        zero = np.zeros(self.spec.coefficient_shape if shape is None else shape)
        total = compensated_sum(map_blocks(kernel, self.blocks()), zero)
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
