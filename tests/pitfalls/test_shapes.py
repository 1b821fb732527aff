"""Pitfalls of shapes: odd numbers of rows, and labels of more than one axis."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.budget import Adjacency
from dpglm.problem import Logistic
from tests.laws.transcripts import listening
from tests.pitfalls.support import caught, model, small
from tests.planted import pythonic

# 18. Odd sizes: tests/estimators/test_bad_input.py; here for privacy.


def sensitivity_holds_for(n):
    rng = np.random.default_rng(n)
    X = rng.uniform(-1, 1, size=(n, 2))
    other = X.copy()
    X[-1], other[-1] = 1e6, -1e6
    spec = DataSpec(n_rows=n, n_features=2)
    a, b = (
        clipped_gradient_sum(
            prepare_rows(m, np.ones(n), spec), Logistic(), FlatClipping(0.3), np.zeros(2)
        )
        for m in (X, other)
    )
    assert 0.599 < np.linalg.norm(a - b) <= 0.6 + sum_rounding(spec, Adjacency.REPLACE_ONE, 0.3)


@pytest.mark.parametrize("n", [1, 2, 3, 63, 64, 65, 255, 256, 257])
def test_pitfall_18_sensitivity_holds_for_odd_n(n):
    # A path for the rows that are left over, without the clip.
    honest = FlatClipping.scale

    def whole_groups_only(self, slopes, row_norms):
        left = slopes[-1:].copy()
        slopes = honest(self, slopes, row_norms)
        slopes[-1:] = left
        return slopes

    with pythonic():
        bug = mock.patch.object(FlatClipping, "scale", whole_groups_only)
        caught(bug, sensitivity_holds_for, n)


# 19. y of shape (n, 1) against predictions of shape (n,).


def every_shape_keeps_the_clip(shape, kind):
    X, y = small()
    labels = y.reshape(shape)
    given = labels if kind is np.array else kind(labels.tolist())
    with listening(reach=3.0) as expected:
        model(random_state=0).fit(X, y)
    with listening(expected, reach=3.0) as seen:
        model(random_state=0).fit(X, given)
    for a, b in zip(seen.asked, expected.asked, strict=True):
        assert a.exact.shape == (4,)
        np.testing.assert_array_equal(a.exact, b.exact)
        assert np.linalg.norm(a.exact) <= 20 * 0.5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
@pytest.mark.parametrize("shape", [(20,), (20, 1)])
@pytest.mark.parametrize("kind", [np.array, list, tuple])
def test_pitfall_19_every_shape_of_y_keeps_the_clip(shape, kind):
    def broadcast(self, slopes, row_norms):
        # What (n,) against (n, 1) gives: every row with the slopes of all.
        return np.full_like(slopes, abs(slopes).sum())

    with pythonic():
        bug = mock.patch.object(FlatClipping, "scale", broadcast)
        caught(bug, every_shape_keeps_the_clip, shape, kind)


def test_pitfall_19_other_shapes_are_refused():
    X, y = small()

    def refused():
        for wrong in ((1, 20), (20, 2), (20, 1, 1)):
            with pytest.raises(ValueError, match=r"1d|dim|array"):
                model().fit(X, np.resize(y, wrong))

    def flattened(self, X, y, **options):
        return np.asarray(X, dtype=float), np.ravel(y)[: len(X)]

    caught(mock.patch.object(PrivateLinearModel, "_validated", flattened), refused)
