"""Terms of additive models: axes, prior covariances of their values, and features."""

from __future__ import annotations

import abc
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm._score import Score, as_score, cell, function, piecewise
from dpglm.tables.columns import DENSER, CategoricalColumn, NumericColumn

_LEAST_GAP = 1e-6
"""Between knots, so that the covariance of their values has a root."""


def smooth_values(places: NDArray[np.float64], reach: float) -> NDArray[np.float64]:
    """Return a root of the prior covariance of a curve's values at increasing ``places`` in [0, 1].

    The curve is an Ornstein-Uhlenbeck process, in which values at distance h have correlation
    ``exp(-h / reach)``, less its mean over the places. With a small reach, values of neighbouring
    knots are almost independent; with reach 1 the process is close to Brownian motion, a sum of
    hats from coarse to fine with variances that halve from level to level (Levy and Ciesielski).
    Beyond 1 it is the process of reach 1 with ``1 / reach`` of its variance, plus a random line
    with the rest: a straight line in the limit. The root has shape (count, count - 1); columns sum
    to zero, and the largest row norm is 1. For two places it is the linear encoding.
    """
    if len(places) == 2:
        return np.array([[-1.0], [1.0]])
    gaps = np.maximum(np.diff(places), _LEAST_GAP)
    at = np.concatenate([[0.0], np.cumsum(gaps) / gaps.sum()])
    steps = np.abs(np.subtract.outer(at, at))
    # Subtracting 1 changes nothing once rows and columns are centred, and rounds less.
    covariance = np.expm1(-steps / min(reach, 1.0)) if reach else np.eye(len(at))
    if reach > 1.0:
        covariance = covariance / reach + (1.0 - 1.0 / reach) * np.outer(at, at)
    root = _root(covariance)
    longest: float = np.sqrt((root * root).sum(axis=1).max())
    return root / longest


def independent_levels(count: int) -> NDArray[np.float64]:
    """Return a root of the covariance of independent values of variance 1, centred at their mean.

    It has shape (count, count - 1), and every row has squared norm ``1 - 1 / count``.
    """
    return _root(np.eye(count))


def with_level_apart(root: NDArray[np.float64], place: int) -> NDArray[np.float64]:
    """Insert an independent value of variance 1 into a root."""
    rows = np.insert(root, place, 0.0, axis=0)
    apart = np.zeros((len(rows), 1))
    apart[place] = 1.0
    return np.hstack([rows, apart])


