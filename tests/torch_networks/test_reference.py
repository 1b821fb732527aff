"""Steps are those of plain loops, of torch's own optimizer, and of Opacus."""

from __future__ import annotations

import copy
import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
import torch

from dpglm.audit.games import Recording
from dpglm.oracle.projection import GaussianMatrix
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import SeededNoise, bernoulli
from dpglm.solvers import D2P2, LeastSquares, TailAverage, run
from tests.torch_networks.networks import (
    SHORT,
    cross_entropy,
    network,
    one_by_one,
    planned,
    rows_of,
    tensors,
)


def recorded(plan, rows, seed=3):
    """Run; return the parameters' displacement, all releases, and which rows entered each."""
    recording, masks = Recording(SeededNoise(seed)), []

    def sample(self, n_rows, sampling_rate):
        masks.append(bernoulli(self._source, n_rows, sampling_rate))
        return masks[-1]

    with mock.patch.object(Recording, "sample", sample):
        solution = run(plan, rows, recording)
    masks = masks or [np.ones(rows.n_rows, dtype=bool)] * plan.n_steps
    return solution.w, recording, masks


def noises(recording):
    return [one.value - one.law.mean for one in recording.releases]


def clipped(gradients, method):
    """Each block of each row's gradient, bounded by the definition."""
    bound = method.clipping.bound / math.sqrt(method.blocks)
    result = []
    for block in np.array_split(gradients, method.blocks, axis=1):
        lengths = np.linalg.norm(block, axis=1, keepdims=True)
        if hasattr(method.clipping, "stability"):
            result.append(block * bound / (lengths + method.clipping.stability * bound))
        else:
            result.append(block * np.minimum(1.0, bound / lengths))
    return np.concatenate(result, axis=1)


def textbook(plan, X, y, recording, masks):
    method, module = plan.method, network()
    start = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    w, velocity, returned = np.zeros_like(start), np.zeros_like(start), np.zeros_like(start)
    seed = int(recording.public[0][0])
    weights = method.output.weights(method.n_steps, seed * 2.0**-64)
    shapes = [p.shape for p in module.parameters()]
    for k, (mask, noise) in enumerate(zip(masks, noises(recording), strict=True)):
        flat = torch.split(torch.from_numpy(start + w), [math.prod(shape) for shape in shapes])
        with torch.no_grad():
            for p, piece in zip(module.parameters(), flat, strict=True):
                p.copy_(piece.reshape(p.shape))
        rows = clipped(one_by_one(module, cross_entropy, X, y), method)
        total = rows[mask].sum(axis=0)
        if method.dimension is None:
            g = total + noise
        else:
            g = []
            parts = zip(
                np.array_split(total, method.blocks), np.split(noise, method.blocks), strict=True
            )
            for b, (part, own) in enumerate(parts):
                A = GaussianMatrix(part.size, method.dimension, (seed, k, 1, b)).dense()
                r = A.T @ part / math.sqrt(method.dimension) + own
                g.append(method.lift.gradient(FixedMatrix(A), r))
            g = np.concatenate(g)
        velocity = method.momentum * velocity + g / (method.sampling_rate * len(X))
        w = w - method.step_sizes[k] * velocity
        returned = returned + weights[k] * w
    return returned


@dataclasses.dataclass
class FixedMatrix:
    A: np.ndarray

    @property
    def rows(self):
        return self.A.shape[0]

    @property
    def columns(self):
        return self.A.shape[1]

    def dense(self):
        return self.A

    def lift(self, r):
        return self.A @ r / math.sqrt(self.columns)


@pytest.mark.parametrize(
    ("solver", "settings"),
    [
        (D2P2.dp_sgd(normalize=False, **SHORT), {"momentum": 0.5}),
        (D2P2.dp_sgd(sampling_rate=0.3, **SHORT), {}),
        (D2P2.d2p_sgd(output=TailAverage(), **SHORT), {"adjacency": "replace_one"}),
        (D2P2.dp2_sgd(sampling_rate=0.3, **SHORT), {"adjacency": "add_remove"}),
        (D2P2(normalize=False, **SHORT), {"block_size": 7}),
        (D2P2.priv_sgd(dimension=4, **SHORT), {"block_size": 9}),
        (D2P2(dimension=5, lift=LeastSquares(), **SHORT), {"block_size": None}),
    ],
    ids=["dp_sgd", "automatic", "d2p_sgd", "dp2_sgd", "d2p2_sgd", "priv_sgd", "one_matrix"],
)
def test_a_run_is_the_plain_loop(solver, settings):
    plan, (X, y) = planned(solver, **settings), tensors()
    w, recording, masks = recorded(plan, rows_of(plan, X, y))
    # Where n is private, the grid of sampled sums is that of the largest n.
    tolerance = 1e-10 if plan.adjacency.n_is_public else 1e-6
    np.testing.assert_allclose(w, textbook(plan, X, y, recording, masks), rtol=0, atol=tolerance)


