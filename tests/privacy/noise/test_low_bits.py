"""Attacks on the low bits of released numbers (Mironov 2012): on naive noise, and on ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpglm.privacy import OpenDPNoise, gdp
from dpglm.privacy.noise import SeededNoise, SystemNoise, add_gaussian
from dpglm.privacy.noise.additive import add_l2_noise, add_laplace

SIGNIFICANCE = 1e-4
CELL_LOG2 = -24

Release = Callable[[float, int], NDArray[np.float64]]
"""``release(value, n)``: the value n times, each with fresh noise of scale 1."""

# Cost of one release of a value that is 0 or 1: pure for Laplace noise, at delta for Gaussian.
DELTA = 1e-5
LAPLACE_COST, GAUSSIAN_COST = 1.0, gdp.epsilon(DELTA, 1.0)


def laplace_by_inversion(value: float, n: int) -> NDArray[np.float64]:
    uniforms = np.random.default_rng(1).random((2, n))
    return value + np.where(uniforms[0] < 0.5, -1.0, 1.0) * np.log(1.0 - uniforms[1])


def box_muller(value: float, n: int) -> NDArray[np.float64]:
    u, v = np.random.default_rng(2).random((2, n))
    return value + np.sqrt(-2.0 * np.log(1.0 - u)) * np.cos(2.0 * math.pi * v)


def numpy_laplace(value: float, n: int) -> NDArray[np.float64]:
    return np.random.default_rng(3).laplace(value, 1.0, n)


def numpy_normal(value: float, n: int) -> NDArray[np.float64]:
    return np.random.default_rng(4).normal(value, 1.0, n)


NAIVE: Mapping[str, tuple[Release, float]] = {
    "NumPy's normal": (numpy_normal, GAUSSIAN_COST),
    "NumPy's laplace": (numpy_laplace, LAPLACE_COST),
    "Box-Muller": (box_muller, GAUSSIAN_COST),
    "logarithm of a uniform": (laplace_by_inversion, LAPLACE_COST),
}


def many(value: float, n: int) -> NDArray[np.float64]:
    return np.full(n, value)


OURS: Mapping[str, tuple[Release, float, int]] = {
    "Gaussian": (
        lambda value, n: add_gaussian(many(value, n), 1.0, CELL_LOG2, SystemNoise()),
        GAUSSIAN_COST,
        20_000,
    ),
    "Gaussian from OpenDP": (
        lambda value, n: add_gaussian(many(value, n), 1.0, CELL_LOG2, OpenDPNoise()),
        GAUSSIAN_COST,
        1_000,
    ),
    "Laplace": (
        lambda value, n: add_laplace(many(value, n), 1.0, CELL_LOG2, SystemNoise()),
        LAPLACE_COST,
        20_000,
    ),
    "L2": (
        lambda value, n: np.array(
            [add_l2_noise(value, 1.0, CELL_LOG2, SystemNoise()) for _ in range(n)]
        ),
        LAPLACE_COST,
        1_000,
    ),
}


def is_impossible_for_one(y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Outputs finer than any float ``1 + z`` in (-1/2, 1/2) can be, whatever the law of z.

    For such a sum ``z`` is in (-3/2, -1/2), so ``z`` and the sum are multiples of 2^-53.
    """
    return (np.abs(y) < 0.5) & (np.ldexp(y, 53) % 1.0 != 0.0)


def is_impossible_for(value: float, y: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Outputs that no uniform of NumPy's Laplace noise of scale 1 turns ``value`` into.

    The noise is ``+-log(j / 2^53)``; the only j in question are those around ``exp(-|y - v|)``.
    """
    near = np.rint(np.exp(-np.abs(y - value)) * 2.0**53)[:, None] + np.arange(-4.0, 5.0)
    # The logarithm of the C library, which NumPy's generators call; np.log is another.
    logs = np.reshape([math.log(max(j, 1.0) * 2.0**-53) for j in near.ravel().tolist()], near.shape)
    return ~((value + logs == y[:, None]) | (value - logs == y[:, None])).any(axis=1)


def proven_loss(caught: NDArray[np.bool_], caught_for_neighbour: NDArray[np.bool_]) -> float:
    """Lower bound on epsilon at ``DELTA`` from how often an event happens, except by a chance."""
    hits, n = int(caught.sum()), caught.size
    others, m = int(caught_for_neighbour.sum()), caught_for_neighbour.size
    if not hits:
        return 0.0
    low = stats.beta.ppf(SIGNIFICANCE, hits, n - hits + 1)
    high = stats.beta.ppf(1.0 - SIGNIFICANCE, others + 1, m - others)
    return math.log(max(low - DELTA, 1e-300) / high)


@pytest.mark.parametrize("kind", NAIVE)
def test_naive_noise_betrays_the_value(kind: str) -> None:
    release, cost = NAIVE[kind]
    of_one = is_impossible_for_one(release(1.0, 20_000))
    of_zero = is_impossible_for_one(release(0.0, 20_000))
    assert not of_one.any()
    assert of_zero.mean() > 0.1
    assert proven_loss(of_zero, of_one) > cost + 0.5


def test_uniforms_of_naive_laplace_noise_reveal_values() -> None:
    for value, other in ((0.0, 1.0), (1.0, 0.0), (1.0, 1.0 + 2.0**-40)):
        y = numpy_laplace(value, 2_000)
        assert not is_impossible_for(value, y).any()
        assert is_impossible_for(other, y).mean() > 0.1
    # Ten numbers that share a value are enough to be nearly sure which of the two it was.
    rounds = is_impossible_for(0.0, numpy_laplace(1.0, 2_000)).reshape(-1, 10)
    assert rounds.any(axis=1).mean() > 0.99


@pytest.mark.parametrize("kind", OURS)
def test_our_noise_betrays_no_more_than_was_paid_for(kind: str) -> None:
    release, cost, n = OURS[kind]
    zero, one = release(0.0, n), release(1.0, n)
    attacks: tuple[Callable[[NDArray[np.float64]], NDArray[np.bool_]], ...] = (
        is_impossible_for_one,
        lambda y: is_impossible_for(0.0, y[:1_000]),
        lambda y: is_impossible_for(1.0, y[:1_000]),
    )
    for caught in attacks:
        assert proven_loss(caught(zero), caught(one)) <= cost
        assert proven_loss(caught(one), caught(zero)) <= cost


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize("value", [0.0, 1.0, 1.0 / 3.0, 1e-9])
def test_possible_floats_are_independent_of_the_value(kind: str, value: float) -> None:
    y = OURS[kind][0](value, 500)
    assert (np.ldexp(y, -CELL_LOG2) % 1.0 == 0.0).all()
    assert not is_impossible_for_one(y).any()


@pytest.mark.parametrize("value", [0.0, 1.0 / 3.0])
def test_low_bits_carry_no_trace_of_the_value(value: float) -> None:
    for add in (add_gaussian, add_laplace):
        y = add(many(value, 100_000), 1.0, CELL_LOG2, SeededNoise(19))
        low = np.ldexp(y, -CELL_LOG2).astype(np.int64) & 63
        assert stats.chisquare(np.bincount(low)).pvalue > SIGNIFICANCE
