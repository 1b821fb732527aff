"""Rows with which a network is trained: bounded sums of their gradients.

Privacy: what a computed sum can differ by, when one row changes.

Let n be public, and all rows enter. Neighbours then have a row of interest in the same place. With
the schedule of ``dpglm.data.torch.tensors`` (which kernels run in which order depends on shapes,
settings and chance, never on values), each other row's gradient is computed to the same bits, by
whatever arithmetic, and what a network draws comes from one public seed: the sums differ in one
row's contribution. Where n is private, a row more would shift others within their batch: gradients
are then computed with one row at a time (``alone``), and nothing may be drawn.

Of a Poisson sample more is asked (``dpglm.data.sampled``): no other row's contribution may depend
on whether a row was drawn. Moved together into one batch, rows would stand where earlier draws put
them, and get the masks and the rounding of that place. Here all batches of a step have one shape.
Row i stands in slot ``i mod slots`` of some batch, however many rows were drawn, and what a network
draws for a slot is the same in all batches of its group, ``(i // slots) mod groups``. Empty slots
hold a row that counts as zero. So a gradient is a function of its row, its number, the step and
public facts; which batch it is in, and beside whom, changes nothing. Contributions are rounded to a
grid, and their sum is exact. The price: rows whose numbers are equal modulo ``slots groups``, at
least ``_MASKS``, share their masks in a step, and 1.01 to 2.4 times as many gradients are computed.

A contribution is bounded after it is computed, in float64: its squared length is a sum of P
squares (relative error P u at most, u the unit roundoff; with the root P u / 2 + u), its factor
takes 5 roundings more, its product one. So it is within the ``contribution_rounding`` of P columns.
What is not finite in it counts as zero; a length that overflows has the factor 0. Contributions
are added in float64, in any order within a block of at most ``BLOCK_ROWS`` rows, and blocks as
``Rows.sum`` adds them, of which there are no more than of dense rows: ``sum_rounding`` holds; of a
sample sums are exact.
Neither products of matrices nor TF32 are used after the gradients.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import as_host
from dpglm.data.memory.dense import BLOCK_ROWS, RUN_ROWS
from dpglm.data.rows import Block, Rows, compensated_sum
from dpglm.data.sampled import on_grid, sampled_rows
from dpglm.data.spec import DataSpec
from dpglm.data.torch.row_gradients import RowGradients, drawn_from

__all__ = ["NetworkRows"]

# Numbers in the gradients that are in memory at a time: a CPU's caches hold some 16 MiB, and a GPU
# needs many rows to be busy.
_ENTRIES = {"cpu": 1 << 21, "cuda": 1 << 25}
# The least number of different masks in a step on a sample, and rows that a slot gets on average.
_MASKS, _ROWS_PER_SLOT = 32, 8


@final
@dataclass(frozen=True, eq=False)
class _Sample:
    """The numbers of the rows that were drawn, at which public rate, and the grid. Private."""

    places: NDArray[np.intp]
    rate: float
    step: float


@final
@dataclass(frozen=True, eq=False)
class NetworkRows(Rows):
    """Inputs and targets, as tensors on the network's device, whose gradients are the rows."""

    gradients: RowGradients
    inputs: Any
    targets: Any
    spec: DataSpec
    sample: _Sample | None = None

    @classmethod
    def of(
        cls, gradients: RowGradients, inputs: Any, targets: Any, spec: DataSpec, *, alone: bool
    ) -> Self:
        """Check tensors, try each row once, and make rows of them; nothing is released."""
        for name, tensor in (("inputs", inputs), ("targets", targets)):
            _check_tensor(name, tensor, gradients.device)
        if len(inputs) != len(targets) or not len(inputs):
            raise ValueError(
                "inputs and targets must have one entry for each row, and one row at least, got "
                f"{len(inputs)} and {len(targets)}"
            )
        if spec.n_features != gradients.n_parameters:
            raise ValueError(
                f"the plan is for a network of {spec.n_features} trainable parameters, but this "
                f"one has {gradients.n_parameters}"
            )
        gradients.check(inputs, targets, _randomness(alone))
        rows = cls(gradients, inputs.detach(), targets.detach(), spec)
        gradients.try_every_row(rows.inputs, rows.targets, rows._at_a_time)
        return rows

    @property
    def n_rows(self) -> int:
        return len(self.inputs if self.sample is None else self.sample.places)

    @property
    def _at_a_time(self) -> int:
        return max(1, min(BLOCK_ROWS, _ENTRIES[self.gradients.device.type] // self.spec.n_features))

    def clipped_gradient_sum(
        self,
        w: NDArray[np.float64],
        factor: Callable[[Any], Any],
        blocks: int,
        *,
        alone: bool,
        seed: Sequence[int],
    ) -> NDArray[np.float64]:
        """Return the sum of the rows' bounded gradients at the displacement w, of shape (P,).

        ``factor`` is that of a ``Clipping`` with bound C; each of ``blocks`` blocks of a row's
        gradient (those of ``numpy.array_split``) is bounded by ``C / sqrt(blocks)``. Private.
        """
        import torch

        if self.sample is not None:
            return self._sampled_sum(self.sample, w, factor, blocks, alone, seed)
        parameters, randomness = self.gradients.at(w), _randomness(alone)
        at_a_time = 1 if alone else self._at_a_time
        block_rows = max(at_a_time, RUN_ROWS)
        zero = torch.zeros(self.spec.n_features, dtype=torch.float64, device=self.gradients.device)

        def sums() -> Iterator[Any]:
            for start in range(0, self.n_rows, block_rows):
                total = zero.clone()
                stop = min(start + block_rows, self.n_rows)
                for first in range(start, stop, at_a_time):
                    rows = slice(first, min(first + at_a_time, stop))
                    # Copies stand at addresses like any other, wherever the rows stand.
                    inputs, targets = self.inputs[rows].clone(), self.targets[rows].clone()
                    gradients = self.gradients.rows(parameters, inputs, targets, randomness)
                    total += _bounded(gradients, factor, blocks).sum(dim=0)
                yield total

        with drawn_from(self.gradients.device, seed):
            summed: NDArray[np.float64] = as_host(compensated_sum(sums(), zero))
        return summed

    def _sampled_sum(
        self,
        sample: _Sample,
        w: NDArray[np.float64],
        factor: Callable[[Any], Any],
        blocks: int,
        alone: bool,
        seed: Sequence[int],
    ) -> NDArray[np.float64]:
        import torch

        device = self.gradients.device
        parameters, randomness = self.gradients.at(w), _randomness(alone)
        slots, groups = 1, 1
        if not alone:
            expected = int(sample.rate * self.spec.n_rows)
            slots = min(self._at_a_time, max(_MASKS, expected // _ROWS_PER_SLOT))
            groups = -(-_MASKS // slots)

        def sums() -> Iterator[Any]:
            for group, rows in _batches(sample.places, slots, groups):
                # An empty slot holds the first row.
                there = torch.from_numpy(np.maximum(rows, 0)).to(device)
                with drawn_from(device, (*seed, group)):
                    gradients = self.gradients.rows(
                        parameters, self.inputs[there], self.targets[there], randomness
                    )
                bounded = _bounded(gradients, factor, blocks)
                bounded[torch.from_numpy(rows < 0).to(device)] = 0.0
                yield on_grid(bounded, sample.step).sum(dim=0)

        zero = torch.zeros(self.spec.n_features, dtype=torch.float64, device=device)
        summed: NDArray[np.float64] = as_host(compensated_sum(sums(), zero))
        return summed

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> NetworkRows:
        import torch

        places = torch.from_numpy(np.ascontiguousarray(indices)).to(self.gradients.device)
        inputs, targets = self.inputs[places], self.targets[places]
        return dataclasses.replace(self, inputs=inputs, targets=targets, spec=spec)

    def blocks(self) -> Iterator[Block]:
        raise TypeError("a network's rows have gradients, and no columns that do not change")

    def clip_entries(self, bound: float) -> Rows:
        raise TypeError("a network's rows have gradients, and no entries to clip")


@sampled_rows.register
def _(rows: NetworkRows, indices: NDArray[np.intp], rate: float, step: float) -> Rows:
    return dataclasses.replace(rows, sample=_Sample(indices, rate, step))


def _batches(
    places: NDArray[np.intp], slots: int, groups: int
) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield batches of rows by their numbers, each in its slot, and the group; -1 for nobody."""
    for group in range(groups):
        rows = places[places // slots % groups == group]
        order = np.argsort(rows % slots, kind="stable")
        filled = np.bincount(rows % slots, minlength=slots)
        rank = np.arange(len(rows)) - np.repeat(np.cumsum(filled) - filled, filled)
        table = np.full((filled.max(), slots), -1, dtype=np.intp)
        table[rank, rows[order] % slots] = rows[order]
        for batch in table:
            yield group, batch


def _randomness(alone: bool) -> str:
    return "error" if alone else "different"


def _check_tensor(name: str, tensor: Any, device: Any) -> None:
    import torch

    if not isinstance(tensor, torch.Tensor) or tensor.ndim == 0:
        raise ValueError(f"{name} must be a tensor with a row for each of its first index")
    if tensor.layout is not torch.strided or tensor.device != device:
        raise ValueError(
            f"{name} must be a dense tensor on {device}, where the network is, got one on "
            f"{tensor.device} in layout {tensor.layout}"
        )


def _bounded(gradients: Any, factor: Callable[[Any], Any], blocks: int) -> Any:
    """Bound each block of each row's gradient; overwrites ``gradients``, of shape (rows, P)."""
    import torch

    size, longer = divmod(gradients.shape[1], blocks)
    edge = longer * (size + 1)
    parts = [gradients[:, :edge].unflatten(1, (longer, size + 1))] if longer else []
    parts.append(gradients[:, edge:].unflatten(1, (blocks - longer, size)))

    limits = torch.finfo(gradients.dtype)

    def lengths() -> list[Any]:
        # Squares that underflowed are covered by what is added.
        return [
            torch.linalg.vector_norm(part, dim=2) + math.sqrt(part.shape[2] * limits.tiny)
            for part in parts
        ]

    found = lengths()
    if not all(torch.isfinite(one).all() for one in found):
        torch.nan_to_num_(gradients, nan=0.0, posinf=0.0, neginf=0.0)
        found = lengths()
    for part, one in zip(parts, found, strict=True):
        # In units in which each block's bound is C; out-of-range factors as in ``Clipping.scale``.
        factors = factor(blocks**0.5 * one)
        factors[~(factors >= limits.tiny)] = 0.0
        part *= factors.clamp_(max=limits.max).unsqueeze(2)
    return gradients
