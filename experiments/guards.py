"""Costs and gains of the guards of ``noisy_gd``: the trials that chose them, on generated rows.

Run with ``python -m experiments.guards``. It prints test risks above those of the model that a fit
starts from, for several clips of losses that are not convex (in units of the usual clip) and for
several shares of the paid comparison (of mu squared, where rows are few), on the lines of
``experiments.edges`` that these act on. Below 0 is a gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

import numpy as np

from dpglm.solvers import auto
from dpglm.solvers.gradient import noisy_gd
from experiments.edges import EPSILONS, Edge, edges, measure

__all__ = ["CLIPS", "SHARES", "compared", "main"]

CLIPS = (1.0, 0.6, 0.5, 0.25)
# The largest share, and the noise that permits a smaller one.
SHARES = ((0.05, 5e-4), (0.02, 1e-3), (0.01, 1e-3))


@contextmanager
def _clip(share: float) -> Iterator[None]:
    """Let this clip stand whatever the budget is."""
    with (
        mock.patch.object(auto, "_CLIP_NOT_CONVEX", share),
        mock.patch.object(auto.defaults, "is_ample", return_value=False),
    ):
        yield


@contextmanager
def _comparison(setting: tuple[float, float]) -> Iterator[None]:
    share, noise = setting
    with mock.patch.multiple(
        noisy_gd,
        _MOST_COMPARISON_SHARE=share,
        _COMPARISON_NOISE=noise,
        _MOST_COMPARISON_SHARE_UNBOUNDED=share,
        _COMPARISON_NOISE_UNBOUNDED=noise,
    ):
        yield


def compared(edge: Edge, seeds: int, epsilons: Sequence[float] = EPSILONS) -> list[str]:
    """Mean risk above the start's, with its standard error, at each epsilon."""
    found = measure(edge, epsilons, seeds)
    cells = []
    for risks in found.risks:
        error = np.std(risks, ddof=1) / np.sqrt(seeds) if seeds > 1 else np.nan
        cells.append(f"{np.mean(risks) - found.zero:+.4f} ± {error:.4f}")
    return cells


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args(arguments)
    head = " | ".join(f"ε = {one:g}" for one in EPSILONS)
    print(f"| setting | estimator | n | d | columns | signal | {head} |")
    print("|---" * 6 + "|---:" * len(EPSILONS) + "|")
    for edge in edges():
        if edge.estimator == "RobustClassifier":
            trials = [(f"clip {one:g}", _clip(one)) for one in CLIPS]
        elif edge.columns == "sparse":
            trials = [(f"{share:g} of mu²", _comparison((share, to))) for share, to in SHARES]
        else:
            continue
        for name, setting in trials:
            with setting:
                cells = " | ".join(compared(edge, options.seeds))
            print(f"| {name} | {edge.label} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
