"""What "auto" chooses, and that it chooses by public facts alone."""

import math

import numpy as np
import pytest

from dpglm import LogisticRegression
from dpglm.data.rows import DataSpec
from dpglm.preprocessing import Center, Whiten
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.problem import (
    L1,
    L2,
    L2Ball,
    Logistic,
    Poisson,
    Problem,
    Savage,
    Softmax,
    Sparsemax,
    Squared,
)
from dpglm.solvers import (
    SOLVERS,
    Auto,
    Calibrated,
    Newton,
    NoisyGD,
    ObjectivePerturbation,
    Preprocessed,
    Prototypes,
    SufficientStatistics,
    choose,
    pure_gd,
)
from dpglm.solvers.minimizer.objective_perturbation import ObjectivePerturbationMethod
from tests.slowly import together

SMALL = DataSpec(1000, 20, target_low=-1.0, target_high=1.0)
BUDGET = ApproximateDP(1.0, 1e-5)
# Two thirds of the usual clip, for rows of length 1.
LAST_LAYER = DataSpec(60_000, 2048, n_outputs=10, intercept=1.0)
CENTERED = Preprocessed([Center(intercept=0.25)], NoisyGD(clip=0.5, shrink=True))
USUAL_CLIP = Preprocessed([Center(intercept=0.25)], NoisyGD(shrink=True))
COMPARED = NoisyGD(compare=True)
ROBUST = NoisyGD(clip=0.6 * 0.375, shrink=True, compare=True)
WHITENED = Preprocessed([Center(intercept=0.25), Whiten(exponent=0.25)], NoisyGD(shrink=True))
STEPS = NoisyGD(n_steps=100, momentum=0.8)
CODES = Preprocessed([Center(intercept=0.25)], STEPS, [0.03])
CODES_WHITENED = Preprocessed([Center(intercept=0.25), Whiten()], STEPS, [0.03, None])


@together(
    ("loss", "budget", "data", "expected"),
    [
        (Logistic(), BUDGET, SMALL, Newton()),
        (Logistic(), GaussianDP(0.5), SMALL, Newton()),
        (Softmax(), BUDGET, DataSpec(1000, 20, n_outputs=3), Newton()),
        (Squared(), BUDGET, SMALL, SufficientStatistics()),
        (
            Squared(),
            BUDGET,
            DataSpec(1000, 64, target_low=0.0, target_high=1.0),
            SufficientStatistics(),
        ),
        (Squared(), BUDGET, DataSpec(1000, 65, target_low=0.0, target_high=1.0), Newton()),
        (Savage(), BUDGET, SMALL, ROBUST),
        (Savage(), GaussianDP(1.0), DataSpec(79 * 20, 20), ROBUST),
        (Savage(), GaussianDP(1.0), DataSpec(80 * 20, 20), NoisyGD(shrink=True, compare=True)),
        (Logistic(), BUDGET, DataSpec(1000, 301), COMPARED),
        (Logistic(), BUDGET, DataSpec(1000, 299, intercept=1.0), Newton()),
        (Logistic(), BUDGET, DataSpec(1000, 300, intercept=1.0), Calibrated(CENTERED)),
        (Softmax(), BUDGET, DataSpec(60_000, 784, n_outputs=10, intercept=1.0), WHITENED),
        (Softmax(), ApproximateDP(1.0, 1e-5), LAST_LAYER, WHITENED),
        (Softmax(), BUDGET, DataSpec(60_000, 2100, n_outputs=10, intercept=1.0), USUAL_CLIP),
        (Logistic(), BUDGET, DataSpec(60_000, 784, intercept=1.0), Calibrated(CENTERED)),
        (Logistic(), GaussianDP(1.0), DataSpec(79 * 400, 399, intercept=1.0), Calibrated(CENTERED)),
        (
            Logistic(),
            GaussianDP(1.0),
            DataSpec(80 * 400, 399, intercept=1.0),
            Calibrated(USUAL_CLIP),
        ),
        (
            Logistic(),
            GaussianDP(1.0),
            DataSpec(179 * 400, 399, intercept=1.0),
            Calibrated(USUAL_CLIP),
        ),
        (Logistic(), GaussianDP(1.0), DataSpec(180 * 400, 399, intercept=1.0), Newton()),
        (
            Logistic(),
            GaussianDP(1.0),
            DataSpec(180 * 1001, 1000, intercept=1.0),
            Calibrated(USUAL_CLIP),
        ),
        (Logistic(), GaussianDP(1.0), DataSpec(2**20, 300, intercept=1.0), Calibrated(USUAL_CLIP)),
        (Logistic(), BUDGET, DataSpec(1000, 300, intercept=1.0, sparse=True), Calibrated(CENTERED)),
        (
            Softmax(),
            BUDGET,
            DataSpec(60_000, 784, n_outputs=10, intercept=1.0, sparse=True),
            WHITENED,
        ),
        (
            Logistic(),
            BUDGET,
            DataSpec(1000, 1000, intercept=1.0, sparse=True),
            Calibrated(COMPARED),
        ),
        (
            Logistic(),
            BUDGET,
            DataSpec(2**20, 300, intercept=1.0, sparse=True),
            Calibrated(COMPARED),
        ),
        (
            Poisson(),
            BUDGET,
            DataSpec(1000, 900, intercept=1.0, target_low=0.0, target_high=1.0),
            Newton(),
        ),
        (
            Poisson(),
            BUDGET,
            DataSpec(1000, 1000, intercept=1.0, target_low=0.0, target_high=1.0),
            USUAL_CLIP,
        ),
        (Logistic(), BUDGET, DataSpec(2**22, 300, intercept=1.0), Calibrated(COMPARED)),
        (Savage(), BUDGET, DataSpec(1000, 300, intercept=1.0), ROBUST),
        (Squared(), BUDGET, DataSpec(2**26, 5, target_low=0.0, target_high=1.0), COMPARED),
        (Logistic(), ApproximateDP(1.0, 0.0), SMALL, ObjectivePerturbation()),
        (Softmax(), ApproximateDP(1.0, 0.0), DataSpec(1000, 20, n_outputs=3), pure_gd()),
        (Sparsemax(), ApproximateDP(0.1, 1e-5), LAST_LAYER, CODES),
        (Sparsemax(), ApproximateDP(0.3, 1e-5), LAST_LAYER, CODES_WHITENED),
        (Sparsemax(), BUDGET, DataSpec(2_000, 20, n_outputs=3), COMPARED),
        (
            Sparsemax(),
            ApproximateDP(1.0, 0.0),
            DataSpec(1000, 5000, n_outputs=3),
            Prototypes(),
        ),
    ],
)
def test_choice(loss, budget, data, expected):
    assert choose(Problem(loss), budget, data) == expected
    assert Auto().plan(Problem(loss), budget, data) == expected.plan(Problem(loss), budget, data)


