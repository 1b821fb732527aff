"""The effect of one row in worst cases, and the law of its projection."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
import torch
from scipy import stats

from dpglm.data import networks as network_rows
from dpglm.data.networks import RowGradients, _bounded
from dpglm.oracle.clipping import AutomaticClipping, FlatClipping
from dpglm.oracle.projection import projected_rounding
from dpglm.privacy import Adjacency
from dpglm.solvers import D2P2
from dpglm.solvers.network import block_matrices
from tests.torch_networks.networks import (
    SHORT,
    cross_entropy,
    network,
    one_by_one,
    planned,
    rows_of,
    squared,
    tensors,
)

CLIPPINGS = [FlatClipping(0.5), AutomaticClipping(0.5, 0.1)]


def total(plan, X, y, w=None, **facts):
    """The sum that a full batch would release, without noise."""
    rows, method = rows_of(plan, X, y, **facts), plan.method
    w = np.zeros(plan.data.n_coefficients) if w is None else w
    alone = not plan.adjacency.n_is_public
    factor = method.clipping.factor
    return rows.clipped_gradient_sum(w, factor, method.blocks, alone=alone, seed=(0,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_are_those_of_a_loop(dtype):
    module, (X, y) = network(dtype), tensors(dtype=dtype)
    gradients = RowGradients(module, cross_entropy)
    found = gradients.rows(gradients.at(np.zeros(gradients.n_parameters)), X, y, "error")
    tolerance = 1e-6 if dtype is torch.float32 else 1e-14
    np.testing.assert_allclose(found, one_by_one(module, cross_entropy, X, y), atol=tolerance)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_convolutions_and_embeddings_and_attention_work_too():
    torch.manual_seed(0)
    images = torch.randn(5, 1, 6, 6)
    convolution = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.GroupNorm(1, 2), torch.nn.Flatten(),
        torch.nn.Linear(32, 3),
    )  # fmt: skip
    words = torch.randint(0, 7, (5, 4))
    text = torch.nn.Sequential(
        torch.nn.Embedding(7, 4),
        torch.nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        torch.nn.Flatten(),
        torch.nn.Linear(16, 3),
    )
    targets = torch.tensor([0, 1, 2, 0, 1])
    for module, X in ((convolution, images), (text, words)):
        plan = planned(module=module, n_rows=5)
        found = total(plan, X, targets, module=module)
        rows = one_by_one(module, cross_entropy, X, targets)
        factors = np.minimum(1.0, 0.5 / np.linalg.norm(rows, axis=1))
        np.testing.assert_allclose(found, factors @ rows, atol=1e-5)


@pytest.mark.parametrize("clipping", CLIPPINGS, ids=str)
@pytest.mark.parametrize("blocks", [1, 3, 7])
def test_every_block_is_within_its_bound(clipping, blocks):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 31)) * np.logspace(-200, 200, 50)[:, None]
    bounded = _bounded(torch.from_numpy(rows), clipping.factor, blocks).numpy()
    lengths = np.array([np.linalg.norm(b, axis=1) for b in np.array_split(bounded, blocks, 1)])
    limit = clipping.bound / math.sqrt(blocks)
    assert lengths.max() <= limit * (1.0 + 1e-14)
    assert lengths[:, 26].min() >= 0.9 * limit
    # Squares that overflow leave nothing; short rows keep their direction.
    assert not bounded[-1].any()
    if isinstance(clipping, FlatClipping):
        np.testing.assert_array_equal(bounded[20], rows[20])


@pytest.mark.parametrize("stability", [1e-200, 1e-310, 5e-324])
@pytest.mark.parametrize("value", [0.0, 1e-170, 1e-320])
def test_gradients_with_underflowing_squares_are_bounded(stability, value):
    rows = torch.full((1, 4), value, dtype=torch.float64)
    bounded = _bounded(rows, AutomaticClipping(0.5, stability).factor, 2)
    assert torch.linalg.norm(bounded) <= 0.5 * (1 + 1e-15)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_non_finite_gradient_is_bounded_and_harmless(value):
    rows = torch.ones(3, 4, dtype=torch.float64)
    rows[1, 2] = value
    bounded = _bounded(rows, FlatClipping(0.5).factor, 1)
    assert torch.isfinite(bounded).all()
    assert torch.linalg.norm(bounded, dim=1).max() <= 0.5 * (1 + 1e-15)
    torch.testing.assert_close(bounded[0], torch.full((4,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("block_size", [5, None])
@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
def test_worst_neighbours_attain_declared_sensitivity(adjacency, block_size):
    torch.manual_seed(0)
    module = torch.nn.Linear(7, 1, bias=False).double()
    facts = {"module": module, "loss": squared}
    solver = D2P2.dp2_sgd(dimension=3, normalize=False, **SHORT)
    plan = planned(solver, adjacency=adjacency, block_size=block_size, **facts)
    (release,) = plan.method.releases
    X, y = torch.full((40, 7), 1e3, dtype=torch.float64), torch.full((40, 1), 1e6).double()
    if adjacency is Adjacency.ADD_REMOVE:
        other = (X[1:], y[1:])
    elif adjacency is Adjacency.REPLACE_ONE:
        other = (torch.cat([-X[:1], X[1:]]), y)
    else:
        other = (torch.cat([0.0 * X[:1], X[1:]]), y)
    distance = np.linalg.norm(total(plan, X, y, **facts) - total(plan, *other, **facts))
    assert 0.9999 * adjacency.sum_sensitivity(0.5) <= distance <= release.sensitivity


def test_without_clipping_the_declared_sensitivity_is_passed():
    plan, (X, y) = planned(), tensors()
    with mock.patch.object(network_rows, "_bounded", lambda gradients, *_: gradients):
        distance = np.linalg.norm(total(plan, 1e3 * X, y))
    assert distance > plan.method.releases[0].sensitivity


def test_other_rows_contribute_the_same_bits_whatever_one_row_is():
    plan, (X, y) = planned(), tensors(dtype=torch.float32)
    module = network(torch.float32)
    seen = []

    def keep(gradients, *_):
        seen.append(gradients.clone())
        return gradients

    with mock.patch.object(network_rows, "_bounded", keep):
        for row in (X[7], 1e4 * X[7], torch.full((4,), torch.nan)):
            changed = X.clone()
            changed[7] = row
            total(plan, changed, y, module=module)
    others = np.arange(40) != 7
    for other in seen[1:]:
        assert torch.equal(other[others], seen[0][others])


def test_added_row_keeps_bits_of_others_if_n_is_private():
    plan, (X, y) = planned(adjacency="add_remove"), tensors(dtype=torch.float32)
    module, seen = network(torch.float32), []

    def keep(gradients, *_):
        seen.append(gradients.clone())
        return gradients

    with mock.patch.object(network_rows, "_bounded", keep):
        total(plan, X, y, module=module)
        total(plan, X[1:], y[1:], module=module)
    assert [one.shape for one in seen] == [(1, plan.data.n_features)] * 79
    assert torch.equal(torch.cat(seen[1:40]), torch.cat(seen[40:]))


@pytest.mark.parametrize("entries", [1, 200])
def test_sums_do_not_depend_on_how_many_rows_fit_in_memory(entries):
    plan, (X, y) = planned(n_rows=150), tensors(150)
    whole = total(plan, X, y)
    with mock.patch.dict(network_rows._ENTRIES, cpu=entries):
        np.testing.assert_allclose(total(plan, X, y), whole, atol=1e-13)


def lengths_of_projections(change, blocks, columns, draws=600):
    pieces, lengths = np.array_split(change, blocks), []
    for seed in range(draws):
        matrices = block_matrices([len(one) for one in pieces], columns, (5, seed))
        projected = [A.project(one) for A, one in zip(matrices, pieces, strict=True)]
        lengths.append(np.linalg.norm(np.concatenate(projected)) ** 2)
    return np.array(lengths) / np.linalg.norm(change) ** 2 * blocks * columns


def test_law_of_a_change_that_fills_blocks_is_accounted():
    change = np.concatenate([np.eye(7)[0], -np.ones(7) / math.sqrt(7), np.eye(6)[3]])
    found = lengths_of_projections(change, 3, 2)
    assert stats.kstest(found, stats.chi2(6).cdf).pvalue > 0.01


def test_a_change_bounded_as_a_whole_only_would_have_a_wider_law():
    found = lengths_of_projections(np.eye(20)[0], 3, 2)
    assert stats.kstest(found, stats.chi2(6).cdf).pvalue < 1e-6
    assert stats.kstest(found / 3, stats.chi2(2).cdf).pvalue > 0.01


def test_blocks_cost_less_rounding_than_one_matrix():
    plan = planned(D2P2.dp2_sgd(dimension=3, **SHORT))
    data, blocks = plan.data, plan.method.blocks
    one = projected_rounding(data, plan.adjacency, 0.5, 3 * blocks, 1.0)
    many = projected_rounding(data, plan.adjacency, 0.5, 3, 1.0, blocks)
    assert blocks > 1
    assert one / 4 < many < 4 * one
    assert many < 1e-4
