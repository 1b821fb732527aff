"""Encodings of columns as features, and maps of coefficients to the units of a table."""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from dpglm._calls import frames_to_the_user
from dpglm._score import Score, total
from dpglm._validation import LARGEST, SMALLEST, in_one_line, like, namespace
from dpglm.exceptions import EqualBoundsWarning
from dpglm.tables.cells import NUMBER_KINDS, check_unique, column_in_words, spelled_in
from dpglm.tables.columns import CategoricalColumn, Column

MOST_LEVELS = 200
"""Largest number of levels of a factor that is not pooled by default."""
CATEGORY_PRIOR = 2.5
"""Largest prior standard deviation of the effect of a category, for intervals."""


@final
@dataclass(frozen=True, eq=False)
class LinearUnits:
    """An affine map of coefficients, from one scale of the columns to another.

    For rows ``x`` on the user's scale and ``u`` on the scale of a fit, a linear score is
    ``x @ coef + intercept = u @ w[:-1] + w[-1]``. The map takes ``w`` to ``(coef, intercept)``, the
    intercept last.

    Parameters
    ----------
    matrix : sparse array of shape (n_coefficients + 1, n_fitted)
        ``n_fitted`` includes the fitted intercept, if any. In the last column only the last entry
        is not zero.
    shift : float, default=0.0
        Added to the intercept.
    names : tuple of str, optional
        Names of the coefficients, without the intercept.

    Notes
    -----
    Privacy: made of public facts alone.

    Examples
    --------
    An age between 16 and 90, fitted as ``u = (age - 53) / 37``:

    >>> import numpy as np
    >>> units = LinearUnits.of_columns(center=[53.0], scale=[37.0], names=["age"])
    >>> units.coefficients([0.74, 2.0]).round(3).tolist()
    [0.02, 0.94]
    >>> units.covariance(np.diag([37.0**2, 0.0])).round(3).tolist()
    [[1.0, -53.0], [-53.0, 2809.0]]
    """

    matrix: sparse.csr_array
    shift: float = 0.0
    names: tuple[str, ...] | None = None

    @classmethod
    def identity(cls, n_coefficients: int) -> LinearUnits:
        """Return the map that changes nothing.

        Parameters
        ----------
        n_coefficients : int
            Without the intercept.

        Returns
        -------
        LinearUnits
        """
        return cls.of_columns(np.zeros(n_coefficients), np.ones(n_coefficients))

    @classmethod
    def of_columns(
        cls, center: Any, scale: Any, *, intercept: float = 1.0, names: Sequence[str] | None = None
    ) -> LinearUnits:
        """Return the map for columns that were centred and scaled: ``u = (x - center) / scale``.

        Parameters
        ----------
        center, scale : array_like of shape (n_coefficients,)
            Centers and scales of the columns; scales are above 0.
        intercept : float, default=1.0
            The entry of the intercept column; 0 for a fit without intercept.
        names : sequence of str, optional
            Names of the coefficients.

        Returns
        -------
        LinearUnits
        """
        slopes = 1.0 / np.asarray(scale, dtype=np.float64)
        shifts = -np.asarray(center, dtype=np.float64) * slopes
        # As ``of_blocks``, which takes longer than a step of a small fit.
        n, moved, own = len(slopes), np.flatnonzero(shifts), [intercept] if intercept else []
        entries = np.concatenate([slopes, shifts[moved], own])
        places = np.concatenate([np.arange(n), moved, [n] * len(own)]).astype(np.int32)
        ends = np.array([*range(n + 1), len(entries)], np.int32)
        matrix = sparse.csr_array((entries, places, ends), shape=(n + 1, n + len(own)))
        return cls(matrix, names=None if names is None else tuple(names))

    @classmethod
    def of_blocks(cls, blocks: Sequence[tuple[Any, Any]], names: Sequence[str]) -> LinearUnits:
        """Return the map with a block-diagonal matrix of slopes.

        Parameters
        ----------
        blocks : sequence of pair
            The slopes of each block, dense or sparse, of shape (coefficients, fitted), and the
            contributions of its fitted coefficients to the intercept, of shape (fitted,).
        names : sequence of str
            Names of the coefficients.

        Returns
        -------
        LinearUnits
        """
        slopes = sparse.block_diag([slopes for slopes, _ in blocks])
        last = sparse.csr_array(np.concatenate([shifts for _, shifts in blocks])[np.newaxis])
        matrix = sparse.vstack([slopes, last])
        column = np.zeros((matrix.shape[0], 1))
        column[-1] = 1.0
        matrix = sparse.hstack([matrix, sparse.csr_array(column)])
        return cls(sparse.csr_array(matrix), names=tuple(names))

    def coefficients(self, w: Any) -> NDArray[np.float64]:
        """Map coefficients.

        Parameters
        ----------
        w : array_like of shape (n_fitted,) or (n_fitted, n_outputs)
            Fitted coefficients, the intercept last.

        Returns
        -------
        ndarray of shape (n_coefficients + 1,) or (n_coefficients + 1, n_outputs)
            The intercept last.
        """
        mapped: NDArray[np.float64] = self.matrix @ np.asarray(w, dtype=np.float64)
        mapped[-1] += self.shift
        return mapped

    def covariance(self, covariance: Any) -> NDArray[np.float64]:
        """Map a covariance matrix of coefficients: ``matrix @ covariance @ matrix.T``.

        Parameters
        ----------
        covariance : array_like of shape (n_fitted, n_fitted)
            Covariance of the fitted coefficients, the intercept last.

        Returns
        -------
        ndarray of shape (n_coefficients + 1, n_coefficients + 1)
        """
        half = self.matrix @ np.asarray(covariance, dtype=np.float64)
        return np.asarray((self.matrix @ half.T).T)

    def after(self, inner: LinearUnits) -> LinearUnits:
        """Return the map that applies ``inner`` first, then this one.

        Parameters
        ----------
        inner : LinearUnits
            A map to the fitted coefficients of this one.

        Returns
        -------
        LinearUnits
        """
        return LinearUnits(
            sparse.csr_array(self.matrix @ inner.matrix),
            float(self.matrix[-1, -1]) * inner.shift + self.shift,
            inner.names if self.names is None else self.names,
        )


