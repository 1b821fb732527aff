"""Private regressors with losses other than the square, and with any loss."""

from __future__ import annotations

from typing import final

from dpglm._validation import check_real
from dpglm.estimators.linear._regressor import PrivateRegressor
from dpglm.estimators.linear._targets import stated_loss
from dpglm.problem import L2, Huber, Loss, Poisson, Regularizer, Target

__all__ = ["GeneralizedLinearRegressor", "HuberRegressor", "PoissonRegressor"]


@final
class HuberRegressor(PrivateRegressor):
    """Private linear regression with the Huber loss, which is robust to outliers.

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
    """

    threshold: float | None = None
    alpha: float = 0.0001

    def _loss(self, scale: float) -> Loss:
        if self.threshold is None:
            # A tenth of the width is a fifth of the scale, which is half the width.
            return Huber(0.2)
        return Huber(check_real("threshold", self.threshold, above=0.0) / scale)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L2(2.0 * check_real("alpha", self.alpha, least=0.0) / n_rows)


@final
class PoissonRegressor(PrivateRegressor):
    """Private Poisson regression with a log link, for counts.

    Minimises ``(1/n) sum (exp(z) - y z) + alpha/2 |w|^2`` with ``z = X w``, which is
    scikit-learn's objective up to a constant.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the penalty, at least 0.

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds`` and divided by the upper one; the releases
    are those of the solver's plan, listed in ``privacy_``.
    """

    alpha: float = 1.0

    def _loss(self, scale: float) -> Loss:
        return Poisson().for_scaled_targets(scale)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        # Dividing counts by s divides loss and penalty by s.
        return L2(check_real("alpha", self.alpha, least=0.0) / scale)


@final
class GeneralizedLinearRegressor(PrivateRegressor):
    """Private linear regression with any loss of real or count targets, and the link of that loss.

    Minimises ``(1/n) sum loss``, and ``regularizer`` if one is given. ``LinearRegression``,
    ``HuberRegressor`` and ``PoissonRegressor`` without a penalty are this with a loss chosen.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        A loss with target ``REAL`` or ``COUNT``: a name in ``dpglm.problem.LOSSES`` or an object,
        also of a class of your own. ``predict`` applies the inverse of its link. Targets are
        standardized if the loss supports it (``Loss.for_scaled_targets``); otherwise choose units
        of y in which ``target_bounds`` are near -1 and 1.

    Notes
    -----
    Privacy: targets are clipped to ``target_bounds``; the releases are those of the solver's plan,
    listed in ``privacy_``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import GeneralizedLinearRegressor
    >>> from dpglm.problem import Huber
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20000, 2))
    >>> y = X @ [2.0, -1.0] + 0.5
    >>> model = GeneralizedLinearRegressor(
    ...     loss=Huber(1.0), feature_bounds=(-1, 1), target_bounds=(-2.5, 3.5)
    ... ).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    loss: str | Loss = "squared"

    def _loss(self, scale: float) -> Loss:
        loss = self._stated_loss()
        scaled = loss.for_scaled_targets(scale)
        return loss if scaled is None else scaled

    def _standardization(self, low: float, high: float) -> tuple[float, float]:
        standardization = super()._standardization(low, high)
        is_fixed = self._stated_loss().for_scaled_targets(1.0) is None
        return (0.0, 1.0) if is_fixed else standardization

    def _stated_loss(self) -> Loss:
        return stated_loss(self.loss, _is_of_numbers, _NUMBERS, "numbers or counts")


_NUMBERS = tuple(target for target in Target if target.is_number)


def _is_of_numbers(loss: Loss) -> bool:
    return loss.target.is_number
