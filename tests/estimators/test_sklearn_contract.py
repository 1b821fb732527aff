"""scikit-learn's own checks on every estimator, and the containers that they must take."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpglm.estimators
from dpglm import (
    GeneralizedLinearRegressor,
    LinearSVC,
    LogisticRegression,
    RobustClassifier,
)
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.exceptions import PublicInformationWarning
from tests.fits import admitted_bounds

pytestmark = pytest.mark.one_in(3)

PUBLIC = [getattr(dpglm.estimators, name) for name in dpglm.estimators.__all__]
# scikit-learn's checks make targets beyond the bounds of proportions, which are then clipped.
KNOWING = {"BinomialRegressor": {"target_bounds": (0.0, 1.0)}}
CLASSES = [
    kind(**KNOWING.get(kind.__name__, {}))
    for kind in PUBLIC
    if issubclass(kind, PrivateLinearModel)
]
VARIANTS = [
    LinearSVC(loss="hinge"),
    LinearSVC(loss="smoothed_hinge"),
    RobustClassifier(loss="tangent"),
    RobustClassifier(loss="tempered"),
    GeneralizedLinearRegressor(loss="poisson"),
]
ESTIMATORS = CLASSES + VARIANTS

# scikit-learn's check -> why it cannot hold for a private estimator.
_WEIGHTS = (
    "a row of weight 0 still counts in the public n, and a row of weight 2 is clipped once, so "
    "weights are not repetitions"
)
EXEMPTED = {
    "check_sample_weight_equivalence_on_dense_data": _WEIGHTS,
    "check_sample_weight_equivalence_on_sparse_data": _WEIGHTS,
    "check_all_zero_sample_weights_error": "an error would reveal the only row with a weight",
}


def exemptions(estimator):
    return EXEMPTED


# Two classes or more, least squares, a link, and an iterative fit of a bounded loss.
REPRESENTATIVE = ("LogisticRegression", "Ridge", "PoissonRegressor", "RobustClassifier")


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.PublicInformationWarning")
@parametrize_with_checks(
    [one for one in CLASSES if type(one).__name__ in REPRESENTATIVE],
    expected_failed_checks=exemptions,
)
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dpglm.exceptions.PublicInformationWarning")
@parametrize_with_checks(
    [one for one in ESTIMATORS if one in VARIANTS or type(one).__name__ not in REPRESENTATIVE],
    expected_failed_checks=exemptions,
)
def test_check_other_estimator(estimator, check):
    check(estimator)


def declared(estimator):
    """The estimator with everything public declared, so that no warning is due."""
    options = {"row_norm": 2.0}
    if is_regressor(estimator):
        options["target_bounds"] = admitted_bounds(estimator, (0.0, 4.0))
    else:
        options["classes"] = [0, 1, 2]
    return clone(estimator).set_params(**options)


def data(estimator, n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 3))
    if is_regressor(estimator):
        return X, np.clip(X @ [1.0, -1.0, 0.5] + 2.0, 0.05, 4.0)
    return X, rng.integers(0, 3, n)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_containers_give_the_same_model(estimator):
    X, y = data(estimator)
    names = ["a", "b", "c"]
    models = {
        kind: declared(estimator).set_params(random_state=1).fit(made, y)
        for kind, made in {
            "numpy": X,
            "pandas": pd.DataFrame(X, columns=names),
            "polars": pl.DataFrame(X, schema=names),
            "fortran": np.asfortranarray(X),
        }.items()
    }
    for model in models.values():
        np.testing.assert_allclose(model.coef_, models["numpy"].coef_, rtol=1e-6)
    assert models["pandas"].feature_names_in_.tolist() == names
    assert models["polars"].feature_names_in_.tolist() == names
    csr = declared(estimator).set_params(random_state=1).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(csr.coef_, models["numpy"].coef_, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(csr.predict(sparse.csr_array(X)), csr.predict(X))


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_pickle_clone_and_shapes(estimator):
    X, y = data(estimator)
    model = declared(estimator).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.privacy_ == model.privacy_
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    if is_classifier(model):
        assert model.coef_.shape == (3, 3)
        assert model.intercept_.shape == (3,)
        assert model.decision_function(X).shape == (len(X), 3)
    else:
        assert model.coef_.shape == (3,)
        assert isinstance(model.intercept_, float)
    assert model.n_features_in_ == 3
    assert model.n_iter_ == model.solution_.n_steps > 0


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_nothing_is_taken_from_the_data_when_all_is_declared(estimator):
    X, y = data(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PublicInformationWarning)
        model = declared(estimator).fit(X, y)
    assert {fact.provenance for fact in model.privacy_.public_facts} <= {
        "declared",
        "by relation",
    }


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_facts_from_the_data_cause_warnings_and_are_recorded(estimator):
    X, y = data(estimator)
    with pytest.warns(PublicInformationWarning) as caught:
        model = clone(estimator).fit(X, y, sample_weight=np.ones(len(y)))
    taken = {f.name for f in model.privacy_.public_facts if f.provenance == "from the data"}
    expected = {"row_norm", "weight_bound"}
    if is_classifier(model) or model.target_bounds is None:
        expected.add("target_bounds" if is_regressor(model) else "classes")
    assert taken == expected
    assert len([w for w in caught if w.category is PublicInformationWarning]) == len(expected)


def test_duplicate_sparse_entries_are_summed_before_clipping():
    X, y = data(LogisticRegression())
    model = LogisticRegression(classes=[0, 1, 2], feature_bounds=(-1, 1), random_state=0).fit(X, y)
    twice = sparse.csr_array(([0.8, 0.8], [0, 0], [0, 2]), shape=(1, 3))
    np.testing.assert_allclose(model.decision_function(twice), model.decision_function([[1, 0, 0]]))
    assert twice.nnz == 2


def test_two_private_fits_differ_and_seeded_fits_agree():
    X, y = data(LogisticRegression())
    model = declared(LogisticRegression())
    first, second = (clone(model).fit(X, y) for _ in range(2))
    assert not np.allclose(first.coef_, second.coef_)
    assert first.privacy_.noise_is_private
    seeded = [clone(model).set_params(random_state=3).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].coef_, seeded[1].coef_)
    assert not seeded[0].privacy_.noise_is_private
    with pytest.raises(ValueError, match="random_state"):
        clone(model).set_params(random_state=np.random.RandomState(0)).fit(X, y)


def test_pipeline_set_output_and_cross_validation():
    frame = pd.DataFrame(data(LogisticRegression())[0], columns=["a", "b", "c"])
    y = data(LogisticRegression())[1]
    half = FunctionTransformer(lambda X: X * 0.5, feature_names_out="one-to-one")
    model = make_pipeline(half, declared(LogisticRegression())).set_output(transform="pandas")
    model.fit(frame, y)
    assert model[-1].feature_names_in_.tolist() == ["a", "b", "c"]
    assert cross_val_score(declared(LinearSVC()), frame, y, cv=3).shape == (3,)


def test_probabilities():
    X, y = data(LogisticRegression())
    for classes, labels in (([0, 1, 2], y), ([0, 1], np.minimum(y, 1))):
        model = LogisticRegression(classes=classes, row_norm=2.0).fit(X, labels)
        p = model.predict_proba(X)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))


@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-1.0, 1.0], [7, 3]])
def test_labels_of_any_type(labels):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4000, 2))
    truth = X[:, 0] > 0
    first, second = sorted(labels)
    y = np.where(truth, second, first)
    model = LogisticRegression(classes=labels, feature_bounds=(-1, 1), epsilon=4.0).fit(X, y)
    assert model.classes_.tolist() == [first, second]
    assert model.score(X, y) > 0.9


def test_weights_move_the_model_and_keep_the_sensitivity():
    rng = np.random.default_rng(2)
    X = np.ones((2000, 1))
    y = rng.integers(0, 2, 2000)
    even = LogisticRegression(
        classes=[0, 1],
        row_norm=1.0,
        epsilon=8.0,
        class_weight={0: 1.0, 1: 1.0},
        solver="noisy_gd",
    )
    heavy = clone(even).set_params(class_weight={1: 5.0})
    p_even = even.fit(X, y).predict_proba(X[:1])[0, 1]
    p_heavy = heavy.fit(X, y).predict_proba(X[:1])[0, 1]
    assert p_heavy > 0.75 > 0.6 > p_even > 0.4
    ratio = heavy.solution_.plan.method.noise_std / even.solution_.plan.method.noise_std
    assert ratio == pytest.approx(5.0, rel=1e-6)
    with pytest.raises(ValueError, match="balanced"):
        clone(even).set_params(class_weight="balanced").fit(X, y)
