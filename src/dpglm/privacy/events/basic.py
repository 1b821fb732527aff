"""What one mechanism releases, as data: the basic privacy events."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass
from typing import Any, final

from dpglm._codec import encode
from dpglm._validation import check_integer, check_real

__all__ = [
    "BoundedRange",
    "Event",
    "Gaussian",
    "Laplace",
    "LastIterate",
    "ObjectivePerturbation",
    "PoissonSampled",
    "ProjectedGaussian",
    "Pure",
    "check_count",
]

SMALLEST, LARGEST, MOST = 1e-50, 1e50, 2**53
"""Range of noise multipliers, epsilons and ratios, and the largest count, of every event.

Fourth powers of such numbers, and their products with counts, are neither 0 nor infinite in
floating point: noise without end would cost nothing there, and little noise raise an error.
"""


class Event(abc.ABC):
    """One thing a mechanism releases, described by what its privacy depends on.

    Notes
    -----
    Privacy: noise multipliers are noise scale divided by SENSITIVITY under the declared
    adjacency, so an event by itself is not a claim; an accountant given an event and an
    adjacency makes one. Events are immutable, compare by value and hash.
    """

    @abc.abstractmethod
    def terms(self) -> tuple[tuple[Event, int], ...]:
        """List the basic events and how often each happens, unmerged.

        Returns
        -------
        tuple of (Event, int)
            Neither ``Composed`` nor ``Repeated`` events; counts at least 1.
        """

    @final
    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; ``event_from_dict`` gives back an equal event, bit for bit."""
        document: dict[str, Any] = encode(self, Event)
        return document


