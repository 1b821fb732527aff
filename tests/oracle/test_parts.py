"""Parts of the rows: disjoint, each with its own facts, and accounted for in parallel."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import Oracle, clipped_gradient_sum, gradient_release, part_oracles
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.events import Composed, Gaussian, Parallel, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic

CLIP = FlatClipping(0.5)


def oracle_of(n=10, layout="dense", adjacency=Adjacency.ZERO_OUT, weighted=False):
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-0.5, 0.5, (n, 3)), rng.choice([-1.0, 1.0], n)
    spec = DataSpec(n, 3, sparse=layout == "csr", weight_bound=2.0)
    matrix = sparse.csr_array(X) if layout == "csr" else X
    weights = rng.uniform(0, 2, n) if weighted else None
    rows = prepare_rows(matrix, y, spec, weights=weights)
    return Oracle(rows, Logistic(), Curator(adjacency, SeededNoise(0)))


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("weighted", [False, True])
def test_parts_contain_their_rows_and_number(layout, weighted):
    oracle = oracle_of(layout=layout, weighted=weighted)
    indices = [np.array([0, 4, 7]), np.array([9, 1])]
    parts = part_oracles(oracle, indices)
    w = np.array([1.0, -2.0, 0.5])
    for part, rows in zip(parts, indices, strict=True):
        assert part.rows.n_rows == part.rows.spec.n_rows == len(rows)
        expected = clipped_gradient_sum(oracle.rows.take(rows), Logistic(), CLIP, w)
        np.testing.assert_array_equal(
            clipped_gradient_sum(part.rows, Logistic(), CLIP, w), expected
        )
    # A selection of all rows keeps the facts about all.
    assert oracle.rows.take(indices[0]).spec.n_rows == 10


def test_parts_compose_in_parallel_and_the_rest_in_sequence():
    def ask(oracle, multiplier):
        noise = GaussianNoise(multiplier)
        declared = gradient_release(oracle.rows.spec, oracle.curator.adjacency, CLIP, noise)
        oracle.noisy_gradient(declared, np.zeros(3), CLIP)

    oracle = oracle_of()
    ask(oracle, 5.0)
    first, second = part_oracles(oracle, [np.arange(3), np.arange(3, 10)])
    ask(first, 1.0)
    ask(second, 2.0)
    ask(first, 1.0)
    ask(oracle, 5.0)
    parallel = Parallel((Repeated(Gaussian(1.0), 2), Gaussian(2.0)))
    assert oracle.curator.event == Composed((Repeated(Gaussian(5.0), 2), parallel))


@pytest.mark.parametrize("parts", [([0, 1], [1, 2]), ([3, 3], [4])])
def test_row_in_two_places_is_refused_before_any_release(parts):
    oracle = oracle_of()
    with pytest.raises(ValueError, match="disjoint"):
        part_oracles(oracle, [np.array(part) for part in parts])
    assert oracle.curator.event == Composed(())


def test_a_private_number_of_rows_is_refused():
    with pytest.raises(ValueError, match="adjacency must be 'zero_out' or 'replace_one'"):
        part_oracles(oracle_of(adjacency=Adjacency.ADD_REMOVE), [np.arange(5)])
