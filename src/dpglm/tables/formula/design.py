"""The columns that a formula's terms make, as they are fitted and as they are reported."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm.tables.columns import Column
from dpglm.tables.encoding import Encoding, Reader
from dpglm.tables.formula.factors import Cells, Factor, Scaled, read_cells
from dpglm.tables.units import LinearUnits

__all__ = ["FormulaEncoding", "Term", "coded_terms"]

_MOST_COLUMNS = 10_000
_ROWS_AT_ONCE = 1 << 16


@final
@dataclass(frozen=True)
class Coded:
    """A factor with all of its columns, or reduced by the one that is redundant."""

    factor: Factor
    reduced: bool

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self.factor.fields(reduced=self.reduced)

    @property
    def numbers(self) -> frozenset[float]:
        """Numbers at which its columns may bend or jump."""
        return self.factor.numbers


Term: TypeAlias = tuple[Coded, ...]
_Key: TypeAlias = frozenset[tuple[Coded, str]]
"""A column: the field of each factor that is multiplied."""


def coded_terms(terms: Iterable[Sequence[Factor]]) -> tuple[Term, ...]:
    """Code the factors of each term so that no column is redundant, whatever the rows are.

    The rule is that of Chambers and Hastie, *Statistical Models in S* (1992), section 2.4, as
    formulaic and patsy state it: a factor that spans the intercept is 1 plus a reduced factor; of
    the products that this makes, those that earlier terms span are left out, and the others are
    joined again where that leaves a full factor. The empty term is the intercept.
    """
    spanned: set[frozenset[Coded]] = set()
    found: list[Term] = []
    for term in terms:
        options: list[tuple[Term, ...]] = [
            ((Coded(one, True),), ()) if one.spans_intercept else ((Coded(one, False),),)
            for one in term
        ]
        products = [tuple(itertools.chain(*parts)) for parts in itertools.product(*options)]
        new = [product for product in products if frozenset(product) not in spanned]
        spanned.update(frozenset(product) for product in new)
        found += _joined(new)
    return tuple(found)


def _joined(terms: Iterable[Term]) -> list[Term]:
    """Apply ``rest + rest:reduced = rest:full`` as long as it can be."""
    found: list[Term] = []
    for term in sorted(terms, key=len):
        for shorter in found:
            extra = set(term) - set(shorter)
            if len(term) == len(shorter) + 1 and len(extra) == 1 and next(iter(extra)).reduced:
                full = tuple(Coded(one.factor, False) if one in extra else one for one in term)
                found = _joined([*(one for one in found if one != shorter), full])
                break
        else:
            found.append(term)
    return found


@final
@dataclass(frozen=True, eq=False)
class FormulaEncoding(Encoding):
    """The columns of a formula's coded terms.

    A fitted column is a product of factors, each centred and scaled to [-1, 1] where it can be: a
    factor may be centred where the terms that the centers then make are among the others, so that
    the model stays the same. ``units`` undoes it.
    """

    columns: tuple[Column, ...]
    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        if not self._slopes:
            raise ValueError(
                "a formula must name a column beside the intercept: a model of the intercept alone "
                "says no more than a mean, which dpglm.describe releases"
            )
        n_columns = sum(math.prod(len(one.fields) for one in term) for term in self._slopes)
        if n_columns > _MOST_COLUMNS:
            raise ValueError(
                f"a formula must make at most {_MOST_COLUMNS} columns beside the intercept, got "
                f"{n_columns}"
            )

    @property
    def column_names(self) -> tuple[str, ...]:
        used = {name for term in self.terms for one in term for name in one.factor.columns}
        return tuple(column.name for column in self.columns if column.name in used)

    @property
    def has_intercept(self) -> bool:
        return () in self.terms

    @functools.cached_property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(":".join(fields) for term in self._slopes for fields in _fields(term))

    @functools.cached_property
    def row_norm(self) -> float:
        norms = [math.prod(one.norm for one in scales) for scales in self._scales]
        return math.sqrt(math.fsum(norm**2 for norm in norms))

    @functools.cached_property
    def units(self) -> LinearUnits:
        rows = {key: row for row, key in enumerate(self._keys())}
        intercept = len(rows)
        entries: list[tuple[float, int, int]] = [(1.0, intercept, intercept)]
        for term, scales in zip(self._slopes, self._scales, strict=True):
            for fields in _fields(term):
                column = rows[frozenset(zip(term, fields, strict=True))]
                for factor, key in _expanded(term, fields, scales):
                    entries.append((factor, rows.get(key, intercept), column))
        values, at, of = zip(*entries, strict=True)
        shape = (intercept + 1, intercept + 1)
        return LinearUnits(
            sparse.csr_array((values, (at, of)), shape=shape), names=self.feature_names
        )

    def encode(self, cells: Reader, out: NDArray[np.floating[Any]]) -> None:
        used = [column for column in self.columns if column.name in self.column_names]
        read = {column.name: read_cells(column, cells(column.name)) for column in used}
        for start in range(0, len(out), _ROWS_AT_ONCE):
            block = slice(start, start + _ROWS_AT_ONCE)
            self.encode_read({name: values[block] for name, values in read.items()}, out[block])

    def encode_read(self, cells: Cells, out: NDArray[np.floating[Any]]) -> None:
        """Write the columns of rows whose cells were read into ``out``."""
        start = 0
        for term, scales in zip(self._slopes, self._scales, strict=True):
            product = np.ones((len(out), 1))
            for one, scale in zip(term, scales, strict=True):
                values = one.factor.values(cells, reduced=one.reduced)
                values = (values - scale.center) / scale.scale
                # The fields of the first factor change fastest, as in R.
                product = (values[:, :, np.newaxis] * product[:, np.newaxis, :]).reshape(
                    len(out), -1
                )
            stop = start + product.shape[1]
            out[:, start:stop] = product
            start = stop

    @functools.cached_property
    def _slopes(self) -> tuple[Term, ...]:
        """The terms but for the intercept."""
        return tuple(term for term in self.terms if term)

    def _keys(self) -> Iterator[_Key]:
        for term in self._slopes:
            for fields in _fields(term):
                yield frozenset(zip(term, fields, strict=True))

    @functools.cached_property
    def _scales(self) -> tuple[tuple[Scaled, ...], ...]:
        """How the factors of each term are fitted: as many of them centred as can be."""
        known = {frozenset(term) for term in self.terms}
        return tuple(_scaled(term, _centered(term, known)) for term in self._slopes)


def _scaled(term: Term, centered: frozenset[Coded]) -> tuple[Scaled, ...]:
    return tuple(one.factor.scaled(centered=one in centered, reduced=one.reduced) for one in term)


def _centered(term: Term, known: set[frozenset[Coded]]) -> frozenset[Coded]:
    """Return the most factors of a term whose centers make terms that are known."""
    scales = _scaled(term, frozenset(term))
    movable = [one for one, scale in zip(term, scales, strict=True) if scale.center != 0.0]
    for count in range(len(movable), 0, -1):
        for chosen in itertools.combinations(movable, count):
            made = (frozenset(term) - frozenset(part) for part in _parts(chosen) if part)
            if all(one in known for one in made):
                return frozenset(chosen)
    return frozenset()


def _fields(term: Term) -> Iterator[tuple[str, ...]]:
    """List the fields of each column of a term, those of the first factor changing fastest."""
    for fields in itertools.product(*(one.fields for one in reversed(term))):
        yield fields[::-1]


def _parts(chosen: Sequence[Coded]) -> Iterator[tuple[Coded, ...]]:
    for count in range(len(chosen) + 1):
        yield from itertools.combinations(chosen, count)


def _expanded(
    term: Term, fields: Sequence[str], scales: Sequence[Scaled]
) -> Iterator[tuple[float, _Key]]:
    """Expand a product of ``(f - c) / s`` into the columns that it adds up, with their factors."""
    size = math.prod(scale.scale for scale in scales)
    pairs = list(zip(zip(term, fields, strict=True), scales, strict=True))
    choices = [
        ((1.0, pair),) if scale.center == 0.0 else ((1.0, pair), (-scale.center, None))
        for pair, scale in pairs
    ]
    for chosen in itertools.product(*choices):
        factor = math.prod(value for value, _ in chosen) / size
        yield factor, frozenset(pair for _, pair in chosen if pair is not None)
