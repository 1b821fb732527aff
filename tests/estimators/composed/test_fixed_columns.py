"""ColumnTransformer and its kin in a PrivatePipeline: learning parts are refused, at any depth."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
    TargetEncoder,
)

from dpglm import LogisticRegression, PrivateGridSearchCV, PrivatePipeline
from dpglm.preprocessing import Center, SchemaEncoder
from dpglm.solvers import NoisyGD
from tests.audit.attack import scripted_releases

FEW = NoisyGD(n_steps=3)
N = 120
SEX = OneHotEncoder(categories=[["f", "m"]])
SCHEMA = {
    "columns": {"town": {"type": "categorical", "categories": ["a", "b", "c"]}},
    "target": {"name": "rich", "type": "binary", "classes": [0, 1]},
    "provenance": "made up",
}


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "age": rng.uniform(0.0, 1.0, n),
            "sex": rng.choice(["f", "m"], n),
            "pay": rng.uniform(0.0, 5.0, n),
            "town": rng.choice(["a", "b", "c"], n),
        }
    )
    return X, (X["age"] > 0.5).astype(int)


def pipeline(*steps, row_norm=3.0, solver=FEW, **settings):
    estimator = LogisticRegression(classes=[0, 1], row_norm=row_norm, solver=solver)
    return PrivatePipeline([*steps, estimator], **settings)


def columns(*parts, **settings):
    return ColumnTransformer(list(parts), **settings)


SEX_OF, NO_TOWN = ("sex", SEX, ["sex"]), ("town", "drop", ["town"])
LOG = FunctionTransformer(np.log1p)
FIXED = {
    "one-hot": columns(SEX_OF),
    "remainder": columns(SEX_OF, NO_TOWN, remainder="passthrough"),
    "functions": columns(("log", FunctionTransformer(np.log1p), ["age", "pay"])),
    "schema": columns(("town", SchemaEncoder(SCHEMA), ["town"]), ("age", "passthrough", ["age"])),
    "by number": columns(("first", "passthrough", [0]), ("third", Normalizer(), slice(2, 3))),
    "mask": columns(("some", "passthrough", np.array([True, False, True, False]))),
    "weights": columns(("sex", SEX, ["sex"]), transformer_weights={"sex": 0.5}),
    "fixed remainder": columns(SEX_OF, NO_TOWN, remainder=Normalizer()),
    "nested": columns(
        ("inner", columns(("sex", SEX, ["sex"]), remainder="passthrough"), ["age", "sex"]),
        ("chain", make_pipeline(FunctionTransformer(np.sqrt), Normalizer()), ["age", "pay"]),
    ),
    "union": columns(("both", FeatureUnion([("log", LOG), ("as", Normalizer())]), ["pay"])),
    "dropped first": columns(
        ("sex", OneHotEncoder(categories=[["f", "m"]], drop="first"), ["sex"]),
        ("town", OrdinalEncoder(categories=[["a", "b", "c"]]), ["town"]),
    ),
    "ignored": columns(
        ("sex", OneHotEncoder(categories=[["f"]], handle_unknown="ignore"), ["sex"]),
        ("age", "passthrough", ["age"]),
    ),
    "frozen": columns(
        ("age", FrozenEstimator(StandardScaler().fit(table(seed=1)[0][["age"]])), ["age"])
    ),
}


class TestWhatLearnsNothing:
    @pytest.mark.parametrize("step", FIXED.values(), ids=FIXED)
    def test_is_taken_recorded_and_costs_nothing(self, step):
        X, y = table()
        model = pipeline(("columns", step), random_state=3).fit(X, y)
        dense = clone(step).set_params(sparse_threshold=0.0).fit_transform(X)
        estimator = LogisticRegression(classes=[0, 1], row_norm=3.0, solver=FEW, random_state=3)
        plain = estimator.fit(dense, y)
        np.testing.assert_array_equal(model.coef_, plain.coef_)
        np.testing.assert_array_equal(model.predict(X), plain.predict(dense))
        assert model.privacy_.event == plain.privacy_.event
        assert model.privacy_.fact("transformers").value == [repr(step)]
        assert len(model.coefficient_names()) == dense.shape[1]

    def test_comes_before_private_steps_and_under_a_search(self):
        X, y = table()
        model = pipeline(("columns", FIXED["remainder"]), Center(), random_state=3)
        assert [one.stage for one in model.fit(X, y).privacy_.spending()] == ["center", "model"]
        search = PrivateGridSearchCV(
            pipeline(("columns", FIXED["remainder"]), Center()),
            {"logisticregression__C": [0.1, 1.0]},
            method="held_out",
        )
        assert search.fit(X, y).predict(X).shape == (N,)

    def test_make_column_transformer_has_column_names(self):
        X, y = table()
        step = make_column_transformer((SEX, ["sex"]), (FunctionTransformer(np.log1p), ["pay"]))
        names = pipeline(step).fit(X, y).coefficient_names()
        assert names.tolist() == [
            "onehotencoder__sex_f",
            "onehotencoder__sex_m",
            "functiontransformer__pay",
        ]


LISTED = OneHotEncoder(categories=[["f", "m"]], min_frequency=2)
AGE = ["age"]


class Unsteady(list):
    """Shows other parts the second time."""

    def __iter__(self):
        parts, self[:] = list(self[:]), [("a", StandardScaler(), AGE)]
        return iter(parts)


class Sneaky(ColumnTransformer):
    pass


LEARNERS = {
    "scaler": columns(("a", StandardScaler(), AGE)),
    "scaler behind a fixed one": columns(("s", SEX, ["sex"]), ("a", MinMaxScaler(), AGE)),
    "remainder": columns(("a", "passthrough", AGE), remainder=StandardScaler()),
    "categories of the rows": columns(("a", OneHotEncoder(), ["sex"])),
    "frequencies": columns(("a", LISTED, ["sex"])),
    "most categories": columns(
        ("a", OneHotEncoder(categories=[["f", "m"]], max_categories=2), ["sex"])
    ),
    "targets": columns(("a", TargetEncoder(categories=[["f", "m"]]), ["sex"])),
    "bins": columns(("a", KBinsDiscretizer(), AGE)),
    "imputer in a chain": columns(("a", make_pipeline(SimpleImputer(), Normalizer()), AGE)),
    "deep": columns(
        ("a", columns(("b", make_pipeline(Normalizer(), PCA(1)), AGE)), ["age", "pay"])
    ),
    "union": columns(("a", FeatureUnion([("n", Normalizer()), ("b", PCA(1))]), ["age", "pay"])),
    "selection": make_pipeline(Normalizer(), SelectKBest(k=1)),
    "a function": columns(("a", FunctionTransformer(lambda X: X - X.mean()), AGE)),
    "types of columns": columns(("a", SEX, make_column_selector(dtype_include=object))),
    "values of columns": columns(("a", "passthrough", lambda X: [int(X["age"].mean() > 0.4)])),
    "density": columns(("a", SEX, ["sex"]), sparse_threshold=0.5),
    "cache": make_pipeline(Normalizer(), memory="cache"),
    "weights": columns(("a", SEX, ["sex"]), transformer_weights={"a": np.ones((N, 1))}),
    "a subclass": Sneaky([("a", "passthrough", AGE)]),
    "an unsteady list": columns(),
    "no list": ColumnTransformer(None),
    "no columns": ColumnTransformer([("a", SEX)]),
    "a class": columns(("a", StandardScaler, AGE)),
    "a word": columns(("a", "scale", AGE)),
}
LEARNERS["an unsteady list"].transformers = Unsteady([("a", "passthrough", AGE)])


class TestALearner:
    @pytest.mark.parametrize("step", LEARNERS.values(), ids=LEARNERS)
    def test_hidden_inside_is_refused_by_plan_and_fit(self, step):
        X, y = table()
        model = pipeline(("step", step))
        for call in (lambda: model.plan(N, 4), lambda: model.fit(X, y)):
            with pytest.raises(
                ValueError, match=r"step 'step', .*without spending budget: "
            ) as caught:
                call()
            assert "\n" not in str(caught.value)

    def test_is_named_with_the_reason(self):
        with pytest.raises(ValueError, match=r"its step 'a', One.*categories must be given"):
            pipeline(LEARNERS["categories of the rows"]).plan(N, 4)
        with pytest.raises(ValueError, match=r"its step 'b', PCA.*learn nothing"):
            pipeline(LEARNERS["union"]).plan(N, 4)
        with pytest.raises(ValueError, match=r"'a' must list its columns.*single cells"):
            pipeline(LEARNERS["types of columns"]).plan(N, 4)

    def test_transformer_falsely_declared_frozen_is_detected(self):
        X, y = table()
        centring = FrozenEstimator(FunctionTransformer(lambda X: X - X.mean(axis=0)))
        with pytest.raises(ValueError, match="among others"):
            pipeline(columns(("a", centring, AGE))).fit(X, y)


# The law: rows are mapped one by one, and to the same container whatever they are.


@pytest.mark.parametrize("step", FIXED.values(), ids=FIXED)
def test_one_row_changes_its_own_image_only(step):
    X, y = table()
    other = X.copy()
    other.loc[7] = [0.999, "f", 4.9, "c"]
    images = [pipeline(step).fit(rows, y)._transformed(rows) for rows in (X, other)]
    assert type(images[0]) is type(images[1]) is np.ndarray
    np.testing.assert_array_equal(*[np.delete(image, 7, axis=0) for image in images])


def test_container_omits_number_of_zero_entries():
    # The planted bug is scikit-learn's own rule: one row decides the storage type of all.
    encoder = OneHotEncoder(categories=[["f", "m", "x", "z"]], handle_unknown="ignore")
    step = columns(("sex", encoder, ["sex"]), ("age", "passthrough", AGE), sparse_threshold=0.3)
    few = pd.DataFrame({"sex": ["?"] * 4, "age": [0.0, 0.0, 1.0, 1.0]})
    many = few.assign(age=[1.0] * 4, sex=["?", "f", "m", "x"])
    assert sparse.issparse(clone(step).fit_transform(few))
    assert not sparse.issparse(clone(step).fit_transform(many))
    y = [0, 1, 0, 1]
    specs = [pipeline(step).fit(X, y).solution_.plan.data for X in (few, many)]
    assert specs[0] == specs[1]
    assert not specs[0].sparse


# Bounds


@pytest.mark.parametrize(
    ("step", "bound"),
    [
        (SEX, 1.0),
        (OneHotEncoder(categories=[["f"], ["a", "b"]]), np.sqrt(2.0)),
        (columns(("a", SEX, ["sex"]), ("b", Normalizer(), ["age", "pay"])), np.sqrt(2.0)),
        (columns(("a", SEX, ["sex"]), transformer_weights={"a": -3.0}), 3.0),
        (columns(("a", SEX, ["sex"]), ("b", "drop", AGE)), 1.0),
        (FeatureUnion([("a", Normalizer()), ("b", Normalizer("l1"))]), np.sqrt(2.0)),
        (make_pipeline(FunctionTransformer(np.exp), Normalizer()), 1.0),
        (RBFSampler(gamma=0.5), np.sqrt(2.0)),
        (make_pipeline(RBFSampler(gamma=0.5), Normalizer()), 1.0),
    ],
    ids=str,
)
def test_the_bound_that_settings_imply_is_used(step, bound):
    plan = pipeline(step, row_norm=None).plan(N, 4)
    assert plan.data.row_norm == pytest.approx(bound)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_feature_rows_stay_within_their_bound(dtype):
    # One feature reaches the bound where its angle is 0.
    X = np.linspace(-40.0, 40.0, 5000, dtype=dtype)[:, np.newaxis]
    for n_components in (1, 100):
        sampler = RBFSampler(gamma=0.5, n_components=n_components, random_state=0)
        norms = np.linalg.norm(sampler.fit_transform(X).astype(float), axis=1)
        assert norms.max() <= np.sqrt(2.0) * (1.0 + 1e-6)
    sampler = RBFSampler(gamma=0.5, n_components=1, random_state=0)
    norms = np.linalg.norm(sampler.fit_transform(X), axis=1)
    assert norms.max() > 1.41


@pytest.mark.parametrize(
    "step",
    [
        columns(("a", SEX, ["sex"]), remainder="passthrough"),
        columns(("a", SEX, ["sex"]), ("b", "passthrough", AGE)),
        columns(("a", Normalizer("max"), AGE)),
        make_pipeline(Normalizer(), FunctionTransformer(np.exp)),
        make_pipeline("passthrough"),
    ],
    ids=str,
)
def test_no_bound_is_made_up(step):
    with pytest.raises(ValueError, match="row_norm or feature_bounds must be given"):
        pipeline(step, row_norm=None).plan(N, 4)


def excess(step):
    """Largest distance of two neighbours' sums, relative to the declared bound."""
    X, y = table(40)
    neighbours = []
    for age in (1e6, -1e6):
        X.loc[7, "age"] = age
        model = pipeline(step, row_norm=None, adjacency="replace_one", random_state=1)
        with scripted_releases(seed=2, size=1.0) as seen:
            model.fit(X, y)
        neighbours.append(seen)
    (release,) = model.solution_.plan.method.releases
    return max(
        float(np.linalg.norm(a - b)) / (std / release.noise_multiplier)
        for (a, std), (b, _) in zip(*neighbours, strict=True)
    )


