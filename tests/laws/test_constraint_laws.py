"""Laws of every constraint: its projection and its declared sizes against a witness.

A new constraint is one row in CONSTRAINTS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, minimize

from dpglm.problem import Box, Constraint, L1Ball, L2Ball, Simplex, Unconstrained

pytestmark = pytest.mark.one_in(3)

Array = NDArray[Any]
Projection = Callable[[Array], Array]
SHAPES = [(1,), (2,), (7,), (3, 2)]

CONSTRAINTS = [
    Unconstrained(),
    L2Ball(0.7),
    L2Ball(20.0),
    L1Ball(0.7),
    L1Ball(20.0),
    Box(-0.5, 2.0),
    Box(0.0, 1.5),
    Box(1.0, 3.0),
    Box(0.4, 0.4),
    Box(0.0, math.inf),
    Box(-math.inf, math.inf),
    Simplex(),
    Simplex(5.0),
]
PROPER = [c for c in CONSTRAINTS if not c.contains(np.full(3, -1e6))]

every_constraint = pytest.mark.parametrize("c", CONSTRAINTS, ids=repr)
every_proper = pytest.mark.parametrize("c", PROPER, ids=repr)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def points(shape: tuple[int, ...], n: int = 24, seed: int = 1) -> list[Array]:
    rng = np.random.default_rng(seed)
    scales = rng.choice([0.1, 1.0, 10.0, 1e3], size=n)
    return [s * rng.normal(size=shape) + rng.choice([0, s]) for s in scales]


def variational_slack(c: Constraint, project: Projection, shape: tuple[int, ...]) -> float:
    """Smallest ``<p - w, u - p>`` over points u of the set, relative; p is nearest iff >= 0."""
    inside = [c.project(u) for u in points(shape, seed=2)]
    worst = math.inf
    for w in points(shape):
        p = project(w)
        scale = 1 + np.linalg.norm(p - w) * max(1.0, *(np.linalg.norm(u - p) for u in inside))
        worst = min(worst, *(float(np.sum((p - w) * (u - p)) / scale) for u in inside))
    return worst


@every_constraint
@every_shape
def test_projection_satisfies_the_variational_inequality(
    c: Constraint, shape: tuple[int, ...]
) -> None:
    assert variational_slack(c, c.project, shape) >= -1e-12


@every_constraint
@every_shape
def test_projection_is_in_the_set_idempotent_and_nonexpansive(
    c: Constraint, shape: tuple[int, ...]
) -> None:
    ws = points(shape)
    ps = [c.project(w) for w in ws]
    for w, p in zip(ws, ps, strict=True):
        assert c.contains(p, tolerance=1e-12)
        np.testing.assert_allclose(c.project(p), p, rtol=1e-14, atol=1e-13)
        if c.contains(w, tolerance=0.0):
            np.testing.assert_allclose(p, w, rtol=1e-14)
    for i in range(len(ws)):
        for j in range(i):
            moved, apart = np.linalg.norm(ps[i] - ps[j]), np.linalg.norm(ws[i] - ws[j])
            assert moved <= apart * (1 + 1e-12) + 1e-12


@every_proper
def test_a_wrong_projection_is_caught(c: Constraint) -> None:
    inside = c.project(np.array([0.3, -0.2, 0.6]))
    planted: list[Projection] = [
        lambda w: w.copy(),  # forgotten: the answer is outside
        lambda w: inside,  # in the set, not nearest
        lambda w: c.project(w / 2),  # in the set, not nearest
    ]
    leaves_set = [not all(c.contains(p(w)) for w in points((3,))) for p in planted]
    not_nearest = [variational_slack(c, p, (3,)) < -1e-6 for p in planted]
    single_point = c.gaussian_width(3) == 0
    assert leaves_set[0]
    assert not_nearest[1:] == [not single_point] * 2


@every_proper
def test_projection_agrees_with_a_general_minimiser(c: Constraint) -> None:
    set_as_limits: dict[type[Constraint], Callable[[Any], Any]] = {
        L2Ball: lambda c: [{"type": "ineq", "fun": lambda v: c.radius**2 - v @ v}],
        # |v|_1 <= r as its eight faces.
        L1Ball: lambda c: [
            LinearConstraint(np.array(np.meshgrid(*[[-1, 1]] * 3)).reshape(3, -1).T, ub=c.radius)
        ],
        Box: lambda c: [LinearConstraint(np.eye(3), lb=c.low, ub=c.high)],
        Simplex: lambda c: [
            LinearConstraint(np.eye(3), lb=0),
            LinearConstraint(np.ones((1, 3)), lb=c.radius, ub=c.radius),
        ],
    }
    for w in np.array([[0.9, -0.4, 0.2], [3.0, 2.0, -7.0], [-0.1, 0.02, 0.05]]):
        found = minimize(
            lambda v, w=w: np.sum((v - w) ** 2) / 2,
            c.project(w + 0.1),
            jac=lambda v, w=w: v - w,
            method="SLSQP",
            constraints=set_as_limits[type(c)](c),
            options={"ftol": 1e-15, "maxiter": 500},
        )
        np.testing.assert_allclose(c.project(w), found.x, atol=1e-5)


# Declared sizes. Every extreme point of these sets is the projection of some far point.


def extremes(c: Constraint, dimension: int, far: float = 1e6) -> Array:
    rng = np.random.default_rng(7)
    starts = [far * np.eye(dimension), -far * np.eye(dimension)]
    starts += [far * np.ones((1, dimension)), -far * np.ones((1, dimension))]
    starts.append(far * rng.choice([-1.0, 1.0], size=(20, dimension)))
    return np.array([c.project(w) for w in np.concatenate(starts)])


def witness_norm(c: Constraint, dimension: int) -> float:
    return float(np.linalg.norm(extremes(c, dimension), axis=1).max())


def witness_width(c: Constraint, dimension: int) -> tuple[float, float]:
    """Monte Carlo mean of the support function, and its standard error."""
    rng = np.random.default_rng(10)
    far = 1e7
    g = rng.normal(size=(1500, dimension))
    sup = np.array([np.sum(row * c.project(far * row)) for row in g])
    return float(sup.mean()), float(sup.std() / math.sqrt(len(sup)))


def verdict(declared: float, witness: float) -> str:
    """Compare a declared size with a witness: ok, exceeded, or loose by more than 1 %."""
    if witness > declared * (1 + 1e-9) + 1e-9:
        return "exceeded"
    attained = witness > 1e5 if declared == math.inf else witness >= 0.99 * declared
    return "ok" if attained else "loose"


@every_constraint
@pytest.mark.parametrize("dimension", [1, 2, 5, 40])
def test_sizes_are_attained_and_not_exceeded(c: Constraint, dimension: int) -> None:
    assert verdict(c.norm_bound(dimension), witness_norm(c, dimension)) == "ok"


@every_constraint
def test_a_wrong_size_is_caught(c: Constraint) -> None:
    declared, witness = c.norm_bound(5), witness_norm(c, 5)
    if 0 < declared < math.inf:
        assert verdict(declared / 2, witness) == "exceeded"
        assert verdict(declared * 2, witness) == "loose"
    elif declared == math.inf:
        assert verdict(1e3, witness) == "exceeded"


@every_constraint
@pytest.mark.parametrize("dimension", [1, 2, 30])
def test_gaussian_width_is_the_mean_support(c: Constraint, dimension: int) -> None:
    declared = c.gaussian_width(dimension)
    mean, error = witness_width(c, dimension)
    if declared == math.inf:
        assert mean > 1e5
        return
    assert abs(declared - mean) <= 5 * error + 1e-5
    if declared > 0.1:
        # The same check refutes half and twice of it.
        assert abs(declared / 2 - mean) > 5 * error
        assert abs(declared * 2 - mean) > 5 * error


@every_constraint
def test_width_is_within_the_norm_bound(c: Constraint) -> None:
    for dimension in (1, 3, 100, 10**6):
        ball = c.norm_bound(dimension) * math.sqrt(dimension)
        assert 0 <= c.gaussian_width(dimension) <= ball * (1 + 1e-12)


@every_constraint
@every_shape
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_projection_keeps_dtype_shape_and_argument(
    c: Constraint, shape: tuple[int, ...], dtype: type
) -> None:
    for w in points(shape):
        narrow = w.astype(dtype)
        before = narrow.copy()
        p = c.project(narrow)
        assert p.dtype == dtype
        assert p.shape == shape
        assert c.contains(p)
        assert not np.shares_memory(p, narrow)
        np.testing.assert_array_equal(narrow, before)


@every_proper
def test_contains_rejects_points_outside(c: Constraint) -> None:
    for w in (np.full(3, -1e3), np.array([1e4, -1e4, 0.0])):
        assert not c.contains(w)
        p = c.project(w)
        # A thousandth of the way from the set to w is outside as well.
        assert not c.contains(p + 1e-3 * (w - p))


@every_constraint
@pytest.mark.parametrize("dimension", [0, -3])
def test_a_bad_dimension_is_refused(c: Constraint, dimension: int) -> None:
    for size in (c.norm_bound, c.gaussian_width):
        with pytest.raises(ValueError, match="dimension must be an integer of at least 1"):
            size(dimension)
