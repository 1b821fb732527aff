"""Linear terms of perturbed objectives, as values: each says what the minimiser costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import check_real
from dpglm.privacy.events import Event, ObjectivePerturbation, Pure
from dpglm.privacy.noise.additive import CalibratedNoise
from dpglm.privacy.noise.l2 import add_l2_noise
from dpglm.privacy.noise.scales import NoiseScale, pure_objective_epsilon
from dpglm.privacy.noise.source import NoiseSource, granularity_exponent, grid_sensitivity
from dpglm.privacy.releases import Release

__all__ = ["GaussianLinearTerm", "L2LinearTerm", "SecretNoise"]

_Shape = tuple[int, ...]


@final
@dataclass(frozen=True, eq=False, repr=False)
class SecretNoise:
    """Noise that enters a computation and is never released itself.

    ``value`` is rounded to a grid, and private; ``rounding`` bounds its L2 distance to the ideal
    noise.
    """

    value: NDArray[np.float64]
    rounding: float


@final
@dataclass(frozen=True)
class GaussianLinearTerm(CalibratedNoise[_Shape, SecretNoise]):
    """Gaussian linear term of an objective whose minimiser may then be released.

    The sensitivity is that of the gradient sum; ``curvature_ratio`` is a bound on one row's
    curvature over the strength of the quadratic penalty, above 0.

    Privacy: ``ObjectivePerturbation(noise_multiplier, curvature_ratio)`` pays for the minimiser of
    the ideal term; the distance to it must be covered by noise of its own.
    """

    curvature_ratio: float

    @property
    def event(self) -> Event:
        return ObjectivePerturbation(self.multiplier, self.curvature_ratio)

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

    ``noise_multiplier`` is s over the sensitivity of the gradient sum; ``curvature_ratio`` as for
    ``GaussianLinearTerm``.

    Privacy: ``Pure(pure_objective_epsilon(noise_multiplier, curvature_ratio))``, for the minimiser
    of the ideal term (docs/proofs/objective-perturbation.md, Theorem 2).
    """

    curvature_ratio: float

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

    def coordinate_std(self, scale: float, size: int) -> float:
        return scale * math.sqrt(size + 1.0)

    def draw(
        self, release: Release[_Shape, SecretNoise], value: _Shape, source: NoiseSource
    ) -> SecretNoise:
        exponent = release.scale.exponent
        noise = add_l2_noise(np.zeros(value), release.scale.std, exponent, source)
        return SecretNoise(noise, grid_sensitivity(noise.size, exponent))
