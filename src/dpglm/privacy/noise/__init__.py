"""Noise that is exact on floats, and the sources of randomness that it is drawn from."""

from dpglm.privacy.noise.exact import granularity_exponent as granularity_exponent
from dpglm.privacy.noise.exact import grid_limit as grid_limit
from dpglm.privacy.noise.exact import grid_sensitivity as grid_sensitivity
from dpglm.privacy.noise.source import NoiseSource as NoiseSource
from dpglm.privacy.noise.source import SeededNoise as SeededNoise
from dpglm.privacy.noise.source import SystemNoise as SystemNoise
from dpglm.privacy.noise.source import add_gaussian as add_gaussian
from dpglm.privacy.noise.source import bernoulli as bernoulli
from dpglm.privacy.noise.source import noise_source as noise_source
