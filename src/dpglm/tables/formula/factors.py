"""Factors of a formula's terms: numbers, categories and splines of declared columns."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._score import Score, as_score, piecewise, total
from dpglm._validation import Array
from dpglm.tables.additive import Additive
from dpglm.tables.additive_terms import NumericAxis
from dpglm.tables.cells import Entry
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn, indicator_ball
from dpglm.tables.formula.expressions import (
    Expression,
    called,
    read_expression,
    without_gaps,
)

Cells: TypeAlias = Mapping[str, NDArray[Any]]
"""Cells of a block of rows, by column: numbers with NaN for gaps, and places of categories."""

_NUMBERS = "fixed numbers instead, as in I((x - 50) / 10)"
_CURVE = "ns(x, df=4) or bs(x, df=5), with knots evenly spaced on the declared range, or s(x)"
_LEARNING: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "center": ("the mean of the rows", _NUMBERS),
        "scale": ("mean and spread of the rows", _NUMBERS),
        "standardize": ("mean and spread of the rows", _NUMBERS),
        "poly": ("a basis that is orthogonal over the rows", "x + I(x**2)"),
        "cc": ("knots from quantiles of the rows", _CURVE),
        "cr": ("knots from quantiles of the rows", _CURVE),
        "cs": ("knots from quantiles of the rows", _CURVE),
        "lag": ("other rows", "a column of earlier values into the table"),
        "hashed": ("levels from the rows", "a categorical column of the schema"),
    }
)
"""Facts that transforms of formulaic and patsy learn from rows, and replacements."""

_MOST_DF, _MOST_DEGREE = 100, 5
# Outer knots of rcs are this share of the range from its ends, as in Harrell's rule for quantiles.
_LEAST_KNOTS, _OUTER = 3, 0.05
_FINER = 8
"""Breaks between neighbouring knots."""


@final
@dataclass(frozen=True)
class Scaled:
    """A factor's fitted columns ``(values - center) / scale``, of L2 norm at most ``norm``."""

    center: float
    scale: float
    norm: float


@final
@dataclass(frozen=True, eq=False)
class Factor:
    """A factor of a term: one or several columns of numbers.

    ``name`` is its text in the formula, which has one object per factor. ``values`` returns the
    columns, of shape (n, n_fields), for the cells of a block; ``score`` returns the sum of
    columns times weights, as an expression of the cells. ``numbers`` are positions of possible
    bends and jumps. ``levels`` are categories with their fields; None for the reference.

    If the columns sum to 1 in every row, ``rest`` is the factor without one of them, which is
    redundant with the intercept.

    Privacy: each row's values depend on its own cells alone.
    """

    name: str
    columns: frozenset[str]
    fields: tuple[str, ...]
    values: Callable[[Cells], Array]
    score: Callable[[Sequence[Score]], Score]
    plain: Scaled
    centered: Scaled
    numbers: frozenset[float] = frozenset()
    levels: tuple[tuple[Entry, str | None], ...] = ()
    rest: Factor | None = None
    pooled: bool = False
    is_reduced: bool = False
    is_spline: bool = False

    @property
    def is_category(self) -> bool:
        """Whether its columns are indicators of categories."""
        return bool(self.levels)


_PLAIN = Scaled(0.0, 1.0, 1.0)


def _number(name: str, expression: Expression) -> Factor:
    """Return an expression of numeric columns as a factor."""
    low, high = _varied(expression)
    return Factor(
        name,
        expression.columns,
        (name,),
        functools.partial(_one_column, expression),
        functools.partial(_times, expression),
        Scaled(0.0, max(abs(low), abs(high)), 1.0),
        Scaled(0.5 * low + 0.5 * high, 0.5 * high - 0.5 * low, 1.0),
        expression.numbers,
    )


def _one_column(expression: Expression, cells: Cells) -> Array:
    values: Array = expression.values(cells)[:, np.newaxis]
    return values


def _times(expression: Expression, weights: Sequence[Score]) -> Score:
    return expression.score() * weights[0]


