"""Accountants: from events to (epsilon, delta), by a bound on delta as a function of epsilon."""

from __future__ import annotations

import abc
import contextlib
import functools
import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias, final

from scipy.optimize import brentq, minimize_scalar

from dpglm._validation import check_real
from dpglm.exceptions import TooCostlyError
from dpglm.privacy import gdp
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import (
    Composed,
    Event,
    GaussianMechanism,
    MechanismEvent,
    PoissonSampled,
    Repeated,
    canonical,
)
from dpglm.privacy.events.compositions import branches, leaves, needs_public_n

Curve: TypeAlias = Callable[[float], float]
"""A bound on delta as a function of epsilon; it never grows."""


class Accountant(abc.ABC):
    """Computes upper bounds on the privacy loss of an event; stateless.

    Notes
    -----
    Privacy: every number returned is on the safe side. An accountant never guesses: asked
    about an event it does not support it raises ``ValueError``. A row is in one part of each
    event on disjoint parts: bounds are computed for every choice of parts, and the largest is
    returned.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Short name for reports."""

    @property
    def version(self) -> str:
        """The library that computes, and its version."""
        return own_version()

    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        """Whether this accountant can bound the event under the relation of its noise multipliers.

        It cannot for disjoint parts that an added row may change, under add/remove.
        """
        if adjacency is Adjacency.ADD_REMOVE and needs_public_n(event):
            return False
        return all(self._knows(basic) for basic in leaves(event))

    def delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        """Bound delta from above: the event is (epsilon, this)-DP under ``adjacency``.

        Epsilon is finite and at least 0. An event that is not supported is a ValueError.
        """
        return self.curve(event, adjacency)(check_real("epsilon", epsilon, least=0.0))

    def epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        """Bound epsilon from above: the event is (this, delta)-DP under ``adjacency``.

        Delta is in [0, 1); ``inf`` means that no finite epsilon is known. An event that is not
        supported is a ValueError.
        """
        check_real("delta", delta, least=0.0, below=1.0)
        pure = max(self._pure_epsilon(one, adjacency) for one in self._branches(event, adjacency))
        return min(pure, least_epsilon(self.curve(event, adjacency), delta) if delta else pure)

    @final
    def curve(self, event: Event, adjacency: Adjacency) -> Curve:
        """Return the function that ``delta`` computes."""
        curves = [self._curve(one, adjacency) for one in self._branches(event, adjacency)]
        return lambda epsilon: max(one(epsilon) for one in curves)

    def _branches(self, event: Event, adjacency: Adjacency) -> tuple[Event, ...]:
        found = branches(event, adjacency)
        if not self.supports(event, adjacency):
            raise self._refusal(event, adjacency)
        return found

    def _refusal(self, event: Event, adjacency: Adjacency) -> ValueError:
        return ValueError(
            f"event must be one that the {self.name} accountant supports under "
            f"{adjacency.value}, got {canonical(event)!r}"
        )

    @abc.abstractmethod
    def _knows(self, basic: Event) -> bool:
        """Whether this accountant can bound compositions with this basic event in them."""

    def _profile(self, reduced: Reduced) -> Curve:
        """Bound the mechanisms of an event; by default no further than their Gaussian mu does."""
        return _unbounded

    def _plain_curve(self, event: Event, adjacency: Adjacency) -> Curve:
        """Bound delta of a supported event without parallel parts."""
        reduced = reduce_event(event, adjacency)
        return implied_curve(reduced, lambda: self._profile(reduced))

    def _pure_epsilon(self, event: Event, adjacency: Adjacency) -> float:
        """Bound epsilon at a delta of 0."""
        return reduce_event(event, adjacency).pure_epsilon

    def _curve(self, event: Event, adjacency: Adjacency) -> Curve:
        """Bound delta, with pure releases next to sampled ones in a group of their own."""
        # Here, as the choice knows all accountants.
        from dpglm.privacy.accounting.accountants import accountant_for

        bound, groups = self._plain_curve(event, adjacency), pure_group(event, adjacency)
        if groups is None:
            return bound
        rest, pure = groups
        of_rest, best = self._plain_curve(rest, adjacency), accountant_for(pure, adjacency)
        of_pure, top = best.curve(pure, adjacency), best.epsilon(pure, adjacency, 0.0)
        return lambda epsilon: min(bound(epsilon), grouped_delta(of_rest, of_pure, top, epsilon))


# Looking it up takes milliseconds.
@functools.cache
def own_version() -> str:
    """Name this library and its version."""
    try:
        return f"dpglm {importlib.metadata.version('dpglm')}"
    except importlib.metadata.PackageNotFoundError:
        return "dpglm (not installed)"


@final
class GaussianAccountant(Accountant):
    """Exact accounting of Gaussian releases and last iterates.

    Notes
    -----
    Privacy: under adaptive composition the mu of mu-GDP mechanisms add in squares, and for
    Gaussian releases the result is exact (no other accountant can be tighter).

    References
    ----------
    Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, Corollary 2.

    Examples
    --------
    >>> from dpglm.privacy.events import Gaussian, Repeated
    >>> event = Repeated(Gaussian(37.306), 100)
    >>> round(GaussianAccountant().epsilon(event, Adjacency.ZERO_OUT, 1e-5), 4)
    1.0
    """

    name = "gaussian"

    def mu(self, event: Event, adjacency: Adjacency) -> float:
        """Return the mu, rounded up, for which the event is mu-GDP under the relation."""
        found = [gaussian_mu(one) for one in branches(event, adjacency)]
        known = [mu for mu in found if mu is not None]
        if len(known) < len(found):
            raise self._refusal(event, adjacency)
        return max(known)

    def epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        least = self.mu(event, adjacency)
        return gdp.epsilon(check_real("delta", delta, least=0.0, below=1.0), least)

    def _knows(self, basic: Event) -> bool:
        return isinstance(basic, GaussianMechanism)


