"""Private regressors with losses other than the square."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import Tags

from dpglm._validation import check_real
from dpglm.data.feature_bounds import FeatureBounds
from dpglm.estimators.linear._docs import shared_parameters
from dpglm.estimators.linear._regressor import PrivateRegressor
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.problem import (
    L2,
    Constraint,
    Huber,
    Poisson,
    Problem,
    Regularizer,
)
from dpglm.solvers.base import Solver, StepInfo

__all__ = ["HuberRegressor", "PoissonRegressor"]


@shared_parameters
class HuberRegressor(PrivateRegressor):
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
        feature_bounds: FeatureBounds | None = None,
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
class PoissonRegressor(PrivateRegressor):
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
        feature_bounds: FeatureBounds | None = None,
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
