"""Amplification by sampling: whether one row was drawn changes nothing about the others."""

from __future__ import annotations

from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
import torch

from dpglm.data import networks, sampled
from dpglm.data.collection import Preparation
from dpglm.data.compiled import kernels
from dpglm.data.groups import GroupedRows
from dpglm.data.maps import viewed
from dpglm.data.rows import DataSpec, GroupBound, Rows
from dpglm.data.stream import streamed
from dpglm.data.stream.stored import MappedRows
from dpglm.oracle.clipping import AutomaticClipping, Clipping, FlatClipping
from dpglm.oracle.gradients import (
    Oracle,
    clipped_difference_sum,
    clipped_gradient_sum,
    gradient_release,
)
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.privacy.noise import SeededNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from dpglm.problem import Hinge, Huber, Logistic, OneVsRest, Poisson, Savage, Softmax
from tests.oracle.test_clipped_sum import make_rows, make_targets
from tests.slowly import first_quickly
from tests.torch_networks.networks import planned, rows_of, squared

N, D, RATE = 420, 37, 0.3
LOSSES = [
    (Logistic(), 1),
    (Huber(), 1),
    (Hinge(), 1),
    (Savage(), 1),
    (Poisson(), 1),
    (Softmax(), 3),
    (Softmax(), 70),
    (OneVsRest(Hinge(), 3), 3),
]
CLIPPING = FlatClipping(0.4)


