"""Calibration of noise to a budget: searches, with results that ``cost`` confirms."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TypeVar

from scipy.optimize import brentq
from scipy.special import ndtri_exp

from dpglm.privacy.accounting.accountant import gaussian_mu, reduce_event
from dpglm.privacy.accounting.accountants import (
    Accountant,
    FourierAccountant,
    GaussianAccountant,
    MixtureAccountant,
    RenyiAccountant,
    TightestAccountant,
    accountant_for,
    delta_of,
    within_budget,
)
from dpglm.privacy.budget import Adjacency, ApproximateDP, PrivacyBudget
from dpglm.privacy.events import Event
from dpglm.privacy.events.compositions import branches

# Relative tolerances of the noise multiplier.
_NUMERICAL_TOLERANCE, _MIXTURE_TOLERANCE, _EXACT_TOLERANCE = 1e-3, 1e-6, 1e-9
# Factor on delta: the search for an epsilon may end a little above it.
_MARGIN = 1.0 - 2e-6
# A coarse grid: up to two per cent more noise, at a tenth of the work.
_ROUGH = FourierAccountant(cell_fraction=0.25, most_cells=50_000, even_cells=100)


def calibrate(
    make_event: Callable[[float], Event], budget: PrivacyBudget, adjacency: Adjacency
) -> float:
    """Return the smallest noise multiplier with an event within a budget.

    Parameters
    ----------
    make_event : callable
        Maps a noise multiplier to the event. More noise must never cost more privacy.
    budget : PrivacyBudget
        The budget.
    adjacency : Adjacency
        The relation of the noise multipliers.

    Returns
    -------
    float
        Above 0, with a relative error of at most 1e-9 (Gaussian events, pure differential privacy),
        1e-6 (Gaussian through projections) or 1e-3 (numerical accounting).

    Raises
    ------
    ValueError
        If the event has disjoint parts of the rows under add/remove; if no multiplier is within the
        budget (its fixed parts cost too much, or delta is too small for numerical accounting); if
        the event does not depend on the multiplier; or if the budget does not suit the event (a
        delta of 0 for Gaussian noise; mu-GDP or zCDP for events that are not all Gaussian).

    Notes
    -----
    Privacy: the returned multiplier has passed ``within_budget``.

    Examples
    --------
    >>> from dpglm.privacy.budget import ApproximateDP
    >>> from dpglm.privacy.events import Gaussian, Repeated
    >>> budget = ApproximateDP(1.0, 1e-5)
    >>> round(calibrate(lambda s: Repeated(Gaussian(s), 100), budget, Adjacency.ZERO_OUT), 3)
    37.306
    """
    example = make_event(1.0)
    accountant = accountant_for(example, adjacency)
    if isinstance(accountant, GaussianAccountant):
        return _calibrate_exactly(make_event, budget, adjacency)
    limit = budget.as_approximate_dp()
    if limit.delta == 0.0:
        if math.isinf(accountant.epsilon(example, adjacency, 0.0)):
            budget.gdp_mu()  # raises: Gaussian noise and a delta of 0
        return _calibrate_exactly(make_event, limit, adjacency)
    start = _central_limit(make_event, limit, adjacency)
    if MixtureAccountant().supports(example, adjacency):
        return _calibrate_exactly(make_event, limit, adjacency, start, _MIXTURE_TOLERANCE)
    return _calibrate_numerically(make_event, limit, adjacency, start)


def excess(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> float:
    """Return the log ratio of an event's cost to a budget: at most 0 only if it is within.

    The ratio is of mus, or of pure epsilons; for other events of the approximate mus of the deltas.
    It falls about as fast as the logarithm of a noise multiplier grows. Raises as
    ``within_budget``.
    """
    found = []
    for one in branches(event, adjacency):
        mu = gaussian_mu(one)
        if mu is not None:
            spent, most = mu, budget.gdp_mu()
        else:
            limit, accountant = budget.as_approximate_dp(), accountant_for(one, adjacency)
            if limit.delta > 0.0:
                found.append(_excess_of_delta(one, adjacency, limit, accountant))
                continue
            spent, most = accountant.epsilon(one, adjacency, 0.0), limit.epsilon
        found.append(math.log(spent / most) if spent > 0.0 else -math.inf)
    return max(found)


def _calibrate_exactly(
    make_event: Callable[[float], Event],
    budget: PrivacyBudget,
    adjacency: Adjacency,
    start: float = 1.0,
    tolerance: float = _EXACT_TOLERANCE,
) -> float:
    multiplier = _root(
        lambda s: excess(make_event(s), adjacency, budget), budget, 0.01 * tolerance, start
    )
    nudge = 1e-6 * tolerance
    while not within_budget(make_event(multiplier), adjacency, budget):
        multiplier *= 1.0 + nudge
        nudge *= 2.0
    return multiplier


def _calibrate_numerically(
    make_event: Callable[[float], Event], limit: ApproximateDP, adjacency: Adjacency, start: float
) -> float:
    """Search on a rough grid, then refine with a few calls of the accurate accountant."""
    example = make_event(1.0)
    accountant = accountant_for(example, adjacency)
    rough: Accountant = _ROUGH if _ROUGH.supports(example, adjacency) else accountant
    if isinstance(accountant, TightestAccountant):
        rough = TightestAccountant((rough, RenyiAccountant()))

    def over_by(accountant: Accountant, multiplier: float) -> float:
        return _excess_of_delta(make_event(multiplier), adjacency, limit, accountant)

    found = _root(functools.partial(over_by, rough), limit, _NUMERICAL_TOLERANCE, start)
    slope = (over_by(rough, 1.02 * found) - over_by(rough, found)) / math.log(1.02)
    found = _refined(functools.partial(over_by, accountant), found, slope)
    if math.isinf(found):
        raise ValueError(_OUT_OF_REACH.format(limit))
    return found


def _refined(over_by: Callable[[float], float], guess: float, slope: float) -> float:
    """Return a multiplier just within a budget, from a guess; ``inf`` if none was found.

    ``slope`` is the derivative of ``over_by`` by the logarithm of the multiplier.
    """
    slope = min(slope, -0.1)
    too_small, best = 0.0, math.inf
    for attempt in range(12):
        over = over_by(guess)
        if over <= 0.0:
            best = min(best, guess)
        else:
            too_small = max(too_small, guess)
        done = best < too_small * (1.0 + 0.5 * _NUMERICAL_TOLERANCE)
        if done or 0.0 >= over > 0.5 * _NUMERICAL_TOLERANCE * slope:
            break
        # Newton's step to a point above the root, further away after each failure.
        guess *= math.exp(min(over, 1.0) / -slope + 1e-4 * 2.0**attempt)
        if not too_small < guess < best:
            guess = math.sqrt(max(too_small, 0.5 * best) * best)
    return best


def _excess_of_delta(
    event: Event, adjacency: Adjacency, limit: ApproximateDP, accountant: Accountant
) -> float:
    delta = max(delta_of(accountant, one, adjacency, limit.epsilon) for one in branches(event))
    most = _MARGIN * limit.delta
    found = math.log(_rough_mu(delta, limit.epsilon) / _rough_mu(most, limit.epsilon))
    return min(found, 0.0) if delta <= most else max(found, math.ulp(1.0))


def _rough_mu(delta: float, epsilon: float) -> float:
    """Solve ``delta = Phi(mu/2 - epsilon/mu)``, the leading term of the formula."""
    x = float(ndtri_exp(math.log(min(max(delta, 1e-300), _ALMOST_ONE))))
    root = math.hypot(x, math.sqrt(2.0 * epsilon))
    return x + root if x > 0.0 else 2.0 * epsilon / (root - x)


def _central_limit(
    make_event: Callable[[float], Event], limit: ApproximateDP, adjacency: Adjacency
) -> float:
    """Return a starting multiplier from a normal approximation of the privacy loss.

    For sampled noise it is too low. It is 1 for events without such losses.
    """
    if not _ROUGH.supports(make_event(1.0), adjacency):
        return 1.0
    largest = limit.gdp_mu()

    def over_by(multiplier: float) -> float:
        parts = [reduce_event(one, adjacency) for one in branches(make_event(multiplier))]
        return math.log(max(part.rows * math.sqrt(part.variance) for part in parts) / largest)

    try:
        return _root(over_by, limit, tolerance=1e-2, start=1.0)
    except ValueError:
        return 1.0


def _root(
    over_by: Callable[[float], float], budget: PrivacyBudget, tolerance: float, start: float
) -> float:
    """Solve ``over_by(multiplier) = 0`` for a decreasing function of the log multiplier."""

    @functools.cache
    def at(log_multiplier: float) -> float:
        return over_by(math.exp(log_multiplier))

    near = math.log(start)
    direction = math.copysign(1.0, at(near))
    step = min(max(1.1 * abs(at(near)), 10.0 * tolerance), 3.0)
    far = near + direction * step
    while direction * at(far) > 0.0:
        step *= 2.0
        near, far = far, far + direction * step
        if abs(near) > _FARTHEST:
            raise ValueError((_OUT_OF_REACH if direction > 0.0 else _NO_NOISE).format(budget))
    return math.exp(float(brentq(at, near, far, xtol=tolerance)))


_FARTHEST = 40.0  # in logarithms
_ALMOST_ONE = 1.0 - 1e-12
_OUT_OF_REACH = (
    "budget {!r} cannot be met by any noise multiplier: the fixed parts of the event cost too "
    "much, or delta is too small for numerical accounting"
)
_NO_NOISE = "budget {!r} is met without any noise: the event does not depend on its multiplier"


# The cost of an event.


def spent(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> dict[str, float | str]:
    """Return the cost of an event in the budget's currency, with the accountant.

    Parameters
    ----------
    event, adjacency, budget
        See ``within_budget``.

    Returns
    -------
    dict
        ``epsilon`` and ``delta`` (at the budget's delta), or ``mu``, or ``rho``; and
        ``accountant`` and ``version``. Numbers are rounded up.

    Examples
    --------
    >>> from dpglm.privacy.budget import ZeroConcentratedDP
    >>> from dpglm.privacy.events import Gaussian
    >>> spent(Gaussian(2.0), Adjacency.ZERO_OUT, ZeroConcentratedDP(1.0))["accountant"]
    'gaussian'
    """
    accountant = accountant_for(event, adjacency)
    signature = {"accountant": accountant.name, "version": accountant.version}
    if isinstance(accountant, GaussianAccountant):
        return {**budget.statement_for_mu(accountant.mu(event, adjacency)), **signature}
    limit = budget.as_approximate_dp()
    epsilon = accountant.epsilon(event, adjacency, limit.delta)
    return {"epsilon": epsilon, "delta": limit.delta, **signature}


# The largest share of a budget that fits next to other releases.

_T = TypeVar("_T")
# Smallest unused part of mu, and the maximum number of trials.
_UNUSED, _MOST_TRIES = 5e-4, 8
_FLATTEST, _STEEPEST, _LONGEST = 0.02, 4.0, 3.0


def largest_share(
    build: Callable[[float], _T],
    excess: Callable[[_T], float],
    start: float,
    slope: float = 1.0,
    most: float = 1.0,
) -> _T | None:
    """Return the plan with the largest share of a budget; None if none was within.

    ``build`` maps a positive share to a plan; ``excess`` of a plan is at most 0 within the budget
    (see ``excess``). The search starts at ``start``, where the excess grows about
    ``slope`` times as fast as the logarithm of the share, and stays at or below ``most``.

    Privacy: the returned plan has passed ``excess(plan) <= 0``.
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
            if over > -_UNUSED or share == most:
                break
        else:
            high = share
        point = math.log(share), max(over, -_LONGEST)
        if last is not None:
            slope = (point[1] - last[1]) / (point[0] - last[0])
        last = point
        # Newton's step, aimed a little below the root.
        step = -(point[1] + 0.5 * _UNUSED) / min(max(slope, _FLATTEST), _STEEPEST)
        share = min(math.exp(point[0] + min(max(step, -_LONGEST), _LONGEST)), most)
        if not low < share < high:
            share = 0.5 * (low + min(high, most))
    return best
