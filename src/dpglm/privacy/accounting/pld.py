"""Numerical accounting with the privacy loss distributions of dp-accounting."""

from __future__ import annotations

import functools
import importlib.metadata
import math
from collections.abc import Callable
from typing import Any, final

import numpy as np

from dpglm.privacy.accounting.accountant import Accountant
from dpglm.privacy.accounting.losses.pieces import LaplacePiece, Piece, PurePiece, SampledPiece
from dpglm.privacy.accounting.reduction import (
    Pieces,
    Profile,
    implied_delta,
    implied_epsilon,
    reduce_event,
)
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, Gaussian, Laplace, LastIterate, PoissonSampled, Pure

__all__ = ["PLDAccountant"]


@final
class PLDAccountant(Accountant):
    """Numerical accounting by privacy loss distributions, with dp-accounting.

    Notes
    -----
    Privacy: privacy losses are rounded pessimistically ("connect the dots") and truncated
    tails count as infinite loss. Only the distributions of single mechanisms, their
    self-composition with an explicit count and their composition are taken from
    dp-accounting, not its accountants, which forget counts of some events. Its convolutions
    round in floating point; delta is raised by ``2e-16`` per composed mechanism for that, so
    deltas near that number are out of reach (epsilon is
    then bounded by that of the same event without sampling; ``FourierAccountant`` does better).

    Under replace-one a Poisson-sampled event goes through the data set with the row zeroed
    out: ``delta(eps) <= delta_zero_out(eps/2) (1 + exp(eps/2))`` with doubled multipliers.

    References
    ----------
    Koskela, Jalko and Honkela, AISTATS 2020. Doroshenko, Ghazi, Kamath, Kumar and
    Manurangsi, "Connect the dots", PETS 2022, Algorithm 1. Zhu, Dong and Wang, "Optimal
    accounting of differential privacy via characteristic function", AISTATS 2022, Theorem 11.
    """

    @property
    def name(self) -> str:
        return "pld"

    @property
    def version(self) -> str:
        return f"dp-accounting {importlib.metadata.version('dp-accounting')}"

    def _knows(self, basic: Event) -> bool:
        if isinstance(basic, PoissonSampled):
            return isinstance(basic.event, Gaussian)
        return isinstance(basic, Gaussian | LastIterate | Laplace | Pure)

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        pieces = reduce_event(event, adjacency)
        return implied_delta(pieces, lambda: _PLDProfile(pieces, adjacency), epsilon)

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        pieces = reduce_event(event, adjacency)
        return implied_epsilon(pieces, lambda: _PLDProfile(pieces, adjacency), delta)


@final
class _PLDProfile(Profile):
    """The privacy loss distribution of all pieces together."""

    def __init__(self, pieces: Pieces, adjacency: Adjacency) -> None:
        self._slack = 2e-16 * pieces.count
        self._pld = _compose(pieces, adjacency) if pieces.count else None

    def delta(self, epsilon: float) -> float:
        if self._pld is None:
            return 0.0
        with np.errstate(over="ignore"):
            numerical = float(self._pld.get_delta_for_epsilon(epsilon))
        return min(1.0, numerical + self._slack)

    def epsilon(self, delta: float) -> float:
        if self._pld is None:
            return 0.0
        # The last factor covers the rounding of sums over the distribution.
        room = (delta - self._slack) * (1.0 - 1e-12)
        if room <= 0.0:
            return math.inf
        # An overflow there ends in an infinite epsilon, which is on the safe side.
        with np.errstate(over="ignore"):
            return float(self._pld.get_epsilon_for_delta(room))


# Calibration, the final check and the report ask about the same event, and a search about those of
# all its candidates in turn.
@functools.lru_cache(maxsize=16)
def _compose(pieces: Pieces, adjacency: Adjacency) -> Any:
    # dp_accounting takes over half a second to import.
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as pld

    # Under replace-one only whole Gaussian and Laplace mechanisms get here with their own
    # multipliers, and for these the pair of distributions is the same under every relation.
    relation = (
        NeighboringRelation.ADD_OR_REMOVE_ONE
        if adjacency is Adjacency.ADD_REMOVE
        else NeighboringRelation.REPLACE_SPECIAL
    )
    width = pieces.cell(fraction=0.03, most_cells=50_000)
    composed = pld.identity(value_discretization_interval=width)
    if pieces.mu > 0.0:
        composed = composed.compose(
            pld.from_gaussian_mechanism(
                1.0 / pieces.mu, value_discretization_interval=width, neighboring_relation=relation
            )
        )
    for piece in pieces.others:
        single = _SINGLE[type(piece)](piece, width, relation)
        composed = composed.compose(single.self_compose(piece.count))
    return composed


def _sampled(piece: SampledPiece, width: float, relation: Any) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_gaussian_mechanism(
        piece.sigma,
        sampling_prob=piece.rate,
        value_discretization_interval=width,
        neighboring_relation=relation,
    )


def _laplace(piece: LaplacePiece, width: float, relation: Any) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as pld

    return pld.from_laplace_mechanism(piece.scale, value_discretization_interval=width)


def _pure(piece: PurePiece, width: float, relation: Any) -> Any:
    """Randomised response between the grid points next to its two losses."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as pld

    top = piece.epsilon
    points = sorted(
        {rounding(side * top / width) for rounding in (math.floor, math.ceil) for side in (-1, 1)}
    )
    losses = width * np.array(points, dtype=np.float64)
    inside = np.clip(losses, -top, top)
    deltas = -np.expm1(inside - top) / (1.0 + math.exp(-top))
    # Exponentials overflow where they are not looked at, or divided by.
    with np.errstate(over="ignore"):
        deltas = np.where(losses < -top, -np.expm1(losses), deltas)
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots(width, points, deltas)
    return pld.PrivacyLossDistribution(pmf)


_SINGLE: dict[type[Piece], Callable[[Any, float, Any], Any]] = {
    SampledPiece: _sampled,
    LaplacePiece: _laplace,
    PurePiece: _pure,
}