def _root(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a root of the covariance of centred values.

    It is a Cholesky root for all values but the last, which is minus their sum; unlike
    eigenvectors it is the same on every machine.
    """
    count = len(covariance)
    center = np.eye(count) - 1.0 / count
    first = np.linalg.cholesky((center @ covariance @ center)[:-1, :-1])
    return np.vstack([first, -first.sum(axis=0)])


MOST_CORRELATED = 200
"""Largest number of levels that are centred; more levels are independent."""


@final
@dataclass(frozen=True, eq=False)
class Places:
    """Positions of rows among an axis's values: at one of them, or between two.

    ``first`` is the position of a value, and ``after`` the share of the next value, from 0 to 1;
    None for rows at values.
    """

    first: NDArray[np.intp]
    after: NDArray[np.float64] | None = None

    def __getitem__(self, rows: slice) -> Places:
        return Places(self.first[rows], None if self.after is None else self.after[rows])

    def weights(self, count: int) -> sparse.csr_array:
        """Return the share of each value in each row, of shape (n, count).

        Shares are at least 0 and sum to 1 in every row.
        """
        n = len(self.first)
        if self.after is None:
            # A value beyond the last one is that of an unlisted level.
            entries, columns = 1.0 * (self.first < count), np.minimum(self.first, count - 1)
        else:
            entries = np.column_stack([1.0 - self.after, self.after]).ravel()
            # The share beyond the last value is 0.
            following = np.minimum(self.first + 1, count - 1)
            columns = np.column_stack([self.first, following]).ravel()
        pointers = np.arange(0, len(entries) + 1, len(entries) // n if n else 1)
        return sparse.csr_array((entries, columns, pointers), shape=(n, count))

    def averages(self, root: NDArray[np.float64], steps: NDArray[np.float64]) -> Any:
        """Return ``weights @ root``, given the differences ``steps`` of its rows."""
        # Positions are known to be valid.
        rows = np.take(root, self.first, axis=0, mode="clip")
        if self.after is not None:
            further = np.take(steps, self.first, axis=0, mode="clip")
            further *= self.after[:, np.newaxis]
            rows += further
        return rows


class Axis(abc.ABC):
    """A column of a term, with the values of its effect; final subclasses below."""

    column: NumericColumn | CategoricalColumn

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    @abc.abstractmethod
    def labels(self) -> tuple[str, ...]:
        """Names of the effect's values, at knots or levels."""

    @property
    def pooled(self) -> bool:
        """Whether the values are random effects of levels."""
        return False

    @property
    @abc.abstractmethod
    def root(self) -> NDArray[np.float64] | None:
        """Root of the covariance of these values, of shape (n_values, n_features).

        None for the identity.
        """

    @property
    @abc.abstractmethod
    def line(self) -> NDArray[np.float64] | None:
        """Values of a straight line at the ordered values; None without an order."""

    @property
    @abc.abstractmethod
    def order(self) -> NDArray[np.intp]:
        """Positions of the ordered values; their features come first."""

    @property
    def curve(self) -> NDArray[np.float64]:
        """The part of ``root`` for the ordered values."""
        assert self.root is not None
        return self.root[self.order, : len(self.order) - 1]

    @abc.abstractmethod
    def places(self, cells: ArrayLike) -> Places:
        """Return the position of each row. Errors name the column, the row and the remedy.

        Privacy: each position depends on the row's own cell alone.
        """

    @abc.abstractmethod
    def score(self, values: Sequence[Score], gap: Score | None = None) -> Score:
        """Return the effect of a cell: the average of ``values`` with its ``weights``.

        ``gap`` is the effect of missing cells, which by default have a value of their own.
        """

    @abc.abstractmethod
    def grid(self, n: int = 101) -> NDArray[Any]:
        """Return cells for drawing an effect: at least n numbers with the knots, or levels."""

    @property
    def n_features(self) -> int:
        """Number of features."""
        return len(self.labels) if self.root is None else self.root.shape[1]

    @functools.cached_property
    def norm(self) -> float:
        """Bound on the L2 norm of features, which are averages of rows of ``root``."""
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
    """A number, with an effect that is linear between knots and constant beyond the ends.

    With ``scale="log"`` it is linear on the scale of ``NumericColumn.stretched``. Missing cells, if
    the column allows them, are a separate level.
    """

    column: NumericColumn
    segments: int
    reach: float

    @functools.cached_property
    def knots(self) -> NDArray[np.float64]:
        """The knots in the column's units, including the bounds."""
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
        # On the column's scale.
        return self.column.stretched(self.knots)

    @property
    def order(self) -> NDArray[np.intp]:
        return np.arange(len(self.knots))

    def places(self, cells: ArrayLike) -> Places:
        numbers = self.column.read(cells, gaps=True)
        gaps = np.isnan(numbers)
        stretched = self.column.stretched(np.where(gaps, self.column.low, numbers))
        last = len(self.knots) - 1
        places = np.interp(stretched, self.line, np.arange(last + 1.0)).clip(0.0, last)
        before = np.minimum(places.astype(np.intp), last - 1)
        after = places - before
        before[gaps], after[gaps] = last + 1, 0.0
        return Places(before, after)

    def score(self, values: Sequence[Score], gap: Score | None = None) -> Score:
        column, x = self.column, cell(self.name)
        # A coordinate in which the effect is linear between knots, and its values there.
        at, places = x, self.knots
        if column.scale == "log" and column.low > 0.0:
            at, places = function("log", x), np.log(places)
        elif column.scale == "log":
            rate = DENSER / (column.high - column.low)
            at = function("log", (x - column.low) * rate + 1.0)
            places = np.log1p((places - column.low) * rate)
        pieces = [
            _between(at, places[i : i + 2].tolist(), values[i], values[i + 1])
            for i in range(len(places) - 1)
        ]
        last = len(places) - 1
        inside = piecewise(x, self.knots[1:-1].tolist(), pieces)
        return column.within(values[0], inside, values[last], values[-1] if gap is None else gap)

    def grid(self, n: int = 101) -> NDArray[Any]:
        even = self.column.unstretched(np.linspace(0.0, 1.0, n))
        return np.unique(np.concatenate([even, self.knots]).clip(self.knots[0], self.knots[-1]))


def _between(at: Score, ends: list[float], first: Score, last: Score) -> Score:
    """Return the line from one value to another, which has no products where both are numbers."""
    low, high = ends
    if first.known is not None and last.known is not None:
        slope = (last.known - first.known) / (high - low)
        return (at - low) * slope + first if slope else first
    share = (at - low) / (high - low)
    return first * (1.0 - share) + last * share


@final
@dataclass(frozen=True, eq=False)
class CategoricalAxis(Axis):
    """A level for each category; centred levels leave their mean to the intercept.

    Levels are independent. Up to 200 ordered levels are values of a curve with a knot at each, and
    a missing value is a separate level.
    """

    column: CategoricalColumn
    reach: float = 1.0
    is_centred: bool = True

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category}" for category in self.column.categories)

    @property
    def pooled(self) -> bool:
        return self.column.pooled

    @functools.cached_property
    def root(self) -> NDArray[np.float64] | None:
        categories = self.column.categories
        if len(categories) > MOST_CORRELATED or self.pooled:
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
        return Places(self.column.read(cells, gaps=True))

    def score(self, values: Sequence[Score], gap: Score | None = None) -> Score:
        return self.column.lookup(values)

    def grid(self, n: int = 101) -> NDArray[Any]:
        cells = np.empty(len(self.column.categories), dtype=object)
        cells[:] = self.column.categories
        return cells


