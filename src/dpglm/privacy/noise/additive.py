"""Noise that is added to bounded sums, as values: each says which event pays for it."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Self, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer
from dpglm.privacy.events import Event, Gaussian, ProjectedGaussian, Pure
from dpglm.privacy.noise.l2 import add_l2_noise
from dpglm.privacy.noise.scales import NoiseScale, noise_scale
from dpglm.privacy.noise.source import NoiseSource, add_gaussian
from dpglm.privacy.releases import Mechanism, Release

__all__ = [
    "MOST_SENDERS",
    "CalibratedNoise",
    "GaussianNoise",
    "L2Noise",
    "LocalGaussianNoise",
    "Messages",
    "ProjectedGaussianNoise",
]

_Array = NDArray[np.float64]
V = TypeVar("V")
R = TypeVar("R")

MOST_SENDERS = 2**13
"""The most messages whose noise fits on the grid of one of them."""


def _check_senders(name: str, senders: int, most: int) -> None:
    check_integer(name, senders, least=1)
    if senders > most:
        raise ValueError(f"{name} must be at most {most}, got {senders}")


def _grid_scale(multiplier: float, release: Release[Any, Any]) -> NoiseScale:
    return noise_scale(
        release.adjacency,
        release.sensitivity,
        multiplier,
        release.coordinates,
        release.magnitude,
    )


@dataclass(frozen=True)
class CalibratedNoise(Mechanism[V, R]):
    """Noise whose cost is decided by its scale over the L2 sensitivity, ``noise_multiplier``."""

    noise_multiplier: float

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        return dataclasses.replace(self, noise_multiplier=multiplier)


@dataclass(frozen=True)
class _GaussianOnSums(CalibratedNoise[_Array, _Array]):
    """Spherical Gaussian noise; the value is snapped to a grid, and the noise rounded to it."""

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        return _grid_scale(self.multiplier, release)

    def draw(self, release: Release[_Array, _Array], value: _Array, source: NoiseSource) -> _Array:
        return add_gaussian(value, release.scale.std, release.scale.exponent, source)


@final
@dataclass(frozen=True)
class GaussianNoise(_GaussianOnSums):
    """Spherical Gaussian noise.

    Privacy: ``Gaussian(noise_multiplier)``; snapping and rounding are in the sensitivity.
    """

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.noise_multiplier)


@final
@dataclass(frozen=True)
class ProjectedGaussianNoise(_GaussianOnSums):
    """Gaussian noise on ``A^T s / sqrt(p)``, with A public, standard normal and used once.

    ``dimension`` is p, the number of columns of A; ``noise_multiplier`` refers to the sensitivity
    of s itself.

    Privacy: ``ProjectedGaussian(noise_multiplier, dimension)``. Contributions are those to s;
    rounding is that of the projected value.
    """

    dimension: int

    @property
    def event(self) -> ProjectedGaussian:
        return ProjectedGaussian(self.noise_multiplier, self.dimension)


@final
@dataclass(frozen=True)
class L2Noise(Mechanism[_Array, _Array]):
    """Noise with a density proportional to ``exp(-|b| / s)``; Laplace noise of a single number.

    ``epsilon`` is the L2 sensitivity over the scale s.

    Privacy: ``Pure(epsilon)``: between neighbours the density changes by a factor of at most
    ``exp(D / s)``, with D the L2 sensitivity, snapping and rounding included. The scale is
    rounded up, as pure differential privacy has no room for a last digit.
    """

    epsilon: float

    @property
    def event(self) -> Event:
        return Pure(self.epsilon)

    @property
    def multiplier(self) -> float:
        return 1.0 / self.epsilon

    @property
    def in_words(self) -> str:
        return f"L2 noise of scale {self.multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        return type(self)(1.0 / multiplier)

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        return _grid_scale(self.multiplier, release).times(1.0 + 2.0**-50)

    def coordinate_std(self, scale: float, size: int) -> float:
        return scale * math.sqrt(size + 1.0)

    def draw(self, release: Release[_Array, _Array], value: _Array, source: NoiseSource) -> _Array:
        return add_l2_noise(value, release.scale.std, release.scale.exponent, source)


@final
@dataclass(frozen=True, eq=False, repr=False)
class Messages:
    """The sum of the messages of several senders, without their noise. Private.

    The number of senders, from 1 to ``MOST_SENDERS``, is public.
    """

    total: _Array
    senders: int

    def __post_init__(self) -> None:
        _check_senders("senders", self.senders, MOST_SENDERS)


@final
@dataclass(frozen=True)
class LocalGaussianNoise(CalibratedNoise[Messages, _Array]):
    """Gaussian noise that every sender adds to its own message before messages are summed.

    At most ``most_senders`` messages, from 1 to ``MOST_SENDERS``, are summed.

    Privacy: ``Gaussian(noise_multiplier)`` for each sender against whoever sees its message. The
    sum, with the law of a sum of independent noises, reveals less, as no message is seen alone.
    """

    most_senders: int

    def __post_init__(self) -> None:
        _check_senders("most_senders", self.most_senders, MOST_SENDERS)

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity in each message"

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        scale = _grid_scale(self.multiplier, release)
        # The grid of one message holds the noise of all of them.
        summed = scale.times(math.sqrt(self.most_senders))
        return scale if math.isfinite(summed.std) else summed

    def draw(
        self, release: Release[Messages, _Array], value: Messages, source: NoiseSource
    ) -> _Array:
        # The rounding that was declared is that of so many messages.
        _check_senders("senders", value.senders, self.most_senders)
        summed = release.scale.times(math.sqrt(value.senders))
        return add_gaussian(value.total, summed.std, summed.exponent, source)
