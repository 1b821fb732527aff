"""Reduction of an event to losses for numerical accountants, and bounds from the result."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

from scipy.optimize import brentq, minimize_scalar

from dpglm.privacy import gdp
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    Composed,
    Event,
    GaussianMechanism,
    MechanismEvent,
    PoissonSampled,
    Repeated,
    canonical,
)

# Pure releases together with sampled ones under replace-one: two groups, composed as pairs.

_FINE: Any = {"maxiter": 30, "xatol": 1e-3}
_SMALLEST = math.log(1e-6)


def pure_group(event: Event, adjacency: Adjacency) -> tuple[Event, Event] | None:
    """Split off the events that the detour through the erased row would charge twice.

    Returns all other events, and the events with an epsilon that does not come from a noise
    multiplier. Returns None unless the relation is replace-one and there are both these and sampled
    releases.

    Privacy: *if the pure events together are (e, d)-DP and all others (e', d')-DP, each group under
    replace-one, then everything is (e + e', d + d')-DP, in any adaptive order.* Proof: fix
    neighbours D and D'. The i-th pure event is dominated by a pair ``(P_i, Q_i)`` that its epsilon
    determines, so by Blackwell's theorem its output, given the past, is a randomised map of a draw
    from P_i (for D) or Q_i (for D'). Make all these draws first: together they are (e, d)-DP. Given
    them, the rest is an adaptive composition of the other events, which is (e', d')-DP, and of maps
    that are the same for D and D'. Sequential composition of the two (Dwork and Roth 2014, Theorem
    B.1) gives the sum. The same holds for any split of epsilon and delta that is fixed in advance,
    and the minimum over splits depends on the event only.

    Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Theorem B.1.
    """
    terms = canonical(event).terms()
    sampled = any(isinstance(basic, PoissonSampled) for basic, _ in terms)
    if adjacency is not Adjacency.REPLACE_ONE or not sampled:
        return None
    pure: list[Event] = []
    rest: list[Event] = []
    for basic, count in terms:
        charged_twice = isinstance(basic, MechanismEvent) and basic.quieter(2.0) is basic
        group = pure if charged_twice else rest
        group.append(Repeated(basic, count))
    if not pure:
        return None
    return canonical(Composed(tuple(rest))), canonical(Composed(tuple(pure)))


def grouped_delta(
    rest: Callable[[float], float], pure: Callable[[float], float], top: float, epsilon: float
) -> float:
    """Bound delta of two groups at an epsilon by the least sum found over its splits.

    Above ``top`` delta of the pure group is 0.
    """

    def total(share: float) -> float:
        return min(1.0, rest(epsilon - share) + pure(share))

    best = [total(min(top, epsilon)), total(0.0)]
    if epsilon > 0.0:
        # One of the shares may be tiny, so both are searched on a logarithmic scale.
        shares: tuple[Callable[[float], float], ...] = (
            lambda log_share: total(epsilon * math.exp(log_share)),
            lambda log_share: total(epsilon * -math.expm1(log_share)),
        )
        best += [_least(one) for one in shares]
    return min(best)


def grouped_epsilon(
    rest: Callable[[float], float], pure: Callable[[float], float], delta: float
) -> float:
    """Bound epsilon of two groups at a delta, given epsilon of each as a function of delta."""

    def total(share: float) -> float:
        return rest((1.0 - share) * delta) + pure(share * delta)

    found = minimize_scalar(
        lambda log_share: total(math.exp(log_share)),
        bounds=(math.log(1e-3), math.log(0.999)),
        method="bounded",
        options=_FINE,
    )
    return min(total(0.0), float(found.fun))


def _least(function: Callable[[float], float]) -> float:
    """Look for the least value of a positive function of the logarithm of a share."""
    found = minimize_scalar(
        lambda log_share: math.log(max(function(log_share), 1e-300)),
        bounds=(_SMALLEST, math.log(0.5)),
        method="bounded",
        options=_FINE,
    )
    return function(float(found.x))


@dataclass(frozen=True)
class Reduced:
    """The mechanisms of an event, all Gaussian-DP ones joined into one.

    ``mu`` is that of all mu-GDP mechanisms together, 0 without any; ``others`` run so often each,
    under ``adjacency``. ``rows`` is 2 if the claim is about two rows zeroed out in turn. Without
    sampling the event is ``plain_mu``-GDP; ``inf`` if not all is Gaussian.
    """

    mu: float
    others: tuple[tuple[MechanismEvent, int], ...]
    adjacency: Adjacency
    rows: int
    plain_mu: float

    @property
    def count(self) -> int:
        """How many privacy losses are added up."""
        return (self.mu > 0.0) + sum(count for _, count in self.others)

    @property
    def pure_epsilon(self) -> float:
        """Epsilon of pure differential privacy, rounded up; ``inf`` if there is none."""
        parts = [(one.pure_epsilon, count) for one, count in self.others]
        finite = [epsilon * count for epsilon, count in parts if epsilon is not None]
        if self.mu > 0.0 or len(finite) < len(parts):
            return math.inf
        exact = sum(finite, Fraction(0))
        rounded = float(exact)
        return rounded if rounded >= exact else math.nextafter(rounded, math.inf)

    @property
    def in_reach(self) -> bool:
        """Whether losses are neither so small nor so large that numerical accounting breaks."""
        if not self.others:
            return True
        spans = [one.span() for one, _ in self.others]
        return self.cell(0.03, 50_000) >= _SHORTEST and max(26.0 * self.mu, *spans) <= _LONGEST

    @property
    def variance(self) -> float:
        """Approximate variance of the sum of all losses."""
        return self.mu * self.mu + sum(count * one.variance() for one, count in self.others)

    def cell(self, fraction: float, most_cells: int) -> float:
        """Width of the grid on which privacy losses are rounded; 1 if there is nothing.

        It is ``fraction`` of the root mean square of the mechanisms' loss standard deviations: a
        rounding that keeps both total masses adds at most ``width^2 / 4`` to each variance. No
        mechanism's losses, within 13 standard deviations of the noise, take up many more cells
        than ``most_cells``.
        """
        if self.count == 0:
            return 1.0
        widest = max((26.0 * self.mu, *(one.span() for one, _ in self.others)))
        width = max(fraction * math.sqrt(self.variance / self.count), widest / most_cells)
        # Much of a Laplace mechanism's loss sits at its maximum: put the largest on the grid.
        atom = max((one.largest_atom for one, _ in self.others), default=0.0)
        return atom / math.ceil(atom / width) if atom >= width else width


def reduce_event(event: Event, adjacency: Adjacency) -> Reduced:
    """Return the losses to convolve for an event without parallel parts.

    Under replace-one with a Poisson-sampled mechanism: the event under zero-out, with ``rows = 2``.

    Privacy: for a Poisson-sampled Gaussian the dominating pair is ``(1-q) N(0, s^2) + q N(1, s^2)``
    against ``N(0, s^2)``, in both orders, under zero-out and add/remove. Under replace-one no
    single dominating pair is proved, so the claim goes through the data set in which the row is
    erased: the noise is ``s 2C``, which under zero-out is a multiplier of ``2 s``. See
    ``group_delta``. A release without a sample also has a multiplier of ``2 s`` there, however far
    erasing the row would move it: the midpoint of the sums of the two data sets, at half of their
    distance from either, replaces the sum without the row. An epsilon that does not come from a
    noise multiplier is not halved, because erasing a row is one way to replace it.
    """
    terms = canonical(event).terms()
    in_pairs = adjacency is Adjacency.REPLACE_ONE and any(
        isinstance(basic, PoissonSampled) for basic, _ in terms
    )
    stretch = 2.0 if in_pairs else 1.0
    squares: list[float] = []
    plain: list[float] = []
    others: list[tuple[MechanismEvent, int]] = []
    for basic, count in terms:
        if not isinstance(basic, MechanismEvent):
            raise ValueError(f"event must consist of mechanisms, got {basic!r}")
        mechanism = basic.quieter(stretch)
        plain.append(count * mechanism.plain_mu**2)
        if isinstance(mechanism, GaussianMechanism):
            squares.append(count * mechanism.mu**2)
        else:
            others.append((mechanism, count))
    return Reduced(
        _root_up(squares),
        tuple(others),
        Adjacency.ZERO_OUT if in_pairs else adjacency,
        rows=2 if in_pairs else 1,
        plain_mu=stretch * _root_up(plain),
    )


class Profile(abc.ABC):
    """Upper bounds on delta and epsilon of the composed mechanisms, for one row."""

    @abc.abstractmethod
    def delta(self, epsilon: float) -> float:
        """Bound delta at an epsilon of at least 0."""

    @abc.abstractmethod
    def epsilon(self, delta: float) -> float:
        """Bound epsilon at a delta in [0, 1)."""


@final
class _NoProfile(Profile):
    """Losses out of reach have no bound."""

    def delta(self, epsilon: float) -> float:
        return 1.0

    def epsilon(self, delta: float) -> float:
        return math.inf


NO_PROFILE = _NoProfile()


def implied_delta(reduced: Reduced, make_profile: Callable[[], Profile], epsilon: float) -> float:
    """Bound delta of the event from the profile of its mechanisms.

    Privacy: three bounds hold, and the least is taken: the profile (by ``group_delta`` for two
    rows), pure differential privacy, and the same event without sampling. Sampling never
    hurts: telling everyone which rows were drawn only helps an attacker, and then the release
    either is the one without sampling or does not depend on the row at all.
    """
    if epsilon >= reduced.pure_epsilon:
        return 0.0
    profile = make_profile() if reduced.in_reach else NO_PROFILE
    bound = profile.delta(epsilon) if reduced.rows == 1 else group_delta(profile.delta, epsilon)
    return min(1.0, bound, gdp.delta(epsilon, reduced.plain_mu) * (1.0 + 1e-12))


def implied_epsilon(reduced: Reduced, make_profile: Callable[[], Profile], delta: float) -> float:
    """Bound epsilon of the event from the profile of its mechanisms; see ``implied_delta``."""
    if delta == 0.0:
        return reduced.pure_epsilon
    profile = make_profile() if reduced.in_reach else NO_PROFILE
    bound = profile.epsilon(delta) if reduced.rows == 1 else group_epsilon(profile, delta)
    return min(bound, reduced.pure_epsilon, gdp.epsilon(delta, reduced.plain_mu))


def group_delta(delta: Callable[[float], float], epsilon: float) -> float:
    """Delta at ``epsilon`` for two rows, given the delta of one row as a function.

    Privacy: let D, D', D'' be data sets, consecutive ones neighbours, and ``e = epsilon/2``,
    ``d = delta(e)``. For every event S, ``P(S) <= exp(e) P'(S) + d`` and
    ``P'(S) <= exp(e) P''(S) + d``, so ``P(S) <= exp(2e) P''(S) + (1 + exp(e)) d``.
    """
    half = 0.5 * epsilon
    single = delta(half)
    if single == 0.0:
        return 0.0
    log_bound = math.log(single) + half + math.log1p(math.exp(-half))
    return math.exp(min(0.0, log_bound))


def group_epsilon(profile: Profile, target: float) -> float:
    """Return epsilon at delta ``target`` for two rows, given the profile of one row.

    Privacy: any epsilon with ``group_delta`` at most ``target`` is a bound; the result has passed
    that check.
    """
    least = profile.epsilon(0.5 * target)
    half = least_epsilon(
        lambda half: group_delta(profile.delta, 2.0 * half),
        target,
        (least, 1.5 * least + 0.1),
        _LARGEST_HALF,
    )
    return 2.0 * half


def least_epsilon(
    delta: Callable[[float], float], target: float, between: tuple[float, float], largest: float
) -> float:
    """Return the point where a decreasing bound on delta reaches ``target``, to 1e-9, from above.

    The search starts from the first of two guesses; the second may be too small. The result has
    passed the comparison; it is ``inf`` if it would be far above ``largest``.
    """

    def excess(epsilon: float) -> float:
        return math.log(max(delta(epsilon), 1e-300) / target)

    bad, good = between
    if excess(bad) <= 0.0:
        return bad
    while excess(good) > 0.0:
        bad, good = good, 2.0 * good
        if bad > largest:
            return math.inf
    # Bounds are uneven in their last digits.
    found, step = float(brentq(excess, bad, good, rtol=1e-9)), 1e-9
    while excess(found) > 0.0:
        found, step = min(good, found * (1.0 + step)), 2.0 * step
    return found


_LARGEST_HALF = 700.0
# Width of a cell of the grid, and span of the losses of one mechanism.
_SHORTEST, _LONGEST = 1e-13, 1e5


def _root_up(squares: list[float]) -> float:
    return math.sqrt(math.fsum(squares)) * (1.0 + 1e-15)
