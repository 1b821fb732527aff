"""Cells of one table column: read as numbers, or looked up in a public list of values."""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm.tables.finite import MISSING_CURE, NUMBER_KINDS, unmasked

__all__ = ["Entry", "Vocabulary", "as_cells", "as_numbers", "check_unique", "is_missing", "listed"]

Entry: TypeAlias = str | int | float | bool
"""A value that JSON can hold and a cell can equal."""

_OBJECT_KINDS = "OUT"
_TRUTH = {"true": True, "false": False}
_SHOWN = 12


def as_cells(values: ArrayLike, what: str) -> NDArray[Any]:
    """Return a column's values as an array with one axis; ``what`` names the column in errors.

    Privacy: lists become arrays of objects, cell by cell. NumPy would give all cells one type, and
    a text in one row would turn the numbers of all others into texts.
    """
    values = unmasked(what, values)
    if isinstance(values, (list, tuple)):
        return np.fromiter(values, dtype=object, count=len(values))
    cells = np.asarray(values)
    if cells.ndim != 1:
        raise ValueError(f"{what} must hold one value for each row, got shape {cells.shape}")
    return cells


def as_numbers(values: ArrayLike, what: str, missing: float | None = None) -> NDArray[np.float64]:
    """Read a column's cells as finite float64 numbers.

    Text may spell numbers with digits 0 to 9 (``1_0`` is no number); ``nan`` is missing, ``inf``
    infinite. A missing cell counts as ``missing`` where that is given. Errors name the column, the
    row and the cure.
    """
    cells = as_cells(values, what)
    if cells.dtype.kind in NUMBER_KINDS:
        numbers = cells.astype(np.float64)
    elif cells.dtype.kind in _OBJECT_KINDS:
        try:
            numbers = _plain(cells).astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            numbers = np.array([_number(cell, row, what) for row, cell in _numbered(cells)])
    else:
        raise ValueError(
            f"{what} holds values of type {cells.dtype}, but the schema says that it is numeric: "
            "turn them into numbers first"
        )
    gaps = np.isnan(numbers)
    if gaps.any():
        if missing is None:
            raise ValueError(
                f"{what}, row {int(gaps.argmax()) + 1}: the value is missing. {MISSING_CURE}"
            )
        numbers[gaps] = missing
    infinite = np.isinf(numbers)
    if infinite.any():
        raise ValueError(
            f"{what}, row {int(infinite.argmax()) + 1}: the value is infinite. Replace it by a "
            "finite number"
        )
    return numbers


@final
@dataclass(frozen=True)
class Vocabulary:
    """A public list of the values that a column may hold.

    At least two, all different, and all text, all numbers or all bool; a text ``""`` may stand in
    any list and means "missing". Numbers and bool are float64 numbers here, and cells equal them by
    value, however they are spelled.

    Privacy: where a cell belongs depends on that cell alone, not on the type that others gave the
    column. So numbers among texts are an error: ``pandas.read_csv`` has numbers for "01" and "1"
    until one row holds a word, and texts from then on.

    >>> Vocabulary(("no", "yes")).positions(["yes", "no", " yes"], "column 'x'", "Correct it")
    array([1, 0, 1])
    >>> Vocabulary((1, 2, "")).positions([None, "2", 1.0], "column 'x'", "Correct it")
    array([2, 1, 0])
    """

    entries: tuple[Entry, ...]

    def __post_init__(self) -> None:
        entries = self.entries
        kinds = {_kind(entry) for entry in entries if entry != ""}
        if len(entries) < 2 or len(kinds) != 1 or "other" in kinds:
            raise ValueError(
                "must list at least two values, all text or all numbers or all true/false, got "
                f"({listed(entries)})"
            )
        values = [_value(entry) for entry in entries]
        if len(set(values)) < len(values):
            repeated = next(entries[i] for i, value in enumerate(values) if value in values[:i])
            raise ValueError(f"must list each value once, but {repeated!r} occurs twice")

    def positions(
        self, values: ArrayLike, what: str, cure: str, other: int | None = None
    ) -> NDArray[np.intp]:
        """Look up each cell's position in ``entries``; ``other`` stands for unlisted cells.

        Blanks around text do not count, and text may spell a number. Without ``other`` a cell that
        is not listed is an error, which names the column, the row, the cell and the cure; one that
        is no text among texts always is.
        """
        cells = as_cells(values, what).tolist()
        places: dict[Entry | None, int | None]
        places = {_value(entry): i for i, entry in enumerate(self.entries)}
        seen: dict[Hashable, int] = {}
        positions = np.empty(len(cells), dtype=np.intp)
        for row, cell in enumerate(cells):
            try:
                position = seen.get(cell)
            except TypeError:
                raise ValueError(
                    f"{what}, row {row + 1}: a {type(cell).__name__} is not a single value"
                ) from None
            if position is None:
                position = places.get(self._spelled(cell, row, what), other)
                if position is None:
                    raise ValueError(f"{self._unknown(cell, row, what)}. {cure}")
                seen[cell] = position
            positions[row] = position
        return positions

    def _spelled(self, cell: Any, row: int, what: str) -> Entry | None:
        """Return the entry that a cell would equal: "" if it is missing, None if there is none."""
        if is_missing(cell):
            return ""
        if isinstance(self._sample, str):
            if not isinstance(cell, str):
                kind = "number" if _kind(cell) == "number" else type(cell).__name__
                raise ValueError(
                    f"{what}, row {row + 1}: the data hold the {kind} {cell!r}, but the schema "
                    "lists texts. Read the column as text (pandas: dtype=str), or, if numbers or "
                    "true and false are meant, list them without quotes there"
                )
            return cell.strip()
        if isinstance(cell, str):
            cell = _TRUTH.get(cell.strip().lower(), cell)
        number = _number_or_none(cell)
        return "" if number is not None and math.isnan(number) else number

    @property
    def _sample(self) -> Entry:
        return next(entry for entry in self.entries if entry != "")

    def _unknown(self, cell: Any, row: int, what: str) -> str:
        where = f"{what}, row {row + 1}"
        if is_missing(cell):
            return f"{where}: the value is missing"
        near = difflib.get_close_matches(str(cell), [str(entry) for entry in self.entries], n=1)
        hint = f" (is {near[0]!r} meant?)" if near else ""
        return f"{where}: {cell!r} is not in the schema's list ({listed(self.entries)}){hint}"


