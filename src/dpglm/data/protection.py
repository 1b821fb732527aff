"""The protection of a table: the neighbouring relation, the budget, and the public sizes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np

from dpglm._validation import check_count, check_integer, check_one_of
from dpglm.data.groups import Groups
from dpglm.data.spec import DataSpec, GroupBound
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency, Unit
from dpglm.privacy.budget import PrivacyBudget, default_delta, stated_budget


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


def stated_protection(
    n_rows: int,
    groups: Any,
    *,
    epsilon: float,
    delta: float | Literal["auto"],
    budget: PrivacyBudget | None,
    adjacency: str,
    public_rows: int | None,
    max_rows_per_group: int | None,
    n_groups: int | None,
) -> Protection:
    """Return the protection that the arguments of a release state.

    ``n_rows`` is the true number, ``public_rows`` the argument ``n_rows``, and ``groups`` the
    group of each row or None.
    """
    relation = Adjacency(check_one_of("adjacency", adjacency, tuple(Adjacency)))
    limited = LimitedGroups.of(groups, max_rows_per_group, n_rows)
    if limited is None:
        if n_groups is not None:
            raise ValueError(f"groups must be given with n_groups={n_groups!r}, got None")
        is_public, bound = relation.n_is_public, None
        rows = units = _public("n_rows", public_rows, n_rows, relation, is_public=is_public)
    else:
        is_public = relation.rows_are_public(Unit.GROUP)
        rows = _public("n_rows", public_rows, limited.n_rows, relation, is_public=is_public)
        true, is_public = limited.whose.n_groups, relation.n_is_public
        units = _public("n_groups", n_groups, true, relation, is_public=is_public)
        bound = GroupBound(units, float(limited.most))
    return Protection(relation, stated_budget(epsilon, delta, budget, units), rows, bound)


def _public(
    name: str, given: int | None, true: int, relation: Adjacency, *, is_public: bool
) -> int:
    """Return a public number of rows or groups: the true one, where the relation makes it so."""
    if given is not None:
        check_integer(name, given, least=1)
        if is_public and given != true:
            raise ValueError(
                f"{name} must be the number of {name[2:]}, {true}, or None, got {given}"
            )
        return given
    if not is_public:
        raise ValueError(
            f"{name} must be given under adjacency {relation.value!r}, which keeps the true number "
            "private: a rough public number"
        )
    return true


@final
@dataclass(frozen=True, eq=False)
class LimitedGroups:
    """Groups with at most ``most`` rows in use. Private."""

    whose: Groups
    most: int

    @classmethod
    def of(cls, groups: Any, most: int | None, n_rows: int) -> LimitedGroups | None:
        """Read the arguments ``groups`` and ``max_rows_per_group``; None where there are none."""
        if groups is None:
            if most is not None:
                raise ValueError(f"groups must be given with max_rows_per_group={most!r}, got None")
            return None
        if most is None:
            raise ValueError(
                "max_rows_per_group must be given with groups, got None: it sets the noise scale"
            )
        return cls(Groups.of(groups, n_rows), check_integer("max_rows_per_group", most, least=1))

    @property
    def n_rows(self) -> int:
        """The number of rows that are used."""
        return int(np.minimum(np.bincount(self.whose.codes), self.most).sum())

    @classmethod
    def planned(
        cls, groups: Any, data: DataSpec, adjacency: Adjacency, n_rows: int
    ) -> LimitedGroups:
        """Read ``groups`` for a plan, and compare public numbers of groups and rows with it."""
        bound = data.groups
        if groups is None or bound is None:
            raise ValueError("groups must be given for a plan with groups, and for no other")
        found = cls(Groups.of(groups, n_rows), int(bound.rows))
        counts = [("groups", bound.n_groups, found.whose.n_groups, adjacency.n_is_public)]
        rows_are_public = adjacency.rows_are_public(Unit.GROUP)
        counts.append(("rows in them", data.n_rows, found.n_rows, rows_are_public))
        for what, wanted, there, is_public in counts:
            if is_public and wanted != there:
                raise PlanMismatchError(
                    f"the plan was made for {wanted} {what}, and these are {there}"
                )
        return found
