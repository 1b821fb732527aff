"""PrivatePipeline: one budget, exactly composed; steps that no budget covers are refused."""

from __future__ import annotations

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.linalg import _umath_linalg
from scipy import special
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction import FeatureHasher
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.model_selection import cross_val_score
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    SplineTransformer,
    StandardScaler,
)
from sklearn.random_projection import GaussianRandomProjection
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpglm import (
    GaussianDP,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PrivatePipeline,
    PublicInformationWarning,
)
from dpglm.certificate import Certificate, verify
from dpglm.data import prepare
from dpglm.exceptions import PlanMismatchError
from dpglm.oracle.counts import noisy_mean
from dpglm.preprocessing import (
    Center,
    RandomProjection,
    SchemaEncoder,
)
from dpglm.preprocessing import steps as center_module
from dpglm.privacy import gdp
from dpglm.privacy.events import Gaussian, Repeated
from dpglm.report import load_model, save_model
from dpglm.solvers import NoisyGD, NoisySGD, Preprocessed
from dpglm.tables.schema import Schema
from tests.audit.attack import scripted_releases
from tests.forgeries import part_of

pytestmark = pytest.mark.one_in(3)

FEW = NoisyGD(n_steps=5, clip=0.5, step_size=1.0)
N = 400


def rows(n=N, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, size=(n, d)) + 1.0
    return X, (X[:, 0] > X[:, 1]).astype(int)


def classifier(**settings):
    return LogisticRegression(**{"classes": [0, 1], "row_norm": 4.0, "solver": FEW, **settings})


def pipeline(*steps, estimator=None, **settings):
    return PrivatePipeline([*steps, classifier() if estimator is None else estimator], **settings)


# Budget


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
@pytest.mark.parametrize("steps", [(), (Center(),), (Center(), Center())], ids=len)
def test_the_whole_budget_is_spent_and_no_more(steps, adjacency, epsilon):
    X, y = rows()
    model = pipeline(*steps, epsilon=epsilon, delta=1e-5, adjacency=adjacency, n_rows=N).fit(X, y)
    assert epsilon * (1 - 1e-6) <= model.privacy_.epsilon <= epsilon
    assert verify(model.privacy_).ok
    # From the definitions: mu^2 is the sum of the squares of 1 / sigma.
    mu_squared = sum(one.count / one.noise_multiplier**2 for one in model.privacy_.releases)
    assert gdp.epsilon(1e-5, np.sqrt(mu_squared)) == pytest.approx(epsilon, rel=1e-6)


def test_a_pipeline_is_the_estimator_with_a_preprocessed_solver():
    X, y = rows()
    solver = Preprocessed([Center()], FEW, [0.04])
    alone = classifier(solver=solver, epsilon=0.7, random_state=3).fit(X, y)
    model = pipeline(Center(), epsilon=0.7, shares={"center": 0.04}, random_state=3).fit(X, y)
    np.testing.assert_array_equal(model.coef_, alone.coef_)
    np.testing.assert_array_equal(model.intercept_, alone.intercept_)
    assert model.privacy_ == alone.privacy_


def test_shares_by_hand():
    X, y = rows()
    model = pipeline(("a", Center()), ("b", Center()), shares={"b": 0.3}).fit(X, y)
    a, b, last = model.privacy_.spending()
    assert b.share == pytest.approx(0.3, rel=1e-9)
    assert a.share == pytest.approx(Center().share(model.solution_.plan.data, gdp.mu(1.0, 1e-5)))
    assert a.share + b.share + last.share == pytest.approx(1.0)


@pytest.mark.parametrize(
    "shares",
    [{"nobody": 0.1}, {"logisticregression": 0.9}, [0.1], {"center": 1.0}, {"center": 0.0}],
    ids=str,
)
def test_shares_that_mean_nothing_are_refused(shares):
    with pytest.raises(ValueError, match="shares must be"):
        pipeline(Center(), shares=shares).plan(N, 4)


