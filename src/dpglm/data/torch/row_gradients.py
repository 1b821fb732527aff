"""The gradient of each single row's loss in the parameters of a network."""

from __future__ import annotations

import contextlib
import copy
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowGradients", "drawn_from", "flat_parameters", "write_parameters"]

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

        if not isinstance(network, torch.nn.Module):
            raise ValueError(f"network must be a torch.nn.Module, got {type(network).__name__}")
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
        """Try made-up rows of these shapes and types; raise ValueError for what cannot work."""
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


def flat_parameters(network: Any) -> NDArray[np.float64]:
    """Return a network's trainable parameters, one after the other, in float64."""
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

    What a network draws (dropout) is then public and the same for neighbours, and how much it
    drew shows in no later draw of the caller's.
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
    """Refuse what mixes rows, or learns from them beside gradients."""
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
    """Two different rows, or rows of zeros where entries are no real numbers."""
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