def check_unique(names: Sequence[str], kind: str) -> None:
    """Check that no name occurs twice; ``kind`` says in the error what is named."""
    if len(set(names)) < len(names):
        repeated = next(name for i, name in enumerate(names) if name in names[:i])
        raise ValueError(f"each {kind} must have its own name, but {repeated!r} is repeated")


def _numbered(cells: NDArray[Any]) -> list[tuple[int, Any]]:
    return list(enumerate(cells.tolist()))


def _plain(cells: NDArray[Any]) -> NDArray[Any]:
    """Return cells as objects, if ``_float`` could read all that are text."""
    plain = cells.astype(object)
    found: list[Any] = [cell for cell in plain.tolist() if isinstance(cell, (str, bytes))]
    texts = "".join(found)
    if "_" in texts or not texts.isascii():
        raise ValueError("digits of other kinds, or between underscores")
    return plain


def _float(text: str | bytes) -> float:
    """Read a number as files spell it: without Python's underscores, in ASCII digits only.

    NaN and infinity can be spelled out, and are then missing and infinite.
    """
    spelled = text if isinstance(text, str) else text.decode("ascii")
    if "_" in spelled or not spelled.isascii():
        raise ValueError
    return float(spelled)


def _number(cell: Any, row: int, what: str) -> float:
    if is_missing(cell):
        return math.nan
    number = _number_or_none(cell)
    if number is None:
        raise ValueError(
            f"{what}, row {row + 1}: {cell!r} is not a number, but the schema says that the column "
            "is numeric. Correct the cell (leave it empty if the value is missing), or declare the "
            "column as categorical"
        )
    return number


def _number_or_none(cell: Any) -> float | None:
    try:
        return _float(cell) if isinstance(cell, (str, bytes)) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def is_missing(cell: Any) -> bool:
    """Say whether a cell stands for no value: None, NaN, NaT, pandas.NA or blank text."""
    if isinstance(cell, str):
        return not cell.strip()
    # NaN, NaT and pandas.NA are the values that do not equal themselves.
    same = cell == cell
    return cell is None or not (isinstance(same, bool | np.bool_) and bool(same))


def _kind(entry: Any) -> str:
    if isinstance(entry, bool):
        return "bool"
    if isinstance(entry, str):
        return "text"
    number = _number_or_none(entry) if isinstance(entry, (int, float)) else None
    return "other" if number is None or not math.isfinite(number) else "number"


def _value(entry: Entry) -> Entry:
    """Return what equal entries share: the text, or the number that float64 makes of others."""
    return entry if isinstance(entry, str) else float(entry)


def listed(entries: Sequence[Entry]) -> str:
    """List entries in one line, of many the first."""
    shown = ", ".join(repr(entry) for entry in entries[:_SHOWN])
    more = f", ... ({len(entries)} in all)" if len(entries) > _SHOWN else ""
    return f"{shown}{more}"
