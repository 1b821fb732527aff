"""Row-wise arithmetic on numeric columns, with the range of its values.

Python in a formula is never evaluated: its syntax tree is read as one of the expressions below, and
anything else is refused.
"""

from __future__ import annotations

import abc
import ast
import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._score import Score, as_score, cell, choice, function
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn

Floats: TypeAlias = NDArray[np.float64]
_Range: TypeAlias = tuple[float, float]

_LARGEST = 1e30
_MOST_DEPTH = 50
_POWERS = ("pow", "power")
_OF_TWO = ("maximum", "minimum", *_POWERS)
_OF_GAPS = ("isna", "isnull", "isnan")


class Expression(abc.ABC):
    """A number for each row, computed from its own cells; final subclasses below."""

    parts: tuple[Expression, ...]
    """The operands."""

    @property
    def columns(self) -> frozenset[str]:
        """Names of the columns."""
        return frozenset[str]().union(*(one.columns for one in self.parts))

    @property
    def numbers(self) -> frozenset[float]:
        """Numbers in the formula, where values may bend or jump."""
        return frozenset[float]().union(*(one.numbers for one in self.parts))

    @property
    @abc.abstractmethod
    def range(self) -> _Range:
        """Bounds on the values, for cells within their declared bounds."""

    @abc.abstractmethod
    def _compute(self, cells: Mapping[str, Floats]) -> Any:
        """Return the values, up to rounding."""

    @abc.abstractmethod
    def score(self) -> Score:
        """Return the values as an expression of the cells, up to rounding."""

    def values(self, cells: Mapping[str, Floats]) -> Any:
        """Return the values of rows, clipped to ``range`` against rounding.

        Numeric ``cells`` are within the declared bounds, or NaN if missing.
        """
        return np.clip(self._compute(cells), *self.range)


@final
@dataclass(frozen=True)
class Variable(Expression):
    """A numeric column."""

    column: NumericColumn

    parts = ()

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column.name})

    @property
    def range(self) -> _Range:
        return float(self.column.low), float(self.column.high)

    def _compute(self, cells: Mapping[str, Floats]) -> Any:
        return without_gaps(self.column, cells[self.column.name])

    def score(self) -> Score:
        low, high = map(as_score, self.range)
        gap = float(without_gaps(self.column, np.array([math.nan]))[0])
        return self.column.within(low, cell(self.column.name), high, gap)


def without_gaps(column: NumericColumn, numbers: Floats) -> Floats:
    """Return a column's numbers, with its public number for missing cells."""
    if column.missing is None:
        return numbers
    stand_in = min(max(float(column.missing), column.low), column.high)
    return np.where(np.isnan(numbers), stand_in, numbers)


@final
@dataclass(frozen=True)
class _Missing(Expression):
    """1 where a cell is missing, else 0."""

    column: Column

    parts = ()

    def __post_init__(self) -> None:
        name = self.column.name
        if isinstance(self.column, NumericColumn) and self.column.missing is None:
            raise ValueError(
                f"missing values of {name!r} are an error: declare a number for them in the "
                'schema, such as "missing": 0'
            )
        if isinstance(self.column, CategoricalColumn) and "" not in self.column.categories:
            raise ValueError(
                f'missing values of {name!r} are an error: list them as "" among the categories '
                "of the schema"
            )

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column.name})

    @property
    def range(self) -> _Range:
        return 0.0, 1.0

    def _compute(self, cells: Mapping[str, Any]) -> Any:
        found = cells[self.column.name]
        if isinstance(self.column, CategoricalColumn):
            return (found == self.column.categories.index("")).astype(np.float64)
        return np.isnan(found).astype(np.float64)

    def score(self) -> Score:
        if isinstance(self.column, CategoricalColumn):
            return self.column.lookup([as_score(one == "") for one in self.column.categories])
        assert isinstance(self.column, NumericColumn)
        zero = as_score(0.0)
        return self.column.within(zero, zero, zero, 1.0)


@final
@dataclass(frozen=True)
class _Number(Expression):
    value: float

    parts = ()

    @property
    def numbers(self) -> frozenset[float]:
        return frozenset({self.value})

    @property
    def range(self) -> _Range:
        return self.value, self.value

    def _compute(self, cells: Mapping[str, Floats]) -> Any:
        return self.value

    def score(self) -> Score:
        return as_score(self.value)


@final
@dataclass(frozen=True)
class _Operation:
    """A function of one or two numbers, with extremes at the corners of a box, or at 0.

    Its first number is ``above`` a bound, which may be included. ``bends`` at 0 downwards.
    """

    compute: Callable[..., Any]
    score: Callable[..., Score]
    above: float = -math.inf
    includes_above: bool = False
    bends: bool = False

    def range(self, name: str, *ranges: _Range) -> _Range:
        """Return bounds on the values for numbers within bounds."""
        low, high = ranges[0]
        if low < self.above or (low == self.above and not self.includes_above):
            least = "at least" if self.includes_above else "above"
            raise ValueError(
                f"{name} is defined {least} {self.above:g}, but its argument can be {low:g} by "
                "the schema's bounds"
            )
        corners = [float(self.compute(*ends)) for ends in itertools.product(*ranges)]
        if self.bends and low < 0.0 < high:
            corners.append(0.0)
        return min(corners), max(corners)


