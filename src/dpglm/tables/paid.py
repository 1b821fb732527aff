"""Facts about a column that were learned from private rows, and paid for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dpglm._validation import check_real

__all__ = ["PRIVATE", "PaidFor", "paid_from_dict"]

PRIVATE = "private"
"""Type of a provenance: from the rows, at a price."""


@final
@dataclass(frozen=True)
class PaidFor:
    """What was paid for the bounds of a column.

    Parameters
    ----------
    epsilon, delta : float
        What the release they come from cost, under the relation that its certificate names.
    certificate : str
        Digest of that release, as its certificate has it.
    """

    epsilon: float
    delta: float
    certificate: str

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, least=0.0)
        check_real("delta", self.delta, least=0.0, below=1.0)
        if type(self.certificate) is not str or not self.certificate:
            raise ValueError(f"certificate must be a digest, got {self.certificate!r}")

    def to_dict(self) -> dict[str, Any]:
        """Return the entry in the JSON form of a column."""
        return {"type": PRIVATE, **vars(self)}


def paid_from_dict(entry: object) -> PaidFor | None:
    """Read a column's ``"provenance"``, if it has one; a ValueError says what to write."""
    if entry is None:
        return None
    fields = dict(entry) if isinstance(entry, Mapping) else {}
    if fields.pop("type", None) != PRIVATE or set(fields) != {"epsilon", "delta", "certificate"}:
        raise ValueError(
            '"provenance" must be {"type": "private", "epsilon", "delta", "certificate"}, as '
            f"a description writes it, got {entry!r}"
        )
    return PaidFor(**fields)
