"""Row-wise arithmetic on numeric columns, with the range of its values.

Python in a formula is never evaluated: its syntax tree is read as one of the expressions below, and
anything else is refused.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np

from dpglm._score import Score, as_score, cell, choice, function
from dpglm._validation import Array
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn

_Range: TypeAlias = tuple[float, float]
_Reader: TypeAlias = "Callable[[ast.AST], Expression]"

_LARGEST = 1e30
_MOST_DEPTH = 50
_POWERS = ("pow", "power")
_OF_TWO = ("maximum", "minimum", *_POWERS)
_OF_GAPS = ("isna", "isnull", "isnan")


@final
@dataclass(frozen=True)
class Expression:
    """A number for each row, computed from its own cells.

    ``range`` bounds the values, for cells within their declared bounds. ``compute`` returns them,
    and ``score`` returns them as an expression of the cells, both up to rounding. ``numbers`` are
    those of the formula where values may bend or jump.
    """

    columns: frozenset[str]
    range: _Range
    compute: Callable[[Mapping[str, Any]], Any]
    score: Callable[[], Score]
    numbers: frozenset[float] = frozenset()

    def values(self, cells: Mapping[str, Any]) -> Any:
        """Return the values of rows, clipped to ``range`` against rounding.

        Numeric ``cells`` are within the declared bounds, or NaN if missing.
        """
        return np.clip(self.compute(cells), *self.range)


def without_gaps(column: NumericColumn, numbers: Array) -> Array:
    """Return a column's numbers, with its public number for missing cells."""
    if column.missing is None:
        return numbers
    stand_in = min(max(float(column.missing), column.low), column.high)
    return np.where(np.isnan(numbers), stand_in, numbers)


def _variable(name: str, columns: Mapping[str, Column]) -> Expression:
    column = columns.get(name)
    if column is None:
        known = dict.fromkeys(one.name for one in columns.values())
        raise ValueError(f"column {name!r} is not in the schema: {', '.join(known)}")
    if not isinstance(column, NumericColumn):
        raise ValueError(f"column {name!r} is categorical and cannot be used in arithmetic")
    return Expression(
        frozenset({column.name}),
        (float(column.low), float(column.high)),
        functools.partial(_cells_of, column),
        functools.partial(_score_of, column),
    )


def _cells_of(column: NumericColumn, cells: Mapping[str, Any]) -> Any:
    return without_gaps(column, cells[column.name])


def _score_of(column: NumericColumn) -> Score:
    low, high = as_score(float(column.low)), as_score(float(column.high))
    gap = float(without_gaps(column, np.array([math.nan]))[0])
    return column.within(low, cell(column.name), high, gap)


def _missing(column: Column) -> Expression:
    """Return 1 where a cell is missing, else 0."""
    name = column.name
    if isinstance(column, NumericColumn) and column.missing is None:
        raise ValueError(
            f"missing values of {name!r} are an error: declare a number for them in the "
            'schema, such as "missing": 0'
        )
    if isinstance(column, CategoricalColumn) and "" not in column.categories:
        raise ValueError(
            f'missing values of {name!r} are an error: list them as "" among the categories '
            "of the schema"
        )
    compute, score = functools.partial(_gaps, column), functools.partial(_score_of_gaps, column)
    return Expression(frozenset({name}), (0.0, 1.0), compute, score)


def _gaps(column: Column, cells: Mapping[str, Any]) -> Any:
    found = cells[column.name]
    if isinstance(column, CategoricalColumn):
        return (found == column.categories.index("")).astype(np.float64)
    return np.isnan(found).astype(np.float64)


def _score_of_gaps(column: Column) -> Score:
    if isinstance(column, CategoricalColumn):
        return column.lookup([as_score(one == "") for one in column.categories])
    assert isinstance(column, NumericColumn)
    zero = as_score(0.0)
    return column.within(zero, zero, zero, 1.0)


def _number(value: float) -> Expression:
    compute, score = functools.partial(_same, value), functools.partial(as_score, value)
    return Expression(frozenset(), (value, value), compute, score, frozenset({value}))


def _same(value: float, cells: object) -> float:
    return value


@final
@dataclass(frozen=True)
class _Operation:
    """A function of one or two numbers, with extremes at the corners of a box, or at 0.

    Its first number is ``above`` a bound, which may be included.
    """

    compute: Callable[..., Any]
    score: Callable[..., Score]
    above: float = -math.inf
    includes_above: bool = False


def _log(x: Score) -> Score:
    return function("log", x)


def _exp(x: Score) -> Score:
    # Databases refuse powers that underflow.
    return choice(x < -700.0, as_score(0.0), function("exp", x))


FUNCTIONS: Mapping[str, _Operation] = MappingProxyType(
    {
        "log": _Operation(np.log, _log, 0.0),
        "log2": _Operation(np.log2, lambda x: _log(x) / math.log(2.0), 0.0),
        "log10": _Operation(np.log10, lambda x: _log(x) / math.log(10.0), 0.0),
        "log1p": _Operation(np.log1p, lambda x: _log(x + 1.0), -1.0),
        "sqrt": _Operation(np.sqrt, lambda x: function("sqrt", x), 0.0, includes_above=True),
        "exp": _Operation(np.exp, _exp),
        "expm1": _Operation(np.expm1, lambda x: _exp(x) - 1.0),
        "tanh": _Operation(
            np.tanh, lambda x: 1.0 - 2.0 / (_exp(x.clipped(-20.0, 20.0) * 2.0) + 1.0)
        ),
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
        "abs": _Operation(np.abs, lambda x: choice(x < 0.0, 0.0 - x, x)),
        ast.Add: _Operation(np.add, operator.add),
        ast.Sub: _Operation(np.subtract, operator.sub),
        ast.Mult: _Operation(np.multiply, operator.mul),
        ast.Div: _Operation(np.divide, operator.truediv),
        ast.Pow: _Operation(np.power, lambda base, power: base.power(power.known or 0.0)),
        ast.Gt: _indicator(lambda a, b: b < a),
        ast.GtE: _indicator(lambda a, b: b <= a),
        ast.Lt: _indicator(lambda a, b: a < b),
        ast.LtE: _indicator(lambda a, b: a <= b),
        "maximum": _Operation(np.maximum, lambda a, b: choice(a < b, b, a)),
        "minimum": _Operation(np.minimum, lambda a, b: choice(b < a, b, a)),
    }
)
"""Operations by operator, or name of the function."""


