"""Predictions as a Python function that imports nothing."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import final

from dpglm._score import Notation
from dpglm.export.scoring import Scoring
from dpglm.export.sql import forms
from dpglm.tables.cells import Entry
from dpglm.tables.derived import check_iso

_READERS = """
    def refuse(column):
        raise ValueError(f"column {column!r}: the model does not take {row[column]!r}")

    def is_missing(cell):
        if isinstance(cell, str):
            return not cell.strip()
        return cell is None or type(cell).__name__ == "NAType" or bool(cell != cell)

    def number(column):
        cell = row[column]
        if is_missing(cell):
            return None
        try:
            if isinstance(cell, str) and ("_" in cell or not cell.isascii()):
                raise ValueError
            value = float(cell)
        except (TypeError, ValueError, OverflowError):
            return float("inf")
        return None if value != value else value
"""
_TEXT = """
    def text(column):
        cell = row[column]
        if is_missing(cell):
            return ""
        return cell.strip() if isinstance(cell, str) else refuse(column)
"""
_TRUTH = """
    def truth(column):
        cell = row[column]
        known = {"true": 1.0, "false": 0.0}
        if isinstance(cell, str) and cell.strip().lower() in known:
            return known[cell.strip().lower()]
        value = number(column)
        return "" if value is None else value
