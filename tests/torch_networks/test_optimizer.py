"""Refusals before anything is spent, and allowed actions between steps."""

from __future__ import annotations

import functools
import itertools
import warnings
from unittest import mock

import numpy as np
import pytest
import torch

from dpglm.data.networks import RowGradients
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.privacy.noise import SeededNoise
from dpglm.solvers import D2P2, UniformAverage
from dpglm.torch import D2P2Optimizer, network_digest
from tests.torch_networks.networks import (
    BUDGET,
    SHORT,
    cross_entropy,
    network,
    planned,
    rows_of,
    squared,
    tensors,
)

DP_SGD = D2P2.dp_sgd(**SHORT)


def optimizer(module=None, loss=cross_entropy, rows=None, budget=BUDGET, solver=DP_SGD, **settings):
    module = network() if module is None else module
    X, y = tensors() if rows is None else rows
    return D2P2Optimizer(module, loss, X, y, budget, solver, **settings)


def with_layer(layer):
    return torch.nn.Sequential(torch.nn.Linear(4, 6), layer, torch.nn.Linear(6, 3)).double()


class Centring(torch.nn.Module):
    def forward(self, x):
        return x - x.mean(dim=0)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x


class Branching(torch.nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (with_layer(torch.nn.BatchNorm1d(6)), "1 is a BatchNorm1d"),
        (with_layer(torch.nn.BatchNorm1d(6, track_running_stats=False)), "BatchNorm1d"),
        (with_layer(torch.nn.BatchNorm1d(6, track_running_stats=False)).eval(), "BatchNorm1d"),
        (with_layer(torch.nn.SyncBatchNorm(6)), "SyncBatchNorm"),
        (with_layer(torch.nn.InstanceNorm1d(6, track_running_stats=True)), "InstanceNorm1d"),
        (with_layer(Centring()), "one by one"),
        (with_layer(Counting()), "in-place"),
        (with_layer(Branching()), "vmap"),
        (network().half(), "float32 or float64"),
        (torch.nn.Tanh(), "trainable parameters"),
        (network().requires_grad_(False), "trainable parameters"),
        ("network", "torch.nn.Module"),
    ],
)
def test_networks_that_do_not_treat_rows_one_by_one_are_refused(module, message):
    with pytest.raises(ValueError, match=message):
        optimizer(module)


def test_normalisation_by_public_statistics_is_fine():
    module = with_layer(torch.nn.BatchNorm1d(6)).eval()
    before = module[1].running_mean.clone()
    optimizer(module).run()
    assert torch.equal(module[1].running_mean, before)
    assert optimizer(with_layer(torch.nn.LayerNorm(6))).run().epsilon <= 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"loss": torch.nn.CrossEntropyLoss(reduction="none")}, None),
        ({"loss": lambda z, y: z}, "one number"),
        ({"loss": "cross_entropy"}, "loss must be callable"),
        ({"rows": (torch.zeros(40, 5).double(), tensors()[1])}, "batch of one row"),
        ({"rows": (tensors()[0], tensors()[1][1:])}, "one entry for each row"),
        ({"rows": (tensors()[0][:0], tensors()[1][:0])}, "n_rows"),
        ({"rows": (tensors()[0].numpy(), tensors()[1])}, "inputs must be a tensor"),
        ({"rows": (tensors()[0].to_sparse(), tensors()[1])}, "dense"),
        ({"rows": (tensors()[0], tensors()[1] + 1)}, "for which it raises"),
        ({"solver": D2P2.dp_sgd(n_steps=3, step_size=0.1)}, "clip must be given"),
        ({"solver": D2P2.dp_sgd(n_steps=3, clip=0.1)}, "step_size"),
        ({"solver": D2P2.dp_sgd(step_size=3, clip=0.1)}, "n_steps"),
        ({"solver": D2P2.dp2_sgd(**SHORT), "block_size": 1}, "block_size"),
        ({"solver": D2P2.priv_sgd(dimension=13, **SHORT), "block_size": 16}, "dimension"),
        ({"solver": D2P2.dp2_sgd(**SHORT), "budget": GaussianDP(1.0)}, "budget"),
        ({"solver": D2P2.dp_sgd(sampling_rate=0.5, **SHORT), "budget": GaussianDP(1.0)}, "budget"),
        ({"momentum": 1.0}, "momentum"),
        ({"n_rows": 41}, "n_rows"),
        ({"adjacency": "add_remove"}, "n_rows must be given"),
        ({"adjacency": "nearby"}, "nearby"),
    ],
)
def test_settings_and_rows_are_checked_before_any_release(settings, message):
    if message is None:
        optimizer(**settings)
        return
    with (
        mock.patch("dpglm.privacy.releases.Curator.release", side_effect=AssertionError),
        pytest.raises(ValueError, match=message),
    ):
        optimizer(**settings).run()


def test_network_draws_are_public_and_keep_callers_generator():
    module, rows = with_layer(torch.nn.Dropout(0.5)), tensors()
    solver = D2P2.dp_sgd(sampling_rate=0.5, **SHORT)
    ends, draws = [], []
    for seed in (1, 1, 2):
        torch.manual_seed(9)
        copied = with_layer(torch.nn.Dropout(0.5))
        copied.load_state_dict(module.state_dict())
        made = optimizer(copied, rows=rows, solver=solver, noise=SeededNoise(seed))
        torch.manual_seed(9)
        made.run()
        ends.append(network_digest(copied))
        draws.append(torch.rand(1).item())
    torch.manual_seed(9)
    assert draws == [torch.rand(1).item()] * 3
    assert ends[0] == ends[1] != ends[2]