def test_non_gaussian_solvers_get_the_remaining_budget():
    X, y = rows()
    estimator = classifier(solver=NoisySGD(n_steps=4, sampling_rate=0.2))
    model = pipeline(Center(), estimator=estimator, epsilon=1.0).fit(X, y)
    assert 0.97 < model.privacy_.epsilon <= 1.0
    assert verify(model.privacy_).ok


def test_centring_is_charged_once_and_apart_from_the_model():
    # Pitfall 14: X centred, and something else done, from one slice of the budget.
    X, y = rows()
    certificate = pipeline(Center(), shares={"center": 0.1}).fit(X, y).privacy_
    sums = [one for one in certificate.releases if one.quantity == "center: row sum"]
    assert [one.count for one in sums] == [1]
    happened = dict(certificate.mechanisms.terms)
    sigma = sums[0].noise_multiplier
    model_sigma = certificate.releases[1].noise_multiplier
    assert happened == {Gaussian(sigma): 1, Gaussian(model_sigma): 5}
    assert model_sigma != sigma


def test_a_second_mean_from_the_same_slice_is_found_out(monkeypatch):
    # The planted bug: the mean is asked for twice, and charged once.
    from dpglm.exceptions import PlanMismatchError

    def twice(oracle, declared):
        return (noisy_mean(oracle, declared) + noisy_mean(oracle, declared)) / 2

    monkeypatch.setattr(center_module, "noisy_mean", twice)
    X, y = rows()
    with pytest.raises(PlanMismatchError):
        pipeline(Center()).fit(X, y)


# One huge row


HUGE = [(Center(),), (Normalizer(), Center()), (Normalizer(), Center(), Center())]


def excess(steps):
    """Largest distance of two neighbours' sums, relative to the declared bound."""
    X, y = rows(60)
    neighbours = []
    for sign in (1.0, -1.0):
        X[7] = sign * np.array([1e6, -1e6, 1e6, 0.3])
        # Where rows are normalised, that is the row norm.
        estimator = classifier(row_norm=None if len(steps) > 1 else 4.0)
        model = pipeline(*steps, estimator=estimator, adjacency="replace_one", random_state=1)
        with scripted_releases(seed=2, size=1.0) as seen, np.errstate(over="ignore"):
            model.fit(X, y)
        neighbours.append(seen)
    releases = model.solution_.plan.method.releases
    multipliers = [one.noise_multiplier for one in releases for _ in range(one.count)]
    return max(
        float(np.linalg.norm(a - b)) / (std / multiplier)
        for (a, std), (b, _), multiplier in zip(*neighbours, multipliers, strict=True)
    )


@pytest.mark.parametrize("steps", HUGE, ids=len)
def test_one_huge_row_stays_within_the_noise_s_sensitivity(steps):
    # The bound is nearly reached, so noise for half of it would be found out.
    assert 0.9 < excess(steps) <= 1.0


def test_mapped_rows_that_are_not_bounded_again_are_found_out(monkeypatch):
    def unbounded(X, norms, row_norm, in_place=False):
        return X, np.full(len(X), row_norm)

    monkeypatch.setattr(prepare, "_within", unbounded)
    assert excess((Normalizer(), Center(row_norm=0.1), Center())) > 1.0


# Steps


RUNNING: list[object] = []
LEARNERS = [
    StandardScaler(),
    PCA(2),
    OneHotEncoder(),
    OneHotEncoder(categories=[[0, 1]] * 4, min_frequency=2),
    OrdinalEncoder(),
    KBinsDiscretizer(),
    Nystroem(),
    RBFSampler(gamma="scale"),
    SplineTransformer(),
    GaussianRandomProjection(),
    FunctionTransformer(lambda X: X - X.mean(axis=0)),
    FunctionTransformer(np.cumsum),
    FunctionTransformer(np.add),
    ColumnTransformer([("scale", StandardScaler(), [0])]),
    LogisticRegression(),
    FunctionTransformer(_umath_linalg.inv),
    FunctionTransformer(np.frompyfunc(RUNNING.append, 1, 1)),
    FunctionTransformer(np.log1p, kw_args={"where": False}),
    "somestep",
    None,
    object,
]


