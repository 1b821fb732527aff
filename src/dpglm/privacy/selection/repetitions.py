"""How often something is tried: random numbers that private selection can afford."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

from scipy.optimize import brentq

from dpglm._validation import check_integer, check_real
from dpglm.privacy.noise import NoiseSource, bernoulli
from dpglm.privacy.noise.exact import uniform_indices

_MOST = 1e4
_AT_ONCE = 64


# Privacy: the number K of independent tries does not depend on data, and stays secret. With the
# generating function ``f(x) = E x^K``, the best of K results is y, in any fixed order, with
# probability ``f(Q(<= y)) - f(Q(< y))``: ``Q(y)`` times a mean of the derivative f'. See
# ``docs/proofs/random-repetition.md``; Papernot and Steinke, "Hyperparameter tuning with Renyi
# differential privacy", ICLR 2022.


@final
@dataclass(frozen=True)
class NegativeBinomialNumber:
    """Number of failures before the given number of successes, conditioned to be positive.

    Parameters
    ----------
    success : float
        Probability of a success, in (0, 1).
    shape : int, default=1
        Number of successes, at least 1; 1 is the geometric law on 1, 2, ...

    Notes
    -----
    ``f'`` is proportional to ``(1 - (1 - success) x)^-(shape + 1)``. If a set has probability s for
    one data set and s' for a neighbour, ``s' <= e^a s + delta(a)``. So if ``delta(a) <= (e^a - 1)
    success / (1 - success)``, ``success + (1 - success) s'`` is at most ``e^a`` times its value
    with s: the logarithm of the ratio is at most ``(shape + 1) a``.

    References
    ----------
    Papernot and Steinke, ICLR 2022, Definition 1 and Theorem 2, where the bound on the ratio by one
    Renyi divergence is larger. Liu and Talwar, "Private selection from private candidates",
    STOC 2019, for the geometric law.
    """

    success: float
    shape: int = 1

    type_name = "negative_binomial"
    none = 0.0
    """Probability of no try at all."""

    def __post_init__(self) -> None:
        success = check_real("success", self.success, least=1.0 / _MOST, below=1.0)
        object.__setattr__(self, "success", success)
        object.__setattr__(self, "shape", check_integer("shape", self.shape, least=1))

    @property
    def mean(self) -> float:
        """Expected number of tries, which is ``f'(1)``."""
        nothing = self.success**self.shape
        return self.shape * (1.0 - self.success) / (self.success * (1.0 - nothing))

    def log_ratio(self, delta: Callable[[float], float]) -> float:
        """Bound how much f' differs between the chances of one outcome for two neighbours.

        Parameters
        ----------
        delta : callable
            Bound on delta of one try at any epsilon of at least 0; decreasing.

        Returns
        -------
        float
            At least ``log(f'(q) / f'(q'))`` for all q and q' that a (randomised) set of results
            of one try can have as its probabilities.
        """
        odds = self.success / (1.0 - self.success)

        def excess(epsilon: float) -> float:
            return delta(epsilon) - odds * math.expm1(epsilon)

        if excess(0.0) <= 0.0:
            return 0.0
        high = 1.0
        while excess(high) > 0.0:
            high *= 2.0
        found = float(brentq(excess, 0.0, high, rtol=1e-9))
        step = 1e-9
        while excess(found) > 0.0:
            found, step = min(high, found * (1.0 + step) + 1e-300), 2.0 * step
        return (self.shape + 1) * found * (1.0 + 1e-12)

    def draw(self, noise: NoiseSource) -> int:
        """Draw K, exactly.

        Parameters
        ----------
        noise : NoiseSource
            Where the bits come from.
        """
        batches = (bernoulli(noise, _AT_ONCE, self.success) for _ in itertools.repeat(None))
        coins = (coin for batch in batches for coin in batch.tolist())
        failures = 0
        while failures == 0:
            left = self.shape
            while left:
                succeeded = next(coins)
                left -= succeeded
                failures += not succeeded
        return failures


@final
@dataclass(frozen=True)
class PoissonNumber:
    """A Poisson number; with none, a result is returned that depends on no data.

    Parameters
    ----------
    rate : float
        Its mean, from 1 to 10000.

    Notes
    -----
    ``f'`` is proportional to ``exp(rate x)``, and probabilities of one set differ by at most
    ``delta(0)``.

    References
    ----------
    Papernot and Steinke, ICLR 2022, Theorem 6.
    """

    rate: float

    # Its name in documents.
    type_name = "poisson"

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check_real("rate", self.rate, least=1.0, most=_MOST))

    @property
    def mean(self) -> float:
        """Expected number of tries."""
        return self.rate

    @property
    def none(self) -> float:
        """Probability of no try at all."""
        return math.exp(-self.rate)

    def log_ratio(self, delta: Callable[[float], float]) -> float:
        """Bound the ratio of f' as ``NegativeBinomialNumber.log_ratio`` does."""
        return self.rate * delta(0.0) * (1.0 + 1e-12)

    def draw(self, noise: NoiseSource) -> int:
        """Draw K, exactly, as ``NegativeBinomialNumber`` does."""
        # A sum of Poisson numbers with a rate of at most 1; halving a float is exact.
        parts = 2 ** math.ceil(math.log2(self.rate))
        return sum(_poisson(self.rate / parts, noise) for _ in range(parts))


Repetitions: TypeAlias = NegativeBinomialNumber | PoissonNumber
"""The law of the number of independent tries before the best result is released."""


def uniform(noise: NoiseSource, size: int) -> int:
    """Draw one of ``0, ..., size - 1``, all exactly equally likely."""
    while True:
        drawn = uniform_indices(noise.words, 1, size)
        if drawn.size:
            return int(drawn[0])


def _poisson(rate: float, noise: NoiseSource) -> int:
    """Draw with a rate of at most 1: a fair coin's heads k, kept with ``(2 rate)^k / (2 k!)``."""
    while True:
        heads = 0
        while noise.words(1)[0] & 1:
            heads += 1
        # The chance as a product: 1/2 for k = 0, else rate^k times 2/i for each i from 3 to k.
        if heads == 0:
            kept = uniform(noise, 2) == 0
        else:
            kept = bool(bernoulli(noise, heads, rate).all()) and all(
                uniform(noise, i) < 2 for i in range(3, heads + 1)
            )
        if kept:
            return heads
