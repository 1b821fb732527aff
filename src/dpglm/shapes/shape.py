"""The effect of one term: its values, its confidence band, and edits of it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._calls import checked
from dpglm._codec import Matrix, Vector
from dpglm._validation import check_real, in_one_line
from dpglm.inference.comparisons import largest_errors, quantile, root_of
from dpglm.tables.additive_terms import Axis, CategoricalAxis, NumericAxis, Term, as_dense
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.schema import Schema

_PIECES, _PIECES_OF_PAIRS = 60, 16
"""Pieces in which effects of a formula's numeric columns are shown."""


def cells_of(axis: Axis) -> list[Any]:
    """Return the knots or levels of an axis; None for missing values."""
    cells: list[Any] = axis.grid(0).tolist()
    return cells + [None] * (len(axis.labels) - len(cells))


def weights_of(term: Term, means: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return weights of all values of a term, which sum to 1.

    They are shares of rows that agree with the ``means`` of features. Without these, the weights of
    all values except missing ones are equal.
    """
    if means is not None:
        matrix, found = sparse.csc_array(term.matrix), np.append(means[term.features], 1.0)
        full = sparse.hstack([matrix, sparse.csc_array(np.ones((matrix.shape[0], 1)))]).T
        if matrix.shape[0] > _MOST_JOINT:
            return on_simplex(sparse.linalg.lsmr(full, found)[0])
        return on_simplex(np.linalg.lstsq(full.toarray(), found)[0])
    weights = np.ones(1)
    for axis in term.axes:
        present = np.array([cell is not None for cell in cells_of(axis)], dtype=np.float64)
        weights = np.outer(weights, present / present.sum()).ravel()
    return weights


def on_simplex(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the nearest shares that are at least 0 and sum to 1, in least squares."""
    ordered = np.sort(shares)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1.0, len(shares) + 1.0)
    level = float(excess[np.flatnonzero(ordered > excess)[-1]])
    return np.asarray(np.maximum(shares - level, 0.0))


def terms_of(schema: Schema) -> tuple[Term, ...]:
    """Return the terms of an additive or linear model, or of a formula.

    All terms of a formula that read the same column, or the same two, are one term. A ValueError
    refuses terms of three columns.
    """
    if schema.additive is not None:
        return schema.additive_encoding.terms
    if schema.formula is not None:
        return tuple(_terms_of_formula(schema))
    terms: list[Term] = []
    start = 0
    for column in schema.plain_columns:
        stop = start + len(column.feature_names)
        axis = _axis(column)
        matrix = np.zeros((len(axis.labels), stop - start))
        cells = cells_of(axis)
        column.encode(["" if cell is None else cell for cell in cells], matrix)
        terms.append(Term((axis,), slice(start, stop), matrix))
        start = stop
    return tuple(terms)


def _terms_of_formula(schema: Schema) -> Iterator[Term]:
    places: dict[tuple[str, ...], list[int]] = {}
    for term in schema.encoding.named_terms:
        if len(term.columns) > 2:
            raise ValueError(
                f"shapes are of one or two columns, and the formula's term {term.name!r} reads "
                f"{len(term.columns)}"
            )
        own = [schema.feature_names.index(name) for name in term.coefficients]
        places.setdefault(term.columns, []).extend(own)
    columns = {one.name: one for one in schema.columns}
    for names, features in places.items():
        finely = _PIECES if len(names) == 1 else _PIECES_OF_PAIRS
        axes = tuple(_axis(columns[name], finely) for name in names)
        points = [[("" if cell is None else cell) for cell in cells_of(axis)] for axis in axes]
        rows = list(itertools.product(*points))
        # Other columns do not matter, as long as they are valid.
        table = {one.name: [cells_of(_axis(one))[0]] * len(rows) for one in schema.columns}
        table |= {name: [row[place] for row in rows] for place, name in enumerate(names)}
        chosen = np.array(features, dtype=np.intp)
        yield Term(axes, chosen, schema.encode(table)[:, chosen])


