"""Output perturbation: minimisers move no further than declared, with the noise that this asks."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import integrate, sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import objective as certified
from dpglm.privacy import gdp
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L1,
    L2,
    ElasticNetPenalty,
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    OneVsRest,
    Poisson,
    Problem,
    Savage,
    SmoothedHinge,
    Softmax,
    Squared,
)
from dpglm.solvers import OutputPerturbation, run
from dpglm.solvers.minimizer import strongly_convex
from dpglm.solvers.minimizer.output_perturbation import OutputPerturbationMethod
from tests.audit.attack import released_sums

pytestmark = pytest.mark.one_in(3)

BUDGET = GaussianDP(1.0)
PROBLEMS = {
    "logistic": Problem(Logistic()),
    "with a ridge": Problem(Logistic(), L2(0.1)),
    "with a ridge on all": Problem(Logistic(), L2(0.1), penalize_intercept=True),
    "elastic net": Problem(Logistic(), ElasticNetPenalty(0.05, 0.5)),
    "L1": Problem(Huber(0.5), L1(0.01)),
    "smoothed hinge": Problem(SmoothedHinge(0.5)),
    "squared": Problem(Squared()),
    "squared on a ball": Problem(Squared(), constraint=L2Ball(0.5), penalize_intercept=True),
    "Poisson": Problem(Poisson()),
    "softmax": Problem(Softmax()),
    "one against the rest": Problem(OneVsRest(Logistic(), 3)),
}


def spec_of(problem, n, row_norm=1.0, intercept=True, **options):
    classes = problem.loss.target.value == "class"
    return DataSpec(
        n_rows=n,
        n_features=2,
        n_outputs=3 if classes else 1,
        row_norm=row_norm,
        intercept=row_norm if intercept else 0.0,
        target_low=0.0,
        target_high=1.0,
        **options,
    )


def make_data(problem, n, row_norm=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) * row_norm
    target = problem.loss.target.value
    if target == "class":
        return X, rng.integers(0, 3, n)
    return X, rng.choice([-1.0, 1.0], n) if target == "binary" else rng.uniform(0, 1, n)


def minimisers(plan, *data):
    """The computed minimisers of some rows, before noise, and its standard deviation."""
    found = []
    for rows in data:
        with released_sums() as sums:
            run(plan, rows, SeededNoise(0))
        # The number of rows comes first where it is private.
        value, std = sums[-1]
        found.append(value)
    return found, std


def neighbours(plan, X, y, weights=None):
    """Rows, and every kind of neighbour of theirs in which the first row is another."""
    spec, adjacency = plan.data, plan.adjacency
    weights = np.ones(len(X)) if weights is None else weights
    first = prepare_rows(X, y, spec, weights=weights)
    if adjacency is Adjacency.ZERO_OUT:
        yield first, prepare_rows(X, y, spec, weights=np.append(0.0, weights[1:]))
    elif adjacency is Adjacency.ADD_REMOVE:
        yield first, first.take(np.arange(1, len(X)))
    else:
        for row, target in ((-X[0], y[0]), (X[0], 1 - y[0] if y.dtype.kind == "i" else -y[0])):
            # Targets within [0, 1] where they are not classes or signs.
            low = -1.0 if plan.problem.loss.target.value == "binary" else 0.0
            swapped = np.concatenate([[max(target, low)], y[1:]]).astype(y.dtype)
            yield first, prepare_rows(np.vstack([row, X[1:]]), swapped, spec, weights=weights)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
def test_minimisers_of_neighbours_are_as_close_as_declared(name, adjacency, row_norm):
    problem, largest = PROBLEMS[name], 0.0
    for n in (1, 2, 40):
        spec = spec_of(problem, n, row_norm, weight_bound=2.0)
        plan = OutputPerturbation().plan(problem, BUDGET, spec, adjacency)
        release = plan.method.releases[-1]
        limit = adjacency.sum_sensitivity(release.contribution_bound)
        X, y = make_data(problem, n, row_norm)
        for length in (1.0,) if n < 40 else (1e30,):
            X[0] = length * row_norm * np.array([0.6, 0.8])
            for pair in neighbours(plan, X, y, np.full(n, 2.0)):
                (one, other), std = minimisers(plan, *pair)
                distance = float(np.linalg.norm(one - other))
                assert distance <= limit
                assert std >= limit * plan.method.noise_multiplier
                largest = max(largest, distance / limit)
    # The bound is one that data come near to, where no ball holds minimisers together.
    assert largest > 0.1 or isinstance(problem.constraint, L2Ball)


def constant_slope_plan(adjacency=Adjacency.ZERO_OUT, n=1, **settings):
    """A row with a constant clipped slope, so that its minimiser moves as far as possible."""
    spec = DataSpec(n_rows=n, n_features=1, row_norm=1.0, target_low=-9.0, target_high=9.0)
    solver = OutputPerturbation(**{"clip": 0.5, "strength": 1.0, **settings})
    return solver.plan(Problem(Squared()), GaussianDP(2.0), spec, adjacency)


def constant_slope_pair(plan):
    X, y = np.ones((plan.data.n_rows, 1)), np.full(plan.data.n_rows, 9.0)
    return next(iter(neighbours(plan, X, np.append(y[:1], 0.0 * y[1:]))))


def off_by(distance):
    """A search that finds points at that distance of the minimiser, on the side that hurts."""
    original = certified.certified_minimizer

    def found(objective, tolerance, norm):
        w = original(objective, 1e-9, norm)
        return w + distance * np.where(w > 1e-6, 1.0, -1.0)

    return mock.patch.object(certified, "certified_minimizer", found)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_bound_is_reached_and_smaller_ones_are_refuted(adjacency):
    plan = constant_slope_plan(adjacency)
    method = plan.method
    if adjacency is Adjacency.REPLACE_ONE:
        X = np.ones((1, 1))
        pair = [prepare_rows(X, np.array([y]), plan.data) for y in (9.0, -9.0)]
    else:
        pair = constant_slope_pair(plan)
    with off_by(method.tolerance):
        (one, other), std = minimisers(plan, *pair)
    factor = 2.0 if adjacency is Adjacency.REPLACE_ONE else 1.0
    distance, exact = float(np.linalg.norm(one - other)), method.objective.movement
    assert exact * factor < distance <= factor * (exact + 2.0 * method.tolerance) * (1 + 1e-9)
    assert gdp.epsilon(1e-5, distance / std) <= gdp.epsilon(1e-5, 2.0)
    # Planted bugs: no allowance for the tolerance; no factor 2.
    with mock.patch.object(OutputPerturbationMethod, "_contribution", exact):
        planted = dataclasses.replace(method)
        assert distance > 2.0 * planted.releases[-1].scale.std * (1.0 + 1e-6)
    if adjacency is Adjacency.REPLACE_ONE:
        with mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound):
            planted = dataclasses.replace(method)
            assert distance > 2.0 * planted.releases[-1].scale.std


def exact_delta(one, other, std, epsilon):
    """Hockey-stick divergence of the two releases, by integration over the plane or line."""
    d, middle = one.size, (one + other) / 2.0
    reach = 8.0 * std + np.abs(one - other).max()
    axes = [np.linspace(m - reach, m + reach, 161) for m in middle]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)

    def density(mean):
        exponent = -0.5 * ((points - mean) ** 2).sum(axis=-1) / std**2
        return np.exp(exponent) / (2 * np.pi * std**2) ** (d / 2)

    gap = np.maximum(density(one) - math.exp(epsilon) * density(other), 0.0)
    mass = density(one)
    for axis in reversed(axes):
        gap, mass = (integrate.trapezoid(f, axis, axis=-1) for f in (gap, mass))
    assert mass == pytest.approx(1.0, abs=1e-9)
    return float(gap)


@pytest.mark.parametrize("n_features", [1, 2])
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 30.0, 100.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_exact_densities_stay_under_the_claim(n_features, row_norm, adjacency):
    budget, problem = ApproximateDP(1.0, 1e-2), Problem(Logistic())
    shape = {"n_features": n_features, "row_norm": row_norm}
    for n in (1, 3):
        for strength in (0.01 * row_norm**2, row_norm**2):
            spec = DataSpec(n_rows=n, **shape)
            plan = OutputPerturbation(strength=strength).plan(problem, budget, spec, adjacency)
            rng = np.random.default_rng(0)
            X, y = rng.normal(size=(n, n_features)) * row_norm, rng.choice([-1.0, 1.0], n)
            X[0] = row_norm / math.sqrt(n_features)
            for pair in neighbours(plan, X, y):
                (one, other), std = minimisers(plan, *pair)
                assert exact_delta(one, other, std, 1.0) <= 1e-2
                assert exact_delta(other, one, std, 1.0) <= 1e-2


def test_exact_densities_refute_planted_bugs():
    budget = ApproximateDP(1.0, 1e-2)
    spec = DataSpec(n_rows=1, n_features=1, target_low=-9.0, target_high=9.0)
    for adjacency, factor in ((Adjacency.ZERO_OUT, 0.9), (Adjacency.REPLACE_ONE, 0.5)):
        plan = OutputPerturbation(clip=0.5, strength=1.0).plan(
            Problem(Squared()), budget, spec, adjacency
        )
        targets = (9.0, -9.0) if adjacency is Adjacency.REPLACE_ONE else (9.0, 0.0)
        pair = [prepare_rows(np.ones((1, 1)), np.array([y]), plan.data) for y in targets]
        (one, other), std = minimisers(plan, *pair)
        assert exact_delta(one, other, std, 1.0) <= 1e-2
        assert exact_delta(one, other, factor * std, 1.0) > 1e-2


# Pitfall 6: the solver stops early, but the proof assumes the minimiser.


def stops_when_the_gradient_is_small(threshold):
    def found(objective, tolerance, norm):
        w = np.zeros(objective.rows.spec.coefficient_shape)
        while np.linalg.norm(g := objective.gradient(w)) > threshold:
            w = w - 0.3 * g / objective.accuracy.smoothness
        return w

    return mock.patch.object(certified, "certified_minimizer", found)


def test_pitfall_06_a_minimiser_stopped_early_breaks_the_claim():
    n = 1000
    spec = DataSpec(n_rows=n, n_features=1, target_low=-1.0, target_high=1.0)
    solver = OutputPerturbation(clip=1.0, strength=0.5)
    plan = solver.plan(Problem(Squared()), GaussianDP(1.0), spec)
    X, y = np.ones((n, 1)), np.ones(n)
    pair = next(iter(neighbours(plan, X, y)))
    limit = plan.method.releases[0].contribution_bound

    def distance():
        (one, other), _ = minimisers(plan, *pair)
        return float(np.abs(one - other)[0])

    assert distance() <= limit
    # An ordinary rule, "stop when the gradient is small", at a threshold that the neighbours
    # pass after different numbers of steps.
    steps = 0.3 / (1.5 * n)
    gradients = [(n - k) * (1.0 - steps * (1.5 * n - k)) ** 3 for k in (0, 1)]
    with stops_when_the_gradient_is_small(sum(gradients) / 2.0):
        assert distance() > 5.0 * limit


# Pitfall 3: an unregularised intercept breaks strong convexity.


def test_pitfall_03_the_intercept_is_always_regularised():
    spec = DataSpec(n_rows=2, n_features=1, intercept=1.0, target_low=-1.0, target_high=1.0)
    problem = Problem(Squared(), L2(100.0))
    for solver in (OutputPerturbation(strength=0.0), OutputPerturbation(strength=0)):
        with pytest.raises(ValueError, match=r"strength must be above 0 unless .* intercept"):
            solver.plan(problem, BUDGET, spec)
    tied = dataclasses.replace(problem, penalize_intercept=True)
    assert OutputPerturbation(strength=0.0).plan(tied, BUDGET, spec).method.objective.added == 0
    # The penalty that spares the intercept does not count towards the strength.
    solver = OutputPerturbation(strength=0.1, clip=1.0)
    plan = solver.plan(problem, BUDGET, spec)
    assert plan.method.objective.strength == pytest.approx(0.2)
    X, y = np.zeros((2, 1)), np.array([1.0, -1.0])
    pair = next(iter(neighbours(plan, X, y)))
    (one, other), _ = minimisers(plan, *pair)
    assert np.linalg.norm(one - other) <= plan.method.releases[0].contribution_bound
    # Planted bug: it does.
    counted = property(lambda own: own.data.n_rows * own.problem.regularizer.strong_convexity)
    with mock.patch.object(strongly_convex.PlannedObjective, "own_strength", counted):
        wrong = solver.plan(problem, BUDGET, spec)
        assert np.linalg.norm(one - other) > wrong.method.releases[0].contribution_bound


def test_layouts_and_huge_rows_give_one_bounded_minimiser():
    problem, n = PROBLEMS["logistic"], 300
    X, y = make_data(problem, n)
    X[0], X[1] = 1e30, 0.0
    found = []
    for layout in ("C", "F", "csr"):
        spec = spec_of(problem, n, sparse=layout == "csr")
        plan = OutputPerturbation(strength=0.1).plan(problem, BUDGET, spec)
        matrix = sparse.csr_array(X) if layout == "csr" else np.asarray(X, order=layout)
        (w,), _ = minimisers(plan, prepare_rows(matrix, y, spec))
        found.append(w)
    tolerance = 2.0 * plan.method.tolerance
    assert max(np.linalg.norm(w - found[0]) for w in found) <= tolerance


@pytest.mark.parametrize("scale", [1e-2, 0.25, 1.0])
def test_noise_is_as_large_as_declared(scale):
    # Rows of weight zero: the minimiser is at the origin, and all that is released is noise.
    spec = DataSpec(n_rows=2, n_features=400, intercept=1.0)
    solver = OutputPerturbation(strength=1.0, intercept_scale=scale)
    plan = solver.plan(Problem(Logistic()), GaussianDP(0.5), spec)
    rows = prepare_rows(np.zeros((2, 400)), np.ones(2), spec, weights=np.zeros(2))
    draws = np.array([run(plan, rows, SeededNoise(seed)).w for seed in range(30)])
    std = plan.method.releases[-1].scale.std
    assert std == plan.coefficient_noise
    # 12000 draws: a standard error of 0.65 %.
    assert np.std(draws[:, :-1]) == pytest.approx(std, rel=0.02)
    assert np.std(draws[:, :-1]) != pytest.approx(0.97 * std, rel=0.01)
    # The intercept's column is shorter, so its coefficient has as much less of it.
    assert np.std(draws[:, -1]) == pytest.approx(scale * std, rel=0.5)


def test_accounting_is_that_of_one_gaussian():
    spec = DataSpec(n_rows=1000, n_features=5)
    plan = OutputPerturbation().plan(Problem(Logistic()), ApproximateDP(0.7, 1e-6), spec)
    assert isinstance(plan.event, Gaussian)
    assert gdp.epsilon(1e-6, 1.0 / plan.event.noise_multiplier) == pytest.approx(0.7, rel=1e-6)
    (release,) = plan.method.releases
    least = release.noise_multiplier * release.contribution_bound
    assert least <= release.scale.std <= least * (1.0 + 1e-6)


def test_tolerance_is_small_relative_to_a_row():
    for n in (10, 10_000, 1_000_000):
        spec = DataSpec(n_rows=n, n_features=100, row_norm=4.0, intercept=4.0)
        for adjacency in Adjacency:
            plan = OutputPerturbation().plan(
                Problem(Logistic()), ApproximateDP(1.0, 1e-6), spec, adjacency
            )
            assert 0.0 < plan.method.tolerance <= 0.1 * plan.method.objective.movement


def test_noise_below_rounding_is_refused_in_the_plan():
    spec = DataSpec(n_rows=2**31, n_features=1000)
    with pytest.raises(ValueError, match="n_rows must be smaller, or strength larger"):
        OutputPerturbation(strength=1e-12).plan(Problem(Logistic()), BUDGET, spec)


class TestSettings:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"strength": -1.0}, "strength must be a finite number at least 0, got -1.0"),
            ({"strength": math.inf}, "strength must be a finite number"),
            ({"clip": 0.0}, "clip must be a finite number above 0, got 0.0"),
            ({"clip": True}, "clip must be a finite number"),
            ({"intercept_scale": 0.0}, "intercept_scale must be a finite number at least 0.001"),
            ({"intercept_scale": 1e4}, "intercept_scale must be .* at most 1000"),
        ],
    )
    def test_out_of_range(self, settings, message):
        with pytest.raises(ValueError, match=message):
            OutputPerturbation(**settings)

    @pytest.mark.parametrize(
        ("problem", "settings", "message"),
        [
            (Problem(Savage()), {}, "loss must be convex"),
            (Problem(Hinge()), {}, "loss must be smooth where its slope is clipped"),
            (Problem(Softmax()), {"clip": 1.0}, "clip must be at least .* with several outputs"),
            (Problem(Logistic(), constraint=L1Ball(1.0)), {}, "constraint must be an L2Ball"),
            (
                Problem(Logistic(), L2(1.0), penalize_intercept=True),
                {"intercept_scale": 0.25},
                "intercept_scale must be 1 where",
            ),
            (Problem(Logistic()), {"clip": 1e-20}, "clip must be a finite number at least"),
        ],
    )
    def test_that_do_not_fit_the_problem(self, problem, settings, message):
        with pytest.raises(ValueError, match=message):
            OutputPerturbation(**settings).plan(problem, BUDGET, spec_of(problem, 10))

    def test_single_precision_is_refused(self):
        assert OutputPerturbation().needs_float64(PROBLEMS["logistic"], BUDGET)
        with pytest.raises(ValueError, match="dtype must be 'float64'"):
            OutputPerturbation().plan(
                PROBLEMS["logistic"], BUDGET, DataSpec(n_rows=9, n_features=1, dtype="float32")
            )

    def test_defaults_are_public(self):
        spec = DataSpec(n_rows=1000, n_features=5, row_norm=2.0, intercept=2.0)
        plan = OutputPerturbation().plan(Problem(Logistic()), ApproximateDP(1.0, 1e-5), spec)
        objective = plan.method.objective
        assert objective.intercept_scale == 0.25
        norm = math.hypot(2.0, 0.5)
        assert objective.clip == pytest.approx(0.5 * norm)
        q, mu = 0.25 * norm**2, ApproximateDP(1.0, 1e-5).gdp_mu()
        strength = (2 * q) ** (1 / 3) * (0.5 * norm / (1000 * mu * 16 / norm)) ** (2 / 3)
        assert objective.strength == pytest.approx(1000 * strength)
        assert objective.added == pytest.approx(1000 * strength)

    def test_a_ball_sets_clip_and_strength_as_the_theorems_do(self):
        spec = DataSpec(n_rows=1000, n_features=5, target_low=-1.0, target_high=1.0)
        mu = ApproximateDP(1.0, 1e-5).gdp_mu()
        for radius in (0.1, 1.0, 10.0):
            problem = Problem(Squared(), constraint=L2Ball(radius))
            solver = OutputPerturbation(clip=1e3)
            method = solver.plan(problem, ApproximateDP(1.0, 1e-5), spec).method
            slope = 1.0 + radius
            assert method.objective.clip == pytest.approx(slope)
            smooth = 2.0 ** (1 / 3) * (slope / (1000 * mu * radius)) ** (2 / 3)
            lipschitz = math.sqrt(2.0 * slope**2 / (1000 * mu)) / radius
            added = method.objective.added / 1000
            assert min(abs(added / smooth - 1.0), abs(added / lipschitz - 1.0)) < 1e-6

    def test_a_ridge_of_ones_own_counts(self):
        spec = DataSpec(n_rows=1000, n_features=5)
        budget = ApproximateDP(1.0, 1e-5)
        free = OutputPerturbation().plan(Problem(Logistic()), budget, spec).method.objective
        for strength in (1e-4, 10.0):
            own = Problem(Logistic(), L2(strength))
            tied = OutputPerturbation().plan(own, budget, spec).method.objective
            assert tied.strength == pytest.approx(max(free.strength, 1000 * strength))