class Draws(torch.nn.Module):
    """Noise that no seed of torch decides."""

    def __init__(self, draw):
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return x * (0.5 + self.draw())


@pytest.mark.parametrize(
    "draw",
    [
        np.random.default_rng(0).random,
        functools.partial(torch.rand, (), generator=torch.Generator().manual_seed(0)),
        functools.partial(next, itertools.count()),
    ],
    ids=["numpy", "generator", "counter"],
)
def test_networks_draw_from_the_generator_of_torch_only(draw):
    with pytest.raises(ValueError, match="must draw from torch's own generator"):
        optimizer(with_layer(Draws(draw)))


def test_dropout_needs_a_public_number_of_rows():
    with pytest.raises(ValueError, match="random"):
        optimizer(with_layer(torch.nn.Dropout(0.5)), adjacency="add_remove", n_rows=40)


def test_network_is_stepped_in_place_and_changes_overwritten():
    module = network()
    made = optimizer(module, noise=SeededNoise(0))
    first = made.step()
    digest = network_digest(module)
    assert first.step == 1
    assert len(made.history) == 1
    assert not made.done
    other = network()
    again = optimizer(other, noise=SeededNoise(0))
    with torch.no_grad():
        other[0].weight.fill_(7.0)
    again.step()
    assert network_digest(other) == digest
    for _ in range(3):
        made.step()
    assert made.done
    with pytest.raises(RuntimeError, match="all planned steps"):
        made.step()


def test_part_of_a_plan_cannot_be_certified():
    made = optimizer()
    made.step()
    with pytest.raises(RuntimeError, match="4 planned steps; 1"):
        made.certificate()


def test_an_interrupted_step_is_not_taken_twice():
    made = optimizer()
    made.step()
    with (
        mock.patch("dpglm.privacy.noise.additive.add_gaussian", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        made.step()
    with pytest.raises(RuntimeError, match="interrupted"):
        made.run()


def test_a_forgotten_release_is_found():
    made = optimizer()
    for _ in range(3):
        made.step()
    made._curator._records.pop()
    with pytest.raises(Exception, match="planned to release"):
        made.step()


def test_averages_are_in_the_network_at_the_end():
    module = network()
    solver = D2P2.dp_sgd(output=UniformAverage(), **SHORT)
    made = optimizer(module, solver=solver, noise=SeededNoise(0))
    start, seen = made._gradients.start, []
    for _ in range(4):
        made.step()
        seen.append(made._state.w)
    parameters = torch.cat([p.detach().ravel() for p in module.parameters()]).numpy()
    np.testing.assert_allclose(parameters, start + np.mean(seen, axis=0), atol=1e-14)


def test_steps_that_overflow_leave_the_initial_parameters():
    module = network()
    solver = D2P2.dp_sgd(n_steps=3, step_size=1e308, clip=1e10)
    with pytest.warns(RuntimeWarning, match="overflowed"):
        optimizer(module, solver=solver).run()
    assert network_digest(module) == network_digest(network())


def test_non_finite_rows_contribute_nothing_and_stop_nothing():
    X, y = tensors()
    X[3], X[5] = torch.nan, torch.inf
    certificate = optimizer(rows=(X, y)).run()
    assert certificate.epsilon <= 1.0


def test_frozen_parameters_stay_and_shared_ones_are_counted_once():
    module = network()
    module[0].requires_grad_(False)
    before = module[0].weight.clone()
    made = optimizer(module)
    made.run()
    assert torch.equal(module[0].weight, before)
    assert made.plan.data.n_features == 21
    tied = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    tied = tied.double()
    own = optimizer(tied, rows=(tensors()[0], tensors()[1]))
    own.run()
    assert own.plan.data.n_features == 24
    assert tied[2].weight is tied[0].weight


def test_a_network_learns():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(2000, 2)))
    y = ((X[:, 0] * X[:, 1]) > 0).long()
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
    ).double()
    solver = D2P2.dp_sgd(n_steps=60, step_size=2.0, clip=1.0, sampling_rate=0.2)
    budget = ApproximateDP(4.0, 1e-5)
    with warnings.catch_warnings():
        optimizer(module, rows=(X, y), budget=budget, solver=solver, momentum=0.5).run()
    accuracy = (module(X).argmax(dim=1) == y).double().mean()
    assert accuracy > 0.85


def test_a_gpu_must_compute_the_same_in_every_run():
    from dpglm.data.networks import _device

    there = mock.Mock(device=torch.device("cuda", 0))
    with pytest.raises(ValueError, match="CUBLAS_WORKSPACE_CONFIG"):
        _device([there])
    with (
        mock.patch.object(torch, "are_deterministic_algorithms_enabled", return_value=True),
        mock.patch.dict("os.environ", CUBLAS_WORKSPACE_CONFIG=":4096:8"),
    ):
        assert _device([there]).type == "cuda"
    with pytest.raises(ValueError, match="CPU or on an NVIDIA GPU"):
        _device([mock.Mock(device=torch.device("mps"))])


def test_plans_are_made_without_rows():
    plan = planned(n_rows=1000)
    assert plan.data.n_rows == 1000
    assert plan.method.releases[0].coordinates == RowGradients(network(), squared).n_parameters
    with pytest.raises(ValueError, match="trainable parameters"):
        rows_of(plan, *tensors(1000), module=network(features=7))
