"""Offsets as users give them: known terms of scores, or exposures whose logarithms they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np

from dpglm._arrays import namespace

__all__ = ["OffsetColumn", "OffsetKind", "offset_of", "stated_offset"]

OffsetKind: TypeAlias = Literal["offset", "exposure"]


@final
@dataclass(frozen=True)
class OffsetColumn:
    """What offsets come as, and the name of the column that holds them, where it is known."""

    kind: OffsetKind
    name: str | None = None


def stated_offset(offset: Any, exposure: Any) -> tuple[OffsetColumn, Any]:
    """Read the arguments ``offset`` and ``exposure``, one of which is given; return the offsets.

    Each is an array, or a mapping of one name to an array; a Series has a name of its own. What is
    not positive among exposures becomes no finite number, which ``as_offset`` refuses.
    """
    if offset is not None and exposure is not None:
        raise ValueError("offset and exposure must not both be given: add log(exposure) to offset")
    column = OffsetColumn("offset" if exposure is None else "exposure")
    given = offset if exposure is None else exposure
    name = given.name if type(given).__name__ == "Series" else None
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise ValueError(f"{column.kind} must have one column, got {len(given)}")
        ((name, given),) = given.items()
    if isinstance(given, str):
        raise ValueError(
            f"{column.kind} must be numbers, one for each row, got the text {given!r}: give the "
            f"column itself, as in table[{given!r}]"
        )
    column = OffsetColumn(column.kind, name if isinstance(name, str) else None)
    return column, given if exposure is None else _logarithms(given)


def offset_of(offset: Any, exposure: Any) -> Any:
    """Return the offsets of rows, given as ``stated_offset`` reads them."""
    return stated_offset(offset, exposure)[1]


def _logarithms(exposure: Any) -> Any:
    with np.errstate(divide="ignore", invalid="ignore"):
        try:
            return namespace(exposure).log(exposure)
        except (TypeError, AttributeError):
            raise ValueError(
                f"exposure must hold numbers above 0, got {type(exposure).__name__} of others"
            ) from None
