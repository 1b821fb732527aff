"""Rows seen with another intercept column, or as one class against the rest."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, like, namespace, rounded_up
from dpglm.data.compiled.kernels import SlopeRule
from dpglm.data.rows import SERIAL, AnyArrays, Block, BlockMap, DataSpec, Floats, Kernel, Rows
from dpglm.data.sampled import SampledRows, sampled_rows
from dpglm.privacy.budget import Unit


def view_spec(data: DataSpec, intercept_scale: float, n_outputs: int) -> DataSpec:
    """Public facts of a view with the intercept column scaled and ``n_outputs`` predictions."""
    intercept = data.intercept * intercept_scale
    return dataclasses.replace(data, intercept=intercept, n_outputs=n_outputs)


@final
class View(Rows):
    """Rows with a scaled intercept column, and perhaps one class against the rest as targets.

    With a ``positive_class`` targets become +1 for its rows and -1 for all others, with one
    prediction for each row.

    Privacy: each row is changed by itself, by public numbers. Its norm bound is computed anew and
    rounded up.
    """

    def __init__(
        self, rows: Rows, intercept_scale: float = 1.0, positive_class: int | None = None
    ) -> None:
        n_outputs = rows.spec.n_outputs if positive_class is None else 1
        self.spec = view_spec(rows.spec, intercept_scale, n_outputs)
        self.watch = rows.watch
        self._rows, self._scale, self._class = rows, intercept_scale, positive_class
        # Holds no rows, so that it can be sent to where they are.
        self._seen = functools.partial(
            _ViewBlock,
            data=rows.spec,
            intercept_scale=intercept_scale,
            positive_class=positive_class,
        )

    @property
    def n_rows(self) -> int:
        return self._rows.n_rows

    @property
    def unit(self) -> Unit:
        return self._rows.unit

    @property
    def n_units(self) -> int:
        return self._rows.n_units

    def bounded(self, bound: float) -> View:
        return self._of(self._rows.bounded(bound))

    def alike(self, rows: Rows) -> Rows:
        return self._rows.alike(rows)

    def blocks(self) -> Iterator[Block]:
        return map(self._seen, self._rows.blocks())

    def map_native(
        self, function: Callable[[Block], Any], map_blocks: BlockMap = SERIAL
    ) -> Iterable[Any]:
        seen = self._seen
        return self._rows.map_native(lambda block: function(seen(block)), map_blocks)

    def sum(
        self, kernel: Kernel, map_blocks: BlockMap = SERIAL, shape: tuple[int, ...] | None = None
    ) -> Array:
        """Add up as the rows behind the view do it, so where they are."""
        seen = self._seen

        def block_sum(block: Block) -> Array:
            return kernel(seen(block))

        marked: Kernel = block_sum
        if isinstance(kernel, AnyArrays):
            marked = AnyArrays(block_sum, kernel.apart)
        shape = self.spec.coefficient_shape if shape is None else shape
        return self._rows.sum(marked, map_blocks, shape)

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> View:
        rows = self._rows
        return self._of(rows.take(indices) if spec is self.spec else rows.part(indices))

    def clip_entries(self, bound: float) -> View:
        return self._of(self._rows.clip_entries(bound))

    def _of(self, rows: Rows) -> View:
        return View(rows, self._scale, self._class)


@sampled_rows.register
def _(rows: View, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    if rows.unit is Unit.ROW:
        # Outside the view, where contributions are within their bound.
        return SampledRows(rows.take(indices), step)
    return rows._of(sampled_rows(rows._rows, indices, rate, step))


@final
class _ViewBlock(Block):
    def __init__(
        self, block: Block, data: DataSpec, intercept_scale: float, positive_class: int | None
    ) -> None:
        self._block, self._has_intercept = block, data.intercept > 0.0
        self._scale = intercept_scale
        self.weights, self.starts = block.weights, block.starts
        self.norms = block.norms
        if self._has_intercept and intercept_scale != 1.0:
            # Upper bounds, which cover the rounding of the terms that the subtraction exposes.
            eps, old = float(np.finfo(np.float64).eps), data.intercept
            xp = namespace(block.norms)
            squares = like(block.norms, block.norms, xp.float64) ** 2 * (1.0 + 8.0 * eps)
            features = xp.maximum(squares - old**2 * (1.0 - 8.0 * eps), 0.0)
            rescaled = xp.sqrt(features + (intercept_scale * old) ** 2) * (1.0 + 8.0 * eps)
            self.norms = rounded_up(rescaled, block.norms.dtype)
        self.targets = block.targets
        if positive_class is not None:
            signs = namespace(block.norms).where(block.targets == positive_class, 1.0, -1.0)
            self.targets = like(block.norms, signs, block.norms.dtype)

    def predict(self, w: Array) -> Floats:
        return self._block.predict(self._scaled(w))

    def features(self) -> Floats:
        return self._block.features()

    def stored(self) -> Any:
        return self._block.stored()

    def located(self) -> tuple[Any, NDArray[np.int64] | None]:
        return self._block.located()

    def weighted_sum(self, slopes: Floats) -> Array:
        total = self._block.weighted_sum(slopes)
        if self.starts is None:
            return self._scaled(total)
        return np.stack([self._scaled(of_group) for of_group in total])

    def bounded_sum(
        self, rule: SlopeRule, w: Array, targets: NDArray[Any], norms: Floats
    ) -> Array | None:
        total = self._block.bounded_sum(rule, self._scaled(w), targets, norms)
        return None if total is None else self._scaled(total)

    def _scaled(self, values: Array) -> Array:
        if not self._has_intercept or self._scale == 1.0:
            return values
        values = values + 0.0
        values[-1] *= self._scale
        return values
