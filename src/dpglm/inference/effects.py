"""Effects of columns with intervals: average marginal ones, and curves."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm._validation import (
    Array,
    check_integer,
    check_kind,
    check_list,
    check_one_of,
    check_real,
    in_one_line,
)
from dpglm._words import plain_number
from dpglm.certificate.certificate import Certificate
from dpglm.inference.comparisons import Comparisons, largest_errors, quantile, root_of
from dpglm.inference.estimates import Estimates, quadratic_of
from dpglm.inference.summary import Summary, SummaryColumn, SummarySource
from dpglm.problem import IdentityLink, Link
from dpglm.tables.additive_terms import as_dense
from dpglm.tables.cells import listed
from dpglm.tables.columns import CategoricalColumn, Column, NumericColumn
from dpglm.tables.encoding import NamedTerm

if TYPE_CHECKING:
    import pandas as pd


_WIDTH, _BODY = 5.4, 3.6
_LINE, _BAND = 1.8, 0.22


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """Differences of the score from that at a reference value, or their exponentials.

    Parameters
    ----------
    column : str
        The column.
    values : tuple
        Numbers, or categories.
    reference : object
        The value with an effect of 0, or a ratio of 1.
    effects : ndarray of shape (n_values,)
        Differences of the linear score, or ratios.
    low, high : ndarray of shape (n_values,)
        Ends of the band; infinite where it cannot be estimated at this budget.
    effect : str
        Scale of the effects, such as "odds ratio".
    band : str
        Coverage of the band in words.
    at : mapping from str to object
        Values of columns that interact with the column.
    of_prior : bool
        Whether a difference has at least two thirds of its prior's standard deviation somewhere.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    column: str
    values: tuple[Any, ...]
    reference: Any
    effects: Array
    low: Array
    high: Array
    effect: str
    band: str
    at: Mapping[str, Any]
    of_prior: bool

    def to_frame(self) -> pd.DataFrame:
        """Return values, effects and ends as a data frame; an ImportError without pandas."""
        import pandas as pd

        columns = {self.effect: self.effects, "low": self.low, "high": self.high}
        return pd.DataFrame(columns, index=pd.Index(self.values, name=self.column))

    def plot(self) -> Any:
        """Draw the curve with its band.

        Raises
        ------
        ImportError
            If Matplotlib is not installed (``pip install 'dpglm[plot]'``).
        """
        from dpglm import pictures as draw

        at = "".join(f", {name} = {in_plain_words(value)}" for name, value in self.at.items())
        title = f"{self.column}: {self.effect} against {in_plain_words(self.reference)}{at}"
        figure = draw.new_figure(_WIDTH, _BODY, title, self.band)
        axes = figure.subplots()
        is_ratio = self.effect != "difference of the score"
        axes.axhline(1.0 if is_ratio else 0.0, color=draw.GREY, linewidth=0.9)
        if all(isinstance(one, int | float) for one in self.values):
            axes.fill_between(
                self.values, self.low, self.high, color=draw.BLUE, alpha=_BAND, linewidth=0
            )
            axes.plot(self.values, self.effects, color=draw.BLUE, linewidth=_LINE)
        else:
            places = np.arange(len(self.values))
            reach = np.abs(np.array([self.low, self.high]) - self.effects)
            axes.errorbar(places, self.effects, yerr=reach, fmt="o", color=draw.BLUE)
            axes.set_xticks(places, [str(one) for one in self.values], parse_math=False)
        if is_ratio and (self.effects > 0.0).all():
            axes.set_yscale("log")
            draw.log_scale(axes)
        axes.set_xlabel(self.column, parse_math=False)
        axes.set_ylabel(self.effect)
        draw.quiet(axes)
        return figure


def in_plain_words(value: Any) -> str:
    """Write a value of a column."""
    return plain_number(value) if isinstance(value, int | float) else str(value)


def usual(column: Column) -> Any:
    """Return the middle of a range, or the reference category."""
    if isinstance(column, CategoricalColumn):
        return column.categories[0] if column.reference is None else column.reference
    assert isinstance(column, NumericColumn)
    return float(column.unstretched(np.array([0.5]))[0])


def checked_cell(column: Column, value: Any) -> Any:
    """Return a value of a column; a ValueError if it is not one."""
    if isinstance(column, CategoricalColumn):
        return column.categories[int(column.read([value])[0])]
    assert isinstance(column, NumericColumn)
    return check_real(column.name, value, least=column.low, most=column.high)


