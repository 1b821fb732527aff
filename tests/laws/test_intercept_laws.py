"""Without an intercept a fit is that of the same model without privacy: nothing takes its place."""

import math

import numpy as np
import pytest
from scipy import optimize, sparse

from dpglm import (
    BinomialRegressor,
    GammaRegressor,
    GeneralizedLinearRegressor,
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    NegativeBinomialRegressor,
    PoissonRegressor,
    PrivatePipeline,
    Ridge,
    RidgeClassifier,
    TweedieRegressor,
    from_formula,
)
from dpglm.preprocessing import SchemaEncoder
from dpglm.problem import (
    Binomial,
    ComplementaryLogLog,
    Gamma,
    Huber,
    IdentityLink,
    Logistic,
    LogLink,
    NegativeBinomial,
    Poisson,
    Probit,
    Sparsemax,
    Squared,
    Tweedie,
)
from dpglm.tables.schema import Schema

N = 6000
LOW, HIGH = np.array([1.0, 0.0, -1.0]), np.array([4.0, 10.0, 1.0])
W = np.array([0.35, -0.06, 0.3])
AMPLE = {"epsilon": 1e6, "delta": 1e-6, "fit_intercept": False}


def rows():
    rng = np.random.default_rng(5)
    return rng, rng.uniform(LOW, HIGH, size=(N, 3))


def numbers(kind):
    rng, X = rows()
    z = X @ W
    mean = np.exp(z)
    if kind == "real":
        return X, np.clip(z + 6.0 + rng.normal(size=N), 0.0, 12.0)
    if kind == "count":
        return X, np.minimum(rng.poisson(mean), 20).astype(float)
    if kind == "amount":
        return X, np.clip(rng.gamma(2.0, mean / 2.0), 0.01, 30.0)
    return X, (rng.uniform(size=N) < 1.0 / (1.0 + np.exp(-z))).astype(float)


BOUNDS = {"real": (0.0, 12.0), "count": (0, 20), "amount": (0.01, 30.0), "share": None}
CASES = {
    "squared": (LinearRegression(), Squared(), "real"),
    "ridge": (Ridge(alpha=0.0), Squared(), "real"),
    "huber": (HuberRegressor(threshold=1.5, alpha=0.0), Huber(1.5), "real"),
    "poisson": (PoissonRegressor(alpha=0.0), Poisson(), "count"),
    "any": (GeneralizedLinearRegressor(loss="poisson"), Poisson(), "count"),
    "negative binomial": (
        NegativeBinomialRegressor(dispersion=0.5),
        NegativeBinomial(0.5),
        "count",
    ),
    "tweedie": (TweedieRegressor(power=1.4, alpha=0.0), Tweedie(1.4), "amount"),
    "gamma": (GammaRegressor(alpha=0.0), Gamma(), "amount"),
    "logit": (BinomialRegressor(link="logit"), Binomial(), "share"),
    "probit": (BinomialRegressor(link="probit"), Probit(), "share"),
    "cloglog": (BinomialRegressor(link="cloglog"), ComplementaryLogLog(), "share"),
}


def without_privacy(loss, X, y):
    """Minimise the mean loss in the user's units, by Newton's method."""
    found = optimize.minimize(
        lambda w: loss.value(X @ w, y).mean(),
        np.zeros(X.shape[1]),
        jac=lambda w: X.T @ loss.slope(X @ w, y) / len(y),
        hess=lambda w: (X.T * loss.curvature(X @ w, y)) @ X / len(y),
        method="trust-exact",
        options={"gtol": 1e-10},
    )
    return found.x


def close(found, expected, X, tolerance=2e-3):
    """Compare scores, in which coefficients of all units are alike."""
    np.testing.assert_allclose(X @ np.ravel(found), X @ expected, atol=tolerance * X.std())


def is_the_fit_without_privacy(case, **options):
    model, loss, kind = CASES[case]
    X, y = numbers(kind)
    fitted = type(model)(**model.get_params()).set_params(
        **AMPLE, target_bounds=BOUNDS[kind], feature_bounds=(LOW, HIGH), **options
    )
    fitted.fit(X, y)
    close(fitted.coef_, without_privacy(loss, X, y), X)
    assert fitted.intercept_ == 0.0
    return fitted, X


@pytest.mark.parametrize("case", list(CASES))
def test_regressors(case):
    is_the_fit_without_privacy(case)


@pytest.mark.parametrize("case", ["squared", "poisson", "gamma", "logit"])
def test_intervals_are_about_the_same_model(case):
    model, X = is_the_fit_without_privacy(case, inference=True)
    assert model.inference_.names == ("x0", "x1", "x2")
    np.testing.assert_allclose(model.inference_.params, model.coef_)
    ends = model.inference_.prediction_interval(X)
    means = model.predict(X)
    assert ((ends[:, 0] < means) & (means < ends[:, 1])).all()
    assert "Intercept:" in str(model.inference_.summary())


def centred_again(self, low, high, *, intercept=True):
    return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0


def test_targets_that_are_shifted_all_the_same_are_found_out(monkeypatch):
    monkeypatch.setattr(IdentityLink, "standardization", centred_again)
    with pytest.raises(AssertionError):
        is_the_fit_without_privacy("squared")


