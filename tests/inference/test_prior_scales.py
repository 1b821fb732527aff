"""The declared prior: its units, its errors, and its place in plans and pipelines."""

import warnings

import numpy as np
import pytest

from dpglm import LogisticRegression, PrivatePipeline
from dpglm.preprocessing import SchemaEncoder

RNG = np.random.default_rng(0)
X = RNG.uniform(0.0, 10.0, size=(4000, 2))
Y = (0.3 * (X[:, 0] - 5.0) + RNG.logistic(size=4000) > 0.0).astype(int)


def model(**options):
    return LogisticRegression(
        C=np.inf,
        classes=[0, 1],
        epsilon=2.0,
        feature_bounds=(0.0, 10.0),
        inference=True,
        random_state=0,
        **options,
    )


def fitted(estimator, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(*arguments)


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, [1.0, 2.0, 3.0], "wide", [1.0, 0.0]])
def test_wrong_scales_are_refused_before_anything_is_spent(wrong):
    with pytest.raises(ValueError, match="prior_scales must be"):
        model(prior_scales=wrong).plan(4000, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = model(prior_scales=wrong)
        with pytest.raises(ValueError, match="prior_scales must be"):
            one.fit(X, Y)
    assert not hasattr(one, "privacy_")


def test_scales_are_in_the_units_of_the_columns():
    # Half of the declared range is five units.
    (prior,) = {model(prior_scales=0.4).plan(4000, 2).method.prior_scales}
    assert prior == pytest.approx((2.0, 2.0))
    wide = fitted(model(), X, Y).inference_
    tight = fitted(model(prior_scales=0.001), X, Y).inference_
    assert tight.estimates.prior[1, 1] == pytest.approx(0.001**2)
    assert abs(tight.params[1]) < 0.01 < abs(wide.params[1])
    assert (tight.standard_errors[1:] <= 0.001).all()
    assert tight.of_prior


def test_pipelines_state_the_prior_of_their_schema():
    columns = {
        "age": {"type": "numeric", "low": 0, "high": 10},
        "group": {"type": "categorical", "categories": ["a", "b", "c"], "reference": "a"},
    }
    encoder = SchemaEncoder({"columns": columns, "provenance": "public knowledge"})
    assert encoder.stated_schema().encoding.prior_scales == (np.inf, 2.5, 2.5)
    steps = [encoder, LogisticRegression(classes=[0, 1], inference=True)]
    assert PrivatePipeline(steps).plan(4000).method.prior_scales == (np.inf, 2.5, 2.5)
