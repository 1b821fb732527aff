"""Opacus: one linear layer, all rows as one batch, gradients by hooks or by ghost clipping."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import opacus
import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import nn

from benchmarks.step_cost.protocol import CLIP, Adapter, Work, Workload, make_rows, serve


def _parts(workload: Workload) -> tuple[nn.Sequential, nn.Module, torch.Tensor, torch.Tensor]:
    rows = make_rows(workload)
    X, y, w = torch.from_numpy(rows.X), torch.from_numpy(rows.y), torch.from_numpy(rows.w)
    layer = nn.Linear(workload.columns, workload.classes, bias=False, dtype=X.dtype)
    with torch.no_grad():
        layer.weight.copy_(w.T)
    if workload.classes == 1:
        # Predictions of shape (rows,): with (rows, 1) losses would be of shape (rows, rows).
        return nn.Sequential(layer, nn.Flatten(0)), nn.BCEWithLogitsLoss(), X, y.to(X.dtype)
    return nn.Sequential(layer), nn.CrossEntropyLoss(), X, y


@contextmanager
def hooks(workload: Workload) -> Iterator[Work]:
    layers, criterion, X, y = _parts(workload)
    module = GradSampleModule(layers)
    optimizer = DPOptimizer(
        torch.optim.SGD(layers.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=workload.rows,
    )

    def work() -> object:
        optimizer.zero_grad()
        criterion(module(X), y).backward()
        optimizer.clip_and_accumulate()
        return layers[0].weight.summed_grad.numpy().T

    yield work


@contextmanager
def ghost(workload: Workload) -> Iterator[Work]:
    layers, criterion, X, y = _parts(workload)
    module = GradSampleModuleFastGradientClipping(layers, max_grad_norm=CLIP)
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(layers.parameters(), lr=1.0),
        noise_multiplier=0.0,
        max_grad_norm=CLIP,
        expected_batch_size=workload.rows,
    )
    private_criterion = DPLossFastGradientClipping(module, optimizer, criterion)

    def work() -> object:
        optimizer.zero_grad()
        private_criterion(module(X), y).backward()
        return layers[0].weight.grad.numpy().T

    yield work


OPACUS = Adapter(
    f"Opacus {opacus.__version__}, PyTorch {torch.__version__}",
    {"Opacus, hooks": hooks, "Opacus, ghost clipping": ghost},
)

if __name__ == "__main__":
    serve(OPACUS)