def draws(n: int, count: int) -> list[np.ndarray]:
    """Samples without one row: none, the rows before it, those behind, all others, and some."""
    others = np.delete(np.arange(n), n // 2)
    rng = np.random.default_rng(0)
    some = [others[rng.random(n - 1) < RATE] for _ in range(count)]
    return [others[:0], others[: n // 2], others[n // 2 :], others, *some]


def assert_others_are_untouched(
    total: Callable[[np.ndarray], np.ndarray], n: int, count: int = 12
) -> None:
    """The sum with a row is the sum without it plus its own contribution, to the bit."""
    alone = total(np.array([n // 2]))
    assert np.abs(alone).max() > 1e-6
    for drawn in draws(n, count):
        with_it = np.sort(np.append(drawn, n // 2))
        np.testing.assert_array_equal(total(with_it) - total(drawn), alone)


def sum_of(rows: Rows, loss, w, clipping: Clipping = CLIPPING, bound: float = 0.8):
    step = sampled.grid_step(rows.spec.n_units, bound)

    def total(drawn: np.ndarray) -> np.ndarray:
        taken = sampled.sampled_rows(rows, drawn, RATE, step).bounded(bound)
        return clipped_gradient_sum(taken, loss, clipping, w)

    return total


def made(layout: str, dtype: str, loss=LOSSES[0][0], outputs: int = 1) -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D)) * np.exp(rng.normal(size=(N, 1)))
    y, weights = make_targets(rng, loss, N, outputs), rng.uniform(0.1, 2, N)
    facts = {"layout": layout, "dtype": dtype, "n_outputs": outputs, "row_norm": 9.0}
    rows = make_rows(X, y, weights=weights, weight_bound=2.0, **facts)
    return rows, rng.normal(size=rows.spec.coefficient_shape)


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "numpy"])
@pytest.mark.parametrize(("loss", "outputs"), LOSSES, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_drawing_a_row_leaves_others_untouched(dtype, loss, outputs, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(kernels, "_library", None)
    rows, w = made("C", dtype, loss, outputs)
    assert_others_are_untouched(sum_of(rows, loss, w), N)


@pytest.mark.parametrize("layout", ["F", "csr", "tensor"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("clipping", [CLIPPING, AutomaticClipping(0.4)], ids=["flat", "automatic"])
def test_no_storage_lets_a_draw_touch_others(layout, dtype, clipping):
    rows, w = made(layout, dtype)
    assert_others_are_untouched(sum_of(rows, Logistic(), w, clipping), N)


def test_views_and_differences_leave_others_untouched():
    rows, w = made("C", "float32", Softmax(), 3)
    view = viewed(rows, 1e-3, positive_class=1)
    assert_others_are_untouched(sum_of(view, Logistic(), w[:, 0]), N)
    step = sampled.grid_step(N, 0.6)

    def total(drawn):
        taken = sampled.sampled_rows(view, drawn, RATE, step)
        return clipped_difference_sum(taken, Logistic(), CLIPPING, 0.3, w[:, 0], w[:, 1])

    assert_others_are_untouched(total, N)


def test_streams_leave_others_untouched(tmp_path, monkeypatch):
    monkeypatch.setattr(streamed, "_CHUNK_BYTES", 64 * D * 4)
    rng = np.random.default_rng(2)
    np.save(tmp_path / "X.npy", rng.normal(size=(N, D)).astype("float32"))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    spec = DataSpec(n_rows=N, n_features=D, row_norm=9.0, intercept=1.0, dtype="float32")
    rows = MappedRows(X, rng.integers(0, 2, N)).prepared(
        Preparation(spec, None, lambda y: 2 * y - 1)
    )
    assert_others_are_untouched(sum_of(rows, Logistic(), rng.normal(size=D + 1)), N)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_groups_leave_others_untouched(dtype):
    rows, w = made("C", dtype)
    starts = np.sort(np.append(np.arange(0, N, 3), [3, 3, N]))  # some without rows
    grouped = GroupedRows(rows, starts)
    grouped.spec = DataSpec(
        **{f: getattr(rows.spec, f) for f in ("n_rows", "n_features", "row_norm", "intercept")},
        dtype=dtype,
        groups=GroupBound(n_groups=len(starts) - 1, rows=3),
    )
    for view in (grouped, viewed(grouped, 0.5)):
        assert_others_are_untouched(sum_of(view, Logistic(), w, bound=0.5), len(starts) - 1)


def test_pitfall_32_compacted_batches_touch_others():
    """The planted bug: rows of a sample summed as rows of a full batch are."""
    rows, w = made("C", "float32")

    def total(drawn):
        return clipped_gradient_sum(rows.take(drawn), Logistic(), CLIPPING, w)

    with pytest.raises(AssertionError):
        assert_others_are_untouched(total, N)


@pytest.mark.parametrize("adjacency", list(Adjacency), ids=str)
@pytest.mark.parametrize("layout", ["C", "csr"])
def test_declared_rounding_covers_the_grid(adjacency, layout):
    rows, w = made(layout, "float64")
    noise = GaussianNoise(1.0)
    released = gradient_release(rows.spec, adjacency, CLIPPING, noise, sampling_rate=0.5)
    assert released.rounding == sum_rounding(rows.spec, adjacency, 0.8, 0.5)
    sums = []

    def keep(taken):
        sums.append((taken, clipped_gradient_sum(taken, Logistic(), CLIPPING, w)))
        return sums[-1][1]

    Oracle(rows, Logistic(), Curator(adjacency, SeededNoise(0))).noisy_mean(released, keep, 0.8)
    ((taken, total),) = sums
    exact = clipped_gradient_sum(taken._rows, Logistic(), CLIPPING, w)
    error = np.linalg.norm(total - exact) / taken.n_rows
    assert 0.0 < error <= released.rounding


def module(dtype=torch.float32, dropout: float = 0.5):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 33), torch.nn.LayerNorm(33), torch.nn.ReLU()]
    layers += [torch.nn.Dropout(dropout), torch.nn.Linear(33, 1)]
    return torch.nn.Sequential(*layers).to(dtype)


class Attends(torch.nn.Module):
    """Rows as sequences: convolution, attention with dropout, a dropout of whole channels."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.convolution = torch.nn.Conv1d(1, 4, 3, padding=1)
        self.channels = torch.nn.Dropout1d(0.4)
        self.attention = torch.nn.TransformerEncoderLayer(4, 2, 8, 0.3, batch_first=True)
        self.last = torch.nn.Linear(24, 1)

    def forward(self, x):
        hidden = self.channels(self.convolution(x.unsqueeze(1))).transpose(1, 2)
        return self.last(self.attention(hidden).flatten(1))


def network_sum(network, adjacency="zero_out", n=300):
    rng = np.random.default_rng(3)
    X = torch.from_numpy(rng.normal(size=(n, 6))).float()
    y = torch.from_numpy(rng.normal(size=(n, 1))).float()
    plan = planned(module=network, loss=squared, n_rows=n, adjacency=adjacency)
    rows = rows_of(plan, X, y, module=network, loss=squared)
    w, step = np.full(plan.data.n_coefficients, 0.01), sampled.grid_step(n, 0.5)
    alone = adjacency == "add_remove"

    def total(drawn):
        taken = sampled.sampled_rows(rows, drawn, RATE, step)
        return taken.clipped_gradient_sum(w, CLIPPING.factor, 1, alone=alone, seed=(7,))

    return total


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "network",
    [module(), module(torch.float32, 0.0), Attends()],
    ids=["dropout", "plain", "attends"],
)
@pytest.mark.parametrize(("entries", "n"), first_quickly((1 << 21, 150), (3000, 150), (1, 40)))
def test_networks_leave_others_untouched(network, entries, n):
    with mock.patch.dict(networks._ENTRIES, cpu=entries):
        assert_others_are_untouched(network_sum(network, n=n), n, 2)


def test_networks_alone_leave_others_untouched():
    total = network_sum(module(torch.float32, 0.0), "add_remove", 30)
    assert_others_are_untouched(total, 30, 2)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_pitfall_32_rows_moved_together_touch_others(dropout):
    """The planted bug: a drawn row's slot, mask and rounding follow from who else was drawn."""

    def together(places, slots, groups):
        yield from ((0, places[start : start + 40]) for start in range(0, len(places), 40))

    with mock.patch.object(networks, "_batches", together), pytest.raises(AssertionError):
        assert_others_are_untouched(network_sum(module(torch.float32, dropout)), 300, 2)


def test_masks_of_a_step_are_many_and_differ():
    batches = list(networks._batches(np.arange(0, 640, 3), 4, 8))
    placed = np.concatenate([rows[rows >= 0] for _, rows in batches])
    np.testing.assert_array_equal(np.sort(placed), np.arange(0, 640, 3))
    for group, rows in batches:
        slots = np.flatnonzero(rows >= 0)
        np.testing.assert_array_equal(rows[slots] % 4, slots)
        assert set(rows[slots] // 4 % 8) <= {group}
    assert {group for group, _ in batches} == set(range(8))