@pytest.mark.parametrize("step", LEARNERS, ids=lambda step: str(step)[:40].partition(" at ")[0])
def test_transformers_that_would_learn_are_refused(step):
    X, y = rows()
    with pytest.raises(ValueError, match="without spending budget"):
        pipeline(("step", step)).fit(X, y)


def test_passed_through_steps_are_absent():
    X, y = rows()
    skipping = pipeline(
        ("fixed", "passthrough"), Normalizer(), ("a", "passthrough"), Center(), random_state=1
    )
    plain = pipeline(Normalizer(), Center(), random_state=1)
    assert skipping.fit(X, y).privacy_ == plain.fit(X, y).privacy_
    np.testing.assert_array_equal(skipping.predict(X), plain.predict(X))
    alone = clone(plain).set_params(normalizer="passthrough", center="passthrough").fit(X, y)
    np.testing.assert_array_equal(alone.coef_, classifier(random_state=1).fit(X, y).coef_)
    with pytest.raises(ValueError, match="shares must be a mapping from names of private steps"):
        pipeline(("center", "passthrough"), shares={"center": 0.1}).plan(N, 4)
    with pytest.raises(ValueError, match="must end with a linear model"):
        PrivatePipeline([Center(), "passthrough"]).plan(N, 4)


def test_a_subclass_of_a_fixed_transformer_is_another_class():
    class Learning(Normalizer):
        def fit(self, X, y=None):
            self.mean_ = X.mean(axis=0)
            return self

    with pytest.raises(ValueError, match="would learn"):
        pipeline(Learning()).plan(N, 4)


FIXED = [
    Normalizer(),
    Binarizer(threshold=1.0),
    FunctionTransformer(),
    FunctionTransformer(np.log1p),
    FunctionTransformer(special.expit),
    PolynomialFeatures(2, include_bias=False),
    RBFSampler(gamma=0.5, n_components=7, random_state=0),
    GaussianRandomProjection(3, random_state=0),
    SplineTransformer(knots=np.linspace([0.0] * 4, [2.0] * 4, 4)),
    FrozenEstimator(StandardScaler().fit(rows(seed=1)[0])),
]


@pytest.mark.parametrize("step", FIXED, ids=lambda step: str(step)[:30])
def test_fixed_transformers_are_taken_recorded_and_cost_nothing(step):
    X, y = rows()
    model = pipeline(step, random_state=5).fit(X, y)
    by_hand = clone(step).fit(X, None).transform(X)
    plain = classifier(random_state=5).fit(by_hand, y)
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.predict(X), plain.predict(by_hand))
    assert model.privacy_.event == plain.privacy_.event
    fact = model.privacy_.fact("transformers")
    assert fact is not None
    assert fact.provenance == "declared"
    assert fact.value == [repr(step)]


def test_encoders_with_public_categories():
    X = np.array([["a", "x"], ["b", "y"], ["a", "y"]] * 50, dtype=object)
    y = (X[:, 0] == "a").astype(int)
    encoder = OneHotEncoder(categories=[["a", "b", "c"], ["x", "y"]], sparse_output=False)
    model = pipeline(encoder, Center(), estimator=classifier(row_norm=1.5)).fit(X, y)
    assert model.coef_.shape == (1, 5)
    assert model.coefficient_names().tolist() == ["x0_a", "x0_b", "x0_c", "x1_x", "x1_y"]
    hashed = pipeline(FeatureHasher(8, input_type="string"), estimator=classifier())
    assert hashed.fit(X.tolist(), y).coef_.shape == (1, 8)


