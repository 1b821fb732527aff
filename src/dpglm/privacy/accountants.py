"""From events to (epsilon, delta): the interface, exact Gaussian accounting, and PLD."""

from __future__ import annotations

import abc
import functools
import importlib.metadata
import math
from typing import Any, final

import numpy as np

from dpglm.privacy import gdp
from dpglm.privacy.events import Event, canonical
from dpglm.privacy.reduction import (
    Pieces,
    Profile,
    implied_delta,
    implied_epsilon,
    is_reducible,
    reduce_event,
)
from dpglm.privacy.unit import Adjacency

__all__ = ["Accountant", "GaussianAccountant", "PLDAccountant", "accountant_for"]


class Accountant(abc.ABC):
    """Computes upper bounds on the privacy loss of an event; stateless.

    Notes
    -----
    Privacy: every number returned is on the safe side. An accountant never guesses: asked
    about an event it does not support it raises ``ValueError``.
    """

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Short name for reports."""

    @property
    @abc.abstractmethod
    def version(self) -> str:
        """The library that computes, and its version."""

    @abc.abstractmethod
    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        """Whether this accountant can bound the event under the relation."""

    @abc.abstractmethod
    def delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        """Bound delta from above.

        Parameters
        ----------
        event : Event
            What is released.
        adjacency : Adjacency
            The relation to which the event's noise multipliers refer.
        epsilon : float
            At least 0, finite.

        Returns
        -------
        float
            In [0, 1]: the event is (epsilon, this)-DP under ``adjacency``.
        """

    @abc.abstractmethod
    def epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        """Bound epsilon from above.

        Parameters
        ----------
        event : Event
            What is released.
        adjacency : Adjacency
            The relation to which the event's noise multipliers refer.
        delta : float
            In [0, 1).

        Returns
        -------
        float
            At least 0: the event is (this, delta)-DP under ``adjacency``; ``inf`` if this
            accountant can show no finite epsilon.
        """


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

    @property
    def name(self) -> str:
        return "gaussian"

    @property
    def version(self) -> str:
        return _own_version()

    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        if not is_reducible(event):
            return False
        pieces = reduce_event(event, adjacency)
        return not (pieces.sampled or pieces.laplace)

    def mu(self, event: Event, adjacency: Adjacency) -> float:
        """Return the mu, rounded up, for which the event is mu-GDP under the relation."""
        _require(self, event, adjacency)
        return reduce_event(event, adjacency).mu

    def delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        _check_epsilon(epsilon)
        return min(1.0, gdp.delta(epsilon, self.mu(event, adjacency)) * (1.0 + 1e-12))

    def epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        _check_delta(delta)
        return gdp.epsilon(delta, self.mu(event, adjacency))


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

    def supports(self, event: Event, adjacency: Adjacency) -> bool:
        return is_reducible(event)

    def delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        _check_epsilon(epsilon)
        _require(self, event, adjacency)
        pieces = reduce_event(event, adjacency)
        return implied_delta(pieces, lambda: _PLDProfile(pieces, adjacency), epsilon)

    def epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        _check_delta(delta)
        _require(self, event, adjacency)
        pieces = reduce_event(event, adjacency)
        return implied_epsilon(pieces, lambda: _PLDProfile(pieces, adjacency), delta)


def accountant_for(event: Event, adjacency: Adjacency) -> Accountant:
    """Choose the exact accountant where it applies, the numerical one elsewhere.

    Parameters
    ----------
    event : Event
        What is released.
    adjacency : Adjacency
        The relation to which the event's noise multipliers refer.

    Returns
    -------
    Accountant
        The first of ``GaussianAccountant`` and ``PLDAccountant`` that supports the event.

    Raises
    ------
    ValueError
        If no accountant supports the event.
    """
    for accountant in (GaussianAccountant(), PLDAccountant()):
        if accountant.supports(event, adjacency):
            return accountant
    raise ValueError(f"event must be one that an accountant supports, got {canonical(event)!r}")


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


# Calibration, the final check and the report ask about the same event.
@functools.lru_cache(maxsize=4)
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
    for rate, sigma, count in pieces.sampled:
        single = pld.from_gaussian_mechanism(
            sigma,
            sampling_prob=rate,
            value_discretization_interval=width,
            neighboring_relation=relation,
        )
        composed = composed.compose(single.self_compose(count))
    for scale, count in pieces.laplace:
        single = pld.from_laplace_mechanism(scale, value_discretization_interval=width)
        composed = composed.compose(single.self_compose(count))
    return composed


def _own_version() -> str:
    try:
        return f"dpglm {importlib.metadata.version('dpglm')}"
    except importlib.metadata.PackageNotFoundError:
        return "dpglm (not installed)"


def _require(accountant: Accountant, event: Event, adjacency: Adjacency) -> None:
    if not accountant.supports(event, adjacency):
        raise ValueError(
            f"event must be one that the {accountant.name} accountant supports under "
            f"{adjacency.value}, got {canonical(event)!r}"
        )


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 <= epsilon < math.inf:
        raise ValueError(f"epsilon must be finite and at least 0, got {epsilon!r}")


def _check_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise ValueError(f"delta must be in [0, 1), got {delta!r}")
