"""Reference categories, to which the others of a column are compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from dpglm._validation import check_one_of, in_one_line
from dpglm.tables.cells import Entry
from dpglm.tables.columns import Column
from dpglm.tables.named import columns_in_words

__all__ = ["Reference", "referring"]

Reference: TypeAlias = Mapping[str, Entry] | str | None
"""Reference categories: by column, or ``"first"``."""


def referring(
    columns: Sequence[Column], reference: Reference, parameter: str = "reference"
) -> tuple[Column, ...]:
    """Return columns with reference categories; a ValueError names a column that has no such.

    ``parameter`` is what errors call them.
    """
    if isinstance(reference, str):
        check_one_of(parameter, reference, ("first",))
        return tuple(column.with_first_reference() for column in columns)
    chosen = {} if reference is None else reference
    if not isinstance(chosen, Mapping):
        raise ValueError(
            f"{parameter} must be 'first', a mapping from column to category, or None, got "
            f"{in_one_line(reference)}"
        )
    known = [column.name for column in columns]
    unknown = [name for name in chosen if name not in known]
    if unknown:
        raise ValueError(
            f"{parameter} must name columns of the schema, {columns_in_words(known)}, got "
            f"{unknown[0]!r}"
        )
    try:
        return tuple(
            column.with_reference(chosen[column.name]) if column.name in chosen else column
            for column in columns
        )
    except ValueError as error:
        raise ValueError(f"{parameter}: {error}") from None
