"""How much of a study's budget goes to its exploration, for what the study is meant to serve."""

from __future__ import annotations

import enum
import math
from typing import final

__all__ = ["Purpose", "exploration_share", "ratio_of_share", "ratio_of_slopes"]

# How many times as much the part that comes first counts.
_FIRST = 10.0


@final
class Purpose(enum.StrEnum):
    """What a study is to do best; each of its other parts gets what makes it useful.

    Attributes
    ----------
    MODEL
        A model as accurate, and intervals as short, as the budget allows.
    EVALUATION
        Held-out performance as precise as the budget allows: half of the rows are held out.
    EXPLORATION
        Counts and quantiles as precise as the budget allows.
    BALANCED
        Every part counts alike.
    """

    MODEL = "model"
    EVALUATION = "evaluation"
    EXPLORATION = "exploration"
    BALANCED = "balanced"

    @property
    def test_share(self) -> float:
        """Share of the rows that is held out, unless the study says otherwise."""
        return 0.5 if self is Purpose.EVALUATION else 0.2


def ratio_of_share(noise_std: float, n_rows: int, share: float) -> float:
    """Return how much more noise varies than sampling, in the share of rows of a kind.

    Of a share p, sampling n rows varies by ``p (1 - p) / n``.

    >>> round(ratio_of_share(0.003, 10_000, 0.1), 3)
    1.0
    """
    return noise_std**2 * n_rows / (share * (1.0 - share))


def ratio_of_slopes(values: int, n_rows: int, mu: float) -> float:
    """Return how much more noise varies than sampling, in the fit of so many coefficients.

    A sum over n rows of slopes as long as ``b`` at most, paid for by mu, gets noise of variance
    ``b^2 / mu^2`` in each of k values. Sampling moves it by ``n b^2 / 4`` in all, as the slope of a
    logistic loss has a variance of ``p (1 - p)``, a quarter at most.

    >>> ratio_of_slopes(100, 10_000, 0.2)
    1.0
    """
    return 4.0 * values / (n_rows * mu * mu)


def exploration_share(explored: float, others: float, purpose: Purpose) -> float:
    """Return the share of mu squared for the exploration, in (0, 1).

    The model and its evaluation each get the rest, being about disjoint rows. ``explored`` and
    ``others`` say how much more noise varies than sampling in the exploration, and the sum of that
    over the model and its evaluation, each with the whole budget. With a share s of mu squared the
    variance of a value is ``1 + r / s`` times that of sampling. Where every part counts alike, the
    sum of these is least at ``sqrt(explored) / (sqrt(explored) + sqrt(others))``. Where one part
    comes first, it counts ten times as much, and the others get no more than the share with which
    noise and sampling are equally large.

    >>> exploration_share(0.01, 0.09, Purpose.BALANCED)
    0.25
    >>> exploration_share(0.01, 0.09, Purpose.MODEL)
    0.01
    >>> round(exploration_share(0.01, 0.09, Purpose.EXPLORATION), 12)
    0.91
    """
    if purpose is Purpose.BALANCED:
        return _least(explored, others)
    if purpose is Purpose.EXPLORATION:
        return max(_least(_FIRST * explored, others), 1.0 - others)
    return min(_least(explored, _FIRST * others), explored)


def _least(one: float, other: float) -> float:
    """Return the share s at which ``one / s + other / (1 - s)`` is least."""
    return math.sqrt(one) / (math.sqrt(one) + math.sqrt(other))
