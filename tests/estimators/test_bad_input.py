"""Bad input: an error that names the parameter, before any noise is drawn, or a finite result."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.exceptions import DataConversionWarning

from dpglm import (
    BinomialRegressor,
    ElasticNet,
    GammaRegressor,
    GaussianDP,
    GeneralizedLinearClassifier,
    GeneralizedLinearRegressor,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NegativeBinomialRegressor,
    NoisyGD,
    PoissonRegressor,
    PrivatePipeline,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RobustClassifier,
    TweedieRegressor,
)
from dpglm.exceptions import LowSignalWarning, PublicInformationWarning
from dpglm.preprocessing import Center
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.problem import GroupLasso, Huber, IdentityLink, Softmax
from dpglm.solvers import SOLVERS
from tests.fits import admitted_bounds, admitted_targets

pytestmark = pytest.mark.one_in(3)

SHORT = NoisyGD(noise="gaussian", n_steps=3)
CLASSIFIERS = [
    LogisticRegression(),
    LinearSVC(),
    LinearSVC(loss="hinge"),
    RobustClassifier(),
    GeneralizedLinearClassifier(),
]
REGRESSORS = [
    LinearRegression(),
    Ridge(),
    Lasso(alpha=0.1),
    ElasticNet(alpha=0.1),
    HuberRegressor(),
    GeneralizedLinearRegressor(),
    PoissonRegressor(),
    GammaRegressor(),
    TweedieRegressor(),
    NegativeBinomialRegressor(),
    BinomialRegressor(),
    QuantileRegressor(),
]
ESTIMATORS = CLASSIFIERS + REGRESSORS
# Not every range of targets is alike to them up to a factor.
IN_OWN_UNITS = NegativeBinomialRegressor


def readable(value):
    """Name a case by its repr, unless that holds a memory address, which no two workers share."""
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text[:40]


every_estimator = pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
every_classifier = pytest.mark.parametrize("estimator", CLASSIFIERS, ids=repr)
every_regressor = pytest.mark.parametrize("estimator", REGRESSORS, ids=repr)


def declared(estimator, **changes):
    options = {"row_norm": 2.0, "solver": SHORT}
    if is_regressor(estimator):
        options["target_bounds"] = admitted_bounds(estimator, (0.0, 2.0))
    else:
        options["classes"] = [0, 1]
    return clone(estimator).set_params(**{**options, **changes})


def data(n=12, d=3, of=None):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 2
    return rng.uniform(-1, 1, size=(n, d)), y if of is None else admitted_targets(of, y)


def silence(monkeypatch):
    """From here on, drawing noise or random choices is a failure."""

    def refuse(self, count):
        raise AssertionError("something was drawn")

    monkeypatch.setattr(SystemNoise, "words", refuse)
    monkeypatch.setattr(SeededNoise, "words", refuse)


@pytest.fixture
def no_release(monkeypatch):
    silence(monkeypatch)


def refused(estimator, X, y, match, **fit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PublicInformationWarning)
        with pytest.raises(ValueError, match=match):
            estimator.fit(X, y, **fit)
    assert not hasattr(estimator, "coef_")
    assert not hasattr(estimator, "privacy_")


def assert_finite(model, X):
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    prediction = model.predict(X)
    assert prediction.shape == (X.shape[0],)
    if is_regressor(model) and isinstance(model._link(), IdentityLink):
        assert np.isfinite(prediction).all()
    assert model.privacy_.epsilon <= model.epsilon


def test_the_double_notices_a_release(monkeypatch):
    X, y = data()
    silence(monkeypatch)
    with pytest.raises(AssertionError, match="drawn"):
        declared(LogisticRegression()).fit(X, y)


# Arrays.


@every_estimator
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("kind", "dtype"), [("dense", "float64"), ("csr", "float32")])
def test_values_that_are_not_finite_are_refused(estimator, kind, bad, dtype, no_release):
    X, y = data(of=estimator)
    X = X.astype(dtype)
    X[4, 1] = bad
    stored = sparse.csr_array(X) if kind == "csr" else X
    refused(
        declared(estimator),
        stored,
        y,
        r"X must be finite, got (NaN|-?infinity) in row 5, column 2\.",
    )


@every_estimator
def test_sparse_duplicates_that_add_up_to_infinity_are_refused(estimator, no_release):
    _, y = data(of=estimator)
    big = np.finfo(np.float64).max
    X = sparse.csr_array(([big, big, 1.0], [0, 0, 1], [0, 2, *[3] * 11]), shape=(12, 2))
    with np.errstate(over="ignore"):
        refused(declared(estimator), X, y, "X must be finite, got infinity in row 1, column 1")


@every_regressor
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_targets_that_are_not_finite_are_refused(estimator, bad, no_release):
    X, y = data(of=estimator)
    y = y.astype(float)
    y[3] = bad
    refused(declared(estimator), X, y, "(?i)y contains (NaN|infinity)")


@every_classifier
def test_labels_that_are_not_finite_are_refused(estimator, no_release):
    X, y = data(of=estimator)
    y = y.astype(float)
    y[3] = math.nan
    refused(declared(estimator), X, y, "(?i)y contains NaN")


SHAPES = {
    "X of one axis": (lambda X, y: (X[:, 0], y), "2D array"),
    "X of three axes": (lambda X, y: (X[np.newaxis], y), "dim 3|dim <= 2"),
    "no rows": (lambda X, y: (X[:0], y[:0]), "0 sample"),
    "no columns": (lambda X, y: (X[:, :0], y), "0 feature"),
    "y too short": (lambda X, y: (X, y[:-1]), "inconsistent"),
    "y too long": (lambda X, y: (X, np.r_[y, 1]), "inconsistent"),
    "y of two columns": (lambda X, y: (X, np.column_stack([y, y])), "1d array"),
    "y as one row": (lambda X, y: (X, y[np.newaxis]), "1d array"),
    "a single number as y": (lambda X, y: (X, 1), "1d array|scalar|array"),
    "no y": (lambda X, y: (X, None), "y"),
    "words in X": (lambda X, y: (np.full(X.shape, "a"), y), "convert string"),
    "complex X": (lambda X, y: (X + 1j, y), "Complex"),
}


@every_estimator
@pytest.mark.parametrize(("change", "match"), SHAPES.values(), ids=SHAPES)
def test_wrong_shapes_are_refused(estimator, change, match, no_release):
    refused(declared(estimator), *change(*data(of=estimator)), match)


@every_estimator
def test_y_of_shape_n_1_is_one_column_not_n_by_n(estimator):
    # Pitfall 19: the same sums as with y of shape (n,), hence the same model.
    X, y = data(of=estimator)
    flat = declared(estimator, random_state=0).fit(X, y)
    with pytest.warns(DataConversionWarning, match="column-vector"):
        column = declared(estimator, random_state=0).fit(X, y[:, np.newaxis])
    np.testing.assert_array_equal(flat.coef_, column.coef_)


@every_estimator
@pytest.mark.parametrize(
    ("weights", "match"),
    [
        (np.ones(11), "sample_weight must have shape"),
        (np.ones((12, 1)), "sample_weight must have shape"),
        (np.r_[-1e-9, np.ones(11)], "sample_weight must be finite and at least 0"),
        (np.r_[math.nan, np.ones(11)], "sample_weight must be finite"),
        (np.r_[math.inf, np.ones(11)], "sample_weight must be finite"),
        (-1.0, "sample_weight"),
        (["heavy"] * 12, "sample_weight"),
    ],
    ids=["short", "column", "negative", "NaN", "inf", "number", "words"],
)
def test_bad_sample_weights_are_refused(estimator, weights, match, no_release):
    X, y = data(of=estimator)
    refused(declared(estimator), X, y, match, sample_weight=weights)


@every_estimator
@pytest.mark.parametrize("relation", list(Adjacency))
def test_rows_of_weight_zero_are_fitted_with_a_warning(estimator, relation):
    """As they are where one row alone had weight, and is erased."""
    X, y = data(of=estimator)
    options = {"adjacency": relation.value, "n_rows": 12, "weight_bound": 1.0, "random_state": 0}
    model = declared(estimator, **options)
    with pytest.warns(LowSignalWarning, match="all weights may be 0"):
        model.fit(X, y, sample_weight=np.zeros(12))
    assert_finite(model, X)


def test_weights_of_zero_have_the_usual_bound():
    X, y = data()
    with pytest.warns(PublicInformationWarning, match="weight_bound was taken from the private"):
        model = declared(LogisticRegression()).fit(X, y, sample_weight=np.zeros(12))
    assert model.privacy_.fact("weight_bound").value == 1.0


@pytest.mark.parametrize("solver", [*SOLVERS])
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_weighted_fit_warns_unless_releases_stand_out(solver, weight):
    """The same noise: only the releases decide."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (3000, 2))
    y = (X[:, 0] > 0.0).astype(int)
    model, options = LogisticRegression, {"classes": [0, 1]}
    if solver in ("prototypes", "sufficient_statistics"):
        n_classes = 3 if solver == "prototypes" else 2
        model, options = RidgeClassifier, {"classes": range(n_classes)}
    model = model(
        solver=solver,
        feature_bounds=(-1, 1),
        weight_bound=1.0,
        epsilon=4.0,
        delta=1e-5,
        random_state=0,
        **options,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=np.full(3000, weight))
    told = [str(one.message) for one in caught if "all weights may be 0" in str(one.message)]
    silent = ("frank_wolfe", "local_sgd", "objective_perturbation")
    assert len(told) == (weight == 0.0 or solver in silent)
    assert np.isfinite(model.coef_).all()
    if weight == 0.0:
        # About the neutral model: noise, in scores that are public, and nothing else.
        assert np.abs(X @ model.coef_.T + model.intercept_).max() < 8.0


