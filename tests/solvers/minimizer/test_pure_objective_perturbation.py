"""Objective perturbation at a delta of 0: exact densities, every linear term, noise as declared."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest

from dpglm import LogisticRegression
from dpglm.audit.games import pays_for_all
from dpglm.certificate.recompute import recompute
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.objective import certified_minimizer
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.budget import Adjacency, ApproximateDP
from dpglm.privacy.events import Composed, Pure, Repeated, canonical
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import L2LinearTerm, L2Noise, SecretNoise
from dpglm.privacy.noise.exact import pure_objective_epsilon
from dpglm.privacy.releases import Bounded, Curator
from dpglm.problem import L1, L2, Hinge, Huber, L2Ball, Logistic, OneVsRest, Problem, Squared
from dpglm.solvers import ObjectivePerturbation, choose, pure_gd, run
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbationMethod
from dpglm.solvers.minimizer.strongly_convex import PlannedObjective
from tests.audit.attack import epsilon_at_least
from tests.oracle.objective.exact_objective import ExactObjective, distance
from tests.planted import unchecked
from tests.solvers.minimizer.test_objective_perturbation import (
    LOSSES,
    NORMS,
    gradient_and_hessian,
    pairs,
    plan_of,
    spec_of,
)
from tests.watching import watched

pytestmark = pytest.mark.one_in(3)

BUDGET = ApproximateDP(2.0, 0.0)
RELATIONS = [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE]


def pure_plan(loss, spec, adjacency=Adjacency.ZERO_OUT, ratio=1.0, **settings):
    return plan_of(loss, spec, adjacency, ratio, BUDGET, **settings)


# Cost of the exact minimiser.


def worst_loss(plan, norm):
    """Largest log-ratio of exact densities anywhere, over the worst pairs of data sets."""
    method, d = plan.method, plan.data.n_features
    reach = 6.0 * method.objective.clip + 3.0 * method.linear_term.scale.std
    if d == 1:
        points = np.linspace(-reach, reach, 6001)[:, None]
    else:
        axis = np.linspace(-reach, reach, 81)
        points = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    points = points / method.objective.strength
    binary = plan.problem.loss.target.value == "binary"
    worst = 0.0
    for pair in pairs(plan.adjacency, norm, d, binary):
        logs = []
        for rows in pair:
            gradient, hessian = gradient_and_hessian(plan, rows, points)
            length = np.linalg.norm(gradient, axis=-1)
            # The map from minimisers to b is one to one: both have the same constant in front.
            logs.append(np.linalg.slogdet(hessian)[1] - length / method.linear_term.scale.std)
        worst = max(worst, float(np.abs(logs[0] - logs[1]).max()))
    return worst


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_exact_densities_on_a_line_stay_under_the_claim(name, norm, adjacency):
    for ratio in (0.05, 1.0):
        plan = pure_plan(LOSSES[name], spec_of(row_norm=norm), adjacency, ratio)
        claim = plan.method.releases[0].event.epsilon
        assert 0.6 * claim <= worst_loss(plan, norm) <= claim < BUDGET.epsilon


@pytest.mark.parametrize("norm", [0.01, 100.0])
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_exact_densities_in_the_plane_stay_under_the_claim(norm, adjacency):
    for loss in (Logistic(), Squared()):
        plan = pure_plan(loss, spec_of(2, norm), adjacency, 0.8)
        claim = plan.method.releases[0].event.epsilon
        assert 0.5 * claim <= worst_loss(plan, norm) <= claim


def critical(plan):
    """Log-ratio where slope and curvature of one row are at their worst at once."""
    m, clip, scale = plan.method.objective.strength, 0.5, plan.method.linear_term.scale.std
    w = np.array([[clip / m * (1.0 + 1e-9)]])
    logs = []
    for rows in ([(np.ones(1), clip + clip / m)], []):
        gradient, hessian = gradient_and_hessian(plan, rows, w)
        logs.append(float(np.log(hessian[0, 0, 0]) - abs(gradient[0, 0]) / scale))
    return logs[0] - logs[1]


@pytest.mark.parametrize("ratio", [0.1, 1.0, 3.0])
def test_the_claim_is_reached_and_nothing_less_would_do(ratio):
    plan = pure_plan(Squared(), spec_of(), ratio=ratio)
    claim = plan.method.releases[0].event.epsilon
    assert critical(plan) == pytest.approx(claim, rel=1e-6)
    assert critical(plan) <= claim
    # Planted bugs: the logarithm forgotten, half the noise.
    with mock.patch.object(PlannedObjective, "curvature_ratio", 1e-12):
        assert critical(pure_plan(Squared(), spec_of(), ratio=ratio)) > BUDGET.epsilon
    halved = dataclasses.replace(plan.method, noise_multiplier=0.5 * plan.method.noise_multiplier)
    assert critical(unchecked(plan, method=halved)) > BUDGET.epsilon


@pytest.mark.parametrize("norm", [30.0, 100.0])
def test_pitfall_02_curvature_linear_in_norm_is_refuted(norm):
    def linear(self):
        return self.data.weight_bound * self.curvature / norm / self.strength

    with mock.patch.object(PlannedObjective, "curvature_ratio", property(linear)):
        plan = pure_plan(Squared(), spec_of(row_norm=norm), ratio=4.0)
    assert worst_loss(plan, norm) > BUDGET.epsilon


def test_pitfall_12_a_replaced_row_counts_twice():
    with mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound):
        plan = pure_plan(Squared(), spec_of(), Adjacency.REPLACE_ONE, 0.05)
        assert worst_loss(plan, 1.0) > BUDGET.epsilon
    # Both rows may bend where the other does not: neither order is free of the logarithm.
    plan = pure_plan(Squared(), spec_of(), Adjacency.REPLACE_ONE, 1.0)
    bent, straight = [(np.ones(1), 0.0)], [(np.ones(1), 9.0)]
    zero = np.zeros((1, 1))
    bends = [gradient_and_hessian(plan, rows, zero)[1][0, 0, 0] for rows in (bent, straight)]
    assert math.log(bends[0] / bends[1]) == pytest.approx(math.log(2.0))


def test_weights_multiply_slope_and_curvature():
    heavy = pure_plan(Squared(), dataclasses.replace(spec_of(), weight_bound=3.0), ratio=0.5)
    assert heavy.method.linear_term.contribution_bound == pytest.approx(1.5)
    assert heavy.method.objective.curvature_ratio == pytest.approx(0.5)


# Accounting.


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("classes", [1, 3])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_epsilons_add_up_to_the_budget(adjacency, classes, epsilon):
    loss = Logistic() if classes == 1 else OneVsRest(Logistic(), classes)
    data = DataSpec(n_rows=1000, n_features=4, n_outputs=classes, intercept=1.0)
    budget = ApproximateDP(epsilon, 0.0)
    plan = ObjectivePerturbation().plan(Problem(loss), budget, data, adjacency)
    method = plan.method
    # Independently: in fractions, from the noise that will be drawn.
    sensitivity = Fraction(method.linear_term.contribution_bound) * (
        1 + (adjacency is Adjacency.REPLACE_ONE)
    )
    of_b = sensitivity / Fraction(method.linear_term.scale.std)
    logarithm = Fraction(math.log1p(method.objective.curvature_ratio))
    error = 2 * Fraction(method.error) * (1 + (adjacency is Adjacency.REPLACE_ONE))
    total = classes * (of_b + logarithm) + error / Fraction(method.releases[1].scale.std)
    assert 0.97 * epsilon <= total <= Fraction(epsilon)
    accountant = accountant_for(plan.event, adjacency)
    claim = accountant.epsilon(plan.event, adjacency, 0.0)
    assert total <= claim <= epsilon
    assert all(found.delta == 0.0 for found in recompute(plan.event, adjacency, claim, 0.0))
    first, second = method.releases
    assert plan.event == canonical(Composed((Repeated(first.event, classes), second.event)))


def test_an_epsilon_is_rounded_up():
    for multiplier, ratio in ((0.3, 0.1), (3.0, 1e-3), (1e3, 10.0)):
        exact = 1 / Fraction(multiplier) + Fraction(math.log1p(ratio))
        assert exact <= Fraction(pure_objective_epsilon(multiplier, ratio)) <= exact * (1 + 2**-49)


def test_other_budgets_have_gaussian_noise():
    plan = ObjectivePerturbation().plan(
        Problem(Logistic()), ApproximateDP(2.0, 1e-9), DataSpec(100, 2)
    )
    assert isinstance(plan.method, ObjectivePerturbationMethod)


# The computed minimiser, for every linear term of any norm.


def build(plan, rows, b):
    return plan.method.objective.build(rows, linear=b)


def projected(plan, rows, b):
    """The release, before its noise."""
    radius = plan.method.radius
    w = certified_minimizer(build(plan, rows, b), plan.method.tolerance, 2 * radius, 2 * radius)
    return w / max(1.0, np.linalg.norm(w) / radius)


def sample(n, d, norm, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * norm, rng.choice([-1.0, 1.0], n)


@pytest.mark.parametrize("factor", [1.0, 30.0, 1e4, 1e15])
@pytest.mark.parametrize("norm", [0.01, 100.0])
def test_the_tolerance_holds_for_every_linear_term(factor, norm):
    spec = DataSpec(n_rows=8, n_features=2, row_norm=norm)
    plan = ObjectivePerturbation(strength=0.1 * norm**2).plan(Problem(Logistic()), BUDGET, spec)
    method = plan.method
    rows = prepare_rows(*sample(8, 2, norm), spec)
    for seed in range(2):
        b = np.random.default_rng(seed).normal(size=2) * method.linear_term.scale.std * factor
        objective = build(plan, rows, b)
        smoothness = objective.accuracy.smoothness
        start = certified_minimizer(objective, 1e-2 * method.radius, 1.0, method.radius)
        steps = int(40 * smoothness / method.objective.strength)
        best = ExactObjective.of(objective).minimizer(start, smoothness, steps)
        length = max(1.0, float(np.linalg.norm(np.array(best, dtype=float))) / method.radius)
        found = projected(plan, rows, b)
        assert distance(found, [value / length for value in best]) <= method.tolerance


@pytest.mark.parametrize("factor", [1.0, 1e3, 1e6, 1e12])
def test_plain_steps_keep_the_promise_by_themselves(factor):
    # Were the fast searches to fail, as they may for odd rows.
    spec = DataSpec(n_rows=50, n_features=3)
    plan = ObjectivePerturbation(strength=0.02).plan(Problem(Logistic()), BUDGET, spec)
    rows = prepare_rows(*sample(50, 3, 1.0), spec)
    b = np.array([1.0, -0.5, 0.2]) * plan.method.linear_term.scale.std * factor
    expected = projected(plan, rows, b)
    with mock.patch("dpglm.oracle.objective._quick_steps", return_value=iter(())):
        slow = projected(plan, rows, b)
    assert np.linalg.norm(slow - expected) <= 2.0 * plan.method.tolerance


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("value", [1e30, 1.0, 1e-30])
@pytest.mark.parametrize("factor", [1.0, 1e3, 1e9])
def test_neighbours_of_equal_minimiser_have_close_releases(adjacency, value, factor):
    spec = DataSpec(n_rows=20, n_features=2, intercept=1.0, weight_bound=2.0)
    plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, spec, adjacency)
    method = plan.method
    X, y = sample(20, 2, 1.0)
    X[0], weights = value, np.full(20, 2.0)
    one = prepare_rows(X, y, spec, weights=weights)
    X, weights = X.copy(), weights.copy()
    if adjacency is Adjacency.REPLACE_ONE:
        X[0] = -value
    elif adjacency is Adjacency.ZERO_OUT:
        weights[0] = 0.0
    else:
        X, y, weights = X[1:], y[1:], weights[1:]
    other = prepare_rows(X, y, spec, weights=weights)
    b = np.array([1.0, 0.3, -0.4]) * method.linear_term.scale.std * factor
    objective = build(plan, one, b)
    w = certified_minimizer(objective, method.tolerance, 2 * method.radius, 2 * method.radius)
    # The linear terms that have this point for their exact minimiser, up to rounding.
    terms = [-build(plan, rows, np.zeros(3)).gradient(w) for rows in (one, other)]
    sensitivity = adjacency.sum_sensitivity(method.linear_term.contribution_bound)
    room = 1e-12 * (np.linalg.norm(terms[0]) + sensitivity)
    assert np.linalg.norm(terms[0] - terms[1]) <= sensitivity + room
    first, second = (
        projected(plan, rows, term) for rows, term in zip((one, other), terms, strict=True)
    )
    apart = float(np.linalg.norm(first - second))
    assert apart <= 2.0 * method.error + 2.0 * room / method.objective.strength
    noise = method.releases[1]
    assert noise.scale.std >= adjacency.sum_sensitivity(2.0 * method.error) / noise.event.epsilon
    # The ball is smaller than where such linear terms lead, and still nothing is given away.
    assert (float(np.linalg.norm(first)) > 0.999 * method.radius) == (factor > 1e2)


def test_a_promise_for_usual_linear_terms_only_would_be_refuted():
    # The planted bug: a tolerance that is not checked beyond some length of b.
    spec = DataSpec(n_rows=8, n_features=2)
    plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, spec)
    rows = prepare_rows(*sample(8, 2, 1.0), spec)
    b = np.array([3.0, 4.0]) * plan.method.linear_term.scale.std * 1e3
    with mock.patch("dpglm.oracle.objective.certify") as certify:
        certify.side_effect = lambda objective, w, g: mock.Mock(w=w, distance=0.0)
        early = projected(plan, rows, b)
    assert np.linalg.norm(early - projected(plan, rows, b)) > 1e3 * plan.method.error


def test_without_a_certificate_nothing_is_released():
    spec = DataSpec(n_rows=50, n_features=2)
    plan = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, spec)
    rows = prepare_rows(*sample(50, 2, 1.0), spec)
    method = dataclasses.replace(plan.method, tolerance=1e-300)
    with (
        mock.patch("dpglm.oracle.objective._plain_steps", return_value=iter(())),
        pytest.raises(RuntimeError, match="nothing was released"),
    ):
        run(dataclasses.replace(plan, method=method), rows, SeededNoise(0))


# Noise.


def released(plan, rows, seed):
    method, curator = plan.method, Curator(plan.adjacency, SeededNoise(seed))
    return method.step(method.init(0), Oracle(rows, plan.problem.loss, curator))[0]


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_linear_term_is_as_large_as_declared(adjacency):
    spec = DataSpec(n_rows=2, n_features=400, row_norm=2.0, weight_bound=3.0)
    solver = ObjectivePerturbation(clip=0.7)
    plan = solver.plan(Problem(Logistic()), BUDGET, spec, adjacency)
    method = plan.method
    declared = method.noise_multiplier * adjacency.sum_sensitivity(0.7 * 3.0)
    assert method.linear_term.scale.std == pytest.approx(declared)
    shape = Bounded((400,), method.linear_term.contribution_bound)
    draws = []
    for seed in range(40):
        curator = Curator(adjacency, SeededNoise(seed))
        draws.append(curator.release(method.linear_term, shape).value)
        assert curator.event == method.releases[0].event
    # Lengths have the law Gamma(400, scale): a standard error of 0.8 % in their mean.
    assert np.linalg.norm(draws, axis=1).mean() / 400.0 == pytest.approx(declared, rel=0.025)
    assert len(np.unique(draws)) == 40 * 400
    # Rows of weight zero: the minimiser is -b over the strength.
    rows = prepare_rows(np.zeros((2, 400)), np.ones(2), spec, weights=np.zeros(2))
    with watched(L2Noise, lambda declared, value, answer: value):
        w = released(plan, rows, 3)
    np.testing.assert_allclose(w, -draws[3] / method.objective.strength, rtol=1e-6)
    assert np.std(draws) / method.objective.strength == pytest.approx(
        plan.coefficient_noise, rel=0.025
    )


def test_every_class_has_a_linear_term_of_its_own():
    spec = DataSpec(n_rows=60, n_features=3, n_outputs=3, intercept=1.0)
    plan = ObjectivePerturbation().plan(Problem(OneVsRest(Logistic(), 3), L2(1e-3)), BUDGET, spec)
    rng = np.random.default_rng(0)
    rows = prepare_rows(rng.normal(size=(60, 3)), rng.integers(0, 3, 60), spec)

    with watched(L2LinearTerm) as terms:
        assert run(plan, rows, SeededNoise(0)).w.shape == (4, 3)
    assert len({term.value.tobytes() for _, _, term in terms}) == 3
    assert plan.method.norm == pytest.approx(math.sqrt(3.0) * plan.method.radius)


# An attack where slope and curvature are at their worst at once: see ``critical``.

FEW = 450


def window_attack(plan, ratio):
    """Guess "present" if the minimiser is just beyond where the row's slope leaves the clip."""
    m = 1.0 / ratio
    low, high = 0.5 / m, 0.5 / m + plan.method.linear_term.scale.std / (1.0 + m)
    spec, guesses = plan.data, []
    for k, weight in enumerate((1.0, 0.0)):
        rows = prepare_rows(np.ones((1, 1)), [0.5 + 0.5 / m], spec, weights=[weight])
        w = np.array([released(plan, rows, k * FEW + seed)[0] for seed in range(FEW)])
        guesses.append((low < w) & (w < high))
    return epsilon_at_least(*guesses)