def gaussian_mu(branch: Event) -> float | None:
    """Return the mu, rounded up, of one of the ``branches`` of an event; None if it is not GDP."""
    squares = []
    for basic, count in branch.terms:
        if not isinstance(basic, GaussianMechanism):
            return None
        squares.append(count * basic.mu**2)
    return math.sqrt(math.fsum(squares)) * (1.0 + 1e-15)


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
    terms = canonical(event).terms
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


def grouped_delta(rest: Curve, pure: Curve, top: float, epsilon: float) -> float:
    """Bound delta of two groups at an epsilon by the least sum found over its splits.

    Above ``top`` delta of the pure group is 0.
    """

    def total(share: float) -> float:
        return min(1.0, rest(epsilon - share) + pure(share))

    best = [total(min(top, epsilon)), total(0.0)]
    if epsilon > 0.0:
        # One of the shares may be tiny, so both are searched on a logarithmic scale.
        shares: tuple[Curve, ...] = (
            lambda log_share: total(epsilon * math.exp(log_share)),
            lambda log_share: total(epsilon * -math.expm1(log_share)),
        )
        for one in shares:
            found = minimize_scalar(
                lambda log_share, one=one: math.log(max(one(log_share), 1e-300)),
                bounds=(_SMALLEST, math.log(0.5)),
                method="bounded",
                options=_FINE,
            )
            best.append(one(float(found.x)))
    return min(best)


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
    terms = canonical(event).terms
    in_pairs = adjacency is Adjacency.REPLACE_ONE and any(
        isinstance(basic, PoissonSampled) for basic, _ in terms
    )
    stretch = 2.0 if in_pairs else 1.0
    squares: list[float] = []
    others: list[tuple[MechanismEvent, int]] = []
    for basic, count in terms:
        if not isinstance(basic, MechanismEvent):
            raise ValueError(f"event must consist of mechanisms, got {basic!r}")
        mechanism = basic if stretch == 1.0 else basic.quieter(stretch)
        if isinstance(mechanism, GaussianMechanism):
            squares.append(count * mechanism.mu**2)
        else:
            others.append((mechanism, count))
    plain = [*squares, *(count * one.plain_mu**2 for one, count in others)]
    mu, plain_mu = (math.sqrt(math.fsum(some)) * (1.0 + 1e-15) for some in (squares, plain))
    return Reduced(
        mu,
        tuple(others),
        Adjacency.ZERO_OUT if in_pairs else adjacency,
        rows=2 if in_pairs else 1,
        plain_mu=stretch * plain_mu,
    )


def _unbounded(epsilon: float) -> float:
    """Bound the delta of losses out of reach."""
    return 1.0


def implied_curve(reduced: Reduced, make_profile: Callable[[], Curve]) -> Curve:
    """Bound delta of the event from the profile of its mechanisms for one row, made when needed.

    Privacy: three bounds hold, and the least is taken: the profile (by ``group_delta`` for two
    rows), pure differential privacy, and the same event without sampling. Sampling never
    hurts: telling everyone which rows were drawn only helps an attacker, and then the release
    either is the one without sampling or does not depend on the row at all.
    """
    profile_of = functools.cache(make_profile)
    # Whether losses are neither so small nor so large that numerical accounting breaks.
    largest = max((26.0 * reduced.mu, *(one.span() for one, _ in reduced.others)))
    in_reach = not reduced.others or (
        reduced.cell(0.03, 50_000) >= _SHORTEST and largest <= _LONGEST
    )

    def delta(epsilon: float) -> float:
        if epsilon >= reduced.pure_epsilon:
            return 0.0
        profile = profile_of() if in_reach else _unbounded
        bound = profile(epsilon) if reduced.rows == 1 else group_delta(profile, epsilon)
        return min(1.0, bound, gdp.delta(epsilon, reduced.plain_mu) * (1.0 + 1e-12))

    return delta


def group_delta(delta: Curve, epsilon: float) -> float:
    """Delta at ``epsilon`` for two rows, given the curve of one row.

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


def least_epsilon(delta: Curve, target: float) -> float:
    """Return the point where a curve reaches ``target``, to 1e-9, from above.

    The result has passed the comparison. It has nine digits where these pass, so that a budget of
    epsilon 0.1 is not reported as slightly more. It is ``inf`` if it would be far above 1e6, and
    for a target of 0 that the curve does not have at 0.
    """
    delta = functools.cache(delta)
    # At 0 a curve may need too large a grid; the result is a bound without it, too.
    with contextlib.suppress(TooCostlyError):
        if delta(0.0) <= target:
            return 0.0
    if target == 0.0:
        return math.inf

    def excess(epsilon: float) -> float:
        return math.log(max(delta(epsilon), 1e-300) / target)

    bad, good = 0.0, 1.0
    while excess(good) > 0.0:
        bad, good = good, 2.0 * good
        if bad > _LARGEST_EPSILON:
            return math.inf
    # Bounds are uneven in their last digits.
    found, step = float(brentq(excess, bad, good, xtol=1e-300, rtol=1e-9)), 1e-9
    while excess(found) > 0.0:
        found, step = min(good, found * (1.0 + step)), 2.0 * step
    short = float(f"{found:.9g}")
    return short if short < found and excess(short) <= 0.0 else found


_LARGEST_EPSILON = 1e6
# Width of a cell of the grid, and span of the losses of one mechanism.
_SHORTEST, _LONGEST = 1e-13, 1e5
