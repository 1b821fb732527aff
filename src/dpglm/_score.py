"""Scores as expressions of one row's cells, which can be written in any language.

Encoders state their features as these expressions; ``dpglm.export`` writes them as SQL, Python and
ONNX. A row that a model refuses gets ``refused`` in place of a score.
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar, final

Entry: TypeAlias = str | int | float | bool

T = TypeVar("T")

# Longer lists of pieces are searched by halves.
_MOST_IN_A_ROW = 8
GAP = 1e15
"""The seconds of a missing date or duration, more than of any other."""


class Notation(abc.ABC, Generic[T]):
    """A language that expressions can be written in; final subclasses in ``dpglm.export``."""

    @abc.abstractmethod
    def constant(self, value: float) -> T:
        """Write a number."""

    @abc.abstractmethod
    def cell(self, column: str) -> T:
        """Write the number in a column, where ``is_number`` holds."""

    @abc.abstractmethod
    def moment(self, column: str, format: str | None) -> T:
        """Write a date as seconds since 1970-01-01, and ``GAP`` for a missing one."""

    @abc.abstractmethod
    def span(self, column: str, unit: float) -> T:
        """Write a duration in seconds, and ``GAP`` for a missing one; ``unit`` is in seconds."""

    @abc.abstractmethod
    def total(self, terms: Sequence[T]) -> T:
        """Write a sum."""

    @abc.abstractmethod
    def arithmetic(self, sign: str, left: T, right: T) -> T:
        """Write one of ``- * / < <=`` between two numbers."""

    @abc.abstractmethod
    def function(self, name: str, argument: T) -> T:
        """Write exp, log, sqrt, arctan or floor of a number."""

    @abc.abstractmethod
    def power(self, base: T, exponent: float) -> T:
        """Write a number to a fixed power."""

    @abc.abstractmethod
    def choice(self, test: T, first: T, other: T) -> T:
        """Write the first value where a test holds, and the other one elsewhere."""

    @abc.abstractmethod
    def lookup(self, column: str, cases: Sequence[tuple[Entry, T]], other: T | None) -> T:
        """Write the value of the entry that a cell equals, as ``Vocabulary`` compares them.

        "" is the entry of missing cells; ``other`` is the value of unlisted cells, which are
        refused if it is None.
        """

    @abc.abstractmethod
    def is_number(self, column: str) -> T:
        """Write whether a cell is a finite number."""

    @abc.abstractmethod
    def is_missing(self, column: str) -> T:
        """Write whether a numeric cell is missing."""

    @abc.abstractmethod
    def named(self, values: Sequence[T], use: Callable[[Sequence[T]], T]) -> T:
        """Write the result of ``use`` for values that are computed once each."""

    @abc.abstractmethod
    def refused(self, column: str) -> T:
        """Write the result of a row that the model refuses because of a column."""


@final
@dataclass(frozen=True, eq=False)
class Score:
    """A number, or a test, for each row; ``known`` is its value if that is constant."""

    write: Callable[[Notation[Any]], Any]
    known: float | None = None

    def __add__(self, other: Score | float) -> Score:
        return total([self, as_score(other)])

    def __radd__(self, other: float) -> Score:
        return self + other

    def __sub__(self, other: Score | float) -> Score:
        return self if other == 0.0 else self._with("-", as_score(other))

    def __rsub__(self, other: float) -> Score:
        return as_score(other)._with("-", self)

    def __mul__(self, other: Score | float) -> Score:
        return self if other == 1.0 else self._with("*", as_score(other))

    def __truediv__(self, other: Score | float) -> Score:
        return self if other == 1.0 else self._with("/", as_score(other))

    def __rtruediv__(self, other: float) -> Score:
        return as_score(other)._with("/", self)

    def __lt__(self, other: Score | float) -> Score:
        return Score(_written("<", self, as_score(other)))

    def __le__(self, other: Score | float) -> Score:
        return Score(_written("<=", self, as_score(other)))

    def _with(self, sign: str, other: Score) -> Score:
        a, b = self.known, other.known
        if a is not None and b is not None:
            return as_score({"-": a - b, "*": a * b}[sign] if sign != "/" else a / b)
        return Score(_written(sign, self, other))

    def power(self, exponent: float) -> Score:
        """Return the number to a power."""
        return Score(lambda notation: notation.power(self.write(notation), exponent))

    def clipped(self, low: float, high: float) -> Score:
        """Return the number clipped to [low, high], where an end may be infinite."""
        below = self if high == math.inf else choice(as_score(high) < self, as_score(high), self)
        return below if low == -math.inf else choice(self < low, as_score(low), below)

    def named(self, use: Callable[[Score], Score]) -> Score:
        """Return the result of ``use`` for the number, which is computed once."""
        return named([self], lambda scores: use(scores[0]))


def named(scores: Sequence[Score], use: Callable[[Sequence[Score]], Score]) -> Score:
    """Return the result of ``use`` for numbers, which are computed once each."""

    def write(notation: Notation[Any]) -> Any:
        def made(values: Sequence[Any]) -> Any:
            return use([written(one) for one in values]).write(notation)

        return notation.named([one.write(notation) for one in scores], made)

    return Score(write) if scores else use([])


def written(value: Any) -> Score:
    """Return a value of a notation as a score."""
    return Score(lambda _: value)


def _written(sign: str, left: Score, right: Score) -> Callable[[Notation[Any]], Any]:
    return lambda notation: notation.arithmetic(sign, left.write(notation), right.write(notation))


def as_score(value: Score | float) -> Score:
    """Return a number as a constant, and scores as they are."""
    if isinstance(value, Score):
        return value
    number = float(value)
    return Score(lambda notation: notation.constant(number), number)


def total(terms: Sequence[Score]) -> Score:
    """Return the sum of scores, in this order, with constants that follow each other added up."""
    parts: list[Score] = []
    for one in terms:
        if parts and one.known is not None and parts[-1].known is not None:
            parts[-1] = as_score(parts[-1].known + one.known)
        else:
            parts.append(one)
    parts = [one for one in parts if one.known != 0.0] or parts[:1]
    if len(parts) == 1:
        return parts[0]
    return Score(lambda notation: notation.total([one.write(notation) for one in parts]))


def _of_row(method: str) -> Callable[..., Score]:
    """Return a function with the arguments of a method of ``Notation``, for the score it writes."""
    return lambda *about: Score(operator.methodcaller(method, *about))


cell, moment, span, is_number, is_missing, refused = map(
    _of_row, ("cell", "moment", "span", "is_number", "is_missing", "refused")
)


def function(name: str, argument: Score) -> Score:
    """Return exp, log, sqrt or arctan of a number."""
    return Score(lambda notation: notation.function(name, argument.write(notation)))


def floor(argument: Score) -> Score:
    """Return the largest whole number that is not above a number."""
    return function("floor", argument)


def choice(test: Score, first: Score, other: Score) -> Score:
    """Return the first number where a test holds, and the other one elsewhere."""
    parts = (test, first, other)
    return Score(lambda notation: notation.choice(*(one.write(notation) for one in parts)))


def lookup(column: str, cases: Sequence[tuple[Entry, Score]], other: Score | None) -> Score:
    """Return the value of the entry that a cell equals; see ``Notation.lookup``."""

    def write(notation: Notation[Any]) -> Any:
        listed = [(entry, value.write(notation)) for entry, value in cases]
        return notation.lookup(column, listed, None if other is None else other.write(notation))

    return Score(write)


def piecewise(x: Score, ends: Sequence[float], pieces: Sequence[Score]) -> Score:
    """Return the piece of the first end that ``x`` is below; the last one beyond all ends."""
    if len(pieces) == 1:
        return pieces[0]
    cut = 1 if len(pieces) <= _MOST_IN_A_ROW else len(pieces) // 2
    below = piecewise(x, ends[: cut - 1], pieces[:cut])
    return choice(x < ends[cut - 1], below, piecewise(x, ends[cut:], pieces[cut:]))
