"""Adjusted predictions and marginal effects at declared values, by the delta method."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from dpglm._validation import check_list, check_one_of, check_real
from dpglm.inference.comparisons import Floats, quantile
from dpglm.inference.curves import checked_cell, in_plain_words, rows_of, usual
from dpglm.inference.estimates import Estimates
from dpglm.inference.summary import Summary, SummaryColumn, Tabled
from dpglm.problem import Link
from dpglm.tables.cells import listed
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn

if TYPE_CHECKING:
    pass

Point: TypeAlias = Mapping[str, Any]
"""Values of columns by name."""
_STEP, _SCORE_STEP = 1e-5, 1e-3
"""Steps of derivatives by a column, as a share of its range, and by the score."""
_MOST = 1000


@final
@dataclass(frozen=True, eq=False, repr=False)
class MeanEffects(Tabled):
    """Predictions, or differences or ratios of predictions, with intervals.

    Text and tables show them.

    Parameters
    ----------
    names : tuple of str
        A name for each number.
    estimates, standard_errors : ndarray of shape (n,)
        In the units of the target (probabilities for two classes); standard errors of ratios are
        those of their logarithms. Infinite for numbers that cannot be estimated at this budget.
    intervals : ndarray of shape (n, 2)
        Lower and upper ends, each number by itself.
    table : Summary
        The numbers as text, HTML, Markdown and LaTeX.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    names: tuple[str, ...]
    estimates: Floats
    standard_errors: Floats
    intervals: Floats
    table: Summary

    @classmethod
    def of(
        cls,
        title: str,
        heading: str,
        names: Sequence[str],
        numbers: tuple[Floats, Floats, Floats],
        level: float,
        notes: Sequence[str],
    ) -> MeanEffects:
        """Return the numbers (estimates, errors, intervals) with their table."""
        (estimates, errors, intervals), tail = numbers, 0.5 * (1.0 - level)
        # Digits follow the intervals, which ratios have on another scale than errors.
        width = (intervals[:, 1] - intervals[:, 0]) / 4.0
        columns = [
            SummaryColumn(
                heading, estimates, "estimate", np.where(np.isinf(errors), errors, width)
            ),
            *(
                SummaryColumn(name, ends, "estimate", np.where(np.isfinite(width), width, 0.0))
                for name, ends in zip(
                    (f"[{tail:.3g}", f"{1.0 - tail:.5g}]"), intervals.T, strict=True
                )
            ),
        ]
        table = Summary(title, (), tuple(names), tuple(columns), tuple(notes))
        return cls(tuple(names), estimates, errors, intervals, table)


