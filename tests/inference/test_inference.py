"""Intervals and tests are those of the released covariance, in the user's units."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.preprocessing import FunctionTransformer

from dpglm import (
    ApproximateDP,
    BinomialRegressor,
    ElasticNet,
    GeneralizedLinearRegressor,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PlanMismatchError,
    PoissonRegressor,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    Ridge,
    RobustClassifier,
)
from dpglm.certificate import verify
from dpglm.preprocessing import Center, SchemaEncoder
from dpglm.problem import L2Ball
from dpglm.report import load_model, save_model
from tests.inference.planted import given

W = (0.7, -0.4, 0.2, 0.1)
LOW, HIGH = np.array([-1.0, 10.0, 0.0]), np.array([3.0, 50.0, 0.5])
N = 200


def rows(n=N):
    rng = np.random.default_rng(3)
    return rng.uniform(LOW, HIGH, size=(n, 3)), rng.integers(0, 2, size=n)


def fitted(kind=LogisticRegression, X=None, solver=None, **options):
    own = {} if "target_bounds" in kind().get_params() else {"classes": [0, 1]}
    options = {"inference": True, "feature_bounds": (LOW, HIGH), **own, **options}
    X, y = rows() if X is None else (X, np.arange(X.shape[0]) % 2)
    return kind(solver=solver or given(W), **options).fit(X, y)


MODELS = {
    "logistic": (LogisticRegression, {}),
    "linear": (LinearRegression, {"target_bounds": (-3.0, 9.0)}),
    "counts": (PoissonRegressor, {"target_bounds": (0.0, 7.0), "alpha": 0.0}),
}


@pytest.mark.parametrize("name", MODELS)
def test_means_and_variances_are_equal_in_both_units(name):
    """The map of the covariance is that of the coefficients: prepared rows are the witness."""
    kind, options = MODELS[name]
    model = fitted(kind, **options)
    X, _ = rows()
    solver = model.solver
    reach = math.sqrt(3.0)
    prepared = np.column_stack(
        [(X - (LOW + HIGH) / 2) / ((HIGH - LOW) / 2), np.full(len(X), reach)]
    )
    factor, offset = {"logistic": (1, 0), "linear": (6, 3), "counts": (1, math.log(7))}[name]
    score = factor * (prepared @ W) + offset
    covariance = np.array(solver.sampling) + np.array(solver.privacy)
    error = factor * np.sqrt(np.einsum("ij,jk,ik->i", prepared, covariance, prepared))
    inverse = {"logistic": lambda z: 1 / (1 + np.exp(-z)), "linear": lambda z: z, "counts": np.exp}
    z = stats.norm.ppf(0.975)
    expected = np.column_stack([inverse[name](score - z * error), inverse[name](score + z * error)])
    found = model.inference_.prediction_interval(X)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(model.inference_.params[1:], np.ravel(model.coef_), rtol=1e-12)
    np.testing.assert_allclose(model.inference_.params[0], model.intercept_, rtol=1e-12)
    assert model.inference_.names == ("intercept", "x0", "x1", "x2")


def test_a_covariance_that_is_mapped_otherwise_is_found():
    """Planted: the covariance scaled as the coefficients are, but not shifted to the intercept."""
    model = fitted()
    half = (HIGH - LOW) / 2
    scale = np.diag([math.sqrt(3.0), *(1 / half)])
    full = np.array(model.solver.sampling) + np.array(model.solver.privacy)
    wrong = scale @ np.roll(full, (1, 1), (0, 1)) @ scale
    right = model.inference_.covariance
    np.testing.assert_allclose(wrong[1:, 1:], right[1:, 1:], rtol=1e-12)
    assert right[0, 0] > 1.1 * wrong[0, 0]


def test_parts_and_shares():
    inference = fitted().inference_
    one = inference.estimates
    np.testing.assert_allclose(inference.covariance, one.sampling + one.privacy)
    shares = inference.privacy_shares
    assert ((shares > 0) & (shares < 1)).all()
    np.testing.assert_allclose(shares * inference.standard_errors**2, np.diag(one.privacy))


@pytest.mark.parametrize("freedom", [math.inf, 4.5])
def test_intervals_and_p_values_are_dual(freedom):
    inference = fitted(solver=given(W, degrees_of_freedom=freedom)).inference_
    law = stats.norm() if math.isinf(freedom) else stats.t(freedom)
    expected = 2 * law.sf(abs(inference.params / inference.standard_errors))
    np.testing.assert_allclose(inference.p_values, expected)
    for place, p in enumerate(inference.p_values):
        ends = inference.conf_int(1 - p)[place]
        assert min(abs(ends)) < 1e-9 * inference.standard_errors[place] + 1e-12
        single = inference.wald_test(np.eye(4)[place])
        assert single.p_value == pytest.approx(p)
    wide, narrow = inference.conf_int(0.99), inference.conf_int(0.8)
    assert (wide[:, 0] < narrow[:, 0]).all()
    assert (narrow[:, 1] < wide[:, 1]).all()


@pytest.mark.parametrize("freedom", [math.inf, 7.0])
def test_wald_tests_are_chi_square_or_f(freedom):
    inference = fitted(solver=given(W, degrees_of_freedom=freedom)).inference_
    R, r = np.array([[0.0, 1.0, -2.0, 0.0], [0.0, 0.0, 0.5, 1.0]]), np.array([0.1, 0.2])
    gap = R @ inference.params - r
    statistic = gap @ np.linalg.inv(R @ inference.covariance @ R.T) @ gap
    test = inference.wald_test(R, r)
    if math.isinf(freedom):
        assert test.statistic == pytest.approx(statistic)
        assert test.p_value == pytest.approx(stats.chi2(2).sf(statistic))
    else:
        assert test.statistic == pytest.approx(statistic / 2)
        assert test.p_value == pytest.approx(stats.f(2, freedom).sf(statistic / 2))
    named = inference.wald_test(["x0", "x2"])
    assert named == inference.wald_test(np.eye(4)[[1, 3]])
    assert named.df == 2


@pytest.mark.parametrize(
    ("R", "message"),
    [
        (np.zeros((1, 4)), "restrict"),
        (np.ones((1, 3)), "shape"),
        (["x0", "income"], "income"),
        ([[math.nan, 0, 0, 0]], "finite"),
    ],
)
def test_hypotheses_that_cannot_be_tested_are_refused(R, message):
    with pytest.raises(ValueError, match=message):
        fitted().inference_.wald_test(R)


@pytest.mark.parametrize("level", [0.0, 1.0, 95, math.nan])
def test_levels_are_probabilities(level):
    inference = fitted().inference_
    for ask in (inference.conf_int, inference.summary):
        with pytest.raises(ValueError, match="level"):
            ask(level)
    with pytest.raises(ValueError, match="level"):
        inference.prediction_interval(rows()[0], level)


def test_mean_intervals_stay_in_range_and_contain_prediction():
    X, _ = rows()
    wide = given(W)
    wide = dataclasses.replace(wide, sampling=tuple(map(tuple, np.eye(4) * 9.0)))
    model = fitted(solver=wide)
    ends = model.inference_.prediction_interval(X)
    middle = model.predict_proba(X)[:, 1]
    assert ((ends[:, 0] >= 0) & (ends[:, 0] < middle)).all()
    assert ((middle < ends[:, 1]) & (ends[:, 1] <= 1)).all()
    # Values beyond the bounds count as the bounds, as they do in predict.
    far = X + 100.0
    np.testing.assert_array_equal(
        model.inference_.prediction_interval(far),
        model.inference_.prediction_interval(np.minimum(far, HIGH)),
    )


@pytest.mark.parametrize("offset_bounds", [(-1.0, 1.5), (-9.0, 9.0)])
def test_means_of_rows_with_exposures_are_proportional_to_them(offset_bounds):
    X, _ = rows()
    exposure = np.linspace(0.5, 3.0, N)
    model = PoissonRegressor(
        inference=True,
        solver=given(W),
        feature_bounds=(LOW, HIGH),
        target_bounds=(0.0, 7.0),
        offset_bounds=offset_bounds,
    ).fit(X, np.arange(N) % 5, exposure=exposure)
    ends = model.inference_.prediction_interval(X, exposure=exposure)
    np.testing.assert_allclose(
        ends, model.inference_.prediction_interval(X) * exposure[:, np.newaxis]
    )
    means = model.predict(X, exposure=exposure)
    assert ((ends[:, 0] < means) & (means < ends[:, 1])).all()
    same = model.inference_.prediction_interval(X, offset=np.log(exposure))
    np.testing.assert_allclose(same, ends)


def test_sparse_rows_have_the_intervals_of_dense_ones():
    X, _ = rows()
    X = X * (np.random.default_rng(0).uniform(size=X.shape) < 0.5)
    bounds = (np.minimum(LOW, 0.0), np.maximum(HIGH, 0.0))
    model = fitted(X=sparse.csr_array(X), feature_bounds=bounds)
    inference = model.inference_
    np.testing.assert_allclose(
        inference.prediction_interval(sparse.csr_array(X)), inference.prediction_interval(X)
    )
    np.testing.assert_allclose(inference.params[1:], model.coef_[0])
    scale = np.maximum(-bounds[0], bounds[1])
    full = np.array(model.solver.sampling) + np.array(model.solver.privacy)
    np.testing.assert_allclose(inference.covariance[1:, 1:], full[:3, :3] / np.outer(scale, scale))


@pytest.mark.parametrize("bounds", [(-60.0, 60.0), (LOW, HIGH)])
def test_without_an_intercept_there_is_none_wherever_bounds_are(bounds):
    free = fitted(solver=given(W[:3]), fit_intercept=False, feature_bounds=bounds)
    assert free.inference_.names == ("x0", "x1", "x2")
    assert free.inference_.conf_int().shape == (3, 2)
    assert free.inference_.prediction_interval(rows()[0]).shape == (N, 2)
    assert free.intercept_.tolist() == [0.0]


def test_columns_go_by_the_users_names():
    pd = pytest.importorskip("pandas")
    X, y = rows()
    table = pd.DataFrame(X, columns=["age", "pay", "dose"])
    model = fitted().set_params(feature_bounds={"age": (-1, 3), "pay": (10, 50), "dose": (0, 0.5)})
    model.fit(table, y)
    inference = model.inference_
    assert inference.names == ("intercept", "age", "pay", "dose")
    assert inference.to_frame().loc["age", "coef"] == model.coef_[0, 0]
    assert list(inference.to_frame(0.9).columns)[4:6] == ["[0.05", "0.95]"]
    np.testing.assert_allclose(
        inference.prediction_interval(table), inference.prediction_interval(X)
    )
    with pytest.raises(ValueError, match="columns"):
        inference.prediction_interval(table[["pay", "age", "dose"]])


@pytest.mark.parametrize("kind", ["model", "robust"])
def test_summary_states_what_intervals_cover(kind):
    model = fitted(inference={"model": True, "robust": "robust"}[kind], epsilon=0.5)
    text = str(model.inference_.summary(0.9))
    assert "sampling error and privacy noise" in text
    assert "90 %" in text
    assert "epsilon 0.5" in text
    assert "zero_out" in text
    assert "100 % clipped gradient sum" in text
    assert "minimizer of the penalized expected loss" in " ".join(text.split())
    assert ("Sandwich" in text) == (kind == "robust")
    assert ("assumed to be right" in text) == (kind == "model")
    assert model.inference_.kind == kind
    assert max(map(len, text.splitlines())) <= 78
    for name in model.inference_.names:
        assert name in text
    assert "Student" not in text
    few = fitted(solver=given(W, degrees_of_freedom=6.0), C=math.inf).inference_
    assert "Student's t distribution with 6 degrees" in " ".join(str(few).split())
    assert "penalty" not in str(few)


def test_odds_and_rate_ratios():
    inference = fitted().inference_
    frame = inference.summary(exponentiate=True)
    headings = [one.heading for one in frame.columns]
    assert headings[0] == "odds ratio"
    assert "std err" not in headings
    np.testing.assert_allclose(frame.columns[0].values, np.exp(inference.params))
    np.testing.assert_allclose(frame.columns[3].values, np.exp(inference.conf_int()[:, 0]))
    counts = fitted(PoissonRegressor, target_bounds=(0.0, 7.0)).inference_
    assert "rate ratio" in str(counts.summary(exponentiate=True))
    means = fitted(LinearRegression, target_bounds=(0.0, 7.0)).inference_
    with pytest.raises(ValueError, match="IdentityLink"):
        means.summary(exponentiate=True)


def test_a_notebook_shows_an_escaped_table():
    pd = pytest.importorskip("pandas")
    X, y = rows()
    table = pd.DataFrame(X, columns=["<b>age</b>", "pay", "dose"])
    model = fitted().fit(table, y)
    page = model.inference_._repr_html_()
    assert "<b>age" not in page
    assert "&lt;b&gt;age" in page
    assert page.count("<tr>") >= 4
    assert "sampling error and privacy noise" in page


def test_inference_is_asked_for():
    model = fitted(inference=False)
    assert not hasattr(model, "inference_")
    again = fitted().set_params(inference=False).fit(*rows())
    assert not hasattr(again, "inference_")
    for wrong in ("model", None, 1):
        with pytest.raises(ValueError, match="inference"):
            fitted(inference=wrong)


def test_clones_pickles_and_certificates():
    model = fitted()
    assert clone(model).inference is True
    assert not hasattr(clone(model), "inference_")
    copy = pickle.loads(pickle.dumps(model))
    X, _ = rows()
    np.testing.assert_array_equal(copy.inference_.covariance, model.inference_.covariance)
    np.testing.assert_array_equal(
        copy.inference_.prediction_interval(X), model.inference_.prediction_interval(X)
    )
    assert verify(model.privacy_).ok


REFUSED = {
    "classes": (fitted, {"classes": [0, 1, 2]}, "one vector of coefficients"),
    "one against the rest": (
        fitted,
        {"classes": [0, 1, 2], "multi_class": "ovr"},
        "one vector of coefficients",
    ),
    "hinge": (fitted, {"kind": LinearSVC, "loss": "hinge", "inference": "robust"}, "smooth"),
    "not convex": (fitted, {"kind": RobustClassifier, "inference": "robust"}, "smooth convex"),
    "no likelihood": (fitted, {"kind": LinearSVC}, "likelihood"),
    "huber": (fitted, {"kind": HuberRegressor, "target_bounds": (0, 1)}, "likelihood"),
    "lasso": (fitted, {"kind": ElasticNet, "target_bounds": (0, 1)}, "none or L2"),
    "elastic net": (fitted, {"l1_ratio": 0.5}, "none or L2"),
    "constraint": (fitted, {"constraint": L2Ball(1.0)}, "constraint"),
    "class weights": (fitted, {"class_weight": {0: 0.5}}, "without weights"),
    "solver": (fitted, {"solver": "noisy_gd"}, "NoisyGD"),
    "solver that divides": (fitted, {"solver": "objective_perturbation"}, "ObjectivePerturbation"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_model_without_intervals_is_refused_before_spending(case, tmp_path):
    how, options, message = REFUSED[case]
    ledger = PrivacyLedger.create(
        tmp_path / "rows.ledger", data="rows", budget=ApproximateDP(10.0, 1e-3)
    )
    options = dict(options)
    solver = options.pop("solver", None)
    with pytest.raises(ValueError, match=message):
        how(ledger=ledger, solver=solver, **options)
    assert len(ledger.contents().entries) == 0


def test_intervals_of_a_tiny_budget_are_those_of_the_prior():
    X, y = rows()
    model = LogisticRegression(
        inference=True, classes=[0, 1], feature_bounds=(LOW, HIGH), epsilon=0.05, random_state=0
    )
    inference = model.fit(X, y).inference_
    assert inference.of_prior == ("intercept", "x0", "x1", "x2")
    assert np.isfinite(inference.conf_int()).all()
    assert (np.abs(inference.params[1:]) < 0.1 * inference.standard_errors[1:]).all()


def test_weighted_rows_have_robust_intervals_only():
    X, y = rows()
    weights = np.linspace(0.1, 1.0, len(X))
    with pytest.raises(ValueError, match="without weights"):
        fitted(weight_bound=1.0)
    model = fitted().set_params(weight_bound=1.0)
    with pytest.raises(ValueError, match="without weights"):
        model.fit(X, y, weights)
    assert model.set_params(inference="robust").fit(X, y, weights).inference_.kind == "robust"
    trials = BinomialRegressor(
        inference=True, solver=given(W), feature_bounds=(LOW, HIGH), weight_bound=1.0
    )
    said = str(trials.fit(X, y, weights).inference_)
    assert "like a number of trials" in " ".join(said.split())


def test_searches_and_private_steps_refuse():
    X, y = rows()
    model = LogisticRegression(
        inference=True, classes=[0, 1], feature_bounds=(LOW, HIGH), solver=given(W)
    )
    with pytest.raises(ValueError, match="inference"):
        PrivateGridSearchCV(model, {"C": [1.0, 2.0]}).fit(X, y)
    with pytest.raises(ValueError, match="inference"):
        PrivateGridSearchCV(clone(model).set_params(inference=False), {"inference": [True]}).fit(
            X, y
        )
    with pytest.raises(ValueError, match="inference"):
        PrivatePipeline([Center(), model]).fit(X, y)


@pytest.mark.parametrize("name", MODELS)
def test_model_files_hold_the_inference(name, tmp_path):
    kind, options = MODELS[name]
    model = fitted(kind, **options)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    X, _ = rows()
    np.testing.assert_array_equal(loaded.inference.covariance, model.inference_.covariance)
    np.testing.assert_allclose(
        loaded.inference.prediction_interval(X), model.inference_.prediction_interval(X)
    )
    assert str(loaded.inference) == str(model.inference_)
    plain = fitted(kind, inference=False, **options)
    save_model(plain, tmp_path / "plain.json")
    assert load_model(tmp_path / "plain.json").inference is None


class InterruptionError(Exception):
    pass


COMPLETE = pytest.mark.filterwarnings("ignore:.*complete")


@COMPLETE
def test_checkpoint_without_inference_belongs_to_another_fit(tmp_path):
    def interrupt(info):
        raise InterruptionError

    path, (X, y) = tmp_path / "kept", rows()
    model = LogisticRegression(classes=[0, 1], feature_bounds=(LOW, HIGH), solver=given(W))
    with pytest.raises(InterruptionError):
        clone(model).set_params(callback=interrupt).fit(X, y, checkpoint=path)
    for kind in (True, "robust"):
        with pytest.raises(PlanMismatchError, match="another fit"):
            clone(model).set_params(inference=kind).fit(X, y, checkpoint=path)
    assert not hasattr(model.fit(X, y, checkpoint=path), "inference_")


@COMPLETE
def test_an_interrupted_fit_goes_on_to_its_inference(tmp_path):
    def interrupt(info):
        raise InterruptionError

    path, (X, y) = tmp_path / "kept", rows()
    model = fitted()
    with pytest.raises(InterruptionError):
        clone(model).set_params(callback=interrupt).fit(X, y, checkpoint=path)
    again = clone(model).fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(again.inference_.covariance, model.inference_.covariance)


def test_generic_estimators_have_it_too():
    model = fitted(GeneralizedLinearRegressor, loss="poisson", target_bounds=(0.0, 7.0))
    assert model.inference_.names[0] == "intercept"
    ridge = fitted(Ridge, target_bounds=(0.0, 7.0), alpha=3.0)
    assert "minimizer of the penalized expected loss" in " ".join(str(ridge.inference_).split())


SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 16, "high": 90},
        "sex": {"type": "categorical", "categories": ["female", "male"]},
        "region": {"type": "categorical", "categories": ["north", "south", "west"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
    "provenance": "the questionnaire",
}


def table(n=N):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "age": rng.uniform(10, 100, n),
            "sex": rng.choice(["female", "male"], n),
            "region": rng.choice(["north", "south", "west"], n),
        }
    )


def on_a_table(drop):
    size = {None: 7, "first": 5}[drop]
    model = LogisticRegression(
        inference=True, classes=[0, 1], solver=given(np.linspace(-1, 1, size))
    )
    return PrivatePipeline([SchemaEncoder(SCHEMA, drop=drop), model]).fit(table(), np.arange(N) % 2)


@pytest.mark.parametrize("drop", [None, "first"])
def test_pipelines_state_effects_in_the_units_of_the_table(drop, tmp_path):
    pipeline = on_a_table(drop)
    inner, outer = pipeline.estimator_.inference_, pipeline.inference_
    assert outer.names == ("intercept", *pipeline.table_units().names)
    np.testing.assert_allclose(outer.params[1], inner.params[1] / 37.0)
    np.testing.assert_allclose(outer.standard_errors[1], inner.standard_errors[1] / 37.0)
    # The score where age is 0 and all else is at its reference or mean.
    if drop is None:
        mean = np.array([1, -53 / 37, 1 / 2, 1 / 2, 1 / 3, 1 / 3, 1 / 3])
    else:
        middle = {"age": [53.0], "sex": ["female"], "region": ["north"]}
        mean = np.append(1.0, pipeline.transformers_[0][1].transform(middle))
        mean[1] = -53 / 37
    np.testing.assert_allclose(outer.params[0], mean @ inner.params)
    np.testing.assert_allclose(outer.covariance[0, 0], mean @ inner.covariance @ mean)
    south = outer.names.index("region=south vs " + ("mean" if drop is None else "north"))
    effect = np.zeros(len(inner.names))
    if drop is None:
        effect[4:] = [-1 / 3, 2 / 3, -1 / 3]
    else:
        effect[3] = 1.0
    np.testing.assert_allclose(outer.covariance[south, south], effect @ inner.covariance @ effect)
    ends = outer.prediction_interval(table())
    encoded = pipeline.transformers_[0][1].transform(table())
    np.testing.assert_allclose(ends, inner.prediction_interval(encoded))
    copy = pickle.loads(pickle.dumps(outer))
    np.testing.assert_allclose(copy.prediction_interval(table()), ends)
    save_model(pipeline, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json").inference
    assert loaded.names == outer.names
    np.testing.assert_allclose(loaded.covariance, outer.covariance)
    np.testing.assert_allclose(loaded.prediction_interval(table()), ends)


def test_other_transformers_leave_the_units_of_their_columns():
    pipeline = PrivatePipeline(
        [
            FunctionTransformer(feature_names_out="one-to-one"),
            LogisticRegression(
                inference=True, classes=[0, 1], feature_bounds=(LOW, HIGH), solver=given(W)
            ),
        ]
    )
    X, y = rows()
    assert pipeline.fit(X, y).inference_.names == ("intercept", "x0", "x1", "x2")
    with pytest.raises(AttributeError):
        _ = clone(pipeline).set_params(logisticregression__inference=False).fit(X, y).inference_
