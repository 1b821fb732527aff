"""Private regressors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_one_of, check_real
from dpglm.certificate.statement import LABELS
from dpglm.data.collection import TargetMap
from dpglm.estimators._predictor import ByLabel, FitTask, stated_loss, target_numbers
from dpglm.estimators._private import PublicFacts
from dpglm.estimators.linear._regressor import PenalizedRegressor, PrivateRegressor
from dpglm.problem import (
    L1,
    L2,
    Binomial,
    ComplementaryLogLog,
    ElasticNetPenalty,
    Gamma,
    Huber,
    Loss,
    NegativeBinomial,
    NoPenalty,
    Pinball,
    Poisson,
    Probit,
    Regularizer,
    Target,
    Tweedie,
)
from dpglm.tables.given import different_labels

__all__ = [
    "BinomialRegressor",
    "ElasticNet",
    "GammaRegressor",
    "GeneralizedLinearRegressor",
    "HuberRegressor",
    "Lasso",
    "LinearRegression",
    "NegativeBinomialRegressor",
    "PoissonRegressor",
    "QuantileRegressor",
    "Ridge",
    "TweedieRegressor",
]


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


@final
class Ridge(PenalizedRegressor):
    """Private least squares with an L2 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha/(2 n) |w|^2``: scikit-learn's objective, scaled.
    """

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L2(self._strength() / n_rows)


@final
class Lasso(PenalizedRegressor):
    """Private least squares with an L1 penalty.

    Minimises ``(1/n) sum (y - X w)^2 / 2 + alpha |w|_1``, which is scikit-learn's objective.
    """

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L1(self._strength() / scale)


@final
class ElasticNet(PenalizedRegressor):
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


@final
class HuberRegressor(PenalizedRegressor):
    """Private linear regression with the Huber loss, which is robust to outliers.

    Minimises ``(1/n) sum huber(y - X w; threshold) + alpha/n |w|^2`` with a fixed threshold;
    unlike scikit-learn's, it does not fit the scale of the errors along with the coefficients.

    Parameters
    ----------
    threshold : float, optional
        Error above which the loss is linear, in the units of y, above 0. Default: a tenth of the
        width of ``target_bounds``; without an intercept a fifth of their largest magnitude.
        (scikit-learn calls it ``epsilon``, in units of the errors' scale.)
    alpha : float, default=0.0001
        Strength of the penalty, at least 0.
    """

    threshold: float | None = None
    alpha: float = 0.0001

    def _loss(self, scale: float) -> Loss:
        if self.threshold is None:
            # A fifth of the scale, which with an intercept is half the width.
            return Huber(0.2)
        return Huber(check_real("threshold", self.threshold, above=0.0) / scale)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        return L2(2.0 * self._strength() / n_rows)


@final
class PoissonRegressor(PenalizedRegressor):
    """Private Poisson regression with a log link, for counts.

    Minimises ``(1/n) sum (exp(z) - y z) + alpha/2 |w|^2`` with ``z = X w``, which is
    scikit-learn's objective up to a constant.
    """

    def _loss(self, scale: float) -> Loss:
        return Poisson().for_scaled_targets(scale)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        # Dividing counts by s divides loss and penalty by s.
        return L2(self._strength() / scale)


@final
class GammaRegressor(PenalizedRegressor):
    """Private gamma regression with a log link, for amounts with a spread that grows with the mean.

    Minimises ``(1/n) sum (z + y exp(-z)) + alpha/2 |w|^2`` with ``z = X w``, which is
    scikit-learn's objective up to a constant. ``target_bounds`` must be above 0.
    """

    def _loss(self, scale: float) -> Loss:
        return Gamma()


@final
class TweedieRegressor(PenalizedRegressor):
    """Private regression with a Tweedie family and a log link, for example for yearly claims.

    Minimises ``(1/(2n)) sum deviance + alpha/2 |w|^2``, which is scikit-learn's objective. The
    variance of a target is proportional to the given power of its mean: 1 is quasi-Poisson (Poisson
    with an unknown factor, which is 1 in ``PoissonRegressor``), 2 is gamma. In between, targets may
    be zero, and positive targets are spread like gamma variables.

    Parameters
    ----------
    power : float, default=1.5
        From 1 to 2.
    """

    power: float = 1.5

    def _loss(self, scale: float) -> Loss:
        power = check_real("power", self.power, least=1.0, most=2.0)
        if power == 1.0:
            return Poisson(dispersion=None)
        return Gamma() if power == 2.0 else Tweedie(power)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        # Dividing targets by s divides the deviance by s^(2 - power).
        return L2(self._strength() * scale ** (self.power - 2.0))


@final
class NegativeBinomialRegressor(PenalizedRegressor):
    """Private negative binomial regression with a log link, for overdispersed counts.

    Minimises ``(1/n) sum loss + alpha/2 |w|^2`` where the loss is the negative log-likelihood. The
    variance at mean m is ``m + dispersion m^2``. The default has zero penalty.

    Parameters
    ----------
    dispersion : float, default=1.0
        Public, above 0: declared, not fitted. It is ``alpha`` in statsmodels, and ``1 / theta`` in
        R.
    alpha : float, default=0.0
        Strength of the penalty, at least 0.
    """

    dispersion: float = 1.0
    alpha: float = 0.0

    def _loss(self, scale: float) -> Loss:
        alpha = check_real("dispersion", self.dispersion, above=0.0)
        return NegativeBinomial(alpha).for_scaled_targets(scale)

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        # Dividing counts by s divides loss and penalty by s.
        return L2(self._strength() / scale)


@final
class BinomialRegressor(PenalizedRegressor):
    """Private regression of proportions: successes of trials, or labels 0 and 1.

    Minimises ``(1/n) sum m loss + alpha/2 |w|^2`` where m are the weights and the loss is the
    negative log-likelihood of a trial. For k successes in m trials give ``y = k / m`` and
    ``sample_weight=m``, with ``weight_bound`` no less than the largest number of trials (below it
    standard errors come out too wide). ``predict`` returns probabilities of success. The default
    has zero penalty.

    Parameters
    ----------
    link : {"logit", "probit", "cloglog"}, default="logit"
        Map from scores to probabilities: the logistic function, the normal distribution function,
        or ``1 - exp(-exp(z))`` (complementary log-log).
    classes : sequence of two labels, optional
        Public labels in y in place of 0 and 1. The second in sorted order is success. With an
        offset, give 0 and 1.
    alpha : float, default=0.0
        Strength of the penalty, at least 0.

    Notes
    -----
    Privacy: proportions are bounded by 0 and 1, unless ``target_bounds`` are narrower; weights are
    clipped to ``weight_bound``. The protected unit is a row with all of its trials. The releases
    are those of the solver's plan, listed in ``privacy_``.

    Examples
    --------
    >>> import numpy as np
    >>> from dpglm import BinomialRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20000, 2))
    >>> trials = rng.integers(1, 6, size=20000)
    >>> successes = rng.binomial(trials, 1 / (1 + np.exp(-X @ [2.0, -1.0])))
    >>> model = BinomialRegressor(feature_bounds=(-1, 1), weight_bound=5).fit(
    ...     X, successes / trials, sample_weight=trials
    ... )
    >>> bool(abs(model.predict([[0.5, 0.0]])[0] - 0.73) < 0.05)
    True
    """

    link: Literal["logit", "probit", "cloglog"] = "logit"
    classes: Sequence[Any] | None = None
    alpha: float = 0.0

    def _loss(self, scale: float) -> Loss:
        return _BINOMIAL[check_one_of("link", self.link, tuple(_BINOMIAL))]

    def _numbers(self) -> TargetMap:
        if self.classes is None:
            return target_numbers
        labels = different_labels(self.classes)
        if len(labels) != 2:
            raise ValueError(f"classes must be two labels, got {self.classes!r}")
        return ByLabel(labels, np.array([0.0, 1.0]))

    def _task(self, y: NDArray[Any] | None, facts: PublicFacts) -> FitTask:
        task, numbers = super()._task(y, facts), self._numbers()
        if isinstance(numbers, ByLabel):
            facts.declared(LABELS, numbers.labels.tolist())
        return task


@final
class QuantileRegressor(PenalizedRegressor):
    """Private regression of a quantile of the target, such as its median.

    Minimises ``(1/n) sum pinball(y - X w) + alpha |w|_1``, which is scikit-learn's objective.

    Parameters
    ----------
    quantile : float, default=0.5
        Level of the quantile, above 0 and below 1.

    References
    ----------
    Koenker and Bassett 1978.
    """

    quantile: float = 0.5

    def _loss(self, scale: float) -> Loss:
        return Pinball(check_real("quantile", self.quantile, above=0.0, below=1.0))

    def _penalty(self, n_rows: int, scale: float) -> Regularizer:
        alpha = self._strength()
        # Dividing targets by s divides loss and coefficients by s.
        return L1(alpha) if alpha else NoPenalty()


@final
class GeneralizedLinearRegressor(PrivateRegressor):
    """Private linear regression with any loss of numbers and its link.

    Minimises ``(1/n) sum loss``, and ``regularizer`` if one is given. ``LinearRegression``
    and the regressors of this module without a penalty are this with a loss chosen.

    Parameters
    ----------
    loss : str or Loss, default="squared"
        A loss of numbers, not of labels: a name in ``dpglm.problem.LOSSES`` or an object, also of
        your own class. ``predict`` applies the inverse of its link. Targets are standardized if the
        loss supports it (``Loss.for_scaled_targets``); otherwise choose units of y with
        ``target_bounds`` near -1 and 1.
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
        return stated_loss(self.loss, lambda one: one.target.is_number, _NUMBERS, "numbers")


_BINOMIAL: Mapping[str, Loss] = MappingProxyType(
    {"logit": Binomial(), "probit": Probit(), "cloglog": ComplementaryLogLog()}
)
_NUMBERS = tuple(target for target in Target if target.is_number)