# Parameters.

ANY = {
    "epsilon": [0.0, -1.0, math.nan, math.inf, "1", None, True, 1e20, 1e300],
    "delta": [0.0, -1e-5, 1.0, 2.0, math.nan, "none"],
    "budget": [1.0, (1.0, 1e-5)],
    "adjacency": ["replace", None, 1],
    "n_rows": [0, -1, 1.5, 11, 13, "12"],
    "solver": ["sgd", 3, NoisyGD, None],
    "row_norm": [0.0, -1.0, math.nan, math.inf, "2", 1e300, 1e-300],
    "feature_bounds": [
        (1.0, 0.0),
        ([0.0, 0.0, 1.0], [1.0, 1.0, 0.0]),
        (0.0, math.inf),
        (math.nan, 1.0),
        (0.0, [1.0, 2.0]),
        (0.0,),
        3.0,
        "ab",
    ],
    "weight_bound": [0.0, -1.0, math.nan, math.inf, "1"],
    "inference": ["model", None, 1],
    "regularizer": ["l2", 0.1, GroupLasso],
    "constraint": [3.0, "ball"],
    "callback": [3],
    "random_state": [-1, 1.5, "0", np.random.RandomState(0), np.random.default_rng(0)],
}
CLASSIFIER_ONLY = {
    "classes": [[], [0], [1, 1], 5, [[0, 1], [2, 3]], ["a", "b"], [0, 7]],
    "class_weight": ["balanced", {0: -1.0}, {0: math.nan}, {7: 1.0}, [1.0, 1.0]],
    "C": [0.0, -1.0, math.nan, "1", -math.inf],
}
REGRESSOR_ONLY = {
    "target_bounds": [(1.0, 0.0), (0.0, math.inf), (math.nan, 1.0), 3.0, (1.0,), (0, 1, 2), "ab"],
}


