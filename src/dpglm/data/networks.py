"""Rows with which a network is trained: bounded sums of their gradients.

Privacy: the difference of computed sums, when one row changes.

Let n be public, and all rows enter. Neighbours then have a row of interest in the same place. With
the schedule of ``dpglm.data.torch`` (which kernels run in which order depends on shapes,
settings and chance, never on values), each other row's gradient is computed to the same bits, by
whatever arithmetic, and the draws of a network come from one public seed: the sums differ in one
row's contribution. Where n is private, a row more would shift others within their batch: gradients
are then computed with one row at a time (``alone``), and nothing may be drawn.

A Poisson sample needs more (``dpglm.data.sampled``): no other row's contribution may depend
on whether a row was drawn. Moved together into one batch, rows would stand where earlier draws put
them, and get the masks and the rounding of that place. Here all batches of a step have one shape.
Row i stands in slot ``i mod slots`` of some batch, however many rows were drawn, and the draws of
the network for a slot are the same in all batches of its group, ``(i // slots) mod groups``. Empty
slots hold a row that counts as zero. So a gradient is a function of its row, its number, the step
and public facts; its batch, and the other rows there, change nothing. Contributions are rounded to
a grid, and their sum is exact. The price: rows with equal numbers modulo ``slots groups``, at least
``_MASKS``, share their masks in a step, and 1.01 to 2.4 times as many gradients are computed.

A contribution is bounded after it is computed, in float64: its squared length is a sum of P
squares (relative error P u at most, u the unit roundoff; with the root P u / 2 + u), its factor
takes 5 roundings more, its product one. So it is within the ``contribution_rounding`` of P columns.
Values that are not finite count as zero; a norm that overflows has the factor 0. Contributions are
added in float64, in any order within a block of at most ``BLOCK_ROWS`` rows, and blocks by
``Rows.sum``. There are at most as many blocks as for dense rows, so ``sum_rounding`` holds. Sums
over a sample are exact. Neither products of matrices nor TF32 are used after the gradients.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import as_host
from dpglm.data.memory import BLOCK_ROWS, RUN_ROWS
from dpglm.data.rows import Block, DataSpec, Rows, compensated_sum
from dpglm.data.sampled import on_grid, sampled_rows

# The gradient of each single row's loss in the parameters of a network.

_RAISED = (RuntimeError, TypeError, ValueError, LookupError, AttributeError)
_DETERMINISTIC = (":4096:8", ":16:8")


@final
class RowGradients:
    """A private copy of a network, the loss of a row, and its gradient by ``torch.func``.

    The network is called on one row at a time (a batch of one, vectorised over rows by
    ``torch.func.vmap``), so rows cannot mix, whatever the network does; a network that would mean
    something else by that is refused, and torch refuses one that changes its buffers. Parameters
    that do not require gradients, and buffers, are constants.

    Privacy: everything here is made from the network and from shapes and types of rows.
    """

    def __init__(self, network: Any, loss: Callable[[Any, Any], Any]) -> None:
        import torch

        _check_network(network)
        if not callable(loss):
            raise ValueError(f"loss must be callable, got {loss!r}")
        _check_modules(network)
        self._network, self._loss = copy.deepcopy(network), loss
        named = dict(self._network.named_parameters())
        self._parameters = {name: p.detach() for name, p in named.items() if p.requires_grad}
        self._constants = {name: p.detach() for name, p in named.items() if not p.requires_grad}
        self._constants |= dict(self._network.named_buffers())
        self.device = _device([*self._parameters.values(), *self._constants.values()])
        for name, value in self._parameters.items():
            if value.dtype not in (torch.float32, torch.float64):
                raise ValueError(
                    f"trainable parameters must be float32 or float64, got {value.dtype} in {name}"
                )
        if not self._parameters:
            raise ValueError("network must have trainable parameters, got none")
        self.n_parameters = sum(value.numel() for value in self._parameters.values())
        self.start: NDArray[np.float64] = flat_parameters(self._network)
        if not np.isfinite(self.start).all():
            raise ValueError("initial parameters of the network must be finite")

    def at(self, w: NDArray[np.float64]) -> dict[str, Any]:
        """Return the parameters that are displaced by w from the initial ones, by name."""
        import torch

        flat = torch.from_numpy(self.start + w).to(self.device)
        pieces = torch.split(flat, [value.numel() for value in self._parameters.values()])
        return {
            name: piece.reshape(value.shape).to(value.dtype)
            for (name, value), piece in zip(self._parameters.items(), pieces, strict=True)
        }

    def rows(self, parameters: Any, inputs: Any, targets: Any, randomness: str) -> Any:
        """Return each row's gradient, of shape (rows, parameters), in float64."""
        import torch

        gradients = torch.func.vmap(
            torch.func.grad(self._row_loss), in_dims=(None, 0, 0), randomness=randomness
        )(parameters, inputs, targets)
        flat = torch.empty(
            (len(inputs), self.n_parameters), dtype=torch.float64, device=self.device
        )
        pieces = torch.split(flat, [value.numel() for value in self._parameters.values()], dim=1)
        for piece, one in zip(pieces, gradients.values(), strict=True):
            piece.copy_(one.reshape(piece.shape))
        return flat

    def try_every_row(self, inputs: Any, targets: Any, rows: int) -> None:
        """Compute all losses, so that a row that the network refuses is found before a release."""
        import torch

        losses = torch.func.vmap(self._row_loss, in_dims=(None, 0, 0), randomness="different")
        with torch.no_grad(), drawn_from(self.device, (0,)):
            for start in range(0, len(inputs), rows):
                part = slice(start, start + rows)
                try:
                    losses(self._parameters, inputs[part], targets[part])
                except _RAISED as error:
                    raise ValueError(
                        f"inputs and targets must be such that the network's loss can be computed, "
                        f"got rows for which it raises {type(error).__name__}: {error}"
                    ) from error

    def check(self, inputs: Any, targets: Any, randomness: str) -> None:
        """Try made-up rows of these shapes and types; raise ValueError if they fail."""
        import torch

        x, y = _made_up(inputs), torch.zeros_like(targets[:1]).expand(2, *targets.shape[1:])

        def gradients() -> Any:
            with drawn_from(self.device, (0,)):
                return torch.nan_to_num(self.rows(self._parameters, x, y, randomness))

        try:
            with drawn_from(self.device, (0,)):
                outputs = self._network(x[:1])
                size = self._loss(outputs, y[:1]).numel()
                together, alone = self._evaluated(x), self._evaluated(x[:1])
            one, other = gradients(), gradients()
        except _RAISED as error:
            raise ValueError(
                "network and loss must work on a batch of one row, under torch.func.vmap and "
                f"grad, got {type(error).__name__}: {error}"
            ) from error
        if not torch.equal(one, other):
            raise ValueError(
                "network must draw from torch's own generator, as dropout does: two gradients of "
                "the same rows and seed differ, so draws would depend on how many came before"
            )
        if size != 1:
            raise ValueError(f"loss must return one number for a batch of one row, got {size}")
        if isinstance(together, torch.Tensor) and not _same_first(together, alone):
            raise ValueError(
                "network must treat rows one by one, but its output for a row depends on the "
                "others of the batch"
            )

    def _row_loss(self, parameters: Any, x: Any, y: Any) -> Any:
        import torch

        outputs = torch.func.functional_call(
            self._network, (parameters, self._constants), (x.unsqueeze(0),)
        )
        return self._loss(outputs, y.unsqueeze(0)).sum()

    def _evaluated(self, x: Any) -> Any:
        import torch

        with torch.no_grad():
            return copy.deepcopy(self._network).eval()(x)