@pytest.mark.filterwarnings("ignore:Full backward hook")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_dp_sgd_is_that_of_opacus(dtype, momentum):
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.optimizers import optimizer as opacus_optimizer

    module, (X, y) = network(dtype), tensors(dtype=dtype)
    solver = D2P2.dp_sgd(normalize=False, sampling_rate=0.4, **SHORT)
    plan = planned(solver, module=module, momentum=momentum)
    w, recording, masks = recorded(plan, rows_of(plan, X, y, module=module))
    mine = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()]) + w
    wrapped = GradSampleModule(copy.deepcopy(module))
    sgd = torch.optim.SGD(wrapped.parameters(), lr=SHORT["step_size"], momentum=momentum)
    theirs = DPOptimizer(
        sgd,
        noise_multiplier=plan.method.noise_multiplier,
        max_grad_norm=SHORT["clip"],
        expected_batch_size=0.4 * len(X),
    )
    for mask, noise in zip(masks, noises(recording), strict=True):
        pieces = iter(np.split(noise, np.cumsum([p.numel() for p in module.parameters()])[:-1]))

        def given(std, reference, pieces=pieces, **_):
            return torch.from_numpy(next(pieces)).reshape(reference.shape).to(reference.dtype)

        theirs.zero_grad()
        cross_entropy(wrapped(X[mask]), y[mask]).backward()
        with mock.patch.object(opacus_optimizer, "_generate_noise", given):
            theirs.step()
    parameters = [p.detach().double().numpy().ravel() for p in wrapped.parameters()]
    np.testing.assert_allclose(mine, np.concatenate(parameters), rtol=0, atol=1e-6)


def test_without_noise_and_bounds_it_is_torchs_sgd():
    module, (X, y) = network(), tensors()
    solver = D2P2.dp_sgd(normalize=False, n_steps=4, step_size=0.2, clip=100.0)
    plan = planned(solver, module=module, momentum=0.8)
    with mock.patch("dpglm.privacy.noise.additive.add_gaussian", lambda value, *_: value):
        w = run(plan, rows_of(plan, X, y, module=module), SeededNoise(0)).w
    start = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    sgd = torch.optim.SGD(module.parameters(), lr=0.2, momentum=0.8)
    for _ in range(4):
        sgd.zero_grad()
        cross_entropy(module(X), y).backward()
        sgd.step()
    end = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    np.testing.assert_allclose(start + w, end, rtol=0, atol=1e-12)


def test_a_batch_may_be_empty():
    plan = planned(D2P2.dp_sgd(sampling_rate=1e-6, **SHORT))
    w, recording, masks = recorded(plan, rows_of(plan, *tensors()))
    assert not np.any(masks)
    np.testing.assert_array_equal([one.law.mean for one in recording.releases], 0.0)
    assert np.isfinite(w).all()
    assert w.all()


def test_noise_has_the_planned_size():
    solver = D2P2.dp_sgd(n_steps=300, step_size=0.1, clip=0.5)
    plan = planned(solver, adjacency="replace_one")
    _, recording, _ = recorded(plan, rows_of(plan, *tensors()))
    found = np.array(noises(recording))
    (release,) = plan.method.releases
    assert release.scale.std >= plan.method.noise_multiplier * 2.0 * 0.5
    assert found.std() == pytest.approx(release.scale.std, rel=0.02)
    assert plan.adjacency is Adjacency.REPLACE_ONE


def test_expected_noise_equals_observed_noise():
    solver = D2P2(dimension=4, n_steps=3, step_size=0.1, clip=0.5, output=TailAverage())
    plan = planned(solver, momentum=0.6)
    _, recording, _ = recorded(plan, rows_of(plan, *tensors()))
    zero = np.zeros(plan.data.n_coefficients)
    seen = []
    kernel = "dpglm.data.networks.NetworkRows.clipped_gradient_sum"
    with mock.patch(kernel, return_value=zero):
        seen = [run(plan, rows_of(plan, *tensors()), SeededNoise(s)).w for s in range(40)]
    assert np.std(seen) == pytest.approx(plan.coefficient_noise, rel=0.05)
    assert recording.releases
