"""A private softmax step on the CPU or a GPU, compared with its two matrix products.

``python -m benchmarks.device --device cuda`` measures rows of 2048 numbers and 1000 classes, as
ImageNet has through an embedding; ``--device cpu`` measures a small problem of the same shape.
``--fit`` times whole fits.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from sklearn.base import clone

from dpglm import LogisticRegression
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SystemNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Softmax

__all__ = ["Timing", "main", "measure", "table", "whole_fit"]

# Rows, columns, classes.
_SIZES: Mapping[str, tuple[int, int, int]] = MappingProxyType(
    {"cpu": (4096, 512, 100), "cuda": (1 << 18, 2048, 1000)}
)


@dataclass(frozen=True)
class Timing:
    """Seconds that one kind of work took in each round."""

    name: str
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Median over the rounds."""
        return float(np.median(self.seconds))


def measure(
    device: str, sizes: tuple[int, int, int], dtype: str = "float32", rounds: int = 15
) -> list[Timing]:
    """Time the products, the clipped sum and the whole step, one after the other, in rounds."""
    if device == "cuda":
        # cuBLAS reads it when it is first used.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    n, d, K = sizes
    number, options = getattr(torch, dtype), {"device": device}
    generator = torch.Generator(device=device).manual_seed(0)
    X = torch.randn((n, d), dtype=number, generator=generator, **options)
    X /= torch.linalg.vector_norm(X, dim=1, keepdim=True)
    slopes = torch.randn((n, K), dtype=number, generator=generator, **options)
    y = torch.randint(0, K, (n,), generator=generator, **options)
    spec = DataSpec(n, d, n_outputs=K, dtype=dtype)  # type: ignore[arg-type]
    rows = prepare_rows(X, y, spec)
    w = np.random.default_rng(0).normal(size=spec.coefficient_shape)
    there = torch.as_tensor(w, dtype=number, **options)
    oracle = Oracle(rows, Softmax(), Curator(Adjacency.ZERO_OUT, SystemNoise()))
    clipping = FlatClipping(1.0)
    declared = gradient_release(spec, Adjacency.ZERO_OUT, clipping, GaussianNoise(1.0))
    work: Mapping[str, Callable[[], object]] = {
        "X @ W and X.T @ S": lambda: (X @ there, X.T @ slopes),
        "clipped gradient sum": lambda: clipped_gradient_sum(rows, Softmax(), clipping, w),
        "private step, with noise": lambda: oracle.noisy_gradient(declared, w, clipping),
    }
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None

    def seconds(task: Callable[[], object]) -> float:
        wait()
        start = time.perf_counter()
        task()
        wait()
        return time.perf_counter() - start

    # The first round warms up.
    all_rounds = [[seconds(task) for task in work.values()] for _ in range(rounds + 1)][1:]
    columns = zip(*all_rounds, strict=True)
    return [Timing(name, column) for name, column in zip(work, columns, strict=True)]


def whole_fit(device: str, sizes: tuple[int, int, int], rounds: int) -> list[Timing]:
    """Time default fits of rows around one random direction for each class, at epsilon 1."""
    if device == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    import torch

    n, d, K = sizes
    generator = torch.Generator(device=device).manual_seed(1)

    def unit(rows: int) -> Any:
        drawn = torch.randn((rows, d), generator=generator, device=device)
        return drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)

    y = torch.randint(0, K, (n,), generator=generator, device=device)
    X, centers = unit(n), unit(K)
    for start in range(0, n, 100_000):
        X[start : start + 100_000] += 0.25 * centers[y[start : start + 100_000]]
    X /= torch.linalg.vector_norm(X, dim=1, keepdim=True)
    model = LogisticRegression(epsilon=1.0, delta=1e-7, classes=list(range(K)), row_norm=1.0)
    seconds = []
    for _ in range(rounds):
        start_time = time.perf_counter()
        clone(model).fit(X, y)
        seconds.append(time.perf_counter() - start_time)
    return [Timing("fit with default settings", tuple(seconds))]


def table(timings: Sequence[Timing]) -> str:
    """Lines of a Markdown table: medians, quartiles, and ratios to the first row."""
    lines = ["| work | median ms | quartiles | ratio |", "| --- | ---: | ---: | ---: |"]
    for timing in timings:
        low, high = np.quantile(timing.seconds, [0.25, 0.75])
        ratio = np.median(np.divide(timing.seconds, timings[0].seconds))
        lines.append(
            f"| {timing.name} | {1e3 * timing.median:.2f} | {1e3 * low:.2f} to {1e3 * high:.2f} "
            f"| {ratio:.2f} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.device", description=__doc__)
    parser.add_argument("--device", choices=tuple(_SIZES), default="cpu")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    for name in ("rows", "columns", "classes"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--fit", action="store_true", help="time whole fits in float32, not a step")
    options = parser.parse_args(arguments)
    given = (options.rows, options.columns, options.classes)
    rows, columns, classes = (
        own or usual for own, usual in zip(given, _SIZES[options.device], strict=True)
    )
    import torch

    where = torch.cuda.get_device_name() if options.device == "cuda" else "the CPU"
    print(
        f"{rows} rows, {columns} columns, {classes} classes, {options.dtype}, on {where}, "
        f"torch {torch.__version__}, {options.rounds} rounds\n"
    )
    sizes = rows, columns, classes
    if options.fit:
        print(table(whole_fit(options.device, sizes, options.rounds)))
    else:
        print(table(measure(options.device, sizes, options.dtype, options.rounds)))


if __name__ == "__main__":
    main()