def _indicators(name: str, column: CategoricalColumn, reference: Any = None) -> Factor:
    """Return indicators of a column's categories; the rest has all but the reference."""
    n = len(column.categories)
    own = column.categories[0] if column.reference is None else column.reference
    reference = own if reference is None else reference
    center, radius = indicator_ball(n - 1)

    def without(left_out: Entry | None, mark: str, centered: Scaled, rest: Factor | None) -> Factor:
        kept = [place for place, one in enumerate(column.categories) if one != left_out]
        levels = tuple(
            (one, f"{name}[{mark}{one}]" if place in kept else None)
            for place, one in enumerate(column.categories)
        )
        return Factor(
            name,
            frozenset({column.name}),
            tuple(field for _, field in levels if field is not None),
            functools.partial(_indicated, column.name, np.eye(n + 1)[:, kept]),
            functools.partial(_looked_up, column, kept),
            _PLAIN,
            centered,
            levels=levels,
            rest=rest,
            pooled=column.pooled,
            is_reduced=left_out is not None,
        )

    rest = None
    if not column.pooled:
        rest = without(reference, "T.", Scaled(center, 1.0, radius), None)
    return without(None, "", _PLAIN, rest)


def _indicated(column: str, codes: Array, cells: Cells) -> Array:
    return np.asarray(codes[cells[column]])


def _looked_up(column: CategoricalColumn, kept: Sequence[int], weights: Sequence[Score]) -> Score:
    values = [as_score(0.0)] * len(column.categories)
    for place, weight in zip(kept, weights, strict=True):
        values[place] = weight
    return column.lookup(values)


def _spline_values(
    expression: Expression, padded: Array, degree: int, first: int, cells: Cells
) -> Array:
    from scipy.interpolate import BSpline

    x = np.ascontiguousarray(expression.values(cells))
    basis: Array = BSpline.design_matrix(x, padded, degree).toarray()
    # Row by row, against rounding of the partition of unity.
    basis = np.clip(basis, 0.0, 1.0)[:, first:]
    return basis


def _spline_score(
    expression: Expression,
    knots: tuple[float, ...],
    padded: Array,
    degree: int,
    first: int,
    weights: Sequence[Score],
) -> Score:
    from scipy.interpolate import PPoly

    def pieces(code: Array) -> _Pieces:
        made = PPoly.from_spline((padded, code, degree))
        parts = made.c[:, degree : degree + len(knots) + 1].T
        return list(knots), [padded[0], *knots], parts.tolist()

    codes = np.eye(len(knots) + degree + 1)[first:]
    return _curves(expression.score(), codes, weights, pieces)


def _natural_splines(name: str, expression: Expression, knots: tuple[float, ...]) -> Factor:
    """Return natural cubic splines: cubic between knots, linear beyond the outer ones.

    The column of a knot is the natural spline with the value 1 there and 0 at the other knots, so
    a coefficient is the effect at its knot against that at the first knot.

    Such splines are combinations ``basis @ control`` of B-splines, which are nonnegative and sum to
    1, so a row is a convex combination of rows of ``control`` and no longer than the longest one.
    More breaks than knots bring these rows close to the values of the spline.
    """
    low, high = expression.range
    ends = np.unique([low, *knots, high])
    inner = np.interp(np.arange(1, _FINER * (len(ends) - 1)) / _FINER, range(len(ends)), ends)
    breaks = np.array([low] * 4 + inner.tolist() + [high] * 4)
    spline = _through(knots, np.eye(len(knots))[:, 1:])
    places = np.lib.stride_tricks.sliding_window_view(breaks[1:-1], 3).mean(axis=1)
    inside = places.clip(knots[0], knots[-1])
    beyond = (places - inside)[:, np.newaxis]
    values = spline(inside) + beyond * spline(inside, 1)
    control: Array = np.linalg.solve(_cubic(breaks, places).toarray(), values)

    def scaled(*centers: float) -> Scaled:
        longest = (np.linalg.norm(control - center, axis=1).max() for center in centers)
        norm, center = min(zip(longest, centers, strict=True))
        return Scaled(center, float(norm) * (1.0 + 1e-12), 1.0)

    return Factor(
        name,
        expression.columns,
        tuple(f"{name}[{knot:g}]" for knot in knots[1:]),
        functools.partial(_natural_values, expression, breaks, control),
        functools.partial(_natural_score, expression, knots),
        scaled(0.0),
        scaled(0.0, indicator_ball(len(knots) - 1)[0]),
        expression.numbers.union(knots),
    )


def _through(knots: tuple[float, ...], values: Array) -> Any:
    """Return the natural spline with these values at the knots."""
    from scipy.interpolate import CubicSpline

    return CubicSpline(knots, values, bc_type="natural")


