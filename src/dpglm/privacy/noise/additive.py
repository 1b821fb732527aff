"""Noise that is added to bounded sums, as values: each says which event pays for it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_integer, check_real
from dpglm.privacy.events import Event, Gaussian, ProjectedGaussian, Pure
from dpglm.privacy.noise.l2 import add_l2_noise
from dpglm.privacy.noise.scales import NoiseScale, noise_scale
from dpglm.privacy.noise.source import NoiseSource, add_gaussian
from dpglm.privacy.releases import Mechanism, Release

__all__ = [
    "MOST_SENDERS",
    "GaussianNoise",
    "L2Noise",
    "LocalGaussianNoise",
    "Messages",
    "ProjectedGaussianNoise",
]

_Array = NDArray[np.float64]

MOST_SENDERS = 2**13
"""The most messages whose noise fits on the grid of one of them."""


def _check_senders(name: str, senders: int, most: int) -> None:
    check_integer(name, senders, least=1)
    if senders > most:
        raise ValueError(f"{name} must be at most {most}, got {senders}")


def _grid_scale(multiplier: float, release: Release[Any, Any]) -> NoiseScale:
    return noise_scale(
        release.adjacency,
        release.contribution_bound + release.rounding,
        multiplier,
        release.coordinates,
        release.magnitude,
    )


@final
@dataclass(frozen=True)
class GaussianNoise(Mechanism[_Array, _Array]):
    """Spherical Gaussian noise.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over the L2 sensitivity, above 0.

    Notes
    -----
    Privacy: ``Gaussian(noise_multiplier)``. The value is snapped to a grid and the noise rounded to
    it; both are in the sensitivity.
    """

    noise_multiplier: float

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.multiplier)

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        return type(self)(multiplier)

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        return _grid_scale(self.multiplier, release)

    def draw(self, release: Release[_Array, _Array], value: _Array, source: NoiseSource) -> _Array:
        return add_gaussian(value, release.scale.std, release.scale.exponent, source)


@final
@dataclass(frozen=True)
class ProjectedGaussianNoise(Mechanism[_Array, _Array]):
    """Gaussian noise on ``A^T s / sqrt(p)``, with A public, standard normal and used once.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation over the L2 sensitivity of s itself, above 0.
    dimension : int
        Number p of columns of A.

    Notes
    -----
    Privacy: ``ProjectedGaussian(noise_multiplier, dimension)``. Contributions are those to s;
    rounding is that of the projected value.
    """

    noise_multiplier: float
    dimension: int

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def event(self) -> ProjectedGaussian:
        return ProjectedGaussian(self.multiplier, self.dimension)

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        return type(self)(multiplier, self.dimension)

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        return _grid_scale(self.multiplier, release)

    def draw(self, release: Release[_Array, _Array], value: _Array, source: NoiseSource) -> _Array:
        return add_gaussian(value, release.scale.std, release.scale.exponent, source)


@final
@dataclass(frozen=True)
class L2Noise(Mechanism[_Array, _Array]):
    """Noise with a density proportional to ``exp(-|b| / s)``; Laplace noise of a single number.

    Parameters
    ----------
    epsilon : float
        The L2 sensitivity over the scale s, above 0.

    Notes
    -----
    Privacy: ``Pure(epsilon)``: between neighbours the density changes by a factor of at most
    ``exp(D / s)``, with D the L2 sensitivity, snapping and rounding included. The scale is
    rounded up, as pure differential privacy has no room for a last digit.
    """

    epsilon: float

    def __post_init__(self) -> None:
        check_real("epsilon", self.epsilon, above=0.0)

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

    Parameters
    ----------
    total : ndarray
        The sum.
    senders : int
        Number of messages, from 1 to ``MOST_SENDERS``; public.
    """

    total: _Array
    senders: int

    def __post_init__(self) -> None:
        _check_senders("senders", self.senders, MOST_SENDERS)


@final
@dataclass(frozen=True)
class LocalGaussianNoise(Mechanism[Messages, _Array]):
    """Gaussian noise that every sender adds to its own message before messages are summed.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise in one message over its sensitivity, above 0.
    most_senders : int
        The most messages that are summed, from 1 to ``MOST_SENDERS``.

    Notes
    -----
    Privacy: ``Gaussian(noise_multiplier)`` for each sender against whoever sees its message. The
    sum, with the law of a sum of independent noises, shows less, as no message is seen alone.
    """

    noise_multiplier: float
    most_senders: int

    def __post_init__(self) -> None:
        _check_senders("most_senders", self.most_senders, MOST_SENDERS)

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def event(self) -> Event:
        return Gaussian(self.multiplier)

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity in each message"

    def with_multiplier(self, multiplier: float) -> Self:
        return type(self)(multiplier, self.most_senders)

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
