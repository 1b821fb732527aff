"""Measurements of networks: sizes, budgets and references equal those of the pages."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from experiments import d2p2_networks, last_layer
from experiments.d2p2_networks import EPSILON, METHODS, QUICK, Setting, Size
from experiments.network_tasks import Images, accuracy, four_layers, papernot

FIGURES = Path(__file__).parent.parent.parent / "docs" / "figures"
SIZES = [d2p2_networks.QUICK, d2p2_networks.MEASURED, d2p2_networks.FULL]


def made_up(n=60, side=28):
    """Images of noise, with a bright line for the class."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.random((n, 1, side, side)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 10, n))
    X[torch.arange(n), 0, y] = 1.0
    return Images("made up", X, y, X[:20], y[:20])


class TestNetworks:
    @pytest.mark.parametrize(("side", "parameters"), [(28, 26_010), (14, 3714)])
    def test_they_have_as_many_parameters_as_is_said(self, side, parameters):
        network = four_layers(side)
        assert sum(value.numel() for value in network.parameters()) == parameters
        assert network(made_up(2, side).X).shape == (2, 10)

    def test_held_out_rows_do_not_train(self):
        data = made_up()
        parts = data.held_out(20)
        assert (len(parts.X), len(parts.X_test)) == (40, 20)
        together = torch.cat([parts.X, parts.X_test]).flatten(1)
        assert len(torch.unique(together, dim=0)) == 60

    def test_accuracy_is_that_of_test_rows(self):
        logits, y = torch.eye(10).reshape(10, 1, 1, 10), torch.arange(10)
        data = Images("classes as they are", logits, y, logits, (y + (y > 6)) % 10)
        assert accuracy(torch.nn.Flatten(), data) == pytest.approx(0.7)

    def test_published_settings_are_40_epochs_of_batches_of_2048(self):
        solver = papernot(40, 60_000)
        assert (solver.n_steps, solver.clip, solver.step_size) == (1172, 0.1, 4.0)
        assert solver.sampling_rate * 60_000 == pytest.approx(2048)


class TestMethods:
    @pytest.mark.parametrize("size", SIZES)
    def test_other_batches_see_as_many_rows(self, size: Size):
        for batch in size.batches:
            solver = Setting("D2P2-SGD", batch=batch).solver(size, 4.0)
            rows = solver.n_steps * solver.sampling_rate
            assert rows == pytest.approx(size.n_steps * size.rate, rel=0.01)

    @pytest.mark.parametrize("name", METHODS)
    def test_projected_steps_are_shorter(self, name):
        solver = Setting(name).solver(QUICK, 4.0)
        assert (solver.step_size < 4.0) == solver.projected
        assert solver.normalize == (name != "DP-SGD")

    def test_fading_noise_of_equal_first_scale_costs_far_more(self):
        constant, fading = d2p2_networks.privacy_loss(QUICK)
        assert constant.mean[-1] == pytest.approx(EPSILON, rel=1e-3)
        assert fading.mean[-1] > 2.0 * constant.mean[-1]

    def test_figure_agrees_with_text(self):
        with (FIGURES / "d2p2_networks.csv").open() as file:
            rows = [one for one in csv.DictReader(file) if one["panel"] == "Fashion-MNIST"]
        last = {one["curve"]: float(one["mean"]) for one in rows}
        plain = min(last["DP-SGD"], last["DP-SGD, automatic clipping"])
        for name in ("DP2-SGD", "D2P2-SGD", "PrivSGD", "D2P2-SGD, first noise of DP-SGD"):
            assert last[name] < plain - 1.0
        assert abs(last["D2P-SGD"] - plain) < 3.0


class TestClippingBias:
    @pytest.mark.parametrize("stability", [0.01, 0.1, 1.0])
    def test_it_is_where_normalised_gradients_balance(self, stability):
        def balance(s):
            return 0.4 * s / (s + stability) - 0.6 * (1.0 - s) / (1.0 - s + stability)

        root = brentq(balance, 0.5, 1.0 - 1e-12)
        assert d2p2_networks.clipping_bias(stability) == pytest.approx(root - 0.6, abs=1e-6)

    def test_bias_is_far_above_table_2(self):
        found = [d2p2_networks.clipping_bias(one) for one in (0.1, 0.01, 0.001)]
        assert found == sorted(found)
        assert found[0] > 2.0 * 0.1
        assert found[-1] > 300.0 * 0.001


def test_last_layers_and_whole_networks_are_compared():
    data = made_up(200)
    text = last_layer.table(last_layer.rows(data, data, (1,)), (3.0,))
    lines = text.splitlines()[2:]
    assert len(lines) == 6
    assert all(0.0 <= float(line.split("|")[3]) <= 100.0 for line in lines)
