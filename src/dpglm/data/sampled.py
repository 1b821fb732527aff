"""Poisson samples of rows, with sums that do not depend on the draw of other rows.

Amplification by sampling compares, for every draw of the other rows, the sum S with a row that was
drawn to the sum without it. Its proof needs more than a bound on the row's contribution: S minus
that contribution must be the same number, to the bit, whether the row was drawn or not. Drawn rows
move together into one batch, so a row's place, and the order of additions, depend on who else was
drawn. Two things make that harmless.

1. *A contribution is a function of its row.* A prediction is computed by the same operations in the
   same order wherever the row stands (``row_by_row_product``). Losses and clipping work row by row.
2. *Sums are exact.* Each coordinate of a contribution is rounded to a multiple of ``step``
   (``on_grid``). With ``n bound <= 2^51 step`` all sums of at most n contributions with
   coordinates within ``1.01 bound`` are multiples of ``step`` below ``2^53 step``: float64
   adds them without an error, in any order, in blocks, on threads or on workers.

So with b the sum of the other drawn rows, a the sum with the row and a' the sum with its
replacement in the neighbouring data, the two runs are ``(1-q) N(b) + q N(a)`` and ``(1-q) N(b) +
q N(a')`` with the same b, ``|a - b| <= bound + rounding``, and ``a' = b`` where the row is erased:
exactly ``PoissonSampled``. A contribution grows by at most ``sqrt(m) step / 2`` for m coordinates,
which ``oracle.rounding.sum_rounding`` adds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.data.compiled import kernels
from dpglm.data.rows import AnyArrays, Block, DataSpec, Floats, Kernel, Rows
from dpglm.privacy.budget import Unit

# In units of a grid's step: numbers around it are one step apart.
_LARGE = 1.5 * 2.0**52


def grid_step(n: int, bound: float) -> float:
    """Return the grid step, a power of two, for n contributions of up to ``bound``.

    It is at most ``2^-50 n bound``.
    """
    return 2.0 ** (math.ceil(math.log2(n * bound)) - 51)


def on_grid(values: Any, step: float) -> Any:
    """Round float64 values below ``2^51 step`` to multiples of ``step``, in place."""
    large = _LARGE * step
    values += large
    values -= large
    return values


@functools.singledispatch
def sampled_rows(rows: Rows, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    """Return the rows, or groups, that a Poisson sample drew, for a sum on the grid of ``step``.

    ``rate`` is the public probability with which each was drawn.
    """
    seen = functools.partial(SampledBlock, intercept=rows.spec.intercept, step=step)
    return SeenRows(rows.take(indices), seen, rows.spec, on_host=True)


@final
class SeenRows(Rows):
    """Rows that give kernels other blocks, such as ``SampledBlock``.

    ``seen`` makes them, row by row, from public numbers alone. It holds no rows, so that it can be
    sent to where these are. ``on_host`` adds up in the host's memory: on a device the order of a
    row's sums varies with shapes.
    """

    def __init__(
        self,
        rows: Rows,
        seen: Callable[[Block], Block],
        spec: DataSpec,
        *,
        on_host: bool = False,
    ) -> None:
        self.spec, self.watch, self.unit = spec, rows.watch, rows.unit
        self._rows, self._seen, self._on_host = rows, seen, on_host

    @property
    def n_rows(self) -> int:
        return self._rows.n_rows

    @property
    def n_units(self) -> int:
        return self._rows.n_units

    def bounded(self, bound: float) -> SeenRows:
        return self.over(self._rows.bounded(bound))

    def alike(self, rows: Rows) -> Rows:
        return self._rows.alike(rows)

    def blocks(self) -> Iterator[Block]:
        return map(self._seen, self._rows.blocks())

    def map_native(self, function: Callable[[Block], Any]) -> Iterable[Any]:
        seen = self._seen
        return self._rows.map_native(lambda block: function(seen(block)))

    def sum(self, kernel: Kernel, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Add up as the rows behind do it, so where they are."""
        seen = self._seen

        def block_sum(block: Block) -> NDArray[np.float64]:
            return kernel(seen(block))

        marked: Kernel = block_sum
        if isinstance(kernel, AnyArrays) and not self._on_host:
            marked = AnyArrays(block_sum, kernel.apart)
        shape = self.spec.coefficient_shape if shape is None else shape
        return self._rows.sum(marked, shape)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> SeenRows:
        rows = self._rows
        return self.over(rows.take(indices) if spec is self.spec else rows.part(indices), spec)

    def clip_entries(self, bound: float) -> SeenRows:
        return self.over(self._rows.clip_entries(bound))

    def over(self, rows: Rows, spec: DataSpec | None = None) -> SeenRows:
        """See other rows in the same way."""
        spec = self.spec if spec is None else spec
        return SeenRows(rows, self._seen, spec, on_host=self._on_host)


@sampled_rows.register
def _(rows: SeenRows, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    if rows.unit is Unit.GROUP:
        return rows.over(sampled_rows(rows._rows, indices, rate, step))
    # Outside the view, where contributions are within their bound.
    return sampled_rows.dispatch(Rows)(rows, indices, rate, step)


@final
class SampledBlock(Block):
    """A block in which no row's contribution depends on another row, and sums are exact."""

    def __init__(self, block: Block, intercept: float, step: float) -> None:
        self._block, self._intercept, self._step = block, intercept, step
        self.targets, self.norms, self.weights = block.targets, block.norms, block.weights

    def predict(self, w: NDArray[np.float64]) -> Floats:
        return self._block.predict(w)

    def features(self) -> Floats:
        return self._block.features()

    def bounded_sum(
        self, rule: kernels.SlopeRule, w: NDArray[np.float64], targets: NDArray[Any], norms: Floats
    ) -> NDArray[np.float64] | None:
        if w.ndim > 1:
            return None
        return kernels.bounded_sum_on_grid(
            rule,
            *self._block.located(),
            w,
            self._intercept,
            _LARGE * self._step,
            targets,
            norms,
            self.weights,
        )

    def weighted_sum(self, slopes: Floats) -> NDArray[np.float64]:
        factors = slopes if slopes.ndim > 1 else slopes[:, np.newaxis]
        total = _sum_on_grid(self._block.stored(), factors, self._step)
        if self._intercept:
            last = on_grid(self._intercept * factors.astype(np.float64), self._step)
            total = np.vstack([total, last.sum(axis=0)])
        return total if slopes.ndim > 1 else total[:, 0]


def _sum_on_grid(X: Floats | sparse.csr_array, slopes: Floats, step: float) -> NDArray[np.float64]:
    """Return the exact sum of slope times row on the grid, of shape (columns, outputs)."""
    total = np.zeros((X.shape[1], slopes.shape[1]))
    if not isinstance(X, np.ndarray):
        for output, column in enumerate(slopes.T.astype(np.float64)):
            products = on_grid(np.repeat(column, np.diff(X.indptr)) * X.data, step)
            total[:, output] = np.bincount(X.indices, products, X.shape[1])
        return total
    compiled = kernels.sum_on_grid(X, slopes, _LARGE * step)
    if compiled is not None:
        return compiled
    for output, column in enumerate(slopes.T.astype(np.float64)):
        total[:, output] = on_grid(X * column[:, np.newaxis], step).sum(axis=0)
    return total
