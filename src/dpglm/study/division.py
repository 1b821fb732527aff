"""How much of a study's budget goes to its exploration, for what the study is meant to serve."""

from __future__ import annotations

import enum
import math
from typing import final

__all__ = ["Purpose", "exploration_share", "noise_to_sampling"]


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


def noise_to_sampling(values: int, n_rows: int, mu: float, spread: float) -> float:
    """Return the variance of privacy noise over that of sampling, in one released value on average.

    Parameters
    ----------
    values : int
        How many values are released, jointly.
    n_rows : int
        Public number of rows.
    mu : float
        What pays for them, over the relation's factor.
    spread : float
        Mean square of what a row contributes, over its bound: 1 for counts, a quarter for slopes
        of a logistic loss (``p (1 - p)`` at its largest).

    Returns
    -------
    float

    Notes
    -----
    A sum over n rows, of vectors as long as ``b`` at most, gets noise of standard deviation
    ``b / mu`` in each of k values, ``k b^2 / mu^2`` in all; sampling moves it by
    ``n spread b^2`` in all. Derivation and use in ``docs/study.md``.
    """
    return values / (spread * n_rows * mu * mu)


def exploration_share(explored: float, others: float, purpose: Purpose) -> float:
    """Return the share of mu squared for the exploration, in (0, 1).

    Parameters
    ----------
    explored, others : float
        ``noise_to_sampling`` of the exploration, and the sum of it over the model and its
        evaluation, each with the whole budget.
    purpose : Purpose
        What the study is to do best.

    Returns
    -------
    float
        Of the exploration; the model and its evaluation each get the rest, being about disjoint
        rows.

    Notes
    -----
    With a share s of mu squared the variance of a value is ``1 + r / s`` times that of sampling.
    Where every part counts alike, the sum of these is least at
    ``sqrt(explored) / (sqrt(explored) + sqrt(others))``. Where one part comes first, the others
    get the share with which noise and sampling are equally large, and never more than where all
    count alike.

    Examples
    --------
    >>> exploration_share(0.01, 0.09, Purpose.BALANCED)
    0.25
    >>> exploration_share(0.01, 0.09, Purpose.MODEL)
    0.01
    >>> round(exploration_share(0.01, 0.09, Purpose.EXPLORATION), 12)
    0.91
    """
    balanced = math.sqrt(explored) / (math.sqrt(explored) + math.sqrt(others))
    if purpose is Purpose.BALANCED:
        return balanced
    if purpose is Purpose.EXPLORATION:
        return max(balanced, 1.0 - others)
    return min(balanced, explored)
