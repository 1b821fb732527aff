"""The Renyi divergence of an event at one order."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, logsumexp

from dpglm._validation import check_integer
from dpglm.privacy.accounting.accountant import check_parallel_parts
from dpglm.privacy.accounting.rdp import RenyiAccountant
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events import Composed, Event, Gaussian, PoissonSampled, Repeated
from dpglm.privacy.events.branches import branches

__all__ = ["renyi_divergence"]

_ROUNDING = 1.0 + 1e-11
_LARGEST_EXPONENT = 600.0


def renyi_divergence(event: Event, adjacency: Adjacency, order: int) -> float:
    """Bound the Renyi divergence between the laws of an event's output on neighbours.

    Parameters
    ----------
    event : Event
        What is released.
    adjacency : Adjacency
        The relation to which noise multipliers refer.
    order : int
        Order of the divergence, at least 2.

    Returns
    -------
    float
        A bound in both orders of the data sets, rounded up; ``inf`` where there is none.

    Raises
    ------
    ValueError
        If the order is out of range, or no divergence is known for the event: Poisson samples
        under replace-one, and of anything but Gaussian releases.

    Notes
    -----
    Privacy: divergences add up under adaptive composition. Of a Poisson-sampled Gaussian
    release, with ``A_k`` the binomial probabilities of order a and rate q, the divergence is
    ``log(sum_k A_k exp(k (k - 1) / (2 sigma^2))) / (a - 1)``; the other order of the data sets
    has a smaller one.

    References
    ----------
    Mironov, Talwar and Zhang, "Renyi differential privacy of the sampled Gaussian mechanism",
    2019, arXiv 1908.10530, Theorem 5 and Section 3.3.

    Examples
    --------
    >>> round(renyi_divergence(Gaussian(2.0), Adjacency.ZERO_OUT, 8), 6)
    1.0
    >>> round(renyi_divergence(PoissonSampled(0.01, Gaussian(2.0)), Adjacency.ZERO_OUT, 8), 6)
    0.000116
    """
    check_integer("order", order, least=2)
    check_parallel_parts(event, adjacency)
    return max(_divergence(one, adjacency, order) for one in branches(event)) * _ROUNDING


def _divergence(event: Event, adjacency: Adjacency, order: int) -> float:
    total, others = 0.0, []
    for basic, count in event.terms():
        if isinstance(basic, PoissonSampled):
            total += count * _sampled(basic, adjacency, order)
        else:
            others.append(Repeated(basic, count))
    return total + RenyiAccountant().divergence(Composed(tuple(others)), adjacency, order)


def _sampled(event: PoissonSampled, adjacency: Adjacency, order: int) -> float:
    if not isinstance(event.event, Gaussian) or adjacency is Adjacency.REPLACE_ONE:
        raise ValueError(
            "event must be a Gaussian release where it is Poisson-sampled, and the relation "
            f"zero_out or add_remove, for a Renyi divergence; got {event!r} under "
            f"{adjacency.value}"
        )
    k = np.arange(order + 1)
    binomial = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
    rate = event.sampling_rate
    weights = binomial + k * math.log(rate) + (order - k) * math.log1p(-rate)
    exponents = 0.5 * k * (k - 1.0) / event.event.noise_multiplier**2
    if exponents[-1] > _LARGEST_EXPONENT:
        return float(logsumexp(weights + exponents)) / (order - 1.0)
    # The weights sum to 1: with expm1 a divergence close to 0 keeps its digits.
    return math.log1p(float(np.exp(weights) @ np.expm1(exponents))) / (order - 1.0)
