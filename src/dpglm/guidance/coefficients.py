"""Coefficients with the standard deviation of their noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.inference.inference import Inference


@final
@dataclass(frozen=True, eq=False)
class CoefficientTable:
    """Released coefficients in the user's units, with the standard deviation of their noise.

    ``values`` has shape (n_outputs, n_features). ``noise``, of shape (n_outputs, n_features + 1),
    ends with the intercepts. ``reach``, of shape (n_features,), is half the width of each feature's
    declared bounds, or 1: values times reach are comparable. ``of_table`` states whether units are
    those of the user's table, rather than of the estimator's columns. ``inference`` has the same
    units and names.
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
        """The largest power of ten within each reach, as a unit for effects."""
        powers = np.floor(np.log10(self.reach) + 1e-9)  # for rounding
        return np.asarray(10.0**powers, dtype=np.float64)

    def intervals(self) -> NDArray[np.float64]:
        """Return 95 % confidence intervals of shape (n_features, 2); NaN if there are none."""
        if self.inference is None:
            return np.full((len(self.features), 2), np.nan)
        return self.inference.conf_int()[-len(self.features) :]

    def largest(self, output: int, most: int) -> NDArray[np.intp]:
        """Return the positions of an output's largest coefficients, largest first.

        With intervals, the order is by the smallest size within the interval, then by the distance
        from zero in units of the interval. Those with the interval of their prior are last.
        """
        size = np.abs(self.values[output] * self.reach)
        if self.inference is None:
            return np.argsort(-size, kind="stable")[:most]
        half = 0.5 * np.diff(self.intervals(), axis=1)[:, 0] * self.reach
        ratios = np.divide(size, half, out=np.full_like(size, np.inf), where=half > 0.0)
        return np.lexsort((-ratios, -np.maximum(size - half, 0.0), self._of_prior))[:most]

    @property
    def unknown(self) -> int:
        """Number of features with the interval of their prior, or an infinite one."""
        return int(self._of_prior.sum())

    @property
    def _of_prior(self) -> NDArray[np.bool_]:
        if self.inference is None:
            return np.zeros(len(self.features), dtype=bool)
        names = {*self.inference.of_prior, *self.inference.unknown}
        own = self.inference.names[-len(self.features) :]
        return np.array([name in names for name in own])
