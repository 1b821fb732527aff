"""Coefficients side by side with the noise that is expected in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

__all__ = ["CoefficientTable"]


@final
@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Released coefficients, and what of them may be noise.

    Parameters
    ----------
    features : tuple of str
        Name of each feature.
    outputs : tuple of str
        Name of each output: the class, or the target.
    values : ndarray of shape (n_outputs, n_features)
        Coefficients in the user's units.
    noise : ndarray of shape (n_features,)
        Expected standard deviation of the noise in each, an upper estimate.
    reach : ndarray of shape (n_features,)
        How much one unit of prepared data is in the user's units: half the width of a
        feature's declared bounds, 1 where there are none. Values times reach are comparable.
    has_reach : bool
        Whether bounds were declared.
    intercepts : ndarray of shape (n_outputs,)
        Intercepts in the user's units.
    intercept_noise : float
        Expected standard deviation of the noise in each of them, an upper estimate.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    noise: NDArray[np.float64]
    reach: NDArray[np.float64]
    has_reach: bool
    intercepts: NDArray[np.float64]
    intercept_noise: float

    def above_noise(self, deviations: float = 2.0) -> NDArray[np.bool_]:
        """Say which coefficients are further from zero than that many standard deviations."""
        result: NDArray[np.bool_] = np.abs(self.values) > deviations * self.noise
        return result

    def largest(self, output: int, most: int) -> NDArray[np.intp]:
        """Positions of an output's largest coefficients by comparable size, largest first."""
        size = np.abs(self.values[output] * self.reach)
        return np.argsort(-size, kind="stable")[:most]
