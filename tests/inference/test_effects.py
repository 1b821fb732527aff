"""Adjusted predictions and marginal effects: as in statsmodels, and by simulation."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpglm import LogisticRegression, from_formula
from dpglm.estimators import PoissonRegressor
from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import LinearScores

# get_margeff(at="mean", atexog={1: age, 2: 0.0, 3: 0.0}, dummy=True) of statsmodels 0.15.0 for
# discrete.Logit and discrete.Poisson of these rows without noise: effects, and standard errors.
MARGINS = {
    (False, 25.0): (
        [0.00651551594780944, 0.17936703460165282, -0.08864823176599995],
        [0.0003840485035258332, 0.02231884807729255, 0.01822297820734742],
    ),
    (False, 50.0): (
        [0.007578504425111719, 0.18139050060449374, -0.11137728121237028],
        [0.0005736003736776735, 0.022358798115165193, 0.02257871681087357],
    ),
    (False, 80.0): (
        [0.006283964552689542, 0.13016752106462315, -0.10209924325158559],
        [0.00034349411766277694, 0.016837469165696214, 0.020929951116460538],
    ),
    (True, 25.0): (
        [0.01373353232785596, 0.5850912913485489, -0.1604730709713318],
        [0.00040595760723482647, 0.030606912306667063, 0.01766681876550121],
    ),
    (True, 50.0): (
        [0.029942347696709202, 1.275637356919511, -0.3498692377369196],
        [0.0010971429234262911, 0.05398222764506055, 0.03679461297842295],
    ),
    (True, 80.0): (
        [0.07629396103311999, 3.250360585850308, -0.8914768561558588],
        [0.0044491210995321676, 0.15076331937141624, 0.09469491421565324],
    ),
}
# GLM.get_prediction of the same release: mean, standard error and interval by age and dose.
PREDICTIONS = {
    "age = 30, dose = low": (0.346076944211, 0.018074579955, 0.311553710945, 0.382301344775),
    "age = 30, dose = high": (0.251409967024, 0.015608292748, 0.222068463527, 0.283216892302),
    "age = 70, dose = low": (0.640262443925, 0.018083218491, 0.604111020647, 0.674889234504),
    "age = 70, dose = high": (0.530393837002, 0.019810803571, 0.491459717116, 0.568961488244),
}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

COLUMNS = {
    "age": {"type": "numeric", "low": 20, "high": 80},
    "dose": {"type": "categorical", "categories": ["low", "mid", "high"]},
}


def table(count=False, n_rows=3000):
    rng = np.random.default_rng(0)
    age, dose = rng.uniform(20, 80, n_rows), rng.choice(["low", "mid", "high"], n_rows)
    score = 0.03 * (age - 50) + 0.8 * (dose == "mid") - 0.5 * (dose == "high")
    y = rng.poisson(np.exp(score)) if count else (score + rng.logistic(size=n_rows) > 0)
    return {"age": age, "dose": dose, "y": y.astype(int)}


def maximum_likelihood(X, y, count):
    """Return the estimate without noise and its covariance, by Newton's method."""
    beta = np.zeros(X.shape[1])
    for _ in range(30):
        z = X @ beta
        mean = np.exp(z) if count else 1.0 / (1.0 + np.exp(-z))
        information = (X * (mean if count else mean * (1.0 - mean))[:, np.newaxis]).T @ X
        beta = beta + np.linalg.solve(information, X.T @ (y - mean))
    return beta, np.linalg.inv(information)


def without_noise(formula="y ~ age + C(dose)", count=False):
    """Return the inference of a fit with the estimates that it would have without noise."""
    rows = table(count)
    binary = {"name": "y", "type": "binary", "classes": [0, 1]}
    target = {"name": "y", "type": "count", "high": 60} if count else binary
    estimator = (PoissonRegressor if count else LogisticRegression)(inference=True)
    schema = {"columns": COLUMNS, "target": target, "provenance": "made up"}
    model = from_formula(formula, schema, estimator, epsilon=5.0, random_state=0).fit(rows)
    inference = model.inference_
    features = inference.scores.features
    X = np.insert(np.asarray(features(rows), dtype=np.float64), 0, 1.0, axis=1)
    params, covariance = maximum_likelihood(X, rows["y"], count)
    names, none = inference.scores.estimates.names, np.zeros_like(covariance)
    estimates = Estimates(names, params, covariance, none, np.eye(len(params)), True)
    return dataclasses.replace(inference, scores=LinearScores(features, estimates))