@final
@dataclass(frozen=True, eq=False)
class Term:
    """An effect of one or two columns, and the positions of its features in the model.

    ``features`` is a slice, or an array of positions. A ``stated`` matrix maps coefficients to the
    effect's values in models without prior covariances.
    """

    axes: tuple[Axis, ...]
    features: Any
    stated: Any = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(axis.name for axis in self.axes)

    @property
    def name(self) -> str:
        """Name of the term."""
        return " x ".join(self.columns)

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of the term's features in any row."""
        return math.prod(axis.norm for axis in self.axes)

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the effect's values, at knots, levels, or their combinations."""
        return tuple(
            ", ".join(parts) for parts in itertools.product(*(a.labels for a in self.axes))
        )

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        if self.root is None:
            return self.labels
        return tuple(f"{self.name}[{i}]" for i in range(self.features.stop - self.features.start))

    @functools.cached_property
    def root(self) -> Any:
        """Map from coefficients to the effect's values, of shape (n_values, n_features).

        Dense or sparse; None for the identity.
        """
        roots: list[Any] = [axis.root for axis in self.axes]
        if all(root is None for root in roots):
            return None
        if all(root is not None for root in roots):
            return functools.reduce(np.kron, roots)
        for i, axis in enumerate(self.axes):
            roots[i] = sparse.eye_array(len(axis.labels)) if roots[i] is None else roots[i]
        return sparse.csr_array(functools.reduce(sparse.kron, roots))

    @property
    def matrix(self) -> Any:
        """Map from coefficients to the values, dense or sparse."""
        if self.stated is not None:
            return self.stated
        return sparse.eye_array(len(self.labels)) if self.root is None else self.root

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values along each column."""
        return tuple(len(axis.labels) for axis in self.axes)

    def score(self, weights: Sequence[float]) -> Score:
        """Return the effect at coefficients, as an expression of the cells."""
        values = np.array(weights) if self.root is None else np.asarray(self.root @ weights)
        return _surface(self.axes, values.reshape(self.shape))

    def basis(self, *points: ArrayLike) -> NDArray[np.float64]:
        """Return features at points, so that the effect is ``basis @ coefficients``.

        ``points`` are cells, one array of shape (n,) per column; the result has the shape
        ``(n, n_features of the term)``.
        """
        if len(points) != len(self.axes):
            raise ValueError(
                f"points must be given for each of the columns {list(self.columns)}, got "
                f"{len(points)}"
            )
        places = [axis.places(one) for axis, one in zip(self.axes, points, strict=True)]
        return as_dense(self.at(*places))

    def at(self, *places: Places) -> Any:
        """Return the features of rows at positions on each axis; sparse for many levels."""
        parts = [axis.features(one) for axis, one in zip(self.axes, places, strict=True)]
        return functools.reduce(_products, parts)


def _surface(axes: Sequence[Axis], values: NDArray[np.float64]) -> Score:
    if not axes:
        return as_score(float(values))
    return axes[0].score([_surface(axes[1:], part) for part in values])


def as_dense(features: Any) -> NDArray[np.float64]:
    """Return features of rows, which may be sparse, as a dense array."""
    dense: NDArray[np.float64] = features.toarray() if _is_sparse(features) else features
    return dense


def _is_sparse(features: Any) -> bool:
    return sparse.issparse(features)


def _products(first: Any, second: Any) -> Any:
    """Return all products of corresponding rows."""
    if not (_is_sparse(first) or _is_sparse(second)):
        return (first[:, :, np.newaxis] * second[:, np.newaxis, :]).reshape(len(first), -1)
    # Khatri-Rao products of the transposes.
    one, other = sparse.csc_array(first), sparse.csc_array(second)
    wide = sparse.kron(one, np.ones((1, other.shape[1])), format="csr")
    return wide.multiply(sparse.kron(np.ones((1, one.shape[1])), other, format="csr")).tocsr()