@pytest.mark.parametrize(("dtype", "expected"), [("float32", COMPARED), ("float64", CENTERED)])
def test_sparse_rows_are_centered_with_bounded_dense_sums(dtype, expected):
    data = DataSpec(1000, 400, intercept=1.0, sparse=True, dtype=dtype)
    problem = Problem(Logistic())
    assert choose(problem, BUDGET, data, Adjacency.ADD_REMOVE) == Calibrated(expected)
    assert Auto().plan(problem, BUDGET, data, Adjacency.ADD_REMOVE).data == data


@pytest.mark.parametrize(
    ("problem", "adjacency", "expected"),
    [
        (Problem(Softmax(), L2(1.0 / 60_000)), Adjacency.ZERO_OUT, WHITENED),
        (Problem(Softmax(), L2(2.0 / 60_000)), Adjacency.ZERO_OUT, USUAL_CLIP),
        (Problem(Softmax(), L1(1e-6)), Adjacency.ZERO_OUT, USUAL_CLIP),
        (Problem(Softmax(), constraint=L2Ball(1.0)), Adjacency.ZERO_OUT, USUAL_CLIP),
        (
            Problem(Softmax(), L1(1e-6), penalize_intercept=True),
            Adjacency.ZERO_OUT,
            Preprocessed([Center()], NoisyGD(shrink=True)),
        ),
    ],
)
def test_rows_are_whitened_only_where_the_objective_stays(problem, adjacency, expected):
    data = DataSpec(60_000, 784, n_outputs=10, intercept=1.0)
    assert choose(problem, BUDGET, data, adjacency) == expected


def test_clips_of_codes_grow_with_budget_and_rows():
    centred = DataSpec(80 * 21, 20, n_outputs=3, intercept=1.0)
    as_they_are = DataSpec(80 * 20, 20, n_outputs=3)
    usual = 0.15 * math.sqrt(2)
    for mu, factor in ((0.5, None), (1.0, None), (4.0, 2.0), (1000.0, 5.0)):
        steps = choose(Problem(Sparsemax()), GaussianDP(mu), centred).solver
        others = choose(Problem(Sparsemax()), GaussianDP(mu), as_they_are)
        for solver in (steps, others):
            assert solver.clip == (None if factor is None else pytest.approx(factor * usual))


def test_second_moments_must_stand_out_of_their_noise():
    data = DataSpec(30_000, 784, n_outputs=10, intercept=1.0)
    problem = Problem(Softmax())
    for epsilon, adjacency, expected in (
        (1.0, Adjacency.ZERO_OUT, WHITENED),
        (1.0, Adjacency.REPLACE_ONE, USUAL_CLIP),
        (0.3, Adjacency.ZERO_OUT, USUAL_CLIP),
    ):
        assert choose(problem, ApproximateDP(epsilon, 1e-5), data, adjacency) == expected


def test_estimators_use_it():
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


def test_single_precision_keeps_the_solver_at_delta_zero():
    X = np.random.default_rng(0).uniform(-1, 1, size=(5000, 2)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    model = LogisticRegression(epsilon=2.0, delta=0.0, classes=[0, 1], feature_bounds=(-1, 1))
    plan = model.fit(X, y).solution_.plan
    assert isinstance(plan.method, ObjectivePerturbationMethod)
    assert plan.method.pure
    assert plan.data.dtype == "float64"
    assert model.set_params(delta=1e-5).fit(X, y).solution_.plan.data.dtype == "float32"
