"""Gaussian noise after a random projection: the mixture over chi-squares, and wrong ones."""

import math

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from dpglm.privacy import gdp
from dpglm.privacy.accounting.accountants import (
    FourierAccountant,
    GaussianAccountant,
    MixtureAccountant,
    RenyiAccountant,
    accountant_for,
)
from dpglm.privacy.accounting.calibrate import calibrate, spent
from dpglm.privacy.budget import Adjacency, ApproximateDP
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    PoissonSampled,
    ProjectedGaussian,
    Repeated,
)
from dpglm.privacy.events.projected import chi_nodes
from tests.privacy.pld import PLD

MIXTURE, FOURIER = MixtureAccountant(), FourierAccountant()
ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


def gaussian_delta(epsilon, mu):
    return ndtr(0.5 * mu - epsilon / mu) - np.exp(epsilon) * ndtr(-0.5 * mu - epsilon / mu)


def chi_square_integral(epsilon, dimension, steps, multiplier):
    """Mean of delta over ``M = chi2_{pT} / (p multiplier^2)`` with many digits."""
    with mpmath.workdps(40):
        half = mpmath.mpf(dimension * steps) / 2
        scale = mpmath.mpf(dimension) * mpmath.mpf(multiplier) ** 2

        def inside(x):
            mu = mpmath.sqrt(x / scale)
            delta = mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
                -mu / 2 - epsilon / mu
            )
            log_density = (half - 1) * mpmath.log(x / 2) - x / 2 - mpmath.loggamma(half)
            return delta * mpmath.exp(log_density) / 2

        centre, spread = 2 * half, 2 * mpmath.sqrt(half)
        ends = [centre + k * spread for k in (-6, -3, 0, 3, 8, 20, 60) if centre + k * spread > 0]
        return float(mpmath.quad(inside, [0, *ends]))


@pytest.mark.parametrize(
    ("dimension", "steps", "multiplier"), [(2, 1, 2.0), (5, 4, 3.0), (20, 10, 10.0)]
)
def test_equal_steps_are_one_chi_square_integral(dimension, steps, multiplier):
    event = Repeated(ProjectedGaussian(multiplier, dimension), steps)
    for epsilon in (0.1, 1.0, 4.0):
        exact = chi_square_integral(epsilon, dimension, steps, multiplier)
        for adjacency in Adjacency:
            found = MIXTURE.delta(event, adjacency, epsilon)
            assert exact <= found <= exact * (1.0 + 5e-5)
            found = FOURIER.delta(event, adjacency, epsilon)
            # Nodes in place of the chi-square, which is cut where 1e-30 is left.
            assert exact <= found <= exact * 1.03 + 1e-28
            if exact > 1e-6:
                assert found <= exact * 1.003


def test_a_schedule_is_a_weighted_sum_of_chi_squares():
    rng = np.random.default_rng(3)
    dimension, multipliers = 3, 6.0 / np.sqrt(np.arange(1, 31))
    event = Composed(tuple(ProjectedGaussian(s, dimension) for s in multipliers))
    squares = rng.chisquare(dimension, (200_000, 30)) @ (1.0 / (dimension * multipliers**2))
    for epsilon in (2.0, 8.0, 20.0):
        deltas = gaussian_delta(epsilon, np.sqrt(squares))
        error = 5.0 * float(deltas.std()) / math.sqrt(deltas.size)
        assert MIXTURE.delta(event, ZERO_OUT, epsilon) == pytest.approx(deltas.mean(), abs=error)


def test_hundreds_of_different_multipliers_and_other_events():
    schedule = tuple(ProjectedGaussian(200.0 / math.sqrt(k), 40) for k in range(1, 401))
    event = Composed((*schedule, Repeated(Gaussian(30.0), 100)))
    found = MIXTURE.epsilon(event, ZERO_OUT, 1e-6)
    # Hardly more than Gaussian noise of the same size: the sum has 16000 degrees of freedom.
    plain = Composed((*(Gaussian(one.noise_multiplier) for one in schedule), event.events[-1]))
    exact = GaussianAccountant().epsilon(plain, ZERO_OUT, 1e-6)
    assert exact < found < 1.01 * exact