@final
@dataclass(frozen=True)
class NamedTerm:
    """A term of a model, and the names of its coefficients in the units of the table.

    ``name`` is a column, columns with `` x `` between them, or a term of the formula; ``columns``
    are those that it reads. ``levels`` of one categorical column are its categories, each with its
    coefficient, which is None for the reference; other terms have none.
    """

    name: str
    coefficients: tuple[str, ...]
    columns: tuple[str, ...]
    levels: tuple[tuple[Any, str | None], ...] = ()


@final
@dataclass(frozen=True, eq=False)
class FeatureBlock:
    """Neighbouring features of an encoding: a term, or a part of one.

    ``norm`` bounds the L2 norm of their values in a row, and ``prior_scale`` the prior standard
    deviation of a coefficient. ``score`` returns features times weights. ``effects`` returns slopes
    and shifts in ``units``: large matrices for many levels, so only on request. ``pooled`` marks
    indicators of a factor with random effects; ``large`` marks those and indicators of many levels.
    Indicators that are shifted down by a constant have it as their ``center``.
    """

    term: NamedTerm
    features: tuple[str, ...]
    norm: float
    prior_scale: float
    score: Callable[[list[float]], Score]
    effects: Callable[[], Any]
    pooled: bool = False
    large: bool = False
    center: float | None = None


Reader: TypeAlias = Callable[[str], NDArray[Any]]
"""Function from a column's name to its cells."""


