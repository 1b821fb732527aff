"""A private radius that no bound on the rows has to be known for."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import LARGEST, SMALLEST, DataSpec
from dpglm.oracle.choices.distances import distances
from dpglm.oracle.gradients import Oracle
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.releases import Bounded, Release
from dpglm.privacy.selection.mechanisms import AboveThreshold

__all__ = [
    "UNBOUNDED_RADII",
    "CountRelease",
    "noisy_unbounded_radius",
    "unbounded_radius_release",
]

CountRelease: TypeAlias = Release[NDArray[np.int64], int]
"""A release of where growing counts reach a threshold."""

UNBOUNDED_RADII: NDArray[np.float64] = np.geomspace(SMALLEST, 2.0 * LARGEST, 3573)
"""From the least to the greatest that rows may be apart at all, 2 % from one to the next."""
UNBOUNDED_RADII.flags.writeable = False


def unbounded_radius_release(
    data: DataSpec, adjacency: Adjacency, quantile: float, epsilon: float
) -> CountRelease:
    """Declare the choice of a radius within which a given share of the rows lies.

    Privacy: ``Pure(epsilon)``; a distance is computed from its own row alone, and counts within a
    radius grow with the radius.
    """
    threshold = round(quantile * data.n_rows)
    return Release("unbounded radius of rows", AboveThreshold(epsilon, threshold), adjacency, 1.0)


def noisy_unbounded_radius(
    oracle: Oracle, declared: CountRelease, center: NDArray[np.float64]
) -> float:
    """Release the first of ``UNBOUNDED_RADII`` within which, up to noise, enough rows lie.

    Except with probability p, the number of rows within the radius is at least the share less ``2
    log(3573 / p) / epsilon``, and at the radius before it exceeds the share by no more than that,
    under zero-out (Durfee, "Unbounded differentially private quantile and maximum estimation",
    NeurIPS 2023).
    """
    ordered = np.sort(distances(oracle, center))
    counts = np.searchsorted(ordered, UNBOUNDED_RADII, side="right").astype(np.int64)
    chosen = oracle.curator.release(declared, Bounded(counts, 1.0))
    return float(UNBOUNDED_RADII[chosen])
