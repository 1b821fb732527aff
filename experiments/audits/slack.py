"""A bounded sum with a histogram of norms in the slack of its contributions."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dpglm.audit import Claim, Neighbours
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import AnyArrays, Block, DataSpec, Kernel
from dpglm.oracle.gradients import Oracle
from dpglm.oracle.moments import float_weights, sum_of
from dpglm.oracle.rounding import RowSum, norm_margin, slack_of_row, sums_and_slack
from dpglm.privacy import Adjacency, gdp
from dpglm.privacy.noise import SystemNoise
from dpglm.privacy.noise.additive import GaussianNoise
from dpglm.privacy.releases import Curator
from experiments.audits.case import RELATIONS, ZERO_OUT, Case, Setup

__all__ = ["BUGS", "CASES", "N_BINS", "norm_histogram", "norm_sum"]

N_BINS = 4
SPEC = DataSpec(n_rows=3, n_features=2)
MU, DELTA = 2.0, 1e-2


def norm_sum(data: DataSpec) -> RowSum:
    """Sum of ``norm_histogram``."""
    return RowSum("rows and their norms", data.n_features).with_slack(N_BINS)


def norm_histogram(spec: DataSpec, *, planted: bool = False) -> Kernel:
    """Return the kernel that sums rows clipped to norm 1, and their slack by bins of norms.

    The planted bug: a row without weight, which adds no vector, adds its slack.
    """

    def block_sum(block: Block) -> Any:
        x = np.asarray(block.features(), dtype=np.float64)
        x = x * (norm_margin(x.shape[1]) / np.maximum(np.linalg.norm(x, axis=1), 1.0))[:, None]
        squares = np.einsum("ij,ij->i", x, x)
        places = np.minimum(N_BINS * np.sqrt(squares), N_BINS - 1.0).astype(int)
        slack = slack_of_row(spec, squares, np.eye(N_BINS)[places])
        weights = np.ones(len(x)) * float_weights(block)
        left = sum_of(block, np.ones(len(x)) if planted else weights, slack)
        return sums_and_slack(spec, sum_of(block, weights, x), left)

    return AnyArrays(block_sum, apart=True)


def setup(relation: Adjacency, *, planted: bool = False) -> Setup:
    """Attack the sum, which only one row of interest adds to."""
    declared = norm_sum(SPEC).release(SPEC, relation, GaussianNoise(1.0 / MU))
    row = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    first = prepare_rows(row, np.zeros(3), SPEC, weights=np.array([1.0, 0.0, 0.0]))
    second = prepare_rows(0.0 * row, np.zeros(3), SPEC, weights=np.zeros(3))
    if relation is Adjacency.REPLACE_ONE:
        second = prepare_rows(-row, np.zeros(3), SPEC, weights=np.array([1.0, 0.0, 0.0]))

    def release(rows: Any) -> list[float]:
        oracle = Oracle(rows, None, Curator(relation, SystemNoise()))
        values = norm_sum(SPEC).noisy(oracle, declared, norm_histogram(SPEC, planted=planted))
        # An attacker knows the code: a vector against its absence, or the slack that it leaves.
        return [float(values[0]), float(values[0] - values[SPEC.n_features])]

    claim = Claim(gdp.epsilon(DELTA, MU), DELTA, MU)
    return Setup(release, [Neighbours("one row", first, second)], claim=claim)


NAME = "RowSum.with_slack"
CASES = [
    Case("bounded sums", NAME, functools.partial(setup, relation), relation)
    for relation in RELATIONS
]
BUGS = [
    Case(
        "bugs",
        NAME,
        functools.partial(setup, ZERO_OUT, planted=True),
        bug="an erased row that leaves its slack",
        runs=2.0,
    )
]
