"""Opacus: plain DP-SGD, one linear layer, Poisson sampling, its default (PRV) accountant."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import opacus
import torch
from numpy.typing import NDArray
from opacus import PrivacyEngine
from opacus.accountants.utils import get_noise_multiplier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.peers.protocol import Adapter, Predict, Task, serve


@dataclass(frozen=True)
class Setting:
    """Settings of DP-SGD; docs/evidence/peers.md gives the sources of the numbers."""

    batch_size: int
    epochs: int
    clip: float
    steps: dict[float, float]
    """Step size for each epsilon."""
    momentum: float = 0.9


ADULT = Setting(batch_size=4096, epochs=20, clip=1.0, steps={0.1: 0.3, 1.0: 6.0, 4.0: 12.0})
SETTINGS = {
    "adult": ADULT,
    "adult_fixed": ADULT,
    "california": Setting(
        batch_size=512, epochs=40, clip=1.0, steps={0.1: 0.03, 1.0: 0.03, 4.0: 0.03}
    ),
    "fashion": Setting(
        batch_size=8192, epochs=40, clip=0.1, steps={0.1: 8.0, 1.0: 128.0, 4.0: 512.0}
    ),
}


class Rows(TensorDataset):
    """Rows that are fetched a batch at a time, not one by one."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        return [tensor[indices] for tensor in self.tensors]


@cache
def noise_multiplier(epsilon: float, delta: float, sample_rate: float, epochs: int) -> float:
    """Calibrate once for all seeds, to one per cent of a small epsilon (the default is 0.01)."""
    error = min(0.01, 0.01 * epsilon)
    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=delta,
        sample_rate=sample_rate,
        epochs=epochs,
        accountant="prv",
        epsilon_tolerance=error,
        eps_error=error,
    )


def fit(task: Task, epsilon: float, seed: int) -> Predict:
    torch.manual_seed(seed)
    chosen = SETTINGS[task.problem]
    # Targets of a regression are brought to [-1, 1] by their public bounds.
    centre = (task.target_low + task.target_high) / 2.0
    half = (task.target_high - task.target_low) / 2.0
    y = torch.from_numpy(task.y)
    criterion: nn.Module
    if task.kind == "classes":
        module: nn.Module = nn.Linear(task.X.shape[1], task.n_classes)
        targets, criterion = y, nn.CrossEntropyLoss()
    else:
        module = nn.Sequential(nn.Linear(task.X.shape[1], 1), nn.Flatten(0))
        if task.kind == "binary":
            targets, criterion = y.float(), nn.BCEWithLogitsLoss()
        else:
            targets, criterion = ((y - centre) / half).float(), nn.MSELoss()
    rows = Rows(torch.from_numpy(task.X).float(), targets)
    plain = DataLoader(
        rows, batch_size=min(chosen.batch_size, len(rows)), collate_fn=lambda batch: batch
    )
    model, optimizer, private_criterion, loader = PrivacyEngine().make_private(
        module=module,
        optimizer=torch.optim.SGD(
            module.parameters(), lr=chosen.steps[epsilon], momentum=chosen.momentum
        ),
        criterion=criterion,
        data_loader=plain,
        noise_multiplier=noise_multiplier(epsilon, task.delta, 1.0 / len(plain), chosen.epochs),
        max_grad_norm=chosen.clip,
        grad_sample_mode="ghost",
    )
    for _ in range(chosen.epochs):
        for X, target in loader:
            optimizer.zero_grad()
            private_criterion(model(X), target).backward()
            optimizer.step()

    def predict(X: NDArray[Any]) -> NDArray[np.float64]:
        with torch.no_grad():
            z = module(torch.from_numpy(X).float()).double().numpy()
        return centre + half * z if task.kind == "regression" else z

    return predict


def setting(task: Task) -> str:
    chosen = SETTINGS[task.problem]
    steps = ", ".join(f"{step:g} at ε = {epsilon:g}" for epsilon, step in chosen.steps.items())
    return (
        f"batch {chosen.batch_size}, {chosen.epochs} epochs, clip {chosen.clip:g}, "
        f"momentum {chosen.momentum:g}, step size {steps}"
    )


OPACUS = Adapter(
    f"Opacus {opacus.__version__}, PyTorch {torch.__version__}",
    fit,
    "(ε, 1e-5), a row added or removed",
    setting,
)

if __name__ == "__main__":
    serve(OPACUS)