@pytest.mark.parametrize("count", [False, True])
def test_marginal_effects_are_those_of_statsmodels(count):
    inference = without_noise(count=count)
    for age in (25.0, 50.0, 80.0):
        effects, errors = MARGINS[count, age]
        found = inference.marginal_effects(at={"age": age})
        assert found.names[0] == f"age, per unit, age = {age:g}"
        assert found.names[1] == f"dose: mid - low, age = {age:g}"
        assert found.estimates == pytest.approx(effects, rel=1e-4)
        assert found.standard_errors == pytest.approx(errors, rel=1e-3)
        half = 0.5 * np.diff(found.intervals, axis=1)[:, 0]
        assert half == pytest.approx(1.959964 * np.array(errors), rel=1e-3)
    # An error that leaves out the change of the derivative is found.
    own = inference.scores.estimates
    score_slope = 2.0 / 60.0 * own.params[1]
    planted = found.estimates[0] / score_slope * 2.0 / 60.0 * np.sqrt(own.covariance[1, 1])
    assert abs(planted / errors[0] - 1.0) > 0.1


def test_adjusted_predictions_are_those_of_statsmodels():
    found = without_noise().adjusted_predictions({"age": [30, 70], "dose": ["low", "high"]})
    assert found.names == tuple(PREDICTIONS)
    mean, error, low, high = np.array([*PREDICTIONS.values()]).T
    assert found.estimates == pytest.approx(mean, rel=1e-5)
    assert found.standard_errors == pytest.approx(error, rel=1e-3)
    assert found.intervals == pytest.approx(np.column_stack([low, high]), rel=1e-3)
    assert "[0.025" in str(found)
    assert len(found.to_frame()) == 4


def test_effects_of_a_spline_with_interaction_have_the_simulated_error():
    inference = without_noise("y ~ bs(age, df=4) * C(dose)")
    found = inference.marginal_effects("age", at={"age": [35, 60], "dose": "mid"})
    estimates = inference.scores.estimates
    ages = np.array([35.0, 60.0])
    rows = {"age": np.r_[ages - 0.01, ages + 0.01], "dose": np.array(["mid"] * 4)}
    X = np.insert(np.asarray(inference.scores.features(rows), dtype=float), 0, 1.0, axis=1)
    root = np.linalg.cholesky(estimates.covariance)
    draws = np.random.default_rng(0).normal(size=(len(root), 20_000))
    means = 1.0 / (1.0 + np.exp(-X @ (estimates.params[:, np.newaxis] + root @ draws)))
    slopes = (means[2:] - means[:2]) / 0.02
    assert found.estimates == pytest.approx(slopes.mean(axis=1), rel=0.05)
    assert found.standard_errors == pytest.approx(slopes.std(axis=1), rel=0.05)


def test_both_kinds_of_uncertainty_are_in_intervals():
    inference = without_noise()
    own = inference.scores.estimates
    noisy = dataclasses.replace(own, privacy=3.0 * own.sampling)
    scores = dataclasses.replace(inference.scores, estimates=noisy)
    both = dataclasses.replace(inference, scores=scores)
    for name in ("adjusted_predictions", "marginal_effects"):
        alone, found = getattr(inference, name)(), getattr(both, name)()
        assert found.standard_errors == pytest.approx(2.0 * alone.standard_errors)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda one: one.adjusted_predictions({"ward": 1}), "at must have columns of the model"),
        (lambda one: one.adjusted_predictions({"age": 81}), "age must be"),
        (lambda one: one.adjusted_predictions({"dose": "none"}), "dose"),
        (lambda one: one.adjusted_predictions({"age": []}), "at must have 1 to 1000"),
        (lambda one: one.adjusted_predictions(level=1.0), "level"),
        (lambda one: one.marginal_effects("ward"), "columns must be one of"),
        (lambda one: one.marginal_effects("dose", at={"dose": "mid"}), "at must not name 'dose'"),
    ],
)
def test_wrong_argument_is_named(call, match):
    inference = without_noise()
    with pytest.raises(ValueError, match=match):
        call(inference)


def test_effects_need_a_table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(2000, 2))
    model = LogisticRegression(inference=True, classes=[0, 1], feature_bounds=(-1, 1))
    fitted = model.fit(X, (X[:, 0] + rng.logistic(size=2000) > 0).astype(int))
    with pytest.raises(ValueError, match="effects need a model of a table"):
        fitted.inference_.marginal_effects()
