"""Mirror maps: steps are minimisers, divergences bound distances, starts are least."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.problem import (
    L1,
    L2,
    Box,
    ElasticNetPenalty,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Problem,
    Simplex,
    Unconstrained,
)
from dpglm.solvers.gradient.accelerated_mirror_descent import (
    EntropyMap,
    EuclideanMap,
    PNormMap,
    mirror_map_for,
)

MAPS = [
    (EuclideanMap(NoPenalty(), Unconstrained()), 2.0),
    (EuclideanMap(L2(0.3), L2Ball(0.7)), 2.0),
    (EuclideanMap(L1(0.2), L2Ball(0.7)), 2.0),
    (PNormMap(0.7), None),
    (EntropyMap(0.7), 1.0),
]
SHAPES = [(1,), (2,), (3,), (40,), (4, 3)]


def order(dimension):
    return 1.0 + 1.0 / max(1.0, np.log(dimension))


def point(geometry, shape, rng):
    """A random point of the set, some of them at its boundary."""
    if isinstance(geometry, EntropyMap):
        v = rng.dirichlet(np.full(int(np.prod(shape)), 0.5)).reshape(shape)
        return 0.7 * (v + 1e-9) / (v + 1e-9).sum()
    v = rng.normal(size=shape) * (rng.random(shape) < 0.7)
    if isinstance(geometry, PNormMap):
        return L1Ball(0.7 * rng.choice([1.0, 1.0, 0.5])).project(v)
    return geometry.constraint.project(v)


def penalty(geometry, v):
    return geometry.regularizer.value(v) if isinstance(geometry, EuclideanMap) else 0.0


def divergence(geometry, v, z):
    """The Bregman divergence of the map's function, by its definition."""
    if isinstance(geometry, EuclideanMap):
        return 0.5 * float(np.sum((v - z) ** 2))
    if isinstance(geometry, EntropyMap):
        inside = v > 0.0
        return geometry.radius * float(np.sum(v[inside] * np.log(v[inside] / z[inside])))
    p = order(z.size)
    norms = [float(np.sum(np.abs(one) ** p)) ** (1.0 / p) for one in (v, z)]
    slope = np.zeros_like(z)
    if norms[1] > 0.0:
        slope = norms[1] * np.copysign((np.abs(z) / norms[1]) ** (p - 1.0), z)
    squares = 0.5 * (norms[0] ** 2 - norms[1] ** 2)
    return (squares - float(np.sum(slope * (v - z)))) / (p - 1.0)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("geometry", "norm"), MAPS, ids=repr)
def test_steps_minimise_by_the_three_point_inequality(geometry, norm, shape):
    # f(v) >= f(z+) + D(v, z+) / eta for every v in the set says that z+ is the minimiser, for a
    # linear function and D itself (Chen and Teboulle 1993, Lemma 3.2).
    rng = np.random.default_rng(0)
    for size, eta in itertools.product((0.01, 1.0, 30.0), (0.1, 5.0)):
        z, gradient = point(geometry, shape, rng), size * rng.normal(size=shape)
        new = geometry.step(z, gradient, eta)
        assert new.shape == shape

        def objective(v, z=z, gradient=gradient, eta=eta):
            linear = float(np.sum(gradient * v)) + penalty(geometry, v)
            return linear + divergence(geometry, v, z) / eta

        least = objective(new)
        for _ in range(20):
            v = point(geometry, shape, rng)
            gap = (
                objective(v)
                - least
                - divergence(
                    geometry,
                    v,
                    np.maximum(new, 1e-300) if isinstance(geometry, EntropyMap) else new,
                )
                / eta
            )
            assert gap >= -1e-9 * (1.0 + abs(least))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("geometry", "norm"), MAPS, ids=repr)
