"""The test: statistic and thresholds, chosen on held-out runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dpglm.audit.bounds import ErrorBounds, error_bounds, rate_above
from dpglm.audit.claims import Claim
from dpglm.audit.scores import Observation, Score, candidate_scores

__all__ = ["Guess", "choose_guess", "first_unless_beaten", "ratio_to"]

Worth = Callable[[ErrorBounds], float]
_THRESHOLDS = 25
_CLEARLY = 1.25
_SHARES = (0.8, 0.2)
"""Shares of the error probability for the two thresholds; the first usually decides."""


@final
@dataclass(frozen=True, eq=False)
class Guess:
    """Guess "first" where a score is above a threshold: one for the bound on mu, one for epsilon.

    ``promise`` is the ratio to the claim that held-out runs lead one to expect.
    """

    score: Score
    thresholds: tuple[float, float]
    promise: float

    def bounds(
        self, first: Sequence[Observation], second: Sequence[Observation], confidence: float
    ) -> tuple[ErrorBounds, ...]:
        """Bound the error rates with each threshold; all bounds hold together."""
        a, b = self.score(first), self.score(second)
        return tuple(
            error_bounds(a > threshold, b > threshold, 1.0 - share * (1.0 - confidence))
            for threshold, share in zip(self.thresholds, _SHARES, strict=True)
        )


def choose_guess(
    first: Sequence[Observation],
    second: Sequence[Observation],
    claim: Claim,
    confidence: float,
    runs: int,
) -> Guess:
    """Choose the statistic and thresholds that promise most for ``runs`` fresh runs per data set.

    One half of the held-out runs teaches statistics, the other half chooses.
    """
    half = len(first) // 2
    learned = candidate_scores(first[:half], second[:half])
    # Half a share for each of two rates.
    main, rest = (1.0 - 0.5 * share * (1.0 - confidence) for share in _SHARES)

    def best(score: Score, worth: Worth, each: float) -> tuple[float, float]:
        # Runs that taught a statistic would flatter it.
        unseen = half if score.is_learned else 0
        a, b = score(first[unseen:]), score(second[unseen:])
        return _best_threshold(a, b, worth, each, runs)

    found = [
        (best(score, lambda bounds: ratio_to(claim, bounds), main), score) for score in learned
    ]
    (promise, threshold), score = found[first_unless_beaten([one[0][0] for one in found])]
    _, tail = best(score, lambda bounds: bounds.epsilon(claim.delta), rest)
    return Guess(score, (threshold, tail), promise)


def first_unless_beaten(promises: Sequence[float]) -> int:
    """Return the position of the largest, but the first where no other is clearly larger.

    The largest of several noisy numbers is biased upwards; the first is what theory recommends.
    """
    weighed = [promises[0] * _CLEARLY, *promises[1:]]
    return max(range(len(weighed)), key=weighed.__getitem__)


def ratio_to(claim: Claim, bounds: ErrorBounds) -> float:
    """Compare the mu that bounds prove with the largest that the claim allows there."""
    mu = bounds.mu()
    # A test that always raises the alarm proves nothing, and has no largest mu.
    return mu / claim.mu_at(bounds.false) if mu > 0.0 else 0.0


def _best_threshold(
    a: NDArray[np.float64], b: NDArray[np.float64], worth: Worth, confidence: float, runs: int
) -> tuple[float, float]:
    """Return the best expected worth, and where it is."""
    levels = (np.arange(_THRESHOLDS) + 0.5) / _THRESHOLDS
    # Where no score of the second is above any of the first, what counts is the gap.
    gap = 0.5 * (a.min() + b.max())
    thresholds = np.unique([*np.quantile(a, levels), *np.quantile(b, levels), b.max(), gap])
    found = []
    for threshold in thresholds:
        bounds = ErrorBounds(
            missed=_expected_bound(int((a <= threshold).sum()), len(a), runs, confidence),
            false=_expected_bound(int((b > threshold).sum()), len(b), runs, confidence),
        )
        found.append((worth(bounds), float(threshold)))
    return max(found)


def _expected_bound(count: int, pilot: int, runs: int, confidence: float) -> float:
    """Clopper-Pearson bound from as many counts as a held-out rate lets one expect."""
    expected = (count + 0.5) / (pilot + 1.0) * runs
    return rate_above(round(expected), runs, confidence)
