"""Cost of aggressive clipping: song2021, section 5.3 and Theorem 5.3.

``python -m experiments.song2021_clipping`` writes the table of ``docs/evidence/papers.md``: the
excess empirical risk of noisy gradient descent on a logistic regression with slopes up to 1,
clipped at 1 and below 1/4.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.privacy import ApproximateDP
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Logistic, Problem
from dpglm.solvers import NoisyGD, run
from experiments.measured import DOCS, put

__all__ = ["circulation", "clipped_minimum", "excess", "main", "table"]

POSITIVE = 0.6
"""Share of positive labels; every row is the number 1."""
CLIPS = (1.0, 0.25, 0.1, 0.02)
SIZES = (1000, 4000, 16_000, 64_000)
BUDGET, SEEDS = ApproximateDP(1.0, 1e-6), 10


def clipped_minimum(clip: float) -> float:
    """Return where the sum of clipped slopes is zero.

    Slopes are -1/(1 + e^w) of positive and 1/(1 + e^-w) of negative rows. A clip below one half
    holds the negative ones at ``clip``, so the positive ones must come down to two thirds of it.
    """
    if clip >= POSITIVE:
        return float(logit(POSITIVE))
    return float(-logit(clip * (1.0 - POSITIVE) / POSITIVE))


def _risk(w: float) -> float:
    return POSITIVE * float(np.logaddexp(0.0, -w)) + (1.0 - POSITIVE) * float(np.logaddexp(0.0, w))


def excess(w: float) -> float:
    """Mean loss above the least one."""
    return _risk(w) - _risk(float(logit(POSITIVE)))


def circulation(clip: float, by_class: bool = False) -> float:
    """Integrate clipped gradients of a softmax loss around a small square (Theorem 5.3).

    A gradient field gives zero. ``by_class`` clips the gradient of each class by itself. The
    square spans two of the three scores of one row ``x = 1``.
    """
    side, points = 0.2, 2000
    corners = side * np.array([[5, -2], [6, -2], [6, -1], [5, -1], [5, -2]])
    total = 0.0
    for a, b in itertools.pairwise(corners):
        middles = (np.arange(points) + 0.5) / points
        scores = np.column_stack([a + (b - a) * middles[:, np.newaxis], np.zeros(points)])
        gradients = _softmax_gradients(scores)
        norms = np.abs(gradients)
        if not by_class:
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
        clipped = gradients * np.minimum(1.0, clip / norms)
        total += float((clipped[:, :2] @ (b - a)).mean())
    return total


def _softmax_gradients(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = np.exp(scores)
    shares /= shares.sum(axis=1, keepdims=True)
    return shares - np.array([0.0, 0.0, 1.0])


def table(quick: bool) -> str:
    """Measure the excess risk for each clip and size, and that of the clipped minimum."""
    sizes, seeds = (SIZES[:1], 2) if quick else (SIZES, SEEDS)
    lines = [
        f"| clip | {' | '.join(f'n = {n:,}' for n in sizes)} | without noise |",
        "|---:" * (len(sizes) + 2) + "|",
    ]
    for clip in CLIPS:
        cells = []
        for n in sizes:
            y = np.where(np.arange(n) < POSITIVE * n, 1.0, -1.0)
            spec = DataSpec(n, 1)
            solver = NoisyGD(clip=clip, n_steps=400, step_size=4.0, momentum=0.0)
            plan = solver.plan(Problem(Logistic()), BUDGET, spec)
            rows = prepare_rows(np.ones((n, 1)), y, spec)
            found = [excess(run(plan, rows, SeededNoise(seed)).w.item()) for seed in range(seeds)]
            cells.append(f"{np.mean(found):.1e} ± {np.std(found, ddof=1):.0e}")
        limit = excess(clipped_minimum(clip))
        lines.append(f"| {clip:g} | {' | '.join(cells)} | {limit:.1e} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the pages are")
    parser.add_argument("--quick", action="store_true", help="few rows and seeds")
    options = parser.parse_args(arguments)
    loops = " and ".join(f"{circulation(clip):.1e} at clip {clip:g}" for clip in (2.0, 0.5))
    text = (
        f"{table(options.quick)}\n\nTheorem 5.3: the integral of a softmax loss's clipped gradient "
        f"around a square of side 0.2 is {loops}; where each class is clipped by itself, "
        f"{circulation(0.5, by_class=True):.1e} at clip 0.5."
    )
    put(options.docs / "evidence" / "papers.md", "song2021 clipping", text)


if __name__ == "__main__":
    main()
