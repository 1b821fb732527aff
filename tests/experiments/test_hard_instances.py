"""Hard instances: public bounds hold, optima are optima, and floors are below attained risks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import ndtr

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Arora2022Lipschitz, Arora2022Smooth
from dpglm.privacy import Adjacency, ApproximateDP, gdp
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Hinge, L2Ball, Problem, Squared
from dpglm.solvers import run
from experiments.papers import biased_labels, biased_responses, fingerprint_labels, two_clusters

INSTANCES = {
    "labels": lambda seed: biased_labels(200, 12, rank=5, epsilon=0.2, seed=seed),
    "labels, long rows": lambda seed: biased_labels(
        203, 12, rank=5, epsilon=0.2, seed=seed, row_norm=7.0
    ),
    "labels, rank above n epsilon": lambda seed: biased_labels(
        50, 25, rank=25, epsilon=0.1, seed=seed
    ),
    "labels, one row each": lambda seed: biased_labels(25, 25, rank=25, epsilon=3.0, seed=seed),
    "fingerprint": lambda seed: fingerprint_labels(200, 12, rank=5, seed=seed),
    "responses, low dimension": lambda seed: biased_responses(
        400, 3, radius=0.5, epsilon=0.2, seed=seed
    ),
    "responses, high dimension": lambda seed: biased_responses(
        400, 300, radius=0.5, epsilon=0.2, seed=seed
    ),
    "responses, in other units": lambda seed: biased_responses(
        400, 3, radius=1.0, epsilon=0.2, seed=seed, row_norm=2.0, target_bound=3.0
    ),
    "clusters": lambda seed: two_clusters(20, shift=10.0, sign=(-1) ** seed),
    "clusters of unlike size": lambda seed: two_clusters(21, shift=10.0, sign=(-1) ** seed),
}
each = pytest.mark.parametrize("make", INSTANCES.values(), ids=INSTANCES)


def dense(instance):
    X = instance.X
    return X if isinstance(X, np.ndarray) else X.toarray()


def best_risk(instance):
    """The least mean loss, by methods that share nothing with the generators."""
    X, y = dense(instance), instance.y
    n, d = X.shape
    if instance.loss == Squared():
        w = np.linalg.lstsq(X, y, rcond=None)[0]
        return float(np.mean((X @ w - y) ** 2)) / 2.0
    assert instance.loss == Hinge()
    # min mean(t) subject to t >= 0 and t >= 1 - y x w.
    A = np.hstack([-y[:, np.newaxis] * X, -np.eye(n)])
    cost = np.r_[np.zeros(d), np.full(n, 1.0 / n)]
    bounds = [(None, None)] * d + [(0.0, None)] * n
    return float(linprog(cost, A_ub=A, b_ub=-np.ones(n), bounds=bounds).fun)


@each
def test_public_bounds_hold(make):
    for seed in range(3):
        instance = make(seed)
        X = dense(instance)
        assert X.dtype == instance.y.dtype == np.float64
        assert np.linalg.norm(X, axis=1).max() <= instance.row_norm * (1 + 1e-15)
        assert instance.target_low <= instance.y.min()
        assert instance.y.max() <= instance.target_high
        assert instance.loss.target.admits(instance.y).all()
        assert instance.minimizer.shape == (X.shape[1],)
        assert instance.y.shape == (len(X),)


@each
def test_the_minimum_is_the_minimum(make):
    for seed in range(3):
        instance = make(seed)
        assert instance.minimum == pytest.approx(best_risk(instance), abs=1e-9)
        assert instance.excess_risk(instance.minimizer) == pytest.approx(0.0, abs=1e-12)
        assert instance.excess_risk(instance.minimizer + 0.1) > 1e-4


@each
def test_a_wrong_sign_costs_its_stake_and_stakes_add_up(make):
    instance = make(0)
    rng = np.random.default_rng(0)
    used = (
        np.flatnonzero(instance.minimizer)
        if len(instance.flips) == 1
        else np.arange(len(instance.flips))
    )
    zero = np.zeros_like(instance.minimizer)
    assert instance.excess_risk(zero) >= instance.stakes.sum() - 1e-12
    for _ in range(50):
        size = rng.choice([0.1, 1.0, 3.0])
        w = zero.copy()
        w[used] = size * rng.normal(size=len(used)) / instance.row_norm
        wrong = w[used] * instance.minimizer[used] <= 0.0
        assert instance.excess_risk(w) >= instance.stakes @ wrong - 1e-12


def test_stakes_equal_the_cost_of_zero_for_one_hot_rows():
    for name in ("labels", "fingerprint", "responses, low dimension"):
        instance = INSTANCES[name](1)
        zero = np.zeros_like(instance.minimizer)
        assert instance.excess_risk(zero) == pytest.approx(instance.stakes.sum())


@pytest.mark.parametrize("name", [name for name in INSTANCES if "clusters" not in name])
def test_flipped_labels_turn_a_sign(name):
    instance = INSTANCES[name](0)
    X, y = dense(instance), instance.y.copy()
    column = int(np.argmax(instance.flips))
    rows = np.flatnonzero(X[:, column])
    majority = np.sign(instance.minimizer[column])
    flipped = rows[np.sign(y[rows]) == majority][: instance.flips[column]]
    assert len(flipped) == instance.flips[column]
    y[flipped] *= -1.0
    assert np.sum(np.sign(y[rows])) == -majority * instance.flips[column]
    w = instance.minimizer.copy()
    w[column] *= -1.0
    assert instance.loss.value(X @ w, y).mean() == pytest.approx(instance.minimum)


def test_clusters_need_every_label():
    one, other = two_clusters(20, shift=10.0), two_clusters(20, shift=10.0, sign=-1)
    assert np.sum(one.y != other.y) == one.flips[0] == 20
    np.testing.assert_array_equal(one.X, other.X)


@pytest.mark.parametrize("name", [name for name in INSTANCES if "clusters" not in name])
def test_seeds_decide_everything_and_signs_are_fair(name):
    make = INSTANCES[name]
    one, same, other = make(1), make(1), make(2)
    np.testing.assert_array_equal(dense(one), dense(same))
    np.testing.assert_array_equal(one.y, same.y)
    assert not np.array_equal(dense(one), dense(other))
    signs = np.concatenate([np.sign(make(seed).minimizer[:3]) for seed in range(60)])
    signs = signs[signs != 0.0]
    assert abs(signs.mean()) < 4.0 / math.sqrt(len(signs))


def test_sizes_of_the_theorems():
    labels = biased_labels(10_000, 50, rank=20, epsilon=0.01, seed=0, row_norm=2.0)
    assert np.linalg.norm(labels.minimizer) == pytest.approx(math.sqrt(20.0) / 2.0)
    assert set(labels.flips) == {126}  # the even number next below 127.8
    assert np.linalg.matrix_rank(dense(labels)) == 20
    # arora2022, Theorem 4: (B X n epsilon / Y)^(2/3) columns, up to d, and a norm of nearly B.
    high = biased_responses(8000, 10_000, radius=0.5, epsilon=0.02, seed=0)
    assert len(high.flips) == int((0.5 * 8000 * 0.02) ** (2 / 3))
    assert 0.9 * 0.5 <= np.linalg.norm(high.minimizer) <= 0.5
    low = biased_responses(8000, 4, radius=0.5, epsilon=0.02, seed=0)
    assert len(low.flips) == 4
    assert 0.95 * 0.5 <= np.linalg.norm(low.minimizer) <= 0.5
    assert set(low.flips) == {50}


@pytest.mark.parametrize("epsilon", [0.02, 0.05])
def test_floors_have_the_rates_of_the_theorems(epsilon):
    def labels(n, rank):
        return biased_labels(n, rank, rank=rank, epsilon=epsilon, seed=0).floor(epsilon, 0.0)

    # r / (n epsilon), with the constant of the docstring.
    for n, rank in ((8000, 5), (32_000, 10)):
        assert labels(n, rank) == pytest.approx(0.278 * rank / (n * epsilon), rel=0.05)

    def responses(n, d):
        return biased_responses(n, d, radius=0.5, epsilon=epsilon, seed=0).floor(epsilon, 0.0)

    # sqrt(d) / (n epsilon) below the transition, (n epsilon)^(-2/3) above.
    assert responses(64_000, 4) == pytest.approx(responses(16_000, 4) / 4, rel=0.1)
    assert responses(64_000, 16) == pytest.approx(responses(64_000, 4) * 2, rel=0.1)
    assert responses(64_000, 4000) == pytest.approx(responses(8000, 4000) / 4, rel=0.25)
    assert responses(64_000, 4000) == responses(64_000, 400)


@pytest.mark.parametrize("d", [16, 4000])
def test_floors_are_those_of_other_norms_too(d):
    # arora2022, Corollary 4: G B min((n epsilon)^(-1/p), d^(1 - 1/p) / (n epsilon)), on d columns.
    n, epsilon, norm = 8000, 0.05, 2.0
    signs = min(d, int(n * epsilon))
    one = biased_labels(n, d, rank=signs, epsilon=epsilon, seed=0, row_norm=norm)
    # Rows are one-hot, so slopes in a coefficient are at most this for every dual norm.
    assert np.abs(dense(one)).max() == norm
    assert np.count_nonzero(dense(one)) == n
    for p in (1.0, 2.0, 4.0, math.inf):
        reach = float(np.linalg.norm(one.minimizer, p))
        rate = norm * reach * min((n * epsilon) ** (-1 / p), d ** (1 - 1 / p) / (n * epsilon))
        assert 0.2 * rate < one.floor(epsilon, 0.0) < 0.3 * rate


def test_the_floor_of_one_sign_is_exact_for_randomised_response():
    # A method that reports the sign, and lies as often as group privacy allows, reaches it.
    instance = biased_labels(40, 1, rank=1, epsilon=0.2, seed=0)
    m = int(instance.flips[0])
    lie = 1.0 / (1.0 + math.exp(0.2 * m))
    assert instance.floor(0.2, 0.0) == pytest.approx(lie * instance.stakes[0])


@pytest.mark.parametrize("epsilon", [0.05, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-3])
def test_gaussian_noise_on_the_majority_errs_more_than_the_floor(epsilon, delta):
    instance = biased_labels(40, 1, rank=1, epsilon=0.2, seed=0)
    m = int(instance.flips[0])
    mu = gdp.mu(epsilon, delta)
    # The lean has sensitivity 2 under replace_one, so the sign is wrong this often.
    wrong = float(ndtr(-m * mu / 2.0))
    floor = instance.floor(epsilon, delta) / instance.stakes[0]
    assert floor <= wrong
    # A floor that forgot group privacy would be refuted by it.
    if (epsilon, delta) == (3.0, 1e-3):
        assert (1.0 - delta) / (1.0 + math.exp(epsilon)) > wrong


def test_floors_depend_on_relation_and_fall_with_budget():
    instance = INSTANCES["labels"](0)
    one = instance.floor(0.2, 1e-6)
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE):
        # A changed label is one row erased and another brought in.
        assert instance.floor(0.2, 0.0, adjacency) == pytest.approx(
            float(instance.stakes @ (1 / (1 + np.exp(0.4 * instance.flips))))
        )
    floors = [instance.floor(epsilon, 1e-6) for epsilon in (0.0, 0.1, 0.2, 1.0, 10.0, 1e4)]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(floors))
    assert floors[0] == pytest.approx(instance.stakes.sum() / 2, rel=1e-3)
    assert one == floors[2]
    assert instance.floor(0.2, 0.5) < one
    assert 0.0 <= floors[-1] < 1e-12


def test_noisy_descent_is_above_the_floor_and_near_it():
    # The floor bounds the mean over random signs.
    excess, floors = [], []
    for seed in range(12):
        instance = biased_responses(400, 3, radius=0.5, epsilon=0.2, seed=seed)
        problem = Problem(Squared(), constraint=L2Ball(0.5))
        spec = DataSpec(400, 3, sparse=True, target_low=-1.0, target_high=1.0)
        plan = Arora2022Smooth(n_steps=200).plan(
            problem, ApproximateDP(0.2, 1e-6), spec, Adjacency.REPLACE_ONE
        )
        rows = prepare_rows(instance.X, instance.y, spec)
        excess.append(instance.excess_risk(run(plan, rows, SeededNoise(seed)).w))
        floors.append(instance.floor(0.2, 1e-6))
    assert np.mean(floors) <= np.mean(excess) <= 12 * np.mean(floors)


def test_noisy_descent_is_above_the_floor_of_fingerprints():
    # The instance of song2021, Theorem 3.3.
    excess, floors = [], []
    for seed in range(12):
        instance = fingerprint_labels(400, 12, rank=5, seed=seed)
        spec = DataSpec(400, 12, sparse=True, target_low=-1.0, target_high=1.0)
        problem = Problem(Hinge(), constraint=L2Ball(math.sqrt(5.0)))
        solver = Arora2022Lipschitz(n_steps=200)
        plan = solver.plan(problem, ApproximateDP(0.2, 1e-6), spec, Adjacency.REPLACE_ONE)
        rows = prepare_rows(instance.X, instance.y, spec)
        excess.append(instance.excess_risk(run(plan, rows, SeededNoise(seed)).w))
        floors.append(instance.floor(0.2, 1e-6))
    assert 0.0 < np.mean(floors) < np.mean(excess)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: biased_labels(10, 5, rank=6, epsilon=0.1, seed=0), "n_features"),
        (lambda: biased_labels(4, 5, rank=5, epsilon=0.1, seed=0), "n_rows"),
        (lambda: biased_labels(10, 5, rank=0, epsilon=0.1, seed=0), "rank"),
        (lambda: biased_labels(10, 5, rank=2, epsilon=0.0, seed=0), "epsilon"),
        (lambda: biased_labels(10, 5, rank=2, epsilon=0.1, seed=-1), "seed"),
        (lambda: biased_labels(10, 5, rank=2, epsilon=0.1, seed=0, row_norm=0.0), "row_norm"),
        (lambda: fingerprint_labels(4, 5, rank=5, seed=0), "n_rows"),
        (lambda: biased_responses(0, 5, radius=1.0, epsilon=0.1, seed=0), "n_rows"),
        (lambda: biased_responses(10, 5, radius=0.0, epsilon=0.1, seed=0), "radius"),
        (lambda: biased_responses(10, 5, radius=1.0, epsilon=-1.0, seed=0), "epsilon"),
        (lambda: biased_responses(10, 5, radius=1e-3, epsilon=0.1, seed=0), "n_rows"),
        (
            lambda: biased_responses(10, 5, radius=1.0, epsilon=0.1, seed=0, target_bound=0.0),
            "target_bound",
        ),
        (lambda: two_clusters(1, shift=1.0), "n_rows"),
        (lambda: two_clusters(4, shift=0.0), "shift"),
        (lambda: two_clusters(4, shift=1.0, sign=0), "sign"),
        (lambda: two_clusters(4, shift=1.0).floor(-1.0, 0.0), "epsilon"),
        (lambda: two_clusters(4, shift=1.0).floor(1.0, 1.0), "delta"),
    ],
)
def test_arguments_are_checked(call, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        call()
