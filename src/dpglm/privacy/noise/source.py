"""Sources of randomness, Gaussian noise that is exact on floats, and Poisson samples."""

from __future__ import annotations

import abc
import importlib.metadata
import math
import numbers
import os
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex, TypeVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._calls import checked, frames_to_the_user
from dpglm._validation import Array, check_integer, check_real
from dpglm.exceptions import SeededNoiseWarning
from dpglm.privacy.noise import exact

if TYPE_CHECKING:
    from dpglm.privacy.releases import Release

# Below this, a gap costs less than a byte for each row; above, it is the other way round.
_GAPS_BELOW, _GAPS_ABOVE = 2.0**-4, 2.0**-64


class NoiseSource(abc.ABC):
    """The source of all randomness of a fit: noise, Poisson samples and random choices.

    Attributes
    ----------
    name : str
        Name in reports.
    is_private : bool
        Whether its noise protects the rows.
    libraries : tuple of str
        Additional libraries that it uses; a certificate records their versions.
    observer : Observer or None
        The observer of a curator's mechanisms; None for a private source.

    Notes
    -----
    Privacy: a subclass supplies uniform bits; everything else is an exact function of these bits.
    Only ``rounded_gaussian`` may be replaced, by a source with a proof of its law.

    A copy of a private source's state would repeat its noise. So copies, including those of
    ``sklearn.base.clone``, are the source itself. A private source with a state cannot be pickled,
    unless its class defines ``__reduce__``. After a fork, only one of the processes may use such a
    source.
    """

    name: ClassVar[str]
    is_private: ClassVar[bool]
    libraries: ClassVar[tuple[str, ...]] = ()
    observer: Observer | None = None

    def __sklearn_clone__(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        if self.is_private and self.__getstate__() and type(self).__reduce__ is object.__reduce__:
            raise TypeError(
                f"{type(self).__name__} has a state, and a copy of it would repeat its noise: it "
                "cannot be pickled unless its class has a __reduce__ that prevents this"
            )
        return super().__reduce_ex__(protocol)

    @abc.abstractmethod
    def words(self, count: int) -> NDArray[np.uint64]:
        """Draw independent uniform 64-bit words, of shape (count,), used once and never kept."""

    @final
    def gaussian(
        self, shape: int | tuple[int, ...], granularity_exponent: int, std: float
    ) -> NDArray[np.int64]:
        """Draw Gaussian noise in units of the grid ``2**k``, exactly rounded.

        Each of the independent integers is the nearest to an ideal normal variate of standard
        deviation ``std / 2**k``. ``std`` is from ``2**k`` to below ``2**(k + 32)``, and k, the
        ``granularity_exponent``, from -1074 to 970.

        Examples
        --------
        >>> from dpglm.privacy.noise.exact import granularity_exponent
        >>> m = SeededNoise(0).gaussian((2, 3), granularity_exponent(1.0), 1.0)
        >>> m.shape, m.dtype
        ((2, 3), dtype('int64'))
        """
        scale = exact.cells_per_scale("std", std, granularity_exponent)
        size = int(np.prod(shape, dtype=np.int64))
        return self.rounded_gaussian(size, scale).reshape(shape)

    def rounded_gaussian(self, size: int, scale: float) -> NDArray[np.int64]:
        """Draw ``size`` integers, as ``gaussian`` does, for a standard deviation in [1, 2^32).

        Privacy: the law is exact for any rounding errors of the machine's logarithm, sine and
        cosine below 16 units in the last place (Theorem 1 of
        ``docs/proofs/exact-gaussian-noise.md``).
        """
        return exact.rounded_gaussian(self.words, size, scale)

    @final
    def uniform(self) -> float:
        """Draw one uniform multiple of 2^-53 in [0, 1).

        For choices that are not part of a privacy proof, such as a random iterate.
        """
        return float(self.words(1)[0] >> np.uint64(11)) * 2.0**-53


# Observers of a curator: audits and laws, which receive private values by design.

V = TypeVar("V")
R = TypeVar("R")


class Observer(NoiseSource):
    """A source that answers in place of a curator's mechanisms, and receives private values.

    The certificate of an observed fit names a source with noise that is not private.

    Privacy: nothing that an observer keeps may be published.
    """

    is_private: ClassVar[bool] = False

    @property
    def observer(self) -> Observer:  # type: ignore[override]
        """The source itself."""
        return self

    def begins(self, plan: Any, rows: Any) -> None:
        """Take note of a plan, and the prepared rows on which it is about to run."""

    @abc.abstractmethod
    def answer(self, declared: Release[V, R], value: V) -> R:
        """Answer a release about a private value in place of ``declared.mechanism.draw``."""

    @abc.abstractmethod
    def sample(self, n_rows: int, sampling_rate: float) -> NDArray[np.bool_]:
        """Draw or choose a Poisson sample, a mask of shape (n_rows,)."""


@final
@dataclass(frozen=True)
class SystemNoise(NoiseSource):
    """Noise from the operating system's cryptographic generator, required for private releases.

    Notes
    -----
    Privacy: every bit comes from ``os.urandom`` when it is needed. Nothing is seeded, kept or
    buffered, so forked processes, threads and unpickled copies never share noise.

    Examples
    --------
    >>> SystemNoise(), SystemNoise.is_private
    (SystemNoise(), True)
    """

    name: ClassVar[str] = "system"
    is_private: ClassVar[bool] = True

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


@final
class SeededNoise(NoiseSource):
    """Reproducible noise, for research only: not private.

    Parameters
    ----------
    seed : int
        Seed of NumPy's PCG64, at least 0. There is no default.

    Notes
    -----
    Privacy: none. Anyone who knows or guesses the seed can subtract the noise, PCG64 is not a
    cryptographic generator, and copies made by ``fork`` or ``pickle`` repeat each other.

    Examples
    --------
    >>> a, b = SeededNoise(7), SeededNoise(7)
    >>> a.uniform() == b.uniform(), a
    (True, SeededNoise(<hidden>))
    """

    name: ClassVar[str] = "seeded"
    is_private: ClassVar[bool] = False

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(check_integer("seed", seed, least=0))

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.asarray(self._bits.random_raw(count), dtype=np.uint64)

    def __repr__(self) -> str:
        return "SeededNoise(<hidden>)"


@checked
def add_gaussian(
    value: ArrayLike, std: float, granularity_exponent: int, source: NoiseSource
) -> Array:
    """Snap values to a grid and add exactly rounded Gaussian noise on that grid.

    Parameters
    ----------
    value : array_like of float64
        Values, below ``grid_limit(granularity_exponent)`` in magnitude.
    std : float
        Standard deviation of the noise, from ``2**k`` to below ``2**(k + 32)``.
    granularity_exponent : int
        ``k``; the grid consists of the multiples of ``2**k``.
    source : NoiseSource
        Source of the noise.

    Returns
    -------
    ndarray of float64, shape of ``value``
        Multiples of ``2**k``, without rounding after the noise was added.

    Raises
    ------
    ValueError
        If a value is not finite, or another argument is out of range.
    OverflowError
        If a value is 2^52 cells or more in magnitude.

    Notes
    -----
    Privacy: exactly a post-processing of the ideal Gaussian mechanism with this ``std`` on the
    snapped value, with the L2 sensitivity of ``value`` plus ``grid_sensitivity(size, k)``. The
    errors about ``value`` depend on private data, so callers must prevent them (``grid_limit``).

    References
    ----------
    Mironov (2012), "On significance of the least significant bits for differential privacy".
    Theorem 2 of ``docs/proofs/exact-gaussian-noise.md``.

    Examples
    --------
    >>> noisy = add_gaussian([0.1, 2.0], 1.0, -24, SeededNoise(0))
    >>> noisy * 2**24 % 1
    array([0., 0.])
    """
    return exact.add_on_grid(value, std, granularity_exponent, source.rounded_gaussian, "std")


@checked
def bernoulli(source: NoiseSource, size: int, probability: float) -> NDArray[np.bool_]:
    """Draw independent bits that are true with exactly a given probability: a Poisson sample.

    Parameters
    ----------
    source : NoiseSource
        Where the bits come from.
    size : int
        Number of bits (rows to sample from), at least 0.
    probability : float
        Chance of each, in [0, 1]; used as it is, without rounding.

    Returns
    -------
    ndarray of bool, shape (size,)
        True for the rows that enter. It may be all false: an empty batch is a batch.

    Notes
    -----
    Privacy: each row enters independently with the accounted probability, as amplification
    by Poisson sampling requires (Theorem 3 of ``docs/proofs/exact-gaussian-noise.md``). The mask is
    as secret as the rows.
    """
    size = check_integer("size", size, least=0)
    probability = check_real("probability", probability, least=0.0, most=1.0)
    if _GAPS_ABOVE <= probability < _GAPS_BELOW:
        return exact.bernoulli_by_gaps(source.words, size, probability)
    return exact.coins(source.words, size, probability)


def noise_source(random_state: object) -> NoiseSource:
    """Return the noise source of a ``random_state``.

    Parameters
    ----------
    random_state : None, NoiseSource or int
        None is the operating system; an integer of at least 0 is reproducible, and not private.
    """
    if random_state is None:
        return SystemNoise()
    if isinstance(random_state, NoiseSource):
        return random_state
    if not isinstance(random_state, numbers.Integral):
        raise ValueError(
            "random_state must be None (noise from the operating system), a NoiseSource or an "
            f"integer (reproducible, NOT private), got {random_state!r}"
        )
    return SeededNoise(check_integer("random_state", random_state, least=0))


def warn_of_seed(random_state: object) -> None:
    """Warn that an integer ``random_state`` makes the noise reproducible.

    A ``SeededNoise`` object is an explicit choice and gives no warning. An integer may come from
    anywhere: scikit-learn's ensembles write one into every member.
    """
    if isinstance(random_state, numbers.Integral):
        warnings.warn(
            "random_state is an integer, so the noise can be reproduced and the result is NOT "
            "private. scikit-learn's ensembles set random_state on the models that they copy. "
            "Leave random_state=None for private rows; for simulations, pass SeededNoise(seed).",
            SeededNoiseWarning,
            stacklevel=frames_to_the_user(),
        )


# Gaussian noise from OpenDP's exact sampler, in place of the library's own.

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
