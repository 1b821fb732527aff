"""Accounting by Renyi divergences, the tightest way known for many exponential mechanisms."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import expit, log_ndtr

from dpglm._validation import check_real
from dpglm.privacy.accounting.accountant import Accountant, own_version
from dpglm.privacy.accounting.losses.laws import Array
from dpglm.privacy.accounting.losses.moments import PlaneMoments
from dpglm.privacy.accounting.losses.pieces import (
    BoundedRangePiece,
    LaplacePiece,
    PerturbedPiece,
    Piece,
    ProjectedPiece,
    PurePiece,
)
from dpglm.privacy.accounting.reduction import (
    Pieces,
    Profile,
    implied_delta,
    implied_epsilon,
    reduce_event,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import (
    Composed,
    Event,
    PoissonSampled,
    RandomlyRepeated,
    Repeated,
    canonical,
)
from dpglm.privacy.events.branches import has_parallel_parts, leaves
from dpglm.privacy.selection.repetitions import Repetitions

__all__ = ["RenyiAccountant"]

# Orders minus 1 on a logarithmic scale; the best is then looked for among finer ones around it.
_LOWEST, _HIGHEST, _COARSE, _FINE = 1e-6, 1e10, 400, 60


@final
class RenyiAccountant(Accountant):
    """Accounting by Renyi differential privacy of every real order above 1.

    Notes
    -----
    Privacy: Renyi divergences of order a add up under adaptive composition, and a release
    with divergence at most R(a) in both orders of the data sets has
    ``log delta(e) <= (a - 1) (R(a) - e + log(1 - 1/a)) - log(a)`` for each a: the bound is the
    least over many a. Covers every event but Poisson-sampled ones. Only for many exponential
    mechanisms (``BoundedRange``, ``a epsilon^2 / 8``) is it tighter than other accountants, and
    only it composes random repetitions with other events. The best of a random number of tries
    with mean m and ``log_ratio`` r has a divergence of at most ``R(a) + r + log(m) / (a - 1)``;
    where there may be no try, its probability is added to the moment.

    References
    ----------
    Mironov, "Renyi differential privacy", CSF 2017, Propositions 1, 6 and 7. Canonne, Kamath
    and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020, Proposition 12.
    Bun and Steinke, "Concentrated differential privacy", TCC 2016, Proposition 3.3. Cesar and
    Rogers, "Bounding, concentrating, and truncating", ALT 2021. Papernot and Steinke, ICLR
    2022, Lemma 7.

    Examples
    --------
    >>> from dpglm.privacy.events import BoundedRange, Repeated
    >>> choices = Repeated(BoundedRange(0.1), 200)
    >>> round(RenyiAccountant().epsilon(choices, Adjacency.ZERO_OUT, 1e-6), 3)
    3.542
    """

    @property
    def name(self) -> str:
        return "renyi"

    @property
    def version(self) -> str:
        return f"{own_version()}, numpy {importlib.metadata.version('numpy')}"

    def _knows(self, basic: Event) -> bool:
        if isinstance(basic, RandomlyRepeated):
            return not any(map(has_parallel_parts, basic.events)) and all(
                self._knows(inner) for one in basic.events for inner in leaves(one)
            )
        return not isinstance(basic, PoissonSampled)

    def divergence(self, event: Event, adjacency: Adjacency, order: float) -> float:
        """Bound the divergence in both orders of the data sets.

        Parameters
        ----------
        event : Event
            What is released.
        adjacency : Adjacency
            The relation to which the event's noise multipliers refer.
        order : float
            Order of the divergence, above 1.

        Returns
        -------
        float
            At least 0; ``inf`` where there is no bound.

        Raises
        ------
        ValueError
            If ``supports`` says no.
        """
        excess = np.array([check_real("order", order, above=1.0) - 1.0])
        return max(
            float(_RenyiProfile(*_split(one, adjacency)).divergence(excess)[0])
            for one in self._branches(event, adjacency)
        )

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        pieces, repeated = _split(event, adjacency)
        if repeated:
            return _RenyiProfile(pieces, repeated).delta(epsilon)
        return implied_delta(pieces, lambda: _RenyiProfile(pieces), epsilon)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        pieces, repeated = _split(event, adjacency)
        if repeated:
            return _RenyiProfile(pieces, repeated).epsilon(delta) if delta > 0.0 else math.inf
        return implied_epsilon(pieces, lambda: _RenyiProfile(pieces), delta)


@final
@dataclass(frozen=True)
class _Tries:
    """One ``RandomlyRepeated``: the profiles of what a try can be, the law, and how often."""

    profiles: tuple[_RenyiProfile, ...]
    repetitions: Repetitions
    count: int

    @functools.cached_property
    def log_ratio(self) -> float:
        return self.repetitions.log_ratio(
            lambda epsilon: max(one.delta(epsilon) for one in self.profiles)
        )

    def divergence(self, excess: Array) -> Array:
        one = np.max([profile.divergence(excess) for profile in self.profiles], axis=0)
        moment = math.log(self.repetitions.mean) + excess * (one + self.log_ratio)
        with np.errstate(divide="ignore"):
            moment = np.logaddexp(moment, np.log(self.repetitions.none))
        return np.asarray(moment / excess)


@final
class _RenyiProfile(Profile):
    def __init__(self, pieces: Pieces, repeated: tuple[_Tries, ...] = ()) -> None:
        self._pieces = pieces
        self._repeated = repeated

    def delta(self, epsilon: float) -> float:
        def log_delta(excess: Array) -> Array:
            return excess * (self._moved(excess) - epsilon) - np.log1p(excess)

        return math.exp(min(0.0, _least(log_delta)))

    def epsilon(self, delta: float) -> float:
        log_delta = math.log(delta)
        bound = _least(lambda excess: self._moved(excess) - (log_delta + np.log1p(excess)) / excess)
        return max(0.0, bound) * (1.0 + 1e-12)

    def _moved(self, excess: Array) -> Array:
        """Divergence plus ``log(1 - 1/a)`` for orders ``a = 1 + excess``."""
        return np.asarray(self.divergence(excess) + np.log(excess) - np.log1p(excess))

    def divergence(self, excess: Array) -> Array:
        """Divergence for orders ``1 + excess``."""
        total = 0.5 * (1.0 + excess) * self._pieces.mu**2
        for piece in self._pieces.others:
            total = total + piece.count * _DIVERGENCE[type(piece)](piece, excess)
        for tries in self._repeated:
            total = total + tries.count * tries.divergence(excess)
        return np.asarray(total)


def _split(event: Event, adjacency: Adjacency) -> tuple[Pieces, tuple[_Tries, ...]]:
    """Reduce what is not randomly repeated, and what is by itself."""
    plain: list[Event] = []
    repeated: list[_Tries] = []
    for basic, count in canonical(event).terms():
        if isinstance(basic, RandomlyRepeated):
            profiles = tuple(_RenyiProfile(*_split(one, adjacency)) for one in basic.events)
            repeated.append(_Tries(profiles, basic.repetitions, count))
        else:
            plain.append(Repeated(basic, count))
    return reduce_event(Composed(tuple(plain)), adjacency), tuple(repeated)


def _least(function: Callable[[Array], Array]) -> float:
    """Evaluate a function at many orders and return its least value; any order is valid."""
    logs = np.linspace(math.log(_LOWEST), math.log(_HIGHEST), _COARSE)
    for _ in range(2):
        best = int(np.argmin(function(np.exp(logs))))
        around = logs[max(best - 1, 0)], logs[min(best + 1, logs.size - 1)]
        logs = np.linspace(*around, _FINE)
    return float(np.min(function(np.exp(logs))))


def _laplace(piece: LaplacePiece, excess: Array) -> Array:
    # log( a/(2a-1) exp((a-1)/b) + (a-1)/(2a-1) exp(-a/b) ) / (a-1), the first exponent in front.
    twice = 1.0 + 2.0 * excess
    share = np.log1p(excess / twice * np.expm1(-twice / piece.scale))
    return np.asarray(1.0 / piece.scale + share / excess)


def _pure(piece: PurePiece, excess: Array) -> Array:
    # log( p exp((a-1) e) + (1-p) exp(-(a-1) e) ) / (a-1) with p = 1/(1 + exp(-e)).
    lower = float(expit(-piece.epsilon))
    share = np.log1p(lower * np.expm1(-2.0 * excess * piece.epsilon))
    return np.asarray(piece.epsilon + share / excess)


def _bounded_range(piece: BoundedRangePiece, excess: Array) -> Array:
    return np.minimum((1.0 + excess) * piece.epsilon**2 / 8.0, piece.epsilon)


def _perturbed(piece: PerturbedPiece, excess: Array) -> Array:
    if piece.replaced:
        moments = PlaneMoments(piece.shift, piece.slope, 1)
        tilts = np.minimum(excess, moments.limit)
        divergence = moments.logarithm(tilts.astype(np.complex128))[0].real / tilts
        return np.where(excess <= moments.limit, divergence, np.inf)
    tilt = piece.slope * excess
    moment = math.log(2.0) + 0.5 * tilt**2 + log_ndtr(tilt)
    return np.asarray(piece.shift + 0.5 * piece.slope**2 + moment / excess)


def _projected(piece: ProjectedPiece, excess: Array) -> Array:
    used = (1.0 + excess) * excess / (piece.dimension * piece.sigma**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = -0.5 * piece.dimension * np.log1p(-used) / excess
    return np.where(used < 1.0, divergence, np.inf)


_DIVERGENCE: dict[type[Piece], Callable[[Any, Array], Array]] = {
    LaplacePiece: _laplace,
    PurePiece: _pure,
    BoundedRangePiece: _bounded_range,
    PerturbedPiece: _perturbed,
    ProjectedPiece: _projected,
}
