"""Private linear regressors."""

from __future__ import annotations

import abc
import math
import os
from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from dpglm._validation import check_real
from dpglm.data.collection import as_collection
from dpglm.data.matrix import MatrixRows
from dpglm.data.spec import DataSpec
from dpglm.estimators._base import PrivateLinearModel
from dpglm.estimators._docs import shared_parameters
from dpglm.estimators._prediction import Link, SquaredErrorTally, r_squared, scores
from dpglm.estimators._private import PublicFacts
from dpglm.estimators._targets import BoundedTargets
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.problem import (
    L1,
    L2,
    Constraint,
    Huber,
    Poisson,
    Problem,
    Regularizer,
    Squared,
)
from dpglm.problem import ElasticNet as ElasticNetPenalty
from dpglm.solvers.base import Plan, Solver, StepInfo

__all__ = [
    "ElasticNet",
    "HuberRegressor",
    "Lasso",
    "LinearRegression",
    "PoissonRegressor",
    "Ridge",
]


class _PrivateRegressor(RegressorMixin, PrivateLinearModel):
    """Bounds on the target, and the scaling of targets that they allow."""

    def __init__(self, *, target_bounds: tuple[float, float] | None, **shared: Any) -> None:
        super().__init__(**shared)
        self.target_bounds = target_bounds

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        # With the default epsilon and a few dozen rows, noise rightly drowns the signal.
        tags.regressor_tags.poor_score = True
        return tags

    @abc.abstractmethod
    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        """State what is minimised, for targets divided by ``scale``."""

    def _problem(self, spec: DataSpec) -> Problem:
        return self._scaled_problem(spec.n_rows, self._target_transform(*self._planned_bounds())[1])

    def _target_transform(self, low: float, high: float) -> tuple[float, float]:
        """Center and scale of the targets, from their public bounds."""
        return low / 2.0 + high / 2.0, (high / 2.0 - low / 2.0) or 1.0

    def _declared_target_bounds(self) -> tuple[float, float] | None:
        if self.target_bounds is None:
            return None
        try:
            low, high = (float(bound) for bound in self.target_bounds)
        except (TypeError, ValueError):
            low, high = math.nan, math.nan
        if not (math.isfinite(low) and math.isfinite(high) and low <= high):
            raise ValueError(
                "target_bounds must be a pair of finite numbers (low, high) with low <= high, "
                f"got {self.target_bounds!r}"
            )
        return low, high

    def _planned_bounds(self) -> tuple[float, float]:
        bounds = self._declared_target_bounds()
        if bounds is None:
            raise ValueError("target_bounds must be given to plan before data, got None")
        return bounds

    def plan(
        self, n_rows: int, n_features: int, dtype: str = "float64", sparse: bool = False
    ) -> Plan:
        """Say what ``fit`` will release, without seeing a row.

        Parameters
        ----------
        n_rows, n_features : int
            Size of the data.
        dtype : {"float64", "float32"}, default="float64"
            Type of the matrix that ``fit`` will get.
        sparse : bool, default=False
            Whether it will be a sparse matrix.

        Returns
        -------
        Plan
            Events, noise multiplier, steps and expected noise per coefficient. ``fit`` on data
            of that size executes exactly this plan; ``dpglm.report.guidance`` says what to
            expect of it.

        Raises
        ------
        ValueError
            If a parameter is invalid, or ``target_bounds`` is not given, or neither
            ``row_norm`` nor ``feature_bounds`` is.
        """
        spec = self._planned_spec(
            n_rows,
            n_features,
            dtype=dtype,
            is_sparse=sparse,
            weight_bound=self._weight_bound(),
            target_range=self._scaled_range(*self._planned_bounds()),
        )
        return self._make_plan(spec, self._problem(spec))

    def _scaled_range(self, low: float, high: float) -> tuple[float, float]:
        center, scale = self._target_transform(low, high)
        return (low - center) / scale, (high - center) / scale

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Fit the model under differential privacy.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows: NumPy, pandas, polars, or SciPy sparse (read as CSR); float32 stays float32.
            Or rows that are not one matrix in memory, with all public facts declared: a large
            memory-mapped array, a torch tensor, Dask, or ``ParquetRows`` and its like, which
            have their own targets and weights.
        y : array_like of shape (n,)
            Targets.
        sample_weight : array_like of shape (n,), optional
            Weights in [0, ``weight_bound``]; larger ones count as ``weight_bound``.
        checkpoint : path-like, optional
            File in which the state is kept after each step. If the process is killed, the same
            call goes on from there and spends nothing twice; after the end, it returns the same
            model again until the file is deleted.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            If a parameter or the data are invalid; nothing is released or spent then.

        Notes
        -----
        Privacy: ``privacy_`` says what was spent and which facts were treated as public.
        """
        bounds = self._declared_target_bounds()
        facts = PublicFacts()
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            X, y = self._validated(X, y, y_numeric=True)
            y = np.asarray(y, dtype=np.float64)
        elif bounds is None:
            raise ValueError(
                "target_bounds must be declared for rows that are not one matrix in memory, got "
                "None"
            )
        if bounds is None:
            bounds = float(y.min()), float(y.max())
            cure = "Give target_bounds= from public knowledge."
            facts.from_data("target_bounds", list(bounds), cure)
        else:
            facts.declared("target_bounds", list(bounds))
        if rows is None:
            weights, weight_bound = self._weights(sample_weight, X.shape[0], facts)
            rows = MatrixRows(X, y, weights)
        else:
            weight_bound = self._accept(rows, facts)
        scaled_range = self._scaled_range(*bounds)
        center, scale = self._target_transform(*bounds)
        w = self._fit(
            rows,
            facts,
            lambda spec: self._scaled_problem(spec.n_rows, scale),
            targets=BoundedTargets(bounds, center, scale, scaled_range),
            weight_bound=weight_bound,
            checkpoint=checkpoint,
            target_range=scaled_range,
        )
        self.coef_, self.intercept_ = self._in_target_units(w[:-1, 0], float(w[-1, 0]), *bounds)
        self._certify(facts)
        return self

    def _in_target_units(
        self, coef: NDArray[np.float64], intercept: float, low: float, high: float
    ) -> tuple[NDArray[np.float64], float]:
        center, scale = self._target_transform(low, high)
        return scale * coef, scale * intercept + center

    def _link(self) -> Link:
        """From linear scores to targets, row by row."""
        return scores

    def predict(self, X: Any) -> Any:
        """Predict the target.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes.

        Returns
        -------
        array of shape (n,)
            Of NumPy; for rows of Dask, of Dask and not yet computed; for a tensor, a tensor where
            that is.
        """
        return self._predicted(X, self._link())

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R squared.

        Parameters
        ----------
        X : array_like, sparse matrix or Collection of shape (n, n_features)
            Rows, of all kinds that ``fit`` takes; of public rows, or the score is one more release.
        y : array_like of shape (n,)
            Targets; None for a ``Collection`` that has its own.
        sample_weight : array_like of shape (n,), optional
            Weights.

        Returns
        -------
        float
        """
        rows = as_collection(X, y, sample_weight)
        if rows is None:
            return float(super().score(X, y, sample_weight))
        check_is_fitted(self)
        self._check_features(rows)
        return r_squared(rows.parts(SquaredErrorTally(self._row_prediction(self._link()))))


