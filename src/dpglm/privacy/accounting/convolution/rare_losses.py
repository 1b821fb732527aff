"""A privacy loss that is hardly ever large, as one that never is and several that mostly are 0."""

from __future__ import annotations

import math

import numpy as np

from dpglm.privacy.events.losses import Array, LossLaw, Tails

__all__ = ["split"]

# What of the losses is called large, how far apart the sizes are, and what is never reached.
_RARE, _RATIO, _NEVER = 1e-3, 64.0, 1e-40
_ROUNDING, _RAISED = 3e-3, 1e-4
_POINTS = 600
_FINEST = 0.1


def split(
    law: LossLaw,
    count: int,
    width: float,
    fraction: float,
    own: float,
    rest: float,
) -> list[tuple[LossLaw, float]]:
    """Split a law by the size of its losses, if the grid is too wide for the small ones.

    Width is that of the grid for everything together, ``fraction`` that of a grid over the
    standard deviation of a loss that it suits, ``own`` what of the variance of one loss is certain
    to come from usual losses, ``rest`` what other mechanisms add to the variance of the sum, over
    the count. Returns the law itself with that width, or laws whose composition dominates it, each
    with the width of the grid that suits it.

    Privacy: let S be the outcomes of (P, Q) with a loss of at most t. Whoever is told whether
    the outcome is in S, which it is if the outcome is told, knows the outcome of a pair R with
    all of S made one outcome, of loss ``s = log(P(S) / Q(S))``, and then for S that of the pair
    of conditional laws. If he is given a fresh draw from the latter also where the outcome is
    not in S, he learns no less: so ``R`` composed with ``(P(. | S), Q(. | S))`` dominates
    (P, Q), and so do their compositions (Zhu, Dong and Wang, AISTATS 2022, Theorem 10). A
    conditional loss is the loss minus s. Adding s there, and subtracting it from R, changes no
    sum: R then has the loss 0 for S, and its loss minus s beyond. It is split at a larger t in
    the same way. What is paid for this is a share ``P(not S)`` of the variance of small losses.

    Zhu, Dong and Wang, "Optimal accounting of differential privacy via characteristic
    function", AISTATS 2022, Theorem 10.
    """
    if law.high <= 0.0 or 0.25 * width**2 <= 2.0 * fraction**2 * own:
        return [(law, width)]
    losses, masses = _histogram(law, 1.0)
    below, masses_below = _histogram(law, -1.0)
    squares = masses * losses**2
    # Rounding of tails near 1 must not count for much: beyond, losses lower the sum anyway.
    square_below = float(np.sum(masses_below * np.minimum(below, 100.0 * law.high) ** 2))
    least = min(-law.low, law.high)
    start = int(np.argmax((law.tails(losses)[0] <= _RARE) & (losses >= 0.999 * least)))
    # Very low losses are raised where they are so rare that any of them happens with a probability
    # of 1e-4: given that one does, delta is less than without, so that is what it grows by at most.
    lower = np.cumsum(masses_below[::-1])[::-1] <= max(_RAISED / count, 1e-14)
    low = max(law.low, -float(below[int(np.argmax(lower))])) if lower.any() else law.low
    high, moved = float(losses[start]), 0.0
    small = square_below + float(np.sum(squares[: start + 1]))
    rounding = float(np.sum(masses * np.minimum(losses * width, 0.25 * width**2)))
    if rounding <= max(2.0 * fraction**2, _ROUNDING) * (small + rest):
        return [(law, width)]
    found = [(_part(law, low, high, moved, 0.0), fraction * math.sqrt(small))]
    while high < law.high:
        p, q = (float(one[0]) for one in law.tails(np.array([high])))
        moved = math.log1p(max(p - q, 0.0) / (1.0 - p))
        low, high = high, min(_RATIO * high, law.high)
        if count * float(law.tails(np.array([high]))[0][0]) < _NEVER:
            high = law.high
        inside = (losses > low) & (losses <= high)
        mass, square = (float(np.sum(each[inside])) for each in (masses, squares))
        size = math.sqrt(square / mass) if mass > 0.0 else low
        # Of one loss each cell is small beside it, of the sum of many beside the largest.
        often = min(_FINEST * math.sqrt(count * mass), 1.0)
        fine = fraction * max(_FINEST * low, often * size)
        found.append((_part(law, low, high, moved, 1.0 - p), fine))
    return found


def _part(law: LossLaw, low: float, high: float, moved: float, smaller: float) -> LossLaw:
    """Keep the losses between two, given that none is larger; smaller ones are 0."""
    p_high, q_high = (float(one[0]) for one in law.tails(np.array([high])))
    last = high >= law.high
    if last:
        p_high = q_high = 0.0
    left = 1.0 - p_high

    def tails(t: Array) -> Tails:
        p, q = law.tails(np.maximum(t - moved, low) if smaller else t)
        if not last:
            above = t - moved >= high
            p, q = np.where(above, p_high, p), np.where(above, q_high, q)
        return (p - p_high) / left, (q - q_high) * (math.exp(-moved) / left)

    return LossLaw(
        tails,
        low=low + moved,
        high=high + moved,
        roundings=law.roundings + 2,
        nothing=smaller / left,
        hidden=p_high / left,
    )


def _histogram(law: LossLaw, side: float) -> tuple[Array, Array]:
    """List sizes of losses of one sign, and the mass between each and the one before."""
    farthest = law.high if side > 0.0 else max(-law.low, 1e-300)
    losses = np.append(0.0, np.geomspace(1e-14 * farthest, farthest, _POINTS))
    tail = law.tails(side * losses)[0]
    return losses, np.append(0.0, np.abs(np.diff(tail)))
