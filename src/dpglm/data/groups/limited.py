"""Groups of at most so many rows, whose sums need no cut: noise is made for the largest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpglm._validation import check_integer
from dpglm.data.groups.ids import Groups
from dpglm.data.spec import DataSpec, GroupBound
from dpglm.exceptions import PlanMismatchError
from dpglm.privacy.adjacency import Adjacency, Unit

__all__ = ["LimitedGroups", "public_size"]


@final
@dataclass(frozen=True, eq=False)
class LimitedGroups:
    """Groups, of whose rows at most ``most`` are used. Private."""

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
                "max_rows_per_group must be given with groups, got None: noise is made for so many "
                "rows of each"
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
        """Read ``groups`` for a plan: as many groups and rows as it says, where that is public."""
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


def public_size(
    limited: LimitedGroups | None,
    n_rows: int,
    relation: Adjacency,
    *,
    given: int | None,
    given_groups: int | None,
) -> tuple[int, GroupBound | None]:
    """Return the public number of rows that are used, and the bound on groups where there are any.

    ``n_rows`` is the true number; ``given`` and ``given_groups`` are the arguments ``n_rows`` and
    ``n_groups``.
    """
    if limited is None:
        if given_groups is not None:
            raise ValueError(f"groups must be given with n_groups={given_groups!r}, got None")
        return _public("n_rows", given, n_rows, relation, is_public=relation.n_is_public), None
    rows_are_public = relation.rows_are_public(Unit.GROUP)
    rows = _public("n_rows", given, limited.n_rows, relation, is_public=rows_are_public)
    true, is_public = limited.whose.n_groups, relation.n_is_public
    n_groups = _public("n_groups", given_groups, true, relation, is_public=is_public)
    return rows, GroupBound(n_groups, float(limited.most))


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
