"""On a GPU, where there is one, a run is that of the CPU but for rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dpglm.privacy.noise import SeededNoise
from dpglm.solvers import D2P2, run
from tests.torch_networks.networks import SHORT, network, planned, rows_of, tensors

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
SOLVERS = [
    D2P2.dp_sgd(sampling_rate=0.5, normalize=False, **SHORT),
    D2P2.dp2_sgd(**SHORT),
]


@pytest.fixture
def deterministic(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("solver", SOLVERS, ids=["dp_sgd", "dp2_sgd"])
def test_runs_agree(solver):
    plan, ends = planned(solver), []
    for device in ("cpu", "cuda", "cuda"):
        X, y = (one.to(device) for one in tensors())
        rows = rows_of(plan, X, y, module=network().to(device))
        ends.append(run(plan, rows, SeededNoise(2)).w)
    np.testing.assert_allclose(ends[1], ends[0], atol=1e-6)
    np.testing.assert_array_equal(ends[1], ends[2])