def test_frozen_transformer_of_several_rows_is_detected():
    X, y = rows()
    centring = FrozenEstimator(FunctionTransformer(lambda X: X - X.mean(axis=0)))
    with pytest.raises(ValueError, match="among others"):
        pipeline(centring).fit(X, y)
    with pytest.raises(ValueError, match="among others"):
        pipeline(centring).fit(pd.DataFrame(X), y)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([], "steps must be a list"),
        ("center", "steps must be a list"),
        ([Center()], "must end with a linear model"),
        ([Center(), StandardScaler()], "must end with a linear model"),
        ([Center(), Normalizer(), LogisticRegression()], "fixed transformers first"),
        ([("a", Center()), ("a", LogisticRegression())], "names that differ"),
        ([("a__b", Center()), LogisticRegression()], "names that differ"),
        ([("epsilon", Center()), LogisticRegression()], "names that differ"),
    ],
)
def test_wrong_steps_are_refused(steps, message):
    X, y = rows()
    with pytest.raises(ValueError, match=message):
        PrivatePipeline(steps).fit(X, y)


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("epsilon", 0.5),
        ("delta", 1e-6),
        ("budget", GaussianDP(0.1)),
        ("adjacency", "replace_one"),
        ("n_rows", 17),
        ("random_state", 1),
    ],
)
def test_pipeline_settings_on_the_estimator_are_refused(name, theirs):
    with pytest.raises(ValueError, match=f"{name} must be set on the pipeline"):
        pipeline(estimator=classifier(**{name: theirs})).plan(N, 4)
    both = pipeline(estimator=classifier(**{name: theirs}), **{name: theirs})
    assert both.plan(N if name != "n_rows" else 17, 4)


def test_row_norm_defaults_to_that_of_last_transformer():
    X, y = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicInformationWarning)
        model = pipeline(Normalizer(), Center(), estimator=classifier(row_norm=None)).fit(X, y)
        plain = pipeline(Normalizer(), estimator=classifier(row_norm=0.9)).fit(X, y)
    assert model.solution_.plan.data.row_norm == 1.0
    assert plain.solution_.plan.data.row_norm == 0.9
    with pytest.warns(PublicInformationWarning, match="row_norm"):
        pipeline(Normalizer("max"), estimator=classifier(row_norm=None)).fit(X, y)


@pytest.mark.parametrize("spoil", ["NaN", "infinity", "length", "class"])
def test_nothing_is_released_on_bad_input(spoil, monkeypatch):
    from dpglm.privacy.releases import Curator

    X, y = rows()
    if spoil in ("NaN", "infinity"):
        X[3, 1] = np.nan if spoil == "NaN" else np.inf
    elif spoil == "length":
        y = y[:-1]
    else:
        y[0] = 7
    monkeypatch.setattr(Curator, "release", None)
    model = pipeline(Normalizer(), Center())
    with pytest.raises(ValueError, match=r"NaN|infinity|inconsistent|not in classes"):
        model.fit(X, y)
    with pytest.raises(NotFittedError):
        model.predict(X)


# The surface


def test_fit_executes_the_plan():
    X, y = rows()
    model = pipeline(Normalizer(), Center(), RandomProjection(2))
    assert model.plan(N, 4) == model.fit(X, y).solution_.plan


def test_regression():
    X, _ = rows(2000)
    estimator = LinearRegression(row_norm=1.0, target_bounds=(0.0, 1.0))
    model = PrivatePipeline([Normalizer(), Center(), estimator], epsilon=5.0)
    y = Normalizer().transform(X)[:, 0]
    model.fit(X, y)
    assert is_regressor(model)
    assert model.score(X, y) > 0.5
    assert model.coef_.shape == (4,)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "classes_")


