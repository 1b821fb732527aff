"""The columns of an additive model's terms: where a number lies between knots, or which level."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm.tables.additive.roots import independent_levels, smooth_values
from dpglm.tables.columns import CategoricalColumn, NumericColumn

__all__ = ["Axis", "CategoricalAxis", "NumericAxis"]

MOST_CORRELATED = 200
"""Levels up to which a common part of all of them is left to the intercept."""


class Axis(abc.ABC):
    """A column of a term, and the values of an effect along it; final subclasses below."""

    name: str

    @property
    @abc.abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Name the values that an effect has: at knots, or for levels."""

    @property
    @abc.abstractmethod
    def root(self) -> NDArray[np.float64] | None:
        """Root of the covariance of these values, of shape (n_values, n_features).

        None for the identity.
        """

    @abc.abstractmethod
    def weights(self, cells: ArrayLike) -> sparse.csr_array:
        """Return the share of each value in each row, of shape (n, n_values).

        Shares are at least 0, and add up to 1 in every row. Errors name the column, the row and the
        cure.

        Privacy: each row's shares depend on its own cell alone.
        """

    @abc.abstractmethod
    def grid(self, n: int = 101) -> NDArray[Any]:
        """Return cells at which to draw an effect: at least n numbers with the knots, or levels."""

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.labels) if self.root is None else self.root.shape[1]

    @functools.cached_property
    def norm(self) -> float:
        """Bound on the L2 norm of features: shares average rows of ``root``."""
        return 1.0 if self.root is None else float(np.sqrt((self.root**2).sum(axis=1).max()))

    def features(self, weights: sparse.csr_array) -> Any:
        """Return the features, of shape (n, n_features), sparse where ``root`` is None."""
        return weights if self.root is None else weights @ self.root


@final
@dataclass(frozen=True, eq=False)
class NumericAxis(Axis):
    """A number between knots: an effect is linear between them, and constant beyond the ends.

    With ``scale="log"`` it is linear in the logarithm that ``NumericColumn.stretched`` takes.
    Missing cells, where the column allows them, are a level of their own.
    """

    column: NumericColumn
    segments: int
    reach: float

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the column."""
        return self.column.name

    @functools.cached_property
    def knots(self) -> NDArray[np.float64]:
        """The knots in the column's units, from its lower bound to its upper one."""
        return self.column.spaced(self.segments)

    @property
    def labels(self) -> tuple[str, ...]:
        numbers = tuple(f"{self.name} at {knot:.6g}" for knot in self.knots)
        return numbers if self.column.missing is None else (*numbers, f"{self.name} missing")

    @functools.cached_property
    def root(self) -> NDArray[np.float64] | None:
        curve = smooth_values(len(self.knots), self.reach)
        if self.column.missing is None:
            return curve
        root = np.zeros((len(curve) + 1, curve.shape[1] + 1))
        root[:-1, :-1], root[-1, -1] = curve, 1.0
        return root

    def weights(self, cells: ArrayLike) -> sparse.csr_array:
        numbers = self.column.read_with_gaps(cells)
        gaps = np.isnan(numbers)
        stretched = self.column.stretched(np.where(gaps, self.column.low, numbers))
        last = len(self.knots) - 1
        places = np.interp(
            stretched, self.column.stretched(self.knots), np.arange(last + 1.0)
        ).clip(0.0, last)
        before = np.minimum(places.astype(np.intp), last - 1)
        after = places - before
        columns = np.column_stack([before, before + 1])
        shares = np.column_stack([1.0 - after, after])
        columns[gaps, 0] = last + 1
        shares[gaps] = (1.0, 0.0)
        n = len(numbers)
        return sparse.csr_array(
            (shares.ravel(), columns.ravel(), np.arange(0, 2 * n + 1, 2)),
            shape=(n, len(self.labels)),
        )

    def grid(self, n: int = 101) -> NDArray[Any]:
        even = self.column.unstretched(np.linspace(0.0, 1.0, n))
        return np.unique(np.concatenate([even, self.knots]).clip(self.knots[0], self.knots[-1]))


@final
@dataclass(frozen=True, eq=False)
class CategoricalAxis(Axis):
    """A level for each category, independent of the others; the mean of all is the intercept's."""

    column: CategoricalColumn

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.column.categories)

    @functools.cached_property
    def root(self) -> NDArray[np.float64] | None:
        count = len(self.column.categories)
        return independent_levels(count) if count <= MOST_CORRELATED else None

    def weights(self, cells: ArrayLike) -> sparse.csr_array:
        levels = self.column.read(cells)
        n = len(levels)
        return sparse.csr_array(
            (np.ones(n), levels, np.arange(n + 1)), shape=(n, len(self.column.categories))
        )

    def grid(self, n: int = 101) -> NDArray[Any]:
        cells = np.empty(len(self.column.categories), dtype=object)
        cells[:] = self.column.categories
        return cells
