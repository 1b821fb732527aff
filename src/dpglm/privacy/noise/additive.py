"""Additive noise for bounded sums, with its privacy events."""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, Self, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike

from dpglm._validation import Array, check_integer, check_real
from dpglm.privacy.events import Event, Gaussian, PerturbedObjective, ProjectedGaussian, Pure
from dpglm.privacy.noise.exact import (
    NoiseScale,
    add_on_grid,
    granularity_exponent,
    grid_sensitivity,
    noise_scale,
    pure_objective_epsilon,
    rounded_l2,
    rounded_laplace,
)
from dpglm.privacy.noise.source import NoiseSource, add_gaussian
from dpglm.privacy.releases import Mechanism, Release

# Noise for pure differential privacy, exact on floats: L2 (K-norm) and Laplace noise.


def add_l2_noise(
    value: ArrayLike, scale: float, granularity_exponent: int, source: NoiseSource
) -> Array:
    """Snap values to the grid ``2**k`` and add exactly rounded L2 noise on that grid.

    The noise ``b`` has a density proportional to ``exp(-|b| / scale)``, with the L2 norm over all m
    numbers of ``value``. Its norm has the law Gamma(m, scale), its direction is uniform and
    independent; each coordinate has standard deviation ``scale sqrt(m + 1)``, and m = 1 is Laplace
    noise. Arguments and errors are those of ``add_gaussian``.

    Privacy: exactly a post-processing of the ideal mechanism on the snapped value, hence pure
    ``D / scale``-differential privacy, with D the L2 sensitivity of ``value`` plus
    ``grid_sensitivity(m, k)``.

    Hardt and Talwar (2010), "On the geometry of differential privacy". Chaudhuri, Monteleoni
    and Sarwate (2011), "Differentially private empirical risk minimization", Algorithm 1.
    Theorem 3 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    draw = functools.partial(rounded_l2, source.words)
    return add_on_grid(value, scale, granularity_exponent, draw)


def add_laplace(
    value: ArrayLike, scale: float, granularity_exponent: int, source: NoiseSource
) -> Array:
    """Snap values to the grid ``2**k`` and add exactly rounded, independent Laplace noise on it.

    ``scale`` is the mean absolute value of the noise; all else as in ``add_l2_noise``.

    Privacy: exactly a post-processing of the ideal Laplace mechanism on the snapped value,
    hence pure ``D / scale``-differential privacy, with D the L1 sensitivity of ``value`` plus
    ``m * 2**k`` for m numbers: each moves by at most half a cell on either side.

    Dwork, McSherry, Nissim and Smith (2006), "Calibrating noise to sensitivity in private data
    analysis". Theorem 4 of ``docs/proofs/exact-choices-and-l2-noise.md``.
    """
    draw = functools.partial(rounded_laplace, source.words)
    return add_on_grid(value, scale, granularity_exponent, draw)


V = TypeVar("V")
R = TypeVar("R")
MOST_SENDERS = 2**13
"""Maximum number of messages with noise on the grid of one of them."""


@dataclass(frozen=True)
class CalibratedNoise(Mechanism[V, R]):
    """Noise with a cost that depends on ``noise_multiplier``, its scale over the L2 sensitivity."""

    noise_multiplier: float

    @property
    def multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity"

    def with_multiplier(self, multiplier: float) -> Self:
        return dataclasses.replace(self, noise_multiplier=multiplier)

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        size, most = release.coordinates, release.magnitude
        relation, sensitivity = release.adjacency, release.sensitivity
        return noise_scale(relation, sensitivity, self.noise_multiplier, size, most)


@final
@dataclass(frozen=True)
class GaussianNoise(CalibratedNoise[Array, Array]):
    """Spherical Gaussian noise; the value is snapped to a grid, and the noise rounded to it.

    Privacy: ``Gaussian(noise_multiplier)``; snapping and rounding are in the sensitivity.
    """

    @property
    def event(self) -> Gaussian:
        return Gaussian(self.noise_multiplier)

    def draw(self, release: Release[Array, Array], value: Array, source: NoiseSource) -> Array:
        return add_gaussian(value, release.scale.std, release.scale.exponent, source)


@final
@dataclass(frozen=True)
class ProjectedGaussianNoise(CalibratedNoise[Array, Array]):
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

    def draw(self, release: Release[Array, Array], value: Array, source: NoiseSource) -> Array:
        return add_gaussian(value, release.scale.std, release.scale.exponent, source)


@final
@dataclass(frozen=True)
class L2Noise(Mechanism[Array, Array]):
    """Noise with a density proportional to ``exp(-|b| / s)``; Laplace noise for a single number.

    ``epsilon`` is the L2 sensitivity over the scale s.

    Privacy: ``Pure(epsilon)``: between neighbours the density changes by a factor of at most
    ``exp(D / s)``, with D the L2 sensitivity, snapping and rounding included. The scale is rounded
    up, because pure differential privacy allows no rounding error.
    """

    epsilon: float

    is_l2 = True

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
        return CalibratedNoise.scale(GaussianNoise(self.multiplier), release).times(1.0 + 2.0**-50)

    def draw(self, release: Release[Array, Array], value: Array, source: NoiseSource) -> Array:
        return add_l2_noise(value, release.scale.std, release.scale.exponent, source)


Messages: TypeAlias = tuple[Array, int]
"""The sum of messages without their noise, which is private, and the public number of senders."""


@final
@dataclass(frozen=True)
class LocalGaussianNoise(CalibratedNoise[Messages, Array]):
    """Gaussian noise that every sender adds to its own message before messages are summed.

    At most ``most_senders`` messages, from 1 to ``MOST_SENDERS``, are summed.

    Privacy: ``Gaussian(noise_multiplier)`` for each sender against whoever sees its message. The
    sum, with the law of a sum of independent noises, reveals less, as no message is seen alone.
    """

    most_senders: int

    def __post_init__(self) -> None:
        check_integer("most_senders", self.most_senders, least=1, most=MOST_SENDERS)

    @property
    def event(self) -> Event:
        return Gaussian(self.noise_multiplier)

    @property
    def in_words(self) -> str:
        return f"standard deviation {self.noise_multiplier:.4g} x sensitivity in each message"

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        scale = super().scale(release)
        # The grid of one message holds the noise of all of them.
        summed = scale.times(math.sqrt(self.most_senders))
        return scale if math.isfinite(summed.std) else summed

    def draw(
        self, release: Release[Messages, Array], value: Messages, source: NoiseSource
    ) -> Array:
        # The declared rounding is that of all messages.
        total, senders = value
        check_integer("senders", senders, least=1, most=self.most_senders)
        summed = release.scale.times(math.sqrt(senders))
        return add_gaussian(total, summed.std, summed.exponent, source)


# Linear terms of perturbed objectives, with the privacy events of the minimiser.

_Shape = tuple[int, ...]


@final
@dataclass(frozen=True, eq=False, repr=False)
class SecretNoise:
    """Noise that enters a computation and is never released itself.

    ``value`` is rounded to a grid, and private; ``rounding`` bounds its L2 distance to the ideal
    noise.
    """

    value: Array
    rounding: float


@final
@dataclass(frozen=True)
class GaussianLinearTerm(CalibratedNoise[_Shape, SecretNoise]):
    """Gaussian linear term of an objective, for the release of its minimiser.

    The sensitivity is that of the gradient sum; ``curvature_ratio`` is a bound on one row's
    curvature over the strength of the quadratic penalty, above 0.

    Privacy: ``PerturbedObjective(noise_multiplier, curvature_ratio)`` covers the minimiser of
    the ideal term; the distance to it needs additional noise.
    """

    curvature_ratio: float

    @property
    def event(self) -> Event:
        return PerturbedObjective(self.multiplier, self.curvature_ratio)

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        std = self.multiplier * release.sensitivity
        return NoiseScale(std, granularity_exponent(std))

    def draw(
        self, release: Release[_Shape, SecretNoise], value: _Shape, source: NoiseSource
    ) -> SecretNoise:
        exponent = release.scale.exponent
        cells = source.gaussian(value, exponent, release.scale.std)
        return SecretNoise(
            np.ldexp(cells.astype(np.float64), exponent),
            grid_sensitivity(math.prod(value), exponent),
        )


@final
@dataclass(frozen=True)
class L2LinearTerm(CalibratedNoise[_Shape, SecretNoise]):
    """Linear term with a density proportional to ``exp(-|b| / s)``.

    ``noise_multiplier`` is s over the sensitivity of the gradient sum; ``curvature_ratio`` is as in
    ``GaussianLinearTerm``.

    Privacy: ``Pure(pure_objective_epsilon(noise_multiplier, curvature_ratio))``, for the minimiser
    of the ideal term (docs/proofs/objective-perturbation.md, Theorem 2).
    """

    curvature_ratio: float

    is_l2 = True

    def __post_init__(self) -> None:
        check_real("noise_multiplier", self.noise_multiplier, above=0.0)
        check_real("curvature_ratio", self.curvature_ratio, above=0.0)

    @property
    def event(self) -> Event:
        return Pure(pure_objective_epsilon(self.multiplier, self.curvature_ratio))

    @property
    def in_words(self) -> str:
        return f"L2 noise of scale {self.multiplier:.4g} x sensitivity"

    def scale(self, release: Release[Any, Any]) -> NoiseScale:
        scale = self.multiplier * release.sensitivity * (1.0 + 2.0**-50)
        return NoiseScale(scale, granularity_exponent(scale))

    def draw(
        self, release: Release[_Shape, SecretNoise], value: _Shape, source: NoiseSource
    ) -> SecretNoise:
        exponent = release.scale.exponent
        noise = add_l2_noise(np.zeros(value), release.scale.std, exponent, source)
        return SecretNoise(noise, grid_sensitivity(noise.size, exponent))
