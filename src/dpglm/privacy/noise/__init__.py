"""Noise that is exact on floats, and the sources of randomness that it is drawn from."""

from dpglm.privacy.noise.grid import granularity_exponent, grid_limit, grid_sensitivity
from dpglm.privacy.noise.source import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
    add_gaussian,
    bernoulli,
    noise_source,
)

__all__ = [
    "NoiseSource",
    "SeededNoise",
    "SystemNoise",
    "add_gaussian",
    "bernoulli",
    "granularity_exponent",
    "grid_limit",
    "grid_sensitivity",
    "noise_source",
]
