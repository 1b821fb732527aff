"""What is known of the noise in released coefficients: how large it is, and how it correlates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.units import LinearUnits

__all__ = ["NoiseCovariance"]


@final
@dataclass(frozen=True, eq=False)
class NoiseCovariance:
    """Covariance of the privacy noise in coefficients, alike up to a factor in all outputs.

    It is what runs on the same rows would show, and leaves out the sampling of rows.

    Parameters
    ----------
    columns : ndarray of shape (n_columns, n_columns)
        That of the coefficients of an output whose factor is 1, intercept last.
    outputs : ndarray of shape (n_outputs,), default=(1.0,)
        For each output what its variances are in units of these.

    Notes
    -----
    Privacy: computed from released values.

    Examples
    --------
    Two indicators whose sum is the intercept's column: only their difference is known.

    >>> noise = NoiseCovariance(np.array([[4.0, 3.9], [3.9, 4.0]]))
    >>> noise.deviations[:, 0].tolist()
    [2.0, 2.0]
    >>> noise.mapped(np.array([[1.0, -1.0]])).deviations.round(2).tolist()
    [[0.45]]
    """

    columns: NDArray[np.float64]
    outputs: NDArray[np.float64] = field(default_factory=lambda: np.ones(1))

    @property
    def deviations(self) -> NDArray[np.float64]:
        """Standard deviations of the noise, of shape (n_columns, n_outputs)."""
        variances = np.multiply.outer(np.maximum(np.diag(self.columns), 0.0), self.outputs)
        return np.asarray(np.sqrt(variances))

    @property
    def is_finite(self) -> bool:
        """Whether no number overflowed."""
        return bool(np.isfinite(self.columns).all() and np.isfinite(self.outputs).all())

    def at_most(self, variance: float) -> Self:
        """Return the same with no more than this variance in any direction, in units of outputs'.

        Parameters
        ----------
        variance : float
            The bound.

        Returns
        -------
        NoiseCovariance
        """
        values, directions = np.linalg.eigh(0.5 * (self.columns + self.columns.T))
        capped = (directions * np.minimum(values, variance)) @ directions.T
        return type(self)(capped, self.outputs)

    def mapped(self, matrix: NDArray[np.float64]) -> Self:
        """Return that of ``matrix @ coefficients``.

        Parameters
        ----------
        matrix : ndarray of shape (n_mapped, n_columns)
            Public, or released.

        Returns
        -------
        NoiseCovariance
        """
        return type(self)(matrix @ self.columns @ matrix.T, self.outputs)

    def in_units(self, units: LinearUnits) -> Self:
        """Return that of coefficients in other units.

        Parameters
        ----------
        units : LinearUnits
            From the units of these.

        Returns
        -------
        NoiseCovariance
        """
        return type(self)(units.covariance(self.columns), self.outputs)