def test_an_attack_stays_under_the_claim_and_is_near_it():
    assert 0.5 * BUDGET.epsilon < window_attack(pure_plan(Squared(), spec_of()), 1.0) <= 2.0


def test_a_forgotten_logarithm_is_refuted_by_the_attack():
    with mock.patch.object(PlannedObjective, "curvature_ratio", 1e-12):
        plan = pure_plan(Squared(), spec_of(), ratio=10.0)
        assert window_attack(plan, 10.0) > BUDGET.epsilon


def test_a_small_linear_term_is_refuted_by_the_attack():
    def small(declared, value, secret):
        return SecretNoise(0.2 * secret.value, secret.rounding)

    with watched(L2LinearTerm, small):
        assert window_attack(pure_plan(Squared(), spec_of()), 1.0) > BUDGET.epsilon


# Certificates, settings, and when it is the default.


def test_event_does_not_cover_releases_before_the_end():
    plan = pure_plan(Squared(), spec_of())
    assert not pays_for_all(plan)
    assert all(isinstance(basic, Pure) for basic, _ in plan.event.terms)


def test_curvature_alone_can_cost_too_much():
    with pytest.raises(ValueError, match="cannot be met"):
        pure_plan(Squared(), spec_of(), ratio=10.0)


@pytest.mark.parametrize("n_rows", [10**6, 10**7])
def test_strength_grows_if_rounding_dominates_a_row(n_rows):
    data = DataSpec(n_rows, 20, row_norm=4.0, intercept=4.0)
    objective = ObjectivePerturbation().plan(Problem(Logistic()), BUDGET, data).method.objective
    assert objective.strength < 0.06 * n_rows * objective.curvature / 20
    assert math.log1p(objective.curvature_ratio) < 0.1 * BUDGET.epsilon
    with pytest.raises(ValueError, match="rounding moves"):
        pure_plan(Logistic(), DataSpec(n_rows, 784), ratio=0.1)