def _check_network(network: Any) -> None:
    import torch

    if not isinstance(network, torch.nn.Module):
        raise ValueError(f"network must be a torch.nn.Module, got {type(network).__name__}")


def flat_parameters(network: Any) -> NDArray[np.float64]:
    """Return a network's trainable parameters, one after the other, in float64."""
    _check_network(network)
    return np.concatenate(
        [
            value.detach().cpu().double().numpy().ravel()
            for value in network.parameters()
            if value.requires_grad
        ]
        or [np.empty(0)]
    )


def write_parameters(network: Any, flat: NDArray[np.float64]) -> None:
    """Set a network's trainable parameters, given one after the other."""
    import torch

    trainable = [value for value in network.parameters() if value.requires_grad]
    pieces = np.split(flat, np.cumsum([value.numel() for value in trainable])[:-1])
    with torch.no_grad():
        for value, piece in zip(trainable, pieces, strict=True):
            value.copy_(torch.from_numpy(piece).reshape(value.shape))


@contextlib.contextmanager
def drawn_from(device: Any, seed: Sequence[int]) -> Iterator[None]:
    """Have torch's generators start from a public seed for a while.

    The draws of a network (dropout) are then public and the same for neighbours. Later draws of the
    caller do not depend on them.
    """
    import torch

    word = int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> np.uint64(1))
    on_gpu = device.type == "cuda"
    with torch.random.fork_rng([device] if on_gpu else []):
        torch.default_generator.manual_seed(word)
        if on_gpu:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(word)
        yield


def _check_modules(network: Any) -> None:
    """Refuse modules that mix rows, or learn from them other than by gradients."""
    import torch

    normalising = torch.nn.modules.batchnorm
    for name, module in network.named_modules():
        if not isinstance(module, normalising._NormBase):
            continue
        mixes = isinstance(module, normalising._BatchNorm) and module.running_mean is None
        learns = module.training and module.track_running_stats
        if mixes or learns:
            raise ValueError(
                f"network must treat rows one by one, but {name or 'it'} is a "
                f"{type(module).__name__} that takes statistics from them: use GroupNorm or "
                "LayerNorm, or call eval() on it if its statistics are public"
            )