def _cubic(breaks: Array, x: Any) -> Any:
    from scipy.interpolate import BSpline

    return BSpline.design_matrix(np.ascontiguousarray(x), breaks, 3)


def _natural_values(expression: Expression, breaks: Array, control: Array, cells: Cells) -> Array:
    values: Array = _cubic(breaks, expression.values(cells)) @ control
    return values


def _natural_score(
    expression: Expression, knots: tuple[float, ...], weights: Sequence[Score]
) -> Score:
    low, high = expression.range
    first, *inner, last = knots
    ends = [*([first] if low < first else []), *inner, *([last] if last < high else [])]

    def pieces(code: Array) -> _Pieces:
        spline = _through(knots, code)
        starts, parts = list(knots[:-1]), spline.c.T.tolist()
        at_first, at_last = ([float(spline(x, 1)), float(spline(x))] for x in (first, last))
        if low < first:
            starts, parts = [first, *starts], [at_first, *parts]
        if last < high:
            starts, parts = [*starts, last], [*parts, at_last]
        return ends, starts, parts

    return _curves(expression.score(), np.eye(len(knots))[1:], weights, pieces)


def _curve_values(axis: NumericAxis, column: NumericColumn, cells: Cells) -> Array:
    numbers = without_gaps(column, cells[axis.name])
    features: Array = axis.features(axis.places(numbers))
    return features


def _curve_score(axis: NumericAxis, column: NumericColumn, weights: Sequence[Score]) -> Score:
    assert axis.root is not None
    stand_in = without_gaps(column, np.array([np.nan]))
    at_gap = axis.features(axis.places(np.nan_to_num(stand_in)))
    *values, gap = [
        total([one * share for one, share in zip(weights, row, strict=True)])
        for row in np.vstack([axis.root, at_gap]).tolist()
    ]
    return dataclasses.replace(axis, column=column).score(values, gap)


_Pieces: TypeAlias = tuple[list[float], list[float], list[list[float]]]
"""Ends between pieces, and of each piece the start and the coefficients, highest power first."""


def _curves(
    x: Score, codes: Array, weights: Sequence[Score], pieces: Callable[[Array], _Pieces]
) -> Score:
    """Return a sum of piecewise polynomials times weights; a single one if these are known."""
    known = [one.known for one in weights if one.known is not None]
    if len(known) == len(weights):
        codes, weights = np.array([known]) @ codes, [as_score(1.0)]
    curves = []
    for code in codes:
        ends, starts, parts = pieces(code)
        values = [
            # Horner's rule.
            functools.reduce(lambda y, one: y * at + one, part[1:], as_score(part[0]))
            for at, part in zip([x - start for start in starts], parts, strict=True)
        ]
        curves.append(piecewise(x, ends, values))
    return total([curve * one for curve, one in zip(curves, weights, strict=True)])


def read_factor(name: str, node: ast.AST, columns: Mapping[str, Column]) -> Factor:
    """Read a factor from its syntax tree; errors do not contain its ``name``."""
    function = called(node)
    if isinstance(node, ast.Call) and function is not None:
        if function in _LEARNING:
            what, instead = _LEARNING[function]
            raise ValueError(
                f"{function} would learn {what} without a privacy budget; write {instead}"
            )
        if function in _READERS:
            return _READERS[function](name, node, columns)
    if isinstance(node, ast.Name):
        column = columns.get(node.id)
        if isinstance(column, CategoricalColumn) and column.pooled:
            return _indicators(f"(1 | {column.name})", column)
        if isinstance(column, CategoricalColumn):
            return _indicators(name, column)
    return _number(name, read_expression(node, columns))