def _applied(operator: Any, *parts: Expression) -> Expression:
    """Return an operation on one or two expressions."""
    operation, ranges = _OPERATIONS[operator], [one.range for one in parts]
    (low, high), last = ranges[0], ranges[-1]
    if operator is ast.Div and last[0] <= 0.0 <= last[1]:
        raise ValueError(
            "its divisor can be 0: by the schema's bounds it is between "
            f"{last[0]:g} and {last[1]:g}"
        )
    has_zero = operator == "abs" and low < 0.0 < high
    if operator is ast.Pow:
        power = last[0]
        if power != int(power) and low < 0.0:
            raise ValueError(f"the power {power:g} is defined from 0, but its base can be {low:g}")
        if power < 0.0 and low <= 0.0 <= high:
            raise ValueError(f"the power {power:g} is not defined at 0, which its base can be")
        has_zero = power % 2 == 0 and low < 0.0 < high
    if low < operation.above or (low == operation.above and not operation.includes_above):
        least = "at least" if operation.includes_above else "above"
        raise ValueError(
            f"{operator} is defined {least} {operation.above:g}, but its argument can be {low:g} "
            "by the schema's bounds"
        )
    corners = [float(operation.compute(*ends)) for ends in itertools.product(*ranges)]
    corners += [0.0] if has_zero else []
    return Expression(
        frozenset[str]().union(*(one.columns for one in parts)),
        (min(corners), max(corners)),
        functools.partial(_computed, operator, parts),
        functools.partial(_scored, operator, parts),
        frozenset[float]().union(*(one.numbers for one in parts)),
    )


def _computed(operator: Any, parts: Sequence[Expression], cells: Mapping[str, Any]) -> Any:
    return _OPERATIONS[operator].compute(*(one.values(cells) for one in parts))


def _scored(operator: Any, parts: Sequence[Expression]) -> Score:
    operation, scores = _OPERATIONS[operator], [one.score() for one in parts]
    if operation.above > -math.inf:
        # Against rounding below the domain.
        scores[0] = scores[0].clipped(parts[0].range[0], math.inf)
    return operation.score(*scores)


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
    with np.errstate(all="ignore"):
        found = _read(node, columns, depth - 1)
    low, high = found.range
    if not (-_LARGEST <= low <= high <= _LARGEST):
        raise ValueError(
            f"its values must stay within +-{_LARGEST:g}, but by the schema's bounds they are "
            f"between {low:g} and {high:g}"
        )
    return found


def _read(node: ast.AST, columns: Mapping[str, Column], depth: int) -> Expression:
    read = functools.partial(read_expression, columns=columns, depth=depth)
    match node:
        case ast.Name(name):
            return _variable(name, columns)
        case ast.Constant(value):
            return _number(_as_float(value))
        case ast.UnaryOp(ast.USub(), operand):
            return _applied(ast.Sub, _number(0.0), read(operand))
        case ast.UnaryOp(ast.UAdd(), operand):
            return read(operand)
        case ast.BinOp(base, ast.Pow(), exponent):
            return _power(base, exponent, read)
        case ast.BinOp(left, sign, right) if type(sign) in _OPERATIONS:
            return _applied(type(sign), read(left), read(right))
        case ast.Compare(left, signs, others):
            pairs = zip(signs, itertools.pairwise(map(read, (left, *others))), strict=True)
            # All must hold, as in 16 < age < 65.
            return functools.reduce(_product, (_compared(sign, *pair) for sign, pair in pairs))
        case ast.Call() if (function := called(node)) is not None:
            return _call(function, node, columns, read)
    raise ValueError(
        "only numbers, numeric columns, + - * / **, comparisons, and functions of a row's numbers "
        f"are read ({_known()}), but it has {ast.unparse(node)!r}"
    )


def _power(base: ast.AST, exponent: ast.AST, read: _Reader) -> Expression:
    power = read(exponent)
    value = power.range[0]
    if power.columns or not abs(value) <= 100.0:
        raise ValueError("a power must be a number between -100 and 100")
    # Values do not bend at the power.
    fixed = dataclasses.replace(_number(value), numbers=frozenset())
    return _applied(ast.Pow, read(base), fixed)


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
    return _applied(ast.Sub, _number(1.0), equal)


def _call(name: str, node: ast.Call, columns: Mapping[str, Column], read: _Reader) -> Expression:
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
        return _power(base, exponent, read)
    if name in _OF_GAPS:
        (cell,) = node.args
        if not isinstance(cell, ast.Name) or cell.id not in columns:
            raise ValueError(f"{name} takes a column of the schema")
        return _missing(columns[cell.id])
    arguments = [read(one) for one in node.args]
    return arguments[0] if name == "I" else _applied(name, *arguments)


def _as_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("has a number that is too large") from None


def _known() -> str:
    return ", ".join(("I", "abs", "is.na", *FUNCTIONS, *_OF_TWO))