def _grid(column: Column, values: Any) -> list[Any]:
    """Return the values of the curve: all categories, or numbers within the bounds."""
    if isinstance(column, CategoricalColumn):
        listed = column.categories if isinstance(values, int) else check_list("values", values)
        return [checked_cell(column, one) for one in listed]
    assert isinstance(column, NumericColumn)
    if np.ndim(values) == 0:
        count = check_integer("values", values, least=2)
        even = column.unstretched(np.linspace(0.0, 1.0, min(count, _MOST_POINTS)))
        return [float(one) for one in np.clip(even, column.low, column.high)]
    return [checked_cell(column, one) for one in check_list("values", values)]


_MOST_POINTS = 10_000


Point: TypeAlias = Mapping[str, Any]
"""Values of columns by name."""
_STEP, _SCORE_STEP = 1e-5, 1e-3
"""Steps of derivatives by a column, as a share of its range, and by the score."""
_MOST, _EFFECTS = 1000, "effects need"


def mean_effects(
    title: str,
    heading: str,
    names: Sequence[str],
    numbers: tuple[Array, Array, Array],
    level: float,
    notes: Sequence[str],
) -> Comparisons:
    """Return means or effects (estimates, errors, intervals) in the units of the target."""
    (estimates, errors, intervals), tail = numbers, 0.5 * (1.0 - level)
    # Digits follow the intervals, which ratios have on another scale than errors.
    width = (intervals[:, 1] - intervals[:, 0]) / 4.0
    own = np.where(np.isinf(errors), errors, width)
    sure = np.where(np.isfinite(width), width, 0.0)
    low, high = intervals.T
    columns = (
        SummaryColumn(heading, estimates, "estimate", own),
        SummaryColumn(f"[{tail:.3g}", low, "estimate", sure),
        SummaryColumn(f"{1.0 - tail:.5g}]", high, "estimate", sure),
    )
    table = Summary(title, (), tuple(names), columns, tuple(notes))
    return Comparisons(tuple(names), estimates, errors, intervals, table)


