"""Persons of a study, where all rows of a person are protected together."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, final

from numpy.typing import NDArray

from dpglm._validation import check_count, check_integer
from dpglm.data.spec import GroupBound

__all__ = ["Persons"]


@final
@dataclass(frozen=True)
class Persons:
    """Whose rows are protected together, and how many of them are used.

    Parameters
    ----------
    column : str
        Column of the table that says whose each row is.
    n_groups : int
        Public number of persons, at least 1; a rough one will do.
    most : int
        How many rows of a person are used at most, at least 1.
    """

    column: str
    n_groups: int
    most: int

    def __post_init__(self) -> None:
        check_count("n_groups", self.n_groups)
        check_integer("max_rows_per_group", self.most, least=1)

    def of_part(self, n_groups: int) -> Self:
        """Return the same for a part of the persons."""
        return dataclasses.replace(self, n_groups=n_groups)

    @property
    def bound(self) -> GroupBound:
        """The bound on what a person contributes to counts."""
        return GroupBound(self.n_groups, float(self.most))

    @property
    def parameters(self) -> dict[str, int]:
        """What an estimator must know of them."""
        return {"n_groups": self.n_groups, "max_rows_per_group": self.most}

    def of(self, table: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Return whose each row of a table is."""
        return table[self.column]