"""
_TIMES = """
    def digits(column, text, least, most):
        if not (least <= len(text) <= most and text.isdecimal()):
            refuse(column)
        return int(text)

    def clock(column, text, most):
        parts = text.split(":")
        if not 2 <= len(parts) <= 3:
            refuse(column)
        second, point, rest = (parts + ["00"])[2].partition(".")
        if point:
            digits(column, rest, 1, 40)
        seconds = digits(column, second, 2, 2) + float("0" + point + rest)
        hours, minutes = digits(column, parts[0], 1, most), digits(column, parts[1], 2, 2)
        return hours, minutes, 60.0 * (60 * hours + minutes) + seconds

    def moment(column):
        if is_missing(row[column]):
            return 1e15
        text, ahead = str(row[column]).strip(), 0
        is_iso = text[4:5] == "-"
        if is_iso and text[10:] and text[-1] == "Z":
            text = text[:-1]
        elif is_iso:
            zone = text[10:].replace(":", "")[-5:]
            for end in (zone, zone[:3] + ":" + zone[3:]):
                if zone[:1] in ("+", "-") and zone[1:].isdecimal() and text[10:].endswith(end):
                    text = text[: -len(end)]
                    ahead = 3600 * int(zone[1:3]) + 60 * int(zone[3:])
                    ahead = -ahead if zone[0] == "-" else ahead
                    break
        date, blank, rest = text.replace("T", " ", 1).partition(" ")
        parts = date.split("-") if is_iso else date.split(".")[::-1]
        if len(parts) != 3 or (blank and not rest):
            refuse(column)
        year = digits(column, parts[0], 4, 4)
        month, day = (digits(column, one, 1 + is_iso, 2) for one in parts[1:])
        hours, minutes, seconds = clock(column, rest or "00:00", 2)
        leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
        ends = (31, 28 + leap, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
        if not (year and 0 < month < 13 and 0 < day <= ends[month - 1]):
            refuse(column)
        if hours > 23 or minutes > 59:
            refuse(column)
        past = year - 1
        days = 365 * past + past // 4 - past // 100 + past // 400 + sum(ends[: month - 1]) + day
        total = 86400.0 * (days - 719163) + seconds - ahead
        return total if -62135596800.0 <= total < 253402300800.0 else refuse(column)

    def span(column):
        cell = row[column]
        if is_missing(cell):
            return 1e15
        if type(cell).__name__ in ("timedelta", "Timedelta"):
            return cell.total_seconds()
        text = str(cell).strip()
        size = text.removeprefix("-")
        days, word, rest = size.partition(" day")
        if word:
            rest = rest.removeprefix("s").removeprefix(",").removeprefix(" ")
        else:
            days, rest = "0", size
        seconds = 86400.0 * digits(column, days, 1, 8)
        if rest or not word:
            seconds += clock(column, rest, 9)[2]
        return -seconds if text[:1] == "-" else seconds
"""
_HELPERS: Mapping[str, str] = MappingProxyType(
    {
        "exp": """
    def exp(x):
        return 2.718281828459045**x
""",
        "log": """
    def log(x):
        root, factor = x, 1.0
        while not 0.9 < root < 1.1:
            root, factor = root**0.5, 2.0 * factor
        ratio = (root - 1.0) / (root + 1.0)
        y = 2.0 * factor * sum(ratio**i / i for i in range(1, 20, 2))
        # A step of Newton's method undoes the rounding of the roots.
        return y + (x * 2.718281828459045**-y - 1.0)
""",
        "sqrt": """
    def sqrt(x):
        return x**0.5
""",
        "arctan": """
    def arctan(x):
        if abs(x) > 1.0:
            half = 1.5707963267948966
            return (half if x > 0.0 else -half) - arctan(1.0 / x)
        for _ in range(3):
            x = x / (1.0 + (1.0 + x * x) ** 0.5)
        return 8.0 * sum((-x * x) ** i * x / (2 * i + 1) for i in range(12))
""",
    }
)


def as_python(scoring: Scoring) -> str:
    """Return the source of a function ``predict(row)`` of a mapping from column to cell."""
    notation = Python()
    found = [(name, one.write(notation)) for name, one in scoring.outputs]
    if len(found) == 1:
        result = found[0][1]
    else:
        result = "{" + ", ".join(f"{name!r}: {value}" for name, value in found) + "}"
    body = "".join(f"    {line}\n" for line in (*notation.lines, f"return {result}"))
    used = [text for name, text in _HELPERS.items() if re.search(rf"\b{name}\(", body)]
    used += [_TIMES] if " moment(" in body or " span(" in body else []
    used += [_TEXT] if " text(" in body else []
    used += [_TRUTH] if " truth(" in body else []
    what = scoring.what.encode("unicode_escape").decode().replace('"', '\\"')
    doc = f'    """Return the {what} of a row, a mapping of columns."""\n'
    return f"def predict(row):\n{doc}{_READERS}{''.join(used)}\n{body}"


@final
class Python(Notation[str]):
    """Writes Python; cells and lookups are assigned to variables in ``lines``."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._names: dict[str, str] = {}

    def _variable(self, value: str) -> str:
        name = self._names.get(value)
        if name is None:
            name = self._names[value] = f"v{len(self._names)}"
            self.lines.append(f"{name} = {value}")
        return name

    def constant(self, value: float) -> str:
        return f"({value!r})" if value < 0.0 else repr(float(value))

    def cell(self, column: str) -> str:
        return self._variable(f"number({column!r})")

    def moment(self, column: str, format: str | None) -> str:
        check_iso(column, format)
        return f"moment({column!r})"

    def span(self, column: str, unit: float) -> str:
        return f"span({column!r})"

    def total(self, terms: Sequence[str]) -> str:
        return f"({' + '.join(terms)})"

    def arithmetic(self, sign: str, left: str, right: str) -> str:
        return f"({left} {sign} {right})"

    def function(self, name: str, argument: str) -> str:
        return f"({argument} // 1.0)" if name == "floor" else f"{name}({argument})"

    def power(self, base: str, exponent: float) -> str:
        return f"({base} ** {self.constant(exponent)})"

    def choice(self, test: str, first: str, other: str) -> str:
        return f"({first} if {test} else {other})"

    def lookup(self, column: str, cases: Sequence[tuple[Entry, str]], other: str | None) -> str:
        sample = next(entry for entry, _ in cases if entry != "")
        if isinstance(sample, str):
            keys: list[tuple[str | float, str]]
            keys = [(form, value) for entry, value in cases for form in forms(entry)]
            cell = self._variable(f"text({column!r})")
        else:
            keys = [("" if entry == "" else float(entry), value) for entry, value in cases]
            cell = self._variable(f"truth({column!r})")
        table = self._variable("{" + ", ".join(f"{k!r}: {v}" for k, v in keys) + "}")
        other = self.refused(column) if other is None else other
        return f"({table}[{cell}] if {cell} in {table} else {other})"

    def is_number(self, column: str) -> str:
        cell = self.cell(column)
        return f"{cell} is not None and abs({cell}) <= {sys.float_info.max!r}"

    def is_missing(self, column: str) -> str:
        return f"{self.cell(column)} is None"

    def named(self, values: Sequence[str], use: Callable[[Sequence[str]], str]) -> str:
        return use([self._variable(one) for one in values])

    def refused(self, column: str) -> str:
        return f"refuse({column!r})"
