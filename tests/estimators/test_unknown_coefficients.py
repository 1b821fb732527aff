"""Coefficients without information have the interval of their prior, and a fit warns of them."""

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


def test_collinear_columns_keep_their_prior_and_are_warned_of():
    with pytest.warns(LowSignalWarning, match="carry little information .* x0, x1"):
        fitted = model().fit(COLLINEAR, LABELS)
    inference = fitted.inference_
    assert inference.of_prior == ("x0", "x1")
    assert inference.unknown == ()
    assert np.isfinite(inference.conf_int()).all()
    assert "Standard errors of 'x0', 'x1' are at least two thirds" in " ".join(
        str(inference).split()
    )
    # Their sum is known, though neither is.
    assert inference.wald_test([0.0, 1.0, 1.0]).p_value < 0.001
    errors = inference.standard_errors
    tight = model().set_params(prior_scales=0.5).fit(COLLINEAR, LABELS).inference_
    assert (tight.standard_errors[1:] < 0.5 * errors[1:]).all()


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
    assert one.inference_.of_prior == ("x0", "x1")
    assert ["carry little information" in str(caught.message) for caught in shown] == [True]
