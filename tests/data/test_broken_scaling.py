"""Prepared rows are within their bounds whatever the scaling of columns returns."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from dpglm.data import prepare
from dpglm.tables.encoding import ColumnScaling
from tests.oracle.test_clipped_sum import LAYOUTS, make_rows

BROKEN = {
    "not numbers": (np.nan, np.nan),
    "infinite": (-np.inf, np.inf),
    "too narrow": (0.0, 5e-324),
    "too wide": (-1e308, 1e308),
    "the wrong way round": (1.0, -1.0),
}


def entries_and_norms(layout, low, high):
    rng = np.random.default_rng(0)
    X = rng.normal(2.0, 3.0, size=(40, 3))
    X[0] = 0.0
    ends = np.array([-1.0, low, -1.0]), np.array([1.0, high, 1.0])
    scaling = ColumnScaling(*ends)
    honest = prepare.prepare_rows

    def scaled(X, y, spec, *_, **options):
        return honest(X, y, spec, scaling, **options)

    with (
        np.errstate(all="ignore"),
        mock.patch("tests.oracle.test_clipped_sum.prepare_rows", scaled),
    ):
        rows = make_rows(X, np.ones(40), layout=layout, row_norm=1.5)
        blocks = list(rows.blocks())
    return (
        np.concatenate([block.features() for block in blocks]),
        np.concatenate([block.norms for block in blocks]),
    )


def are_bounded(entries, norms):
    own = np.linalg.norm(entries, axis=1)
    return bool((own <= 1.5).all() and (np.hypot(own, 1.0) <= norms).all())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bounds", BROKEN.values(), ids=BROKEN)
def test_rows_are_within_their_bounds(layout, bounds):
    assert are_bounded(*entries_and_norms(layout, *bounds))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_that_are_kept_as_scaled_would_not_be(layout):
    with mock.patch.object(prepare, "_within", lambda X, norms, *_, **__: (X, norms)):
        assert not are_bounded(*entries_and_norms(layout, np.nan, np.nan))


def test_bounds_of_other_columns_are_refused():
    scaling = ColumnScaling(np.zeros(2), np.ones(2))
    with (
        pytest.raises(ValueError, match="shape"),
        mock.patch.object(ColumnScaling, "clip", lambda self, X: X),
    ):
        prepare._scaled(np.ones((4, 3)), scaling, False)