class Encoding(abc.ABC):
    """A public map from the cells of a row to its features; final subclasses below."""

    columns: tuple[Column, ...]

    @property
    @abc.abstractmethod
    def blocks(self) -> tuple[FeatureBlock, ...]:
        """All features, in order."""

    @functools.cached_property
    def column_names(self) -> tuple[str, ...]:
        """Names of the read columns, in the order of the schema."""
        used = {name for one in self.blocks for name in one.term.columns}
        return tuple(column.name for column in self.columns if column.name in used)

    @functools.cached_property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for one in self.blocks for name in one.features)

    @functools.cached_property
    def prior_scales(self) -> tuple[float, ...]:
        """Largest prior standard deviation of each feature's coefficient; infinite by default."""
        return tuple(one.prior_scale for one in self.blocks for _ in one.features)

    @functools.cached_property
    def row_norm(self) -> float:
        """Bound on the L2 norm of the features of a row."""
        return math.sqrt(math.fsum(one.norm**2 for one in self.blocks))

    @functools.cached_property
    def named_terms(self) -> tuple[NamedTerm, ...]:
        """The terms, with names of coefficients as in ``units``."""
        found: dict[str, NamedTerm] = {}
        for one in self.blocks:
            before = found[one.term.name].coefficients if one.term.name in found else ()
            every = (*before, *one.term.coefficients)
            found[one.term.name] = dataclasses.replace(one.term, coefficients=every)
        return tuple(found.values())

    @functools.cached_property
    def units(self) -> LinearUnits:
        """The map from coefficients of features to effects in the table's units."""
        return LinearUnits.of_blocks(
            [one.effects() for one in self.blocks],
            names=[name for one in self.blocks for name in one.term.coefficients],
        )

    @property
    def has_intercept(self) -> bool:
        """Whether the model has an intercept."""
        return True

    @functools.cached_property
    def pooled(self) -> Mapping[str, tuple[int, int]]:
        """First feature of each pooled factor, and the one after its last, by name."""
        return {one.term.name: ends for one, ends in self._ends if one.pooled}

    @functools.cached_property
    def large(self) -> Mapping[str, tuple[int, int]]:
        """The same for pooled factors and those with many levels, if features are indicators."""
        return {one.term.name: ends for one, ends in self._ends if one.large}

    @functools.cached_property
    def indicators(self) -> tuple[tuple[int, int, float], ...]:
        """First indicator of each factor, the feature after its last, and their ``center``."""
        return tuple((*ends, one.center) for one, ends in self._ends if one.center is not None)

    @property
    def _ends(self) -> Iterator[tuple[FeatureBlock, tuple[int, int]]]:
        sizes = (len(one.features) for one in self.blocks)
        ends = itertools.pairwise(itertools.accumulate(sizes, initial=0))
        return zip(self.blocks, ends, strict=True)

    @abc.abstractmethod
    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        """Write features into ``out``, zeros of shape (n, len(feature_names)).

        Privacy: each row is encoded by itself, to features of norm at most ``row_norm``, for any
        cells; cells that do not match the schema are an error.
        """

    def score(self, weights: NDArray[np.float64]) -> Score:
        """Return the features times ``weights``, as an expression of the cells."""
        parts = [one.score(weights[start:stop].tolist()) for one, (start, stop) in self._ends]
        return total(parts)

    @abc.abstractmethod
    def encode_sparse(self, cells: Reader, n_rows: int, dtype: str = "float64") -> sparse.csr_array:
        """Return the features of rows, of shape (n_rows, len(feature_names)).

        Privacy: see ``encode``.
        """


def indicators(places: NDArray[np.intp], count: int, dtype: str) -> sparse.csr_array:
    """Return indicators of places below ``count``, of shape (n, count); others have none."""
    rows = np.flatnonzero(places < count)
    entries = np.ones(len(rows), dtype=dtype), (rows, places[rows])
    return sparse.csr_array(entries, shape=(len(places), count))


@final
@dataclass(frozen=True, eq=False)
class ColumnEncoding(Encoding):
    """Encodes each column separately."""

    columns: tuple[Column, ...]

    @functools.cached_property
    def blocks(self) -> tuple[FeatureBlock, ...]:
        found = []
        for one in self.columns:
            names, levels = one.effect_names, list[tuple[Any, str | None]]()
            pooled, large, center = False, False, None
            if isinstance(one, CategoricalColumn) and not one.cyclic:
                others, reference, pooled = iter(names), one.reference, one.pooled
                for level in one.categories:
                    levels.append((level, None if level == reference else next(others)))
                large = pooled or (reference is None and len(names) > MOST_LEVELS)
                center = one.center
            scale = CATEGORY_PRIOR if isinstance(one, CategoricalColumn) else math.inf
            term = NamedTerm(one.name, names, (one.name,), tuple(levels))
            own = one.feature_names, one.norm, scale, one.score, one.effects
            found.append(FeatureBlock(term, *own, pooled, large, center))
        return tuple(found)

    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        start = 0
        for column in self.columns:
            # One column at a time, since text takes much more memory than its encoding.
            stop = start + len(column.feature_names)
            column.encode(cells(column.name), out[:, start:stop])
            start = stop

    def encode_sparse(self, cells: Reader, n_rows: int, dtype: str = "float64") -> sparse.csr_array:
        parts = []
        for column in self.columns:
            if column.name in self.large:
                places = column.read(cells(column.name), gaps=True)
                parts.append(indicators(places, len(column.feature_names), dtype))
            else:
                out = np.zeros((n_rows, len(column.feature_names)), dtype=dtype)
                column.encode(cells(column.name), out)
                parts.append(sparse.csr_array(out))
        return sparse.csr_array(sparse.hstack(parts, "csr"))


# Columns of numbers within bounds, as users write these.


