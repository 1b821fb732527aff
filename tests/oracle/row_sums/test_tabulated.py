"""Tables of counts: the sensitivity, whatever it holds."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle import counts as tabulated
from dpglm.oracle.counts import Cells, noisy_tables, table_sum
from dpglm.oracle.gradients import Oracle
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Squared

TABLES = (
    Cells((0,), (4,), 0.5),
    Cells((0, 1), (4, 3), 0.3),
    Cells((), (), 0.6, (2,)),
    Cells((0,), (4,), 0.4, (3,), 0.5),
    Cells((), (), 0.2, (2, 3), 0.5),
)
DATA = DataSpec(200, 4, row_norm=10.0)
REACH = math.sqrt(0.25 + 0.09 + 0.36 + 0.04 + 0.01)


def sums(X, tables=TABLES):
    """All tables without noise, weights included."""
    return np.concatenate([table.weight * table.sums(np.asarray(X, float)) for table in tables])


def rows_of_all_kinds(n):
    rng = np.random.default_rng(0)
    cells = np.stack([rng.integers(0, 4, n), rng.integers(0, 3, n)], axis=1)
    x = rng.uniform(-1.0, 1.0, n)
    return np.column_stack([cells, x, x * x - 0.5])


def test_groups_are_summed_by_themselves():
    X, starts = rows_of_all_kinds(40), np.array([0, 3, 3, 17, 18, 40])
    weights = np.random.default_rng(1).random(40)
    for table in TABLES:
        for given in (None, weights):
            each = [
                table.sums(X[start:stop], None if given is None else given[start:stop])
                for start, stop in itertools.pairwise(starts)
            ]
            assert np.array_equal(table.sums(X, given, starts), each)


HOSTILE = [
    [3.0, 2.0, 1.0, 0.5],
    [-1e9, 1e9, 1e300, -1e300],
    [2.4, -0.6, -1.0, 0.5],
    [0.0, 0.0, 0.0, 0.0],
]


@pytest.mark.parametrize("row", HOSTILE)
def test_a_row_adds_no_more_than_the_bound(row):
    assert np.linalg.norm(sums([row])) <= REACH * (1.0 + 1e-12)


def test_the_bound_is_reached():
    assert np.linalg.norm(sums([HOSTILE[0]])) == pytest.approx(REACH, rel=1e-12)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_worst_neighbours_are_within_the_sensitivity(adjacency):
    release = table_sum(TABLES).release(DATA, adjacency, GaussianNoise(1.0))
    rows = rows_of_all_kinds(199)
    # Opposite numbers in other cells are the farthest that a row can be replaced.
    worst, other = [[3.0, 2.0, 1.0, 0.5]], [[0.0, 0.0, -1.0, 0.5]]
    with_it, without = sums([*rows, *worst]), sums(rows)
    replaced = sums([*rows, *other])
    farthest = {
        Adjacency.ZERO_OUT: np.linalg.norm(with_it - without),
        Adjacency.ADD_REMOVE: np.linalg.norm(with_it - without),
        Adjacency.REPLACE_ONE: np.linalg.norm(with_it - replaced),
    }[adjacency]
    assert farthest <= release.sensitivity
    assert farthest >= 0.7 * release.sensitivity


def test_a_table_forgotten_in_the_sensitivity_is_found():
    forgetful = table_sum(TABLES[1:]).release(DATA, Adjacency.ZERO_OUT, GaussianNoise(1.0))
    assert np.linalg.norm(sums([HOSTILE[0]])) > forgetful.sensitivity


def oracle_of(rows, adjacency=Adjacency.ZERO_OUT):
    prepared = prepare_rows(rows, np.zeros(len(rows)), DATA)
    return Oracle(prepared, Squared(), Curator(adjacency, SeededNoise(0)))


def test_release_is_tables_with_noise_of_declared_scale():
    rows = rows_of_all_kinds(200)
    release = table_sum(TABLES).release(DATA, Adjacency.ZERO_OUT, GaussianNoise(2.0))
    oracle = oracle_of(rows)
    noise = np.array([noisy_tables(oracle, release, TABLES) - sums(rows) for _ in range(400)])
    assert noise.std() == pytest.approx(2.0 * REACH, rel=0.03)
    assert np.abs(noise.mean(axis=0)).max() < 5.0 * 2.0 * REACH / math.sqrt(400)
    assert noise.std(axis=0).min() > 0.8 * 2.0 * REACH


def test_tables_that_were_not_declared_are_refused():
    release = table_sum(TABLES[:2]).release(DATA, Adjacency.ZERO_OUT, GaussianNoise(2.0))
    with pytest.raises(PlanMismatchError, match="declared for contributions"):
        noisy_tables(oracle_of(rows_of_all_kinds(200)), release, TABLES)


def test_counts_are_exact_before_noise(monkeypatch):
    rows = rows_of_all_kinds(200)
    counts = TABLES[1].sums(rows)
    assert (
        counts.tolist()
        == np.bincount((3 * rows[:, 0] + rows[:, 1]).astype(int), minlength=12).tolist()
    )
    assert counts.sum() == 200.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": (4, 2)}, "as many as columns"),
        ({"sizes": (0,)}, "sizes must be an integer of at least 1"),
        ({"columns": (-1,)}, "columns must be an integer of at least 0"),
        ({"weight": 0.0}, "weight must be"),
        ({"bound": 2.0}, "bound must be"),
    ],
)
def test_cells_that_make_no_sense_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TABLES[0], **change)


def test_the_bound_counts_every_table():
    assert tabulated.table_sum(TABLES).bound == pytest.approx(REACH, rel=1e-15)
