"""Columns with released second moments, and formulas in their span."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, check_list, in_one_line
from dpglm.solvers.composite.moments import ColumnBlock
from dpglm.tables.cells import as_cells
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.formula.design import (
    FormulaEncoding,
    Term,
    artificial_rows,
    read_formula,
    read_terms,
)
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget, CountTarget, NumericTarget

# Relative error of a column as a combination of released ones that rounding may leave.
_TOLERANCE = 1e-7
_SEED = 0
_TINY = 1e-300


@final
@dataclass(frozen=True, eq=False)
class MomentBasis:
    """The released columns: every column of a schema, its target, and further terms.

    A number is one column, and a category has an indicator of each level. ``terms`` are those of a
    formula: transforms, splines and products.

    Privacy: each row is encoded by itself, from public facts.
    """

    schema: Schema
    columns: tuple[str, ...]
    terms: tuple[str, ...]

    @functools.cached_property
    def described(self) -> tuple[Column, ...]:
        """The columns as numbers and categories, the target last."""
        return tuple(one.plain for one in self._columns.values())

    @functools.cached_property
    def _columns(self) -> dict[str, Column]:
        return {one.name: one for one in columns_of(self.schema) if one.name in self.columns}

    @functools.cached_property
    def encoding(self) -> FormulaEncoding:
        """The encoding of all columns, in which categories keep all levels."""
        written = " + ".join([*(f"`{name}`" for name in self.columns), *self.terms])
        found: list[Term] = [()]
        for factors in read_terms(f"~ {written}", self.described):
            coded = tuple(
                one if one.rest is None or one.is_category else one.rest for one in factors
            )
            if coded:
                found.append(coded)
        # A number in the span of others, such as that of a spline of it, would be released twice.
        for term in [one for one in found if one and _kind(one) == "numbers"]:
            others = tuple(one for one in found if one is not term)
            near = tuple(one for one in others if one and _kind(one) == "numbers")
            if len(term) == 1 and len(term[0].fields) == 1 and near:
                every = FormulaEncoding(self.described, tuple(found))
                if _combined(every, near, every, every.slopes.index(term)) is not None:
                    found = list(others)
        return FormulaEncoding(self.described, tuple(found))

    @property
    def blocks(self) -> tuple[ColumnBlock, ...]:
        """The columns of each term."""
        return tuple(ColumnBlock(len(fields), _kind(term)) for term, fields in self._fields)

    @functools.cached_property
    def _fields(self) -> tuple[tuple[Term, tuple[tuple[str, ...], ...]], ...]:
        """Each term with the fields of its columns."""
        return tuple((term, self.encoding.fields_of(term)) for term in self.encoding.slopes)

    @functools.cached_property
    def never_together(self) -> NDArray[np.bool_]:
        """Whether the product of two columns is zero in every row, by structure; constant last.

        Two columns with indicators of different levels of one category are never both non-zero.
        """
        levels = [
            {
                next(iter(one.columns)): field
                for one, field in zip(term, fields, strict=True)
                if one.is_category
            }
            for term, columns in self._fields
            for fields in columns
        ]
        size = len(levels) + 1
        apart = np.zeros((size, size), bool)
        for (i, one), (j, other) in itertools.combinations(enumerate(levels), 2):
            apart[i, j] = apart[j, i] = any(
                one[name] != other[name] for name in one.keys() & other.keys()
            )
        return apart

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the table, in order."""
        sources = (self._columns[name].source for name in self.encoding.column_names)
        return tuple(dict.fromkeys(sources))

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return len(self.encoding.feature_names)

    @property
    def row_norm(self) -> float:
        """Bound on the L2 norm of an encoded row."""
        return self.encoding.row_norm

    def encode(self, table: Any, encoding: FormulaEncoding | None = None) -> Array:
        """Encode a table, by default all columns; errors name column, row and remedy."""
        encoding = self.encoding if encoding is None else encoding
        named, columns = by_name(table), self._columns

        def cells(name: str) -> NDArray[Any]:
            return np.asarray(columns[name].plain_cells(named[columns[name].source]))

        first = columns[encoding.column_names[0]].source
        out = np.zeros((len(as_cells(named[first], first)), len(encoding.feature_names)))
        encoding.encode(cells, out)
        return out

    def in_span(self, encoding: FormulaEncoding) -> Array:
        """Return each column of a formula as a combination of the released ones and a constant.

        The shape is (width + 1, n_columns): the shortest combinations, the constant last. A
        term outside the span is a ValueError. Both encodings are computed for artificial rows with
        every combination of the categories that a term uses, and numbers within their bounds, so
        nothing depends on the table.
        """
        columns = []
        for place, term in enumerate(encoding.slopes):
            found = _combined(self.encoding, self.encoding.slopes, encoding, place)
            if found is None:
                name = ":".join(one.name for one in term)
                raise ValueError(
                    f"formula term {name!r} is not a combination of the released columns, "
                    f"{in_one_line(list(self.columns))} and the terms "
                    f"{in_one_line(list(self.terms))}: name it in terms= of a new release"
                )
            columns.append(found)
        return np.column_stack(columns)


