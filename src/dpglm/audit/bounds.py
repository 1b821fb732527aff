"""Confidence bounds on privacy loss from counts of guesses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from dpglm._validation import check_integer, check_real

__all__ = ["ErrorBounds", "error_bounds", "rate_above"]


def rate_above(successes: int, trials: int, confidence: float) -> float:
    """Bound a probability from above by counted successes.

    Parameters
    ----------
    successes : int
        From 0 to ``trials``.
    trials : int
        Independent repetitions, at least 1.
    confidence : float
        In (0, 1).

    Returns
    -------
    float
        Clopper-Pearson bound: below the true probability with probability at most
        ``1 - confidence``, whatever that is and for any number of trials.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of
    the binomial", Biometrika 26 (1934).

    Examples
    --------
    >>> round(rate_above(0, 10, 0.95), 4)
    0.2589
    """
    trials = check_integer("trials", trials, least=1)
    successes = check_integer("successes", successes, least=0)
    if successes > trials:
        raise ValueError(f"successes must be at most trials={trials}, got {successes}")
    confidence = check_real("confidence", confidence, above=0.0, below=1.0)
    if successes == trials:
        return 1.0
    return float(betaincinv(successes + 1, trials - successes, confidence))


@final
@dataclass(frozen=True)
class ErrorBounds:
    """Upper confidence bounds on both error rates of a test.

    Parameters
    ----------
    missed : float
        On the probability of guessing "second" where the rows are the first of two neighbours.
    false : float
        On the probability of guessing "first" where they are the second.
    """

    missed: float
    false: float

    def mu(self) -> float:
        """Bound mu from below, for any mechanism that is mu-GDP.

        Returns
        -------
        float
            At least 0.

        References
        ----------
        Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, Definition 4: each test
        has ``Phi^-1(1 - false) - Phi^-1(missed) <= mu``. This falls in both rates, so upper
        bounds on them give a lower bound.
        """
        return max(0.0, float(ndtri(1.0 - self.false) - ndtri(self.missed)))

    def epsilon(self, delta: float) -> float:
        """Bound epsilon from below at ``delta``, for any mechanism.

        Returns
        -------
        float
            At least 0.

        References
        ----------
        Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015,
        Theorem 2.1: ``1 - missed <= exp(epsilon) false + delta``, and with the two exchanged.
        """
        found = 0.0
        for hit, other in ((1.0 - self.missed, self.false), (1.0 - self.false, self.missed)):
            if hit > delta and other > 0.0:
                found = max(found, math.log((hit - delta) / other))
        return found

    def delta(self, epsilon: float) -> float:
        """Bound delta from below at ``epsilon``, for any mechanism; as ``epsilon`` does."""
        one_way = (1.0 - self.missed) - math.exp(epsilon) * self.false
        other_way = (1.0 - self.false) - math.exp(epsilon) * self.missed
        return max(one_way, other_way, 0.0)


def error_bounds(guesses: ArrayLike, guesses_other: ArrayLike, confidence: float) -> ErrorBounds:
    """Bound both error rates from guesses in independent runs.

    Parameters
    ----------
    guesses : array_like of bool
        One guess "these are the first rows" for each run on the first rows.
    guesses_other : array_like of bool
        The same for runs on the second rows.
    confidence : float
        With which both bounds hold together, in (0, 1).

    Returns
    -------
    ErrorBounds
        Each bound has half of the error probability (Bonferroni).

    Notes
    -----
    The rule for guessing must not depend on the runs that are counted.

    Examples
    --------
    >>> found = error_bounds([True] * 100, [False] * 100, 0.95)
    >>> round(found.mu(), 2), round(found.epsilon(1e-5), 2)
    (3.59, 3.28)
    """
    first, second = np.asarray(guesses, dtype=bool), np.asarray(guesses_other, dtype=bool)
    each = 0.5 + 0.5 * check_real("confidence", confidence, above=0.0, below=1.0)
    return ErrorBounds(
        missed=rate_above(int((~first).sum()), first.size, each),
        false=rate_above(int(second.sum()), second.size, each),
    )
