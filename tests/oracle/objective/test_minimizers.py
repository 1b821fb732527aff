"""Certified minimisers: certificates against 50 digits, promises kept, early stops refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.data.rows import DataSpec
from dpglm.oracle import objective as minimizers
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.objective import (
    Accuracy,
    Objective,
    Terms,
    attainable,
    certified_minimizer,
    certify,
)
from dpglm.problem import (
    L1,
    ClippedLoss,
    Huber,
    L2Ball,
    Logistic,
    OneVsRest,
    Poisson,
    SmoothedHinge,
    Softmax,
    Squared,
    SquaredHinge,
)
from tests.oracle.objective.exact_objective import ExactObjective, distance, exact, norm
from tests.oracle.test_clipped_sum import make_rows, make_targets

pytestmark = pytest.mark.one_in(3)


def make_objective(
    loss,
    n=8,
    *,
    clip=0.6,
    ridge=1.0,
    row_norm=1.0,
    layout="C",
    prox=None,
    tilt=0.5,
    n_outputs=1,
    d=2,
    seed=0,
):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * row_norm
    y = make_targets(rng, loss, n, n_outputs)
    rows = make_rows(
        X,
        y,
        layout=layout,
        n_outputs=n_outputs,
        row_norm=row_norm,
        intercept=0.5 * row_norm,
        weights=rng.uniform(0.0, 2.0, n),
        weight_bound=2.0,
    )
    low, high = rows.spec.target_range(loss.target.bounds)
    curvature = loss.smoothness_on(np.inf, low, high) * rows.spec.augmented_row_norm**2
    shape = rows.spec.coefficient_shape
    linear = tilt * row_norm * rng.normal(size=shape)
    strengths = ridge * row_norm**2 * rng.uniform(1.0, 2.0, size=shape[0])
    terms = Terms(strengths, linear, prox)
    return Objective(rows, loss, FlatClipping(clip * row_norm), curvature, terms)


def shrink(strength):
    return lambda w, step: L1(strength).prox(w, step)


def ball(radius):
    return lambda w, step: L2Ball(radius).project(w)


def shrink_in_ball(strength, radius):
    return lambda w, step: L2Ball(radius).project(L1(strength).prox(w, step))


SCALAR = [Logistic(), Squared(), ClippedLoss(Poisson(), 0.5)]
SHAPES = {
    "smooth": (None, {}),
    "ball": (ball(0.2), {"radius": 0.2}),
    "L1": (shrink(0.7), {"l1": 0.7}),
    "both": (shrink_in_ball(0.1, 0.3), {"l1": 0.1, "radius": 0.3}),
}


@pytest.mark.parametrize("loss", SCALAR, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("layout", ["C", "csr"])
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
def test_the_declared_error_of_a_gradient_covers_the_true_one(loss, layout, row_norm):
    objective = make_objective(loss, n=5, layout=layout, row_norm=row_norm)
    reference = ExactObjective.of(objective)
    rng = np.random.default_rng(0)
    for size in (0.0, 1.0, 1e3, 1e9):
        w = size / row_norm * rng.normal(size=3)
        error = distance(objective.gradient(w), reference.gradient(exact(w)))
        assert error <= objective.accuracy.gradient(np.linalg.norm(w))
    # Without the part that grows with the parameter the bound would not hold.
    assert error > objective.accuracy.gradient(0.0)


@pytest.mark.parametrize("loss", SCALAR, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("shape", SHAPES)
def test_certificates_bound_distance_to_the_minimiser(loss, shape):
    prox, options = SHAPES[shape]
    objective = make_objective(loss, prox=prox)
    reference = ExactObjective.of(objective, **options)
    smoothness = objective.accuracy.smoothness
    steps = int(25 * smoothness / objective.terms.strength)
    found = certified_minimizer(objective, 1e-9, 10.0)
    best = reference.minimizer(found, smoothness, steps)
    again = reference.minimizer(best, smoothness, 1)
    assert norm([a - b for a, b in zip(best, again, strict=True)]) < 1e-20
    assert distance(found, best) <= 1e-9
    rng = np.random.default_rng(0)
    for size in (0.0, 1e-12, 1e-6, 1e-2, 1.0, 1e3):
        w = np.array([float(v) for v in best]) + size * rng.normal(size=3)
        certified = certify(objective, w, objective.gradient(w))
        assert distance(certified.w, best) <= certified.distance
        # Not by more than the condition number and the rounding explain.
        limit = 4.0 * smoothness / objective.terms.strength * (size * 4.0) + 1e-9
        assert certified.distance <= limit


def test_certificate_with_smoothness_for_strength_is_refuted():
    objective = make_objective(Logistic(), n=100, ridge=1e-3)
    best = certified_minimizer(objective, 1e-7, 1e3)
    curvature = [
        (objective.gradient(best + 1e-6 * e) - objective.gradient(best - 1e-6 * e)) / 2e-6
        for e in np.eye(best.size)
    ]
    w = best + 1e-2 * np.linalg.eigh(np.array(curvature))[1][:, 0]
    certified = certify(objective, w, objective.gradient(w))
    planted = certified.distance * objective.terms.strength / objective.accuracy.smoothness
    assert planted < np.linalg.norm(certified.w - best) < certified.distance


ALL = [
    (Logistic(), 1, 0.6),
    (Squared(), 1, 0.2),
    (Huber(0.3), 1, 0.1),
    (SmoothedHinge(0.2), 1, 0.6),
    (SquaredHinge(), 1, 0.6),
    (ClippedLoss(Poisson(), 0.5), 1, 0.6),
    (Softmax(), 3, 10.0),
    (OneVsRest(Logistic(), 3), 3, 10.0),
]


@pytest.mark.parametrize(("loss", "n_outputs", "clip"), ALL, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("prox", [None, shrink(0.3), ball(0.1)], ids=["smooth", "L1", "ball"])
@pytest.mark.parametrize("ridge", [1.0, 0.02])
def test_attainable_bounds_are_attained(loss, n_outputs, clip, prox, ridge):
    objective = make_objective(
        loss, n=300, n_outputs=n_outputs, clip=clip, prox=prox, ridge=ridge, d=4
    )
    strength = objective.terms.strength
    zero = np.zeros(objective.rows.spec.coefficient_shape)
    norm_bound = 2.0 * float(np.linalg.norm(objective.gradient(zero))) / strength
    promised = attainable(objective.accuracy, strength, norm_bound)
    assert promised < 1e-3 * 2.0 * clip / strength
    w = certified_minimizer(objective, promised, norm_bound)
    assert certify(objective, w, objective.gradient(w)).distance < 1.1 * promised


@pytest.mark.parametrize("prox", [None, ball(0.2)], ids=["smooth", "ball"])
def test_plain_steps_alone_keep_the_promise(prox, monkeypatch):
    objective = make_objective(Logistic(), n=50, ridge=0.1, prox=prox)
    quick = certified_minimizer(objective, 1e-9, 100.0)
    monkeypatch.setattr(minimizers, "_quick_steps", lambda objective, start: iter(()))
    promised = attainable(objective.accuracy, objective.terms.strength, 100.0)
    slow = certified_minimizer(objective, max(promised, 1e-9), 100.0)
    assert np.linalg.norm(quick - slow) <= 2.01e-9


def test_a_search_that_breaks_down_hands_over(monkeypatch):
    def infinite(objective, w, g, direction):
        return np.full(w.shape, np.nan), np.full(w.shape, np.nan)

    monkeypatch.setattr(minimizers, "_along", infinite)
    objective = make_objective(Logistic(), n=50)
    w = certified_minimizer(objective, 1e-9, 100.0)
    assert certify(objective, w, objective.gradient(w)).distance <= 1e-9


def test_nothing_is_returned_without_a_certificate(monkeypatch):
    monkeypatch.setattr(minimizers, "_plain_steps", lambda objective, start: iter(()))
    objective = make_objective(Logistic())
    with pytest.raises(RuntimeError, match="nothing was released"):
        certified_minimizer(objective, 1e-300, 100.0)


@pytest.mark.parametrize("layout", ["C", "F", "csr"])
def test_the_minimiser_is_scipys(layout):
    objective = make_objective(Logistic(), n=2000, clip=0.5, layout=layout, d=5)
    w = certified_minimizer(objective, 1e-6, 100.0)
    found = minimize(
        lambda v: np.linalg.norm(objective.gradient(v)) ** 2, np.zeros(6), options={"gtol": 1e-12}
    )
    np.testing.assert_allclose(w, found.x, atol=1e-4)


def test_rounding_is_declared_by_public_facts():
    data = DataSpec(n_rows=1000, n_features=10, weight_bound=2.0)
    accuracy = Accuracy(data, 1000, 1000, clip=1.0, curvature=0.25, ridge=1.0, linear_norm=1.0)
    assert accuracy.smoothness == 2000 * 0.25 + 1.0
    for change in (
        {"n_rows": 2000},
        {"block_rows": 2000},
        {"clip": 2.0},
        {"curvature": 1.0},
        {"linear_norm": 1e9},
    ):
        assert dataclasses.replace(accuracy, **change).gradient(1.0) > accuracy.gradient(1.0)
    assert accuracy.gradient(2.0) > accuracy.gradient(1.0)
    assert 0.0 < accuracy.prox(1.0) < 1e-13
