"""What a run returned and did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm._words import card
from dpglm.ledger.entry import LedgerReference
from dpglm.preprocessing.row_map import RowMap
from dpglm.solvers.base import Plan, StepInfo
from dpglm.solvers.uncertainty import NoiseCovariance, Uncertainty

__all__ = ["Solution"]


@final
@dataclass(frozen=True, eq=False)
class Solution:
    """What a run returned and did.

    Parameters
    ----------
    w : ndarray of shape ``plan.data.coefficient_shape``
        The parameter, in the coordinates of the prepared rows; intercept last.
    plan : Plan
        The plan that was run, to the letter.
    history : tuple of StepInfo
        Diagnostics of each step; empty where only the last iterate is paid for.
    noise : str
        Name of the noise source.
    noise_covariance : NoiseCovariance, optional
        Covariance of the noise in the parameter, where the solver knows it: see
        ``Method.noise_in``.
    chosen : int, optional
        Which of several models this is, see ``Method.chosen``.
    ledger_entry : LedgerReference, optional
        Where a ledger recorded the run before it released anything.
    maps : tuple of dpglm.preprocessing.RowMap
        What private steps before the model learned, in order; released, hence public.
    uncertainty : Uncertainty, optional
        Covariance of the parameter, where the plan was made for inference.
    precision : ndarray of shape (n_columns, n_columns), optional
        About how well the parameter is known, see ``Method.precision``.
    signal : float, optional
        How far the released sums stand out of their noise, in its standard deviations; None where
        there is a checkpoint, only the last iterate is paid for, or no sum was released that noise
        was added to.
    """

    w: NDArray[np.float64]
    plan: Plan
    history: tuple[StepInfo, ...]
    noise: str
    noise_covariance: NoiseCovariance | None = None
    chosen: int | None = None
    ledger_entry: LedgerReference | None = None
    maps: tuple[RowMap, ...] = ()
    uncertainty: Uncertainty | None = None
    precision: NDArray[np.float64] | None = None
    signal: float | None = None

    @property
    def n_steps(self) -> int:
        """Number of steps taken."""
        return self.plan.n_steps

    @property
    def coefficient_noise(self) -> NDArray[np.float64] | None:
        """Standard deviations of the noise in ``w``, of its shape, where they are known."""
        known = self.noise_covariance
        return None if known is None else known.deviations.reshape(self.w.shape)

    def _repr_html_(self) -> str:
        entry = self.ledger_entry
        return card(
            "Result of a private fit",
            [
                ("parameter", f"{self.w.size} numbers, in prepared coordinates"),
                ("steps", self.n_steps),
                ("steps shown in history", len(self.history)),
                ("noise from", self.noise),
                ("ledger", "none" if entry is None else entry.describe()),
            ],
        )
