"""Gaussian noise from OpenDP's exact sampler, in place of the library's own."""

from __future__ import annotations

import importlib.metadata
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm.privacy.noise.source import NoiseSource, SystemNoise

# The sampler of earlier versions is biased: https://github.com/opendp/opendp/issues/2638
_LEAST_VERSION = (0, 15)

# OpenDP is asked for a standard deviation from 2^57 to below 2^58 of its own cells: fine enough
# to be near the ideal, and 32 of them end where a 64-bit integer ends.
_FINE_LOG2 = 58


@final
@dataclass(frozen=True)
class OpenDPNoise(NoiseSource):
    """Gaussian noise from OpenDP's exact sampler; all other randomness as in ``SystemNoise``.

    Raises
    ------
    ImportError
        If OpenDP is not installed, or older than 0.15, where its sampler is biased.

    Notes
    -----
    For users who prefer another library's sampler to this library's proof. It is about a hundred
    times slower (``docs/privacy.md``).

    Privacy: OpenDP draws a discrete Gaussian on a grid at least 2^26 times finer, with random bits
    of its own cryptographic generator; a draw is rounded to the grid here. Probabilities are those
    of the ideal rounded Gaussian up to a factor of at most ``1 + 2^-106``, and tails of less than
    2^-670, far below the rounding of a claim. Bits for samples, choices, Laplace and L2 noise come
    from the operating system.

    References
    ----------
    Canonne, Kamath and Steinke (2020), "The discrete Gaussian for differential privacy".
    Theorem 4 of ``docs/proofs/exact-gaussian-noise.md``.

    Examples
    --------
    >>> OpenDPNoise(), OpenDPNoise.is_private  # doctest: +SKIP
    (OpenDPNoise(), True)
    """

    name: ClassVar[str] = "opendp"
    is_private: ClassVar[bool] = True
    libraries: ClassVar[tuple[str, ...]] = ("opendp",)

    def __post_init__(self) -> None:
        _opendp()

    def words(self, count: int) -> NDArray[np.uint64]:
        return SystemNoise().words(count)

    def rounded_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        finer_log2 = _FINE_LOG2 - math.frexp(scale)[1]
        fine = _discrete_gaussian(size, math.ldexp(scale, finer_log2))
        up = self.words(size) >> np.uint64(63)
        return _rounded(fine, finer_log2, up.astype(np.bool_))


def _rounded(fine: NDArray[np.int64], finer_log2: int, up: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the nearest integers to ``fine / 2**finer_log2``; ``up`` breaks ties."""
    half = np.int64(1 << (finer_log2 - 1))
    rest = fine & (2 * half - 1)
    above = (rest > half) | ((rest == half) & up)
    return np.asarray((fine >> finer_log2) + above, dtype=np.int64)


def _discrete_gaussian(size: int, scale: float) -> NDArray[np.int64]:
    """Draw independent integers n with chances proportional to ``exp(-(n / scale)^2 / 2)``."""
    dp = _opendp()
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
    draw = dp.m.make_gaussian(*space, scale=scale)
    return np.array(draw([0] * size), dtype=np.int64)


def _opendp() -> Any:
    """Import OpenDP, in a version with an exact sampler."""
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError(
            "OpenDPNoise needs OpenDP, which is not installed: pip install 'dpglm[opendp]'"
        ) from error
    version = importlib.metadata.version("opendp")
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < _LEAST_VERSION:
        raise ImportError(
            "OpenDPNoise needs OpenDP 0.15 or later, as the sampler of earlier versions is biased, "
            f"got {version}: pip install -U 'dpglm[opendp]'"
        )
    # OpenDP calls this sampler contributed, and wants to hear that this is known.
    dp.enable_features("contrib")
    return dp
