"""Covariance of a released parameter, from what was released with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

__all__ = ["Covariance", "Uncertainty"]

Covariance: TypeAlias = Literal["model", "robust"]
"""The covariance under a right model, or the sandwich that holds under any."""


@final
@dataclass(frozen=True, eq=False)
class Uncertainty:
    """Covariance of a released parameter, in the coordinates of the prepared rows.

    Parameters
    ----------
    center : ndarray of shape (n_columns,)
        The estimate that intervals are about; intercept last.
    sampling, privacy : ndarray of shape (n_columns, n_columns)
        Parts of the covariance that are due to the sampling of rows, and to noise.
    degrees_of_freedom : float, default=inf
        Critical values are those of Student's t distribution with so many.
    kind : {"model", "robust"}, default="model"
        Whether the sampling part assumes that the model is right.

    Notes
    -----
    Privacy: computed from released values.
    """

    center: NDArray[np.float64]
    sampling: NDArray[np.float64]
    privacy: NDArray[np.float64]
    degrees_of_freedom: float = math.inf
    kind: Covariance = "model"

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the estimate: of sampling and noise together."""
        total: NDArray[np.float64] = self.sampling + self.privacy
        return total
