"""Intervals of a formula's model: about formulaic's columns, by the delta method."""

import formulaic
import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

import dpglm
from tests.inference.planted import given
from tests.tables.formula.formulas import SCHEMA, table_of

TABLE = table_of(300)
BINARY = SCHEMA.to_dict() | {"target": {"name": "y", "type": "binary", "classes": [0, 1]}}


def fitted(formula, size, has_intercept=True):
    w = np.linspace(-1.0, 1.0, size + has_intercept)
    model = dpglm.from_formula(formula, BINARY, solver=given(w), inference=True)
    return model.fit(TABLE, np.arange(len(TABLE)) % 2)


@pytest.mark.parametrize(
    "formula",
    [
        "~ age * C(sex) + np.log(age)",
        "~ bs(x, knots=[0.5, 1]) + g * age",
        "~ 0 + g + age",
        "~ 0 + age:x + sex",
    ],
)
def test_means_and_intervals_are_those_of_formulaics_design(formula):
    design = formulaic.model_matrix(formula, TABLE)
    has_intercept = "Intercept" in design.columns
    model = fitted(formula, design.shape[1] - has_intercept, has_intercept)
    inference = model.inference_
    named = ["intercept" if one == "Intercept" else one for one in design.columns]
    assert list(inference.names) == named
    D = design.to_numpy(dtype=float)
    scores = model.decision_function(TABLE)
    np.testing.assert_allclose(D @ inference.params, scores, rtol=1e-8, atol=1e-8)
    # The variance of a score is the same, whether it is that of fitted or of reported columns.
    encoded = model._transformed(TABLE)
    inner = model.estimator_.inference_
    u = np.column_stack([np.ones(len(encoded)), encoded]) if has_intercept else encoded
    np.testing.assert_allclose(
        np.einsum("ij,jk,ik->i", D, inference.covariance, D),
        np.einsum("ij,jk,ik->i", u, inner.covariance, u),
        rtol=1e-6,
    )
    half = stats.norm.ppf(0.975) * np.sqrt(np.einsum("ij,jk,ik->i", D, inference.covariance, D))
    expected = expit(np.column_stack([scores - half, scores + half]))
    np.testing.assert_allclose(model.inference_.prediction_interval(TABLE), expected, atol=1e-8)