def test_counts_that_are_divided_all_the_same_are_found_out(monkeypatch):
    monkeypatch.setattr(LogLink, "standardization", lambda self, low, high, **_: (0.0, high))
    with pytest.raises(AssertionError):
        is_the_fit_without_privacy("poisson")


def test_a_classifier():
    X, y = numbers("share")
    model = LogisticRegression(
        C=math.inf, classes=[0, 1], feature_bounds=(LOW, HIGH), inference=True, **AMPLE
    ).fit(X, y.astype(int))
    close(model.coef_, without_privacy(Logistic(), X, 2 * y - 1), X)
    assert model.intercept_.tolist() == [0.0]
    assert model.inference_.names == ("x0", "x1", "x2")


def classes_without_privacy(X, y, n_classes):
    """Predict by least squares of two classes' codes, or by the sparsemax loss of more."""
    codes = 2.0 * (y[:, None] == np.arange(n_classes)) - 1.0
    if n_classes == 2:
        return (X @ np.linalg.lstsq(X, codes)[0]).argmax(axis=1)
    loss, Z = Sparsemax(), X / np.abs(X).max(axis=0)

    def mean_loss(w):
        z = Z @ w.reshape(-1, n_classes)
        return loss.value(z, y).mean(), (Z.T @ loss.slope(z, y)).ravel() / len(y)

    found = optimize.minimize(mean_loss, np.zeros(X.shape[1] * n_classes), jac=True)
    return (Z @ found.x.reshape(-1, n_classes)).argmax(axis=1)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_least_squares_of_classes_ranks_them_as_without_privacy(n_classes):
    _, X = rows()
    y = np.minimum((X[:, 1] / 4.0).astype(int), n_classes - 1)
    model = RidgeClassifier(
        classes=range(n_classes), alpha=0.0, feature_bounds=(LOW, HIGH), **AMPLE
    ).fit(X, y)
    assert not np.any(model.intercept_)
    expected = classes_without_privacy(X, y, n_classes)
    assert (model.predict(X) == expected).mean() > 0.995


def test_sparse_rows():
    X, _ = numbers("real")
    X = X * (X[:, [1, 2, 0]] > 0.5)
    y = np.clip(X @ W, -3.0, 3.0)
    model = LinearRegression(
        target_bounds=(-3, 3), feature_bounds=(np.minimum(LOW, 0.0), HIGH), **AMPLE
    ).fit(sparse.csr_array(X), y)
    close(model.coef_, np.linalg.lstsq(X, y)[0], X)
    assert model.intercept_ == 0.0


SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 16, "high": 90},
        "region": {"type": "categorical", "categories": ["north", "south", "west"]},
    },
    "provenance": "the questionnaire",
}
TARGETS = {
    "real": {"name": "y", "type": "numeric", "low": 0, "high": 20},
    "count": {"name": "y", "type": "count", "high": 40},
}


def table(kind):
    rng = np.random.default_rng(6)
    age, region = rng.uniform(16, 90, N), rng.choice(["north", "south", "west"], N)
    z = 0.015 * age + 0.4 * (region == "south") - 0.2 * (region == "west")
    y = np.clip(z + 5.0 + rng.normal(size=N), 0, 20) if kind == "real" else rng.poisson(np.exp(z))
    return {"age": age, "region": region, "y": np.minimum(y, 20)}


@pytest.mark.parametrize("kind", ["real", "count"])
@pytest.mark.parametrize(
    ("terms", "columns"), [("0 + age", 1), ("age - 1", 1), ("0 + C(region) + age", 4)]
)
def test_formulas(kind, terms, columns):
    pytest.importorskip("formulaic")
    data, loss = table(kind), Squared() if kind == "real" else Poisson()
    model = from_formula(
        f"y ~ {terms}",
        SCHEMA | {"target": TARGETS[kind]},
        inference=True,
        epsilon=1e6,
        delta=1e-6,
    ).fit(data)
    levels = [data["region"] == one for one in ("north", "south", "west")]
    X = np.column_stack([*levels, data["age"]]).astype(float)[:, -columns:]
    close(model.inference_.params, without_privacy(loss, X, data["y"]), X)
    assert len(model.inference_.names) == columns
    assert model.intercept_ == 0.0
    ends, means = model.inference_.prediction_interval(data), model.predict(data)
    assert ((ends[:, 0] < means) & (means < ends[:, 1])).all()


def test_formula_decides_on_the_intercept():
    pytest.importorskip("formulaic")
    with pytest.raises(ValueError, match=r"fit_intercept must be True.*'0 \+'"):
        from_formula("y ~ age", SCHEMA | {"target": TARGETS["real"]}, fit_intercept=False)


def test_an_encoder_s_columns_are_fitted_as_they_are():
    """In the table's units their centres make an intercept, and that is said."""
    data, schema = table("real"), Schema.from_dict(SCHEMA | {"target": TARGETS["real"]})
    estimator = LinearRegression(
        fit_intercept=False, inference=True, **schema.target.estimator_parameters()
    )
    model = PrivatePipeline([SchemaEncoder(schema), estimator], epsilon=1e6, delta=1e-6)
    model.fit(data)
    X = schema.encode(data)
    close(model.coef_, np.linalg.lstsq(X, data["y"])[0], X)
    assert model.intercept_ == 0.0
    ends, means = model.inference_.prediction_interval(data), model.predict(data)
    assert ((ends[:, 0] < means) & (means < ends[:, 1])).all()
