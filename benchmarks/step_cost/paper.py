"""Costs of very large fits: formulas with measured or cited constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from benchmarks.step_cost.measure import REFERENCE, Measurement
from benchmarks.step_cost.protocol import Workload
from dpglm.data.memory import RUN_ROWS
from dpglm.data.rows import DataSpec
from dpglm.privacy import ApproximateDP
from dpglm.problem import L2, Logistic, Loss, Problem, Softmax
from dpglm.solvers.auto import Auto

__all__ = ["Constants", "cluster_plan", "gpu_plan"]

STREAMED = Workload(20_000, 2000)
MULTIPLIED = Workload(60_000, 784, 10)

# Assumptions, all of them named in the text.
NETWORK_BYTES, HOP_SECONDS = 1.25e9, 0.001
STEP_OVERHEAD = 0.02
GPU = "NVIDIA H200 (SXM)"
GPU_FLOPS, GPU_BYTES, GPU_MEMORY, PCIE_BYTES = 67e12, 4.8e12, 141e9, 50e9
GPU_SHARE = 0.7
ELEMENTWISE_PASSES = 10


@final
@dataclass(frozen=True)
class Constants:
    """Measured rates of the machine, in units per second."""

    scalar_bytes: float
    """Bytes of rows in a clipped scalar gradient."""
    gemm_flops: float
    draws: float
    """Exact Gaussian draws on one core."""

    @classmethod
    def of(cls, found: Sequence[Measurement]) -> Constants | None:
        """Take them from measurements; None if one is missing."""
        steps = {
            (Workload(**one.case), one.method): one.median for one in found if one.part == "step"
        }
        noise = [one for one in found if one.part == "noise"]
        scalar = steps.get((STREAMED, REFERENCE))
        products = steps.get((MULTIPLIED, "two products"))
        if not noise or scalar is None or products is None:
            return None
        flops = 4 * MULTIPLIED.rows * MULTIPLIED.columns * MULTIPLIED.classes
        return cls(
            4 * STREAMED.rows * STREAMED.columns / scalar,
            flops / products,
            noise[0].case["columns"] / noise[0].median,
        )

    def table(self) -> str:
        """Return the measurements in Markdown."""
        streamed = f"{STREAMED.rows} x {STREAMED.columns}"
        multiplied = f"{MULTIPLIED.rows} x {MULTIPLIED.columns}"
        rows = {
            f"B: bytes of rows per second, clipped gradient, {streamed}, float32": (
                f"{self.scalar_bytes / 1e9:.3g} GB/s"
            ),
            f"two products of {multiplied} rows with {MULTIPLIED.classes} classes, float32": (
                f"{self.gemm_flops / 1e9:.3g} GFLOP/s"
            ),
            "G: exact Gaussian draws per second, one thread": f"{self.draws / 1e6:.3g} million",
        }
        lines = [f"| {name} | {value} |" for name, value in rows.items()]
        return "\n".join(["| measured | two threads |", "|---|---:|", *lines])


def passes(loss: Loss, n: int, d: int, K: int = 1) -> tuple[str, int]:
    """Ask the default solver, with rows that it must not copy: its name, and its passes."""
    spec = DataSpec(n_rows=n, n_features=d, n_outputs=K, intercept=1.0, dtype="float32")
    problem = Problem(loss, L2(1.0 / n))
    plan = Auto(may_copy=False).plan(problem, ApproximateDP(1.0, 0.1 / n), spec)
    return plan.method.algorithm, math.ceil(plan.method.gradient_evaluations / n)


def cluster_plan(constants: Constants, n: int = 10**9, d: int = 1000) -> str:
    """10^9 rows of 1000 columns on workers like the machine that was measured."""
    algorithm, count = passes(Logistic(), n, d)
    about = (
        f"**10^9 rows x 10^3 columns, logistic, float32, on W workers** with two cores like those "
        f"measured. Assumed: a network of {NETWORK_BYTES / 1e9:g} GB/s, {1e3 * HOP_SECONDS:g} ms "
        f"for each level of the tree of sums, {1e3 * STEP_OVERHEAD:g} ms for each step's tasks. "
        f"The default ({algorithm}, epsilon 1) passes over the rows {count} times."
    )
    lines = [about, "", "| | formula | W = 100 | W = 1000 |", "|---|---|---:|---:|"]
    workers = (100, 1000)
    levels = [math.ceil(math.log2(W)) for W in workers]
    rows = [4.0 * n * d / W for W in workers]
    compute = [one / constants.scalar_bytes for one in rows]
    reduction = [one * (8.0 * d / NETWORK_BYTES + HOP_SECONDS) for one in levels]
    noise = [d / constants.draws] * 2
    step = [sum(one) + STEP_OVERHEAD for one in zip(compute, reduction, noise, strict=True)]
    table = [
        ("rows on a worker", "4 n d / W bytes", [f"{one / 1e9:.3g} GB" for one in rows]),
        ("clipped gradient", "4 n d / (W B)", [_time(one) for one in compute]),
        ("tree of sums", "ceil(log2 W) (8 d / network + hop)", [_time(one) for one in reduction]),
        ("noise, on the driver", "d / G", [_time(one) for one in noise]),
        ("step", "sum, and tasks", [_time(one) for one in step]),
        ("fit", f"{count} steps", [_time(count * one) for one in step]),
    ]
    lines += [f"| {name} | {formula} | {' | '.join(cells)} |" for name, formula, cells in table]
    lines += ["", "Rows must stay in the workers' memory; from disks B is that of the disks."]
    return "\n".join(lines)


def gpu_plan(constants: Constants, n: int = 1_300_000, d: int = 2048, K: int = 1000) -> str:
    """Embeddings of ImageNet on one GPU."""
    algorithm, count = passes(Softmax(), n, d, K)
    products = 4.0 * n * d * K / (GPU_SHARE * GPU_FLOPS)
    elementwise = ELEMENTWISE_PASSES * 4.0 * n * K / GPU_BYTES
    runs = 2.0 * 4.0 * d * K * n / RUN_ROWS / GPU_BYTES
    noise, moved = d * K / constants.draws, 2.0 * 8.0 * d * K / PCIE_BYTES
    step = products + elementwise + runs + noise + moved
    table = [
        ("two products", f"4 n d K / ({GPU_SHARE:g} x {GPU_FLOPS / 1e12:g} TFLOP/s)", products),
        ("slopes and clipping", f"{ELEMENTWISE_PASSES} x 4 n K bytes / bandwidth", elementwise),
        (f"sums of runs of {RUN_ROWS} rows", "2 x 4 d K n / run bytes / bandwidth", runs),
        ("noise, one host thread", "d K / G", noise),
        ("parameter and sum to and fro", "2 x 8 d K bytes / PCIe", moved),
        ("step", "sum", step),
        ("fit", f"{count} steps", count * step),
    ]
    about = (
        "**1.3 million embeddings of 2048 numbers, 1000 classes, float32, on one GPU.** A "
        f"calculation; measurements are below. Assumed, from the data sheet of {GPU}: "
        f"{GPU_FLOPS / 1e12:g} TFLOP/s in float32 (TF32 is refused), {GPU_BYTES / 1e12:g} TB/s, "
        f"{GPU_MEMORY / 1e9:g} GB; besides, products at {100 * GPU_SHARE:g} % of the peak and "
        f"{PCIE_BYTES / 1e9:g} GB/s to the host. The rows take {4 * n * d / 1e9:.3g} GB. "
        f"The default ({algorithm}, epsilon 1) passes over them {count} times."
    )
    lines = [about, "", "| | formula | time |", "|---|---|---:|"]
    lines += [f"| {name} | {formula} | {_time(seconds)} |" for name, formula, seconds in table]
    here = _time(4.0 * n * d * K / constants.gemm_flops)
    lines += ["", f"On the two cores measured, the two products alone would take {here} a step."]
    return "\n".join(lines)


def _time(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{1e6 * seconds:.3g} µs"