def test_predictions_are_the_estimator_s_on_transformed_rows():
    X, y = rows()
    model = pipeline(Normalizer(), Center()).fit(X, y)
    Z = Normalizer().transform(X)
    scores = Z @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), scores)
    np.testing.assert_array_equal(model.predict(X), scores > 0)
    np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1 / (1 + np.exp(-scores)))
    assert is_classifier(model)
    assert not hasattr(pipeline(estimator=LinearSVC()), "predict_proba")
    assert model.n_features_in_ == 4
    assert model.classes_.tolist() == [0, 1]
    assert list(model.named_steps) == ["normalizer", "center", "logisticregression"]
    assert model.named_steps.logisticregression is model.estimator_


def test_parameters_by_name():
    model = pipeline(Normalizer(), Center(), Center())
    names = ["normalizer", "center-1", "center-2", "logisticregression"]
    assert list(model.named_steps) == names
    assert model.get_params()["center-1__lengthen"] is False
    assert model.get_params()["logisticregression__C"] == 1.0
    assert set(model.get_params(deep=False)) >= {"steps", "epsilon", "shares"}
    model.set_params(
        epsilon=0.3,
        normalizer=Normalizer(),
        **{"center-2__row_norm": 2.0, "normalizer__norm": "l1"},
    )
    assert model.epsilon == 0.3
    assert [name for name, _ in model.steps] == names
    assert model.steps[2][1] == Center(row_norm=2.0)
    assert model.steps[0][1].norm == "l1"
    for wrong in ({"nobody": 1}, {"center-1__nothing": 1}, {"logisticregression__x": 1}):
        with pytest.raises(ValueError, match=r"nobody|nothing|x"):
            model.set_params(**wrong)
    with pytest.raises(ValueError, match="names that differ"):
        pipeline(("same", Center()), ("same", Center())).set_params(same__row_norm=1.0)


def test_clone_pickle_and_refit():
    X, y = rows()
    model = pipeline(Normalizer(), Center(row_norm=0.5), shares={"center": 0.02})
    copy = clone(model)
    assert copy.get_params()["center"] == Center(row_norm=0.5)
    assert copy.steps is not model.steps
    assert copy.shares == {"center": 0.02}
    model.fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.privacy_ == model.privacy_
    with pytest.raises(NotFittedError):
        clone(model).predict(X)
    # The given steps are not touched.
    assert not hasattr(model.steps[-1], "coef_")
    assert model.steps[-1].solver == FEW
    assert cross_val_score(model, X, y, cv=2).shape == (2,)


def test_names_of_columns():
    X, y = rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    model = pipeline(Normalizer(), PolynomialFeatures(2, include_bias=False)).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "d"]
    assert model.coefficient_names()[:5].tolist() == ["a", "b", "c", "d", "a^2"]
    assert pipeline().fit(frame, y).coefficient_names().tolist() == ["a", "b", "c", "d"]
    assert pipeline().fit(X, y).coefficient_names() is None


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.PublicInformationWarning")
@parametrize_with_checks(
    [PrivatePipeline([Center(), LogisticRegression(solver=FEW)])],
    expected_failed_checks=lambda estimator: {
        "check_all_zero_sample_weights_error": "as for the estimators",
        "check_sample_weight_equivalence_on_dense_data": "as for the estimators",
        "check_sample_weight_equivalence_on_sparse_data": "as for the estimators",
    },
)
def test_check_estimator(estimator, check):
    check(estimator)


# Results


SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "kind": {"type": "categorical", "categories": ["p", "q"]},
        },
        "target": {"name": "old", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up",
    }
)


def test_a_model_file_has_the_schema_of_the_first_step(tmp_path):
    rng = np.random.default_rng(0)
    X = {"age": rng.uniform(0, 100, N), "kind": rng.choice(["p", "q"], N)}
    y = (X["age"] > 50).astype(int)
    model = pipeline(SchemaEncoder(SCHEMA), Center(), estimator=classifier(row_norm=None))
    model.fit(X, y)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.feature_names == ("age", "kind=p", "kind=q")
    assert loaded.certificate == model.privacy_
    assert model.coefficient_names().tolist() == ["age", "kind=p", "kind=q"]
    # The row norm that the schema implies.
    assert model.solution_.plan.data.row_norm == SCHEMA.row_norm


