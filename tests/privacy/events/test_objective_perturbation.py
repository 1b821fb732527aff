"""The loss bound of objective perturbation against exact densities, and its accounting."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import (
    FourierAccountant,
    RenyiAccountant,
)
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    PerturbedObjective,
    PoissonSampled,
    Repeated,
)
from dpglm.privacy.events.objective import _BEND, _line_law, _plane_law
from tests.privacy.pld import PLD

FOURIER, RENYI = FourierAccountant(), RenyiAccountant()
ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def densities(rows, other_rows, strength, sigma, grid):
    """Exact densities of the minimiser in one dimension on a grid of w, for two data sets."""

    def density(all_rows):
        slope = sum(row(grid)[0] for row in all_rows) + strength * grid
        curvature = sum(row(grid)[1] for row in all_rows) + strength
        return np.exp(-0.5 * (slope / sigma) ** 2) * curvature / (sigma * math.sqrt(2 * math.pi))

    return density(rows), density(other_rows)


def exact_delta(p, q, grid, epsilon):
    return float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), grid))


def logistic(x, y):
    """Slope and curvature in w of ``log(1 + exp(-y x w))``."""

    def at(w):
        margin = np.clip(y * x * w, -700.0, 700.0)
        probability = 1.0 / (1.0 + np.exp(margin))
        return -y * x * probability, x * x * probability * (1.0 - probability)

    return at


def steep(limit, width):
    """Huber loss: slope ``w / width`` cut at the limit."""
    return lambda w: (np.clip(w / width, -limit, limit), (np.abs(w) < limit * width) / width)


NONE = lambda w: (np.zeros_like(w), np.zeros_like(w))  # noqa: E731


@pytest.mark.parametrize("norm", [0.05, 1.0, 30.0, 100.0])
@pytest.mark.parametrize("strength", [0.1, 3.0])
@pytest.mark.parametrize("sigma", [0.5, 4.0])
def test_bound_holds_for_exact_densities(norm, strength, sigma):
    # Relative to the row norm, so that one grid of w serves.
    sigma, strength = sigma * norm, strength * norm**2
    grid = np.linspace(-80.0, 80.0, 100_001) * sigma / strength
    others = [logistic(0.3 * norm, 1.0), logistic(norm, -1.0)]
    event = PerturbedObjective(sigma / norm, 0.25 * norm**2 / strength)
    replaced = PerturbedObjective(0.5 * sigma / norm, 0.25 * norm**2 / strength)
    for kept in ([], others):
        base = [*kept, NONE]
        row, opposite = logistic(norm, 1.0), logistic(norm, -1.0)
        with_row, without = densities([*base, row], base, strength, sigma, grid)
        with_opposite, _ = densities([*base, opposite], base, strength, sigma, grid)
        assert np.trapezoid(with_row, grid) == pytest.approx(1.0, abs=1e-6)
        for epsilon in (0.05, 0.5, 2.0):
            bound = FOURIER.delta(event, ZERO_OUT, epsilon) + 1e-12
            assert exact_delta(with_row, without, grid, epsilon) <= bound
            assert exact_delta(without, with_row, grid, epsilon) <= bound
            bound = FOURIER.delta(replaced, REPLACE_ONE, epsilon) + 1e-12
            assert exact_delta(with_row, with_opposite, grid, epsilon) <= bound


def test_curvature_without_the_square_of_the_norm_is_caught():
    # The planted bug: a bound c R on the curvature where c R^2 is right, at R = 100.
    norm, strength, sigma = 100.0, 25.0, 400.0
    grid = np.linspace(-800.0, 800.0, 2_000_001)
    row = logistic(norm, 1.0)
    with_row, without = densities([row, NONE], [NONE], strength, sigma, grid)
    right = PerturbedObjective(sigma / norm, 0.25 * norm**2 / strength)
    wrong = PerturbedObjective(sigma / norm, 0.25 * norm / strength)
    exact = exact_delta(with_row, without, grid, 2.0)
    assert exact <= FOURIER.delta(right, ZERO_OUT, 2.0)
    assert exact > 10.0 * FOURIER.delta(wrong, ZERO_OUT, 2.0)


def test_bound_is_attained_beyond_the_gaussian_mechanism():
    # Adding a row with a slope of the sign of w. The planted bug: loss s^2/2 + s u, not s |u|.
    sigma, s = 1.0, 0.7
    grid = np.linspace(-12.0, 12.0, 1_000_001)
    with_row, without = densities([steep(s, 1e-4), NONE], [NONE], 1.0, sigma, grid)
    for epsilon in (0.3, 1.0, 2.0):
        exact = exact_delta(without, with_row, grid, epsilon)
        assert exact == pytest.approx(2.0 * gdp.delta(epsilon, s), rel=1e-3)
        assert exact > 1.9 * FOURIER.delta(Gaussian(1.0 / s), ZERO_OUT, epsilon)
        assert exact <= FOURIER.delta(PerturbedObjective(1.0 / s, 1e-9), ZERO_OUT, epsilon)


def test_two_rows_are_needed_under_replace_one():
    # Slopes of opposite sign: twice the sensitivity. The planted bug: the zero-out multiplier.
    sigma, s = 1.0, 0.7
    grid = np.linspace(-12.0, 12.0, 1_000_001)
    down = lambda w: (-s * np.ones_like(w), np.zeros_like(w))  # noqa: E731
    up = lambda w: (s * np.ones_like(w), np.zeros_like(w))  # noqa: E731
    p, q = densities([up], [down], 1.0, sigma, grid)
    exact = exact_delta(p, q, grid, 2.0)
    assert exact == pytest.approx(gdp.delta(2.0, 2.0 * s), rel=1e-6)
    assert exact <= FOURIER.delta(PerturbedObjective(0.5 / s, 1e-9), REPLACE_ONE, 2.0)
    assert exact > 2.0 * FOURIER.delta(PerturbedObjective(1.0 / s, 1e-9), REPLACE_ONE, 2.0)


@pytest.mark.parametrize("angle", [0.5, 2.0, math.pi])
def test_bound_holds_for_exact_densities_in_two_dimensions(angle):
    # One row replaced by another of the same norm at an angle; steep losses, so that the
    # direction of the difference depends on w.
    strength, sigma, norm = 1.0, 1.5, 1.0
    axis = np.linspace(-9.0, 9.0, 1201) * sigma / strength
    w = np.stack(np.meshgrid(axis, axis, indexing="ij"))

    def density(x):
        x = np.array(x)
        along = np.tensordot(x, w, 1)
        slope, curvature = np.tanh(6.0 * along), 6.0 / np.cosh(6.0 * along) ** 2
        b = slope * x[:, None, None] + strength * w
        jacobian = strength**2 * (1.0 + curvature * norm**2 / strength)
        return np.exp(-0.5 * (b**2).sum(axis=0) / sigma**2) * jacobian / (2 * math.pi * sigma**2)

    p, q = density((1.0, 0.0)), density((math.cos(angle), math.sin(angle)))
    cell = (axis[1] - axis[0]) ** 2
    assert p.sum() * cell == pytest.approx(1.0, abs=1e-4)
    event = PerturbedObjective(0.5 * sigma, 6.0)
    for epsilon in (0.2, 1.0, 3.0):
        exact = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * cell)
        assert exact <= FOURIER.delta(event, REPLACE_ONE, epsilon) + 1e-6


@pytest.mark.parametrize(("multiplier", "ratio"), [(0.3, 1.0), (2.0, 0.1), (40.0, 0.003)])
def test_closed_form(multiplier, ratio):
    s, c = 1.0 / multiplier, math.log1p(ratio)
    event = PerturbedObjective(multiplier, ratio)
    for z in (-0.2, 0.0, 1.0, 3.0, 6.0):
        epsilon = max(c + 0.5 * s * s + z * s, 0.0)
        exact = 1.0 - 2.0 * math.exp(epsilon - c) * float(ndtr(-s))
        if z >= 0.0:
            exact = 2.0 * gdp.delta(epsilon - c, s)
        assert exact <= FOURIER.delta(event, ZERO_OUT, epsilon) <= exact * (1.0 + 1e-9)


def test_closed_form_at_tiny_deltas_by_many_digits():
    event, s, c = PerturbedObjective(5.0, 0.02), mpmath.mpf("0.2"), mpmath.log1p(0.02)
    for epsilon in (1.5, 2.0, 3.0):
        with mpmath.workdps(60):
            x = epsilon - c
            exact = 2 * (mpmath.ncdf(s / 2 - x / s) - mpmath.exp(x) * mpmath.ncdf(-s / 2 - x / s))
        assert float(exact) < 1e-10
        assert FOURIER.delta(event, ZERO_OUT, epsilon) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("count", [1, 3])
def test_composition_by_drawing(adjacency, count):
    rng = np.random.default_rng(7)
    multiplier, ratio, mu, draws = 2.5, 0.05, 0.4, 400_000
    tail = rng.random((draws, count))
    u = -ndtri(0.5 * tail)
    if adjacency is REPLACE_ONE:
        # V by its tail, without the small bridge that the accountants add.
        near = np.sqrt(-2.0 * np.log(tail))
        u = np.where(near < _BEND, near, np.maximum(_BEND, u))
    s = 1.0 / multiplier
    loss = (math.log1p(ratio) + 0.5 * s * s + s * u).sum(axis=1)
    loss += mu * rng.standard_normal(draws) + 0.5 * mu * mu
    event = Composed((Repeated(PerturbedObjective(multiplier, ratio), count), Gaussian(1 / mu)))
    for epsilon in (0.5, 1.5, 2.5):
        gain = -np.expm1(np.minimum(epsilon - loss, 0.0))
        error = 5.0 * float(gain.std()) / math.sqrt(draws)
        bound = FOURIER.delta(event, adjacency, epsilon)
        assert bound >= gain.mean() - error
        assert bound <= (1.2 if adjacency is REPLACE_ONE else 1.0) * (gain.mean() + error)
        assert PLD(4).delta(event, adjacency, epsilon) == pytest.approx(bound, rel=2e-3)


@pytest.mark.parametrize("angle", [0.0, 0.3, 0.7, math.pi / 4])
def test_tail_of_two_rows_in_a_plane(angle):
    # P(max(cos |u1|, sin |u2|) > v) is exact; the law used must have at least this tail.
    law = _plane_law(0.0, 1.0)
    v = np.linspace(0.0, 12.0, 241)
    first = 1.0 - 2.0 * ndtr(-v / math.cos(angle))
    tail_first = 2.0 * ndtr(-v / math.cos(angle))
    tail_second = 2.0 * ndtr(-v / math.sin(angle)) if angle else np.zeros_like(v)
    exact = tail_first + first * tail_second
    used = law.tails(v + 0.5)[0]
    assert np.all(used >= exact * (1.0 - 1e-12))
    assert used[-1] == pytest.approx(2.0 * float(ndtr(-12.0)), rel=1e-12)
    # Planted bug: the half-normal tail everywhere.
    wrong = _line_law(0.0, 1.0).tails(v + 0.5)[0]
    assert np.all(wrong >= exact * (1.0 - 1e-12)) == (angle == 0.0)


@pytest.mark.parametrize("make", [_line_law, _plane_law])
@pytest.mark.parametrize("slope", [0.05, 0.7, 3.0])
def test_both_tails_belong_together(make, slope):
    # Q has density exp(-loss) relative to P: dQ = exp(-t) dP on a fine grid.
    law = make(0.1, slope)
    t = np.linspace(law.low, law.low + 9.0 * slope, 200_001)
    p, q = (-np.diff(tail) for tail in law.tails(t))
    assert np.all(p >= -1e-15)
    assert np.allclose(q, np.exp(-0.5 * (t[:-1] + t[1:])) * p, rtol=1e-4, atol=1e-13)


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize(("multiplier", "ratio"), [(1.0, 0.2), (6.0, 0.01)])
def test_never_above_the_published_renyi_bound(adjacency, multiplier, ratio):
    event = Composed((PerturbedObjective(multiplier, ratio), Gaussian(8.0)))
    exact = FOURIER.epsilon(event, adjacency, 1e-6)
    ours = RENYI.epsilon(event, adjacency, 1e-6)
    assert exact < ours < 1.2 * exact
    # The published form has |log(1 - ratio)| in place of log(1 + ratio).
    orders = np.geomspace(1e-2, 1e4, 4000)
    s = 1.0 / multiplier
    moment = np.log(2.0) + 0.5 * (orders * s) ** 2 + np.log(ndtr(orders * s))
    divergence = -math.log1p(-ratio) + 0.5 * s * s + moment / orders + (1.0 + orders) / 128.0
    order = 1.0 + orders
    published = divergence + np.log1p(-1.0 / order) - (math.log(1e-6) + np.log(order)) / orders
    assert exact < published.min()


def test_replace_one_costs_less_than_via_the_erased_row():
    event = PerturbedObjective(4.0, 0.3)
    direct = FOURIER.epsilon(event, REPLACE_ONE, 1e-6)
    step = FOURIER.epsilon(PerturbedObjective(8.0, 0.3), ZERO_OUT, 1e-7)
    assert direct < 0.9 * 2.0 * step


def test_sampled_events_in_the_same_composition_take_two_rows():
    event = Composed((PerturbedObjective(4.0, 0.01), PoissonSampled(0.1, Gaussian(2.0))))
    found = FOURIER.epsilon(event, REPLACE_ONE, 1e-6)
    halves = Composed((PerturbedObjective(8.0, 0.01), PoissonSampled(0.1, Gaussian(4.0))))
    half = FOURIER.epsilon(halves, ZERO_OUT, 1e-6 / (1.0 + math.exp(0.5 * found)))
    assert found == pytest.approx(2.0 * half, rel=1e-6)
