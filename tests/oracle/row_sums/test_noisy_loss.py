"""The noisy sum of clipped losses: the effect of one row, and the noise."""

import math

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.gradients import Oracle, loss_rounding, noisy_loss, noisy_loss_release
from dpglm.privacy import Adjacency, Gaussian
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.noise.exact import noise_scale
from dpglm.privacy.releases import Curator
from dpglm.problem import IdentityLink, Logistic, LogLink
from dpglm.selection.choices import AbsoluteError, Misclassification
from tests.audit.attack import released_sums
from tests.slowly import together

SCORES = [
    Misclassification(),
    AbsoluteError(IdentityLink(), -1.0, 3.0),
    AbsoluteError(LogLink(), 0.0, 2.0),
]
every_score = pytest.mark.parametrize("score", SCORES, ids=lambda one: repr(one)[:24])


def ask(oracle, w, score, bound, multiplier):
    """Declare a release and make it."""
    declared = noisy_loss_release(
        oracle.rows.spec, oracle.curator.adjacency, bound, GaussianNoise(multiplier)
    )
    return noisy_loss(oracle, declared, w, score.value, bound)


def total(rows, w, score, adjacency=Adjacency.ZERO_OUT, bound=None):
    curator = Curator(adjacency, SeededNoise(0))
    with released_sums() as seen:
        ask(Oracle(rows, Logistic(), curator), w, score, bound or score.bound, 2.0)
    assert curator.event == Gaussian(2.0)
    return float(seen[0][0][0]), seen[0][1]


def rows_and_one(n, row, target, weight, dtype="float64", is_sparse=False):
    """Data with one extreme row at full weight, without it, and with its opposite."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 3))
    X[n // 2] = row
    y = rng.choice([-1.0, 1.0], size=n)
    y[n // 2] = target
    spec = DataSpec(n, 3, dtype=dtype, sparse=is_sparse, weight_bound=2.0)
    weights = np.full(n, 1.5)
    weights[n // 2] = weight
    matrix = sparse.csr_array(X) if is_sparse else X
    return prepare_rows(matrix.astype(dtype), y, spec, weights=weights), spec


@every_score
@together("kind", [("float64", False), ("float32", False), ("float64", True)])
@together("n", [1, 2, 1000])
@together("size", [1e-2, 1.0, 1e30])
def test_one_row_changes_half_the_bound_at_most(score, kind, n, size):
    dtype, is_sparse = kind
    w = np.array([2.0, -1e3, 0.5])
    row = np.array([size, -size, 0.0])
    moved = []
    for target in (-1.0, 1.0):
        found = [
            total(rows_and_one(n, row, target, weight, dtype, is_sparse)[0], w, score)[0]
            for weight in (2.0, 0.0)
        ]
        moved.append(found[0] - found[1])
    spec = rows_and_one(n, row, 1.0, 1.0, dtype, is_sparse)[1]
    allowed = score.bound + loss_rounding(spec, 2.0 * score.bound)
    assert np.abs(moved).max() <= allowed
    # It is reached by errors, so half of it would be refuted.
    if isinstance(score, Misclassification):
        assert np.abs(moved).max() > 0.99 * allowed
        assert moved[0] != moved[1]


def test_losses_that_overflow_count_as_the_bound():
    class Broken:
        def value(self, z, y):
            return np.array([np.nan, np.inf, -5.0, 0.5])

    rows = prepare_rows(np.ones((4, 3)), np.ones(4), DataSpec(4, 3))
    assert total(rows, np.ones(3), Broken(), bound=2.0)[0] == 1.0 + 1.0 - 1.0 - 0.5


@every_score
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_noise_equals_plan(score, adjacency):
    rows, spec = rows_and_one(50, np.ones(3), 1.0, 1.0)
    std = total(rows, np.ones(3), score, adjacency)[1]
    # Weights go up to 2, so that half of the bound is multiplied by 2.
    half = score.bound
    contribution = half + loss_rounding(spec, 2.0 * half)
    sensitivity = adjacency.sum_sensitivity(contribution)
    assert std == noise_scale(adjacency, sensitivity, 2.0, 1, 2.0 * 50 * half).std
    assert std >= 2.0 * adjacency.sum_sensitivity(score.bound)
    assert std == pytest.approx(2.0 * adjacency.sum_sensitivity(score.bound), rel=1e-6)


def test_drawn_noise_equals_declaration():
    rows, _ = rows_and_one(50, np.ones(3), 1.0, 1.0)
    exact, std = total(rows, np.ones(3), Misclassification())
    drawn = [
        ask(
            Oracle(rows, Logistic(), Curator(Adjacency.ZERO_OUT, SeededNoise(seed))),
            np.ones(3),
            Misclassification(),
            1.0,
            2.0,
        )
        for seed in range(2000)
    ]
    assert np.mean(drawn) == pytest.approx(exact, abs=4.0 * std / math.sqrt(2000))
    assert np.std(drawn) == pytest.approx(std, rel=0.06)


def test_errors_of_many_classes():
    z = np.array([[1.0, 2.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert Misclassification().value(z, np.array([1, 2, 0])).tolist() == [0.0, 1.0, 0.0]