def _random(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    first = node.args[0] if len(node.args) == 1 and not node.keywords else None
    column = columns.get(first.id) if isinstance(first, ast.Name) else None
    if not isinstance(column, CategoricalColumn) or column.ordered:
        raise ValueError("a random intercept takes a categorical column, without an order: (1 | g)")
    pooled = dataclasses.replace(column, pooled=True, reference=None)
    return _indicators(f"(1 | {column.name})", pooled)


def _category(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    first = node.args[0] if node.args else None
    column = columns.get(first.id) if isinstance(first, ast.Name) else None
    if isinstance(column, NumericColumn):
        raise ValueError(
            f"levels of {column.name!r} must be public: declare the column as categorical in the "
            "schema"
        )
    if not isinstance(column, CategoricalColumn):
        raise ValueError("C takes a categorical column of the schema")
    column = dataclasses.replace(column, pooled=False)
    if len(node.args) == 1 and not node.keywords:
        return _indicators(name, column)
    if any(one.arg == "levels" for one in node.keywords):
        raise ValueError(
            "levels= and their order come from the schema's categories: write C(x), or "
            "C(x, Treatment(reference=CATEGORY))"
        )
    contrast = node.args[1] if len(node.args) == 2 and not node.keywords else None
    reference = _stated_reference(contrast)
    if reference not in column.categories:
        raise ValueError(
            f"the reference {reference!r} is not among the categories of column {column.name!r}"
        )
    return _indicators(name, column, reference)


def _stated_reference(node: ast.AST | None) -> Any:
    """Read ``Treatment("a")``, ``Treatment(reference="a")`` or ``contr.treatment(base="a")``."""
    names = ("Treatment", "contr.treatment")
    if isinstance(node, ast.Call) and ast.unparse(node.func) in names:
        values = [*node.args, *(one.value for one in node.keywords)]
        allowed = all(one.arg in ("reference", "base") for one in node.keywords)
        if allowed and len(values) == 1 and isinstance(values[0], ast.Constant):
            return values[0].value
    raise ValueError(
        "the contrast of C must be Treatment(reference=CATEGORY), also written "
        "contr.treatment(base=CATEGORY); a model without a formula compares categories to their "
        "mean, like the contrast Sum"
    )


def _spline(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    """Read a B-spline basis on the range of an expression, by default without its first column.

    Basis functions are nonnegative and sum to 1 (de Boor, *A Practical Guide to Splines*,
    chapter IX), so each row is a convex combination of indicators and lies in their ball.
    """
    number, settings = _settings(node, _OF_SPLINES)
    expression = read_expression(number, columns)
    degree, whole = settings["degree"], settings["include_intercept"]
    if type(degree) is not int or not 1 <= degree <= _MOST_DEGREE or type(whole) is not bool:
        raise ValueError(
            f"bs needs a degree from 1 to {_MOST_DEGREE} and include_intercept=True or False"
        )
    low, high = _varied(expression)
    knots = _knots("bs", settings["df"], settings["knots"], degree + whole, (low, high))
    padded = np.array([low] * (degree + 1) + list(knots) + [high] * (degree + 1))
    n = len(knots) + degree + 1
    found: Factor | None = None
    for first in (1, 0) if whole else (1,):
        center, radius = indicator_ball(n - 1)
        found = Factor(
            name,
            expression.columns,
            tuple(f"{name}[{i}]" for i in range(first, n)),
            functools.partial(_spline_values, expression, padded, degree, first),
            functools.partial(_spline_score, expression, knots, padded, degree, first),
            _PLAIN,
            Scaled(center, 1.0, radius) if first else _PLAIN,
            expression.numbers.union(knots),
            rest=found,
            is_reduced=whole and first > 0,
            is_spline=True,
        )
    assert found is not None
    return found


def _natural(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    """Read ``ns``, with the declared bounds as outer knots."""
    first, settings = _settings(node, _OF_NATURAL)
    expression = read_expression(first, columns)
    low, high = _varied(expression)
    # df columns have df + 1 knots, two of them the bounds.
    inner = _knots("ns", settings["df"], settings["knots"], 1, (low, high))
    return _natural_splines(name, expression, (low, *inner, high))


def _restricted(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    """Read ``rcs``, with outer knots within the declared bounds."""
    first, settings = _settings(node, _OF_RESTRICTED)
    expression, knots = read_expression(first, columns), settings["knots"]
    low, high = _varied(expression)
    if isinstance(knots, list | tuple):
        stated = _knots("rcs", None, knots, 0, (low, high))
    elif type(knots) is int and _LEAST_KNOTS <= knots <= _MOST_DF:
        ends = low + _OUTER * (high - low), high - _OUTER * (high - low)
        stated = tuple(np.linspace(*ends, knots).tolist())
    else:
        stated = ()
    if len(stated) < _LEAST_KNOTS:
        raise ValueError(
            f"rcs needs a number of knots from {_LEAST_KNOTS} to {_MOST_DF}, or a list of them, "
            f"got {knots!r}"
        )
    return _natural_splines(name, expression, stated)


def _varied(expression: Expression) -> tuple[float, float]:
    low, high = expression.range
    if not low < high:
        raise ValueError("has the same value in every row")
    return low, high


def _settings(node: ast.Call, defaults: Mapping[str, Any]) -> tuple[ast.expr, dict[str, Any]]:
    """Return the first argument of a call, and its settings, by position or by name."""
    function = called(node)
    known = ", ".join(defaults)
    if not 1 <= len(node.args) <= 1 + len(defaults):
        raise ValueError(f"{function} takes one number, and {known}")
    first, *others = node.args
    given = [*zip(defaults, others, strict=False)]
    given += [(one.arg or "**", one.value) for one in node.keywords]
    settings = dict(defaults)
    for name, value in given:
        if name not in defaults:
            raise ValueError(f"{function} has the settings {known}, got {name!r}")
        settings[name] = _literal(value)
    if len(dict(given)) < len(given):
        raise ValueError(f"{function} has a setting twice")
    return first, settings


def _knots(
    function: str, df: Any, knots: Any, least: int, within: tuple[float, float]
) -> tuple[float, ...]:
    """Return the given inner knots, or evenly spaced ones for ``df``."""
    low, high = within
    if (df is None) == (knots is None):
        raise ValueError(f"{function} needs df= or knots=, one of them")
    if df is not None:
        if type(df) is not int or not least <= df <= _MOST_DF:
            raise ValueError(f"{function} needs df from {least} to {_MOST_DF} here, got {df!r}")
        return tuple(np.linspace(low, high, df - least + 2)[1:-1].tolist())
    stated: list[Any] = [*knots] if isinstance(knots, list | tuple) else [None]
    within_range = all(type(one) in (int, float) and low < one < high for one in stated)
    if not within_range or len(stated) > _MOST_DF:
        raise ValueError(
            f"{function} needs knots within the declared range, between {low:g} and {high:g}, got "
            f"{knots!r}"
        )
    ordered = tuple(float(one) for one in stated)
    if sorted(set(ordered)) != list(ordered):
        raise ValueError(f"{function} needs knots that increase, got {knots!r}")
    return ordered


def _curve(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    first, settings = _settings(node, _OF_CURVES)
    column = columns.get(first.id) if isinstance(first, ast.Name) else None
    if not isinstance(column, NumericColumn):
        raise ValueError(
            "s takes a numeric column of the schema, and "
            f"{', '.join(_OF_CURVES)}; bs(np.log(x), df=5) takes an expression"
        )
    made = Additive(settings["segments"], settings["smoothness"])
    # A missing cell becomes the schema's number, as everywhere in a formula.
    whole = dataclasses.replace(column, missing=None)
    axis = NumericAxis(whole, made.segments, made.reach)
    return Factor(
        name,
        frozenset({axis.name}),
        tuple(f"{name}[{i}]" for i in range(axis.n_features)),
        functools.partial(_curve_values, axis, column),
        functools.partial(_curve_score, axis, column),
        Scaled(0.0, 1.0, axis.norm),
        Scaled(0.0, 1.0, axis.norm),
        frozenset(axis.knots.tolist()),
    )


def _product(name: str, node: ast.Call, columns: Mapping[str, Column]) -> Factor:
    raise ValueError("te is a product of bases: write it as one, bs(x, df=5):bs(z, df=5)")


_OF_SPLINES: Mapping[str, Any] = MappingProxyType(
    {"df": None, "knots": None, "degree": 3, "include_intercept": False}
)
_OF_NATURAL: Mapping[str, Any] = MappingProxyType({"df": None, "knots": None})
_OF_RESTRICTED: Mapping[str, Any] = MappingProxyType({"knots": 5})
_OF_CURVES: Mapping[str, Any] = MappingProxyType({"segments": 6, "smoothness": 1.0})
_READERS: Mapping[str, Callable[[str, ast.Call, Mapping[str, Column]], Factor]] = MappingProxyType(
    {
        "C": _category,
        "re": _random,
        "bs": _spline,
        "ns": _natural,
        "rcs": _restricted,
        "s": _curve,
        "te": _product,
    }
)
"""Functions with several columns, by name."""


def _literal(node: ast.AST) -> Any:
    """Return the number, bool or list of numbers of a syntax tree."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise ValueError(f"{ast.unparse(node)!r} is not a literal number or list") from None
