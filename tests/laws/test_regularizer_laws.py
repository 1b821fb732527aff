"""Laws of every regularizer: its proximal map and its constants against a witness.

A new regularizer is one row in REGULARIZERS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpglm.problem import L1, L2, ElasticNetPenalty, GroupLasso, NoPenalty, Regularizer

pytestmark = pytest.mark.one_in(3)

Array = NDArray[Any]
Prox = Callable[[Array, float], Array]
D = 4
SHAPES = [(D,), (D, 3)]
STEPS = [0.0, 0.1, 1.7, 30.0]

REGULARIZERS = [
    NoPenalty(),
    L2(0.0),
    L2(0.8),
    L1(0.0),
    L1(0.8),
    ElasticNetPenalty(0.8, 0.3),
    ElasticNetPenalty(0.8, 0.0),
    ElasticNetPenalty(0.8, 1.0),
    GroupLasso(0.8, ((0,), (1, 3), (2,))),
    GroupLasso(0.8, ((3, 0),)),
    GroupLasso(0.8, ()),
]
# Those with a penalty large enough to move a weight, for planted bugs.
PENALTIES = [r for r in REGULARIZERS if r.value(np.ones(D)) > 0]

every_regularizer = pytest.mark.parametrize("r", REGULARIZERS, ids=repr)
every_penalty = pytest.mark.parametrize("r", PENALTIES, ids=repr)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


def three_point_gap(r: Regularizer, prox: Prox, shape: tuple[int, ...], step: float) -> float:
    """Smallest slack of the optimality inequality of ``p = prox(w)``, relative to its size.

    With ``F(u) = step r(u) + |u - w|^2 / 2`` and r m-strongly convex, p is the minimiser if and
    only if ``F(u) >= F(p) + (1 + step m) / 2 |u - p|^2`` for all u. A negative slack refutes it.
    """
    rng = np.random.default_rng(3)
    worst = math.inf
    for _ in range(25):
        w = rng.normal(size=shape) * rng.choice([0.3, 1.0, 5.0, 40.0])
        p = prox(w, step)
        rivals = [p + s * rng.normal(size=shape) for s in (1e-3, 0.03, 1.0, 10.0)]
        rivals += [np.zeros(shape), w, 0.9 * p, 1.1 * p, np.where(rng.random(shape) < 0.5, p, 0)]
        f_p = step * r.value(p) + np.sum((p - w) ** 2) / 2
        for u in rivals:
            f_u = step * r.value(u) + np.sum((u - w) ** 2) / 2
            growth = (1 + step * r.strong_convexity) / 2 * np.sum((u - p) ** 2)
            worst = min(worst, float((f_u - f_p - growth) / (1 + f_u)))
    return worst


@every_regularizer
@every_shape
@pytest.mark.parametrize("step", STEPS)
def test_prox_satisfies_the_three_point_inequality(
    r: Regularizer, shape: tuple[int, ...], step: float
) -> None:
    assert three_point_gap(r, r.prox, shape, step) >= -1e-12


@every_penalty
@every_shape
def test_a_wrong_prox_is_caught(r: Regularizer, shape: tuple[int, ...]) -> None:
    planted: list[Prox] = [
        lambda w, step: r.prox(w, 1.0),  # the step is ignored
        lambda w, step: r.prox(w, step / 2),  # half of the penalty
        lambda w, step: w.copy(),  # the penalty is forgotten
        lambda w, step: r.prox(r.prox(w, step), step),  # applied twice
    ]
    for prox in planted:
        assert three_point_gap(r, prox, shape, 0.1) < -1e-7


def test_group_weights_that_are_forgotten_are_caught() -> None:
    unweighted = GroupLasso(0.8 / math.sqrt(2), ((1, 3),))
    assert three_point_gap(GroupLasso(0.8, ((1, 3),)), unweighted.prox, (D,), 0.5) < -1e-4


@every_regularizer
def test_prox_agrees_with_a_general_minimiser(r: Regularizer) -> None:
    rng = np.random.default_rng(8)
    for scale in (0.5, 3.0):
        w = scale * rng.normal(size=D)
        found = minimize(
            lambda v, w=w: 0.7 * r.value(v) + np.sum((v - w) ** 2) / 2,
            w,
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-14, "maxfev": 4000, "maxiter": 4000},
        )
        np.testing.assert_allclose(r.prox(w, 0.7), found.x, atol=1e-5)


@every_regularizer
@every_shape
def test_prox_contracts(r: Regularizer, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(4)
    for step in STEPS:
        for _ in range(30):
            a, b = rng.normal(size=(2, *shape)) * 3
            moved = np.linalg.norm(r.prox(a, step) - r.prox(b, step))
            bound = np.linalg.norm(a - b) / (1 + step * r.strong_convexity)
            assert moved <= bound * (1 + 1e-12)


def curvature_range(r: Regularizer, shape: tuple[int, ...]) -> tuple[float, float]:
    """Smallest and largest second difference of r per squared distance, over random segments."""
    rng = np.random.default_rng(9)
    found = []
    for _ in range(200):
        a = rng.normal(size=shape) * rng.choice([1e-2, 1.0, 30.0])
        # Segments across 0 see the kinks, radial ones inside an orthant see none.
        b = rng.choice([0.5, 2.0, -1.0]) * a if rng.random() < 0.5 else rng.normal(size=shape)
        if np.linalg.norm(a - b) > 0:
            bend = (r.value(a) + r.value(b)) / 2 - r.value((a + b) / 2)
            found.append(8 * bend / np.sum((a - b) ** 2))
    return min(found), max(found)


def verdicts(strong_convexity: float, smoothness: float, low: float, high: float) -> list[str]:
    """Compare two declared constants with the curvatures found: ok, exceeded or loose by 1 %."""
    if low < strong_convexity - 1e-9:
        convexity = "exceeded"
    else:
        convexity = "ok" if low <= strong_convexity * 1.01 + 1e-9 else "loose"
    if high > smoothness + 1e-9:
        smooth = "exceeded"
    else:
        attained = high > 20 if smoothness == math.inf else high >= smoothness * 0.99 - 1e-9
        smooth = "ok" if attained else "loose"
    return [convexity, smooth]


@every_regularizer
@every_shape
def test_constants_are_attained_and_not_exceeded(r: Regularizer, shape: tuple[int, ...]) -> None:
    found = curvature_range(r, shape)
    assert verdicts(r.strong_convexity, r.smoothness, *found) == ["ok", "ok"]


@every_penalty
def test_a_wrong_constant_is_caught(r: Regularizer) -> None:
    found = curvature_range(r, (D,))
    m, beta = r.strong_convexity, r.smoothness
    assert verdicts(m + 0.1, beta, *found)[0] == "exceeded"
    assert verdicts(m, beta / 2 if beta < math.inf else 1.0, *found)[1] == "exceeded"
    if m > 0:
        assert verdicts(m / 2, beta, *found)[0] == "loose"
    if beta < math.inf:
        assert verdicts(m, math.inf, *found)[1] == verdicts(m, 2 * beta, *found)[1] == "loose"


@every_regularizer
@every_shape
def test_value_is_nonnegative_zero_at_zero_and_equal_in_float32(
    r: Regularizer, shape: tuple[int, ...]
) -> None:
    w = np.random.default_rng(2).normal(size=shape)
    assert r.value(np.zeros(shape)) == 0
    assert r.value(w) >= 0
    assert r.value(w.astype(np.float32)) == pytest.approx(r.value(w), rel=1e-6)
    assert isinstance(r.value(w), float)


@every_regularizer
@every_shape
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_prox_keeps_dtype_shape_and_argument(
    r: Regularizer, shape: tuple[int, ...], dtype: type
) -> None:
    w = (np.random.default_rng(2).normal(size=shape) * 1e4).astype(dtype)
    before = w.copy()
    for step in STEPS:
        p = r.prox(w, step)
        assert p.dtype == dtype
        assert p.shape == shape
        assert not np.shares_memory(p, w)
    np.testing.assert_array_equal(w, before)
    np.testing.assert_array_equal(r.prox(w, 0.0), w)
    np.testing.assert_array_equal(r.prox(np.zeros_like(w), 1.0), 0)


@every_regularizer
@pytest.mark.parametrize("step", [-0.1, math.nan, math.inf])
def test_a_bad_step_is_refused(r: Regularizer, step: float) -> None:
    with pytest.raises(ValueError, match="step must be a finite number at least 0"):
        r.prox(np.ones(D), step)
