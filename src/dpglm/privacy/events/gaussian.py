"""Sums with spherical Gaussian noise."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np
from scipy.special import gammaln, logsumexp

from dpglm._validation import check_integer, check_real
from dpglm._words import each, plain_number, times
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events.base import (
    MOST,
    SMALLEST,
    BasicEvent,
    Event,
    Gaussian,
    GaussianMechanism,
    LossLaw,
    MechanismEvent,
)
from dpglm.privacy.events.projected import ProjectedGaussian
from dpglm.privacy.events.pure import Pure

# Noisy contractive iterations with secret intermediate results.


@final
@dataclass(frozen=True)
class LastIterate(GaussianMechanism):
    """Noisy contractive iteration that releases its last iterate only.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation of one step divided by that step's sensitivity (both of the
        mean gradient, or both of the sum); from 1e-50 to 1e50.
    contraction : float
        Lipschitz constant ``c`` of one noiseless step, in [0, 1]. For an ``m``-strongly
        convex and ``M``-smooth objective and step size ``eta <= 2/M`` it is
        ``max(|1 - eta m|, |1 - eta M|)``.
    steps : int
        Number of steps, from 1 to 2^53.

    Notes
    -----
    Privacy: the steps are ``w <- Proj(w - eta (mean gradient + noise))``: full batch, no
    momentum, no averaging, at most one projection or prox after the step. Nothing else
    about the run may be released, in particular no earlier iterate.

    References
    ----------
    Bok, Su and Altschuler, "Shifted interpolation for differential privacy", ICML 2024,
    arXiv 2403.00278, Theorem 4.1.
    """

    contraction: float
    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        contraction = check_real("contraction", self.contraction, least=0.0, most=1.0)
        object.__setattr__(self, "contraction", contraction)
        object.__setattr__(self, "steps", check_integer("steps", self.steps, least=1, most=MOST))

    @property
    def mu(self) -> float:
        """The release is mu-GDP with this mu: the smaller of amplification and composition.

        With ``c = exp(-a)``, ``(1-c^t)/(1+c^t) * (1+c)/(1-c) = tanh(t a/2) / tanh(a/2)``,
        which keeps full precision for c near 1 and for any t.
        """
        composition = float(self.steps)
        if self.contraction == 1.0:
            return math.sqrt(composition) / self.noise_multiplier
        rate = math.inf if self.contraction == 0.0 else -math.log(self.contraction)
        amplified = math.tanh(0.5 * self.steps * rate) / math.tanh(0.5 * rate)
        return math.sqrt(min(composition, amplified)) / self.noise_multiplier

    def words(self, count: int) -> str:
        noise = plain_number(self.noise_multiplier)
        room = 1.0 - self.contraction
        factor = f"1 - {room:.2g}" if 0.0 < room < 1e-3 else plain_number(self.contraction)
        return (
            f"{'The last iterate' if count == 1 else times(count, 'last iterate')} of {self.steps} "
            f"steps with secret intermediate results, each step with Gaussian noise of {noise} "
            f"times the sensitivity and contracting by a factor of {factor}"
        )


# Releases about a Poisson sample of the rows.

_LARGEST_EXPONENT = 600.0


@final
@dataclass(frozen=True)
class PoissonSampled(MechanismEvent):
    """A release computed on a fresh Poisson sample of the rows.

    Parameters
    ----------
    sampling_rate : float
        Probability that a row is in the sample, from 1e-50 to 1.
    event : Gaussian or ProjectedGaussian
        The release on the sample.

    Notes
    -----
    Privacy: each row is sampled independently of all others and of every earlier sample, the
    contribution of other rows does not depend on its coin (``dpglm.data.sampled``), and nothing
    released depends on the realised size of the sample. Shuffled or fixed-size batches are not this
    event. The noise multiplier is relative to the sensitivity of the full sum under the declared
    adjacency (``2 C`` under replace-one).
    """

    sampling_rate: float
    event: Gaussian | ProjectedGaussian

    is_rarely_large: ClassVar[bool] = True

    def __post_init__(self) -> None:
        rate = check_real("sampling_rate", self.sampling_rate, least=SMALLEST, most=1.0)
        if not isinstance(self.event, Gaussian | ProjectedGaussian):
            raise ValueError(f"event must be Gaussian or ProjectedGaussian, got {self.event!r}")
        object.__setattr__(self, "sampling_rate", rate)

    @functools.cached_property
    def terms(self) -> tuple[tuple[BasicEvent, int], ...]:
        return ((self.event if self.sampling_rate == 1.0 else self, 1),)

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

        Privacy: with ``A_k`` the binomial probabilities of order a and rate q it is
        ``log(sum_k A_k exp(k (k - 1) / (2 sigma^2))) / (a - 1)``; the other order of the data
        sets has a smaller one.

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

    def words(self, count: int) -> str:
        noise = plain_number(self.event.noise_multiplier)
        share = plain_number(100.0 * self.sampling_rate, 3)
        seen = self.event.directions(count) if isinstance(self.event, ProjectedGaussian) else ""
        return (
            f"{times(count, 'sum')} over a fresh random sample ({share} % of the rows on "
            f"average), {seen}{each(count)} Gaussian noise of {noise} times the sensitivity"
        )


def poisson_sampled(sampling_rate: float, event: Event) -> Event:
    """Return the event of a release on a fresh Poisson sample of the rows.

    An epsilon-DP release becomes one with ``log(1 + q (exp(epsilon) - 1))``. Given the sample of
    all other rows, let Q be its law without the row, P and P' its laws with the row's two values
    (P' = Q if the neighbour lacks it). ``(1-q) Q + q P <= e D`` with ``D = (1-q) Q + q P'`` and
    ``e = 1 + q (exp(epsilon) - 1)`` is equivalent to ``P - P' <= (exp(epsilon) - 1) D``. Where ``P'
    >= Q`` it holds because ``P <= exp(epsilon) D`` and ``P' >= D``; elsewhere because ``P - P' <=
    (exp(epsilon) - 1) P'`` and ``P' <= D``.

    Balle, Barthe and Gaboardi, "Privacy amplification by subsampling", NeurIPS 2018, Theorem 8.
    """
    if sampling_rate == 1.0:
        return event
    if not isinstance(event, Pure):
        # The class decides which other events can be sampled.
        return PoissonSampled(sampling_rate, event)  # type: ignore[arg-type]
    amplified = (
        math.log1p(sampling_rate * math.expm1(event.epsilon))
        if event.epsilon < _LARGEST_EXPONENT
        else event.epsilon
    )
    # A few units in the last place more: pure differential privacy allows no rounding error.
    return Pure(min(amplified * (1.0 + 2.0**-48), event.epsilon))
