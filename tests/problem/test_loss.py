"""Targets and the numerics that losses share."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from dpglm.problem import Logistic, Target
from dpglm.problem.links import as_float, sigmoid


@pytest.mark.parametrize(
    ("target", "y", "admitted"),
    [
        (Target.BINARY, [-1.0, 1.0, 0.0, 2.0, np.nan, -np.inf], [1, 1, 0, 0, 0, 0]),
        (Target.CLASS, [0.0, 3.0, -1.0, 0.5, np.nan, np.inf], [1, 1, 0, 0, 0, 0]),
        (Target.REAL, [0.0, -1e300, np.nan, np.inf, -np.inf], [1, 1, 0, 0, 0]),
        (Target.COUNT, [0.0, 2.5, -1e-9, np.nan, np.inf], [1, 1, 0, 0, 0]),
        (Target.POSITIVE, [0.0, 1e-300, -1e-9, np.nan, np.inf], [0, 1, 0, 0, 0]),
        (Target.PROPORTION, [0.0, 0.4, 1.0, -1e-9, 1.1, np.nan, np.inf], [1, 1, 1, 0, 0, 0, 0]),
    ],
)
def test_target_admits(target: Target, y: list[float], admitted: list[int]) -> None:
    assert target.admits(y).tolist() == [bool(a) for a in admitted]


def test_target_admits_integers_of_any_width() -> None:
    for dtype in (np.int8, np.int64):
        assert Target.BINARY.admits(np.array([-1, 1, 0], dtype=dtype)).tolist() == [
            True,
            True,
            False,
        ]
        assert Target.CLASS.admits(np.array([-1, 1], dtype=dtype)).tolist() == [False, True]


def test_an_inadmissible_label_breaks_the_slope_bound() -> None:
    """Why targets are checked once for every row before a bound is relied on."""
    assert abs(Logistic().slope([0.0], [100.0])[0]) > Logistic().slope_bound
    assert not Target.BINARY.admits([100.0])[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sigmoid_has_full_relative_precision(dtype: type) -> None:
    m = np.array([-80, -30, -3, -1e-3, 0, 1e-3, 3, 30, 80], dtype=dtype)
    with mpmath.workdps(40):
        exact = [float(1 / (1 + mpmath.exp(-mpmath.mpf(float(v))))) for v in m]
    # The rounding of the exponential's argument is not amplified, as the argument is exact.
    np.testing.assert_allclose(sigmoid(m), exact, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(sigmoid(np.array([-1e4, 1e4], dtype=dtype)), [0, 1])


def test_other_dtypes_become_float64() -> None:
    assert as_float([1, 2]).dtype == np.float64
    assert as_float(np.ones(2, dtype=np.float16)).dtype == np.float64
    z = np.ones(2, dtype=np.float32)
    assert as_float(z) is z


def test_smoothness_below_needs_a_positive_limit() -> None:
    for limit in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match="slope_limit must be greater than 0"):
            Logistic().smoothness_below(limit, 1.0, -1, 1)