def _log(x: Score) -> Score:
    return function("log", x)


def _exp(x: Score) -> Score:
    # Databases refuse powers that underflow.
    return choice(x < -700.0, as_score(0.0), function("exp", x))


def _tanh(x: Score) -> Score:
    return 1.0 - 2.0 / (_exp(x.clipped(-20.0, 20.0) * 2.0) + 1.0)


FUNCTIONS: Mapping[str, _Operation] = MappingProxyType(
    {
        "log": _Operation(np.log, _log, 0.0),
        "log2": _Operation(np.log2, lambda x: _log(x) / math.log(2.0), 0.0),
        "log10": _Operation(np.log10, lambda x: _log(x) / math.log(10.0), 0.0),
        "log1p": _Operation(np.log1p, lambda x: _log(x + 1.0), -1.0),
        "sqrt": _Operation(np.sqrt, lambda x: function("sqrt", x), 0.0, includes_above=True),
        "exp": _Operation(np.exp, _exp),
        "expm1": _Operation(np.expm1, lambda x: _exp(x) - 1.0),
        "tanh": _Operation(np.tanh, _tanh),
        "arctan": _Operation(np.arctan, lambda x: function("arctan", x)),
    }
)
"""Increasing functions of one number, by name."""


def _indicator(compare: Callable[[Any, Any], Any]) -> _Operation:
    def score(left: Score, right: Score) -> Score:
        return choice(compare(left, right), as_score(1.0), as_score(0.0))

    def compute(left: Any, right: Any) -> Any:
        return np.asarray(compare(left, right), dtype=np.float64)

    return _Operation(compute, score)


_OPERATIONS: Mapping[Any, _Operation] = MappingProxyType(
    {
        **FUNCTIONS,
        "abs": _Operation(np.abs, lambda x: choice(x < 0.0, 0.0 - x, x), bends=True),
        ast.Add: _Operation(np.add, operator.add),
        ast.Sub: _Operation(np.subtract, operator.sub),
        ast.Mult: _Operation(np.multiply, operator.mul),
        ast.Div: _Operation(np.divide, operator.truediv),
        ast.Gt: _indicator(lambda a, b: b < a),
        ast.GtE: _indicator(lambda a, b: b <= a),
        ast.Lt: _indicator(lambda a, b: a < b),
        ast.LtE: _indicator(lambda a, b: a <= b),
        "maximum": _Operation(np.maximum, lambda a, b: choice(a < b, b, a)),
        "minimum": _Operation(np.minimum, lambda a, b: choice(b < a, b, a)),
    }
)
"""Operations by operator, or name of the function."""


@final
@dataclass(frozen=True)
class _Applied(Expression):
    """An operation on one or two expressions."""

    operator: Any
    parts: tuple[Expression, ...]

    @property
    def range(self) -> _Range:
        ranges = [one.range for one in self.parts]
        low, high = ranges[-1]
        if self.operator is ast.Div and low <= 0.0 <= high:
            raise ValueError(
                f"its divisor can be 0: by the schema's bounds it is between {low:g} and {high:g}"
            )
        return _OPERATIONS[self.operator].range(str(self.operator), *ranges)

    def _compute(self, cells: Mapping[str, Floats]) -> Any:
        return _OPERATIONS[self.operator].compute(*(one.values(cells) for one in self.parts))

    def score(self) -> Score:
        operation, scores = _OPERATIONS[self.operator], [one.score() for one in self.parts]
        if operation.above > -math.inf:
            # Against rounding below the domain.
            scores[0] = scores[0].clipped(self.parts[0].range[0], math.inf)
        return operation.score(*scores)


def _applied(operator: Any, *parts: Expression) -> Expression:
    return _Applied(operator, parts)


@final
@dataclass(frozen=True)
class _Power(Expression):
    """An expression to the power of a fixed number."""

    parts: tuple[Expression, ...]
    exponent: float

    @property
    def range(self) -> _Range:
        low, high = self.parts[0].range
        is_whole = self.exponent == int(self.exponent)
        if not is_whole and low < 0.0:
            raise ValueError(
                f"the power {self.exponent:g} is defined from 0, but its base can be {low:g}"
            )
        if self.exponent < 0.0 and low <= 0.0 <= high:
            raise ValueError(
                f"the power {self.exponent:g} is not defined at 0, which its base can be"
            )
        ends = [float(np.power(end, self.exponent)) for end in (low, high)]
        if is_whole and self.exponent % 2 == 0 and low < 0.0 < high:
            ends.append(0.0)
        return min(ends), max(ends)

    def _compute(self, cells: Mapping[str, Floats]) -> Any:
        return np.power(self.parts[0].values(cells), self.exponent)

    def score(self) -> Score:
        return self.parts[0].score().power(self.exponent)


