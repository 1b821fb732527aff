"""How the columns of a table become features: each by itself, or as a formula says."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.columns import Column
from dpglm.tables.units import LinearUnits

__all__ = ["ColumnEncoding", "Encoding", "Reader"]

Reader: TypeAlias = Callable[[str], NDArray[Any]]
"""Returns the cells of a column by its name."""


class Encoding(abc.ABC):
    """A map from the cells of a row to its features, made of public facts; final subclasses."""

    @property
    @abc.abstractmethod
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns that are read, in the order of the schema."""

    @property
    @abc.abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""

    @property
    @abc.abstractmethod
    def row_norm(self) -> float:
        """Bound on the L2 norm of the features of every row."""

    @property
    @abc.abstractmethod
    def units(self) -> LinearUnits:
        """The map from coefficients of features to effects in the table's units."""

    @property
    def has_intercept(self) -> bool:
        """Whether the model is meant to have an intercept."""
        return True

    @abc.abstractmethod
    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        """Write features into ``out``, zeros of shape (n, len(feature_names)).

        Privacy: each row is encoded by itself, to features of norm at most ``row_norm``, whatever
        its cells are, unless one of them does not match the schema, which is an error.
        """


@final
@dataclass(frozen=True, eq=False)
class ColumnEncoding(Encoding):
    """Each column becomes features of its own."""

    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def row_norm(self) -> float:
        return math.sqrt(math.fsum(column.norm**2 for column in self.columns))

    @property
    def units(self) -> LinearUnits:
        effects = [column.effects for column in self.columns]
        return LinearUnits.of_blocks(
            [(one.slopes, one.shifts) for one in effects],
            names=[name for one in effects for name in one.names],
        )

    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        start = 0
        for column in self.columns:
            # One column at a time: text takes many times the space of its encoding.
            stop = start + len(column.feature_names)
            column.encode(cells(column.name), out[:, start:stop])
            start = stop
