"""The protection of a table: the neighbouring relation, the budget, and the public sizes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import final

from dpglm._validation import check_count
from dpglm.data.spec import GroupBound
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import PrivacyBudget, default_delta


@final
@dataclass(frozen=True)
class Protection:
    """The protection of a table: neighbouring relation, budget and public sizes.

    Parameters
    ----------
    adjacency : Adjacency
        The neighbouring relation.
    budget : PrivacyBudget
        The total budget.
    n_rows : int
        Public number of rows, at least 1.
    groups : GroupBound, optional
        Bound on the rows of a group (person), where whole groups are protected.
    """

    adjacency: Adjacency
    budget: PrivacyBudget
    n_rows: int
    groups: GroupBound | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.budget, PrivacyBudget):
            raise ValueError(f"budget must be a PrivacyBudget, got {self.budget!r}")
        check_count("n_rows", self.n_rows)

    @property
    def unit(self) -> Unit:
        """The protected unit: a row, or a group with all its rows."""
        return Unit.ROW if self.groups is None else Unit.GROUP

    @property
    def n_units(self) -> int:
        """Public number of rows, or of groups where these are protected."""
        return self.n_rows if self.groups is None else self.groups.n_groups

    @property
    def delta(self) -> float:
        """The budget's delta, or the default one where the budget has none."""
        found: float = self.budget.to_dict().get("delta", default_delta(self.n_units))
        return found

    @property
    def sizes(self) -> str:
        """The number of rows, and of groups where these are protected, in words."""
        rows = f"{self.n_rows} rows"
        return rows if self.groups is None else f"{rows} of {self.groups.n_groups} persons"

    def of_part(self, budget: PrivacyBudget, n_rows: int, n_units: int) -> Protection:
        """Return the protection of a part of the rows, or of the groups, with a part's budget."""
        groups = self.groups
        if groups is not None:
            groups = dataclasses.replace(groups, n_groups=n_units)
        return Protection(self.adjacency, budget, n_rows, groups)
