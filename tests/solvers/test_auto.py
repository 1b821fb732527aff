"""What "auto" chooses, and that it chooses by public facts alone."""

import numpy as np
import pytest

from dpglm import LogisticRegression
from dpglm.data.spec import DataSpec
from dpglm.privacy import ApproximateDP, GaussianDP
from dpglm.problem import Logistic, Problem, Savage, Softmax, Squared
from dpglm.solvers import Auto, Newton, NoisyGD, PureGD, SufficientStatistics, choose
from dpglm.solvers.registry import SOLVERS

SMALL = DataSpec(1000, 20, target_low=-1.0, target_high=1.0)
BUDGET = ApproximateDP(1.0, 1e-5)


@pytest.mark.parametrize(
    ("loss", "budget", "data", "expected"),
    [
        (Logistic(), BUDGET, SMALL, Newton()),
        (Logistic(), GaussianDP(0.5), SMALL, Newton()),
        (Softmax(), BUDGET, DataSpec(1000, 20, n_outputs=3), Newton()),
        (Squared(), BUDGET, SMALL, SufficientStatistics()),
        (Savage(), BUDGET, SMALL, NoisyGD()),
        (Logistic(), BUDGET, DataSpec(1000, 301), NoisyGD()),
        (Logistic(), BUDGET, DataSpec(1000, 299, intercept=1.0), Newton()),
        (Logistic(), BUDGET, DataSpec(1000, 300, intercept=1.0), NoisyGD()),
        (Squared(), BUDGET, DataSpec(2**26, 5, target_low=0.0, target_high=1.0), NoisyGD()),
        (Logistic(), ApproximateDP(1.0, 0.0), SMALL, PureGD()),
    ],
)
def test_choice(loss, budget, data, expected):
    assert choose(Problem(loss), budget, data) == expected
    assert Auto().plan(Problem(loss), budget, data) == expected.plan(Problem(loss), budget, data)


def test_is_what_estimators_use():
    assert SOLVERS["auto"]() == Auto()
    model = LogisticRegression(row_norm=1.0, delta=1e-5)
    assert model.plan(1000, 20) == LogisticRegression(
        row_norm=1.0, delta=1e-5, solver="newton"
    ).plan(1000, 20)


def test_a_delta_of_zero_is_pure_differential_privacy():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(5000, 2))
    model = LogisticRegression(epsilon=2.0, delta=0.0, classes=[0, 1], feature_bounds=(-1, 1))
    model.fit(X, (X[:, 0] > 0).astype(int))
    assert model.privacy_.delta == 0.0
    assert model.privacy_.epsilon <= 2.0
    assert model.score(X, (X[:, 0] > 0).astype(int)) > 0.9