def test_a_model_file_without_transformers_and_none_with_others(tmp_path):
    X, y = rows()
    path = tmp_path / "model.json"
    model = pipeline(Center()).fit(X, y)
    save_model(model, path)
    np.testing.assert_array_equal(load_model(path).predict(X), model.predict(X))
    path.unlink()
    normalized = pipeline(Normalizer(), Center()).fit(X, y)
    with pytest.raises(ValueError, match="a model file cannot hold Normalizer"):
        save_model(normalized, path)
    assert not path.exists()
    save_model(normalized.estimator_, path)


def document(model):
    return json.loads(json.dumps(model.privacy_.to_dict()))


def put(path, change):
    def forge(record):
        *way, last = path
        if path[0] not in record:
            record = part_of(record)
        for key in way:
            record = record[key]
        record[last] = change(record[last])

    return forge


FORGERIES = {
    "epsilon": put(["epsilon"], lambda old: 0.9 * old),
    "noise of a step": put(["releases", 0, "mechanism", "noise_multiplier"], lambda old: 2 * old),
    "noise of the model": put(["noise_scales", 1], lambda old: old / 2),
    "a step left out": put(["releases"], lambda old: old[1:]),
    "a stage left out": put(["plan", "method", "steps"], lambda old: []),
    "another stage": put(["releases", 0, "quantity"], lambda old: "model: row sum"),
    "settings of a step": put(["plan", "method", "steps", 0, "mu"], lambda old: old / 2),
    "row norm of a step": put(
        ["plan", "method", "steps", 0, "data", "row_norm"], lambda old: old / 2
    ),
}


def test_the_certificate_is_read_back_as_it_was():
    X, y = rows()
    model = pipeline(Normalizer(), Center()).fit(X, y)
    again = Certificate.from_dict(document(model))
    assert again == model.privacy_
    assert verify(again).ok
    assert again.caveats() == ()


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_certificates_are_found_out(name):
    X, y = rows()
    forged = document(pipeline(Center(), random_state=0).fit(X, y))
    FORGERIES[name](forged)
    assert not verify(Certificate.from_dict(forged)).ok


def test_two_sums_for_the_price_of_one():
    X, y = rows()
    certificate = pipeline(Center()).fit(X, y).privacy_
    record = certificate.to_dict()
    cheap = Repeated(Gaussian(certificate.releases[1].noise_multiplier), 5)
    part_of(record)["event"] = part_of(record)["mechanisms"] = cheap.to_dict()
    assert not verify(Certificate.from_dict(record)).ok


class TestCheckpoints:
    def fit(self, path, schema, seed=0, **options):
        rng = np.random.default_rng(seed)
        table = {"age": rng.uniform(0, 100, 400)}
        table["ill"] = (table["age"] > 50).astype(int)
        model = LogisticRegression(classes=[0, 1])
        pipeline = PrivatePipeline([SchemaEncoder(schema), model], **options)
        return pipeline.fit(table, checkpoint=path)

    def schema(self, high=100):
        return {
            "columns": {"age": {"type": "numeric", "low": 0, "high": high}},
            "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
            "provenance": "generated",
        }

    def test_a_complete_fit_is_returned_again(self, tmp_path):
        first = self.fit(tmp_path / "kept", self.schema())
        with pytest.warns(UserWarning, match="complete"):
            again = self.fit(tmp_path / "kept", self.schema())
        np.testing.assert_array_equal(first.coef_, again.coef_)
        assert first.privacy_.model_digest == again.privacy_.model_digest

    def test_that_of_other_transformers_is_refused(self, tmp_path):
        self.fit(tmp_path / "kept", self.schema())
        with pytest.raises(PlanMismatchError, match="transformers"):
            self.fit(tmp_path / "kept", self.schema(high=90))
