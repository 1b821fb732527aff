"""Exact accounting of what is Gaussian throughout."""

from __future__ import annotations

from typing import final

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountant import Accountant, own_version
from dpglm.privacy.accounting.reduction import reduce_event
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Event, GaussianMechanism

__all__ = ["GaussianAccountant"]


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

    @property
    def version(self) -> str:
        return own_version()

    def mu(self, event: Event, adjacency: Adjacency) -> float:
        """Return the mu, rounded up, for which the event is mu-GDP under the relation."""
        return max(reduce_event(one, adjacency).mu for one in self._branches(event, adjacency))

    def _knows(self, basic: Event) -> bool:
        return isinstance(basic, GaussianMechanism)

    def _delta(self, event: Event, adjacency: Adjacency, epsilon: float) -> float:
        mu = reduce_event(event, adjacency).mu
        return min(1.0, gdp.delta(epsilon, mu) * (1.0 + 1e-12))

    def _epsilon(self, event: Event, adjacency: Adjacency, delta: float) -> float:
        return gdp.epsilon(delta, reduce_event(event, adjacency).mu)