@final
@dataclass(frozen=True)
class Gaussian(Event):
    """Release of a vector plus spherical Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation divided by L2 sensitivity; from 1e-50 to 1e50.

    Examples
    --------
    >>> Gaussian(2.0).to_dict()
    {'type': 'gaussian', 'noise_multiplier': 2.0}
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _check_positive(self, "noise_multiplier", self.noise_multiplier)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class Laplace(Event):
    """Release of a vector plus independent Laplace noise.

    Parameters
    ----------
    noise_multiplier : float
        Noise scale ``b`` (not its standard deviation) divided by L1 sensitivity; from
        1e-50 to 1e50. Pure differential privacy with epsilon ``1 / noise_multiplier``.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        _check_positive(self, "noise_multiplier", self.noise_multiplier)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class PoissonSampled(Event):
    """A release computed on a fresh Poisson sample of the rows.

    Parameters
    ----------
    sampling_rate : float
        Probability that a row is in the sample, from 1e-50 to 1.
    event : Gaussian or ProjectedGaussian
        What is released about the sample.

    Notes
    -----
    Privacy: each row enters independently of all others and of every earlier sample, and
    nothing released depends on the realised size of the sample. Shuffled or fixed-size
    batches are not this event. The noise multiplier is relative to the sensitivity of the
    full sum under the declared adjacency (``2 C`` under replace-one).
    """

    sampling_rate: float
    event: Gaussian | ProjectedGaussian

    def __post_init__(self) -> None:
        rate = check_real("sampling_rate", self.sampling_rate, least=SMALLEST, most=1.0)
        if not isinstance(self.event, Gaussian | ProjectedGaussian):
            raise ValueError(f"event must be Gaussian or ProjectedGaussian, got {self.event!r}")
        _set(self, "sampling_rate", rate)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class LastIterate(Event):
    """Noisy contractive iteration of which only the last iterate is released.

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
    about the run may be released, least of all an earlier iterate.

    References
    ----------
    Bok, Su and Altschuler, "Shifted interpolation for differential privacy", ICML 2024,
    arXiv 2403.00278, Theorem 4.1.
    """

    noise_multiplier: float
    contraction: float
    steps: int

    def __post_init__(self) -> None:
        _check_positive(self, "noise_multiplier", self.noise_multiplier)
        contraction = check_real("contraction", self.contraction, least=0.0, most=1.0)
        _set(self, "contraction", contraction)
        _set(self, "steps", check_count("steps", self.steps, least=1))

    @property
    def mu(self) -> float:
        """The release is mu-GDP with this mu: the smaller of amplification and composition.

        Notes
        -----
        With ``c = exp(-a)``, ``(1-c^t)/(1+c^t) * (1+c)/(1-c) = tanh(t a/2) / tanh(a/2)``,
        which keeps full precision for c near 1 and for any t.

        Examples
        --------
        >>> LastIterate(2.0, contraction=0.0, steps=100).mu
        0.5
        >>> LastIterate(2.0, contraction=1.0, steps=100).mu
        5.0
        """
        composition = float(self.steps)
        if self.contraction == 1.0:
            return math.sqrt(composition) / self.noise_multiplier
        rate = math.inf if self.contraction == 0.0 else -math.log(self.contraction)
        amplified = math.tanh(0.5 * self.steps * rate) / math.tanh(0.5 * rate)
        return math.sqrt(min(composition, amplified)) / self.noise_multiplier

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class Pure(Event):
    """Any release that is epsilon-DP: L2 noise, report-noisy-min, permute-and-flip.

    Parameters
    ----------
    epsilon : float
        Its epsilon under the declared adjacency; from 1e-50 to 1e50.

    Notes
    -----
    Privacy: randomised response with the same epsilon is at least as bad under any
    composition, so it stands for the release. Where a claim under replace-one goes by way of
    the data set with the row zeroed out, each of the two steps is charged the full epsilon,
    which is conservative for noise but right for any release.

    References
    ----------
    Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML 2015,
    Theorem 3.2.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive(self, "epsilon", self.epsilon)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class BoundedRange(Event):
    """A choice by the exponential mechanism: log-ratios lie in an interval of length epsilon.

    Parameters
    ----------
    epsilon : float
        Length of the interval under the declared adjacency; from 1e-50 to 1e50. For scores of
        sensitivity D chosen with weights ``exp(-epsilon score / (2 D))`` it is this epsilon.

    Notes
    -----
    Privacy: such a choice is also epsilon-DP, but cheaper than most: it is
    ``epsilon^2 / 8``-zCDP. Under replace-one it is charged like ``Pure``.

    References
    ----------
    Durfee and Rogers, "Practical differentially private top-k selection with pay-what-you-get
    composition", NeurIPS 2019, Definition 3.1. Dong, Durfee and Rogers, "Optimal differential
    privacy composition for exponential mechanisms", ICML 2020. Cesar and Rogers, "Bounding,
    concentrating, and truncating", ALT 2021, Theorem 3.
    """

    epsilon: float

    def __post_init__(self) -> None:
        _check_positive(self, "epsilon", self.epsilon)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class ObjectivePerturbation(Event):
    """Release of the exact minimiser of a GLM's objective with a random linear term.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the linear term over the sensitivity of the gradient sum (the
        bound L on a row's gradient, or 2 L under replace-one); from 1e-50 to 1e50.
    curvature_ratio : float
        Bound on one row's curvature over the strength of the quadratic penalty on all
        coefficients; from 1e-50 to 1e50.

    Notes
    -----
    Privacy: the release is ``argmin_w sum_i l_i(<w, x_i>) + lambda/2 |w|^2 + <b, w>`` with
    ``b ~ N(0, sigma^2 I)``, convex ``l_i`` with Lipschitz slopes, one output, no constraint;
    other convex terms only if twice differentiable and free of private data. An approximate
    minimiser needs noise and an event of its own on top.

    Let D have the row (x, l) and D' not, let ``s = L/sigma``, and let w be drawn under D.
    ``w -> b`` is one to one, with Jacobian ``A + l'' x x^T`` for D and A for D', where
    ``A >= lambda I``; and ``b' = b + l' x``. So ``log p_D(w)/p_D'(w)`` is
    ``log(1 + l'' x^T A^-1 x)``, in ``[0, log(1 + ratio)]``, plus
    ``(|b'|^2 - |b|^2)/(2 sigma^2) = l' <b, x>/sigma^2 + |l' x|^2/(2 sigma^2)``, at most
    ``s |u| + s^2/2`` with ``u = <b, x>/(sigma |x|)`` standard normal. With the data sets
    swapped the first term is at most 0, the second as before. So the loss is at most
    ``c + s^2/2 + s |u|`` with ``c = log(1 + ratio)`` or 0; delta grows with the loss.

    Under replace-one ``b' - b`` lies in the plane of the two rows, with ``|b' - b| <= 2 L``, and
    ``c`` serves both orders. There the tail of the variable in place of ``|u|`` is at most
    ``exp(-v^2/2)``, and ``2 Phi(-v)`` for ``v^2 >= 3``: see the page of proofs.

    References
    ----------
    Chaudhuri, Monteleoni and Sarwate, "Differentially private empirical risk minimization",
    JMLR 2011, Section 3.3. Redberg, Koskela and Wang, "Improving the privacy and practicality
    of objective perturbation", NeurIPS 2023, Theorem 3.2, whose ``-log(1 - ratio)`` is
    replaced by ``log(1 + ratio)``.
    """

    noise_multiplier: float
    curvature_ratio: float

    def __post_init__(self) -> None:
        _check_positive(self, "noise_multiplier", self.noise_multiplier)
        _check_positive(self, "curvature_ratio", self.curvature_ratio)

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


@final
@dataclass(frozen=True)
class ProjectedGaussian(Event):
    """Release of ``A^T v / sqrt(p)`` plus Gaussian noise, with a public random projection A.

    Parameters
    ----------
    noise_multiplier : float
        Noise standard deviation over the L2 sensitivity D of ``v``; from 1e-50 to 1e50.
    dimension : int
        Number p of columns of A, from 1 to 2^53; its entries are independent standard normal and
        used for this release only.

    Notes
    -----
    Privacy: A is released too, and does not depend on the data. If a row moves v by a vector
    of length at most D, whatever its direction, it moves the projection by a vector whose
    squared length is at most ``D^2 chi2_p / p`` in distribution. So given A the release is
    mu-GDP with ``mu^2 = chi2_p / (p noise_multiplier^2)``, and without sampling the delta of
    a composition is the mean of that of the Gaussian mechanism over the sum of all mu^2. The
    mean of chi2_p in place of its distribution would be no bound.
    """

    noise_multiplier: float
    dimension: int

    def __post_init__(self) -> None:
        _check_positive(self, "noise_multiplier", self.noise_multiplier)
        _set(self, "dimension", check_count("dimension", self.dimension, least=1))

    def terms(self) -> tuple[tuple[Event, int], ...]:
        return ((self, 1),)


def _check_positive(event: Event, name: str, value: float) -> None:
    _set(event, name, check_real(name, value, least=SMALLEST, most=LARGEST))


def check_count(name: str, value: object, *, least: int) -> int:
    """Return a number of steps, dimensions or repetitions, or raise ValueError."""
    count = check_integer(name, value, least=least)
    if count > MOST:
        raise ValueError(f"{name} must be at most {MOST}, got {value!r}")
    return count


def _set(event: Event, name: str, value: object) -> None:
    """Store a checked value on a frozen dataclass while it is being built."""
    object.__setattr__(event, name, value)
