"""Random repetitions recomputed: the best of several tries, from delta of a single one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from scipy.optimize import minimize_scalar

from dpglm.privacy.repetitions import NegativeBinomial, PoissonNumber, Repetitions

__all__ = ["price_of_tries"]


def price_of_tries(law: Repetitions, delta: Callable[[float], float]) -> tuple[float, float]:
    """Say what the best of several tries costs on top of a single one.

    Parameters
    ----------
    law : Repetitions
        Of the number of tries.
    delta : callable
        Bound on delta of any one try at an epsilon of at least 0.

    Returns
    -------
    ratio, mean : float
        The best is ``(e + ratio, mean delta(e))``-DP for every e.

    Notes
    -----
    Privacy: shares no formula with ``dpglm.privacy.repetitions``. The largest ratio of the
    derivatives is looked for at the corners of the region of probabilities ``(s, s')`` that
    (a, delta(a)) allows, and the best a by minimising; each a gives a bound.

    References
    ----------
    Koskela, Redberg and Wang, "Privacy profiles for private selection", ICML 2024.
    """
    return _LOG_RATIO[type(law)](law, delta), _MEAN[type(law)](law)


def _negative_binomial_ratio(law: NegativeBinomial, delta: Callable[[float], float]) -> float:
    def log_ratio(a: float) -> float:
        missed = delta(a)
        corner = (1.0 - missed) / (1.0 + math.exp(a))
        pairs = ((0.0, missed), (corner, 1.0 - corner))
        # Chances that a try is worse than some result, and the binomial's successes are over.
        mixed = [[law.success + (1.0 - law.success) * s for s in pair] for pair in pairs]
        return (law.shape + 1) * max(math.log(larger / less) for less, larger in mixed)

    high = 1.0
    while delta(high) > 0.1 * law.success * high:
        high *= 2.0
    best = minimize_scalar(log_ratio, bounds=(0.0, high), method="bounded", options=_FINE)
    return float(best.fun)


def _negative_binomial_mean(law: NegativeBinomial) -> float:
    failures = law.shape * (1.0 - law.success) / law.success
    return failures / -math.expm1(law.shape * math.log(law.success))


_FINE: Any = {"xatol": 1e-10}
_LOG_RATIO: dict[type[Repetitions], Callable[[Any, Callable[[float], float]], float]] = {
    NegativeBinomial: _negative_binomial_ratio,
    PoissonNumber: lambda law, delta: law.rate * delta(0.0),
}
_MEAN: dict[type[Repetitions], Callable[[Any], float]] = {
    NegativeBinomial: _negative_binomial_mean,
    PoissonNumber: lambda law: law.rate,
}