def _device(tensors: list[Any]) -> Any:
    """Return where all tensors are; ValueError unless sums there are the same in every run."""
    import torch

    devices = {value.device for value in tensors}
    if len(devices) > 1:
        raise ValueError(f"network must be on one device, got {sorted(map(str, devices))}")
    device = devices.pop() if devices else torch.device("cpu")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"network must be on the CPU or on an NVIDIA GPU, got {device}")
    if device.type == "cuda" and not (
        torch.are_deterministic_algorithms_enabled()
        and not torch.backends.cudnn.benchmark
        and os.environ.get("CUBLAS_WORKSPACE_CONFIG") in _DETERMINISTIC
    ):
        raise ValueError(
            "gradients on a GPU must be deterministic: set CUBLAS_WORKSPACE_CONFIG=:4096:8 in "
            "the environment before Python starts, call torch.use_deterministic_algorithms(True), "
            "and leave torch.backends.cudnn.benchmark False"
        )
    return device


def _made_up(inputs: Any) -> Any:
    """Two different rows, or rows of zeros where entries are not real numbers."""
    import torch

    zeros = torch.zeros((2, *inputs.shape[1:]), dtype=inputs.dtype, device=inputs.device)
    if not inputs.is_floating_point():
        return zeros
    places = torch.arange(zeros.numel(), device=inputs.device).reshape(zeros.shape)
    return torch.sin(1.0 + places * math.e).to(inputs.dtype)


def _same_first(together: Any, alone: Any) -> bool:
    import torch

    if together.shape[:1] != (2,) or together[:1].shape != alone.shape:
        return False
    return bool(torch.allclose(together[:1], alone, rtol=1e-3, atol=1e-5, equal_nan=True))


# Numbers in the gradients that are in memory at a time: a CPU's caches hold some 16 MiB, and a GPU
# needs many rows to be busy.
_ENTRIES = {"cpu": 1 << 21, "cuda": 1 << 25}
# The least number of different masks in a step on a sample, and rows that a slot gets on average.
_MASKS, _ROWS_PER_SLOT = 32, 8


@final
@dataclass(frozen=True, eq=False)
class _Sample:
    """The numbers of the drawn rows, the public rate, and the grid step. Private."""

    places: NDArray[np.intp]
    rate: float
    step: float


@final
@dataclass(frozen=True, eq=False)
class NetworkRows(Rows):
    """Inputs and targets as tensors on the network's device; their gradients are the rows."""

    gradients: RowGradients
    inputs: Any
    targets: Any
    spec: DataSpec
    sample: _Sample | None = None

    @classmethod
    def of(
        cls, gradients: RowGradients, inputs: Any, targets: Any, spec: DataSpec, *, alone: bool
    ) -> Self:
        """Take checked tensors, try each row once, and make rows of them; nothing is released."""
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

        device, at_a_time = self.gradients.device, 1 if alone else self._at_a_time
        parameters, randomness = self.gradients.at(w), _randomness(alone)
        zero = torch.zeros(self.spec.n_features, dtype=torch.float64, device=device)

        def bounded(inputs: Any, targets: Any) -> Any:
            gradients = self.gradients.rows(parameters, inputs, targets, randomness)
            return _bounded(gradients, factor, blocks)

        def sums() -> Iterator[Any]:
            block_rows = max(at_a_time, RUN_ROWS)
            for start in range(0, self.n_rows, block_rows):
                total = zero.clone()
                stop = min(start + block_rows, self.n_rows)
                for first in range(start, stop, at_a_time):
                    rows = slice(first, min(first + at_a_time, stop))
                    # Copies stand at addresses like any other, wherever the rows stand.
                    total += bounded(self.inputs[rows].clone(), self.targets[rows].clone()).sum(
                        dim=0
                    )
                yield total

        def sampled_sums(sample: _Sample) -> Iterator[Any]:
            slots, groups = 1, 1
            if not alone:
                expected = int(sample.rate * self.spec.n_rows)
                slots = min(at_a_time, max(_MASKS, expected // _ROWS_PER_SLOT))
                groups = -(-_MASKS // slots)
            for group, rows in _batches(sample.places, slots, groups):
                # An empty slot holds the first row.
                there = torch.from_numpy(np.maximum(rows, 0)).to(device)
                with drawn_from(device, (*seed, group)):
                    found = bounded(self.inputs[there], self.targets[there])
                found[torch.from_numpy(rows < 0).to(device)] = 0.0
                yield on_grid(found, sample.step).sum(dim=0)

        if self.sample is not None:
            summed: NDArray[np.float64] = as_host(compensated_sum(sampled_sums(self.sample), zero))
            return summed
        with drawn_from(device, seed):
            summed = as_host(compensated_sum(sums(), zero))
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
    """Yield batches of rows by their numbers, each in its slot (-1 if empty), and the group."""
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


def check_tensor(name: str, tensor: Any, device: Any) -> None:
    """Refuse other objects than dense tensors of rows on the device of the network."""
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
        # The added term covers squares that underflowed.
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
