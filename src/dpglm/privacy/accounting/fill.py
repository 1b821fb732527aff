"""The largest share of a budget with which a plan still fits into what else is spent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

__all__ = ["largest_share"]

_T = TypeVar("_T")
# A plan that leaves so little of the whole mu serves; so many are tried.
_TOLERANCE, _MOST_TRIES = 5e-4, 8
_FLATTEST, _STEEPEST, _FARTHEST = 0.02, 4.0, 3.0


def largest_share(
    build: Callable[[float], _T],
    excess: Callable[[_T], float],
    start: float,
    slope: float = 1.0,
    most: float = 1.0,
) -> _T | None:
    """Build what gets the largest share of a budget and is not over it; None if nothing was within.

    ``build`` maps a share above 0 to a plan, of which ``excess`` is at most 0 within the budget, as
    ``calibrate.excess``. The search begins at ``start``, where the excess grows about ``slope``
    times as fast as the logarithm of the share, and tries none above ``most``.

    Privacy: what is returned has itself passed ``excess(plan) <= 0``.

    >>> import math
    >>> round(largest_share(lambda share: share, lambda plan: math.log(plan / 0.3), 0.5), 3)
    0.3
    """
    best: _T | None = None
    low, high = 0.0, math.inf
    share = min(start, most)
    last: tuple[float, float] | None = None
    for _ in range(_MOST_TRIES):
        plan = build(share)
        over = excess(plan)
        if over <= 0.0:
            best, low = plan, share
            if over > -_TOLERANCE or share == most:
                break
        else:
            high = share
        point = math.log(share), max(over, -_FARTHEST)
        if last is not None:
            slope = (point[1] - last[1]) / (point[0] - last[0])
        last = point
        # Newton's step, aimed a little below the root.
        step = -(point[1] + 0.5 * _TOLERANCE) / min(max(slope, _FLATTEST), _STEEPEST)
        share = min(math.exp(point[0] + min(max(step, -_FARTHEST), _FARTHEST)), most)
        if not low < share < high:
            share = 0.5 * (low + min(high, most))
    return best
