"""What a fit says about its coefficients: intervals, tests, and the table of both."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
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
from dpglm.inference.summary import Column, Kind, Summary, facts, notes
from dpglm.problem import Link
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.given import finite_matrix

if TYPE_CHECKING:
    import pandas as pd


# Linear scores of the user's rows, with their standard errors.


@final
@dataclass(frozen=True, eq=False)
class Features:
    """Checks rows against the columns of the fit, and clips them to their declared bounds.

    ``names`` are those that the fit saw, if it saw any.
    """

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
    """Scores of rows and their standard errors.

    ``features`` turns the user's rows into the matrix that ``estimates`` are about, without the
    intercept's column.
    """

    features: Callable[[Any], Matrix]
    estimates: Estimates

    def __call__(self, X: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return scores and their standard errors, both of shape (n,)."""
        features, first = self.features(X), int(self.estimates.has_intercept)

        def quadratic(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
            # With an intercept a it is that of a, plus x (2 (a, b) + (b, b) x).
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


# What rounding may leave of a combination that is zero, of rows of length 1 before they cancel.
_ROUNDING = 1e-10


@final
@dataclass(frozen=True)
class WaldTest:
    """Result of a Wald test.

    Parameters
    ----------
    statistic : float
        The chi-square statistic, or with finite ``df_denominator`` that of the F test.
    p_value : float
        Probability of at least this statistic under the hypothesis.
    df : int
        Number of restrictions that do not follow from the others.
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
    """Standard errors, confidence intervals and tests of a fitted model's coefficients.

    Everything counts the sampling of rows and the noise of privacy together, and is in the units
    of the user's columns.

    Parameters
    ----------
    estimates : Estimates
        Coefficients and both parts of their covariance.
    certificate : Certificate
        Of the fit that released them.
    scores : LinearScores
        Returns linear scores of rows, as ``predict`` takes them, and their standard errors.
    of_table : bool, default=False
        Whether units are those of a table that was encoded, and not of the columns of the fit.

    Notes
    -----
    Privacy: post-processing of what ``certificate`` lists; nothing here asks the rows again.

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

    @property
    def of_features(self) -> Inference:
        """The same about the columns of the fit, whatever table they were made of."""
        return Inference(self.scores.estimates, self.certificate, self.scores)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients, the intercept's first."""
        return self.estimates.names

    @property
    def params(self) -> NDArray[np.float64]:
        """Coefficients, of shape (n_coefficients,); NaN where the standard error is infinite."""
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
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the coefficients, of sampling and noise together."""
        return self.estimates.covariance

    @property
    def standard_errors(self) -> NDArray[np.float64]:
        """Standard errors of the coefficients, of shape (n_coefficients,).

        Infinite where noise hides whether the rows say anything about a coefficient.
        """
        return self.estimates.standard_errors()

    @property
    def privacy_shares(self) -> NDArray[np.float64]:
        """Share of each coefficient's squared standard error that is due to noise, in [0, 1]."""
        squares = self.standard_errors**2
        sampling = np.diag(self.estimates.sampling)
        shares = 1.0 - sampling / np.where(squares > 0.0, squares, np.inf)
        return np.asarray(np.where(squares > 0.0, shares, 0.0), dtype=np.float64)

    @property
    def degrees_of_freedom(self) -> float:
        """Those of Student's t distribution that critical values come from; inf: normal."""
        return self.estimates.degrees_of_freedom

    @property
    def kind(self) -> Literal["model", "robust"]:
        """Whether the covariance assumes that the model is right, or is the sandwich."""
        return self.estimates.kind

    @property
    def dispersion(self) -> float | None:
        """Dispersion of the targets where it was estimated: of squared errors their variance.

        The variance of a target is this times what the loss says: times the square of the mean for
        a gamma loss. None where the loss knows it, and for a robust covariance.
        """
        return self.estimates.dispersion

    @property
    def statistics(self) -> NDArray[np.float64]:
        """Coefficients over their standard errors: z statistics, or t with few degrees."""
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
            Probability with which an interval covers, in (0, 1).

        Returns
        -------
        ndarray of shape (n_coefficients, 2)
            Lower and upper ends.
        """
        return _intervals(self.estimates.params, self._critical_value(level) * self.standard_errors)

    def wald_test(self, R: ArrayLike | Sequence[str], r: ArrayLike = 0.0) -> WaldTest:
        """Test the hypothesis that ``R @ params`` equals ``r``.

        Parameters
        ----------
        R : array_like of shape (q, n_coefficients) or (n_coefficients,), or sequence of str
            Linear combinations, or names of coefficients that are tested jointly.
        r : float or array_like of shape (q,), default=0.0
            Their values under the hypothesis.

        Returns
        -------
        WaldTest
            By chi-square, or by F where degrees of freedom are finite. ``df`` is the number of
            restrictions that do not follow from the others, without those of combinations whose
            standard error is infinite; a p-value of 1 if there are no others.

        Raises
        ------
        ValueError
            If shapes or names do not fit, or no coefficients that a fit can have meet the
            hypothesis, or all of them do.

        Notes
        -----
        Coefficients are ``basis @ f`` plus a constant, where ``f`` is free and ``basis`` is public:
        effects of K categories against their mean, which add up to zero, have one of rank K - 1.
        With an orthonormal U whose columns span the range of ``R @ basis``, the hypothesis says
        that ``U.T @ (R @ params - r)`` is zero, and these are as many combinations as the rank is,
        with a covariance that is not singular. The statistic is that of Wald for them. It is
        ``gap @ pinv(R @ covariance @ R.T) @ gap``, whose value does not depend on U, nor on how
        the same hypothesis is put: all effects against the mean are zero if and only if all
        differences from a reference category are, and both have one p-value. The rank follows
        from R and public facts, not from the covariance, where rounding would decide.
        """
        combinations = self._combinations(R)
        size = len(combinations)
        values = np.asarray(r, dtype=np.float64)
        if values.shape not in ((), (size,)) or not np.isfinite(values).all():
            raise ValueError(f"r must be a finite number, or {size} of them, one for each row of R")
        gap = combinations @ self.estimates.params - values
        # Rows by what they are made of, as units differ by orders of magnitude.
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
                "R and r must be a hypothesis that coefficients can meet, but rows of R @ params "
                "that depend on each other have values in r that contradict each other"
            )
        if rank == 0:
            raise ValueError(
                "R must restrict coefficients, but R @ params is what it is in any fit"
            )
        chosen, factors = possible.T / lengths, np.ones(rank)
        if self.estimates.doubt is not None:
            turn, factors = self.estimates.doubt.told_apart(chosen @ combinations, self.covariance)
            chosen, rank = turn @ chosen, len(turn)
        if rank == 0:
            return WaldTest(0.0, 1.0, 0, self.degrees_of_freedom)
        covariance = chosen @ combinations @ self.covariance @ combinations.T @ chosen.T
        free = chosen @ gap / factors
        # Judged as correlations: variances differ by orders of magnitude.
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
            Rows, as ``predict`` takes them.
        level : float, default=0.95
            Probability with which an interval covers, in (0, 1).
        offset, exposure : array_like of shape (n,), optional
            As for ``predict``.

        Returns
        -------
        ndarray of shape (n, 2)
            Intervals of the linear score, mapped by the inverse of the link: they stay within
            the range of means. For binary targets, probabilities of the second class.
        """
        scores, errors = self.scores(X)
        half = self._critical_value(level) * errors
        mean = with_offset(self._link().inverse, offset, exposure)
        return np.column_stack([mean(scores - half), mean(scores + half)])

    def summary(self, level: float = 0.95, *, exponentiate: bool = False) -> Summary:
        """Return the table of coefficients, which prints as text and shows in notebooks.

        Parameters
        ----------
        level : float, default=0.95
            Level of the confidence intervals, in (0, 1).
        exponentiate : bool, default=False
            Whether to show odds ratios or rate ratios, with intervals, instead of coefficients.

        Returns
        -------
        Summary

        Raises
        ------
        ValueError
            If the level is out of range, or the link gives exponentials no meaning.
        """
        tail = 0.5 * (1.0 - check_real("level", level, above=0.0, below=1.0))
        letter = "z" if math.isinf(self.degrees_of_freedom) else "t"
        heading, values, ends = "coef", self.estimates.params, self.conf_int(level)
        errors = self.standard_errors
        if check_bool("exponentiate", exponentiate):
            link = self._link()
            if link.exponentiated is None:
                raise ValueError(
                    "exponentiate needs a link whose exponentials are ratios, such as the logit "
                    f"or the log, got {link!r}"
                )
            with np.errstate(over="ignore"):
                heading, values, ends = link.exponentiated, np.exp(values), np.exp(ends)

        known = np.isfinite(errors)

        def column(heading: str, values: NDArray[np.float64], kind: Kind) -> Column:
            own = errors.copy()
            if exponentiate:
                # The error of an exponential is a share of it.
                np.multiply(values, errors, out=own, where=known)
            return Column(heading, values, kind, own)

        def end(heading: str, values: NDArray[np.float64]) -> Column:
            # Infinite, or 0 of ratios, where nothing is known: that is exact.
            found = column(heading, values, "estimate")
            return dataclasses.replace(found, errors=np.where(known, found.errors, 0.0))

        return Summary(
            self.certificate.estimator,
            facts(self.certificate, self.estimates),
            self.names,
            (
                column(heading, values, "estimate"),
                *([] if exponentiate else [column("std err", self.standard_errors, "estimate")]),
                column(letter, self.statistics, "statistic"),
                column(f"P>|{letter}|", self.p_values, "probability"),
                end(f"[{tail:.3g}", ends[:, 0]),
                end(f"{1.0 - tail:.5g}]", ends[:, 1]),
                column("noise", self.privacy_shares, "share"),
            ),
            notes(self.certificate, self.estimates, level, of_table=self.of_table),
        )

    def to_frame(self, level: float = 0.95, *, exponentiate: bool = False) -> pd.DataFrame:
        """Return the table of ``summary`` as a data frame.

        Parameters
        ----------
        level : float, default=0.95
            Level of the confidence intervals, in (0, 1).
        exponentiate : bool, default=False
            As for ``summary``.

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
        """Return the same inference about coefficients in other units.

        Parameters
        ----------
        units : LinearUnits
            From the present units, such as ``schema.units``.
        feature_names : sequence of str, optional
            Names of the coefficients without the intercept; by default those of ``units``.

        Returns
        -------
        Inference
            ``prediction_interval`` takes the same rows as before.
        """
        estimates = self.estimates.in_units(units, feature_names)
        return Inference(estimates, self.certificate, self.scores, of_table=True)

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
        link = self.certificate.problem.loss.link
        assert link is not None
        return link


def _intervals(middle: NDArray[Any], half: NDArray[Any]) -> NDArray[np.float64]:
    return np.column_stack([middle - half, middle + half])