def cases(estimators, table):
    return [
        pytest.param(e, name, value, id=f"{type(e).__name__}-{name}-{readable(value)}")
        for e in estimators
        for name, values in table.items()
        for value in values
        if name in e.get_params()
    ]


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    cases([LogisticRegression(), Ridge(), PoissonRegressor()], ANY)
    + cases(CLASSIFIERS, CLASSIFIER_ONLY)
    + cases(REGRESSORS, REGRESSOR_ONLY),
)
def test_bad_parameters_are_named_and_nothing_is_released(estimator, name, value, no_release):
    X, y = data(of=estimator)
    changes = {name: value}
    if name == "feature_bounds":
        changes["row_norm"] = None
    refused(declared(estimator, **changes), X, y, name)


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    [
        (LogisticRegression(), "l1_ratio", 1.5),
        (LogisticRegression(), "l1_ratio", -0.1),
        (LinearSVC(), "loss", "logistic"),
        (LinearSVC(), "loss", Softmax()),
        (RobustClassifier(), "loss", Huber()),
        (RobustClassifier(), "loss", None),
        (Ridge(), "alpha", -1.0),
        (Lasso(), "alpha", math.nan),
        (ElasticNet(), "alpha", -1.0),
        (ElasticNet(), "l1_ratio", 2.0),
        (HuberRegressor(), "threshold", 0.0),
        (HuberRegressor(), "alpha", -1.0),
        (PoissonRegressor(), "alpha", math.inf),
        (PoissonRegressor(), "target_bounds", (-1.0, 2.0)),
        (GammaRegressor(), "target_bounds", (0.0, 2.0)),
        (BinomialRegressor(), "target_bounds", (0.0, 2.0)),
        (BinomialRegressor(target_bounds=(0.0, 1.0)), "link", "log"),
        (TweedieRegressor(), "power", 0.0),
        (TweedieRegressor(), "power", 3.0),
        (TweedieRegressor(), "alpha", -1.0),
        (NegativeBinomialRegressor(), "dispersion", 0.0),
        (QuantileRegressor(), "quantile", 1.0),
    ],
    ids=str,
)
def test_bad_parameters_of_one_estimator_are_named(estimator, name, value, no_release):
    X, y = data(of=estimator)
    refused(declared(estimator, **{name: value}), X, y, name)


