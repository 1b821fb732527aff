"""Misprints and gaps of the papers without a better place: each claim of the errata."""

from __future__ import annotations

import itertools
import math

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats

from dpglm.privacy import gdp
from dpglm.problem import Softmax


def test_song2021_corollary_5_2_needs_the_clip_for_l():
    # |w - 1| is 1-Lipschitz; noise is that of a clip 50 times as large. Every step size is tried.
    n_epsilon, clip, delta, seeds = 60, 50.0, 1e-5, 40
    T, noise = n_epsilon**2, clip * math.sqrt(2.0 * math.log(1.0 / delta))
    rng = np.random.default_rng(0)
    steps = np.geomspace(1e-5, 1.0, 26)[:, np.newaxis]
    w, total = np.zeros((26, seeds)), np.zeros((26, seeds))
    for _ in range(T):
        w = w - steps * (np.sign(w - 1.0) + noise * rng.normal(size=w.shape))
        total += w
    excess = np.abs(total / T - 1.0).mean(axis=1).min()
    printed = math.sqrt(1.0 + 2.0 * math.log(1.0 / delta)) / n_epsilon
    assert excess > 5.0 * printed
    assert excess < clip * printed


def test_song2021_section_5_3_prints_minus_the_softmax_loss():
    scores, label = np.array([[0.3, -1.0, 2.0]]), 1
    shares = np.exp(scores[0]) / np.exp(scores[0]).sum()
    printed = math.log(shares[label])
    assert printed < 0.0
    assert Softmax().value(scores, [label])[0] == pytest.approx(-printed)


@pytest.mark.parametrize(("exponent", "meet"), [(4 / 3, True), (2 / 3, False)])
def test_arora2022_table_1_has_one_rate_at_its_threshold(exponent, meet):
    # b stands for sqrt(H) |w*| |X|, in the units of |Y|; losses are in the units of |Y|^2.
    b, y, n_epsilon = 0.1, 2.0, 1000.0
    d = (b * n_epsilon / y) ** (2 / 3)
    low = b * y * math.sqrt(d) / n_epsilon
    high = b**exponent * y ** (2 / 3) / n_epsilon ** (2 / 3)
    assert (high == pytest.approx(low)) is meet
    in_other_units = (3 * b) ** exponent * (3 * y) ** (2 / 3) / n_epsilon ** (2 / 3)
    assert (in_other_units == pytest.approx(9 * high)) is meet


@pytest.mark.parametrize("printed", [False, True])
def test_arora2022_theorem_3_balances_terms_in_one_unit(printed):
    # lambda B^2 and the noise's H sigma^2 |X|^2 are losses, so both grow as the loss does.
    def strength(H, Y, X=1.5, B=2.0, n_epsilon=100.0):
        gradient = (Y if printed else math.sqrt(H) * X * Y) + H * B * X**2
        return (gradient * math.sqrt(H) * X / (B * n_epsilon)) ** (2 / 3)

    # Losses times 4: H times 4, |Y| (a root of a loss) times 2, the strength times 4.
    right = strength(4.0 * 0.7, 2.0 * 3.0) == pytest.approx(4.0 * strength(0.7, 3.0))
    assert right is not printed


@pytest.mark.parametrize("constant", [1, 10, 100, 1000])
@pytest.mark.parametrize("epsilon", [0.1, 1])
def test_no_constant_makes_theorem_1_of_d2p2_hold(constant, epsilon):
    # K = 1, B = n, p = 2, where the squared length of a projection is exponential. From below:
    # with probability exp(-u) it is above u.
    log_delta = -32 * constant
    sigma = mpmath.sqrt(constant * -log_delta) / epsilon
    u = epsilon * sigma / mpmath.sqrt(2)
    mu = mpmath.sqrt(u) / sigma
    with mpmath.workdps(60):
        given = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )
        assert mpmath.log(given) - u > 0.6 * log_delta


@pytest.mark.parametrize(("p", "epsilon"), [(1, 2.26), (7, 1.25), (700, 0.93)])
def test_the_cost_of_a_projection_depends_on_its_dimension(p, epsilon):
    def delta(epsilon):
        def integrand(t):
            z = math.exp(t)
            return gdp.delta(epsilon, math.sqrt(z / p) / 4.0) * stats.chi2.pdf(z, p) * z

        ends = np.linspace(-20.0, math.log(60.0 * p + 200.0), 50)
        return sum(integrate.quad(integrand, a, b)[0] for a, b in itertools.pairwise(ends))

    assert delta(epsilon - 0.005) > 1e-5 > delta(epsilon + 0.005)
