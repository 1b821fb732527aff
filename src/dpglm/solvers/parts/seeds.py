"""Public random bits for each stage of a run."""

from __future__ import annotations

import numpy as np

__all__ = ["stage_seed"]


def stage_seed(seed: int, stage: int) -> int:
    """64 public random bits for one stage, made from those of the run."""
    bits = np.random.default_rng([seed, stage + 1])
    return int(bits.integers(2**64, dtype=np.uint64))
