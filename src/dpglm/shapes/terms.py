"""The terms of a model by its schema: where each has values, and how coefficients make these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.tables.additive.axes import Axis, CategoricalAxis, NumericAxis
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.schema import Schema

__all__ = ["ValuedTerm", "cells_of", "public_weights", "terms_of"]


@final
@dataclass(frozen=True, eq=False)
class ValuedTerm:
    """A term whose values at knots and levels are ``matrix @ coefficients``.

    ``matrix``, dense or sparse, has the shape (n_values, n_features); ``features`` says where the
    term's features stand. Between knots the effect is linear, so the values are all of it.
    """

    axes: tuple[Axis, ...]
    features: slice
    matrix: Any

    @property
    def name(self) -> str:
        """The columns in words."""
        return " x ".join(axis.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of values along each column."""
        return tuple(len(axis.labels) for axis in self.axes)


def cells_of(axis: Axis) -> list[Any]:
    """Return the cells at which an effect has its values: knots or levels; None for missing."""
    cells: list[Any] = axis.grid(0).tolist()
    return cells + [None] * (len(axis.labels) - len(cells))


def public_weights(axes: tuple[Axis, ...]) -> NDArray[np.float64]:
    """Return the weights by which a term's mean is taken: knots and levels alike, missing not.

    Shape (n_values,); they add up to 1.
    """
    weights = np.ones(1)
    for axis in axes:
        present = np.array([cell is not None for cell in cells_of(axis)], dtype=np.float64)
        weights = np.outer(weights, present / present.sum()).ravel()
    return weights


def terms_of(schema: Schema) -> tuple[ValuedTerm, ...]:
    """Return the terms of an additive model, or of a linear one: lines and levels.

    A ValueError says that a formula has none.
    """
    if schema.additive is not None:
        return tuple(
            ValuedTerm(
                term.axes,
                term.features,
                sparse.eye_array(len(term.labels)) if term.root is None else term.root,
            )
            for term in schema.additive_encoding.terms
        )
    if schema.formula is not None:
        raise ValueError(
            f"the schema must have no formula for shapes, got {schema.formula!r}: what its terms "
            "have in common with columns is not known"
        )
    terms: list[ValuedTerm] = []
    start = 0
    for column in schema.columns:
        stop = start + len(column.feature_names)
        axis = _axis(column)
        matrix = np.zeros((len(axis.labels), stop - start))
        cells = cells_of(axis)
        column.encode(["" if cell is None else cell for cell in cells], matrix)
        terms.append(ValuedTerm((axis,), slice(start, stop), matrix))
        start = stop
    return tuple(terms)


def _axis(column: Column) -> Axis:
    if isinstance(column, CategoricalColumn):
        return CategoricalAxis(column)
    assert isinstance(column, NumericColumn)
    # In a linear model knots are not looked at, and its line is straight on the plain scale.
    straight = NumericColumn(column.name, column.low, column.high, column.missing)
    return NumericAxis(straight, segments=1, reach=0.0)
