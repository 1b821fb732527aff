"""Whitening: rows spread alike in every direction that stands out of the noise."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.preprocessing import RandomProjection, Whiten
from dpglm.privacy.budget import Adjacency
from tests.preprocessing.support import dense, make_rows, oracle_of

RNG = np.random.default_rng(0)
TURN = np.linalg.qr(RNG.normal(size=(3, 3)))[0]


def spread_after(step, X, mu, row_norm=1.0):
    rows = make_rows(X, row_norm=row_norm)
    planned = step.plan(rows.spec, mu, Adjacency.ZERO_OUT)
    learned = planned.learn(oracle_of(rows), 0)
    z = learned.transform(dense(rows))
    return np.linalg.eigvalsh(z.T @ z / len(z)), learned


@pytest.mark.parametrize("row_norm", [1e-3, 1.0, 1e6])
def test_directions_become_alike(row_norm):
    X = RNG.normal(size=(5000, 3)) * [0.4, 0.1, 0.03] @ TURN * row_norm
    values, _ = spread_after(Whiten(), X, 50.0, row_norm)
    assert values.sum() == pytest.approx(row_norm**2, rel=0.5)
    assert values[-1] < 4.0 * values[0]


def test_in_part_they_come_nearer():
    X = RNG.normal(size=(5000, 3)) * [0.4, 0.1, 0.03] @ TURN
    ratios = [
        np.divide(*spread_after(Whiten(exponent=p), X, 50.0)[0][[-1, 0]]) for p in (0.1, 0.25, 0.5)
    ]
    assert 170.0 > ratios[0] > 3.0 * ratios[1] > 9.0 * ratios[2]


def test_scores_below_noise_are_not_stretched():
    X = RNG.normal(size=(500, 3)) * [0.4, 1e-6, 1e-6] @ TURN
    values, learned = spread_after(Whiten(), X, 0.5)
    stretched = np.linalg.svd(learned.matrix, compute_uv=False)
    assert stretched[0] < 20.0 * stretched[-1]
    assert values[0] < 1e-9


def test_map_is_symmetric_and_keeps_the_columns():
    _, learned = spread_after(Whiten(), RNG.normal(size=(5000, 3)) * 0.2, 50.0)
    np.testing.assert_allclose(learned.matrix, learned.matrix.T, atol=1e-12)
    away = learned.matrix / learned.matrix[0, 0] - np.eye(3)
    assert np.abs(away).max() < 0.2


def test_projection_keeps_norms_and_depends_on_seed_alone():
    X = RNG.normal(size=(300, 200))
    rows = make_rows(X, row_norm=20.0)
    planned = RandomProjection(100).plan(rows.spec, 0.0, Adjacency.ZERO_OUT)
    oracle = oracle_of(rows)
    first, other = (planned.learn(oracle, seed) for seed in (1, 2))
    again = planned.learn(oracle_of(make_rows(np.zeros((9, 200)), row_norm=20.0)), 1)
    np.testing.assert_array_equal(first.matrix, again.matrix)
    assert np.abs(first.matrix - other.matrix).max() > 0.01
    ratio = np.linalg.norm(first.transform(X), axis=1) / np.linalg.norm(X, axis=1)
    assert ratio.mean() == pytest.approx(1.0, abs=0.05)
    assert oracle.curator.event.terms == ()
