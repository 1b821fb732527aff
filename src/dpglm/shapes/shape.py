"""One term's effect: its values, a band about them, and the edits that make another one of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real, in_one_line
from dpglm.shapes.terms import cells_of
from dpglm.tables.additive.axes import Axis, NumericAxis

__all__ = ["Shape"]


@final
@dataclass(frozen=True, eq=False)
class Shape:
    """The effect of a column, or of two columns together, on a model's linear score.

    It is linear between knots and constant beyond the bounds, so its values at knots and levels
    are all of it.

    Parameters
    ----------
    axes : tuple of Axis
        The column, or both.
    outputs : tuple of str
        What the score speaks for: the target, or classes.
    values : ndarray of shape (n_outputs, n_values) or (n_outputs, n_values, n_others)
        Effects at the knots or levels of each column, less their mean over all of these, so that
        only differences within a column count; a level for missing values comes last, and is not
        part of that mean.
    band : ndarray of shape (n_outputs, n_values, 2) or (n_outputs, n_values, n_others, 2), optional
        Lower and upper ends of the band.
    edit : str, default=""
        What was done to it after the fit, in words.

    Notes
    -----
    Privacy: released coefficients and public knots; the mean is taken over knots and levels, not
    over rows.
    """

    axes: tuple[Axis, ...]
    outputs: tuple[str, ...]
    values: NDArray[np.float64]
    band: NDArray[np.float64] | None = None
    edit: str = ""

    @property
    def term(self) -> str:
        """The name: a column's, or two with `` x `` between them."""
        return " x ".join(axis.name for axis in self.axes)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(axis.name for axis in self.axes)

    @property
    def points(self) -> tuple[list[Any], ...]:
        """For each column, the numbers or levels that ``values`` are at; None: missing."""
        return tuple(cells_of(axis) for axis in self.axes)

    @property
    def importance(self) -> float:
        """The range of the values, the largest over outputs; missing values do not count."""
        present = [[i for i, one in enumerate(cells) if one is not None] for cells in self.points]
        chosen: tuple[Any, ...] = (slice(None), *np.ix_(*present))
        flat = self.values[chosen].reshape(len(self.outputs), -1)
        return float((flat.max(axis=1) - flat.min(axis=1)).max())

    def through(self, points: Mapping[Any, float]) -> Shape:
        """Return the shape through given points.

        Parameters
        ----------
        points : mapping from number, or level, to float
            Effects. Those of numbers replace the whole curve: it is linear between the points
            (as the column's scale says) and constant beyond, and is taken over at the knots. Those
            of levels, and of None for missing values, replace these alone.

        Returns
        -------
        Shape

        Raises
        ------
        ValueError
            If there are several outputs or columns, or a point is none of the column's.
        """
        if len(self.axes) > 1 or len(self.outputs) > 1:
            raise ValueError(f"points need one column and one output, {self.term!r} has more")
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
        """Return the shape with the mean of some of its values in their place.

        Parameters
        ----------
        *between : two numbers, or levels
            The knots from one number to another, or the levels; all of them, if none is given.

        Returns
        -------
        Shape

        Raises
        ------
        ValueError
            If there are several columns, or no knot or level is meant.
        """
        if not between:
            return self._edited(np.zeros_like(self.values), "flat")
        if len(self.axes) > 1:
            raise ValueError(f"{self.term!r} has two columns: it can only be flattened altogether")
        (axis,), (cells,) = self.axes, self.points
        if isinstance(axis, NumericAxis):
            low, high = (between[0], between[-1])
            low, high = check_real("between", low), check_real("between", high)
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
        """Return the nearest shape that never falls, or never rises.

        Parameters
        ----------
        direction : {1, -1}
            1: never falls; -1: never rises.

        Returns
        -------
        Shape
            Nearest in squares of the differences at the knots.

        Raises
        ------
        ValueError
            If there are several columns, or the column is neither numeric nor ordered.
        """
        if direction not in (1, -1):
            raise ValueError(f"direction must be 1 or -1, got {direction!r}")
        if len(self.axes) > 1 or self.axes[0].line is None:
            raise ValueError(
                f"{self.term!r} is not one numeric or ordered column, and has no direction"
            )
        from sklearn.isotonic import isotonic_regression

        values = self.values.copy()
        order = self.axes[0].order
        for row in values:
            row[order] = isotonic_regression(row[order], increasing=direction > 0)
        return self._edited(values, "never falls" if direction > 0 else "never rises")

    def to_dict(self) -> dict[str, list[Any]]:
        """Return the table of points: a list for each of its columns.

        Returns
        -------
        dict from str to list
            ``term``, one entry for each column of the term, ``output``, ``effect`` and, where
            there is a band, its ends ``low`` and ``high``.
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
