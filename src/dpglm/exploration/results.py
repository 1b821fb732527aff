"""What a description says of the rows: columns, pairs of columns, groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpglm.exploration.design import Pair
from dpglm.exploration.numbers import Number
from dpglm.exploration.ranks import Ranks
from dpglm.tables.described.columns import CountedColumn

__all__ = ["ColumnDescription", "GroupDescription", "TwoWayTable"]

_Numbers = tuple[Number, ...]


@final
@dataclass(frozen=True, eq=False)
class ColumnDescription:
    """One column.

    Parameters
    ----------
    column : CountedColumn
        Its cells: levels, or bins of numbers with what is below, above and missing.
    counts, shares : tuple of Number
        Rows in each cell, and their share of all rows; as ``labels``.
    mean, spread : Number or None
        Mean, and standard deviation (root of the mean squared deviation), of the values that are
        present, clipped to the bounds; None for categories, and where the values cannot be
        distinguished from none.
    quantiles : mapping from float to Number
        Quantiles of the values that are present, clipped to the bounds; empty where there is no
        mean.
    ranks : Ranks or None
        Counts up to each edge, from which any other quantile follows; None where there is no mean.
    z : float
        Half width of intervals in standard deviations.
    """

    column: CountedColumn
    counts: _Numbers
    shares: _Numbers
    mean: Number | None
    spread: Number | None
    quantiles: Mapping[float, Number]
    ranks: Ranks | None
    z: float

    @property
    def name(self) -> str:
        """Name of the column."""
        return self.column.name

    @property
    def labels(self) -> tuple[str, ...]:
        """What the cells are called."""
        return self.column.labels

    @property
    def missing(self) -> Number | None:
        """Number of missing values; None where a level of its own says it."""
        place = self.column.missing
        return None if place is None else self.counts[place]

    def quantile(self, q: float) -> Number:
        """Return any quantile: it costs nothing more.

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
            lacks = "values that noise does not hide" if self.column.n_bins else "numbers"
            raise ValueError(f"column {self.name!r} has no {lacks}, and so no quantiles")
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
        Their names.
    row_labels, column_labels : tuple of str
        Cells of the first and of the second column.
    counts, shares : tuple of tuple of Number
        Rows in cell i of the first and j of the second column, as ``counts[i][j]``, and their share
        of all rows.
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
class GroupDescription:
    """All rows, or those of one level of the column ``by``.

    Parameters
    ----------
    n_rows : Number
        Number of rows; known where the relation makes it public.
    columns : mapping from str to ColumnDescription
        By name.
    two_way : mapping from (str, str) to TwoWayTable
        Tables of two columns.
    correlations : mapping from (str, str) to Number
        Pearson's, of values clipped to the bounds. Of values that are missing in one column it is
        supposed that they are missing irrespective of the other.
    """

    n_rows: Number
    columns: Mapping[str, ColumnDescription]
    two_way: Mapping[Pair, TwoWayTable]
    correlations: Mapping[Pair, Number]

    def __getitem__(self, name: str) -> ColumnDescription:
        """Return a column by its name."""
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
