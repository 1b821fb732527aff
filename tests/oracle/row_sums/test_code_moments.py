"""Products of rows with codes of classes: how long a row's part is, under each relation."""

from __future__ import annotations

import math
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.oracle.row_sums import code_moments as module
from dpglm.oracle.row_sums.code_moments import code_moment_release, code_moments
from dpglm.oracle.row_sums.weighted_moments import View
from dpglm.privacy.adjacency import Adjacency
from dpglm.privacy.noise.additive import GaussianNoise

WEIGHT = 1.5
EDGE = math.sqrt(3.0)
"""Length of rows that are as long as the view lets them count in full."""


def spec_of(n_classes: int, n: int = 1) -> DataSpec:
    return DataSpec(n, 2, n_outputs=n_classes, row_norm=10.0, intercept=1.0, weight_bound=WEIGHT)


def view_of(level: float, stretch: float = 1.0) -> View:
    vectors = np.diag([stretch, 1.0, level])
    return View(vectors, EDGE**2, level, 0.0, np.zeros(3), 1.0)


def part(x, label, view, n_classes, share=0.5):
    """What one row with the largest weight adds."""
    spec = spec_of(n_classes)
    rows = prepare_rows(np.array([x]), np.array([label]), spec, weights=np.array([WEIGHT]))
    (block,) = rows.blocks()
    return code_moments(spec, view, share, True)(block)


@settings(max_examples=60, deadline=None)
@given(
    x=st.tuples(*[st.floats(-1e3, 1e3)] * 2),
    n_classes=st.sampled_from([2, 3, 10, 200]),
    label=st.integers(0, 1),
    level=st.sampled_from([0.5, 1.0, 3.0]),
    share=st.sampled_from([0.02, 0.5, 0.98]),
)
def test_a_row_adds_no_more_than_its_weight_bound(x, n_classes, label, level, share):
    """Whatever the row, its class and their number: zero_out and add_remove."""
    added = part(x, label, view_of(level, 1e3), n_classes, share)
    assert np.linalg.norm(added) <= WEIGHT


@pytest.mark.parametrize("n_classes", [2, 10, 200])
def test_the_bound_is_met_for_every_number_of_classes(n_classes):
    added = part([EDGE, 0.0], 1, view_of(1.0), n_classes)
    assert np.linalg.norm(added) == pytest.approx(WEIGHT, rel=1e-9)


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("n_classes", [2, 3, 50])
def test_neighbours_are_within_the_declared_sensitivity(adjacency, n_classes):
    """Worst pairs are opposite rows of one class; the relation's factor covers them."""
    declared = code_moment_release(spec_of(n_classes), adjacency, GaussianNoise(1.0), 0.5)
    view, far = view_of(0.1), [EDGE, 0.0]
    pairs = [part(far, 0, view, n_classes)]
    if adjacency is Adjacency.REPLACE_ONE:
        others = [([-EDGE, 0.0], 0), ([-EDGE, 0.0], 1), ([0.0, EDGE], 0), (far, 1)]
        pairs = [pairs[0] - part(x, label, view, n_classes) for x, label in others]
    distances = [float(np.linalg.norm(pair)) for pair in pairs]
    assert max(distances) <= declared.sensitivity
    if adjacency is Adjacency.REPLACE_ONE:
        # A sensitivity that forgets the relation's factor is seen to be too small.
        assert max(distances) > 1.4 * declared.contribution_bound


@pytest.mark.parametrize("n_classes", [3, 50])
def test_codes_taken_to_be_shorter_are_caught(n_classes):
    with mock.patch.object(module, "code_length", lambda n: 0.5 * math.sqrt(1.0 - 1.0 / n)):
        assert np.linalg.norm(part([EDGE, 0.0], 1, view_of(1.0), n_classes)) > 1.4 * WEIGHT


def test_products_with_codes_are_exact():
    rng = np.random.default_rng(0)
    n, spec = 3000, spec_of(4, 3000)
    X, y = rng.uniform(-1, 1, (n, 2)), rng.integers(0, 4, n)
    weights = rng.uniform(0.1, WEIGHT, n)
    rows, view = prepare_rows(X, y, spec, weights=weights), view_of(1.0)
    found = sum(code_moments(spec, view, 0.3, False)(block) for block in rows.blocks())
    z = np.column_stack([X, np.ones(n)])
    codes = np.eye(4)[y] - 0.25
    wanted = (codes * weights[:, None]).T @ z * math.sqrt(0.7 / (view.longest * 0.75))
    np.testing.assert_allclose(found[6:].reshape(4, 3), wanted, rtol=1e-9, atol=1e-9)