@pytest.mark.parametrize("dimension", [1, 4, 30])
def test_mean_of_the_chi_square_is_not_a_bound(dimension):
    # The planted bug: noise accounted as if the projection kept lengths.
    event = ProjectedGaussian(3.0, dimension)
    exact = MIXTURE.delta(event, ZERO_OUT, 2.0)
    assert exact > 2.0 * MIXTURE.delta(Gaussian(3.0), ZERO_OUT, 2.0)
    # And the direct experiment: a projection drawn, its Gaussian mechanism compared.
    rng = np.random.default_rng(5)
    direction = rng.standard_normal(7)
    direction /= np.linalg.norm(direction)
    lengths = np.linalg.norm(
        np.einsum("nij,i->nj", rng.standard_normal((20_000, 7, dimension)), direction), axis=1
    ) / math.sqrt(dimension)
    drawn = gaussian_delta(2.0, lengths / 3.0)
    error = 5.0 * float(drawn.std()) / math.sqrt(drawn.size)
    assert exact == pytest.approx(drawn.mean(), abs=error)


@pytest.mark.parametrize(("dimension", "steps"), [(3, 1), (10, 20)])
def test_renyi_form_is_above_and_ends_where_the_moment_does(dimension, steps):
    event = Repeated(ProjectedGaussian(4.0, dimension), steps)
    exact = MIXTURE.epsilon(event, ZERO_OUT, 1e-6)
    orders = 1.0 + np.geomspace(1e-3, 1e3, 100_001)
    used = orders * (orders - 1.0) / (dimension * 16.0)
    valid = used < 1.0
    assert not valid.all()
    orders, used = orders[valid], used[valid]
    divergence = -steps * 0.5 * dimension * np.log1p(-used) / (orders - 1.0)
    bound = divergence + np.log1p(-1.0 / orders)
    bound -= (math.log(1e-6) + np.log(orders)) / (orders - 1.0)
    assert exact < bound.min() < 1.25 * exact
    assert RenyiAccountant().epsilon(event, ZERO_OUT, 1e-6) == pytest.approx(bound.min(), rel=1e-4)


@pytest.mark.parametrize(("dimension", "multiplier"), [(1, 1.0), (3, 0.5), (40, 5.0), (1000, 0.1)])
def test_nodes_dominate_every_mu_in_between(dimension, multiplier):
    nodes = chi_nodes(dimension, multiplier)
    assert nodes.weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert np.all(nodes.weights >= 0.0)
    rng = np.random.default_rng(1)
    mus = np.sqrt(rng.chisquare(dimension, 200_000) / dimension) / multiplier
    for epsilon in (-1.0, 0.0, 0.3, 2.0):
        on_nodes = float(nodes.weights @ gaussian_delta(epsilon, nodes.mus)) + nodes.beyond
        deltas = gaussian_delta(epsilon, mus)
        error = 5.0 * float(deltas.std()) / math.sqrt(deltas.size)
        assert deltas.mean() - error <= on_nodes <= 1.002 * deltas.mean() + error


@pytest.mark.parametrize(("dimension", "multiplier"), [(1, 1.0), (2, 0.9), (9, 2.0), (70, 30.0)])
def test_nodes_dominate_tightly_at_every_epsilon(dimension, multiplier):
    nodes = chi_nodes(dimension, multiplier)
    largest = float(nodes.mus[-1])
    for epsilon in (0.0, 0.1 * largest, 0.5 * largest, 2.0 * largest, -0.3 * largest):
        on_nodes = float(nodes.weights @ gaussian_delta(epsilon, nodes.mus))
        exact = chi_square_integral(epsilon, dimension, 1, multiplier)
        assert exact * (1.0 - 1e-12) <= on_nodes <= exact * 1.02
        # The planted bug: the middle of each cell in place of its two ends.
        lower = nodes.weights.copy()
        lower[1:-1:2] += nodes.weights[2::2]
        lower[2::2] = 0.0
        assert float(lower @ gaussian_delta(epsilon, nodes.mus)) < exact


@pytest.mark.parametrize(("dimension", "multiplier", "rate"), [(2, 1.5, 0.2), (25, 0.8, 0.05)])
def test_sampled_losses_by_drawing(dimension, multiplier, rate):
    rng, draws = np.random.default_rng(11), 400_000
    mus = np.sqrt(rng.chisquare(dimension, draws) / dimension) / multiplier
    noise, present = rng.standard_normal(draws), rng.random(draws) < rate
    loss = lambda x: np.log1p(rate * np.expm1(mus * x - 0.5 * mus**2))  # noqa: E731
    removing, adding = ProjectedGaussian(multiplier, dimension).sampled_losses(rate)
    with_row, without = loss(noise + mus * present), loss(noise)
    for t in (-0.1, 0.02, 0.3, 1.5):
        at = np.array([t])
        for law, p, q in ((removing, with_row, without), (adding, -without, -with_row)):
            for tail, drawn in zip(law.tails(at), (p, q), strict=True):
                assert tail[0] == pytest.approx((drawn > t).mean(), abs=4e-3)


