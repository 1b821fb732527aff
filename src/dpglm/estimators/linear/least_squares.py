"""Private least squares, plain and penalised."""

from __future__ import annotations

from typing import final

from dpglm._validation import check_real
from dpglm.estimators.linear._regressor import PenalizedRegressor, PrivateRegressor
from dpglm.problem import L1, L2, Loss, NoPenalty, Regularizer, Squared
from dpglm.problem import ElasticNet as ElasticNetPenalty

__all__ = ["ElasticNet", "Lasso", "LinearRegression", "Ridge"]


@final
class LinearRegression(PrivateRegressor):
    """Private least squares without a penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import LinearRegression
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(25000, 2))
    >>> y = X @ [2.0, -1.0] + 0.5
    >>> model = LinearRegression(
    ...     epsilon=1.0, feature_bounds=(-1, 1), target_bounds=(-2.5, 3.5)
    ... ).fit(X[:20000], y[:20000])
    >>> model.score(X[20000:], y[20000:]) > 0.9
    True
    """

    def _loss(self, scale: float) -> Loss:
        return Squared()


class _Penalized(PenalizedRegressor):
    def _loss(self, scale: float) -> Loss:
        return Squared()


@final
class Ridge(_Penalized):
    """Private least squares with an L2 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha/(2 n) |w|^2``: scikit-learn's objective, scaled.
    """

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L2(self._strength() / n_rows)


@final
class Lasso(_Penalized):
    """Private least squares with an L1 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha |w|_1``, which is scikit-learn's objective.
    """

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L1(self._strength() / scale)


@final
class ElasticNet(_Penalized):
    """Private least squares with an L1 and an L2 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha (l1_ratio |w|_1 + (1 - l1_ratio)/2 |w|^2)``,
    which is scikit-learn's objective.

    Parameters
    ----------
    l1_ratio : float, default=0.5
        Share of the L1 norm in the penalty, in [0, 1].
    """

    l1_ratio: float = 0.5

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        alpha = self._strength()
        ratio = check_real("l1_ratio", self.l1_ratio, least=0.0, most=1.0)
        # Scaling targets by s scales w by 1/s, the loss and |w|^2 by 1/s^2, but |w|_1 by 1/s.
        l1, l2 = alpha * ratio / scale, alpha * (1.0 - ratio)
        return ElasticNetPenalty(l1 + l2, l1 / (l1 + l2)) if l1 + l2 > 0.0 else NoPenalty()