DATA = DataSpec(2000, 20, target_low=-1.0, target_high=1.0)


@pytest.mark.parametrize(
    ("problem", "data", "expected"),
    [
        (Problem(Logistic()), DATA, ObjectivePerturbation()),
        (Problem(Squared(), L2(0.1)), DATA, ObjectivePerturbation()),
        (Problem(Huber(1.0)), dataclasses.replace(DATA, sparse=True), ObjectivePerturbation()),
        (Problem(Logistic()), DataSpec(2000, 1000), ObjectivePerturbation()),
        (Problem(OneVsRest(Logistic(), 3)), DataSpec(90, 2, 3), ObjectivePerturbation()),
        (Problem(Logistic()), DataSpec(2000, 1001), pure_gd()),
        (Problem(Logistic()), DataSpec(2**27, 3), pure_gd()),
        (Problem(Logistic()), dataclasses.replace(DATA, dtype="float32"), pure_gd()),
        (Problem(Logistic(), L1(0.1)), DATA, pure_gd()),
        (Problem(Logistic(), constraint=L2Ball(1.0)), DATA, pure_gd()),
        (Problem(Hinge()), DATA, pure_gd()),
    ],
    ids=str,
)
def test_it_is_the_default_where_it_can_be(problem, data, expected):
    assert choose(problem, BUDGET, data) == expected
    assert choose(problem, BUDGET, data, may_copy=False) == pure_gd()


@pytest.mark.parametrize("classes", [2, 3])
def test_it_is_better_than_gradient_descent(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20)) / math.sqrt(20)
    y = (4.0 * X @ rng.normal(size=(20, classes)) + rng.gumbel(size=(3000, classes))).argmax(1)
    scores = []
    for solver in (ObjectivePerturbation(), pure_gd()):
        options = {"multi_class": "ovr"} if classes > 2 else {}
        model = LogisticRegression(
            delta=0.0,
            row_norm=1.0,
            classes=list(range(classes)),
            solver=solver,
            random_state=0,
            **options,
        )
        scores.append(model.fit(X, y).score(X, y))
        assert isinstance(model.plan(3000, 20).method, ObjectivePerturbationMethod) is isinstance(
            solver, ObjectivePerturbation
        )
    assert scores[0] > scores[1] + 0.02
