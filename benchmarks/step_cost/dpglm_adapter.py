"""dpglm: the clipped sum, the same with noise, the noise alone, and a default fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.peers import dpglm_adapter as peer
from benchmarks.step_cost.protocol import CLIP, Adapter, Work, Workload, make_rows, serve
from dpglm.data.compiled.kernels import COMPILED
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, threads_over
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SystemNoise, add_gaussian, granularity_exponent
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Loss, Softmax

CLIPPING = FlatClipping(CLIP)


@contextmanager
def _oracle(workload: Workload) -> Iterator[tuple[Oracle, np.ndarray]]:
    rows = make_rows(workload)
    spec = DataSpec(
        n_rows=workload.rows,
        n_features=workload.columns,
        n_outputs=workload.classes,
        row_norm=1.01 * float(rows.norms.max()),
        dtype=workload.dtype,  # type: ignore[arg-type]
        sparse=workload.density < 1.0,
    )
    loss: Loss = Logistic() if workload.classes == 1 else Softmax()
    y = 2.0 * rows.y - 1.0 if workload.classes == 1 else rows.y
    prepared = prepare_rows(rows.X, y, spec)
    curator = Curator(Adjacency.ZERO_OUT, SystemNoise())
    # As in a fit, the threads are there for all steps.
    with threads_over(prepared.n_rows * prepared.spec.n_columns):
        yield Oracle(prepared, loss, curator), rows.w.astype(np.float64)


@contextmanager
def gradient(workload: Workload) -> Iterator[Work]:
    with _oracle(workload) as (oracle, w):
        rows, loss = oracle.rows, oracle.loss
        yield lambda: clipped_gradient_sum(rows, loss, CLIPPING, w)


@contextmanager
def step(workload: Workload) -> Iterator[Work]:
    with _oracle(workload) as (oracle, w):
        spec, relation = oracle.rows.spec, oracle.curator.adjacency
        declared = gradient_release(spec, relation, CLIPPING, GaussianNoise(1.0))
        yield lambda: oracle.noisy_gradient(declared, w, CLIPPING)


@contextmanager
def noise(workload: Workload) -> Iterator[Work]:
    zeros = np.zeros((workload.columns, workload.classes))
    source, grid = SystemNoise(), granularity_exponent(1.0)
    yield lambda: add_gaussian(zeros, 1.0, grid, source)


DPGLM = Adapter(
    f"{peer.VERSION}, {'with' if COMPILED else 'without'} compiled sums",
    {"dpglm": gradient, "dpglm, noise added": step, "noise": noise},
    {"dpglm": peer.fit},
)

if __name__ == "__main__":
    serve(DPGLM)
