"""Coefficients side by side with the noise that is expected in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.inference.inference import Inference

__all__ = ["CoefficientTable"]


@final
@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Released coefficients in the user's units, and the noise in them where it is known.

    ``values`` has the shape (n_outputs, n_features); ``noise``, of shape (n_outputs, n_features +
    1), holds standard deviations, those of the intercepts last. ``reach``, of shape (n_features,),
    is half the width of each feature's declared bounds, 1 where there are none: values times reach
    are comparable. ``of_table`` says whether features are effects in the units of the user's table,
    and not those of the columns that the estimator was given. ``inference`` is in the same
    units, under the same names.
    """

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    noise: NDArray[np.float64] | None
    reach: NDArray[np.float64]
    of_table: bool
    intercepts: NDArray[np.float64]
    inference: Inference | None = None

    @property
    def steps(self) -> NDArray[np.float64]:
        """The largest power of ten within each reach, in which effects can be compared."""
        powers = np.floor(np.log10(self.reach) + 1e-9)  # rounding must not take 1 below itself
        return np.asarray(10.0**powers, dtype=np.float64)

    def intervals(self) -> NDArray[np.float64]:
        """Return 95 % confidence intervals of shape (n_features, 2); NaN if there are none."""
        if self.inference is None:
            return np.full((len(self.features), 2), np.nan)
        return self.inference.conf_int()[-len(self.features) :]

    def largest(self, output: int, most: int) -> NDArray[np.intp]:
        """Positions of an output's largest coefficients by comparable size, largest first.

        With intervals by the size that they surely have, then by their distance from zero in units
        of their intervals; those of which nothing is known are last.
        """
        size = np.abs(self.values[output] * self.reach)
        if self.inference is None:
            return np.argsort(-size, kind="stable")[:most]
        half = 0.5 * np.diff(self.intervals(), axis=1)[:, 0] * self.reach
        ratios = np.divide(size, half, out=np.full_like(size, np.inf), where=half > 0.0)
        return np.lexsort((-ratios, -np.maximum(size - half, 0.0)))[:most]

    @property
    def unknown(self) -> int:
        """Number of features of whose coefficients intervals say nothing."""
        return int(np.isinf(self.intervals()).any(axis=1).sum())