def called(node: ast.AST) -> str | None:
    """Return the name of a called function, without ``np.``; None for other nodes."""
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    if isinstance(function, ast.Name):
        return function.id
    is_numpy = (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "np"
    )
    return function.attr if isinstance(function, ast.Attribute) and is_numpy else None


def read_expression(
    node: ast.AST, columns: Mapping[str, Column], depth: int = _MOST_DEPTH
) -> Expression:
    """Read a syntax tree as a bounded expression of numeric columns."""
    if depth == 0:
        raise ValueError("is nested too deeply")
    found = _read(node, columns, depth - 1)
    with np.errstate(all="ignore"):
        low, high = found.range
    if not (-_LARGEST <= low <= high <= _LARGEST):
        raise ValueError(
            f"its values must stay within +-{_LARGEST:g}, but by the schema's bounds they are "
            f"between {low:g} and {high:g}"
        )
    return found


def _read(node: ast.AST, columns: Mapping[str, Column], depth: int) -> Expression:
    if isinstance(node, ast.Name):
        return _variable(node.id, columns)
    if isinstance(node, ast.Constant):
        return _Number(_as_float(node.value))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = read_expression(node.operand, columns, depth)
        is_minus = isinstance(node.op, ast.USub)
        return _applied(ast.Sub, _Number(0.0), operand) if is_minus else operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return _power(node.left, node.right, columns, depth)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        left = read_expression(node.left, columns, depth)
        return _applied(type(node.op), left, read_expression(node.right, columns, depth))
    if isinstance(node, ast.Compare):
        sides = [read_expression(one, columns, depth) for one in (node.left, *node.comparators)]
        pairs = zip(node.ops, itertools.pairwise(sides), strict=True)
        # All must hold, as in 16 < age < 65.
        return functools.reduce(_product, (_compared(op, *pair) for op, pair in pairs))
    name = called(node)
    if isinstance(node, ast.Call) and name is not None:
        return _call(name, node, columns, depth)
    raise ValueError(
        "only numbers, numeric columns, + - * / **, comparisons, and functions of a row's numbers "
        f"are read ({_known()}), but it has {ast.unparse(node)!r}"
    )


def _power(
    base: ast.AST, exponent: ast.AST, columns: Mapping[str, Column], depth: int
) -> Expression:
    power = read_expression(exponent, columns, depth)
    value = power.range[0]
    if power.columns or not abs(value) <= 100.0:
        raise ValueError("a power must be a number between -100 and 100")
    return _Power((read_expression(base, columns, depth),), value)


_product = functools.partial(_applied, ast.Mult)


def _compared(operator: ast.AST, left: Expression, right: Expression) -> Expression:
    """Return an indicator; equal means neither less nor greater."""
    if type(operator) in _OPERATIONS:
        return _applied(type(operator), left, right)
    if not isinstance(operator, ast.Eq | ast.NotEq):
        raise ValueError("numbers are compared by <, <=, >, >=, == and !=")
    equal = _product(_applied(ast.LtE, left, right), _applied(ast.GtE, left, right))
    if isinstance(operator, ast.Eq):
        return equal
    return _applied(ast.Sub, _Number(1.0), equal)


def _call(name: str, node: ast.Call, columns: Mapping[str, Column], depth: int) -> Expression:
    if name == "offset":
        raise ValueError(
            "known terms of the score are not columns: give fit(table, exposure=...) numbers that "
            "are proportional to means, or offset= their logarithms; on the command line "
            "--exposure COLUMN"
        )
    if name not in (*FUNCTIONS, *_OF_TWO, *_OF_GAPS, "abs", "I"):
        raise ValueError(
            f"the function {name!r} is not among the known row-wise functions: {_known()}"
        )
    count = 2 if name in _OF_TWO else 1
    is_starred = any(isinstance(one, ast.Starred) for one in node.args)
    if len(node.args) != count or node.keywords or is_starred:
        raise ValueError(f"{name} takes {'two numbers' if count == 2 else 'one number'}")
    if name in _POWERS:
        base, exponent = node.args
        return _power(base, exponent, columns, depth)
    if name in _OF_GAPS:
        (cell,) = node.args
        if not isinstance(cell, ast.Name) or cell.id not in columns:
            raise ValueError(f"{name} takes a column of the schema")
        return _Missing(columns[cell.id])
    arguments = [read_expression(one, columns, depth) for one in node.args]
    return arguments[0] if name == "I" else _applied(name, *arguments)


def _variable(name: str, columns: Mapping[str, Column]) -> Variable:
    column = columns.get(name)
    if column is None:
        known = dict.fromkeys(one.name for one in columns.values())
        raise ValueError(f"column {name!r} is not in the schema: {', '.join(known)}")
    if not isinstance(column, NumericColumn):
        raise ValueError(f"column {name!r} is categorical and cannot be used in arithmetic")
    return Variable(column)


def _as_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("has a number that is too large") from None


def _known() -> str:
    return ", ".join(("I", "abs", "is.na", *FUNCTIONS, *_OF_TWO))
