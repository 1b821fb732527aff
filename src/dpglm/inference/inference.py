"""Inference for the coefficients of a fit: intervals, tests and summaries."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special
from sklearn.utils.validation import check_array

from dpglm._calls import checked
from dpglm._validation import check_bool, in_one_line
from dpglm.certificate.certificate import Certificate
from dpglm.data.collection import with_offset
from dpglm.data.prepare import Matrix
from dpglm.inference.comparisons import (
    Anova,
    Comparisons,
    Correction,
    NamedEstimates,
    WaldTest,
    compared,
    table_of_tests,
)
from dpglm.inference.effects import HasEffects
from dpglm.inference.estimates import Estimates
from dpglm.inference.summary import (
    Summary,
    SummarySource,
    components,
    effect_columns,
    facts,
    notes,
    of_intervals,
)
from dpglm.tables.encoding import ColumnScaling, LinearUnits, NamedTerm
from dpglm.tables.given import finite_matrix

if TYPE_CHECKING:
    import pandas as pd


def checked_features(
    n_features: int, names: tuple[str, ...] | None, scaling: ColumnScaling | None, X: Any
) -> Matrix:
    """Check rows against the columns of the fit, and clip them to their declared bounds."""
    given = getattr(X, "columns", None)
    if given is not None and names not in (None, tuple(map(str, given))):
        raise ValueError(
            f"X must have the columns {list(names or ())} in this order, got {list(given)}"
        )
    X, _ = finite_matrix(X, lambda **options: (check_array(X, **options), None))
    if X.shape[1] != n_features:
        raise ValueError(f"X must have {n_features} columns, got {X.shape[1]}")
    matrix: Matrix = X if scaling is None else scaling.clip_matrix(X)
    return matrix


@final
@dataclass(frozen=True, eq=False)
class LinearScores:
    """Linear scores of rows, and their standard errors.

    ``features`` converts rows to the matrix of the coefficients in ``estimates``, without the
    column of the intercept.
    """

    features: Callable[[Any], Matrix]
    estimates: Estimates

    def __call__(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return scores and their standard errors, both of shape (n,)."""
        features, first = self.features(X), int(self.estimates.has_intercept)

        def quadratic(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
            # With intercept a: (a, a) + x (2 (a, b) + (b, b) x).
            crossed = matrix[:first, first:].sum(axis=0)
            spread = np.asarray(features @ matrix[first:, first:] + 2.0 * crossed)
            if isinstance(features, sparse.csr_array):
                of_features = np.asarray(features.multiply(spread).sum(axis=1)).ravel()
            else:
                of_features = np.einsum("ij,ij->i", features, spread)
            found: NDArray[np.float64] = matrix[:first, :first].sum() + of_features
            return found

        params = self.estimates.params
        scores = np.asarray(features @ params[first:]) + params[:first].sum()
        return scores, self.estimates.standard_errors(quadratic)


def _of_estimates(name: str, doc: str) -> Any:
    """Return a property: an attribute of the estimates."""
    return property(lambda found: getattr(found.estimates, name), doc=doc)


# Rounding error of a combination that is exactly zero, relative to the norm of its terms.
_ROUNDING = 1e-10


@final
@dataclass(frozen=True, eq=False, repr=False)
class Inference(HasEffects):
    """Standard errors, confidence intervals and tests of the coefficients of a fitted model.

    All of them include sampling error and privacy noise, and are in the units of the columns.

    Parameters
    ----------
    estimates : Estimates
        Coefficients and both parts of their covariance.
    certificate : Certificate
        Certificate of the fit.
    scores : LinearScores
        Returns linear scores of rows, as in ``predict``, and their standard errors.
    of_table : bool, default=False
        Whether units are those of an encoded table, and not of the columns of the fit.
    source : SummarySource, optional
        Title, facts and notes of the summary, for estimates that are not those of a fit.

    Notes
    -----
    Privacy: post-processing of the releases in ``certificate``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20000, 2))
    >>> y = X @ [2.0, -1.0] + rng.logistic(size=20000) > 0
    >>> inference = (
    ...     LogisticRegression(inference=True, classes=[False, True], feature_bounds=(-1, 1))
    ...     .fit(X, y)
    ...     .inference_
    ... )
    >>> inference.names
    ('intercept', 'x0', 'x1')
    >>> inference.conf_int().shape
    (3, 2)
    >>> inference.wald_test(["x0", "x1"]).p_value < 0.001
    True
    """

    estimates: Estimates
    certificate: Certificate
    scores: LinearScores
    of_table: bool = False
    source: SummarySource | None = None

    @property
    def of_features(self) -> Inference:
        """The same inference in the units of the columns of the fit."""
        return dataclasses.replace(self, estimates=self.scores.estimates, of_table=False)

    names = _of_estimates("names", "Names of the coefficients, beginning with the intercept.")
    unknown = _of_estimates(
        "unknown", "Names of the coefficients that cannot be estimated at this budget."
    )
    of_prior = _of_estimates(
        "of_prior", "Names of coefficients with at least two thirds of their prior's deviation."
    )
    beyond_prior = _of_estimates(
        "beyond_prior", "Names of the coefficients more than two prior deviations from zero."
    )
    covariance = _of_estimates(
        "covariance", "Covariance of the coefficients, due to sampling and privacy noise."
    )
    degrees_of_freedom = _of_estimates(
        "degrees_of_freedom", "Those of Student's t distribution; inf for the normal distribution."
    )
    kind = _of_estimates(
        "kind", '"model" if the covariance assumes that the model is right, or "robust".'
    )
    dispersion = _of_estimates(
        "dispersion",
        """Estimated dispersion of the targets, such as the residual variance of least squares.

        The variance of a target is the dispersion times the variance function of the loss, such as
        the squared mean for a gamma loss. None if the loss fixes it, and for a robust covariance.
        """,
    )

    @property
    def params(self) -> NDArray[np.float64]:
        """Coefficients of shape (n_coefficients,); NaN if the standard error is infinite."""
        known = np.isfinite(self.standard_errors)
        return np.where(known, self.estimates.params, np.nan)

    @functools.cached_property
    def named(self) -> NamedEstimates:
        """The coefficients by name, with the terms of the schema of the fit."""
        slopes = self.names[int(self.estimates.has_intercept) :]
        _, terms = self._design
        if {name for one in terms for name in one.coefficients} == {*slopes}:
            return NamedEstimates(self.names, {one.name: one for one in terms})
        return NamedEstimates(self.names, {name: NamedTerm(name, (name,), ()) for name in slopes})

    @property
    def target(self) -> str:
        """Name of the target; "" if it is unknown."""
        if self.source is not None:
            return self.source.target
        fact = self.certificate.fact("schema")
        return "" if fact is None else str(fact.value.get("target", {}).get("name", ""))

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of the terms: columns, or terms of the formula; coefficients without a schema."""
        return tuple(self.named.terms)

    @property
    def variance_components(self) -> Mapping[str, tuple[float, float, float]]:
        """Standard deviations of the effects of pooled factors, with 95 % intervals.

        By name: the most likely value, and the ends of its interval, on the scale of the score.
        """
        return components(self.certificate, self.estimates)

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """Standard errors of the coefficients, of shape (n_coefficients,).

        Infinite for coefficients that cannot be estimated at this budget.
        """
        return self.estimates.standard_errors()

    @property
    def privacy_shares(self) -> NDArray[np.float64]:
        """Share of each squared standard error that is due to privacy noise, in [0, 1]."""
        squares = self.standard_errors**2
        sampling = np.diag(self.estimates.sampling)
        shares = 1.0 - sampling / np.where(squares > 0.0, squares, np.inf)
        return np.asarray(np.where(squares > 0.0, shares, 0.0), dtype=np.float64)

    @property
    def statistics(self) -> NDArray[np.float64]:
        """Ratios of coefficients to standard errors: z or t statistics."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.estimates.params / self.standard_errors

    @property
    def p_values(self) -> NDArray[np.float64]:
        """Two-sided p-values of the hypotheses that single coefficients are zero."""
        tail = special.stdtr(self.degrees_of_freedom, -np.abs(self.statistics))
        both: NDArray[np.float64] = np.asarray(2.0 * tail, dtype=np.float64)
        return both

    def conf_int(self, level: float = 0.95) -> NDArray[np.float64]:
        """Return intervals of a confidence level in (0, 1), of shape (n_coefficients, 2)."""
        half = self._critical(level) * self.standard_errors
        return np.column_stack([self.estimates.params - half, self.estimates.params + half])

    def wald_test(self, R: ArrayLike | str | Sequence[str], r: ArrayLike = 0.0) -> WaldTest:
        """Test a linear hypothesis: ``R @ params`` equals ``r``.

        Parameters
        ----------
        R : str, sequence of str, or array_like of shape (q, n_coefficients) or (n_coefficients,)
            A term such as ``"C(ward)"`` (all its effects are zero), an equation such as
            ``"a + b = 0"`` or ``"a = b = c"``, several of them (a list, or with commas between
            them), or linear combinations. Terms and coefficients have their names in ``terms`` and
            ``names``, in backquotes if you like.
        r : float or array_like of shape (q,), default=0.0
            Values of the combinations under the hypothesis, besides those in text.

        Returns
        -------
        WaldTest
            A chi-square test, or an F test if degrees of freedom are finite. ``df`` counts the
            linearly independent restrictions with finite standard errors; the p-value is 1 without
            any.

        Raises
        ------
        ValueError
            If shapes or names do not match, or if the hypothesis holds for none or for all of the
            coefficients that a fit can have.

        Notes
        -----
        Coefficients are a constant plus ``basis @ f`` for free f and a public ``basis``. Effects of
        K categories against their mean add up to zero and have a basis of rank K - 1. Let the
        columns of an orthonormal U span the range of ``R @ basis``. The hypothesis is that
        ``U.T @ (R @ params - r)`` is zero, and the covariance of these combinations is not
        singular. Their Wald statistic is ``gap @ pinv(R @ covariance @ R.T) @ gap``, which does not
        depend on U or on the form of the hypothesis. For example, all effects against the mean are
        zero if and only if all differences from a reference category are zero, and both tests have
        the same p-value. The rank follows from R and public facts, not from the covariance, where
        rounding would decide it.
        """
        combinations, stated = self._combinations(R)
        size = len(combinations)
        values = _numbers("r", r)
        if values.shape not in ((), (size,)) or not np.isfinite(values).all():
            raise ValueError(f"r must be a finite number, or {size} of them, one for each row of R")
        values = values + stated
        gap = combinations @ self.estimates.params - values
        # Scale rows by the norm of their terms, as units differ by orders of magnitude.
        basis, parts = self.estimates.basis, np.abs(combinations)
        lengths = np.linalg.norm(parts @ np.abs(basis), axis=1)
        lengths[lengths == 0.0] = 1.0
        left, singular, _ = np.linalg.svd(combinations @ basis / lengths[:, np.newaxis])
        rank = int((singular > _ROUNDING).sum())
        possible, impossible = left[:, :rank], left[:, rank:]
        uncertain = parts @ np.abs(self.estimates.params) + np.abs(values)
        unmet = np.abs(impossible.T @ (gap / lengths))
        if (unmet > np.sqrt(_ROUNDING) * (np.abs(impossible.T) @ (uncertain / lengths))).any():
            raise ValueError(
                "R and r must be consistent, but linearly dependent rows of R have contradictory "
                "values in r"
            )
        if rank == 0:
            raise ValueError("R must restrict coefficients, but R @ params is the same in all fits")
        if not self.estimates.is_known:
            return WaldTest(0.0, 1.0, 0, self.degrees_of_freedom)
        chosen = possible.T / lengths
        covariance = chosen @ combinations @ self.covariance @ combinations.T @ chosen.T
        free = chosen @ gap
        # Solve with correlations, as variances differ by orders of magnitude.
        deviations = np.sqrt(np.diag(covariance))
        free, correlation = free / deviations, covariance / np.outer(deviations, deviations)
        statistic = float(free @ np.linalg.solve(correlation, free))
        freedom = self.degrees_of_freedom
        if math.isinf(freedom):
            return WaldTest(statistic, float(special.chdtrc(rank, statistic)), rank)
        ratio = statistic / rank
        return WaldTest(ratio, float(special.fdtrc(rank, freedom, ratio)), rank, freedom)

    def anova(self) -> Anova:
        """Test each term of the model, given all other terms.

        The result is a mapping from terms to Wald tests; its text is a table of them. Random
        intercepts have no such test, as their estimates are shrunk: see ``variance_components``.
        """
        tests, each = {}, np.eye(len(self.names))
        for name, term in self.named.terms.items():
            if name not in self.variance_components:
                tests[name] = self.wald_test(each[list(map(self.names.index, term.coefficients))])
        return table_of_tests(f"{self.title}: terms", tests, self.unknown)

    def contrast(
        self,
        weights: Any,
        *,
        correction: Correction = "simultaneous",
        level: float = 0.95,
        exponentiate: bool = False,
    ) -> Comparisons:
        """Estimate linear combinations of effects.

        Parameters
        ----------
        weights : mapping, str, or list of them
            Weights by term or coefficient. Those of a categorical term are for its categories in
            order, or a mapping from categories, and sum to zero: ``{"C(dose)": [-1, 0, 1]}``,
            ``{"C(dose)": {"high": 1, "low": -1}}``. Text is an expression: ``"a - b"``.
        correction : {"simultaneous", "holm", "bonferroni", "none"}, default="simultaneous"
            Correction if there are several contrasts.
        level : float, default=0.95
            Confidence level in (0, 1), for all intervals together unless the correction is "none".
        exponentiate : bool, default=False
            Whether the table shows odds ratios or rate ratios.

        Raises
        ------
        ValueError
            If a name is unknown, weights do not fit, or an argument is out of range.
        """
        listed = weights if isinstance(weights, list | tuple) else [weights]
        found = [self.named.contrast(one) for one in listed]
        if not found:
            raise ValueError("weights must be of one contrast at least, got none")
        names, rows = zip(*found, strict=True)
        return compared(self, "contrasts", names, rows, correction, level, exponentiate)

    @checked
    def pairwise(
        self,
        term: str,
        *,
        correction: Correction = "simultaneous",
        level: float = 0.95,
        exponentiate: bool = False,
    ) -> Comparisons:
        """Compare all pairs of categories of a term in ``terms``; options are as in ``contrast``.

        References
        ----------
        .. [1] T. Hothorn, F. Bretz, P. Westfall, "Simultaneous inference in general parametric
           models", Biometrical Journal 50 (2008).
        """
        both = list(itertools.combinations(zip(*self.named.levels(term), strict=True), 2))
        names = tuple(f"{later} - {earlier}" for (earlier, _), (later, _) in both)
        rows = [later - earlier for (_, earlier), (_, later) in both]
        options = correction, level, exponentiate
        return compared(self, f"pairs of {term}", names, rows, *options)

    def prediction_interval(
        self, X: Any, level: float = 0.95, *, offset: Any = None, exposure: Any = None
    ) -> NDArray[np.float64]:
        """Return confidence intervals of the means of the target (not of new targets).

        Intervals, of shape (n, 2), are those of the linear score, mapped by the inverse link to the
        range of means: for binary targets, probabilities of the second class.

        Parameters
        ----------
        X, offset, exposure
            Rows of shape (n, n_features), and arguments of ``predict``.
        level : float, default=0.95
            Confidence level in (0, 1).
        """
        scores, errors = self.scores(X)
        half = self._critical(level) * errors
        mean = with_offset(self.link.inverse, offset, exposure)
        return np.column_stack([mean(scores - half), mean(scores + half)])

    def summary(self, level: float = 0.95, *, exponentiate: bool = False) -> Summary:
        """Return the table of coefficients, as text and for notebooks.

        It has standard deviations in place of the levels of pooled factors.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level in (0, 1).
        exponentiate : bool, default=False
            Whether to show odds ratios or rate ratios instead of coefficients; a ValueError if
            exponentials are not ratios for the link.
        """
        shown = np.flatnonzero(~self.estimates.is_pooled)
        columns = effect_columns(
            self.estimates.params[shown],
            self.standard_errors[shown],
            self.statistics[shown],
            self.p_values[shown],
            self.conf_int(level)[shown],
            level=level,
            freedom=self.degrees_of_freedom,
            link=self.link if check_bool("exponentiate", exponentiate) else None,
            shares=self.privacy_shares[shown],
        )
        source = self.source
        return Summary(
            f"{self.title}: coefficients",
            facts(self.certificate, self.estimates) if source is None else source.facts,
            tuple(self.names[place] for place in shown),
            columns,
            notes(self.certificate, self.estimates, level, of_table=self.of_table)
            if source is None
            else (*of_intervals(self.estimates, level), *source.notes),
        )

    def to_frame(self, level: float = 0.95, *, exponentiate: bool = False) -> pd.DataFrame:
        """Return the table of ``summary`` as a data frame; an ImportError without pandas."""
        return self.summary(level, exponentiate=exponentiate).to_frame()

    @checked
    def in_units(self, units: LinearUnits, feature_names: Sequence[str] | None = None) -> Inference:
        """Return the same inference for coefficients in other units, as ``Estimates.in_units``.

        ``prediction_interval`` takes the same rows as before.
        """
        estimates = self.estimates.in_units(units, feature_names)
        return dataclasses.replace(self, estimates=estimates, of_table=True)

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _combinations(self, R: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the rows of a hypothesis, of shape (q, n_coefficients), and values in text."""
        size = len(self.names)
        if isinstance(R, Sequence) and R and all(isinstance(one, str) for one in R):
            read = [self.named.hypothesis(one) for one in ([R] if isinstance(R, str) else R)]
            return np.vstack([rows for rows, _ in read]), np.concatenate([one for _, one in read])
        rows = np.atleast_2d(_numbers("R", R))
        if rows.ndim != 2 or rows.shape[1] != size or not np.isfinite(rows).all():
            raise ValueError(f"R must be finite with shape (q, {size}), got shape {rows.shape}")
        return rows, np.zeros(len(rows))


def _numbers(name: str, value: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be numbers, got {in_one_line(value)}") from None