@pytest.mark.parametrize("estimator", [LogisticRegression(), Ridge()], ids=repr)
@pytest.mark.parametrize("name", ["epsilon", "delta", "adjacency", "n_rows", "solver", "row_norm"])
def test_plan_names_bad_parameters_too(estimator, name):
    value = {"epsilon": -1.0, "delta": 0.0, "adjacency": "x", "solver": 3, "row_norm": 0.0}
    if name == "n_rows":
        with pytest.raises(ValueError, match="n_rows"):
            declared(estimator).plan(0, 3)
        with pytest.raises(ValueError, match="n_features"):
            declared(estimator).plan(10, 0)
        return
    with pytest.raises(ValueError, match=name):
        declared(estimator, **{name: value[name]}).plan(10, 3)


def test_plan_needs_declared_facts():
    with pytest.raises(ValueError, match="row_norm or feature_bounds"):
        LogisticRegression().plan(10, 3)
    with pytest.raises(ValueError, match="target_bounds"):
        Ridge(row_norm=1.0).plan(10, 3)
    with pytest.raises(ValueError, match="n_classes"):
        declared(LogisticRegression()).plan(10, 3, 1)


def test_a_gaussian_budget_cannot_pay_for_samples(no_release):
    X, y = data()
    sampled = declared(
        LogisticRegression(), budget=GaussianDP(1.0), solver=NoisyGD(n_steps=2, sampling_rate=0.5)
    )
    refused(sampled, X, y, "epsilon")


def test_groups_that_do_not_fit_are_refused(no_release):
    X, y = data()
    bad = declared(LogisticRegression(), regularizer=GroupLasso(0.1, ((0, 9),)))
    refused(bad, X, y, "groups")


# Labels and targets.


