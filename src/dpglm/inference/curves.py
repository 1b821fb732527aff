"""The effect of a column against a reference value, with a band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_bool, check_integer, check_list, check_real, in_one_line
from dpglm._words import plain_number
from dpglm.inference.comparisons import Floats, largest_errors, quantile, root_of
from dpglm.inference.estimates import Estimates
from dpglm.problem import Link
from dpglm.tables.additive_terms import as_dense
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
    effects: Floats
    low: Floats
    high: Floats
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

        Returns
        -------
        matplotlib.figure.Figure

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


def curve_of(
    every: Sequence[Column],
    terms: Sequence[NamedTerm],
    name: str,
    reference: Any,
    at: Mapping[str, Any] | None,
    values: Any,
    features: Any,
    estimates: Estimates,
    link: Link,
    *,
    level: float,
    simultaneous: bool,
    exponentiate: bool | None,
) -> Curve:
    """Return the curve of a column; ``features`` maps a table to the columns of the fit."""
    check_real("level", level, above=0.0, below=1.0)
    check_bool("simultaneous", simultaneous)
    read = {column for term in terms for column in term.columns}
    columns = {one.name: one for one in every if one.name in read}
    if name not in columns:
        raise ValueError(f"column must be one of {in_one_line(list(columns))}, got {name!r}")
    ratios = link.exponentiated is not None
    if exponentiate is not None and check_bool("exponentiate", exponentiate) and not ratios:
        raise ValueError(f"exponentiate requires a link with ratios, got {link!r}")
    ratios = ratios if exponentiate is None else exponentiate
    others = {one.name: usual(one) for one in every}
    given = {} if at is None else dict(at)
    for key, value in given.items():
        if key not in columns or key == name:
            raise ValueError(f"at must have other columns of the model, got {key!r}")
        others[key] = checked_cell(columns[key], value)
    own = columns[name]
    cells = _grid(own, values)
    start = usual(own) if reference is None else checked_cell(own, reference)
    table = {
        one: [*cells, start] if one == name else [value] * (len(cells) + 1)
        for one, value in others.items()
    }
    rows = rows_of(table, features)
    differences = rows[:-1] - rows[-1]
    if estimates.has_intercept:
        differences = np.column_stack([np.zeros(len(differences)), differences])

    def quadratic(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.einsum("ij,ij->i", differences @ matrix, differences))

    effects, errors = differences @ estimates.params, estimates.standard_errors(quadratic)
    # The error of a zero difference is zero, even without information.
    errors[~differences.any(axis=1)] = 0.0
    freedom, known = estimates.degrees_of_freedom, np.isfinite(errors) & (errors > 0.0)
    critical = quantile(level, freedom)
    if simultaneous and known.any():
        root = differences[known] @ root_of(estimates.covariance)
        root /= np.linalg.norm(root, axis=1, keepdims=True)
        critical = float(np.quantile(largest_errors(root, freedom), level))
    half = critical * errors
    ends = np.stack([effects, effects - half, effects + half])
    with np.errstate(over="ignore"):
        ends = np.exp(ends) if ratios else ends
    joint = "the whole curve" if isinstance(own, NumericColumn) else "all categories together"
    what = joint if simultaneous else "each value by itself"
    joined = {one for term in terms if name in term.columns for one in term.columns if one != name}
    moves = differences.any(axis=1)
    return Curve(
        name,
        tuple(cells),
        start,
        ends[0],
        ends[1],
        ends[2],
        effect=str(link.exponentiated) if ratios else "difference of the score",
        band=f"Band: {100.0 * level:g} % for {what}, sampling error and privacy noise together.",
        at={one: value for one, value in others.items() if one in joined},
        of_prior=bool((estimates.is_of_prior(quadratic) & moves).any()),
    )


def rows_of(table: Mapping[str, list[Any]], features: Any) -> Floats:
    """Return the features of a table of columns, which ``features`` maps to those of the fit."""
    rows = features({name: _array(cells) for name, cells in table.items()})
    return np.asarray(as_dense(rows), dtype=np.float64)


def in_plain_words(value: Any) -> str:
    """Write a value of a column."""
    return plain_number(value) if isinstance(value, int | float) else str(value)


def _array(cells: list[Any]) -> NDArray[Any]:
    if all(isinstance(one, int | float) for one in cells):
        return np.array(cells)
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found


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
        even = column.unstretched(np.linspace(0.0, 1.0, min(count, _MOST)))
        return [float(one) for one in np.clip(even, column.low, column.high)]
    return [checked_cell(column, one) for one in check_list("values", values)]


_MOST = 10_000
