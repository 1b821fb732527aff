"""Public facts: what a guarantee treats as known to everyone, and where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, final, get_args

from dpglm._json import at, check_writable, plain_json
from dpglm._validation import check_one_of
from dpglm.data.spec import DataSpec
from dpglm.privacy.adjacency import Adjacency
from dpglm.tables.schema import Schema

__all__ = [
    "LABELS",
    "WHERE",
    "WHERE_IN_WORDS",
    "Provenance",
    "PublicFact",
    "schema_facts",
    "size_facts",
    "with_implied",
]

LABELS = "labels"
"""Name of the fact that names failure and success, where a regressor predicts proportions."""

WHERE = "where"
"""Name of the fact that a private condition chose which rows count."""
WHERE_IN_WORDS = "a private condition; how many rows meet it stays private"

Provenance = Literal["declared", "implied", "by relation", "private", "from the data"]


@final
@dataclass(frozen=True)
class PublicFact:
    """Something that the guarantee treats as known to everyone.

    Parameters
    ----------
    name : str
        Name of the fact, such as ``"row_norm"``.
    value : JSON value, NumPy scalar or array
        Kept as plain JSON values; infinities and NaN as their names.
    provenance : {"declared", "implied", "by relation", "private", "from the data"}
        Given by the caller; what follows from such facts; shared by all neighbouring data sets, so
        that it reveals nothing about a row, unless a private condition chose the rows; learned
        from private rows by a release that was paid for, which ``value`` names; or taken from them
        for convenience, which is a leak.

    Examples
    --------
    >>> import numpy as np
    >>> PublicFact("classes", np.array([0, 1]), "declared").value
    [0, 1]
    """

    name: str
    value: Any
    provenance: Provenance

    def __post_init__(self) -> None:
        check_one_of("provenance", self.provenance, get_args(Provenance))
        object.__setattr__(self, "value", plain_json(self.value))
        with at(self.name):
            check_writable(self.value)


def with_implied(facts: Iterable[PublicFact], name: str, value: Any) -> tuple[PublicFact, ...]:
    """Return facts, the declared one of a name as implied by the others where it has this value."""
    own = PublicFact(name, value, "declared")
    implied = PublicFact(name, value, "implied")
    return tuple(implied if fact == own else fact for fact in facts)


def schema_facts(schema: Schema) -> tuple[PublicFact, ...]:
    """Return the declared facts about the table that was encoded, and bounds that were paid for."""
    document = {"provenance": schema.provenance} | schema.to_dict()
    bought = (
        PublicFact(
            f"bounds of {name}",
            {"low": low, "high": high} | vars(paid),
            "private",
        )
        for name, (low, high, paid) in schema.paid_bounds.items()
    )
    return (PublicFact("schema", document, "declared"), *bought)


def size_facts(
    data: DataSpec, adjacency: Adjacency, *, chosen: bool = False
) -> tuple[PublicFact, ...]:
    """Return the public numbers of rows and, where these are in groups, of groups and their rows.

    Those that the relation leaves private were declared. With ``chosen`` rows of the table count
    by a private condition.
    """
    where = (PublicFact(WHERE, WHERE_IN_WORDS, "declared"),) * chosen

    def counted(name: str, value: int, is_public: bool) -> PublicFact:
        return PublicFact(name, value, "by relation" if is_public else "declared")

    rows = counted("n_rows", data.n_rows, adjacency.rows_are_public(data.unit))
    if data.groups is None:
        return (rows, *where)
    return (
        rows,
        *where,
        counted("n_groups", data.groups.n_groups, adjacency.n_is_public),
        PublicFact("max_rows_per_group", int(data.groups.rows), "declared"),
    )