@shared_parameters
class LinearRegression(_PrivateRegressor):
    """Private least squares without a penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2``.

    Parameters
    ----------
    target_bounds : pair of float, optional
        Public lower and upper bounds of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    <attributes>

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and scaled to [-1, 1]; what leaves, and what
    pays for it, is the solver's to say, and ``privacy_`` lists it.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20000, 2))
    >>> y = X @ [2.0, -1.0] + 0.5
    >>> model = LinearRegression(
    ...     epsilon=1.0, feature_bounds=(-1, 1), target_bounds=(-2.5, 3.5)
    ... ).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            target_bounds=target_bounds,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        return Problem(Squared())


@shared_parameters
class Ridge(_PrivateRegressor):
    """Private least squares with an L2 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha/(2 n) |w|^2``: scikit-learn's objective, scaled.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.
    target_bounds : pair of float, optional
        Public lower and upper bounds of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    <attributes>

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and scaled to [-1, 1]; what leaves, and what
    pays for it, is the solver's to say, and ``privacy_`` lists it.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        alpha: float = 1.0,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            target_bounds=target_bounds,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.alpha = alpha

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        return Problem(Squared(), L2(check_real("alpha", self.alpha, least=0.0) / n_rows))


@shared_parameters
class Lasso(_PrivateRegressor):
    """Private least squares with an L1 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha |w|_1``, which is scikit-learn's objective.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.
    target_bounds : pair of float, optional
        Public lower and upper bounds of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    <attributes>

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and scaled to [-1, 1]; what leaves, and what
    pays for it, is the solver's to say, and ``privacy_`` lists it.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        alpha: float = 1.0,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            target_bounds=target_bounds,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.alpha = alpha

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        return Problem(Squared(), L1(check_real("alpha", self.alpha, least=0.0) / scale))


@shared_parameters
class ElasticNet(_PrivateRegressor):
    """Private least squares with an L1 and an L2 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2)``,
    which is scikit-learn's objective.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.
    l1_ratio : float, default=0.5
        Share of the L1 norm in the penalty, in [0, 1].
    target_bounds : pair of float, optional
        Public lower and upper bounds of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    <attributes>

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and scaled to [-1, 1]; what leaves, and what
    pays for it, is the solver's to say, and ``privacy_`` lists it.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        alpha: float = 1.0,
        l1_ratio: float = 0.5,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            target_bounds=target_bounds,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.alpha = alpha
        self.l1_ratio = l1_ratio

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        alpha = check_real("alpha", self.alpha, least=0.0)
        ratio = check_real("l1_ratio", self.l1_ratio, least=0.0, most=1.0)
        # Scaling targets by s scales w by 1/s, the loss and |w|^2 by 1/s^2, but |w|_1 by 1/s.
        l1, l2 = alpha * ratio / scale, alpha * (1.0 - ratio)
        if l1 + l2 == 0.0:
            return Problem(Squared())
        return Problem(Squared(), ElasticNetPenalty(l1 + l2, l1 / (l1 + l2)))