@final
@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """Clips columns to public bounds in the user's units, and maps them to [-1, 1].

    Columns are centred where an intercept makes up for it and zeros need not stay zeros
    (``DataSpec.centers_columns``); otherwise they are divided by the largest magnitude that their
    bounds allow.
    """

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def center(self, *, centered: bool) -> NDArray[np.float64]:
        """Middle of each column's bounds; 0 where columns are not centred."""
        return self.low / 2.0 + self.high / 2.0 if centered else np.zeros(len(self.low))

    def scale(self, *, centered: bool) -> NDArray[np.float64]:
        """Half the width of each column's bounds, or their largest magnitude; 1 where it is zero.

        The latter where columns are not centred.
        """
        half = self.high / 2.0 - self.low / 2.0
        reach = half if centered else np.maximum(np.abs(self.low), np.abs(self.high))
        return np.where(reach > 0.0, reach, 1.0)

    def clip(self, X: Any) -> Any:
        """Return rows with every column clipped to its bounds, in a new array."""
        low, high = like(X, self.low, X.dtype), like(X, self.high, X.dtype)
        clipped: Any = namespace(X).clip(X, low, high)
        return clipped

    def clip_sparse(self, X: sparse.csr_array) -> sparse.csr_array:
        """Return rows with every stored value clipped to its column's bounds."""
        data = np.clip(X.data, self.low[X.indices], self.high[X.indices]).astype(X.dtype)
        return sparse.csr_array((data, X.indices, X.indptr), shape=X.shape)

    def clip_matrix(self, X: Any) -> Any:
        """Return dense or sparse rows with their values clipped."""
        is_sparse: bool = sparse.issparse(X)
        if not is_sparse:
            return self.clip(X)
        # Duplicate entries are one value, which must be clipped as a whole.
        rows = sparse.csr_array(X, copy=True)
        rows.sum_duplicates()
        return self.clip_sparse(rows)

    def apply(self, X: Any, *, centered: bool = True) -> Any:
        """Return clipped and scaled rows, in a new array of the same dtype."""
        scaled = self.clip(X)
        if centered:
            scaled -= like(X, self.center(centered=True), X.dtype)
        scaled /= like(X, self.scale(centered=centered), X.dtype)
        return scaled

    def apply_sparse(self, X: sparse.csr_array) -> sparse.csr_array:
        """Return clipped and scaled rows that are not centred, so that zeros stay zeros."""
        clipped = self.clip_sparse(X)
        clipped.data /= self.scale(centered=False)[X.indices].astype(X.dtype)
        return clipped


def column_scaling(
    bounds: tuple[ArrayLike, ArrayLike],
    n_features: int,
    names: Sequence[str] | NDArray[Any] | None = None,
) -> ColumnScaling:
    """Check lower and upper bounds, scalars or of shape (n_features,), and return the scaling."""
    try:
        low, high = (np.asarray(bound, dtype=np.float64) for bound in bounds)
        low, high = (np.array(np.broadcast_to(b, (n_features,))) for b in (low, high))
    except (TypeError, ValueError):
        raise ValueError(
            "feature_bounds must be a pair (low, high) of numbers or of arrays of shape "
            f"({n_features},), got {bounds!r}"
        ) from None
    within = (low <= high) & (np.maximum(abs(low), abs(high)) <= LARGEST)
    apart = (low == high) | (high - low >= SMALLEST)
    for allowed, what in (
        (within, f"within +-{LARGEST:g} with low <= high"),
        (apart, f"at least {SMALLEST:g} apart, or equal,"),
    ):
        if not allowed.all():
            first = int(np.argmin(allowed))
            raise ValueError(
                f"feature_bounds must be {what} in every column, got {float(low[first])!r} and "
                f"{float(high[first])!r} for {column_in_words(names, first)}"
            )
    return ColumnScaling(low, high)


FeatureBounds: TypeAlias = (
    tuple[ArrayLike, ArrayLike]
    | Sequence[tuple[float, float]]
    | Mapping[str, tuple[float, float]]
    | Mapping[int, tuple[float, float]]
)
"""Bounds of columns, as users write them: see ``read_feature_bounds``."""
_SHOWN = 5


