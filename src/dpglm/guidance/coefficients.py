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
    """Released coefficients in the user's units, and upper estimates of the noise in them.

    ``values`` has the shape (n_outputs, n_features); ``noise``, of shape (n_features,), holds
    standard deviations. ``reach``, of shape (n_features,), is half the width of each feature's
    declared bounds, 1 where there are none: values times reach are comparable. ``of_table`` says
    whether features are effects in the units of the user's table, and not those of the columns
    that the estimator was given.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    noise: NDArray[np.float64]
    reach: NDArray[np.float64]
    of_table: bool
    intercepts: NDArray[np.float64]
    intercept_noise: float

    @property
    def steps(self) -> NDArray[np.float64]:
        """The power of ten that is nearest to each reach, in which effects can be compared."""
        return np.asarray(10.0 ** np.round(np.log10(self.reach)), dtype=np.float64)

    def above_noise(self, deviations: float = 2.0) -> NDArray[np.bool_]:
        """Return which coefficients are more than ``deviations`` standard deviations from zero."""
        result: NDArray[np.bool_] = np.abs(self.values) > deviations * self.noise
        return result

    def largest(self, output: int, most: int) -> NDArray[np.intp]:
        """Positions of an output's largest coefficients by comparable size, largest first."""
        size = np.abs(self.values[output] * self.reach)
        return np.argsort(-size, kind="stable")[:most]
