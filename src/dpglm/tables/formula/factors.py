"""Factors of a formula's terms: numbers, categories and splines of declared columns."""

from __future__ import annotations

import abc
import ast
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.cells import Entry
from dpglm.tables.columns import CategoricalColumn, Column, IndicatorBall, NumericColumn
from dpglm.tables.formula.expressions import Expression, Floats, called, read_expression

__all__ = ["Cells", "Factor", "Scaled", "read_factor"]

Cells: TypeAlias = Mapping[str, NDArray[Any]]
"""Cells of a block of rows, by column."""

_LEARNING: Mapping[str, str] = MappingProxyType(
    {
        "center": "the mean of the rows",
        "scale": "mean and spread of the rows",
        "standardize": "mean and spread of the rows",
        "poly": "a basis that is orthogonal over the rows",
        "cc": "knots from quantiles of the rows",
        "cr": "knots from quantiles of the rows",
        "cs": "knots from quantiles of the rows",
        "te": "knots from quantiles of the rows",
        "lag": "other rows",
        "hashed": "levels from the rows",
    }
)
"""What transforms of formulaic and patsy would take from the rows."""

_MOST_DF, _MOST_DEGREE = 100, 5


@final
@dataclass(frozen=True)
class Scaled:
    """A factor's fitted columns ``(values - center) / scale``, of L2 norm at most ``norm``."""

    center: float
    scale: float
    norm: float


class Factor(abc.ABC):
    """A factor of a term: one or several columns of numbers for each row; final subclasses below.

    ``name`` is how the formula writes it. A formula has one object for each of its factors.
    """

    name: str

    @property
    @abc.abstractmethod
    def columns(self) -> frozenset[str]:
        """Names of the table's columns that are read."""

    @property
    def spans_intercept(self) -> bool:
        """Whether its columns add up to 1 in every row."""
        return False

    @abc.abstractmethod
    def fields(self, *, reduced: bool) -> tuple[str, ...]:
        """Name its columns; ``reduced``: without the one that the intercept makes redundant."""

    @abc.abstractmethod
    def values(self, cells: Cells, *, reduced: bool) -> Floats:
        """Return its columns, of shape (n, n_fields), of cells as ``Column.read`` returns them.

        Privacy: each row's values depend on its own cells alone.
        """

    @abc.abstractmethod
    def scaled(self, *, centered: bool, reduced: bool) -> Scaled:
        """Return how its columns are fitted, ``centered`` if possible."""


@final
@dataclass(frozen=True, eq=False)
class NumberFactor(Factor):
    """An expression of numeric columns."""

    name: str
    expression: Expression

    def __post_init__(self) -> None:
        low, high = self.expression.range
        if not low < high:
            raise ValueError("has the same value in every row")

    @property
    def columns(self) -> frozenset[str]:
        return self.expression.columns

    def fields(self, *, reduced: bool) -> tuple[str, ...]:
        return (self.name,)

    def values(self, cells: Cells, *, reduced: bool) -> Floats:
        values: Floats = self.expression.values(cells)[:, np.newaxis]
        return values

    def scaled(self, *, centered: bool, reduced: bool) -> Scaled:
        low, high = self.expression.range
        if centered:
            return Scaled(0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low, 1.0)
        return Scaled(0.0, max(abs(low), abs(high)), 1.0)


@final
@dataclass(frozen=True, eq=False)
class CategoryFactor(Factor):
    """A categorical column as indicators of its categories, or of all but the reference."""

    name: str
    column: CategoricalColumn
    reference: Entry

    spans_intercept = True

    @property
    def columns(self) -> frozenset[str]:
        return frozenset({self.column.name})

    def fields(self, *, reduced: bool) -> tuple[str, ...]:
        categories = self.column.categories
        if not reduced:
            return tuple(f"{self.name}[{one}]" for one in categories)
        return tuple(f"{self.name}[T.{one}]" for one in categories if one != self.reference)

    def values(self, cells: Cells, *, reduced: bool) -> Floats:
        codes = np.eye(len(self.column.categories))
        if reduced:
            codes = np.delete(codes, self.column.categories.index(self.reference), axis=1)
        values: Floats = codes[cells[self.column.name]]
        return values

    def scaled(self, *, centered: bool, reduced: bool) -> Scaled:
        if centered and reduced:
            ball = IndicatorBall(len(self.column.categories) - 1)
            return Scaled(ball.center, 1.0, ball.radius)
        return Scaled(0.0, 1.0, 1.0)


@final
@dataclass(frozen=True, eq=False)
class SplineFactor(Factor):
    """A B-spline basis on the range of an expression, with knots that the schema implies.

    The functions of the basis are at least 0 and add up to 1 (de Boor, *A Practical Guide to
    Splines*, chapter IX): each row's values lie between indicators, in their ball.
    """

    name: str
    expression: Expression
    knots: tuple[float, ...]
    degree: int
    include_intercept: bool

    @property
    def columns(self) -> frozenset[str]:
        return self.expression.columns

    @property
    def spans_intercept(self) -> bool:
        return self.include_intercept

    @property
    def _first(self) -> int:
        return 0 if self.include_intercept else 1

    def fields(self, *, reduced: bool) -> tuple[str, ...]:
        count = len(self.knots) + self.degree + 1
        first = 1 if reduced else self._first
        return tuple(f"{self.name}[{i}]" for i in range(first, count))

    def values(self, cells: Cells, *, reduced: bool) -> Floats:
        from scipy.interpolate import BSpline

        low, high = self.expression.range
        ends = self.degree + 1
        knots = np.array([low] * ends + list(self.knots) + [high] * ends)
        x = np.ascontiguousarray(self.expression.values(cells))
        basis: Floats = BSpline.design_matrix(x, knots, self.degree).toarray()
        # What rounding adds to a partition of unity is taken away again, row by row.
        basis = np.clip(basis, 0.0, 1.0)[:, 1 if reduced else self._first :]
        return basis

    def scaled(self, *, centered: bool, reduced: bool) -> Scaled:
        if centered and (reduced or not self.include_intercept):
            ball = IndicatorBall(len(self.fields(reduced=reduced)))
            return Scaled(ball.center, 1.0, ball.radius)
        return Scaled(0.0, 1.0, 1.0)


