"""Estimates with their covariance, in the units of a table."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dpglm._calls import checked
from dpglm._codec import Matrix, Text, Vector
from dpglm.certificate.certificate import Certificate
from dpglm.data.rows import DataSpec
from dpglm.problem import Problem, Target
from dpglm.solvers.uncertainty import (
    Binding,
    Covariance,
    Uncertainty,
    VarianceComponent,
    check_normal,
)
from dpglm.tables.encoding import LinearUnits

INTERCEPT = "intercept"
"""Name of the first coefficient of a model with an intercept."""


Quadratic: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Quadratic forms of a matrix."""
# Share of the prior's variance; prior standard deviations. Chosen by
# ``python -m experiments.adult_coverage``.
_MOSTLY, _BEYOND = (2.0 / 3.0) ** 2, 2.0


def quadratic_of(rows: NDArray[np.float64]) -> Quadratic:
    """Return the quadratic forms for the rows of a matrix."""
    return lambda matrix: np.asarray(np.einsum("ij,ij->i", rows @ matrix, rows))


@checked
@final
@dataclass(frozen=True, eq=False)
class Estimates:
    """Coefficients with both parts of their covariance, in the units of the user's columns.

    Parameters
    ----------
    names : tuple of str
        Names of the coefficients, beginning with the intercept if there is one.
    params : ndarray of shape (n_coefficients,)
        The coefficients.
    sampling, privacy : ndarray of shape (n_coefficients, n_coefficients)
        Parts of their covariance due to the sampling of rows, and to privacy noise.
    basis : ndarray of shape (n_coefficients, n_free)
        Public: every fit has coefficients in a constant plus the range of this matrix. If its rank
        is less than ``n_coefficients``, coefficients are linearly dependent, such as effects of
        categories against their mean, which add up to zero.
    has_intercept : bool
        Whether the first coefficient is the intercept.
    degrees_of_freedom : float, default=inf
        Degrees of freedom of Student's t distribution for critical values.
    kind : {"model", "robust"}, default="model"
        Whether the sampling part assumes that the model is right.
    dispersion : float, optional
        Estimated dispersion of the targets: the ratio of their variance to that of the loss, such
        as the residual variance of least squares.
    binding : Binding, optional
        Released shares of the rows that clipping affects.
    prior : ndarray of shape (n_coefficients, n_coefficients), optional
        Covariance of the coefficients' prior, if there is one.
    components : tuple of VarianceComponent, default=()
        Scales of pooled factors.
    is_known : bool, default=True
        False if arithmetic overflowed, which makes all standard errors infinite.

    Raises
    ------
    ValueError
        If shapes do not match, or a number is not finite.

    Notes
    -----
    Privacy: computed from released values.
    """

    names: tuple[Text, ...]
    params: Vector
    sampling: Matrix
    privacy: Matrix
    basis: Matrix
    has_intercept: bool
    degrees_of_freedom: float = math.inf
    kind: Covariance = "model"
    dispersion: float | None = None
    binding: Binding | None = None
    prior: Matrix | None = None
    components: tuple[VarianceComponent, ...] = ()
    is_known: bool = True

    def __post_init__(self) -> None:
        size = len(self.names)
        matrices = [self.sampling, self.privacy]
        if self.prior is not None:
            matrices.append(self.prior)
        shapes = [self.params.shape, *(one.shape for one in matrices)]
        if shapes != [(size,), *[(size, size)] * len(matrices)]:
            raise ValueError(f"{size} names do not fit estimates of the shapes {shapes}")
        if len(self.basis) != size:
            raise ValueError(f"{size} names do not fit a basis of the shape {self.basis.shape}")
        if not all(np.isfinite(one).all() for one in (self.params, self.basis, *matrices)):
            raise ValueError("estimates and their covariance must be finite")
        if not self.degrees_of_freedom > 0.0:
            raise ValueError(f"degrees_of_freedom must be above 0, got {self.degrees_of_freedom!r}")

    @classmethod
    def of(
        cls,
        uncertainty: Uncertainty,
        units: LinearUnits,
        feature_names: Sequence[str],
        basis: NDArray[np.float64] | None = None,
    ) -> Estimates:
        """Convert the estimate and covariance of a solver to other units, intercept first.

        Parameters
        ----------
        uncertainty : Uncertainty
            Estimate and covariance with the intercept last.
        units : LinearUnits
            Map from its coordinates.
        feature_names : sequence of str
            Names of the coefficients without the intercept.
        basis : ndarray of shape (n_coordinates, n_free), optional
            ``basis`` of the result, for its coordinates; by default all of them are free.
        """
        n_features = len(feature_names)
        has_intercept = bool(units.matrix[[-1]].nnz)
        order = np.arange(n_features)
        if has_intercept:
            order = np.append(n_features, order)

        def mapped(covariance: NDArray[np.float64]) -> NDArray[np.float64]:
            full = units.covariance(covariance)[np.ix_(order, order)]
            return np.asarray(0.5 * (full + full.T))

        names = (*([INTERCEPT] if has_intercept else []), *map(str, feature_names))
        basis = np.eye(len(uncertainty.center)) if basis is None else basis
        free = np.asarray(units.matrix @ basis)[order]
        with np.errstate(all="ignore"):
            params = units.coefficients(uncertainty.center)[order]
            sampling, privacy = mapped(uncertainty.sampling), mapped(uncertainty.privacy)
            prior = None if uncertainty.prior is None else mapped(uncertainty.prior)
        every = [params, sampling, privacy, *(() if prior is None else (prior,))]
        binding = uncertainty.binding
        if binding is not None and len(binding.columns) == units.matrix.shape[1] - 1:
            # Each coefficient counts the column that it depends on most.
            own = np.abs(units.matrix[:n_features, :-1].toarray()).argmax(axis=1)
            columns = tuple(binding.columns[place] for place in own)
            binding = dataclasses.replace(binding, columns=columns)
        kind, freedom, dispersion = uncertainty.kind, uncertainty.degrees_of_freedom, None
        if uncertainty.dispersion is not None and math.isfinite(uncertainty.dispersion):
            dispersion = uncertainty.dispersion
        is_known = all(np.isfinite(one).all() for one in every)
        if not is_known:
            one, none = np.eye(len(names)), np.zeros((len(names),) * 2)
            params, sampling, privacy = np.where(np.isfinite(params), params, 0.0), one, none
            freedom, dispersion, prior = math.inf, None, None
        return cls(
            names,
            params,
            sampling,
            privacy,
            free,
            has_intercept,
            freedom,
            kind,
            dispersion,
            binding,
            prior,
            uncertainty.components,
            is_known,
        )

    def in_units(self, units: LinearUnits, feature_names: Sequence[str] | None = None) -> Estimates:
        """Convert estimates to other units, such as those of the encoded table.

        Parameters
        ----------
        units : LinearUnits
            Map from the units of these estimates.
        feature_names : sequence of str, optional
            Names of the coefficients; by default those of ``units``, or else the present ones.
        """
        first = int(self.has_intercept)
        names = feature_names or units.names or self.names[first:]
        if not self.has_intercept:
            # The intercept is fixed at zero.
            units = dataclasses.replace(units, matrix=units.matrix[:, :-1])
        order = np.roll(np.arange(len(self.names)), -first)
        square = np.ix_(order, order)
        uncertainty = Uncertainty(
            self.params[order],
            self.sampling[square],
            self.privacy[square],
            self.degrees_of_freedom,
            self.kind,
            self.dispersion,
            self.binding,
            None if self.prior is None else self.prior[square],
            self.components,
        )
        found = Estimates.of(uncertainty, units, names, self.basis[order])
        return dataclasses.replace(found, is_known=self.is_known and found.is_known)

    def renamed(self, feature_names: Sequence[str]) -> Estimates:
        """Return the same estimates with other names of the coefficients besides the intercept."""
        first = self.names[: int(self.has_intercept)]
        return dataclasses.replace(self, names=(*first, *map(str, feature_names)))

    @property
    def is_pooled(self) -> NDArray[np.bool_]:
        """Whether each coefficient is that of a level of a pooled factor."""
        found = np.zeros(len(self.names), dtype=bool)
        for one in self.components:
            found[one.start + self.has_intercept : one.stop + self.has_intercept] = True
        return found

    def _names(self, chosen: NDArray[np.bool_]) -> tuple[str, ...]:
        return tuple(name for name, is_so in zip(self.names, chosen, strict=True) if is_so)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Names of the coefficients that cannot be estimated at this budget."""
        return self._names(np.isinf(self.standard_errors()))

    @property
    def of_prior(self) -> tuple[str, ...]:
        """Names of coefficients with at least two thirds of their prior's standard deviation."""
        return self._names(self.is_of_prior())

    def is_of_prior(self, quadratic: Quadratic = np.diag) -> NDArray[np.bool_]:
        """Return whether combinations have at least two thirds of their prior's deviation."""
        variances = quadratic(self.covariance)
        if self.prior is None:
            return np.zeros(len(variances), dtype=np.bool_)
        return np.asarray(variances >= _MOSTLY * quadratic(self.prior))

    @property
    def beyond_prior(self) -> tuple[str, ...]:
        """Names of fixed effects more than two prior standard deviations from zero."""
        if self.prior is None:
            return ()
        far = np.abs(self.params) > _BEYOND * np.sqrt(np.diag(self.prior))
        return self._names(far & ~self.is_pooled)

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of the coefficients, due to sampling and privacy noise."""
        return np.asarray(self.sampling + self.privacy)

    def standard_errors(self, quadratic: Quadratic = np.diag) -> NDArray[np.float64]:
        """Return standard errors of the coefficients, or of linear combinations of them.

        ``quadratic`` returns the quadratic forms ``<c, A c>`` of a matrix A for the combinations c,
        of shape (n,). Errors are infinite if arithmetic overflowed.
        """
        errors: NDArray[np.float64] = np.sqrt(np.maximum(quadratic(self.covariance), 0.0))
        return errors if self.is_known else np.where(errors > 0.0, np.inf, 0.0)


def target_scale(certificate: Certificate) -> float:
    """Return the divisor of the targets of a fit; 1 for labels."""
    data, fact = certificate.data, certificate.fact("target_bounds")
    width = data.target_high - data.target_low
    if fact is None or not 0.0 < width < np.inf:
        return 1.0
    low, high = fact.value
    return float((high - low) / width)


def scale_of_dispersions(certificate: Certificate) -> float:
    """Return the factor from the dispersion of prepared targets to that of the user's targets.

    If targets divided by s have the variance ``phi V(m / s)``, the original ones have ``s^2 phi V(m
    / s)``. As V is a power, this is ``s^2 V(1 / s) / V(1)`` times ``phi V(m)``.
    """
    scale = target_scale(certificate)
    variances = certificate.problem.loss.without_offset.variance(np.array([1.0 / scale, 1.0]))
    assert variances is not None
    return float(scale**2 * variances[0] / variances[1])


_GROUPS_PER_COLUMN = 10  # Chosen by ``python -m experiments.groups``.


def check_inference(
    problem: Problem, data: DataSpec, covariance: Covariance, *, weighted: bool = False
) -> None:
    """Refuse problems without asymptotically normal estimates and a known covariance.

    The coefficients must be one vector, the loss smooth and convex, the penalty none or L2, and the
    minimum unconstrained. The model covariance requires a likelihood. A weight in it divides the
    variance of the target, like a number of trials; labels do not have such weights. The robust
    covariance is estimated from one sum of scores per group. Offsets must have bounds, because the
    fit starts at their middle, and intervals do not show whether a distant start has converged.
    """
    loss = problem.loss
    if data.n_outputs > 1:
        raise ValueError(
            f"inference requires one vector of coefficients, but {loss!r} has {data.n_outputs}: "
            "fit two classes at a time"
        )
    low, high = loss.target.bounds
    reach = (low, high) if math.isfinite(high) else (max(low, -1.0), 1.0)
    if not loss.convex or math.isinf(loss.without_offset.smoothness_on(1.0, *reach)):
        raise ValueError(f"inference requires a smooth convex loss, got {loss!r}")
    check_normal(problem)
    if math.isinf(loss.offset_bound):
        raise ValueError(
            "offset_bounds must be public bounds on the offsets for inference, got None; for "
            "exposures give bounds on their logarithms, such as (math.log(0.1), math.log(10)), as "
            "offset_bounds= of the estimator or of from_formula"
        )
    if covariance == "robust":
        # Fewer groups do not determine the covariance of their sums of scores.
        needed = _GROUPS_PER_COLUMN * data.n_columns
        if data.groups is not None and data.n_units < needed:
            raise ValueError(
                f"groups must be at least {needed} for inference='robust' on {data.n_columns} "
                f"columns, {_GROUPS_PER_COLUMN} for each, got {data.n_units}"
            )
        return
    if loss.variance(np.ones(1)) is None:
        raise ValueError(
            f"inference=True requires a loss that is a likelihood, got {loss!r}: use "
            "inference='robust'"
        )
    if weighted and loss.target is Target.BINARY:
        raise ValueError(
            "inference=True requires labels without weights, as a model does not define their "
            "variance: use inference='robust', or BinomialRegressor for numbers of trials"
        )