@every_classifier
@pytest.mark.parametrize(
    ("classes", "labels"),
    [
        ([0, 1], [0, 2]),
        ([0, 1], [0.0, 0.5]),
        ([0, 1], ["no", "yes"]),
        (["no", "yes"], ["no", "maybe"]),
        (["no", "yes"], [0, 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("as_object", [False, True])
def test_labels_outside_the_declared_classes_are_refused(
    estimator, classes, labels, as_object, no_release
):
    X, _ = data(of=estimator)
    y = np.array(labels * 6, dtype=object if as_object else None)
    refused(declared(estimator, classes=classes), X, y, "classes|[Uu]nknown label type")


@every_classifier
def test_continuous_targets_are_refused(estimator, no_release):
    X, _ = data(of=estimator)
    refused(declared(estimator, classes=None), X, X[:, 0], "continuous")


@every_classifier
def test_one_class_only(estimator, monkeypatch):
    X, y = data(of=estimator)
    model = declared(estimator).fit(X, np.ones_like(y))
    assert model.classes_.tolist() == [0, 1]
    assert_finite(model, X)
    silence(monkeypatch)
    refused(declared(estimator, classes=None), X, np.ones_like(y), "1 class")


@every_regressor
def test_targets_outside_their_bounds_are_clipped_to_them(estimator):
    X, y = data()
    target = estimator._loss(1.0).target
    low = max(target.bounds[0], -1e9) if target.admits(0.0) else 1e-9  # Less is a mistake.
    wild = np.where(y == 1, 1e9, low)
    clipped = np.where(y == 1, 2.0, max(low, 0.0))
    far, near = (declared(estimator, random_state=0).fit(X, t) for t in (wild, clipped))
    np.testing.assert_array_equal(far.coef_, near.coef_)
    assert far.intercept_ == near.intercept_


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.EqualBoundsWarning")
@every_regressor
@pytest.mark.parametrize("bounds", [(1.0, 1.0), (0.0, 0.0), (0.0, 1e-90), (0.0, 1e90)], ids=str)
def test_strange_but_valid_target_bounds(estimator, bounds):
    X, y = data(of=estimator)
    if bounds[1] == 1e-90 and isinstance(estimator, IN_OWN_UNITS):
        refused(declared(estimator, target_bounds=bounds), X, y, "clip must be")
        return
    bounds = admitted_bounds(estimator, bounds)
    model = declared(estimator, target_bounds=bounds).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_)


@pytest.mark.parametrize("bounds", [(0.0, 1e-300), (0.0, 1e300)], ids=str)
def test_target_bounds_with_overflowing_squares_are_refused(bounds, no_release):
    X, y = data()
    refused(declared(LinearRegression(), target_bounds=bounds), X, y, "bounds on targets")


def test_negative_counts_without_bounds_are_refused(no_release):
    X, y = data()
    refused(declared(GammaRegressor(), target_bounds=None), X, y, "y must be numbers above 0")
    refused(
        declared(PoissonRegressor(), target_bounds=None),
        X,
        y - 5.0,
        "y must be numbers of at least 0",
    )


@every_regressor
def test_words_as_targets_are_refused(estimator, no_release):
    X, _ = data(of=estimator)
    refused(declared(estimator), X, np.array(["a", "b"] * 6), "convert|numeric|dtype")


# Sizes and columns for which the result is defined.

ODD = {
    "one row": (1, 3),
    "two rows": (2, 3),
    "three rows": (3, 1),
    "more columns than rows": (4, 9),
    "a block and a row": (257, 2),
}


@every_estimator
@pytest.mark.parametrize(("n", "d"), ODD.values(), ids=ODD)
@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_odd_sizes(estimator, n, d, adjacency):
    X, y = data(n, d, of=estimator)
    options = {"adjacency": adjacency}
    if adjacency == "add_remove":
        options["n_rows"] = n
    assert_finite(declared(estimator, **options).fit(X, y), X)
    if n == 1:
        assert_finite(
            declared(estimator, solver=NoisyGD(n_steps=3, sampling_rate=0.4)).fit(X, y), X
        )


def constant_columns(X):
    X = X.copy()
    X[:, 0] = 0.0
    X[:, 1] = 0.7
    return X


COLUMNS = {
    "constant columns": constant_columns,
    "all equal": lambda X: np.full_like(X, 0.3),
    "all zero": np.zeros_like,
    "tiny": lambda X: X * 1e-30,
    "huge": lambda X: X * 1e30,
}


@every_estimator
@pytest.mark.parametrize("change", COLUMNS.values(), ids=COLUMNS)
@pytest.mark.parametrize(("layout", "dtype"), [("dense", "float32"), ("csr", "float64")])
def test_odd_columns(estimator, change, dtype, layout):
    X, y = data(of=estimator)
    X = change(X).astype(dtype)
    stored = sparse.csr_array(X) if layout == "csr" else X
    assert_finite(declared(estimator).fit(stored, y), stored)
    if layout == "dense":
        bounded = declared(estimator, row_norm=None, feature_bounds=(-1.0, 0.7))
        assert_finite(bounded.fit(stored, y), stored)


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.PublicInformationWarning")
@pytest.mark.parametrize("estimator", [LogisticRegression(), Ridge()], ids=repr)
@pytest.mark.parametrize("change", list(COLUMNS.values())[:3], ids=list(COLUMNS)[:3])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_odd_columns_without_declared_bounds(estimator, change, dtype):
    X, y = data(of=estimator)
    X = change(X).astype(dtype)
    model = clone(estimator).set_params(solver=SHORT).fit(X, y)
    assert_finite(model, X)


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.EqualBoundsWarning")
@every_estimator
def test_bounds_of_zero_width_and_next_to_zero(estimator):
    X, y = data(of=estimator)
    bounds = ([0.0, 0.5, -1.0], [0.0, 0.5, 0.0])
    model = declared(estimator, row_norm=None, feature_bounds=bounds).fit(X, y)
    assert_finite(model, X)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize("estimator", [LogisticRegression(), Ridge()], ids=repr)
def test_tiny_and_huge_epsilon(estimator, epsilon):
    X, y = data(of=estimator)
    assert_finite(declared(estimator, epsilon=epsilon).fit(X, y), X)


@pytest.mark.parametrize("delta", [1e-70, 1e-18, 0.1, 0.999])
def test_tiny_and_huge_delta(delta):
    X, y = data()
    model = declared(LogisticRegression(), delta=delta).fit(X, y)
    assert_finite(model, X)
    assert model.privacy_.delta <= delta


@every_estimator
def test_predict_refuses_other_columns(estimator):
    X, y = data(of=estimator)
    model = declared(estimator).fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :2])


@every_estimator
def test_input_is_never_changed(estimator):
    X, y = data(of=estimator)
    X *= 50.0
    kept, weights = X.copy(), np.full(12, 9.0)
    declared(estimator, weight_bound=1.0).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(X, kept)
    np.testing.assert_array_equal(weights, 9.0)


SECRET = 0.987654


@pytest.mark.parametrize(
    "X",
    [
        np.full(20, SECRET),
        [SECRET] * 20,
        pd.Series([SECRET] * 20),
        pl.Series([SECRET] * 20),
        pa.array([SECRET] * 20),
        np.full((20, 2), SECRET + 1j),
        [[SECRET + 1j]] * 20,
        sparse.csr_array(np.full((20, 2), SECRET + 1j)),
        pd.DataFrame({"a": [SECRET + 1j] * 20}),
        np.full((20, 2, 2), SECRET),
        [[SECRET]] * 19 + [[SECRET, SECRET]],
        SECRET,
    ],
)
def test_errors_about_the_shape_of_rows_do_not_show_them(X):
    model = declared(LogisticRegression(classes=[0, 1]))
    y = np.arange(20) % 2
    fitted = clone(model).set_params(random_state=0).fit(np.ones((20, 2)), y)
    for act in (
        lambda: model.fit(X, y),
        lambda: fitted.predict(X),
        lambda: fitted.score(X, y),
        lambda: PrivatePipeline([Center(), model]).fit(X, y),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            act()
        assert "0.98" not in str(caught.value)


@pytest.mark.parametrize("value", [0.0, -0.0, -1.0])
def test_gamma_targets_are_above_zero(value):
    model = GammaRegressor(row_norm=1.0, target_bounds=(0.1, 2.0))
    y = np.ones(20)
    y[7] = value
    with pytest.raises(ValueError, match=r"y must be numbers above 0, got -?[01] in row 8"):
        model.fit(np.ones((20, 2)), y)
    # Zeros are counts, and amounts of a Tweedie regression.
    for other in (PoissonRegressor, TweedieRegressor):
        other(row_norm=1.0, target_bounds=(0.0, 2.0), random_state=0).fit(np.ones((20, 2)), abs(y))


def test_labels_that_collide_as_floats_are_refused():
    X, large = np.ones((20, 2)), 2**53
    classes = [large, large + 1]
    y = np.array(classes * 10)
    model = LogisticRegression(classes=classes, row_norm=1.0, random_state=0)
    assert model.fit(X, y).classes_.tolist() == classes
    for other in (y.astype(float), y.astype(np.uint64)):
        with pytest.raises(ValueError, match="y must hold labels of the type int64"):
            model.fit(X, other)


@pytest.mark.parametrize("gap", [None, float("nan")])
@pytest.mark.parametrize("labels", [["no", "yes"], [0.0, 1.0]])
def test_error_about_a_missing_label_names_its_row(gap, labels):
    y = np.array(labels * 6, dtype=object)
    y[7] = gap
    model = LogisticRegression(classes=labels, feature_bounds=(-1, 1), epsilon=1.0)
    with pytest.raises(ValueError, match=r"y contains NaN in row 8. Give where=, False for such"):
        model.fit(np.zeros((12, 2)), y)