@final
@dataclass(frozen=True, eq=False)
class PointEffects:
    """Predictions of a fitted model, and their changes, at declared values of its columns.

    ``every`` are all columns of the table, ``columns`` those that the model reads, and ``features``
    maps a table to the columns of ``estimates``.
    """

    every: Sequence[Column]
    columns: Mapping[str, Column]
    features: Any
    estimates: Estimates
    link: Link
    title: str

    def predictions(self, at: Point | None, level: float) -> MeanEffects:
        """Return the means of the target at all combinations of values."""
        points, named = self._points(at)
        rows = self.rows(points)
        scores, half = rows @ self.estimates.params, self._critical(level) * self._errors(rows)
        ends = [self.link.inverse(scores + sign * half) for sign in (-1.0, 1.0)]
        errors = self._errors(derivative(self.link, scores)[:, np.newaxis] * rows)
        numbers = np.asarray(self.link.inverse(scores), dtype=np.float64), errors
        names = [_named(point, named) or "prediction" for point in points]
        made = (*numbers, np.column_stack(ends).astype(np.float64))
        return self._shown("predictions", "mean", names, made, level, named, rows)

    def effects(self, names: Any, at: Point | None, level: float) -> MeanEffects:
        """Return slopes in numeric columns, and differences from reference categories."""
        chosen = list(self.columns) if names is None else names
        chosen = [chosen] if isinstance(chosen, str) else check_list("columns", chosen)
        points, named = self._points(at)
        found: list[tuple[str, float, Floats]] = []
        for name in chosen:
            column = self.columns[check_one_of("columns", name, tuple(self.columns))]
            is_category = isinstance(column, CategoricalColumn)
            if is_category and name in named:
                raise ValueError(f"at must not name {name!r}: all its categories are compared")
            for point in points:
                where = _named(point, named)
                for change, value, gradient in self._changes(column, point):
                    found.append((", ".join(filter(None, [change, where])), value, gradient))
        said, values, gradients = zip(*found, strict=True)
        estimates, rows = np.array(values), np.array(gradients)
        errors, critical = self._errors(rows), self._critical(level)
        ends = np.column_stack([estimates - critical * errors, estimates + critical * errors])
        made = (estimates, errors, ends)
        return self._shown("marginal effects", "effect", said, made, level, named, rows)

    def _changes(self, column: Column, point: Point) -> Iterator[tuple[str, float, Floats]]:
        """Yield the name, value and gradient of each effect of a column at a point."""
        name = column.name
        if isinstance(column, CategoricalColumn):
            first, *others = sorted(column.categories, key=lambda one: one != usual(column))
            rows = self.rows([{**point, name: one} for one in (first, *others)])
            scores = rows @ self.estimates.params
            means = np.asarray(self.link.inverse(scores), dtype=np.float64)
            rows = derivative(self.link, scores)[:, np.newaxis] * rows
            for one, mean, row in zip(others, means[1:], rows[1:], strict=True):
                yield f"{name}: {one} - {first}", float(mean - means[0]), row - rows[0]
            return
        assert isinstance(column, NumericColumn)
        step = _STEP * (column.high - column.low)
        low, high = max(point[name] - step, column.low), min(point[name] + step, column.high)
        below, here, above = self.rows([{**point, name: one} for one in (low, point[name], high)])
        change = (above - below) / (high - low)
        score = np.array([here @ self.estimates.params])
        slope, bend = derivative(self.link, score)[0], derivative(self.link, score, second=True)[0]
        by_score = float(change @ self.estimates.params)
        yield f"{name}, per unit", float(slope * by_score), bend * by_score * here + slope * change

    def _points(self, at: Point | None) -> tuple[list[dict[str, Any]], list[str]]:
        """Return all combinations of values, and the columns that were named."""
        given: dict[str, list[Any]] = {}
        for name, values in dict(at or {}).items():
            if name not in self.columns:
                raise ValueError(f"at must have columns of the model, got {name!r}")
            cells = check_list("at", values) if isinstance(values, list | tuple) else [values]
            given[name] = [checked_cell(self.columns[name], one) for one in cells]
        if not 0 < math.prod(map(len, given.values())) <= _MOST:
            raise ValueError(f"at must have 1 to {_MOST} combinations of values, got {at!r}")
        own = {one.name: usual(one) for one in self.every}
        combined = itertools.product(*given.values())
        return [{**own, **dict(zip(given, one, strict=True))} for one in combined], list(given)

    def rows(self, points: Sequence[Point]) -> Floats:
        """Return the features at points, with a 1 for the intercept."""
        rows = rows_of({name: [one[name] for one in points] for name in points[0]}, self.features)
        return np.insert(rows, 0, 1.0, axis=1) if self.estimates.has_intercept else rows

    def _errors(self, gradients: Floats) -> Floats:
        errors = self.estimates.standard_errors(_quadratic(gradients))
        return np.where(gradients.any(axis=1), errors, 0.0)

    def _critical(self, level: float) -> float:
        check_real("level", level, above=0.0, below=1.0)
        return quantile(level, self.estimates.degrees_of_freedom)

    def _shown(
        self,
        what: str,
        heading: str,
        names: Sequence[str],
        numbers: tuple[Floats, Floats, Floats],
        level: float,
        named: Sequence[str],
        gradients: Floats,
    ) -> MeanEffects:
        others = {name: usual(one) for name, one in self.columns.items() if name not in named}
        notes = [f"{100.0 * level:g} % intervals include sampling error and privacy noise."]
        if others:
            notes.append(f"Columns without a declared value: {_named(others, list(others))}.")
        of_prior = self.estimates.is_of_prior(_quadratic(gradients)) & gradients.any(axis=1)
        if of_prior.any():
            which = [name for name, is_so in zip(names, of_prior, strict=True) if is_so]
            notes.append(f"The rows carry little information at this budget about {listed(which)}.")
        return MeanEffects.of(f"{self.title}: {what}", heading, names, numbers, level, notes)


def _named(point: Point, names: Sequence[str]) -> str:
    return ", ".join(f"{name} = {in_plain_words(point[name])}" for name in names)


def _quadratic(rows: Floats) -> Any:
    return lambda matrix: np.asarray(np.einsum("ij,ij->i", rows @ matrix, rows))


def derivative(link: Link, scores: Floats, *, second: bool = False) -> Floats:
    """Return the first or second derivative of the mean by the score, by central differences."""
    below, here, above = (
        np.asarray(link.inverse(scores + step), dtype=np.float64)
        for step in (-_SCORE_STEP, 0.0, _SCORE_STEP)
    )
    if second:
        return np.asarray((above - 2.0 * here + below) / _SCORE_STEP**2)
    return np.asarray((above - below) / (2.0 * _SCORE_STEP))
