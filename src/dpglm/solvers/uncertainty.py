"""Covariance of a released parameter, from what was released with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.problem import Problem, Unconstrained

__all__ = ["Covariance", "Uncertainty", "check_normal"]

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
    dispersion : float, optional
        Of the prepared targets, where it was estimated: their variance over what the loss says.

    Notes
    -----
    Privacy: computed from released values.
    """

    center: NDArray[np.float64]
    sampling: NDArray[np.float64]
    privacy: NDArray[np.float64]
    degrees_of_freedom: float = math.inf
    kind: Covariance = "model"
    dispersion: float | None = None

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the estimate: of sampling and noise together."""
        total: NDArray[np.float64] = self.sampling + self.privacy
        return total


def check_normal(problem: Problem) -> None:
    """Refuse penalties and constraints whose minimisers have no normal distribution."""
    penalty = problem.regularizer
    if penalty.smoothness != penalty.strong_convexity:
        raise ValueError(
            f"regularizer must be none or L2 for inference, got {penalty!r}: others set "
            "coefficients to zero, which have no normal distribution then"
        )
    if problem.constraint != Unconstrained():
        raise ValueError(
            f"constraint must be None for inference, got {problem.constraint!r}: coefficients on "
            "its boundary have no normal distribution"
        )
