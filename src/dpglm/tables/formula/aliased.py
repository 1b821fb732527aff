"""Columns that depend linearly on others, whatever the rows are: found before rows are seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dpglm.tables.cells import listed
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.formula.design import FormulaEncoding, Term
from dpglm.tables.formula.factors import Cells

__all__ = ["check_not_aliased"]

# Of a column's length, what may be left of it outside the span of others that it depends on.
_TOLERANCE = 1e-8
_ROUNDING = 1e-13
# What takes a tenth of a second.
_MOST_COLUMNS, _MOST_ENTRIES = 500, 1_000_000
# Rows on which a dependence must hold before it is believed, and how often it may be refuted.
_CONFIRMING, _MOST_ROUNDS = 10_000, 30
_NEAREST = -12.0
_MISSING = 0.1


def check_not_aliased(encoding: FormulaEncoding) -> None:
    """Refuse a formula with a column that is a linear combination of others in every row.

    Its coefficients would say nothing; without privacy software takes such columns out, which it
    finds by the rows. Here columns are computed on made-up rows: every combination of categories,
    and numbers at random places within their bounds, many at and near the numbers that the formula
    names and the ends of the range, on a logarithmic scale. A column is refused if what those
    before it (and the intercept) leave of it is at most 1e-8 of its length, on these rows and on
    10,000 more. Only terms that share columns of the table can depend on each other, so each group
    of such terms is looked at alone; one with more than 500 columns is not.
    """
    for terms in _groups(encoding.terms):
        group = FormulaEncoding(encoding.columns, (*(t for t in encoding.terms if not t), *terms))
        if _is_independent(terms) or len(group.feature_names) > _MOST_COLUMNS:
            continue
        found = _aliased(group)
        if found is not None:
            name, others = found
            raise ValueError(
                f"formula term {name!r} is "
                + (f"a linear combination of {listed(others)}" if others else "zero")
                + " in every row, so that nothing can be said of its effect: leave it out"
            )


def _groups(terms: Sequence[Term]) -> list[tuple[Term, ...]]:
    """Put terms that share a column of the table together, directly or through others."""
    groups: list[tuple[frozenset[str], list[Term]]] = []
    for term in terms:
        if term:
            read = frozenset(name for one in term for name in one.factor.columns)
            near = [group for group in groups if group[0] & read]
            groups = [group for group in groups if not group[0] & read]
            joined = [one for _, others in near for one in others]
            groups.append((read.union(*(names for names, _ in near)), [*joined, term]))
    # In the order of the formula, in which the first of several stays.
    return [tuple(one for one in terms if one in joined) for _, joined in groups]


def _is_independent(terms: Sequence[Term]) -> bool:
    """Whether the coding has seen to it: products of indicators, by themselves."""
    return len(terms) == 1 and all(one.factor.is_category for one in terms[0])


def _aliased(group: FormulaEncoding) -> tuple[str, list[str]] | None:
    """Return the first column that depends on those before it, and these."""
    rng = np.random.default_rng(0)
    rows = _MadeUpRows(group)
    names = [*(["the intercept"] if group.has_intercept else []), *group.feature_names]
    if rows.n_combined * rows.n_within * len(names) > _MOST_ENTRIES:
        return None
    X = rows.design(rows.n_within, rng)
    for _ in range(_MOST_ROUNDS):
        j = _dependent(X)
        if j is None:
            return None
        weights = np.linalg.lstsq(X[:, :j], X[:, j], rcond=None)[0]
        more = rows.design(math.ceil(_CONFIRMING / rows.n_combined), rng)
        gaps = np.abs(more[:, j] - more[:, :j] @ weights)
        largest = np.abs(more[:, : j + 1]).max(axis=0)
        rounding = _ROUNDING * float(largest[:j] @ np.abs(weights))
        if gaps.max() <= max(_TOLERANCE * largest[j], rounding):
            shares = largest[:j] * np.abs(weights)
            part = shares > _TOLERANCE * shares.max(initial=0.0)
            return names[j], [names[i] for i in np.flatnonzero(part)]
        X = np.vstack([X, more[np.argsort(gaps)[-len(names) :]]])
    return None


def _dependent(X: NDArray[np.float64]) -> int | None:
    """Return the first column that is nearly in the span of those before it."""
    # The distance of each from that span.
    left = np.abs(np.diag(np.linalg.qr(X, mode="r")))
    near = left <= _TOLERANCE * np.linalg.norm(X, axis=0)
    return int(near.argmax()) if near.any() else None


class _MadeUpRows:
    """Rows with every combination of the categories that a group of terms reads."""

    def __init__(self, group: FormulaEncoding) -> None:
        self._group = group
        used: Mapping[str, Column] = {
            one.name: one for one in group.columns if one.name in group.column_names
        }
        self._numbers = [one for one in used.values() if isinstance(one, NumericColumn)]
        self._categories = [one for one in used.values() if isinstance(one, CategoricalColumn)]
        self.n_combined = math.prod(len(one.categories) for one in self._categories)
        # Of one combination, as many as numbers alone make columns, and some.
        counts = (
            math.prod(len(one.fields) for one in term if not one.factor.is_category)
            for term in group.terms
        )
        self.n_within = sum(counts) + 5

    def design(self, n_within: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return the columns of rows, so many of each combination, with the intercept's."""
        n_rows = self.n_combined * n_within
        sizes = [len(one.categories) for one in self._categories]
        places = np.unravel_index(np.repeat(np.arange(self.n_combined), n_within), (*sizes, 1))
        cells: Cells = {
            one.name: place for one, place in zip(self._categories, places[:-1], strict=True)
        } | {one.name: self._drawn(one, n_rows, rng) for one in self._numbers}
        out = np.zeros((n_rows, len(self._group.feature_names)))
        self._group.encode_read(cells, out)
        return np.column_stack([np.ones(n_rows), out]) if self._group.has_intercept else out

    def _drawn(
        self, column: NumericColumn, n_rows: int, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """Draw numbers within the bounds of a column."""
        low, high = float(column.low), float(column.high)
        named = {number for term in self._group.terms for one in term for number in one.numbers}
        from_places = rng.choice([low, high, *(one for one in named if low < one < high)], n_rows)
        toward = rng.choice([low, high], n_rows)
        share = np.where(rng.random(n_rows) < 0.8, 10.0 ** rng.uniform(_NEAREST, 0.0, n_rows), 0.0)
        near = from_places + (toward - from_places) * share
        anywhere = rng.uniform(low, high, n_rows)
        drawn = np.clip(np.where(rng.random(n_rows) < 0.5, anywhere, near), low, high)
        if column.missing is not None:
            drawn[rng.random(n_rows) < _MISSING] = math.nan
        return drawn
