"""Scaling of columns and of rows: sizes are found, outliers and empty columns do no harm."""

from __future__ import annotations

import numpy as np
import pytest

from dpglm.preprocessing import ClipToQuantile, Scale
from dpglm.privacy.budget import Adjacency
from tests.preprocessing.support import dense, make_rows, oracle_of

RNG = np.random.default_rng(0)
SIZES = np.array([1.0, 1e-3, 1e-6, 1e-9])


def mapped(step, rows, mu=0.5, seed=0):
    planned = step.plan(rows.spec, mu, Adjacency.ZERO_OUT)
    learned = planned.learn(oracle_of(rows, seed=seed), seed)
    return learned, dense(learned.apply(rows, planned.output, False)), planned


@pytest.mark.parametrize("row_norm", [3.0, 1e3])
def test_columns_of_very_different_size_become_alike(row_norm):
    rows = make_rows(RNG.normal(size=(3000, 4)) * SIZES * row_norm / 4.0, row_norm=row_norm)
    learned, after, planned = mapped(Scale(), rows)
    spread = np.sqrt((learned.transform(dense(rows)) ** 2).mean(axis=0))
    # A quarter each of the mean square.
    spread *= 1.5 / row_norm
    assert ((spread > 0.35) & (spread < 0.7)).all()
    assert (np.linalg.norm(after, axis=1) > 0.999 * planned.output.row_norm).mean() < 0.25


def test_in_part_they_come_nearer():
    rows = make_rows(RNG.normal(size=(3000, 4)) * SIZES / 4.0)
    ratios = []
    for exponent in (0.05, 0.25, 0.5):
        learned, _, _ = mapped(Scale(exponent=exponent), rows)
        spread = np.sqrt((learned.transform(dense(rows)) ** 2).mean(axis=0))
        ratios.append(spread[0] / spread[-1])
    expected = 10.0 ** (9.0 * (1.0 - 2.0 * np.array([0.05, 0.25, 0.5])))
    assert (np.abs(np.log(ratios / expected)) < 0.5).all()


def sizes_of(rows, mu=0.5):
    """Root mean squares of columns, as the step estimates them."""
    learned, _, planned = mapped(Scale(), rows, mu)
    unit = planned.output.row_norm / (1.5 * np.sqrt(rows.spec.n_features))
    return unit / learned.matrix, planned


def test_a_few_outliers_do_not_make_a_column_large():
    X = RNG.normal(size=(3000, 2)) * [0.3, 1e-4]
    X[:5, 1] = 0.9
    assert sizes_of(make_rows(X))[0][1] == pytest.approx(1e-4, rel=0.4)


def test_columns_below_noise_stay_small():
    X = np.zeros((3000, 3))
    X[:, 0] = RNG.normal(size=3000) * 0.3
    X[:3, 1] = 0.5
    sizes, planned = sizes_of(make_rows(X))
    # The largest possible column with this few rows.
    np.testing.assert_allclose(sizes[1:], np.sqrt(4.0 * planned.releases[0].noise_std / 3000))
    assert sizes[1] > 0.05


def test_rare_entries_count_by_their_root_mean_square():
    X = np.zeros((4000, 2))
    X[:, 0] = RNG.normal(size=4000) * 0.3
    X[:400, 1] = 0.8
    assert sizes_of(make_rows(X), mu=2.0)[0][1] == pytest.approx(0.8 * np.sqrt(0.1), rel=0.4)


@pytest.mark.parametrize("unbounded", [False, True])
@pytest.mark.parametrize("size", [1e-9, 1e-3, 1.0])
def test_rows_of_any_size_come_to_length_one(unbounded, size):
    X = RNG.normal(size=(3000, 5)) * size / 6.0
    learned, after, _ = mapped(ClipToQuantile(unbounded=unbounded), make_rows(X))
    lengths = np.linalg.norm(after, axis=1)
    assert 0.85 < (lengths < 0.999).mean() < 0.95
    assert lengths.max() <= 1.0 + 1e-12
    assert (learned.matrix == learned.matrix[0]).all()


def test_a_row_norm_that_is_only_a_guess_from_above_does_no_harm():
    X = RNG.normal(size=(3000, 5))
    _, after, _ = mapped(ClipToQuantile(unbounded=True), make_rows(X, row_norm=1e15))
    assert np.median(np.linalg.norm(after, axis=1)) == pytest.approx(0.7, abs=0.1)
    # The bounded one only looks a trillion times lower.
    _, after, _ = mapped(ClipToQuantile(), make_rows(X, row_norm=1e15))
    assert np.median(np.linalg.norm(after, axis=1)) < 0.1
