"""Several contrasts with their correction, and tests of all terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpglm._validation import check_bool, check_one_of, check_real
from dpglm.inference.estimates import Estimates
from dpglm.inference.simultaneous import CORRECTIONS, Floats, corrected, root_of
from dpglm.inference.summary import Summary, SummaryColumn, effect_columns
from dpglm.problem import Link
from dpglm.tables.cells import listed

if TYPE_CHECKING:
    import pandas as pd

Correction: TypeAlias = Literal["simultaneous", "holm", "bonferroni", "none"]
_CORRECTED: Mapping[str, str] = {
    "simultaneous": "P-values and intervals hold for all comparisons together (largest statistic, "
    "simulated from the released covariance).",
    "holm": "P-values (Holm) and intervals (Bonferroni) hold for all comparisons together.",
    "bonferroni": "P-values and intervals hold for all comparisons together (Bonferroni).",
    "none": "P-values and intervals are for each comparison by itself.",
}


@final
@dataclass(frozen=True)
class WaldTest:
    """Result of a Wald test.

    Parameters
    ----------
    statistic : float
        Chi-square statistic, or F statistic if ``df_denominator`` is finite.
    p_value : float
        Probability of at least this statistic under the hypothesis.
    df : int
        Number of linearly independent restrictions.
    df_denominator : float
        Degrees of freedom of the denominator; inf for a chi-square test.
    """

    statistic: float
    p_value: float
    df: int
    df_denominator: float = math.inf


@final
@dataclass(frozen=True, eq=False, repr=False)
class Comparisons:
    """Estimates of contrasts with intervals and tests; text and tables show them.

    Parameters
    ----------
    names : tuple of str
        Names of the contrasts.
    estimates, standard_errors, p_values : ndarray of shape (n_contrasts,)
        On the scale of the coefficients; errors are infinite for contrasts that cannot be estimated
        at this budget, and p-values are adjusted.
    intervals : ndarray of shape (n_contrasts, 2)
        Lower and upper ends, on the scale of the coefficients.
    correction : {"simultaneous", "holm", "bonferroni", "none"}
        Correction for several comparisons.
    of_prior : tuple of str
        Contrasts with at least two thirds of the prior's standard deviation.
    table : Summary
        The numbers as text, HTML, Markdown and LaTeX.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    names: tuple[str, ...]
    estimates: Floats
    standard_errors: Floats
    p_values: Floats
    intervals: Floats
    correction: str
    of_prior: tuple[str, ...]
    table: Summary

    def to_frame(self) -> pd.DataFrame:
        """Return the numbers of ``table`` as a data frame; an ImportError without pandas."""
        return self.table.to_frame()

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


@final
@dataclass(frozen=True, eq=False, repr=False)
class Anova(Mapping[str, WaldTest]):
    """Wald tests of all terms of a model, by term; text and tables show them.

    Parameters
    ----------
    tests : mapping from str to WaldTest
        The test that all effects of a term are zero, given the other terms.
    table : Summary
        The tests as text, HTML, Markdown and LaTeX.

    Notes
    -----
    Privacy: post-processing of released values.
    """

    tests: Mapping[str, WaldTest]
    table: Summary

    def __getitem__(self, term: str) -> WaldTest:
        return self.tests[term]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tests)

    def __len__(self) -> int:
        return len(self.tests)

    def to_frame(self) -> pd.DataFrame:
        """Return the tests as a data frame; an ImportError without pandas."""
        return self.table.to_frame()

    def __repr__(self) -> str:
        return str(self.table)

    def _repr_html_(self) -> str:
        return self.table._repr_html_()


def compared(
    title: str,
    names: tuple[str, ...],
    rows: Floats,
    estimates: Estimates,
    link: Link,
    *,
    correction: str,
    level: float,
    exponentiate: bool,
    others: Sequence[str] = (),
) -> Comparisons:
    """Return estimates, intervals and tests of linear combinations of coefficients."""
    check_one_of("correction", correction, CORRECTIONS)
    check_real("level", level, above=0.0, below=1.0)

    def quadratic(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.einsum("ij,ij->i", rows @ matrix, rows))

    values: Floats = np.asarray(rows @ estimates.params)
    errors = estimates.standard_errors(quadratic)
    known = np.isfinite(errors) & (errors > 0.0)
    statistics = np.divide(values, errors, out=np.zeros_like(values), where=known)
    freedom = estimates.degrees_of_freedom
    alone = np.asarray(2.0 * special.stdtr(freedom, -np.abs(statistics)), dtype=np.float64)
    root = rows[known] @ root_of(estimates.covariance)
    root /= np.maximum(np.linalg.norm(root, axis=1, keepdims=True), np.finfo(float).tiny)
    p_values, critical = corrected(correction, statistics, alone, root, freedom, level)
    half = critical * errors
    intervals = np.column_stack([values - half, values + half])
    of_prior = tuple(
        name for name, is_so in zip(names, estimates.is_of_prior(quadratic), strict=True) if is_so
    )
    notes = [
        f"{100.0 * level:g} % intervals include sampling error and privacy noise. "
        + _CORRECTED[correction if len(names) > 1 else "none"]
    ]
    unknown = [name for name, error in zip(names, errors, strict=True) if math.isinf(error)]
    if unknown:
        notes.append(f"Cannot be estimated at this budget: {listed(unknown)}.")
    if others:
        notes.append(
            f"Effects at the reference or at zero of {listed(list(others))}, which the model lets "
            "interact."
        )
    if of_prior:
        notes.append(
            f"Standard errors of {listed(list(of_prior))} are at least two thirds of the prior's: "
            "the rows carry little information about them at this budget."
        )
    columns = effect_columns(
        values,
        errors,
        statistics,
        p_values,
        intervals,
        level=level,
        freedom=freedom,
        link=link if check_bool("exponentiate", exponentiate) else None,
    )
    table = Summary(title, (), names, columns, tuple(notes))
    return Comparisons(names, values, errors, p_values, intervals, correction, of_prior, table)


def table_of_tests(title: str, tests: Mapping[str, WaldTest], unknown: tuple[str, ...]) -> Anova:
    """Return the tests of terms with their table."""
    found = list(tests.values())
    freedom = found[0].df_denominator if found else math.inf
    name = "chi2" if math.isinf(freedom) else "F"
    sure = np.zeros(len(found))
    columns = (
        SummaryColumn("df", np.array([float(one.df) for one in found]), "count", sure),
        SummaryColumn(name, np.array([one.statistic for one in found]), "statistic", sure),
        SummaryColumn(f"P>{name}", np.array([one.p_value for one in found]), "probability", sure),
    )
    about = (
        "Wald tests that all effects of a term are zero, given all other terms (type III, for the "
        "coding of the model: with an interaction, a main effect is the effect at the reference "
        "or at zero of the other column). They include sampling error and privacy noise."
    )
    notes = [about]
    if math.isfinite(freedom):
        notes.append(f"The F statistics have {freedom:.4g} degrees of freedom in the denominator.")
    if unknown:
        notes.append(
            f"Not tested are effects that cannot be estimated at this budget: {listed(unknown)}."
        )
    return Anova(dict(tests), Summary(title, (), tuple(tests), columns, tuple(notes)))
