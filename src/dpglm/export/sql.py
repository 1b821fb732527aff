"""Predictions as an expression of ANSI SQL."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable, Sequence
from typing import final

from dpglm._score import GAP, Notation, Score, choice, total
from dpglm.export.scoring import Scoring
from dpglm.tables.cells import Entry
from dpglm.tables.derived import check_iso, seconds_from

_FUNCTIONS = {"exp": "EXP", "log": "LN", "sqrt": "SQRT", "arctan": "ATAN", "floor": "FLOOR"}
_DOUBLE = "DOUBLE PRECISION"
# Databases and parsers limit the depth of an expression.
_MOST_TERMS = 50
# Characters that Python's ``str.strip`` removes and ANSI's TRIM leaves; all are below U+10000.
BLANKS = "".join(one for one in map(chr, range(1 << 16)) if one.isspace() and one != " ")


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

    def moment(self, column: str, format: str | None) -> str:
        check_iso(column, format)

        def of_text(text: str) -> str:
            end = f"LENGTH({text})"
            zone = (
                f"CASE WHEN {end} > 15 AND {_fits(text, f'{end} - 5', '+00:00')} THEN 6 "
                f"WHEN {end} > 14 AND {_fits(text, f'{end} - 4', '+0000')} THEN 5 "
                f"WHEN {end} > 10 AND SUBSTR({text}, {end}) = 'Z' THEN 1 ELSE 0 END"
            )
            return self._named(zone, lambda size: of_zone(text, size))

        def of_zone(text: str, size: str) -> str:
            end = f"(LENGTH({text}) - {size})"
            valid = (
                f"{_fits(text, '1', '0000-00-00')} AND CASE {end} WHEN 10 THEN 1 = 1 "
                f"WHEN 16 THEN {_fits(text, '11', 'T00:00')} "
                f"WHEN 19 THEN {_fits(text, '11', 'T00:00:00')} ELSE CASE WHEN {end} > 20 "
                f"THEN {_fits(text, '11', 'T00:00:00.')} "
                f"AND LTRIM(SUBSTR({text}, 21, {end} - 20), '{_TEN}') = '' END END"
            )
            # Zone, date and clock, at the same place in each text.
            ahead = f"SUBSTR({text}, {end} + 1, 3) || SUBSTR({text}, LENGTH({text}) - 1)"
            known = (
                f"CASE WHEN {size} > 4 THEN {ahead} ELSE '+0000' END || "
                f"SUBSTR({text}, 1, {end}) || SUBSTR(' 00:00:00', {end} - 9)"
            )
            return self._named(f"CASE WHEN {valid} THEN {known} END", of_known)

        def of_known(known: str) -> str:
            hours, minutes, *parts = (
                _digits(f"SUBSTR({known}, {start}, {length})")
                for start, length in ((2, 2), (4, 2), (6, 4), (11, 2), (14, 2), (17, 2), (20, 2))
            )
            size = hours * 3600.0 + minutes * 60.0
            behind = Score(lambda _: f"SUBSTR({known}, 1, 1) = '-'")
            ahead = choice(behind, 0.0 - size, size)
            second = _digits(f"SUBSTR({known}, 23)")
            found: str = seconds_from([*parts, second, ahead], column).write(self)
            return found

        return self._time(column, of_text)

    def span(self, column: str, unit: float) -> str:
        def of_text(text: str) -> str:
            negative = f"SUBSTR({text}, 1, 1) = '-'"
            size = f"CASE WHEN {negative} THEN SUBSTR({text}, 2) ELSE {text} END"

            def of_size(size: str) -> str:
                return self._named(f"RTRIM({size}, '{_TEN}:.')", lambda days: of_days(size, days))

            def of_days(size: str, days: str) -> str:
                clock = f"SUBSTR({size}, LENGTH({days}) + 1)"
                colons = f"LENGTH({clock}) - LENGTH(REPLACE({clock}, ':', ''))"
                full = (
                    f"CASE WHEN {clock} = '' AND {days} <> '' THEN '0:00:00' WHEN {colons} = 1 "
                    f"THEN {clock} || ':00' WHEN {colons} = 2 THEN {clock} END"
                )
                return self._named(full, lambda clock: self._span(negative, days, clock))

            return self._named(size, of_size)

        return self._time(column, of_text)

    def _span(self, negative: str, days: str, clock: str) -> str:
        start, end = f"LENGTH(RTRIM({clock}, '{_TEN}.'))", f"LENGTH({clock})"
        word = f"LTRIM({days}, '{_TEN}')"
        words = ", ".join(f"' day{s}{comma}{end}'" for s in _S for comma in _COMMA for end in _END)
        # A database may write a negative interval's clock without its own sign.
        both = f"{negative} AND {days} <> '' AND {clock} <> '0:00:00'"
        valid = (
            f"{start} > 4 AND {end} < 30 AND NOT ({both}) "
            f"AND LTRIM(SUBSTR({clock}, 1, {start} - 4), '{_TEN}') = '' "
            f"AND {_fits(clock, f'{start} - 3', ':00:00')} AND ({end} = {start} + 2 "
            f"OR ({end} > {start} + 3 AND {_fits(clock, f'{start} + 3', '.0')} "
            f"AND LTRIM(SUBSTR({clock}, {start} + 4), '{_TEN}') = '')) "
            f"AND ({days} = '' OR ({word} IN ({words}) "
            f"AND LENGTH({days}) BETWEEN LENGTH({word}) + 1 AND LENGTH({word}) + 8))"
        )

        def of_valid(valid: str) -> str:
            def number(text: str) -> Score:
                return _digits(f"CASE WHEN {valid} = 1 THEN {text} END")

            count = f"CASE {days} WHEN '' THEN '0' ELSE REPLACE({days}, {word}, '') END"
            seconds = total(
                [
                    number(count) * 86_400.0,
                    number(f"SUBSTR({clock}, 1, {start} - 4)") * 3600.0,
                    number(f"SUBSTR({clock}, {start} - 2, 2)") * 60.0,
                    number(f"SUBSTR({clock}, {start} + 1)"),
                ]
            )
            sign = Score(lambda _: negative)
            found: str = choice(sign, 0.0 - seconds, seconds).write(self)
            return found

        return self._named(f"CASE WHEN {valid} THEN 1 END", of_valid)

    def _time(self, column: str, use: Callable[[str], str]) -> str:
        """Return the seconds of a cell's text, NULL for other texts, and GAP for missing ones."""
        name = _identifier(column)
        text = f"TRIM(CAST({name} AS VARCHAR(200)))"
        gap = self.constant(GAP)
        return self._named(
            text,
            lambda text: f"CASE WHEN COALESCE({text}, '') = '' THEN {gap} ELSE {use(text)} END",
        )

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

    def named(self, values: Sequence[str], use: Callable[[Sequence[str]], str]) -> str:
        names = [f"dpglm{self._count + i}" for i in range(len(values))]
        self._count += len(values)
        listed = ", ".join(f"{one} AS {name}" for one, name in zip(values, names, strict=True))
        return f"(SELECT {use(names)} FROM (SELECT DISTINCT {listed}) AS of_{names[0]})"

    def _named(self, value: str, use: Callable[[str], str]) -> str:
        return self.named([value], lambda names: use(names[0]))

    def refused(self, column: str) -> str:
        return "NULL"


_FINITE = (-sys.float_info.max, sys.float_info.max)


_TEN = "0123456789"
_MARKS = {"+": "'+', '-'", "T": "' ', 'T'"}
_S, _COMMA, _END = ("", "s"), ("", ","), ("", " ")


def _fits(text: str, start: str, pattern: str) -> str:
    """Return whether text that is long enough has digits (0), signs (+), T and marks at places."""
    pieces = [
        (match[0], f"SUBSTR({text}, {start} + {match.start()}, {len(match[0])})")
        for match in re.finditer("0+|.", pattern)
    ]
    digits = " || ".join(piece for mark, piece in pieces if mark[0] == "0") or "''"
    tests = ((piece, _MARKS.get(mark, f"'{mark}'")) for mark, piece in pieces if mark[0] != "0")
    marks = [f"{piece} IN ({allowed})" for piece, allowed in tests]
    return " AND ".join([*marks, f"LTRIM({digits}, '{_TEN}') = ''"])


def _digits(text: str) -> Score:
    return Score(lambda _: f"CAST({text} AS {_DOUBLE})")


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
