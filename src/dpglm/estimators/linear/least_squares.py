"""Private least squares, plain and penalised."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

from dpglm._validation import check_real
from dpglm.data.feature_bounds import FeatureBounds
from dpglm.estimators.linear._docs import shared_parameters
from dpglm.estimators.linear._regressor import PrivateRegressor
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.problem import (
    L1,
    L2,
    Constraint,
    Problem,
    Regularizer,
    Squared,
)
from dpglm.problem import ElasticNet as ElasticNetPenalty
from dpglm.solvers.base import Solver, StepInfo

__all__ = ["ElasticNet", "Lasso", "LinearRegression", "Ridge"]


@shared_parameters
class LinearRegression(PrivateRegressor):
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

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        return Problem(Squared())


@shared_parameters
class Ridge(PrivateRegressor):
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

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        return Problem(Squared(), L2(check_real("alpha", self.alpha, least=0.0) / n_rows))


@shared_parameters
class Lasso(PrivateRegressor):
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

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        return Problem(Squared(), L1(check_real("alpha", self.alpha, least=0.0) / scale))


@shared_parameters
class ElasticNet(PrivateRegressor):
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
        self.l1_ratio = l1_ratio

    def _scaled_problem(self, n_rows: int, scale: float) -> Problem:
        alpha = check_real("alpha", self.alpha, least=0.0)
        ratio = check_real("l1_ratio", self.l1_ratio, least=0.0, most=1.0)
        # Scaling targets by s scales w by 1/s, the loss and |w|^2 by 1/s^2, but |w|_1 by 1/s.
        l1, l2 = alpha * ratio / scale, alpha * (1.0 - ratio)
        if l1 + l2 == 0.0:
            return Problem(Squared())
        return Problem(Squared(), ElasticNetPenalty(l1 + l2, l1 / (l1 + l2)))