def test_rows_stay_within_the_noise_s_sensitivity():
    step = columns(("sex", SEX, ["sex"]), ("age", Normalizer(), ["age", "pay"]))
    assert 0.4 < excess(step) <= 1.0


# Errors


class TestAnErrorOfAStep:
    @pytest.mark.parametrize("unknown", ["x", None, np.nan], ids=repr)
    def test_names_the_column_with_the_unknown_category(self, unknown):
        X, y = table()
        model = pipeline(("columns", FIXED["remainder"])).fit(X, y)
        X.loc[3, "sex"] = unknown
        for call in (lambda: model.predict(X), lambda: clone(model).fit(X, y)):
            with pytest.raises(ValueError, match=r"step 'columns__sex': .*in column 'sex'"):
                call()

    @pytest.mark.parametrize("name", ["remainder", "nested", "functions", "frozen", "mask"])
    def test_names_the_column_with_a_missing_value(self, name):
        X, y = table()
        model = pipeline(FIXED[name]).fit(X, y)
        X.loc[3, "age"] = np.nan
        for call in (lambda: model.predict(X), lambda: clone(model).fit(X, y)):
            with pytest.raises(ValueError, match=r"NaN in row 4, column '(\w*__)?age'") as caught:
                call()
            assert "HistGradient" not in str(caught.value)
            assert "\n" not in str(caught.value)

    def test_single_step_is_named_too(self):
        X, y = table()
        X.loc[3, "pay"] = np.inf
        with pytest.raises(ValueError, match=r"'normalizer': .*infinity in row 4, column 'pay'"):
            pipeline(Normalizer()).fit(X[["age", "pay"]], y)

    def test_about_other_columns_is_the_step_s_own(self):
        X, y = table()
        model = pipeline(("columns", FIXED["remainder"])).fit(X, y)
        with pytest.raises(ValueError, match=r"step 'columns': columns are missing: .'sex'"):
            model.predict(X.drop(columns="sex"))


def test_nothing_is_warned_of_where_all_is_declared():
    X, y = table()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline(FIXED["one-hot"], row_norm=None).fit(X, y)
