"""Scripted words, and functions that err, for tests of exact noise."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, final

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray

from dpglm.privacy.noise import NoiseSource


@final
class Script(NoiseSource):
    """Hands out given words, and fails when they run out."""

    name: ClassVar[str] = "script"
    is_private: ClassVar[bool] = False

    def __init__(self, words: Iterable[int]) -> None:
        self.left = list(words)

    def words(self, count: int) -> NDArray[np.uint64]:
        assert count <= len(self.left), "more bits were asked for than the script holds"
        drawn, self.left = self.left[:count], self.left[count:]
        return np.array(drawn, dtype=np.uint64)


def bits_to_uniform(first: int, *more: int) -> Any:
    """Uniform with 53 first bits and then whole words, exact at 120 digits."""
    with mpmath.workdps(120):
        value, bits = first, 53
        for word in more:
            value, bits = value << 64 | word, bits + 64
        return mpmath.ldexp(mpmath.mpf(value), -bits)


def noisy_function(function: Any, size: float, *, relative: bool) -> Callable[..., Any]:
    """A NumPy function with an error of up to ``size`` put on top."""
    rng = np.random.default_rng(4)

    def noisy(x: Any, out: Any = None) -> Any:
        y = function(x)
        y = y + rng.uniform(-size, size, np.shape(y)) * (np.abs(y) if relative else 1.0)
        if out is None:
            return y
        out[...] = y
        return out

    return noisy


@contextlib.contextmanager
def bad_functions(size: float) -> Iterator[None]:
    """Let NumPy's logarithm, cosine and sine err by up to ``size``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np, "log", noisy_function(np.log, size, relative=True))
        patch.setattr(np, "cos", noisy_function(np.cos, size, relative=False))
        patch.setattr(np, "sin", noisy_function(np.sin, size, relative=False))
        yield
