"""What is public about the rows: all that a plan may depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, final

from dpglm._validation import check_bools, check_integer, check_one_of, check_real

__all__ = ["LARGEST", "SMALLEST", "DataSpec", "FloatType"]

SMALLEST, LARGEST = 1e-15, 1e15
"""Range of bounds within which float32 arithmetic neither overflows nor underflows."""

_LARGEST_TARGET = 1e100

FloatType = Literal["float32", "float64"]
"""Name of a floating-point type."""


@final
@dataclass(frozen=True)
class DataSpec:
    """Public facts about a data set, and bounds that its prepared rows will satisfy.

    Parameters
    ----------
    n_rows : int
        Number of rows, at least 1. Under ``add_remove`` a public stand-in for it.
    n_features : int
        Number of columns without the intercept's, at least 1.
    n_outputs : int, default=1
        1 for a scalar prediction; the number of classes for softmax.
    row_norm : float, default=1.0
        Bound ``R`` on the L2 norm of every prepared row, intercept column excluded; from 1e-15
        to 1e15.
    entry_bound : float, optional
        Declared bound on the magnitude of every entry of a row, intercept column excluded.
        Methods that rely on it clip entries to it.
    intercept : float, default=0.0
        Value of the constant column that is appended to every row; 0 for none.
    dtype : {"float32", "float64"}, default="float64"
        Floating-point type of the rows.
    sparse : bool, default=False
        Whether rows are stored as CSR (sums are then accumulated in float64).
    weight_bound : float, default=1.0
        Bound on the weight of any row.
    target_low, target_high : float, optional
        Bounds on the prepared targets, where the loss has real-valued targets; up to 1e100, and
        equal or at least 1e-100 apart.

    Examples
    --------
    >>> DataSpec(n_rows=1000, n_features=3, row_norm=2.0, intercept=1.5).augmented_row_norm
    2.5
    """

    n_rows: int
    n_features: int
    n_outputs: int = 1
    row_norm: float = 1.0
    intercept: float = 0.0
    dtype: FloatType = "float64"
    sparse: bool = False
    weight_bound: float = 1.0
    target_low: float = -math.inf
    target_high: float = math.inf
    entry_bound: float = math.inf

    def __post_init__(self) -> None:
        check_bools(self)
        check_integer("n_rows", self.n_rows, least=1)
        check_integer("n_features", self.n_features, least=1)
        check_integer("n_outputs", self.n_outputs, least=1)
        check_real("row_norm", self.row_norm, least=SMALLEST, most=LARGEST)
        if self.intercept != 0.0:
            check_real("intercept", self.intercept, least=SMALLEST, most=LARGEST)
        if self.entry_bound != math.inf:
            check_real("entry_bound", self.entry_bound, least=SMALLEST, most=LARGEST)
        check_real("weight_bound", self.weight_bound, least=SMALLEST, most=LARGEST)
        check_one_of("dtype", self.dtype, ("float32", "float64"))
        if not self.target_low <= self.target_high:
            raise ValueError(
                f"target_low must not exceed target_high, got {self.target_low!r} and "
                f"{self.target_high!r}"
            )
        finite = [abs(end) for end in (self.target_low, self.target_high) if math.isfinite(end)]
        width = self.target_high - self.target_low
        if max(finite, default=0.0) > _LARGEST_TARGET or 0.0 < width < 1.0 / _LARGEST_TARGET:
            raise ValueError(
                f"bounds on targets must be at most {_LARGEST_TARGET:g} in magnitude, and equal or "
                f"at least {1.0 / _LARGEST_TARGET:g} apart, so that squares do not overflow or "
                f"vanish, got {self.target_low!r} and {self.target_high!r}: give targets in other "
                "units"
            )

    @property
    def n_columns(self) -> int:
        """Number of columns with the intercept's."""
        return self.n_features + (self.intercept > 0.0)

    @property
    def augmented_row_norm(self) -> float:
        """Bound on the L2 norm of a row with its intercept column."""
        return math.hypot(self.row_norm, self.intercept)

    def target_range(self, admitted: tuple[float, float]) -> tuple[float, float]:
        """Bounds on the targets within the range that a loss admits."""
        return max(self.target_low, admitted[0]), min(self.target_high, admitted[1])

    @property
    def coefficient_shape(self) -> tuple[int, ...]:
        """Shape of the parameter: ``(columns,)``, or ``(columns, outputs)`` for K > 1."""
        return (self.n_columns,) if self.n_outputs == 1 else (self.n_columns, self.n_outputs)

    @property
    def n_coefficients(self) -> int:
        """Number of entries of the parameter."""
        return self.n_columns * self.n_outputs