def _axis(column: Column, segments: int = 1) -> Axis:
    if isinstance(column, CategoricalColumn):
        return CategoricalAxis(column)
    assert isinstance(column, NumericColumn)
    # Models without curves ignore knots and scale.
    straight = NumericColumn(column.name, column.low, column.high, column.missing)
    return NumericAxis(straight, segments, reach=0.0)


@final
@dataclass(frozen=True, eq=False)
class Shape:
    """The effect of a column, or of two columns together, on a model's linear score.

    It is linear between knots and constant beyond the bounds.

    Parameters
    ----------
    axes : tuple of Axis
        One or two columns.
    outputs : tuple of str
        Name of each score: the target, or classes.
    values : ndarray of shape (n_outputs, n_values) or (n_outputs, n_values, n_others)
        Effects at the knots or levels of each column, centred at their mean by ``weights``. A level
        for missing values comes last.
    weights : ndarray of shape (n_values,) or (n_values, n_others)
        Shares of rows near each knot, or with each level, estimated from released means; equal ones
        for all but missing values if no means were released. They sum to 1.
    band : ndarray of shape (n_outputs, n_values, 2) or (n_outputs, n_values, n_others, 2), optional
        Lower and upper ends of the band.
    edit : str, default=""
        Edits after the fit, in words.

    Notes
    -----
    Privacy: computed from released coefficients and means, and public knots.
    """

    axes: tuple[Axis, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]
    band: NDArray[np.float64] | None = None
    edit: str = ""

    @property
    def term(self) -> str:
        """Name of the column, or of both, joined by an x."""
        return " x ".join(axis.name for axis in self.axes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(axis.name for axis in self.axes)

    @property
    def points(self) -> tuple[list[Any], ...]:
        """Knots or levels of each column; None for missing values."""
        return tuple(cells_of(axis) for axis in self.axes)

    @property
    def importance(self) -> float:
        """Standard deviation of the values by ``weights``, largest over outputs.

        A single noisy level with few rows does not lead.
        """
        flat, weights = self.values.reshape(len(self.outputs), -1), self.weights.ravel()
        around = flat - (flat @ weights)[:, np.newaxis]
        return math.sqrt(float((around**2 @ weights).max()))

    @checked
    def through(self, points: Mapping[Any, float]) -> Shape:
        """Return the shape through given points.

        Parameters
        ----------
        points : mapping from number, or level, to float
            Effects. Effects of numbers replace the whole curve, which is then linear between the
            points (on the column's scale), constant beyond, and evaluated at the knots. Effects of
            levels, and of None for missing values, replace single values.

        Raises
        ------
        ValueError
            If there are several outputs or columns, or a point does not belong to the column.
        """
        if len(self.axes) > 1 or len(self.outputs) > 1:
            raise ValueError(f"points require one column and one output, {self.term!r} has more")
        if not points:
            raise ValueError(f"points must map numbers or levels to effects, got {points!r}")
        (axis,), (cells,) = self.axes, self.points
        effects = {key: check_real("points", value) for key, value in points.items()}
        values = self.values.copy()
        if isinstance(axis, NumericAxis):
            column = axis.column
            numbers = {
                check_real("points", key, least=column.low, most=column.high): effects.pop(key)
                for key in points
                if key is not None
            }
            if numbers:
                x = np.array(sorted(numbers))
                y = np.array([numbers[one] for one in x])
                curve = np.interp(column.stretched(axis.knots), column.stretched(x), y)
                values[0, : len(curve)] = curve
        for key, effect in effects.items():
            if key not in cells:
                raise ValueError(
                    f"points must be levels of column {axis.name!r}, {in_one_line(cells)}, got "
                    f"{key!r}"
                )
            values[0, cells.index(key)] = effect
        return self._edited(values, f"through {in_one_line(dict(points))}")

    def flattened(self, *between: Any) -> Shape:
        """Replace some values by their mean.

        Parameters
        ----------
        *between : two numbers, or levels
            The ends of an interval of knots, or levels; by default all values.

        Raises
        ------
        ValueError
            If there are several columns, or nothing is selected.
        """
        if not between:
            return self._edited(np.zeros_like(self.values), "flat")
        if len(self.axes) > 1:
            raise ValueError(f"{self.term!r} has two columns and can only be flattened as a whole")
        (axis,), (cells,) = self.axes, self.points
        if isinstance(axis, NumericAxis):
            low, high = (check_real("between", between[end]) for end in (0, -1))
            chosen = [cell is not None and low <= cell <= high for cell in cells]
        else:
            chosen = [cell in between for cell in cells]
        if not any(chosen) or (isinstance(axis, NumericAxis) and len(between) != 2):
            raise ValueError(
                f"between must be two numbers with knots between them, or levels of column "
                f"{axis.name!r}, {in_one_line(cells)}, got {in_one_line(list(between))}"
            )
        values = self.values.copy()
        values[:, chosen] = values[:, chosen].mean(axis=1, keepdims=True)
        return self._edited(values, f"flat between {in_one_line(list(between))}")

    def monotone(self, direction: int) -> Shape:
        """Return the nearest monotone shape, in least squares at the knots.

        Parameters
        ----------
        direction : {1, -1}
            1: never falls; -1: never rises.

        Raises
        ------
        ValueError
            If there are several columns, or the column is neither numeric nor ordered.
        """
        if direction not in (1, -1):
            raise ValueError(f"direction must be 1 or -1, got {direction!r}")
        if len(self.axes) > 1 or self.axes[0].line is None:
            raise ValueError(f"monotone needs one numeric or ordered column, got {self.term!r}")
        from sklearn.isotonic import isotonic_regression

        values = self.values.copy()
        order = self.axes[0].order
        for row in values:
            row[order] = isotonic_regression(row[order], increasing=direction > 0)
        return self._edited(values, "never falls" if direction > 0 else "never rises")

    def to_dict(self) -> dict[str, list[Any]]:
        """Return a table of the points.

        Returns
        -------
        dict from str to list
            ``term``, ``value``, ``other value``, ``output``, ``effect``, and the ends of the band,
            ``low`` and ``high``.
        """
        grid = list(np.ndindex(self.values.shape))
        band, points = self.band, self.points
        table: dict[str, list[Any]] = {"term": [self.term] * len(grid)}
        for place in range(2):
            known = place < len(self.axes)
            name = "value" if place == 0 else "other value"
            table[name] = [points[place][one[1 + place]] if known else None for one in grid]
        table["output"] = [self.outputs[one[0]] for one in grid]
        table["effect"] = [float(self.values[one]) for one in grid]
        for place, name in enumerate(("low", "high")):
            table[name] = [math.nan if band is None else float(band[(*one, place)]) for one in grid]
        return table

    def _edited(self, values: NDArray[np.float64], words: str) -> Shape:
        words = f"{self.edit}, then {words}" if self.edit else words
        return dataclasses.replace(self, values=values, band=None, edit=words)


# Pointwise and simultaneous confidence bands.

_MOST_JOINT = 200
"""Largest number of values for a joint simulation; beyond it, Šidák's inequality is used."""
_ROUNDING = 1e-9
"""Errors below this share of the largest one are zero up to rounding."""


@checked
@final
@dataclass(frozen=True, eq=False)
class Errors:
    """Normal errors of a model's coefficients.

    Parameters
    ----------
    center : ndarray of shape (n_outputs, n_features)
        The coefficients before curves were made monotone.
    covariance : ndarray of shape (n_features, n_features)
        Covariance of an output with factor 1.
    outputs : ndarray of shape (n_outputs,)
        Factor of each output's covariance.
    of_sampling : bool
        Whether errors include sampling error besides privacy noise.
    degrees_of_freedom : float, default=inf
        Degrees of freedom of Student's t for critical values.
    of_smoothing : bool, default=False
        Whether errors include the part of an effect that smoothing removes.
    """

    center: Matrix
    covariance: Matrix
    outputs: Vector
    of_sampling: bool
    degrees_of_freedom: float = math.inf
    of_smoothing: bool = False

    def __post_init__(self) -> None:
        n_outputs, n_features = self.center.shape
        shapes = (self.covariance.shape, self.outputs.shape)
        if shapes != ((n_features, n_features), (n_outputs,)):
            raise ValueError(f"noise of {self.center.shape} coefficients has the shapes {shapes}")

    def band(
        self,
        term: Term,
        weights: NDArray[np.float64],
        level: float,
        simultaneous: bool,
        direction: int,
    ) -> NDArray[np.float64]:
        """Return the ends of a term's band, of shape (n_outputs, ..., 2).

        Values are centred at their mean by ``weights``; ends that cannot be estimated are infinite.
        With a ``direction`` of 1 or -1 both ends are projected like the curve: isotonic regression
        keeps monotone curves and the order of any two, so the band still contains every monotone
        curve that it contained.

        Chernozhukov, Fernández-Val and Galichon, "Improving point and interval estimators of
        monotone functions by rearrangement", Biometrika 96 (2009), section 2.
        """
        freedom, own = self.degrees_of_freedom, self.covariance[term.features][:, term.features]
        half = half_widths(term.matrix, weights, own, level, freedom, simultaneous)
        values = np.asarray(term.matrix @ self.center[:, term.features].T).T
        values = values - (values @ weights)[:, np.newaxis]
        reach = np.multiply.outer(np.sqrt(self.outputs), half)
        ends = np.stack([values - reach, values + reach], axis=-1)
        if direction:
            rising = term.axes[0].order[::direction]
            for own_values, own_ends in zip(values, ends, strict=True):
                # The negated lower end, from the right, is an upper end as well.
                for sign, side, order in ((1.0, 1, rising), (-1.0, 0, rising[::-1])):
                    end, of = sign * own_ends[order, side], sign * own_values[order]
                    own_ends[order, side] = sign * _projected(end, of)
        return ends.reshape(len(ends), *term.shape, 2)


def _projected(end: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Project upper ends of a band to ends of increasing curves.

    An infinite end is replaced by the least end to the right, which bounds an increasing curve.
    """
    from sklearn.isotonic import isotonic_regression

    below = np.minimum.accumulate(end[::-1])[::-1]
    end = np.where(np.isinf(end), np.maximum(below, values), end)
    known = np.isfinite(end)
    if known.any():
        end[known] = isotonic_regression(end[known])
    return end


def half_widths(
    matrix: Any,
    weights: NDArray[np.float64],
    covariance: NDArray[np.float64],
    level: float,
    degrees_of_freedom: float,
    simultaneous: bool,
) -> NDArray[np.float64]:
    """Return half-widths of intervals for ``values - weights @ values``.

    Here ``values = matrix @ coefficients``, and coefficients have normal errors with
    ``covariance``. With ``simultaneous`` all intervals together have the confidence level;
    otherwise each one. Straight lines between simultaneous intervals cover a curve that is linear
    between its values.
    """
    mean, dense = np.asarray(weights @ matrix), None
    if len(weights) <= _MOST_JOINT:
        dense = as_dense(matrix) - mean
        variances = np.einsum("ij,ij->i", dense @ covariance, dense)
    else:
        rows = sparse.csr_array(matrix)
        own = np.asarray(rows.multiply(rows @ covariance).sum(axis=1)).ravel()
        variances = own - 2.0 * (rows @ (covariance @ mean)) + mean @ covariance @ mean
    errors = np.sqrt(np.maximum(variances, 0.0))
    errors[errors <= _ROUNDING * errors.max(initial=0.0)] = 0.0
    moves = errors > 0.0
    if not simultaneous:
        critical = quantile(level, degrees_of_freedom)
    elif dense is None:
        # Šidák (1967): for normal errors of any correlation; for Student's t as well.
        critical = quantile(level ** (1.0 / len(errors)), degrees_of_freedom)
    else:
        root = dense[moves] @ root_of(covariance) / errors[moves, np.newaxis]
        critical = float(np.quantile(largest_errors(root, degrees_of_freedom), level))
    return np.asarray(critical * errors)
