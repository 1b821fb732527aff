"""Predictions as an expression of ANSI SQL."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import final

from dpglm._score import Notation
from dpglm.export.scoring import Scoring
from dpglm.tables.cells import Entry

_FUNCTIONS = {"exp": "EXP", "log": "LN", "sqrt": "SQRT", "arctan": "ATAN"}
_DOUBLE = "DOUBLE PRECISION"
# Databases and parsers limit the depth of an expression.
_MOST_TERMS = 50
# Characters that Python's ``str.strip`` removes and ANSI's TRIM leaves.
BLANKS = "".join(one for one in map(chr, range(sys.maxunicode)) if one.isspace() and one != " ")


def as_sql(scoring: Scoring) -> str:
    """Return one expression, or one with a name for each class, separated by commas."""
    found = [(name, one.write(Sql())) for name, one in scoring.outputs]
    values = [(name, f"CAST({text} AS {_DOUBLE})") for name, text in found]
    if len(values) == 1:
        return values[0][1]
    return ",\n".join(f"{value} AS {_identifier(name)}" for name, value in values)


@final
class Sql(Notation[str]):
    """Writes SQL; refused rows are NULL."""

    def __init__(self) -> None:
        self._count = 0

    def constant(self, value: float) -> str:
        text = repr(float(value))
        # With an exponent it is a floating-point number in every database.
        text = text if "e" in text else f"{text}e0"
        return f"({text})" if value < 0.0 else text

    def cell(self, column: str) -> str:
        return f"CAST({_identifier(column)} AS {_DOUBLE})"

    def part(self, column: str, start: int, length: int) -> str:
        text = f"CAST({_identifier(column)} AS VARCHAR(40))"
        return f"CAST(SUBSTR({text}, {start}, {length}) AS {_DOUBLE})"

    def total(self, terms: Sequence[str]) -> str:
        if len(terms) > _MOST_TERMS:
            starts = range(0, len(terms), _MOST_TERMS)
            return self.total([self.total(terms[i : i + _MOST_TERMS]) for i in starts])
        joint = " + " if sum(map(len, terms)) < 80 else "\n + "
        return f"({joint.join(terms)})"

    def arithmetic(self, sign: str, left: str, right: str) -> str:
        return f"({left} {sign} {right})"

    def function(self, name: str, argument: str) -> str:
        return f"{_FUNCTIONS[name]}({argument})"

    def power(self, base: str, exponent: float) -> str:
        return f"POWER({base}, {self.constant(exponent)})"

    def choice(self, test: str, first: str, other: str) -> str:
        if other == "NULL":
            return f"CASE WHEN {test} THEN {first} END"
        # Only a choice begins so, since sums and products are in parentheses.
        if other.startswith("CASE WHEN "):
            return f"CASE WHEN {test} THEN {first} {other.removeprefix('CASE ')}"
        return f"CASE WHEN {test} THEN {first} ELSE {other} END"

    def lookup(self, column: str, cases: Sequence[tuple[Entry, str]], other: str | None) -> str:
        name, listed = _identifier(column), [one for one in cases if one[0] != ""]
        sample = listed[0][0]
        if isinstance(sample, str):
            operand = f"TRIM({name})"
            spelled = [(_literal(form), value) for one, value in listed for form in forms(one)]
            missing = f"{name} IS NULL OR {operand} = ''"
            if other is not None:
                blanks = ", ".join(map(_literal, BLANKS))
                ends = (f"SUBSTR({operand}, {i}, 1)" for i in ("1", f"LENGTH({operand})"))
                odd = " OR ".join(f"{end} IN ({blanks})" for end in ends)
                other = self.choice(odd, "NULL", other)
        elif isinstance(sample, bool):
            operand, missing = name, f"{name} IS NULL"
            spelled = [(str(one).upper(), value) for one, value in listed]
        else:
            operand, missing = self.cell(column), self.is_missing(column)
            spelled = [(self.constant(float(one)), value) for one, value in listed]
        other = "NULL" if other is None else other
        whens = " ".join(f"WHEN {text} THEN {value}" for text, value in spelled)
        found = f"CASE {operand} {whens} ELSE {other} END"
        if operand == self.cell(column):
            found = self.choice(self.is_number(column), found, other)
        gap = [value for entry, value in cases if entry == ""]
        return self.choice(missing, gap[0], found) if gap else found

    def is_number(self, column: str) -> str:
        low, high = (f"CAST({self.constant(end)} AS {_DOUBLE})" for end in _FINITE)
        return f"{_identifier(column)} BETWEEN {low} AND {high}"

    def is_missing(self, column: str) -> str:
        # NaN is the largest number and equals itself, where a database has it.
        name = _identifier(column)
        high = f"CAST({self.constant(_FINITE[1])} AS {_DOUBLE})"
        return f"{name} IS NULL OR ({name} > {high} AND {name} = 0.0e0 * {name})"

    def named(self, value: str, use: Callable[[str], str]) -> str:
        self._count += 1
        name = f"z{self._count}"
        return f"(SELECT {use(name)} FROM (SELECT {value} AS {name}) AS of_{name})"

    def refused(self, column: str) -> str:
        return "NULL"


_FINITE = (-sys.float_info.max, sys.float_info.max)


def forms(text: object) -> list[str]:
    """Return the composed and the decomposed spelling of a category."""
    composed = unicodedata.normalize("NFC", str(text)).strip()
    return list(dict.fromkeys([composed, unicodedata.normalize("NFD", composed)]))


def _identifier(name: str) -> str:
    return '"' + _plain(name).replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + _plain(text).replace("'", "''") + "'"


def _plain(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"names and categories must not contain the character 0, got {text!r}")
    return text
