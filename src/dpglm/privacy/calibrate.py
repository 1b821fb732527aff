"""From a budget to the noise it needs, and from what happened to what it spent."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from scipy.optimize import brentq

from dpglm.privacy.accountant import check_parallel_parts
from dpglm.privacy.accountants import (
    Accountant,
    FourierAccountant,
    GaussianAccountant,
    MixtureAccountant,
    RenyiAccountant,
    TightestAccountant,
    accountant_for,
)
from dpglm.privacy.branches import branches
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.events import Event
from dpglm.privacy.reduction import Pieces, reduce_event
from dpglm.privacy.unit import Adjacency

__all__ = ["calibrate", "spent", "within_budget"]

# A tenth of a per cent of noise is far below what a user can notice.
_NUMERICAL_TOLERANCE = 1e-3
_EXACT_TOLERANCE = 1e-6


def calibrate(
    make_event: Callable[[float], Event], budget: PrivacyBudget, adjacency: Adjacency
) -> float:
    """Find the smallest noise multiplier whose event is within a budget.

    Parameters
    ----------
    make_event : callable
        Maps a noise multiplier to the event that will happen with it. More noise must never
        cost more privacy.
    budget : PrivacyBudget
        The most that may be spent.
    adjacency : Adjacency
        The relation to which noise multipliers refer.

    Returns
    -------
    float
        Above 0. At most 1e-9 (Gaussian throughout), 1e-6 (other exact accounting) or 1e-3
        (numerical accounting) above the smallest one, relatively.

    Raises
    ------
    ValueError
        If parts of the event are about disjoint parts of the rows, under add/remove; if no
        multiplier in reach is within the budget (parts of the event that do not depend
        on it cost too much, or delta is below what numerical accounting resolves), if the
        smallest multiplier is 0 because the event does not depend on it, or if the budget
        cannot be met by such events at all (delta of 0 for Gaussian noise; a mu-GDP or zCDP
        budget for events that are not Gaussian throughout).

    Notes
    -----
    Privacy: the returned multiplier has itself passed ``within_budget``.

    Examples
    --------
    >>> from dpglm.privacy.budget import ApproximateDP
    >>> from dpglm.privacy.events import Gaussian, Repeated
    >>> budget = ApproximateDP(1.0, 1e-5)
    >>> round(calibrate(lambda s: Repeated(Gaussian(s), 100), budget, Adjacency.ZERO_OUT), 3)
    37.306
    """
    check_parallel_parts(make_event(1.0), adjacency)
    if GaussianAccountant().supports(make_event(1.0), adjacency):
        return _calibrate_exactly(make_event, budget, adjacency)
    if MixtureAccountant().supports(make_event(1.0), adjacency):
        return _calibrate_by_delta(make_event, budget, adjacency)
    return _calibrate_numerically(make_event, budget, adjacency)


def within_budget(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> bool:
    """Whether an event spends no more than a budget.

    Parameters
    ----------
    event : Event
        What happens or happened.
    adjacency : Adjacency
        The relation to which noise multipliers refer.
    budget : PrivacyBudget
        The most that may be spent. One given as mu-GDP or zCDP can only be compared with
        events that are Gaussian throughout.

    Returns
    -------
    bool
        True only if an accountant shows it.

    Raises
    ------
    ValueError
        If the event is not Gaussian throughout, and the budget is not (epsilon, delta), or if
        parts of it are about disjoint parts of the rows, under add/remove.
    """
    check_parallel_parts(event, adjacency)
    exact = GaussianAccountant()
    if exact.supports(event, adjacency):
        return budget.allows_mu(exact.mu(event, adjacency))
    limit = budget.as_approximate_dp()
    accountant = accountant_for(event, adjacency)
    return accountant.epsilon(event, adjacency, limit.delta) <= limit.epsilon


def spent(event: Event, adjacency: Adjacency, budget: PrivacyBudget) -> dict[str, float | str]:
    """Say what an event spends, in the budget's currency, and who computed it.

    Parameters
    ----------
    event, adjacency, budget
        As for ``within_budget``.

    Returns
    -------
    dict
        ``epsilon`` and ``delta`` (at the budget's delta), or ``mu``, or ``rho``; and
        ``accountant`` and ``version``. Numbers are rounded up.

    Raises
    ------
    ValueError
        As for ``within_budget``.

    Examples
    --------
    >>> from dpglm.privacy.budget import ZeroConcentratedDP
    >>> from dpglm.privacy.events import Gaussian
    >>> spent(Gaussian(2.0), Adjacency.ZERO_OUT, ZeroConcentratedDP(1.0))["accountant"]
    'gaussian'
    """
    accountant = accountant_for(event, adjacency)
    signature = {"accountant": accountant.name, "version": accountant.version}
    exact = GaussianAccountant()
    if exact.supports(event, adjacency):
        return {**budget.statement_for_mu(exact.mu(event, adjacency)), **signature}
    limit = budget.as_approximate_dp()
    epsilon = accountant.epsilon(event, adjacency, limit.delta)
    return {"epsilon": epsilon, "delta": limit.delta, **signature}


def _calibrate_exactly(
    make_event: Callable[[float], Event], budget: PrivacyBudget, adjacency: Adjacency
) -> float:
    accountant = GaussianAccountant()
    largest_mu = budget.gdp_mu()
    root = _root(
        lambda multiplier: accountant.mu(make_event(multiplier), adjacency) / largest_mu, budget
    )
    return _round_up(root, make_event, budget, adjacency)


def _calibrate_by_delta(
    make_event: Callable[[float], Event], budget: PrivacyBudget, adjacency: Adjacency
) -> float:
    limit = budget.as_approximate_dp()
    if limit.delta == 0.0:
        budget.gdp_mu()  # raises: Gaussian noise and a delta of 0
    accountant = MixtureAccountant()
    root = _root(
        lambda multiplier: (
            accountant.delta(make_event(multiplier), adjacency, limit.epsilon) / limit.delta
        ),
        budget,
        tolerance=0.1 * _EXACT_TOLERANCE,
        start=_central_limit(make_event, budget, adjacency),
    )
    return _round_up(root, make_event, budget, adjacency, nudge=0.1 * _EXACT_TOLERANCE)


def _calibrate_numerically(
    make_event: Callable[[float], Event], budget: PrivacyBudget, adjacency: Adjacency
) -> float:
    limit = budget.as_approximate_dp()
    exact = accountant_for(make_event(1.0), adjacency)
    if limit.delta == 0.0:
        if math.isinf(exact.epsilon(make_event(1.0), adjacency, 0.0)):
            budget.gdp_mu()  # raises: Gaussian noise and a delta of 0
        root = _root(
            lambda multiplier: (
                exact.epsilon(make_event(multiplier), adjacency, 0.0) / limit.epsilon
            ),
            budget,
        )
        return _round_up(root, make_event, budget, adjacency)

    # The grid of PLDAccountant, convolved faster, finds the place; a call or two of the slow
    # accountant then settle it.
    coarse: Accountant = FourierAccountant(cell_fraction=0.03, most_cells=50_000)
    if not coarse.supports(make_event(1.0), adjacency):
        coarse = exact
    if isinstance(exact, TightestAccountant):
        coarse = TightestAccountant((coarse, RenyiAccountant()))

    def coarse_share(multiplier: float, stretch: float = 1.0) -> float:
        at = stretch * limit.epsilon
        return coarse.delta(make_event(multiplier), adjacency, at) / limit.delta

    start = _central_limit(make_event, budget, adjacency)
    guess = _root(coarse_share, budget, tolerance=1e-4, start=start) * (1.0 + 2e-4)
    # How fast log(epsilon) falls with the logarithm of the multiplier, at a fixed delta.
    here = max(coarse_share(guess), 1e-300)
    by_noise = math.log(max(coarse_share(1.01 * guess), 1e-300) / here)
    by_epsilon = math.log(max(coarse_share(guess, 1.01), 1e-300) / here)
    slope = min(-by_noise / min(by_epsilon, -1e-6), -0.1)
    too_small, best = 0.0, math.inf
    for attempt in range(12):
        epsilon = exact.epsilon(make_event(guess), adjacency, limit.delta)
        over = epsilon / limit.epsilon - 1.0
        if over <= 0.0:
            best = min(best, guess)
        else:
            too_small = max(too_small, guess)
        settled = best < too_small * (1.0 + 0.5 * _NUMERICAL_TOLERANCE)
        if settled or 0.0 >= over > 0.5 * _NUMERICAL_TOLERANCE * slope:
            break
        # Newton's step, aimed a little above the root, further after each failure.
        guess *= math.exp(min(over, 1.0) / -slope + 1e-4 * 2.0**attempt)
        if not too_small < guess < best:
            guess = math.sqrt(max(too_small, 0.5 * best) * best)
    if math.isinf(best):
        raise ValueError(_OUT_OF_REACH.format(budget))
    return best


def _central_limit(
    make_event: Callable[[float], Event], budget: PrivacyBudget, adjacency: Adjacency
) -> float:
    """Guess a multiplier from the variance of the privacy losses, as if their sum were normal.

    Only ever where a search starts: for sampled noise such a guess is too low. It is 1 for
    events that are not sums of such losses.
    """
    if not FourierAccountant().supports(make_event(1.0), adjacency):
        return 1.0

    def mu(multiplier: float) -> float:
        parts = [reduce_event(one, adjacency) for one in branches(make_event(multiplier))]
        return max(part.rows * math.sqrt(_variance(part)) for part in parts)

    try:
        return _root(lambda multiplier: mu(multiplier) / budget.gdp_mu(), budget, tolerance=1e-3)
    except ValueError:
        return 1.0


def _variance(pieces: Pieces) -> float:
    return pieces.mu**2 + sum(one.count * one.variance() for one in pieces.others)


def _root(
    spent_share: Callable[[float], float],
    budget: PrivacyBudget,
    tolerance: float = 1e-11,
    start: float = 1.0,
) -> float:
    """Solve ``spent_share(multiplier) = 1`` for a decreasing function, in logarithms."""

    @functools.cache
    def excess(log_multiplier: float) -> float:
        share = spent_share(math.exp(log_multiplier))
        return math.log(share) if share > 1e-300 else -700.0

    near = math.log(start)
    direction = 1.0 if excess(near) > 0.0 else -1.0
    step = 0.1
    far = near + direction * step
    while direction * excess(far) > 0.0:
        step *= 2.0
        near, far = far, far + direction * step
        if abs(near) > _FARTHEST:
            raise ValueError((_OUT_OF_REACH if direction > 0.0 else _NO_NOISE).format(budget))
    return math.exp(float(brentq(excess, near, far, xtol=tolerance)))


def _round_up(
    multiplier: float,
    make_event: Callable[[float], Event],
    budget: PrivacyBudget,
    adjacency: Adjacency,
    nudge: float = 1e-15,
) -> float:
    while not within_budget(make_event(multiplier), adjacency, budget):
        multiplier *= 1.0 + nudge
        nudge *= 2.0
    return multiplier


_FARTHEST = 40.0  # in logarithms
_OUT_OF_REACH = (
    "budget {!r} cannot be met by any noise multiplier: parts of the event that do not depend on "
    "it cost too much, or delta is too small for numerical accounting"
)
_NO_NOISE = "budget {!r} is met without any noise: the event does not depend on its multiplier"
