"""Results of a description: columns, pairs of columns, and levels of an attribute."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

from dpglm.exploration.design import Pair
from dpglm.tables.described import CountedColumn
from dpglm.tabulate.counts import Ranks
from dpglm.tabulate.numbers import Number

_Numbers: TypeAlias = tuple[Number, ...]


@final
@dataclass(frozen=True, eq=False)
class ColumnDescription:
    """One column.

    Parameters
    ----------
    column : CountedColumn
        Its cells: categories, or bins of numbers with values below, above and missing.
    counts, shares : tuple of Number
        Rows in each cell, and their share of all rows; in the order of ``labels``.
    z : float
        Half width of intervals in standard deviations.
    mean, spread : Number or None
        Mean and standard deviation (root of the mean squared deviation) of the values that are
        present, clipped to the bounds. None for categories, and if the number of values cannot be
        distinguished from zero.
    quantiles : mapping from float to Number
        Quantiles of the same values; empty without a mean.
    ranks : Ranks or None
        Counts up to each edge, for further quantiles; None without a mean.
    """

    column: CountedColumn
    counts: _Numbers
    shares: _Numbers
    z: float
    mean: Number | None = None
    spread: Number | None = None
    quantiles: Mapping[float, Number] = dataclasses.field(default_factory=dict)
    ranks: Ranks | None = None

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the cells."""
        return self.column.labels

    @property
    def missing(self) -> Number | None:
        """Number of missing values; None if a category counts them."""
        place = self.column.missing
        return None if place is None else self.counts[place]

    def quantile(self, q: float) -> Number:
        """Return any quantile, at no privacy cost.

        Parameters
        ----------
        q : float
            From 0 to 1.

        Returns
        -------
        Number

        Raises
        ------
        ValueError
            If the column is not numeric, or ``q`` is out of range.
        """
        if self.ranks is None:
            lack = (
                "its number of values cannot be distinguished from zero"
                if self.column.n_bins
                else "it is not numeric"
            )
            raise ValueError(f"column {self.name!r} does not have quantiles: {lack}")
        return self.ranks.quantile(q, self.z)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        cells = zip(self.labels, self.counts, self.shares, strict=True)
        document: dict[str, Any] = {
            "cells": [
                {"cell": label, "count": count.to_dict(), "share": share.to_dict()}
                for label, count, share in cells
            ]
        }
        if self.mean is not None and self.spread is not None:
            document["mean"] = self.mean.to_dict()
            document["standard deviation"] = self.spread.to_dict()
        if self.quantiles:
            document["quantiles"] = {f"{q:g}": one.to_dict() for q, one in self.quantiles.items()}
        return document


@final
@dataclass(frozen=True, eq=False)
class TwoWayTable:
    """Rows in each pair of cells of two columns.

    Parameters
    ----------
    columns : (str, str)
        Names of the columns.
    row_labels, column_labels : tuple of str
        Names of the cells of the first and the second column.
    counts, shares : tuple of tuple of Number
        ``counts[i][j]`` is the number of rows in cell i of the first and cell j of the second
        column; shares are relative to all rows.
    """

    columns: Pair
    row_labels: tuple[str, ...]
    column_labels: tuple[str, ...]
    counts: tuple[_Numbers, ...]
    shares: tuple[_Numbers, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "columns": list(self.columns),
            "rows": list(self.row_labels),
            "across": list(self.column_labels),
            "counts": [[one.to_dict() for one in row] for row in self.counts],
            "shares": [[one.to_dict() for one in row] for row in self.shares],
        }


@final
@dataclass(frozen=True, eq=False)
class RowsDescription:
    """A description of all rows, or of those with one level of ``by``.

    Parameters
    ----------
    n_rows : Number
        Number of rows, which some neighbouring relations make public.
    columns : mapping from str to ColumnDescription
        Columns by name.
    two_way : mapping from (str, str) to TwoWayTable
        Two-way tables by the names of their columns.
    correlations : mapping from (str, str) to Number
        Pearson correlations of values clipped to the bounds. They assume that values of one column
        are missing independently of the other column.
    """

    n_rows: Number
    columns: Mapping[str, ColumnDescription]
    two_way: Mapping[Pair, TwoWayTable]
    correlations: Mapping[Pair, Number]

    def __getitem__(self, name: str) -> ColumnDescription:
        """Return a column by name."""
        return self.columns[name]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "n_rows": self.n_rows.to_dict(),
            "columns": {name: one.to_dict() for name, one in self.columns.items()},
            "two_way": [one.to_dict() for one in self.two_way.values()],
            "correlations": [
                {"columns": list(pair), **one.to_dict()} for pair, one in self.correlations.items()
            ],
        }
