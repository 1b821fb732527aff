"""One-hot tables: their declared facts, and the same default dense and sparse."""

from pathlib import Path

import numpy as np
import pytest

from dpglm import LogisticRegression
from experiments.wide_tables import TABLES, Generated, line
from tests.audit.attack import released_sums

SMALL = Generated(2000, (200, 100, 10), 0.1, numbers=2, n_test=3000)
OF_ADULT = [name for name in TABLES if name.startswith("Adult")]


@pytest.mark.parametrize("name", [*OF_ADULT, "zipf, rare"])
def test_rows_are_within_their_norm_and_columns_are_many(name):
    table = TABLES[name](0, Path())
    n_rows, n_columns = table.X.shape
    assert 300 < n_columns <= 1000
    assert 0 < table.n_train < n_rows == len(table.y)
    squares = np.asarray(table.X.multiply(table.X).sum(axis=1))
    assert squares.max() <= table.row_norm**2 * (1.0 + 1e-12)
    assert set(np.unique(table.y)) == {0, 1}


def test_generated_tables_have_as_many_positives_as_they_say():
    table = SMALL(0, Path())
    assert table.y.mean() == pytest.approx(0.1, abs=1e-3)
    assert table.X.shape == (5000, 312)
    # One level of each column.
    assert (np.asarray((table.X[:, :310] == 1.0).sum(axis=1)) == 3).all()


def test_the_default_is_the_same_for_dense_and_sparse_rows():
    # Without noise: its draws differ if bounds on rounding let one more word be read.
    table = SMALL(0, Path())
    with released_sums():
        dense, sparse = (
            LogisticRegression(
                epsilon=1.0, delta=1e-5, classes=[0, 1], row_norm=table.row_norm, random_state=0
            ).fit(X, table.y)
            for X in (table.X.toarray(), table.X)
        )
    np.testing.assert_allclose(sparse.coef_, dense.coef_, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(sparse.intercept_, dense.intercept_, rtol=1e-6)
    asked = [model.solution_.plan.method.releases for model in (dense, sparse)]
    for one, other in zip(*asked, strict=True):
        assert (one.quantity, one.count) == (other.quantity, other.count)
        assert one.scale.std == pytest.approx(other.scale.std, rel=1e-6)


def test_a_line_compares_the_default_with_the_best_name():
    cells = line("small", 4.0, [SMALL(seed, Path()) for seed in range(2)]).split("|")
    assert cells[1:4] == [" small ", " 4 ", " 2 "]
    scores = [float(cell.split("±")[0]) for cell in cells[4:8]]
    assert float(cells[8].split("±")[0]) == pytest.approx(scores[0] - max(scores[1:]), abs=2e-3)
