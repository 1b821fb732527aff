"""Releases about a Poisson sample of the rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from dpglm._validation import check_real
from dpglm._words import each, plain_number, times
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.events.base import SMALLEST, BasicEvent, Curves, Event, Mechanism
from dpglm.privacy.events.gaussian import Gaussian
from dpglm.privacy.events.losses import Array, LossLaw
from dpglm.privacy.events.projected import ProjectedGaussian
from dpglm.privacy.events.pure import Pure

__all__ = ["PoissonSampled", "poisson_sampled"]

_LARGEST_EXPONENT = 600.0


@final
@dataclass(frozen=True)
class PoissonSampled(Mechanism):
    """A release computed on a fresh Poisson sample of the rows.

    Parameters
    ----------
    sampling_rate : float
        Probability that a row is in the sample, from 1e-50 to 1.
    event : Gaussian or ProjectedGaussian
        What is released about the sample.

    Notes
    -----
    Privacy: each row enters independently of all others and of every earlier sample, what
    other rows contribute does not depend on whether it entered (``dpglm.data.sampled``), and
    nothing released depends on the realised size of the sample. Shuffled or fixed-size
    batches are not this event. The noise multiplier is relative to the sensitivity of the
    full sum under the declared adjacency (``2 C`` under replace-one).
    """

    sampling_rate: float
    event: Gaussian | ProjectedGaussian

    is_rarely_large: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rate = check_real("sampling_rate", self.sampling_rate, least=SMALLEST, most=1.0)
        if not isinstance(self.event, Gaussian | ProjectedGaussian):
            raise ValueError(f"event must be Gaussian or ProjectedGaussian, got {self.event!r}")
        object.__setattr__(self, "sampling_rate", rate)

    def simplified(self) -> BasicEvent:
        return self.event if self.sampling_rate == 1.0 else self

    def quieter(self, factor: float) -> PoissonSampled:
        return PoissonSampled(self.sampling_rate, self.event.quieter(factor))

    def losses(self, adjacency: Adjacency) -> tuple[LossLaw, LossLaw]:
        return self.event.sampled_losses(self.sampling_rate)

    def variance(self) -> float:
        rate, sigma = self.sampling_rate, self.event.noise_multiplier
        jump = 1.0 / sigma + 0.5 / sigma**2
        spread = rate * math.sqrt(math.expm1(min(sigma**-2, 50.0)))
        return min(spread, math.sqrt(rate) * jump) ** 2

    def span(self) -> float:
        return self.event.sampled_span()

    @property
    def plain_mu(self) -> float:
        return self.event.plain_mu

    def divergence_of_order(self, order: int, adjacency: Adjacency) -> float | None:
        """Bound the Renyi divergence of one integer order; None for projections.

        Notes
        -----
        Privacy: with ``A_k`` the binomial probabilities of order a and rate q it is
        ``log(sum_k A_k exp(k (k - 1) / (2 sigma^2))) / (a - 1)``; the other order of the data
        sets has a smaller one.

        References
        ----------
        Mironov, Talwar and Zhang, "Renyi differential privacy of the sampled Gaussian
        mechanism", 2019, arXiv 1908.10530, Theorem 5 and Section 3.3.
        """
        if not isinstance(self.event, Gaussian) or adjacency is Adjacency.REPLACE_ONE:
            return None
        k, rate = np.arange(order + 1), self.sampling_rate
        binomial = gammaln(order + 1.0) - gammaln(k + 1.0) - gammaln(order - k + 1.0)
        weights = binomial + k * math.log(rate) + (order - k) * math.log1p(-rate)
        exponents = 0.5 * k * (k - 1.0) / self.event.noise_multiplier**2
        if exponents[-1] > _LARGEST_EXPONENT:
            return float(logsumexp(weights + exponents)) / (order - 1.0)
        # The weights sum to 1: with expm1 a divergence close to 0 keeps its digits.
        return math.log1p(float(np.exp(weights) @ np.expm1(exponents))) / (order - 1.0)

    def curves(self, adjacency: Adjacency) -> Curves:
        # The mixture with weight q against the law without the row, and the other way round.
        rate, plain = self.sampling_rate, self.event.curves(adjacency).remove

        def amplified(epsilon: Array) -> tuple[NDArray[np.bool_], Array]:
            ratio = np.expm1(np.minimum(epsilon, 700.0)) / rate
            reached = ratio > -1.0
            return reached, np.log1p(np.where(reached, ratio, 0.0))

        def remove(epsilon: Array) -> Array:
            reached, moved = amplified(epsilon)
            return np.where(reached, rate * plain(moved), -np.expm1(np.minimum(epsilon, 0.0)))

        def add(epsilon: Array) -> Array:
            reached, moved = amplified(-epsilon)
            return np.where(reached, rate * np.exp(epsilon + moved) * plain(-moved), 0.0)

        return Curves(remove, add)

    def words(self, count: int) -> str:
        noise = plain_number(self.event.noise_multiplier)
        share = plain_number(100.0 * self.sampling_rate, 3)
        seen = self.event.directions(count) if isinstance(self.event, ProjectedGaussian) else ""
        return (
            f"{times(count, 'sum')} over a fresh random sample ({share} % of the rows on "
            f"average), {seen}{each(count)} Gaussian noise of {noise} times what one row can change"
        )


def poisson_sampled(sampling_rate: float, event: Event) -> Event:
    """Return the event of a release about a fresh Poisson sample of the rows.

    An epsilon-DP release becomes one with ``log(1 + q (exp(epsilon) - 1))``. Given the sample of
    all other rows, let Q be its law without the row, P and P' its laws with the row's two values
    (P' = Q where the neighbour has no row). ``(1-q) Q + q P <= e D`` with
    ``D = (1-q) Q + q P'`` and ``e = 1 + q (exp(epsilon) - 1)`` is
    ``P - P' <= (exp(epsilon) - 1) D``. Where ``P' >= Q`` it holds, as ``P <= exp(epsilon) D`` and
    ``P' >= D``; elsewhere, as ``P - P' <= (exp(epsilon) - 1) P'`` and ``P' <= D``.

    References
    ----------
    Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorem 8.
    """
    if sampling_rate == 1.0:
        return event
    if not isinstance(event, Pure):
        # Which other events can be sampled is for that class to say.
        return PoissonSampled(sampling_rate, event)  # type: ignore[arg-type]
    amplified = (
        math.log1p(sampling_rate * math.expm1(event.epsilon))
        if event.epsilon < _LARGEST_EXPONENT
        else event.epsilon
    )
    # A few units in the last place more: pure differential privacy has no room for rounding.
    return Pure(min(amplified * (1.0 + 2.0**-48), event.epsilon))