class HasEffects:
    """Base of inference: predictions of a model of a table, and their changes, at declared values.

    ``scores`` has the columns of the fit, and the coefficients in their units.
    """

    certificate: Certificate
    scores: Any
    source: SummarySource | None

    @property
    def title(self) -> str:
        """Name of the estimator, or of the release that the estimates are from."""
        return self.certificate.estimator if self.source is None else self.source.title

    @property
    def link(self) -> Link:
        """The link between linear scores and means."""
        link = IdentityLink() if self.source else self.certificate.problem.loss.link
        assert link is not None
        return link

    @functools.cached_property
    def _design(self) -> tuple[tuple[Column, ...], tuple[NamedTerm, ...]]:
        """The columns of the table and the terms of the model; none without a schema."""
        if self.source is not None:
            return self.source.columns, self.source.terms
        schema = self.certificate.schema
        return ((), ()) if schema is None else (schema.columns, schema.encoding.named_terms)

    def _columns(self, what: str) -> dict[str, Column]:
        """Return the columns that the model reads."""
        every, terms = self._design
        if not terms:
            raise ValueError(f"{what} a model of a table with a schema (from_formula)")
        read = {column for term in terms for column in term.columns}
        return {one.name: one for one in every if one.name in read}

    @property
    def _estimates(self) -> Estimates:
        found: Estimates = self.scores.estimates
        return found

    @checked
    def curve(
        self,
        column: str,
        reference: Any = None,
        *,
        at: Point | None = None,
        values: Any = 101,
        level: float = 0.95,
        simultaneous: bool = True,
        exponentiate: bool | None = None,
    ) -> Curve:
        """Return the effect of a column against a reference value, with a band.

        Parameters
        ----------
        column : str
            A column of the table.
        reference : number or category, optional
            By default the middle of the declared range, or the reference category.
        at : mapping from str to value, optional
            Values of other columns, which matter if they interact with the column; by default
            the middle of the range, or the reference category.
        values : int, or list of values, default=101
            How many evenly spaced numbers, or which ones; all categories by default.
        level : float, default=0.95
            Confidence level of the band, in (0, 1).
        simultaneous : bool, default=True
            Whether the band covers the whole curve; otherwise each value by itself.
        exponentiate : bool, optional
            Whether effects are odds ratios or rate ratios; by default if the link has them.

        Raises
        ------
        ValueError
            If the model is not one of a table with a schema, or an argument is out of range.

        Notes
        -----
        Privacy: post-processing; values and references do not depend on private rows.
        """
        columns, critical = self._columns("a curve needs"), self._critical(level)
        if column not in columns:
            known = in_one_line(list(columns))
            raise ValueError(f"column must be one of {known}, got {column!r}")
        link, own = self.link, columns[column]
        ratios = link.exponentiated is not None
        if exponentiate and not ratios:
            raise ValueError(f"exponentiate requires a link with ratios, got {link!r}")
        ratios = ratios if exponentiate is None else exponentiate
        every, terms = self._design
        others = {one.name: usual(one) for one in every}
        for key, value in dict(at or {}).items():
            if key not in columns or key == column:
                raise ValueError(f"at must have other columns of the model, got {key!r}")
            others[key] = checked_cell(columns[key], value)
        cells = _grid(own, values)
        start = usual(own) if reference is None else checked_cell(own, reference)
        rows = self._rows([{**others, column: one} for one in (*cells, start)])
        differences = rows[:-1] - rows[-1]
        effects, errors = differences @ self._estimates.params, self._errors(differences)
        known_errors = np.isfinite(errors) & (errors > 0.0)
        if simultaneous and known_errors.any():
            root = differences[known_errors] @ root_of(self._estimates.covariance)
            root /= np.linalg.norm(root, axis=1, keepdims=True)
            largest = largest_errors(root, self._estimates.degrees_of_freedom)
            critical = float(np.quantile(largest, level))
        half = critical * errors
        ends = np.stack([effects, effects - half, effects + half])
        with np.errstate(over="ignore"):
            ends = np.exp(ends) if ratios else ends
        joint = "the whole curve" if isinstance(own, NumericColumn) else "all categories together"
        what = joint if simultaneous else "each value by itself"
        joined = {one for term in terms if column in term.columns for one in term.columns}
        return Curve(
            column,
            tuple(cells),
            start,
            effects=ends[0],
            low=ends[1],
            high=ends[2],
            effect=str(link.exponentiated) if ratios else "difference of the score",
            band=f"Band: {100.0 * level:g} % for {what}, sampling error and privacy noise "
            "together.",
            at={one: value for one, value in others.items() if one in joined - {column}},
            of_prior=bool(self._of_prior(differences).any()),
        )

    @checked
    def adjusted_predictions(self, at: Point | None = None, *, level: float = 0.95) -> Comparisons:
        """Predict the mean of the target at declared values of the columns.

        Parameters
        ----------
        at : mapping from str to value or list of values, optional
            Values of columns; lists are combined. Other columns have the middle of their range, or
            the reference category.
        level : float, default=0.95
            Confidence level of each interval, in (0, 1).

        Notes
        -----
        Means are probabilities of the second class for two classes. Intervals are those of the
        linear score, mapped to means; standard errors are by the delta method.

        Privacy: post-processing; declared values do not depend on private rows. Averages over the
        rows are a further release (``Study.effects``).
        """
        points, named = self._points(at)
        rows = self._rows(points)
        scores, half = rows @ self._estimates.params, self._critical(level) * self._errors(rows)
        ends = [self.link.inverse(scores + sign * half) for sign in (-1.0, 1.0)]
        errors = self._errors(derivative(self.link, scores)[:, np.newaxis] * rows)
        numbers = np.asarray(self.link.inverse(scores), dtype=np.float64), errors
        names = [_named(point, named) or "prediction" for point in points]
        made = (*numbers, np.column_stack(ends).astype(np.float64))
        return self._shown("predictions", "mean", names, made, level, named, rows)

    @checked
    def marginal_effects(
        self, columns: Any = None, *, at: Point | None = None, level: float = 0.95
    ) -> Comparisons:
        """Return the change of the mean of the target with a column, at declared values.

        Parameters
        ----------
        columns : str or list of str, optional
            Columns of the model; by default all.
        at : mapping from str to value or list of values, optional
            See ``adjusted_predictions``.
        level : float, default=0.95
            Confidence level of each interval, in (0, 1).

        Notes
        -----
        Changes are the slope per unit of a numeric column, and differences from the reference
        category (risk differences for two classes). Intervals are by the delta method.

        Privacy: post-processing, like ``adjusted_predictions``.
        """
        known = self._columns(_EFFECTS)
        chosen = list(known) if columns is None else columns
        chosen = [chosen] if isinstance(chosen, str) else check_list("columns", chosen)
        points, named = self._points(at)
        found: list[tuple[str, float, Array]] = []
        for name in chosen:
            column = known[check_one_of("columns", name, tuple(known))]
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

    def _changes(self, column: Column, point: Point) -> Iterator[tuple[str, float, Array]]:
        """Yield the name, value and gradient of each effect of a column at a point."""
        name = column.name
        if isinstance(column, CategoricalColumn):
            first, *others = sorted(column.categories, key=lambda one: one != usual(column))
            rows = self._rows([{**point, name: one} for one in (first, *others)])
            scores = rows @ self._estimates.params
            means = np.asarray(self.link.inverse(scores), dtype=np.float64)
            rows = derivative(self.link, scores)[:, np.newaxis] * rows
            for one, mean, row in zip(others, means[1:], rows[1:], strict=True):
                yield f"{name}: {one} - {first}", float(mean - means[0]), row - rows[0]
            return
        assert isinstance(column, NumericColumn)
        step = _STEP * (column.high - column.low)
        low, high = max(point[name] - step, column.low), min(point[name] + step, column.high)
        below, here, above = self._rows([{**point, name: one} for one in (low, point[name], high)])
        change = (above - below) / (high - low)
        score = np.array([here @ self._estimates.params])
        slope, bend = derivative(self.link, score)[0], derivative(self.link, score, second=True)[0]
        by_score = float(change @ self._estimates.params)
        yield f"{name}, per unit", float(slope * by_score), bend * by_score * here + slope * change

    def _points(self, at: Point | None) -> tuple[list[dict[str, Any]], list[str]]:
        """Return all combinations of values, and the columns that were named."""
        check_kind("at", at, Mapping | None, "a mapping from column to value")
        given: dict[str, list[Any]] = {}
        columns = self._columns(_EFFECTS)
        for name, values in dict(at or {}).items():
            if name not in columns:
                raise ValueError(f"at must have columns of the model, got {name!r}")
            cells = check_list("at", values) if isinstance(values, list | tuple) else [values]
            given[name] = [checked_cell(columns[name], one) for one in cells]
        if not 0 < math.prod(map(len, given.values())) <= _MOST:
            raise ValueError(f"at must have 1 to {_MOST} combinations of values, got {at!r}")
        own = {one.name: usual(one) for one in self._design[0]}
        combined = itertools.product(*given.values())
        return [{**own, **dict(zip(given, one, strict=True))} for one in combined], list(given)

    def _rows(self, points: Sequence[Point]) -> Array:
        """Return the features at points, with a 1 for the intercept."""
        table = {name: _array([one[name] for one in points]) for name in points[0]}
        rows = np.asarray(as_dense(self.scores.features(table)), dtype=np.float64)
        return np.insert(rows, 0, 1.0, axis=1) if self._estimates.has_intercept else rows

    def _errors(self, gradients: Array) -> Array:
        # The error of a zero difference is zero, even without information.
        errors = self._estimates.standard_errors(quadratic_of(gradients))
        return np.where(gradients.any(axis=1), errors, 0.0)

    def _of_prior(self, gradients: Array) -> NDArray[np.bool_]:
        return self._estimates.is_of_prior(quadratic_of(gradients)) & gradients.any(axis=1)

    def _critical(self, level: float) -> float:
        check_real("level", level, above=0.0, below=1.0)
        return quantile(level, self._estimates.degrees_of_freedom)

    def _shown(
        self,
        what: str,
        heading: str,
        names: Sequence[str],
        numbers: tuple[Array, Array, Array],
        level: float,
        named: Sequence[str],
        gradients: Array,
    ) -> Comparisons:
        columns = self._columns(_EFFECTS)
        others = {name: usual(one) for name, one in columns.items() if name not in named}
        notes = [f"{100.0 * level:g} % intervals include sampling error and privacy noise."]
        if others:
            notes.append(f"Columns without a declared value: {_named(others, list(others))}.")
        of_prior = self._of_prior(gradients)
        if of_prior.any():
            which = [name for name, is_so in zip(names, of_prior, strict=True) if is_so]
            notes.append(f"The rows carry little information at this budget about {listed(which)}.")
        return mean_effects(f"{self.title}: {what}", heading, names, numbers, level, notes)


def _named(point: Point, names: Sequence[str]) -> str:
    return ", ".join(f"{name} = {in_plain_words(point[name])}" for name in names)


def _array(cells: list[Any]) -> NDArray[Any]:
    is_number = all(isinstance(one, int | float) for one in cells)
    return np.array(cells, dtype=None if is_number else object)


def derivative(link: Link, scores: Array, *, second: bool = False) -> Array:
    """Return the first or second derivative of the mean by the score, by central differences."""
    below, here, above = (
        np.asarray(link.inverse(scores + step), dtype=np.float64)
        for step in (-_SCORE_STEP, 0.0, _SCORE_STEP)
    )
    if second:
        return np.asarray((above - 2.0 * here + below) / _SCORE_STEP**2)
    return np.asarray((above - below) / (2.0 * _SCORE_STEP))