@pytest.mark.parametrize("adjacency", [ZERO_OUT, Adjacency.ADD_REMOVE])
def test_one_sampled_step_is_a_mean_of_sampled_gaussians(adjacency):
    dimension, multiplier, rate = 6, 1.2, 0.1
    event = PoissonSampled(rate, ProjectedGaussian(multiplier, dimension))
    rng = np.random.default_rng(2)
    mus = np.sqrt(rng.chisquare(dimension, 400_000) / dimension) / multiplier
    for epsilon in (0.05, 0.5, 2.0):
        amplified = math.log1p(math.expm1(epsilon) / rate)
        deltas = rate * gaussian_delta(amplified, mus)
        error = 5.0 * float(deltas.std()) / math.sqrt(deltas.size)
        assert FOURIER.delta(event, adjacency, epsilon) == pytest.approx(
            deltas.mean(), abs=error, rel=3e-3
        )


def test_sampling_costs_between_all_rows_and_no_projection():
    projected, plain = ProjectedGaussian(1.0, 30), Gaussian(1.0)
    for adjacency in (ZERO_OUT, REPLACE_ONE):
        sampled = Repeated(PoissonSampled(0.05, projected), 50)
        found = FOURIER.epsilon(sampled, adjacency, 1e-6)
        assert found < MIXTURE.epsilon(Repeated(projected, 50), adjacency, 1e-6)
        assert found > FOURIER.epsilon(Repeated(PoissonSampled(0.05, plain), 50), adjacency, 1e-6)
    assert accountant_for(sampled, ZERO_OUT).name == "fourier"
    assert accountant_for(Repeated(projected, 5), ZERO_OUT).name == "mixture"


def test_many_columns_are_the_gaussian_mechanism():
    event = Repeated(ProjectedGaussian(3.0, 10**7), 4)
    assert MIXTURE.epsilon(event, ZERO_OUT, 1e-6) == pytest.approx(
        gdp.epsilon(1e-6, 2.0 / 3.0), rel=1e-4
    )


def test_published_accounting_of_partition_batches_is_refuted():
    # d2p2 draws batches from a partition and accounts for Poisson samples. Over one epoch the row
    # is in exactly one batch: one Gaussian release, much dearer than the claim.
    batches, multiplier = 100, 1.0
    claimed = PLD(2).epsilon(
        Repeated(PoissonSampled(1.0 / batches, Gaussian(multiplier)), batches), ZERO_OUT, 1e-5
    )
    really = gdp.epsilon(1e-5, 1.0 / multiplier)
    assert really > 1.5 * claimed
    assert gdp.delta(claimed, 1.0 / multiplier) > 100.0 * 1e-5


def test_calibration_of_a_schedule():
    budget = ApproximateDP(1.0, 1e-6)

    def make_event(multiplier):
        return Composed(tuple(ProjectedGaussian(multiplier * 0.99**k, 30) for k in range(100)))

    multiplier = calibrate(make_event, budget, ZERO_OUT)
    report = spent(make_event(multiplier), ZERO_OUT, budget)
    assert report["accountant"] == "mixture"
    assert 1.0 - 1e-5 < report["epsilon"] <= 1.0
    # Half the noise is over budget by far.
    assert spent(make_event(0.5 * multiplier), ZERO_OUT, budget)["epsilon"] > 1.8


def test_calibration_of_sampled_steps():
    budget = ApproximateDP(2.0, 1e-6)

    def make_event(multiplier):
        return Repeated(PoissonSampled(0.05, ProjectedGaussian(multiplier, 100)), 50)

    multiplier = calibrate(make_event, budget, ZERO_OUT)
    assert spent(make_event(multiplier), ZERO_OUT, budget)["epsilon"] <= 2.0
    assert spent(make_event(0.99 * multiplier), ZERO_OUT, budget)["epsilon"] > 2.0
