"""Public facts about the rows: all that a plan may depend on."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, final

from dpglm._validation import check_bools, check_count, check_one_of, check_real, is_number
from dpglm.privacy.adjacency import Unit

__all__ = ["LARGEST", "SMALLEST", "DataSpec", "FloatType", "GroupBound"]

SMALLEST, LARGEST = 1e-15, 1e15
"""Range of bounds within which float32 arithmetic neither overflows nor underflows."""

_LARGEST_TARGET = 1e100

FloatType = Literal["float32", "float64"]
"""Name of a floating-point type."""


@final
@dataclass(frozen=True)
class GroupBound:
    """How much the rows of one group may contribute to a sum, all of them together.

    Parameters
    ----------
    n_groups : int
        Number of groups, at least 1. Under ``add_remove`` a public stand-in for it.
    rows : float
        Number m of rows of a group that the bounds are made for, at least 1: a typical one.
        Groups with more rows are scaled down where they exceed their bound.

    Notes
    -----
    Independent contributions in all directions, such as scores, add up to about ``sqrt(m)`` times
    one of them. Products ``z z^T`` of rows with the same spread in d directions add up to
    ``sqrt(m (1 + (m - 1) / d))`` times one (in Frobenius norm). Counts, and contributions of equal
    rows, add up to m times one. ``reach`` is the geometric mean of the two extremes.

    Examples
    --------
    >>> bound = GroupBound(n_groups=4000, rows=16.0)
    >>> bound.reach(), bound.reach(directions=1)
    (8.0, 16.0)
    """

    n_groups: int
    rows: float

    def __post_init__(self) -> None:
        check_count("n_groups", self.n_groups)
        check_real("rows", self.rows, least=1.0, most=LARGEST)

    @classmethod
    def typical(cls, n_rows: int, n_groups: int, max_rows: int | None = None) -> GroupBound:
        """Return the bound for the mean number of rows of a group, at most ``max_rows``."""
        rows = max(1.0, n_rows / n_groups)
        return cls(n_groups, rows if max_rows is None else min(rows, float(max_rows)))

    def reach(self, directions: float = math.inf) -> float:
        """Bound on a group's contribution, in units of the bound on that of a row.

        Parameters
        ----------
        directions : float, default=inf
            The d of products of rows; 1 for contributions that cannot cancel, infinite for those
            that point to every side.
        """
        apart = math.sqrt(self.rows * (1.0 + (self.rows - 1.0) / directions))
        return math.sqrt(apart * self.rows)


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
    groups : GroupBound, optional
        How much a group may contribute, where the rows of each group are protected together.
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
    groups: GroupBound | None = None

    def __post_init__(self) -> None:
        check_bools(self)
        check_count("n_rows", self.n_rows)
        check_count("n_features", self.n_features)
        check_count("n_outputs", self.n_outputs)
        check_real("row_norm", self.row_norm, least=SMALLEST, most=LARGEST)
        if self.intercept != 0.0:
            check_real("intercept", self.intercept, least=SMALLEST, most=LARGEST)
        if self.entry_bound != math.inf:
            check_real("entry_bound", self.entry_bound, least=SMALLEST, most=LARGEST)
        check_real("weight_bound", self.weight_bound, least=SMALLEST, most=LARGEST)
        check_one_of("dtype", self.dtype, ("float32", "float64"))
        for name in ("target_low", "target_high"):
            if not is_number(getattr(self, name)):
                raise ValueError(f"{name} must be a number, got {getattr(self, name)!r}")
        if not self.target_low <= self.target_high:
            raise ValueError(
                f"target_low must not exceed target_high, got {self.target_low!r} and "
                f"{self.target_high!r}"
            )
        check_target_bounds(self.target_low, self.target_high)

    @property
    def unit(self) -> Unit:
        """The unit of protection: a row, or all rows of a group."""
        return Unit.ROW if self.groups is None else Unit.GROUP

    @property
    def n_units(self) -> int:
        """Number of units of protection: rows, or groups."""
        return self.n_rows if self.groups is None else self.groups.n_groups

    @property
    def unit_weight(self) -> float:
        """Bound on a unit's contribution, in units of the bound on that of a row of weight 1."""
        return self.weight_bound * self.reach()

    @property
    def typical_weight(self) -> float:
        """Mean weight of the rows to plan for, as the true one is private.

        The geometric mean of the bound and 1, the weight of rows without weights; a bound below 1
        is the weight of all rows without weights.
        """
        return min(self.weight_bound, math.sqrt(self.weight_bound))

    def reach(self, directions: float = math.inf) -> float:
        """Bound on a unit's contribution over that of a row, see ``GroupBound.reach``."""
        return 1.0 if self.groups is None else self.groups.reach(directions)

    def of_units(self, count: int) -> DataSpec:
        """Return the facts about some of the rows or groups; of groups with a share of the rows."""
        if self.groups is None:
            return dataclasses.replace(self, n_rows=count)
        share = count / self.groups.n_groups
        return dataclasses.replace(
            self,
            n_rows=max(1, round(self.n_rows * share)),
            groups=dataclasses.replace(self.groups, n_groups=count),
        )

    @property
    def centers_columns(self) -> bool:
        """Whether prepared columns may be centred: dense ones, with an intercept."""
        return self.intercept > 0.0 and not self.sparse

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


def check_target_bounds(low: float, high: float) -> None:
    """Refuse bounds on targets if their squares overflow or vanish; infinite ends are none."""
    finite = [abs(end) for end in (low, high) if math.isfinite(end)]
    if max(finite, default=0.0) > _LARGEST_TARGET or 0.0 < high - low < 1.0 / _LARGEST_TARGET:
        raise ValueError(
            f"bounds on targets must be at most {_LARGEST_TARGET:g} in magnitude, and equal or "
            f"at least {1.0 / _LARGEST_TARGET:g} apart, so that squares do not overflow or "
            f"vanish, got {low!r} and {high!r}: give targets in other units"
        )
