"""Inference for the coefficients of a fit: intervals, tests and summaries."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special
from sklearn.utils.validation import check_array

from dpglm._validation import check_bool, check_real
from dpglm.certificate.certificate import Certificate
from dpglm.data.collection import with_offset
from dpglm.data.prepare import ColumnScaling, Matrix
from dpglm.inference.estimates import Estimates
from dpglm.inference.summary import (
    Kind,
    Summary,
    SummaryColumn,
    SummarySource,
    components,
    facts,
    notes,
    of_intervals,
)
from dpglm.problem import IdentityLink, Link
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import finite_matrix

if TYPE_CHECKING:
    import pandas as pd


@final
@dataclass(frozen=True, eq=False)
class Features:
    """Checks rows against the columns of the fit, and clips them to their declared bounds."""

    n_features: int
    names: tuple[str, ...] | None
    scaling: ColumnScaling | None

    def __call__(self, X: Any) -> Matrix:
        """Return the rows as a matrix of shape (n, n_features)."""
        given = getattr(X, "columns", None)
        if given is not None and self.names not in (None, tuple(map(str, given))):
            raise ValueError(
                f"X must have the columns {list(self.names or ())} in this order, got {list(given)}"
            )
        X, _ = finite_matrix(X, lambda **options: (check_array(X, **options), None))
        if X.shape[1] != self.n_features:
            raise ValueError(f"X must have {self.n_features} columns, got {X.shape[1]}")
        matrix: Matrix = X if self.scaling is None else self.scaling.clip_matrix(X)
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


# Rounding error of a combination that is exactly zero, relative to the norm of its terms.
_ROUNDING = 1e-10


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
class Inference:
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

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients, beginning with the intercept."""
        return self.estimates.names

    @property
    def params(self) -> NDArray[np.float64]:
        """Coefficients of shape (n_coefficients,); NaN if the standard error is infinite."""
        known = np.isfinite(self.standard_errors)
        return np.where(known, self.estimates.params, np.nan)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the coefficients that cannot be estimated at this budget."""
        return tuple(
            name
            for name, error in zip(self.names, self.standard_errors, strict=True)
            if math.isinf(error)
        )

    @property
    def of_prior(self) -> tuple[str, ...]:
        """Names of coefficients with at least two thirds of their prior's standard deviation."""
        return self.estimates.of_prior

    @property
    def beyond_prior(self) -> tuple[str, ...]:
        """Names of the coefficients more than two prior standard deviations from zero."""
        return self.estimates.beyond_prior

    @property
    def variance_components(self) -> Mapping[str, tuple[float, float, float]]:
        """Standard deviations of the effects of pooled factors, with 95 % intervals.

        By name: the most likely value, and the ends of its interval, on the scale of the score.
        """
        return components(self.certificate, self.estimates)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the coefficients, due to sampling and privacy noise."""
        return self.estimates.covariance

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
    def degrees_of_freedom(self) -> float:
        """Degrees of freedom of Student's t distribution; inf for the normal distribution."""
        return self.estimates.degrees_of_freedom

    @property
    def kind(self) -> Literal["model", "robust"]:
        """Whether the covariance assumes that the model is right, or is the sandwich estimate."""
        return self.estimates.kind

    @property
    def dispersion(self) -> float | None:
        """Estimated dispersion of the targets, such as the residual variance of least squares.

        The variance of a target is the dispersion times the variance function of the loss, such as
        the squared mean for a gamma loss. None if the loss fixes it, and for a robust covariance.
        """
        return self.estimates.dispersion

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
        """Return confidence intervals of the coefficients.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level in (0, 1).

        Returns
        -------
        ndarray of shape (n_coefficients, 2)
            Lower and upper ends.
        """
        half = self._critical_value(level) * self.standard_errors
        return np.column_stack([self.estimates.params - half, self.estimates.params + half])

    def wald_test(self, R: ArrayLike | Sequence[str], r: ArrayLike = 0.0) -> WaldTest:
        """Test the hypothesis that ``R @ params`` equals ``r``.

        Parameters
        ----------
        R : array_like of shape (q, n_coefficients) or (n_coefficients,), or sequence of str
            Linear combinations, or names of coefficients that are tested jointly.
        r : float or array_like of shape (q,), default=0.0
            Values of the combinations under the hypothesis.

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
        combinations = self._combinations(R)
        size = len(combinations)
        values = np.asarray(r, dtype=np.float64)
        if values.shape not in ((), (size,)) or not np.isfinite(values).all():
            raise ValueError(f"r must be a finite number, or {size} of them, one for each row of R")
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
        chosen, factors = possible.T / lengths, np.ones(rank)
        if self.estimates.doubt is not None:
            turn, factors = self.estimates.doubt.told_apart(chosen @ combinations, self.covariance)
            chosen, rank = turn @ chosen, len(turn)
        if rank == 0:
            return WaldTest(0.0, 1.0, 0, self.degrees_of_freedom)
        covariance = chosen @ combinations @ self.covariance @ combinations.T @ chosen.T
        free = chosen @ gap / factors
        # Solve with correlations, as variances differ by orders of magnitude.
        deviations = np.sqrt(np.diag(covariance))
        free, correlation = free / deviations, covariance / np.outer(deviations, deviations)
        statistic = float(free @ np.linalg.solve(correlation, free))
        freedom = self.degrees_of_freedom
        if math.isinf(freedom):
            return WaldTest(statistic, float(special.chdtrc(rank, statistic)), rank)
        ratio = statistic / rank
        return WaldTest(ratio, float(special.fdtrc(rank, freedom, ratio)), rank, freedom)

    def prediction_interval(
        self, X: Any, level: float = 0.95, *, offset: Any = None, exposure: Any = None
    ) -> NDArray[np.float64]:
        """Return confidence intervals of the means of the target (not of new targets).

        Parameters
        ----------
        X : array_like, table or sparse matrix of shape (n, n_features)
            Rows, as in ``predict``.
        level : float, default=0.95
            Confidence level in (0, 1).
        offset, exposure : array_like of shape (n,), optional
            Arguments of ``predict``.

        Returns
        -------
        ndarray of shape (n, 2)
            Intervals of the linear score, mapped by the inverse link to the range of means. For
            binary targets, probabilities of the second class.
        """
        scores, errors = self.scores(X)
        half = self._critical_value(level) * errors
        mean = with_offset(self._link().inverse, offset, exposure)
        return np.column_stack([mean(scores - half), mean(scores + half)])

    def summary(self, level: float = 0.95, *, exponentiate: bool = False) -> Summary:
        """Return the table of coefficients, as text and for notebooks.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level in (0, 1).
        exponentiate : bool, default=False
            Whether to show odds ratios or rate ratios instead of coefficients.

        Returns
        -------
        Summary
            Without the levels of pooled factors; it has their standard deviations.

        Raises
        ------
        ValueError
            If the level is out of range, or exponentials are not ratios for the link.
        """
        tail = 0.5 * (1.0 - check_real("level", level, above=0.0, below=1.0))
        letter = "z" if math.isinf(self.degrees_of_freedom) else "t"
        heading, values, ends = "coef", self.estimates.params, self.conf_int(level)
        errors = self.standard_errors
        if check_bool("exponentiate", exponentiate):
            link = self._link()
            if link.exponentiated is None:
                raise ValueError(
                    "exponentiate requires a link whose exponentials are ratios, such as the logit "
                    f"or the log, got {link!r}"
                )
            with np.errstate(over="ignore"):
                heading, values, ends = link.exponentiated, np.exp(values), np.exp(ends)

        known, source = np.isfinite(errors), self.source

        shown = np.flatnonzero(~self.estimates.is_pooled)

        def column(heading: str, values: NDArray[np.float64], kind: Kind) -> SummaryColumn:
            own = errors.copy()
            if exponentiate:
                # The error of an exponential is relative.
                np.multiply(values, errors, out=own, where=known)
            return SummaryColumn(heading, values[shown], kind, own[shown])

        def end(heading: str, values: NDArray[np.float64]) -> SummaryColumn:
            # Ends of unknown coefficients are exact: infinite, or 0 for ratios.
            found = column(heading, values, "estimate")
            return dataclasses.replace(found, errors=np.where(known[shown], found.errors, 0.0))

        return Summary(
            self.certificate.estimator if source is None else source.title,
            facts(self.certificate, self.estimates) if source is None else source.facts,
            tuple(self.names[place] for place in shown),
            (
                column(heading, values, "estimate"),
                *([] if exponentiate else [column("std err", self.standard_errors, "estimate")]),
                column(letter, self.statistics, "statistic"),
                column(f"P>|{letter}|", self.p_values, "probability"),
                end(f"[{tail:.3g}", ends[:, 0]),
                end(f"{1.0 - tail:.5g}]", ends[:, 1]),
                column("noise", self.privacy_shares, "share"),
            ),
            notes(self.certificate, self.estimates, level, of_table=self.of_table)
            if source is None
            else (*of_intervals(self.estimates, level), *source.notes),
        )

    def to_frame(self, level: float = 0.95, *, exponentiate: bool = False) -> pd.DataFrame:
        """Return the table of ``summary`` as a data frame.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level in (0, 1).
        exponentiate : bool, default=False
            See ``summary``.

        Returns
        -------
        pandas.DataFrame
            A row for each coefficient.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        return self.summary(level, exponentiate=exponentiate).to_frame()

    def in_units(self, units: LinearUnits, feature_names: Sequence[str] | None = None) -> Inference:
        """Return the same inference for coefficients in other units.

        Parameters
        ----------
        units : LinearUnits
            Map from the present units, such as ``schema.units``.
        feature_names : sequence of str, optional
            Names of the coefficients without the intercept; by default those of ``units``.

        Returns
        -------
        Inference
            ``prediction_interval`` takes the same rows as before.
        """
        estimates = self.estimates.in_units(units, feature_names)
        return dataclasses.replace(self, estimates=estimates, of_table=True)

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()

    def _critical_value(self, level: float) -> float:
        check_real("level", level, above=0.0, below=1.0)
        return -float(special.stdtrit(self.degrees_of_freedom, 0.5 * (1.0 - level)))

    def _combinations(self, R: Any) -> NDArray[np.float64]:
        """Return the rows of a hypothesis, of shape (q, n_coefficients)."""
        size = len(self.names)
        if isinstance(R, Sequence) and R and all(isinstance(one, str) for one in R):
            named = [R] if isinstance(R, str) else list(R)
            unknown = [one for one in named if one not in self.names]
            if unknown:
                raise ValueError(
                    f"R must name coefficients among {list(self.names)}, got {unknown}"
                )
            return np.eye(size)[[self.names.index(one) for one in named]]
        rows = np.atleast_2d(np.asarray(R, dtype=np.float64))
        if rows.ndim != 2 or rows.shape[1] != size or not np.isfinite(rows).all():
            raise ValueError(f"R must be finite with shape (q, {size}), got shape {rows.shape}")
        return rows

    def _link(self) -> Link:
        link = IdentityLink() if self.source else self.certificate.problem.loss.link
        assert link is not None
        return link
