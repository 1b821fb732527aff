"""The regularizers: values, closed-form proximal maps, parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpglm.problem import L1, L2, ElasticNetPenalty, GroupLasso, NoPenalty

W = np.array([[3.0, -4.0], [0.5, 0.0], [0.0, -2.0]])


def test_values() -> None:
    assert NoPenalty().value(W) == 0
    assert L2(0.5).value(W) == pytest.approx(0.25 * 29.25)
    assert L1(0.5).value(W) == pytest.approx(4.75)
    assert ElasticNetPenalty(2.0, 0.25).value(W) == pytest.approx(2 * (0.25 * 9.5 + 0.375 * 29.25))
    assert GroupLasso(2.0, ((0,), (1, 2))).value(W) == pytest.approx(
        2 * (5 + math.sqrt(2) * math.sqrt(4.25))
    )


def test_prox_closed_forms() -> None:
    np.testing.assert_allclose(L2(0.5).prox(W, 2.0), W / 2)
    np.testing.assert_allclose(L1(0.5).prox(W, 2.0), [[2, -3], [0, 0], [0, -1]])
    np.testing.assert_allclose(
        ElasticNetPenalty(1.0, 0.5).prox(W, 2.0), [[1, -1.5], [0, 0], [0, -0.5]]
    )
    # A group goes as a whole: the first row keeps its direction, the others vanish.
    p = GroupLasso(1.0, ((0,), (1, 2))).prox(W, 2.0)
    np.testing.assert_allclose(p, [[1.8, -2.4], [0, 0], [0, 0]])


def test_elastic_net_joins_l1_and_l2() -> None:
    np.testing.assert_array_equal(ElasticNetPenalty(0.7, 1.0).prox(W, 0.3), L1(0.7).prox(W, 0.3))
    np.testing.assert_array_equal(ElasticNetPenalty(0.7, 0.0).prox(W, 0.3), L2(0.7).prox(W, 0.3))
    assert ElasticNetPenalty(0.7, 0.0).smoothness == 0.7
    assert ElasticNetPenalty(0.7, 0.1).smoothness == math.inf
    assert ElasticNetPenalty(0.7, 0.1).strong_convexity == pytest.approx(0.63)


def test_group_lasso_of_single_features_is_l1() -> None:
    groups = GroupLasso(0.7, ((0,), (1,), (2,)))
    np.testing.assert_allclose(groups.prox(W[:, 0], 0.3), L1(0.7).prox(W[:, 0], 0.3))
    assert groups.value(W[:, 0]) == pytest.approx(L1(0.7).value(W[:, 0]))


def test_features_in_no_group_are_free() -> None:
    p = GroupLasso(1.0, ((1,),)).prox(W, 100.0)
    np.testing.assert_array_equal(p[[0, 2]], W[[0, 2]])
    np.testing.assert_array_equal(p[1], 0)


@pytest.mark.parametrize("groups", [((0, 1), (1,)), ((0, 0),), ((),), ((-1,),)])
def test_groups_are_checked(groups: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(ValueError, match="groups must be disjoint, non-empty"):
        GroupLasso(1.0, groups)


def test_groups_beyond_the_weights_are_refused() -> None:
    r = GroupLasso(1.0, ((0,), (3,)))
    with pytest.raises(ValueError, match="groups name feature 3, but w has 3 features"):
        r.prox(W, 1.0)
    with pytest.raises(ValueError, match="groups name feature 3"):
        r.value(W)


@pytest.mark.parametrize("strength", [-0.1, math.nan, math.inf])
def test_strength_is_checked(strength: float) -> None:
    for make in (L2, L1, lambda s: ElasticNetPenalty(s, 0.5), lambda s: GroupLasso(s, ((0,),))):
        with pytest.raises(ValueError, match="strength must be a finite number at least 0"):
            make(strength)


@pytest.mark.parametrize("ratio", [-0.1, 1.1, math.nan])
def test_l1_ratio_is_checked(ratio: float) -> None:
    with pytest.raises(ValueError, match=r"l1_ratio must lie in \[0, 1\]"):
        ElasticNetPenalty(1.0, ratio)