def read_factor(name: str, node: ast.AST, columns: Mapping[str, Column]) -> Factor:
    """Read a factor from its syntax tree; ``name`` is how it is written.

    Errors do not name it.
    """
    function = called(node)
    if isinstance(node, ast.Call) and function is not None:
        if function in _LEARNING:
            raise ValueError(
                f"{function} would learn {_LEARNING[function]}, which no budget covers; write "
                "fixed numbers instead, as in I((x - 50) / 10), or bs(x, df=5)"
            )
        if function == "C":
            return _category(name, node, columns)
        if function == "bs":
            return _spline(name, node, columns)
    if isinstance(node, ast.Name):
        column = columns.get(node.id)
        if isinstance(column, CategoricalColumn):
            return CategoryFactor(name, column, _reference(column))
    return NumberFactor(name, read_expression(node, columns))


def _reference(column: CategoricalColumn) -> Entry:
    return column.categories[0] if column.reference is None else column.reference


def _category(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    first = node.args[0] if node.args else None
    column = columns.get(first.id) if isinstance(first, ast.Name) else None
    if isinstance(column, NumericColumn):
        raise ValueError(
            f"the levels of {column.name!r} would come from the rows: declare the column as "
            "categorical in the schema"
        )
    if not isinstance(column, CategoricalColumn):
        raise ValueError("C takes a categorical column of the schema")
    if len(node.args) == 1 and not node.keywords:
        return CategoryFactor(name, column, _reference(column))
    contrast = node.args[1] if len(node.args) == 2 and not node.keywords else None
    reference = _stated_reference(contrast)
    if reference not in column.categories:
        raise ValueError(
            f"the reference {reference!r} is not among the categories of column {column.name!r}"
        )
    return CategoryFactor(name, column, reference)


def _stated_reference(node: ast.AST | None) -> Any:
    """Read ``Treatment("a")``, ``Treatment(reference="a")`` or ``contr.treatment(base="a")``."""
    names = ("Treatment", "contr.treatment")
    if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
        values = [*node.args, *(one.value for one in node.keywords)]
        allowed = all(one.arg in ("reference", "base") for one in node.keywords)
        if allowed and len(values) == 1 and isinstance(values[0], ast.Constant):
            return values[0].value
    raise ValueError(
        "of the contrasts of C only Treatment(reference=CATEGORY), also written "
        "contr.treatment(base=CATEGORY), is read"
    )


def _spline(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    if len(node.args) != 1:
        raise ValueError("bs takes one number, and df=, knots=, degree=, include_intercept=")
    expression = read_expression(node.args[0], columns)
    settings: dict[str, Any] = {"df": None, "knots": None, "degree": 3, "include_intercept": False}
    for one in node.keywords:
        if one.arg not in settings:
            raise ValueError(f"bs has no setting {one.arg!r} here, but {', '.join(settings)}")
        settings[one.arg] = _literal(one.value)
    degree, intercept = settings["degree"], settings["include_intercept"]
    if type(degree) is not int or not 1 <= degree <= _MOST_DEGREE or type(intercept) is not bool:
        raise ValueError(
            f"bs needs a degree from 1 to {_MOST_DEGREE} and include_intercept=True or False"
        )
    low, high = expression.range
    if not low < high:
        raise ValueError("has the same value in every row")
    knots = _knots(settings["df"], settings["knots"], degree + intercept, (low, high))
    return SplineFactor(name, expression, knots, degree, intercept)


def _knots(df: Any, knots: Any, least: int, within: tuple[float, float]) -> tuple[float, ...]:
    """Inner knots: those that are stated, or as many as ``df`` leaves, evenly spaced."""
    low, high = within
    if (df is None) == (knots is None):
        raise ValueError("bs needs df= or knots=, one of them")
    if df is not None:
        if type(df) is not int or not least <= df <= _MOST_DF:
            raise ValueError(f"bs needs df from {least} to {_MOST_DF} here, got {df!r}")
        return tuple(np.linspace(low, high, df - least + 2)[1:-1].tolist())
    stated: list[Any] = [*knots] if isinstance(knots, list | tuple) else [None]
    within_range = all(type(one) in (int, float) and low < one < high for one in stated)
    if not within_range or len(stated) > _MOST_DF:
        raise ValueError(
            f"bs needs knots within the declared range, between {low:g} and {high:g}, got {knots!r}"
        )
    ordered = tuple(float(one) for one in stated)
    if sorted(set(ordered)) != list(ordered):
        raise ValueError(f"bs needs knots that increase, got {knots!r}")
    return ordered


def _literal(node: ast.AST) -> Any:
    """Return a number, truth value, or list of numbers that a syntax tree writes out."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"{ast.unparse(node)!r} is not written out as a number or list") from None
