"""A private radius that no bound on the rows has to be known for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpglm.data.spec import LARGEST, SMALLEST
from dpglm.oracle.choices.distances import distances
from dpglm.oracle.gradients import Oracle

__all__ = ["UNBOUNDED_RADII", "noisy_unbounded_radius"]

UNBOUNDED_RADII: NDArray[np.float64] = np.geomspace(SMALLEST, 2.0 * LARGEST, 3573)
"""From the least to the greatest that rows may be apart at all, 2 % from one to the next."""
UNBOUNDED_RADII.flags.writeable = False


def noisy_unbounded_radius(
    oracle: Oracle, center: NDArray[np.float64], quantile: float, epsilon: float
) -> float:
    """Release a radius around a point within which about a given share of the rows lies.

    Parameters
    ----------
    oracle : Oracle
        Rows and curator.
    center : ndarray of shape (n_features,)
        Public.
    quantile : float
        The share, in (0, 1).
    epsilon : float
        What the choice costs.

    Returns
    -------
    float
        One of ``UNBOUNDED_RADII``: the first within which enough rows lie, noise considered.

    Notes
    -----
    Except with probability p, the number of rows within the radius is at least the share less
    ``2 log(3573 / p) / epsilon``, and at the radius before it exceeds the share by no more than
    that, under zero-out.

    Privacy: one ``Pure(epsilon)``; a distance is computed from its own row alone, and the rows
    within a radius are among those within any larger one.

    References
    ----------
    Durfee, "Unbounded differentially private quantile and maximum estimation", NeurIPS 2023.
    """
    ordered = np.sort(distances(oracle, center))
    counts = np.searchsorted(ordered, UNBOUNDED_RADII, side="right").astype(np.int64)
    threshold = round(quantile * oracle.rows.spec.n_rows)
    chosen = oracle.curator.choose_first_above(counts, threshold, epsilon)
    return float(UNBOUNDED_RADII[chosen])