def _combined(
    own: FormulaEncoding, among: Sequence[Term], encoding: FormulaEncoding, place: int
) -> Array | None:
    """Return a term of an encoding as combinations of ``among``, terms of ``own``, or None."""
    term = encoding.slopes[place]
    used = {name for one in term for name in one.columns}
    sizes = [len(own.fields_of(one)) for one in own.slopes]
    starts = np.cumsum([0, *sizes])
    near = [
        k
        for k, one in enumerate(own.slopes)
        if one in among and {name for each in one for name in each.columns} <= used
    ]
    terms, n_unknowns = (term, *(own.slopes[k] for k in near)), sum(sizes[k] for k in near)
    rng, both = np.random.default_rng(_SEED), []
    for _ in range(2):
        cells, n_rows = artificial_rows(own.columns, terms, n_unknowns, rng)
        X = np.ones((n_rows, 1))
        if near:
            X = np.column_stack([*(own.term_values(k, cells, n_rows) for k in near), X])
        both.append((X, encoding.term_values(place, cells, n_rows)))
    (X, wanted), (others, check) = both
    found = np.linalg.lstsq(X, wanted, rcond=1e-10)[0]
    if np.abs(others @ found - check).max() > _TOLERANCE * max(float(np.abs(check).max()), _TINY):
        return None
    combined = np.zeros((starts[-1] + 1, wanted.shape[1]))
    at = [np.arange(starts[k], starts[k + 1]) for k in near]
    combined[np.concatenate([*at, starts[-1:]])] = found
    return combined


def columns_of(schema: Schema) -> tuple[Column, ...]:
    """Return the columns of a schema, and its target as one of them."""
    if not schema.has_target:
        return schema.columns
    return (*schema.columns, _as_column(schema.target))


@functools.singledispatch
def _as_column(target: Any) -> Column:
    raise ValueError(f"a target of type {type(target).__name__} cannot have second moments")


@_as_column.register
def _(target: NumericTarget) -> Column:
    return NumericColumn(target.name, target.low, target.high, provenance=target.provenance)


@_as_column.register
def _(target: CountTarget) -> Column:
    return NumericColumn(target.name, 0.0, target.high)


@_as_column.register
def _(target: ClassTarget) -> Column:
    return CategoricalColumn(target.name, target.classes)


def basis_of(schema: Schema, columns: Sequence[str] | None, terms: Sequence[str]) -> MomentBasis:
    """Return the basis of some columns of a schema, by default all; errors name the argument."""
    known = [one.name for one in columns_of(schema)]
    if columns is not None:
        columns = check_list("columns", columns, "a list of names")
        unknown = [name for name in columns if name not in known]
        if unknown or not columns:
            raise ValueError(
                f"columns must name columns of the schema, {', '.join(map(repr, known))}, got "
                f"{in_one_line(columns)}"
            )
        known = [name for name in known if name in columns]
    given = check_list("terms", terms, "a list of terms of a formula")
    if not all(isinstance(one, str) for one in given):
        raise ValueError(f"terms must be text, such as 'bs(age, df=5)', got {in_one_line(given)}")
    basis = MomentBasis(schema, tuple(known), tuple(given))
    _ = basis.encoding
    return basis


def _kind(term: Term) -> Any:
    of_levels = [one.is_category for one in term]
    if all(of_levels):
        return "levels"
    return "products" if any(of_levels) else "numbers"


def parsed(formula: Any, columns: Sequence[Column]) -> tuple[FormulaEncoding, FormulaEncoding]:
    """Read the two sides of a formula; the left side is one column."""
    if not isinstance(formula, str) or formula.count("~") != 1:
        raise ValueError(
            f"formula must be text with one '~', such as 'wage ~ age + sex', got "
            f"{in_one_line(formula)}"
        )
    left, right = formula.split("~")
    target = read_formula(f"~ {left}", columns, None)
    if len(target.feature_names) != 1:
        raise ValueError(
            f"formula {formula!r} must have one number or a category with two levels before '~', "
            f"got {list(target.feature_names)}"
        )
    design = read_formula(f"~ {right}", columns, None)
    shared = set(target.column_names) & set(design.column_names)
    if shared:
        raise ValueError(f"formula {formula!r} must not have {shared.pop()!r} on both sides")
    return target, design
