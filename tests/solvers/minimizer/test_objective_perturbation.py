"""Objective perturbation: exact densities under the claim, certified minima, noise as declared."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import integrate
from scipy.signal import fftconvolve

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import objective as certified
from dpglm.privacy.accounting.accountants import accountant_for, within_budget
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import Gaussian, Repeated, canonical
from dpglm.privacy.events import compositions as events
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianLinearTerm
from dpglm.problem import (
    L1,
    L2,
    ElasticNetPenalty,
    Hinge,
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
from dpglm.solvers import ObjectivePerturbation, run
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbationMethod
from dpglm.solvers.minimizer.strongly_convex import PlannedObjective
from tests.audit.attack import released_sums
from tests.oracle.objective.exact_objective import ExactObjective, distance
from tests.planted import unchecked
from tests.watching import watched

pytestmark = pytest.mark.one_in(3)

BUDGET = ApproximateDP(1.0, 1e-2)
NORMS = [0.01, 1.0, 30.0, 100.0]


def spec_of(n_features=1, row_norm=1.0, n_rows=1):
    return DataSpec(
        n_rows=n_rows,
        n_features=n_features,
        row_norm=row_norm,
        target_low=-9.0,
        target_high=9.0,
    )


def plan_of(loss, spec, adjacency=Adjacency.ZERO_OUT, ratio=1.0, budget=BUDGET, **settings):
    """A plan with the given curvature ratio."""
    options = {"clip": 0.5 * spec.row_norm, **settings}
    curvature = spec.weight_bound * loss.smoothness * spec.row_norm**2
    solver = ObjectivePerturbation(strength=curvature / ratio / spec.n_rows, **options)
    return solver.plan(Problem(loss), budget, spec, adjacency)


def gradient_and_hessian(plan, rows, points):
    """Derivatives, at ``points`` (..., d), of the objective without its linear term."""
    strength, clip = plan.method.objective.strength, plan.method.objective.clip
    loss, d = plan.problem.loss, points.shape[-1]
    gradient = strength * points
    hessian = np.zeros((*points.shape, d)) + strength * np.eye(d)
    for x, y in rows:
        z = (points @ x).ravel()
        slope = loss.slope(z, np.full(z.shape, y)).reshape(points.shape[:-1])
        bend = loss.curvature(z, np.full(z.shape, y)).reshape(points.shape[:-1])
        limit = clip / np.linalg.norm(x)
        bend = np.where(np.abs(slope) <= limit, bend, 0.0)
        gradient = gradient + np.clip(slope, -limit, limit)[..., None] * x
        hessian = hessian + bend[..., None, None] * np.outer(x, x)
    return gradient, hessian


def log_density(plan, rows, points):
    """Log density of the exact minimiser at ``points``, by the change of variables."""
    gradient, hessian = gradient_and_hessian(plan, rows, points)
    std, d = plan.method.std, points.shape[-1]
    exponent = -0.5 * (gradient**2).sum(axis=-1) / std**2
    return exponent - 0.5 * d * math.log(2 * math.pi * std**2) + np.linalg.slogdet(hessian)[1]


def delta_on_a_line(plan, rows, others, epsilon):
    """Hockey-stick divergence in one dimension, by integration over the linear term b."""
    std = plan.method.std
    reach = 8.0 * std + 4.0 * len(rows) * plan.method.objective.clip
    grid = np.linspace(-reach, reach, 6001) / plan.method.objective.strength
    b = np.linspace(-8.0, 8.0, 2001)
    # Where the minimiser lies for each b: -b is the gradient there, which grows along the line.
    gradient = gradient_and_hessian(plan, rows, grid[:, None])[0][:, 0]
    w = np.interp(b, -gradient[::-1] / std, grid[::-1])[:, None]
    # Interpolation moves b a little, so densities are taken where it ended up.
    ratio = np.exp(log_density(plan, others, w) - log_density(plan, rows, w))
    normal = np.exp(-0.5 * b**2) / math.sqrt(2 * math.pi)
    assert integrate.trapezoid(normal * ratio, b) == pytest.approx(1.0, abs=1e-2)
    gap = np.maximum(1.0 - math.exp(epsilon) * ratio, 0.0)
    return float(integrate.trapezoid(normal * gap, b))


def delta_in_the_plane(plan, rows, others, epsilon):
    """Hockey-stick divergence in two dimensions, by integration over the plane."""
    reach = 7.0 * plan.method.std + 2.0 * len(rows) * plan.method.objective.clip
    axis = np.linspace(-reach, reach, 121) / plan.method.objective.strength
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    p, q = (np.exp(log_density(plan, one, points)) for one in (rows, others))
    gap = np.maximum(p - math.exp(epsilon) * q, 0.0)
    mass, delta = (
        float(integrate.trapezoid(integrate.trapezoid(f, axis, axis=-1), axis)) for f in (p, gap)
    )
    assert mass == pytest.approx(1.0, abs=1e-3)
    return delta


def pairs(adjacency, norm, d, binary):
    """Worst cases: a row among none, among one that cancels it, and among one aside."""
    e = np.eye(d)[0] * norm
    aside = np.eye(d)[-1] * norm if d > 1 else 0.3 * e
    slanted = (0.6 * np.eye(d)[0] + 0.8 * np.eye(d)[-1]) * norm if d > 1 else -0.7 * e
    # Far targets have a constant slope; near ones the bend where noise is far out.
    targets = (1.0, -1.0) if binary else (0.4, -1.5, -3.0, 9.0)
    for y in targets:
        for base in ([], [(aside, -y)]):
            if adjacency is Adjacency.REPLACE_ONE:
                for new in ((e, -y), (aside, y), (slanted, -y)):
                    yield [(e, y), *base], [new, *base]
            else:
                yield [(e, y), *base], base


LOSSES = {"logistic": Logistic(), "squared": Squared(), "smoothed hinge": SmoothedHinge(0.5)}


def worst(plan, adjacency, norm, epsilon=BUDGET.epsilon):
    binary, d = plan.problem.loss.target.value == "binary", plan.data.n_features
    exact_delta = delta_on_a_line if d == 1 else delta_in_the_plane
    return max(
        exact_delta(plan, *pair, epsilon)
        for one, other in pairs(adjacency, norm, d, binary)
        for pair in ((one, other), (other, one))
    )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_exact_densities_on_a_line_stay_under_the_claim(name, norm, adjacency):
    largest = 0.0
    for ratio in (0.05, 0.8):
        plan = plan_of(LOSSES[name], spec_of(row_norm=norm), adjacency, ratio)
        assert plan.method.objective.curvature_ratio == pytest.approx(ratio)
        for epsilon in (0.3, 1.0):
            claim = accountant_for(plan.event, adjacency).delta(plan.event, adjacency, epsilon)
            found = worst(plan, adjacency, norm, epsilon)
            assert found <= claim
            largest = max(largest, found / claim)
    # The claim is not far from the truth.
    assert largest > (0.3 if adjacency is Adjacency.ZERO_OUT else 0.1)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_exact_densities_in_the_plane_stay_under_the_claim(norm, adjacency):
    plan = plan_of(Logistic(), spec_of(2, norm), adjacency, 0.4, clip=norm)
    found = worst(plan, adjacency, norm)
    assert 0.0 < found <= BUDGET.delta
    if adjacency is Adjacency.ZERO_OUT:
        assert found > 0.02 * BUDGET.delta


def test_exact_densities_of_rows_of_weight_stay_under_the_claim():
    heavy = plan_of(Squared(), dataclasses.replace(spec_of(), weight_bound=3.0), ratio=0.5)
    light = plan_of(Squared(), spec_of(), ratio=0.5)
    # A row of weight 3 counts as three rows that are erased together.
    rows = [[(np.ones(1), y)] * 3 for y in (0.4, 9.0)]
    for plan, holds in ((heavy, True), (light, False)):
        found = max(
            delta_on_a_line(plan, *pair, BUDGET.epsilon)
            for row in rows
            for pair in ((row, []), ([], row))
        )
        assert (found <= BUDGET.delta) is holds


# Pitfall 2, found in a peer library: the curvature bound c R where c R^2 is right.


SHARP = ApproximateDP(0.3, 1e-4)


@pytest.mark.parametrize("norm", [30.0, 100.0])
@pytest.mark.parametrize("name", LOSSES)
def test_pitfall_02_curvature_linear_in_norm_is_refuted(name, norm):
    def linear(self):
        return self.data.weight_bound * self.curvature / norm / self.strength

    spec = spec_of(row_norm=norm)
    plan = plan_of(LOSSES[name], spec, ratio=0.2, budget=SHARP)
    assert worst(plan, Adjacency.ZERO_OUT, norm, SHARP.epsilon) <= SHARP.delta
    # The logarithm alone is above epsilon here, so no noise would do.
    with pytest.raises(ValueError, match="cannot be met"):
        plan_of(LOSSES[name], spec, ratio=0.8, budget=SHARP)
    with mock.patch.object(PlannedObjective, "curvature_ratio", property(linear)):
        plan = plan_of(LOSSES[name], spec, ratio=0.8, budget=SHARP)
    assert worst(plan, Adjacency.ZERO_OUT, norm, SHARP.epsilon) > 2.0 * SHARP.delta


@pytest.mark.parametrize("norm", NORMS)
def test_planted_bugs_are_refuted_by_exact_densities(norm):
    spec, epsilon, delta = spec_of(row_norm=norm), SHARP.epsilon, SHARP.delta
    # The logarithm forgotten.
    with mock.patch.object(PlannedObjective, "curvature_ratio", 1e-12):
        plan = plan_of(Squared(), spec, ratio=0.33, budget=SHARP)
    assert worst(plan, Adjacency.ZERO_OUT, norm, epsilon) > delta
    # Half the noise.
    plan = plan_of(Squared(), spec, ratio=0.05, budget=SHARP)
    assert worst(plan, Adjacency.ZERO_OUT, norm, epsilon) <= delta
    method = dataclasses.replace(plan.method, noise_multiplier=0.5 * plan.method.noise_multiplier)
    halved = unchecked(plan, method=method)
    assert worst(halved, Adjacency.ZERO_OUT, norm, epsilon) > delta
    # The factor 2 of replace-one.
    plan = plan_of(Squared(), spec, Adjacency.REPLACE_ONE, 0.05, SHARP)
    assert worst(plan, Adjacency.REPLACE_ONE, norm, epsilon) <= delta
    with mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound):
        plan = afresh(plan)
        assert worst(plan, Adjacency.REPLACE_ONE, norm, epsilon) > delta


def afresh(plan):
    """The same plan, before its releases are computed."""
    return unchecked(plan, method=dataclasses.replace(plan.method))


def released_delta(plan, rows, others, epsilon, noise):
    """As above, for the release: minimisers with the largest allowed errors, plus noise."""
    method, strength = plan.method, plan.method.objective.strength
    reach = (8.0 * method.std + 2.0 * method.objective.clip) / strength + 9.0 * noise
    grid = np.linspace(-reach, reach, 4001)
    width = grid[1] - grid[0]
    kernel = np.exp(-0.5 * (np.arange(-2000, 2001) * width / noise) ** 2)
    p, q = (
        fftconvolve(np.exp(log_density(plan, one, (grid - side)[:, None])), kernel, "same")
        for one, side in ((rows, method.error), (others, -method.error))
    )
    p, q = p / (p.sum() * width), q / (q.sum() * width)
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() * width)


@pytest.mark.parametrize("norm", NORMS)
def test_exact_densities_of_releases_stay_under_the_claim(norm):
    plan = plan_of(Logistic(), spec_of(row_norm=norm), ratio=0.01, budget=SHARP)
    # A tolerance larger than the effect of a row, so that it matters.
    method = dataclasses.replace(plan.method, tolerance=3.0 * plan.method.objective.movement)
    plan = dataclasses.replace(plan, method=method)
    noise = method.releases[1].scale.std
    row = [(np.full(1, norm), 1.0)]
    for pair in ((row, []), ([], row)):
        assert released_delta(plan, *pair, SHARP.epsilon, noise) <= SHARP.delta
    # Planted bug: far too little noise for the error.
    found = [
        released_delta(plan, *pair, SHARP.epsilon, 0.01 * noise) for pair in ((row, []), ([], row))
    ]
    assert max(found) > SHARP.delta


# The computed minimiser and the release.


def secrets(plan, rows, seed=0):
    """Random linear terms, objectives and computed minimisers of one run, before noise."""
    objectives, solve = [], certified.certified_minimizer

    def solving(objective, *arguments):
        objectives.append(objective)
        return solve(objective, *arguments)

    with (
        watched(GaussianLinearTerm) as terms,
        mock.patch.object(certified, "certified_minimizer", solving),
        released_sums() as sums,
    ):
        run(plan, rows, SeededNoise(seed))
    return [term for _, _, term in terms], objectives, sums[-1]


def sample(n, d, norm, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * norm
    return X, rng.integers(0, classes, n) if classes > 2 else rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("epsilon", [0.1, 4.0])
def test_the_computed_minimiser_is_near_the_exact_one(norm, epsilon):
    spec = DataSpec(n_rows=8, n_features=2, row_norm=norm, intercept=norm)
    solver = ObjectivePerturbation()
    plan = solver.plan(Problem(Logistic()), ApproximateDP(epsilon, 1e-5), spec)
    X, y = sample(8, 2, norm)
    (term,), (objective,), (w, _) = secrets(plan, prepare_rows(X, y, spec))
    reference = ExactObjective.of(objective)
    smoothness = objective.accuracy.smoothness
    steps = int(40 * smoothness / plan.method.objective.strength)
    best = reference.minimizer(w, smoothness, steps)
    assert distance(w, best) <= plan.method.tolerance
    assert plan.method.tolerance <= 1e-4 * plan.method.objective.movement
    # The allowance covers the tolerance and the rounding of the linear term.
    reach = plan.method.tolerance + term.rounding / plan.method.objective.strength
    assert plan.method.error >= reach


def test_noise_covers_the_error_of_two_neighbours():
    spec = DataSpec(n_rows=8, n_features=2)
    for adjacency in Adjacency:
        plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, spec, adjacency)
        error = plan.method.releases[-1]
        assert error.contribution_bound == 2.0 * plan.method.error
        # Whatever the relation: the errors of both minimisers, in opposite directions.
        assert error.scale.std >= error.noise_multiplier * 2.0 * plan.method.error
        # And it is negligible compared with the least noise of the minimiser.
        objective = plan.method.objective
        damped = plan.method.std / (objective.strength + 8 * objective.curvature)
        assert error.scale.std < 0.01 * damped


def test_an_error_that_is_charged_once_is_refuted():
    # Given the exact minimiser of one data set, the error is released by a Gaussian mechanism:
    # errors in opposite directions are twice the bound apart.
    plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, DataSpec(8, 2))
    error = plan.method.releases[1]
    mu = 2.0 * plan.method.error / error.scale.std
    assert mu <= 1.0 / error.noise_multiplier
    with mock.patch.object(ObjectivePerturbationMethod, "error", 0.5 * plan.method.error):
        halved = dataclasses.replace(plan.method).releases[1]
        assert 2.0 * 2.0 * plan.method.error / halved.scale.std > 1.0 / error.noise_multiplier


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_linear_term_is_as_large_as_declared(adjacency):
    # Rows of weight zero: the minimiser is -b over the strength.
    spec = DataSpec(n_rows=2, n_features=400, row_norm=2.0, weight_bound=3.0)
    plan = ObjectivePerturbation(clip=0.7).plan(Problem(Logistic()), BUDGET, spec, adjacency)
    rows = prepare_rows(np.zeros((2, 400)), np.ones(2), spec, weights=np.zeros(2))
    draws = np.array([run(plan, rows, SeededNoise(seed)).w for seed in range(20)])
    bound, method = adjacency.sum_sensitivity(0.7 * 3.0), plan.method
    assert method.std == pytest.approx(method.noise_multiplier * bound)
    # 8000 draws: a standard error of 0.8 %.
    assert np.std(draws) == pytest.approx(method.std / method.objective.strength, rel=0.025)
    assert np.std(draws) == pytest.approx(plan.coefficient_noise, rel=0.025)
    assert len(np.unique(draws)) == draws.size


@pytest.mark.parametrize("classes", [3, 5])
def test_one_class_against_the_rest_is_one_event_for_each_class(classes):
    n, spec = 200, DataSpec(n_rows=200, n_features=3, n_outputs=classes, intercept=1.0)
    problem = Problem(OneVsRest(Logistic(), classes), L2(1e-3))
    plan = ObjectivePerturbation().plan(problem, ApproximateDP(2.0, 1e-5), spec)
    perturbed, error = plan.method.releases
    assert perturbed.count == classes
    assert plan.event == canonical(
        events.Composed((Repeated(perturbed.event, classes), error.event))
    )
    assert within_budget(plan.event, Adjacency.ZERO_OUT, plan.budget)
    X, y = sample(n, 3, 1.0, classes)
    terms, objectives, (w, _) = secrets(plan, prepare_rows(X, y, spec))
    assert w.shape == (4, classes)
    for k, (term, objective) in enumerate(zip(terms, objectives, strict=True)):
        # Every class has a linear term and targets of its own.
        assert sum(np.array_equal(term.value, other.value) for other in terms) == 1
        (block,) = objective.rows.blocks()
        np.testing.assert_array_equal(block.targets, np.where(y == k, 1.0, -1.0))
        gradient = objective.gradient(w[:, k])
        assert np.linalg.norm(gradient) <= plan.method.tolerance * objective.accuracy.smoothness
    # Neighbours differ in all classes, so all of them are paid for.
    cheap = canonical(events.Composed((perturbed.event, error.event)))
    assert plan.event != cheap


def test_unscaled_coefficients_belong_to_the_rows_as_given():
    spec = DataSpec(n_rows=4000, n_features=2, intercept=1.0)
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, size=(4000, 2))
    z = X @ [2.0, -1.0] + 0.5
    y = np.where(rng.random(4000) < 1 / (1 + np.exp(-2 * z)), 1.0, -1.0)
    found = []
    for scale in (0.1, 0.25, 1.0):
        solver = ObjectivePerturbation(strength=1e-6, intercept_scale=scale, clip=10.0)
        plan = solver.plan(Problem(Logistic()), ApproximateDP(1e3, 1e-2), spec)
        found.append(run(plan, prepare_rows(X, y, spec), SeededNoise(0)).w)
    np.testing.assert_allclose(found[0], [4.0, -2.0, 1.0], atol=0.4)
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=0.05)


SHOWN = {
    "objective_perturbation": ("objective.added", "objective.clip", "objective.curvature"),
    "output_perturbation": ("objective.added", "objective.clip", "tolerance"),
}


# Pitfalls 3 and 6.


def test_pitfall_03_the_strength_is_that_in_all_coefficients():
    spec = DataSpec(n_rows=10, n_features=2, intercept=1.0)
    free = Problem(Logistic(), L2(50.0))
    with pytest.raises(ValueError, match=r"strength must be above 0 unless .* intercept"):
        ObjectivePerturbation(strength=0.0).plan(free, BUDGET, spec)
    method = ObjectivePerturbation(strength=0.1).plan(free, BUDGET, spec).method
    assert method.objective.strength == pytest.approx(1.0)
    assert method.objective.curvature_ratio == pytest.approx(0.25 * (1.0 + 1 / 16))
    tied = dataclasses.replace(free, penalize_intercept=True)
    method = ObjectivePerturbation(strength=0.0).plan(tied, BUDGET, spec).method
    assert method.objective.strength == pytest.approx(500.0)
    assert method.objective.curvature_ratio == pytest.approx(0.25 * 2.0 / 500.0)
    # An intercept of weak penalty moves as if it were alone: the exact density agrees.
    spec = DataSpec(n_rows=1, n_features=1, row_norm=1e-9, intercept=1.0)
    plan = ObjectivePerturbation(strength=0.2).plan(
        Problem(Squared(), L2(50.0)),
        BUDGET,
        dataclasses.replace(spec, target_low=-1, target_high=1),
    )
    assert plan.method.objective.curvature_ratio == pytest.approx(1 / 16 / 0.2, rel=1e-6)


def test_pitfall_06_without_a_certificate_nothing_is_released():
    spec = DataSpec(n_rows=50, n_features=2)
    plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, spec)
    rows = prepare_rows(*sample(50, 2, 1.0), spec)
    w = run(plan, rows, SeededNoise(0)).w

    def early(objective, tolerance, norm):
        return np.zeros(2)

    # A search that stops at once, "as the gradient is small enough", releases nothing but the
    # noise that covers the error: the distance to the exact minimiser is far beyond it.
    with mock.patch.object(certified, "certified_minimizer", early):
        stopped = run(plan, rows, SeededNoise(0)).w
    assert np.linalg.norm(stopped - w) > 1e3 * plan.method.error
    # Ours raises where the promise cannot be kept.
    method = dataclasses.replace(plan.method, tolerance=1e-300)
    with (
        mock.patch("dpglm.oracle.objective._plain_steps", return_value=iter(())),
        pytest.raises(RuntimeError, match="nothing was released"),
    ):
        run(dataclasses.replace(plan, method=method), rows, SeededNoise(0))


class TestSettings:
    @pytest.mark.parametrize(
        ("problem", "message"),
        [
            (
                Problem(Softmax()),
                r"OneVsRest of such a loss \(in an estimator: multi_class='ovr'\)",
            ),
            (Problem(Savage()), "loss must be convex with one output"),
            (Problem(OneVsRest(Savage(), 3)), "loss must be convex with one output"),
            (Problem(Hinge()), "loss must be smooth where its slope is clipped"),
            (Problem(Logistic(), L1(0.1)), "regularizer must be L2 or NoPenalty, got L1"),
            (
                Problem(Logistic(), ElasticNetPenalty(0.1, 0.5)),
                "regularizer must be L2 or NoPenalty",
            ),
            (Problem(Logistic(), constraint=L2Ball(1.0)), "constraint must be Unconstrained"),
        ],
        ids=lambda value: repr(value)[:60],
    )
    def test_that_do_not_fit_are_refused(self, problem, message):
        spec = DataSpec(n_rows=10, n_features=2, n_outputs=3)
        with pytest.raises(ValueError, match=message):
            ObjectivePerturbation().plan(problem, BUDGET, spec)

    def test_out_of_range(self):
        for settings in ({"strength": -1.0}, {"clip": 0.0}, {"intercept_scale": 0.0}):
            with pytest.raises(ValueError, match=f"{next(iter(settings))} must be"):
                ObjectivePerturbation(**settings)

    def test_budgets_without_an_epsilon_are_refused(self):
        with pytest.raises(ValueError, match="epsilon"):
            ObjectivePerturbation().plan(Problem(Logistic()), GaussianDP(1.0), DataSpec(10, 2))

    def test_single_precision_is_refused(self):
        assert ObjectivePerturbation().needs_float64(Problem(Logistic()), BUDGET)
        with pytest.raises(ValueError, match="dtype must be 'float64'"):
            ObjectivePerturbation().plan(
                Problem(Logistic()), BUDGET, DataSpec(n_rows=10, n_features=2, dtype="float32")
            )

    @pytest.mark.parametrize("epsilon", [0.05, 1.0, 4.0, 1e3])
    @pytest.mark.parametrize("classes", [1, 3])
    def test_the_default_strength_gives_the_curvature_its_share(self, epsilon, classes):
        loss = Logistic() if classes == 1 else OneVsRest(Logistic(), 3)
        spec = DataSpec(n_rows=100, n_features=2, n_outputs=classes, row_norm=2.0)
        plan = ObjectivePerturbation().plan(Problem(loss), ApproximateDP(epsilon, 1e-5), spec)
        share = math.log1p(plan.method.objective.curvature_ratio)
        assert share == pytest.approx(min(0.22 * epsilon / classes, math.log(11.0)))
        assert plan.method.objective.clip == pytest.approx(1.0)

    def test_a_ridge_of_ones_own_counts(self):
        spec = DataSpec(n_rows=1000, n_features=5)
        free = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, spec).method.objective
        for strength in (1e-5, 10.0):
            own = Problem(Logistic(), L2(strength))
            tied = ObjectivePerturbation().plan(own, BUDGET, spec).method.objective
            assert tied.strength == pytest.approx(max(free.strength, 1000 * strength))

    def test_losses_without_bounds_are_clipped(self):
        spec = DataSpec(n_rows=100, n_features=2, target_low=0.0, target_high=5.0)
        for loss in (Squared(), Poisson()):
            method = ObjectivePerturbation().plan(Problem(loss), BUDGET, spec).method
            assert np.isfinite(method.objective.curvature)
        # Poisson: where the slope exp(z) - y is within the clip, the curvature exp(z) is at most
        # clip plus target.
        assert method.objective.curvature == pytest.approx(method.objective.clip + 5.0)

    def test_only_the_last_noise_is_gaussian_and_small(self):
        plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, DataSpec(100, 5))
        alone, error = plan.event.events
        assert error == Gaussian(30.0 * alone.noise_multiplier)
        claim = accountant_for(alone, plan.adjacency).epsilon(alone, plan.adjacency, BUDGET.delta)
        assert 0.995 * BUDGET.epsilon <= claim <= BUDGET.epsilon
