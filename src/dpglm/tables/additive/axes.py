"""The columns of an additive model's terms: where a number lies between knots, or which level."""

from __future__ import annotations

import abc
import functools
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm.tables.additive.roots import independent_levels, smooth_values, with_level_apart
from dpglm.tables.columns import CategoricalColumn, NumericColumn

__all__ = ["Axis", "CategoricalAxis", "NumericAxis", "Places"]

MOST_CORRELATED = 200
"""Levels up to which a common part of all of them is left to the intercept."""


@final
@dataclass(frozen=True, eq=False)
class Places:
    """Where rows lie among an axis's values: at one of them, or between two.

    ``first`` is the position of a value, and ``after`` the share of the next one in the row, from 0
    to 1; None where rows lie at values.
    """

    first: NDArray[np.intp]
    after: NDArray[np.float64] | None = None

    def __getitem__(self, rows: slice) -> Places:
        return Places(self.first[rows], None if self.after is None else self.after[rows])

    def weights(self, count: int) -> sparse.csr_array:
        """Return the share of each value in each row, of shape (n, count).

        Shares are at least 0, and add up to 1 in every row.
        """
        n = len(self.first)
        if self.after is None:
            entries, columns = np.ones(n), self.first
        else:
            entries = np.column_stack([1.0 - self.after, self.after]).ravel()
            # The share of what would lie behind the last value is 0.
            following = np.minimum(self.first + 1, count - 1)
            columns = np.column_stack([self.first, following]).ravel()
        pointers = np.arange(0, len(entries) + 1, len(entries) // n if n else 1)
        return sparse.csr_array((entries, columns, pointers), shape=(n, count))

    def averages(self, root: NDArray[np.float64], steps: NDArray[np.float64]) -> Any:
        """Return ``weights @ root``, given the ``steps`` between its rows as well."""
        # Positions are known to be valid.
        rows = np.take(root, self.first, axis=0, mode="clip")
        if self.after is not None:
            further = np.take(steps, self.first, axis=0, mode="clip")
            further *= self.after[:, np.newaxis]
            rows += further
        return rows


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

    @property
    @abc.abstractmethod
    def line(self) -> NDArray[np.float64] | None:
        """What a straight line has at the values that are in an order; None without one."""

    @property
    @abc.abstractmethod
    def order(self) -> NDArray[np.intp]:
        """Positions of these values, in order; their features come first."""

    @property
    def curve(self) -> NDArray[np.float64]:
        """The part of ``root`` of the values that are in an order."""
        assert self.root is not None
        return self.root[self.order, : len(self.order) - 1]

    @abc.abstractmethod
    def places(self, cells: ArrayLike) -> Places:
        """Return where each row lies among the values. Errors name the column, row and cure.

        Privacy: each row's place depends on its own cell alone.
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

    def weights(self, cells: ArrayLike) -> sparse.csr_array:
        """Return the share of each value in each row, of shape (n, n_values)."""
        return self.places(cells).weights(len(self.labels))

    def features(self, places: Places) -> Any:
        """Return the features, of shape (n, n_features), sparse where ``root`` is None."""
        if self.root is None:
            return places.weights(len(self.labels))
        return places.averages(self.root, self._steps)

    @functools.cached_property
    def _steps(self) -> NDArray[np.float64]:
        assert self.root is not None
        return np.diff(self.root, axis=0, append=self.root[-1:])


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
        curve = smooth_values(self.line, self.reach)
        return curve if self.column.missing is None else with_level_apart(curve, len(curve))

    @functools.cached_property
    def line(self) -> NDArray[np.float64]:
        # In the column's scale, in which knots are where they are.
        return self.column.stretched(self.knots)

    @property
    def order(self) -> NDArray[np.intp]:
        return np.arange(len(self.knots))

    def places(self, cells: ArrayLike) -> Places:
        numbers = self.column.read_with_gaps(cells)
        gaps = np.isnan(numbers)
        stretched = self.column.stretched(np.where(gaps, self.column.low, numbers))
        last = len(self.knots) - 1
        places = np.interp(stretched, self.line, np.arange(last + 1.0)).clip(0.0, last)
        before = np.minimum(places.astype(np.intp), last - 1)
        after = places - before
        before[gaps], after[gaps] = last + 1, 0.0
        return Places(before, after)

    def grid(self, n: int = 101) -> NDArray[Any]:
        even = self.column.unstretched(np.linspace(0.0, 1.0, n))
        return np.unique(np.concatenate([even, self.knots]).clip(self.knots[0], self.knots[-1]))


@final
@dataclass(frozen=True, eq=False)
class CategoricalAxis(Axis):
    """A level for each category; the mean of all is the intercept's, if they are centred.

    Levels are independent of each other, unless the column says that they are ordered (and has few
    enough of them): then they are values of a curve with a knot at each, and a missing value is a
    level apart.
    """

    column: CategoricalColumn
    reach: float = 1.0
    is_centred: bool = True

    @property
    def name(self) -> str:  # type: ignore[override]
        """Name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.column.categories)

    @functools.cached_property
    def root(self) -> NDArray[np.float64] | None:
        categories = self.column.categories
        if len(categories) > MOST_CORRELATED:
            return None
        if not self.column.ordered:
            return independent_levels(len(categories)) if self.is_centred else None
        curve = smooth_values(np.linspace(0.0, 1.0, len(self.order)), self.reach)
        return with_level_apart(curve, categories.index("")) if "" in categories else curve

    @property
    def line(self) -> NDArray[np.float64] | None:
        if not self.column.ordered or self.root is None:
            return None
        return np.linspace(0.0, 1.0, len(self.order))

    @property
    def order(self) -> NDArray[np.intp]:
        return np.array([i for i, one in enumerate(self.column.categories) if one != ""])

    def places(self, cells: ArrayLike) -> Places:
        return Places(self.column.read(cells))

    def grid(self, n: int = 101) -> NDArray[Any]:
        cells = np.empty(len(self.column.categories), dtype=object)
        cells[:] = self.column.categories
        return cells
