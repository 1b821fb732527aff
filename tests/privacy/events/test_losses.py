"""Tails of privacy losses against draws and against each other."""

import math

import numpy as np
import pytest

from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Gaussian, Laplace, PoissonSampled

# One row per law: the law, and how to draw from P and from Q and compute the loss of a draw.
S, Q, B, MU = 0.8, 0.3, 0.7, 1.3
REMOVE, ADD = PoissonSampled(Q, Gaussian(S)).losses(Adjacency.ZERO_OUT)


def poisson_loss(x):
    return np.log1p(Q * np.expm1((x - 0.5) / S**2))


def mixture(rng, n):
    return S * rng.standard_normal(n) + (rng.random(n) < Q)


LAWS = {
    "gaussian": (
        Gaussian(1.0 / MU).losses(Adjacency.ZERO_OUT)[0],
        lambda rng, n: rng.standard_normal(n) + MU,
        lambda rng, n: rng.standard_normal(n),
        lambda x: MU * x - 0.5 * MU**2,
    ),
    "laplace": (
        Laplace(B).losses(Adjacency.ZERO_OUT)[0],
        lambda rng, n: rng.laplace(0.0, B, n),
        lambda rng, n: rng.laplace(1.0, B, n),
        lambda x: (np.abs(x - 1.0) - np.abs(x)) / B,
    ),
    "remove": (
        REMOVE,
        mixture,
        lambda rng, n: S * rng.standard_normal(n),
        poisson_loss,
    ),
    "add": (
        ADD,
        lambda rng, n: S * rng.standard_normal(n),
        mixture,
        lambda x: -poisson_loss(x),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_tails_against_draws(name):
    law, draw_p, draw_q, loss = LAWS[name]
    rng, n = np.random.default_rng(20240607), 200_000
    t = np.array([-1.2, -0.5, -0.2, 0.0, 0.15, 0.34, 0.6, 1.1])
    for tail, draw in zip(law.tails(t), (draw_p, draw_q), strict=True):
        frequency = (loss(draw(rng, n)) > t[:, None]).mean(axis=1)
        assert np.abs(tail - frequency).max() < 4.5 * 0.5 / math.sqrt(n)


@pytest.mark.parametrize("name", LAWS)
def test_hockey_stick_divergence_is_convex_within_0_and_1(name):
    law = LAWS[name][0]
    t = np.linspace(-3.0, 3.0, 601)
    p, q = law.tails(t)
    delta = p - np.exp(t) * q
    assert (delta > -1e-12).all()
    assert (delta < 1.0 + 1e-12).all()
    slopes = np.diff(delta) / np.diff(np.exp(t))
    assert (np.diff(slopes) > -1e-9).all()
    # The derivative in exp(t) is minus the other tail.
    assert (slopes >= -q[:-1] - 1e-9).all()
    assert (slopes <= -q[1:] + 1e-9).all()


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 0.5])
@pytest.mark.parametrize("sigma", [0.02, 1.0])
def test_large_losses_and_small_rates_do_not_overflow(rate, sigma):
    law = Gaussian(sigma).sampled_losses(rate)[0]
    t = np.array([1e-12, 1.0 - 1e-12, 1.0 + 1e-12, 100.0, 689.0])
    tail = law.tails(t)[0]
    assert np.isfinite(tail).all()
    assert (np.diff(tail) <= 0.0).all()
    assert tail[1] == pytest.approx(tail[2], rel=1e-6)
    # The row is drawn with this probability, and then the loss is mostly below 1250.
    if sigma == 0.02 and rate == 0.5:
        assert tail[-1] == pytest.approx(0.5, rel=1e-3)