def test_steps_stay_in_the_set(geometry, norm, shape):
    rng = np.random.default_rng(1)
    allowed = {
        EntropyMap: lambda v: Simplex(0.7).contains(v),
        PNormMap: lambda v: L1Ball(0.7).contains(v),
        EuclideanMap: lambda v: geometry.constraint.contains(v),
    }[type(geometry)]
    z = geometry.start(shape)
    assert allowed(z)
    for size in (0.0, 1e-9, 1.0, 1e9):
        z = geometry.step(z, size * rng.normal(size=shape), 1.0)
        assert np.isfinite(z).all()
        assert allowed(z)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("geometry", "norm"), MAPS, ids=repr)
def test_divergences_are_strongly_convex_above_euclidean_norm(geometry, norm, shape):
    rng = np.random.default_rng(2)
    p = order(np.prod(shape)) if norm is None else norm
    for _ in range(50):
        v, z = point(geometry, shape, rng), point(geometry, shape, rng)
        length = float(np.sum(np.abs(v - z) ** p)) ** (1.0 / p)
        assert divergence(geometry, v, z) >= 0.5 * length**2 - 1e-12
        assert length >= np.linalg.norm(v - z) * (1.0 - 1e-12)
        assert divergence(geometry, v, v) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("geometry", "norm"), MAPS, ids=repr)
def test_no_point_is_further_from_the_start_than_the_reach(geometry, norm, shape):
    rng = np.random.default_rng(3)
    start, dimension = geometry.start(shape), int(np.prod(shape))
    reach = geometry.reach(dimension)
    for _ in range(50):
        assert divergence(geometry, point(geometry, shape, rng), start) <= reach + 1e-12
    if isinstance(geometry, EntropyMap | PNormMap):
        corner = np.zeros(dimension)
        corner[0] = 0.7
        assert divergence(geometry, corner.reshape(shape), start) == pytest.approx(reach, abs=1e-12)


def test_an_entry_of_the_simplex_that_vanished_can_come_back():
    geometry = EntropyMap(1.0)
    z = geometry.step(np.array([0.5, 0.5]), np.array([0.0, 1e6]), 1.0)
    assert z.tolist() == [1.0, 0.0]
    assert geometry.step(z, np.array([1e6, 0.0]), 1.0).tolist() == [0.0, 1.0]


def test_l1_ball_step_equals_a_general_method():
    rng = np.random.default_rng(4)
    geometry = PNormMap(0.7)
    z, gradient = L1Ball(0.5).project(rng.normal(size=4)), 2.0 * rng.normal(size=4)

    def objective(parts):
        v = parts[:4] - parts[4:]
        return float(gradient @ v) + divergence(geometry, v, z) / 0.3

    found = minimize(
        objective,
        np.full(8, 0.05),
        method="SLSQP",
        bounds=[(0, None)] * 8,
        constraints={"type": "ineq", "fun": lambda parts: 0.7 - parts.sum()},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    step = geometry.step(z, gradient, 0.3)
    assert np.abs(step).sum() == pytest.approx(0.7)
    np.testing.assert_allclose(step, found.x[:4] - found.x[4:], atol=1e-5)


@pytest.mark.parametrize("size", [1e10, 1e20, 1e100])
def test_a_huge_step_on_the_l1_ball_ends_in_a_corner(size):
    z = PNormMap(radius=0.3).step(np.zeros(4), np.array([1.0, -2.0, 0.5, 0.0]), size)
    np.testing.assert_allclose(z, [0.0, 0.3, 0.0, 0.0], atol=1e-6)


def test_geometries_by_constraint():
    def chosen(constraint, regularizer=None):
        return mirror_map_for(Problem(Logistic(), regularizer or NoPenalty(), constraint))

    assert chosen(Unconstrained(), L1(0.1)) == EuclideanMap(L1(0.1), Unconstrained())
    assert chosen(L2Ball(2.0), ElasticNetPenalty(0.1, 0.5)).constraint == L2Ball(2.0)
    assert chosen(L1Ball(2.0)) == PNormMap(2.0)
    assert chosen(Simplex(3.0)) == EntropyMap(3.0)
    with pytest.raises(ValueError, match="constraint must be one of"):
        chosen(Box(0.0, 1.0))
    with pytest.raises(ValueError, match="regularizer must be NoPenalty"):
        chosen(L1Ball(2.0), L2(0.1))
