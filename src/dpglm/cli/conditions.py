"""Private conditions that select rows, such as ``--where 'age>=60'``."""

from __future__ import annotations

import operator
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm.cli.console import InputError

if TYPE_CHECKING:
    from dpglm.tables.schema import Schema

_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


@final
@dataclass(frozen=True)
class Condition:
    """A comparison of the cells of a column with a value."""

    column: str
    sign: str
    value: str

    @classmethod
    def read(cls, text: str, columns: Collection[str]) -> Self:
        """Read a condition; names of columns may contain signs."""
        for name in sorted(columns, key=len, reverse=True):
            rest = text.removeprefix(name).lstrip() if text.startswith(name) else ""
            for sign in _SIGNS:
                if rest.startswith(sign):
                    return cls(name, sign, rest.removeprefix(sign).strip())
        raise InputError(
            f"--where {text}: must be COLUMN, one of {' '.join(_SIGNS)}, and a value, with a "
            f"column of the data: {', '.join(columns)}"
        )

    def holds(self, cells: Any) -> NDArray[np.bool_]:
        """Return whether the condition holds for each cell.

        Missing cells only equal a missing value. Numbers are compared by value, other cells as
        text.
        """
        compare, number = _SIGNS[self.sign], _number(self.value)
        found = np.zeros(len(cells), dtype=np.bool_)
        for place, cell in enumerate(np.asarray(cells, dtype=object).tolist()):
            text = _text(cell)
            if not text or not self.value:
                missing = compare(text, "") if self.sign in ("=", "!=") else False
                found[place] = missing and not self.value
                continue
            own = _number(text) if number is not None else None
            if number is not None and own is None:
                found[place] = self.sign == "!="
            else:
                left, right = (text, _text(self.value)) if own is None else (own, number)
                found[place] = compare(left, right)
        return found


def selected(
    conditions: Sequence[Condition],
    table: Mapping[str, Any],
    kept: str | None = None,
    schema: Schema | None = None,
) -> tuple[NDArray[np.bool_], dict[str, Any]]:
    """Return which rows count, and the table with valid cells in the others.

    These have the cells of a row that counts, so that encoders accept them, or valid ones of the
    schema where no row counts. Nothing reads them. A column that is ``kept``, of group ids, stays
    as it is.

    Privacy: whether any row counts is private, so the command succeeds in either case.
    """
    from sklearn.utils import _safe_indexing

    counts = np.logical_and.reduce([one.holds(table[one.column]) for one in conditions])
    if not counts.any():
        valid = {} if schema is None else _valid_cells(schema)
        return counts, {
            name: cells if name == kept else np.array([valid.get(name, 1.0)] * len(counts))
            for name, cells in table.items()
        }
    places = np.where(counts, np.arange(len(counts)), int(counts.argmax()))
    return counts, {
        name: cells if name == kept else _safe_indexing(cells, places)
        for name, cells in table.items()
    }


def _valid_cells(schema: Schema) -> dict[str, Any]:
    """Return a valid cell of each column of a schema and of its target."""
    every: list[Any] = [*schema.columns, *([schema.target] if schema.has_target else [])]
    return {
        one.name: next(
            (found[0] if isinstance(found, tuple) else found)
            for found in (vars(one).get(key) for key in ("categories", "classes", "low", "high"))
            if found is not None
        )
        for one in every
    }


def _text(cell: Any) -> str:
    """Return a cell as text in its normal form; "" for missing ones."""
    if cell is None or cell is np.ma.masked or cell != cell:
        return ""
    return unicodedata.normalize("NFC", str(cell).strip())


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if np.isfinite(found) else None
