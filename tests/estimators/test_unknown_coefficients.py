"""Coefficients that cannot be estimated are NaN in ``params``, and a fit warns of them."""

import warnings

import numpy as np
import pytest

from dpglm import LogisticRegression, LowSignalWarning

RNG = np.random.default_rng(0)
FIRST = RNG.uniform(size=10_000)
LABELS = (FIRST - 0.5 + RNG.logistic(size=10_000) > 0).astype(int)
COLLINEAR = np.column_stack([FIRST, FIRST])


def model():
    return LogisticRegression(
        C=np.inf, classes=[0, 1], feature_bounds=(0, 1), inference=True, random_state=0
    )


def test_unknown_params_are_nan_and_warned_of():
    with pytest.warns(LowSignalWarning, match="Cannot be estimated .*: x0, x1"):
        fitted = model().fit(COLLINEAR, LABELS)
    inference = fitted.inference_
    assert inference.unknown == ("x0", "x1")
    assert np.isnan(inference.params).tolist() == [False, True, True]
    assert np.isfinite(fitted.coef_).all()
    # Their sum is known, though neither is.
    assert inference.wald_test([0.0, 1.0, 1.0]).p_value < 0.001


def test_known_params_are_the_coefficients():
    with warnings.catch_warnings():
        warnings.simplefilter("error", LowSignalWarning)
        fitted = model().fit(COLLINEAR[:, :1], LABELS)
    assert fitted.inference_.unknown == ()
    assert fitted.inference_.params.tolist() == [fitted.intercept_[0], *fitted.coef_[0]]


def test_warning_as_error_keeps_the_paid_model():
    one = model()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("error", LowSignalWarning)
        one.fit(COLLINEAR, LABELS)
    assert one.inference_.unknown == ("x0", "x1")
    assert ["Cannot be estimated" in str(caught.message) for caught in shown] == [True]