def read_feature_bounds(
    bounds: FeatureBounds, n_features: int, names: Sequence[str] | NDArray[Any] | None = None
) -> ColumnScaling:
    """Read bounds of columns, in any of the forms of ``FeatureBounds``.

    They are a pair (low, high) of numbers or of arrays of shape (n_features,); or one pair for
    each column, in order; or a mapping from every column's name, or its number, to its pair.
    ``names`` are the columns' names.
    """
    if isinstance(bounds, Mapping):
        return column_scaling(_by_column(bounds, n_features, names), n_features, names)
    # A matrix is read as the list of its rows.
    rows = bounds if isinstance(bounds, list | tuple) else np.asarray(bounds).tolist()
    rows = rows if isinstance(rows, list | tuple) else ()
    is_pair = len(rows) == 2 and all(_shape(row) in ((), (1,), (n_features,)) for row in rows)
    is_by_column = len(rows) == n_features and all(_shape(row) == (2,) for row in rows)
    if not is_pair and not is_by_column:
        raise ValueError(
            "feature_bounds must be a mapping from column to (low, high), a pair (low, high) of "
            f"numbers or of arrays of shape ({n_features},), or a sequence of {n_features} such "
            f"pairs, got {in_one_line(bounds)}"
        )
    if is_pair and is_by_column and all(isinstance(row, list | tuple) for row in rows):
        square = np.asarray(rows, dtype=np.float64)
        if not np.array_equal(square, square.T):
            raise ValueError(
                "feature_bounds of two columns can be read as (lows, highs) or as one (low, high) "
                f"for each, got {in_one_line(bounds)}; write {{0: (low, high), 1: (low, high)}} "
                "with names in place of numbers where columns have them, or (numpy.array(lows), "
                "numpy.array(highs))"
            )
    if is_pair:
        return column_scaling((rows[0], rows[1]), n_features, names)
    low, high = np.asarray(rows, dtype=np.float64).T
    return column_scaling((low, high), n_features, names)


def check_feature_bounds(bounds: FeatureBounds, n_features: int) -> None:
    """Check bounds before any row is seen, when column names are unknown."""
    keys = list(bounds) if isinstance(bounds, Mapping) else []
    names = [str(key) for key in keys if isinstance(key, str)]
    if names and len(keys) != n_features:
        raise ValueError(
            f"feature_bounds must have one (low, high) for each of {n_features} columns, got "
            f"{len(keys)}"
        )
    read_feature_bounds(bounds, n_features, names or None)


def warn_of_equal_bounds(
    scaling: ColumnScaling, names: Sequence[str] | NDArray[Any] | None = None
) -> None:
    """Warn of columns with equal bounds, where every row gets the same value."""
    equal = np.flatnonzero(scaling.low == scaling.high).tolist()
    if equal:
        shown = ", ".join(column_in_words(names, column) for column in equal[:_SHOWN])
        more = f" and {len(equal) - _SHOWN} more" if len(equal) > _SHOWN else ""
        warnings.warn(
            f"feature_bounds has low equal to high for {shown}{more}: every row is given this one "
            "value there, whatever it holds",
            EqualBoundsWarning,
            stacklevel=frames_to_the_user(),
        )


def _by_column(
    bounds: Mapping[Any, Any], n_features: int, names: Sequence[str] | NDArray[Any] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Put the pairs of a mapping into the order of the columns."""
    by_number = all(isinstance(key, int | np.integer) for key in bounds)
    if names is None and not by_number:
        raise ValueError(
            f"feature_bounds must have the numbers 0 to {n_features - 1} of columns as keys where "
            f"X lacks column names, got {list(bounds)[:_SHOWN]!r}"
        )
    columns = list(range(n_features)) if by_number or names is None else list(names)
    texts = [key for key in bounds if isinstance(key, str)]
    check_unique(texts, "column of feature_bounds")
    spelled = spelled_in(texts, columns)
    bounds = {spelled.get(key, key): pair for key, pair in bounds.items()}
    missing = [column for column in columns if column not in bounds]
    unknown = [key for key in bounds if key not in set(columns)]
    if missing or unknown:
        raise ValueError(
            "feature_bounds must have one (low, high) for each column; "
            + "; ".join(
                f"{what}: {keys[:_SHOWN]!r}" + (" and others" if len(keys) > _SHOWN else "")
                for what, keys in (("without bounds", missing), ("not in X", unknown))
                if keys
            )
        )
    for column in columns:
        if _shape(bounds[column]) != (2,):
            raise ValueError(
                f"feature_bounds[{column!r}] must be a pair (low, high) of numbers, got "
                f"{in_one_line(bounds[column])}"
            )
    low, high = np.array([bounds[column] for column in columns], dtype=np.float64).T
    return low, high


def _shape(value: Any) -> tuple[int, ...] | None:
    """Shape of a value as an array of numbers; None if it is not one, or has text in it."""
    try:
        shape = np.asarray(value, dtype=np.float64).shape
    except (TypeError, ValueError):
        return None
    cells = np.asarray(value)
    is_number = cells.dtype.kind in NUMBER_KINDS or not any(
        isinstance(one, str | bytes) for one in np.asarray(value, dtype=object).flat
    )
    return shape if is_number else None
