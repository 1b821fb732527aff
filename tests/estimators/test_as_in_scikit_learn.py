"""Habits of scikit-learn's users: they work, or an error gives the reason."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer

from dpglm import (
    LogisticRegression,
    NoisyGD,
    PrivateGridSearchCV,
    PrivatePipeline,
)
from dpglm.preprocessing import Center
from dpglm.report import load_model, save_model

N = 200


def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0.1, 1.0, size=(N, 3)), columns=["age", "pay", "kids"])
    return X, (X["age"] > 0.5).astype(int)


def classifier(**settings):
    return LogisticRegression(classes=[0, 1], row_norm=2.0, solver=NoisyGD(n_steps=3), **settings)


def columns(step, **settings):
    return ColumnTransformer([("part", step, ["age", "pay"])], remainder="passthrough", **settings)


def message(call):
    with pytest.raises((ValueError, AttributeError)) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


class TestWhatCannotWorkSaysWhy:
    def test_private_steps_inside_fixed_ones(self):
        said = message(lambda: PrivatePipeline([columns(Center()), classifier()]).plan(N, 3))
        assert "its step 'part', Center(" in said
        assert "it is a private step" in said
        assert "put it after the fixed transformers" in said

    @pytest.mark.parametrize(
        "last",
        [Plain(), PrivatePipeline([Center(), classifier()]), PrivateGridSearchCV(classifier(), {})],
        ids=["scikit-learn's", "a pipeline", "a search"],
    )
    def test_pipelines_that_end_with_something_else(self, last):
        pipeline = PrivatePipeline([Normalizer(), last])
        assert "must end with a linear model of dpglm, got" in message(lambda: pipeline.plan(N, 3))

    def test_searches_over_pipelines_of_scikit_learn(self):
        search = PrivateGridSearchCV(make_pipeline(Normalizer(), classifier()), {})
        assert "a PrivatePipeline of dpglm, which takes the steps" in message(
            lambda: search.fit(*rows())
        )

    @pytest.mark.parametrize("name", ["cv_results_", "best_score_"])
    def test_scores_of_searches(self, name):
        search = PrivateGridSearchCV(classifier(), {"C": [1.0, 2.0]}, method="held_out")
        for one in (search, search.fit(*rows())):
            assert not hasattr(one, name)
            assert f"{name} does not exist, as scores of private rows" in message(
                lambda one=one: getattr(one, name)
            )


MODELS = {
    "model": classifier,
    "pipeline": lambda: PrivatePipeline([Normalizer(), Center(), classifier()]),
    "columns": lambda: PrivatePipeline([columns(FunctionTransformer(np.log1p)), classifier()]),
    "search": lambda: PrivateGridSearchCV(classifier(), {"C": [1.0]}, method="held_out"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_models_can_be_copied_pickled_calibrated_and_piped(make):
    X, y = rows()
    model = make().fit(X, y)
    for copied in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(copied.predict(X), model.predict(X))
        assert copied.privacy_ == model.privacy_
    assert repr(clone(model)) == repr(make())
    assert model._repr_html_()
    scaled = CalibratedClassifierCV(FrozenEstimator(model)).fit(X, y)
    assert scaled.predict_proba(X).shape == (N, 2)
    logs = cross_val_predict(make(), X, y, cv=2, method="predict_log_proba")
    assert np.isfinite(logs).all()
    swapped = columns("passthrough", verbose_feature_names_out=False)
    outer = make_pipeline(swapped, make()).set_output(transform="pandas")
    assert outer.fit(X[["kids", "pay", "age"]], y)[-1].feature_names_in_.tolist() == list(X)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_model_file_round_trip_for_every_estimator(make, tmp_path):
    X, y = rows()
    model = make().fit(X, y)
    linear = getattr(model, "best_estimator_", getattr(model, "estimator_", model))
    save_model(linear, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.coef_, linear.coef_)
    assert loaded.certificate == model.privacy_


def columns_of_names():
    return ["part__age", "part__pay", "remainder__kids"]


def test_names_follow_the_output_that_is_asked_for():
    X, y = rows()
    step = columns(FunctionTransformer(np.log1p)).set_output(transform="pandas")
    model = PrivatePipeline([step, Center(), classifier()]).fit(X, y)
    assert model.estimator_.feature_names_in_.tolist() == columns_of_names()
    assert model.coefficient_names().tolist() == columns_of_names()