@shared_parameters
class HuberRegressor(_PrivateRegressor):
    """Private linear regression with the Huber loss, which outliers move little.

    Minimises ``(1/n) sum huber(y - X w; threshold) + alpha/n |w|^2`` with a fixed threshold;
    unlike scikit-learn's, it does not fit the scale of the errors along with the coefficients.

    Parameters
    ----------
    threshold : float, optional
        Error beyond which the loss is linear, in the units of y, above 0. Default: a tenth of the
        width of ``target_bounds``. (scikit-learn calls it ``epsilon``, in units of the errors'
        scale.)
    alpha : float, default=0.0001
        Strength of the penalty, at least 0.
    target_bounds : pair of float, optional
        Public lower and upper bounds of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    <attributes>

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and scaled to [-1, 1]; what leaves, and what
    pays for it, is the solver's to say, and ``privacy_`` lists it.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        threshold: float | None = None,
        alpha: float = 0.0001,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            target_bounds=target_bounds,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.threshold = threshold
        self.alpha = alpha

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        # A tenth of the width is a fifth of the scale, which is half the width.
        threshold = 0.2
        if self.threshold is not None:
            threshold = check_real("threshold", self.threshold, above=0.0) / scale
        strength = 2.0 * check_real("alpha", self.alpha, least=0.0) / n_rows
        return Problem(Huber(threshold), L2(strength))


@shared_parameters
class PoissonRegressor(_PrivateRegressor):
    """Private Poisson regression with a log link, for counts.

    Minimises ``(1/n) sum (exp(z) - y z) + alpha/2 |w|^2`` with ``z = X w``, which is
    scikit-learn's objective up to a constant.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.
    target_bounds : pair of float, optional
        Public lower and upper bounds of the target; targets are clipped to them. Default: the
        extremes in the data, with a warning.
    <parameters>

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
        Coefficients, in the units of X and y.
    <attributes>

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and divided by the upper one; what leaves,
    and what pays for it, is the solver's to say, and ``privacy_`` lists it.

    References
    ----------
    Arora et al. 2022, Algorithm 1; Song, Steinke, Thakkar and Thakurta 2021, Lemma 5.1.
    """

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float | Literal["auto"] = "auto",
        budget: PrivacyBudget | None = None,
        ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
        adjacency: str = "zero_out",
        n_rows: int | None = None,
        solver: str | Solver = "auto",
        alpha: float = 1.0,
        target_bounds: tuple[float, float] | None = None,
        row_norm: float | None = None,
        feature_bounds: tuple[ArrayLike, ArrayLike] | None = None,
        weight_bound: float | None = None,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        regularizer: Regularizer | None = None,
        constraint: Constraint | None = None,
        random_state: int | NoiseSource | None = None,
        callback: Callable[[StepInfo], None] | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            epsilon=epsilon,
            delta=delta,
            budget=budget,
            ledger=ledger,
            adjacency=adjacency,
            n_rows=n_rows,
            solver=solver,
            target_bounds=target_bounds,
            row_norm=row_norm,
            feature_bounds=feature_bounds,
            weight_bound=weight_bound,
            fit_intercept=fit_intercept,
            penalize_intercept=penalize_intercept,
            regularizer=regularizer,
            constraint=constraint,
            random_state=random_state,
            callback=callback,
            verbose=verbose,
        )
        self.alpha = alpha

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        # Dividing counts by s divides loss and penalty by s.
        return Problem(Poisson(), L2(check_real("alpha", self.alpha, least=0.0) / scale))

    def _link(self) -> Link:
        # The mean count, exp(z).
        return Poisson().predict

    def _declared_target_bounds(self) -> tuple[float, float] | None:
        bounds = super()._declared_target_bounds()
        if bounds is not None and bounds[0] < 0.0:
            raise ValueError(f"target_bounds must not be negative for counts, got {bounds!r}")
        return bounds

    def _target_transform(self, low: float, high: float) -> tuple[float, float]:
        if low < 0.0:
            raise ValueError("y must not be negative for Poisson regression")
        return 0.0, high or 1.0

    def _in_target_units(
        self, coef: NDArray[np.float64], intercept: float, low: float, high: float
    ) -> tuple[NDArray[np.float64], float]:
        # exp(z) predicts y / s, so z + log(s) predicts y.
        return coef, intercept + math.log(high or 1.0)
