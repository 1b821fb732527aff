"""A model file predicts like the estimator, and is written completely or not at all."""

import json
import os
import warnings

import numpy as np
import pytest
from pandas import DataFrame
from pandas.testing import assert_frame_equal
from scipy import sparse

from dpglm.estimators import (
    AdditiveClassifier,
    ElasticNet,
    HuberRegressor,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RobustClassifier,
)
from dpglm.report import load_model, save_model
from dpglm.tables.schema import Schema
from tests.fits import make_rows

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "smoker": {"type": "categorical", "categories": ["no", "yes"]},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "the questionnaire",
    }
)
TABLE = {"age": np.linspace(0.0, 100.0, 200), "smoker": np.array(["no", "yes"] * 100)}


@pytest.fixture(params=["binary", "multinomial", "regression", "sampled"])
def estimator(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.json"


class TestPredictions:
    @pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
    def test_clip_features_to_the_bounds_of_the_fit(self, path, container):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (500, 2))
        fitted = LogisticRegression(feature_bounds=(-1, 1), classes=[False, True])
        save_model(fitted.fit(X, X[:, 0] > 0), path)
        far = container([[50.0, -9.0], [0.2, 0.3]])
        scores = load_model(path).decision_function(far)
        np.testing.assert_array_equal(scores, fitted.decision_function(far))
        near = load_model(path).decision_function([[1.0, -1.0], [0.2, 0.3]])
        np.testing.assert_allclose(scores, near)

    def test_are_the_estimators_bit_for_bit(self, estimator, path):
        X, _ = make_rows()
        save_model(estimator, path)
        model = load_model(path)
        np.testing.assert_array_equal(model.coef_, estimator.coef_)
        np.testing.assert_array_equal(model.intercept_, estimator.intercept_)
        np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
        assert model.certificate == estimator.privacy_
        assert model.estimator == type(estimator).__name__
        assert model.n_features == 3
        assert model.schema is None

    def test_classifiers(self, binary, multinomial, path):
        X, _ = make_rows()
        for estimator in (binary, multinomial):
            save_model(estimator, path)
            model = load_model(path)
            np.testing.assert_array_equal(model.predict_proba(X), estimator.predict_proba(X))
            scores = estimator.decision_function(X)
            np.testing.assert_array_equal(model.decision_function(X), scores)

    @pytest.mark.parametrize(
        "estimator",
        [
            Ridge(target_bounds=(0, 2)),
            ElasticNet(target_bounds=(0, 2)),
            HuberRegressor(target_bounds=(0, 2)),
            PoissonRegressor(target_bounds=(0, 2)),
            LinearSVC(classes=[0, 1, 2]),
            RobustClassifier(classes=[0, 1, 2]),
        ],
        ids=lambda estimator: type(estimator).__name__,
    )
    def test_every_kind_of_estimator(self, estimator, path):
        X, y = make_rows(n_classes=3)
        estimator.set_params(row_norm=2.0).fit(X, y)
        save_model(estimator, path)
        model = load_model(path)
        np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
        if not hasattr(estimator, "predict_proba"):
            with pytest.raises(ValueError, match="probabilities"):
                model.predict_proba(X)

    def test_sparse_rows(self, binary, path):
        X, _ = make_rows()
        save_model(binary, path)
        rows = sparse.csr_array(X)
        np.testing.assert_allclose(
            load_model(path).decision_function(rows), binary.decision_function(X), rtol=1e-12
        )

    def test_regressor_has_no_scores(self, regression, path):
        save_model(regression, path)
        with pytest.raises(ValueError, match="regressor"):
            load_model(path).decision_function(np.zeros((1, 3)))

    def test_wrong_rows_are_refused(self, binary, path):
        save_model(binary, path)
        for wrong in (np.zeros((2, 4)), np.full((2, 3), np.nan), np.zeros(3)):
            with pytest.raises(ValueError, match=r"columns|NaN|2D"):
                load_model(path).predict(wrong)

    @pytest.mark.parametrize("labels", [["a<b", "é"], [False, True], [1.0, 2.0]])
    def test_labels_keep_their_type(self, labels, path):
        X, y = make_rows()
        estimator = LogisticRegression(classes=labels, row_norm=2.0).fit(X, np.array(labels)[y])
        save_model(estimator, path)
        predicted = load_model(path).predict(X)
        np.testing.assert_array_equal(predicted, estimator.predict(X))
        assert predicted.dtype.kind == np.array(labels).dtype.kind


class TestTables:
    @pytest.fixture
    def fitted(self):
        X, y = SCHEMA.encode(TABLE), np.array(["yes", "no"] * 100)
        return LogisticRegression(classes=["no", "yes"], row_norm=SCHEMA.row_norm).fit(X, y)

    def test_are_encoded_by_the_schema_in_the_file(self, fitted, path):
        save_model(fitted, path, SCHEMA)
        model = load_model(path)
        assert model.schema == SCHEMA
        assert model.feature_names == SCHEMA.feature_names
        expected = fitted.predict(SCHEMA.encode(TABLE))
        np.testing.assert_array_equal(model.predict(TABLE), expected)

    def test_missing_column_is_named(self, fitted, path):
        save_model(fitted, path, SCHEMA)
        with pytest.raises(ValueError, match="smoker"):
            load_model(path).predict({"age": TABLE["age"]})

    def test_schema_of_another_model_is_refused(self, path):
        X, y = make_rows(n_features=5)
        fitted = LogisticRegression(classes=[0, 1], row_norm=3.0).fit(X, y)
        with pytest.raises(ValueError, match="schema must have 5 features"):
            save_model(fitted, path, SCHEMA)
        assert not path.exists()

    def test_columns_of_a_frame_must_be_in_order(self, path):
        pandas = pytest.importorskip("pandas")
        X, y = make_rows()
        frame = pandas.DataFrame(X, columns=["a", "b", "c"])
        fitted = LogisticRegression(classes=[0, 1], row_norm=2.0).fit(frame, y)
        save_model(fitted, path)
        model = load_model(path)
        np.testing.assert_array_equal(model.predict(frame), fitted.predict(frame))
        with pytest.raises(ValueError, match="in this order"):
            model.predict(frame[["b", "a", "c"]])


class TestFile:
    def test_is_strict_json_without_training_rows(self, binary, path):
        save_model(binary, path)
        document = json.loads(path.read_text(), parse_constant=pytest.fail)
        assert document["format"] == "dpglm model"
        assert set(document) == {
            "format",
            "version",
            "estimator",
            "classes",
            "feature_names",
            "coef",
            "intercept",
            "schema",
            "certificate",
            "estimates",
            "digest",
        }

    def test_can_be_read_by_whom_the_umask_allows(self, binary, path):
        before = os.umask(0o022)
        try:
            save_model(binary, path)
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o777 == 0o644

    def test_failure_leaves_the_old_file_and_nothing_else(self, binary, path, monkeypatch):
        save_model(binary, path)
        old = path.read_bytes()

        def full_disk(descriptor):
            raise OSError("no space left on device")

        monkeypatch.setattr(os, "fsync", full_disk)
        with pytest.raises(OSError, match="no space"):
            save_model(binary, path)
        assert path.read_bytes() == old
        assert list(path.parent.iterdir()) == [path]

    def test_unwritable_labels_leave_nothing(self, path):
        X, y = make_rows()
        days = np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]")
        estimator = LogisticRegression(classes=[0, 1], row_norm=2.0).fit(X, y)
        estimator.classes_ = days
        with pytest.raises(ValueError, match="classes must be strings or numbers"):
            save_model(estimator, path)
        assert list(path.parent.iterdir()) == []

    def test_unfitted_estimator(self, path):
        with pytest.raises(ValueError, match="not fitted"):
            save_model(LinearRegression(), path)


def replace(**entries):
    return lambda document: {**document, **entries}


class TestForgeries:
    @pytest.mark.parametrize(
        ("forge", "message"),
        [
            (lambda d: {**d, "coef": [[c + 1e-15 for c in d["coef"][0]]]}, "not those that its"),
            (lambda d: {**d, "intercept": [0.0]}, "not those that its"),
            (lambda d: {**d, "coef": d["coef"][0]}, "do not fit"),
            (replace(coef=[["a"]]), r"coef\[0\]\[0\] must be a finite number"),
            (replace(classes=[0, 1, 2]), "3 classes"),
            (replace(version=99), "version"),
            (replace(format="pickle"), "format"),
            (replace(extra=1), "extra"),
            (replace(certificate={}), "certificate"),
            (replace(schema={"columns": {}}), "schema"),
        ],
    )
    def test_is_refused(self, binary, path, forge, message):
        save_model(binary, path)
        path.write_text(json.dumps(forge(json.loads(path.read_text()))))
        with pytest.raises(ValueError, match=message):
            load_model(path)

    def test_one_bit_of_a_coefficient_is_enough(self, binary, path):
        save_model(binary, path)
        document = json.loads(path.read_text())
        document["coef"][0][0] = float(np.nextafter(document["coef"][0][0], np.inf))
        path.write_text(json.dumps(document))
        with pytest.raises(ValueError, match="not those that its certificate"):
            load_model(path)

    def test_pickles_are_not_read(self, path):
        path.write_bytes(b"\x80\x04K\x01.")
        with pytest.raises(ValueError, match=r"model\.json"):
            load_model(path)


def test_no_warnings_on_loading(binary, path):
    save_model(binary, path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_model(path)


class TestShapes:
    """A model that was read has the shapes, bands and intervals of the fitted one."""

    @pytest.fixture(params=[False, True], ids=["default", "inference"])
    def fitted(self, request):
        rng = np.random.default_rng(0)
        table = {"age": rng.uniform(0, 100, 3000), "smoker": rng.choice(["no", "yes"], 3000)}
        ill = np.where(rng.random(3000) < table["age"] / 100, "yes", "no")
        options = {"epsilon": 4.0, "random_state": 0, "inference": request.param}
        return AdditiveClassifier(SCHEMA, **options).fit(table, ill)

    @pytest.fixture
    def read(self, fitted, path):
        save_model(fitted, path)
        return load_model(path)

    def test_tables_are_equal(self, fitted, read):
        assert read.shapes_.band == fitted.shapes_.band != ""
        assert read.shapes_.score == fitted.shapes_.score
        assert_frame_equal(read.shapes_table(), fitted.shapes_table())
        pointwise = read.shapes(level=0.5, simultaneous=False).table()
        own = fitted.shapes(level=0.5, simultaneous=False).table()
        assert_frame_equal(DataFrame(pointwise), DataFrame(own), rtol=1e-12)

    def test_pictures_have_a_panel_for_each_column(self, read):
        assert len(read.plot_shapes().axes) == 2

    def test_certificate_and_intervals_have_their_names(self, fitted, read):
        assert read.privacy_ == fitted.privacy_
        if fitted.inference:
            found, own = read.inference_.conf_int(), fitted.inference_
            np.testing.assert_array_equal(found, own.conf_int())
        else:
            assert not hasattr(read, "inference_")

    def test_monotone_curves_keep_their_bands(self, path):
        rng = np.random.default_rng(0)
        table = {"age": rng.uniform(0, 100, 2000), "smoker": rng.choice(["no", "yes"], 2000)}
        ill = np.where(rng.random(2000) < table["age"] / 100, "yes", "no")
        options = {"epsilon": 1.0, "random_state": 0, "monotone": {"age": 1}}
        fitted = AdditiveClassifier(SCHEMA, **options).fit(table, ill)
        save_model(fitted, path)
        assert load_model(path).shapes_.table() == fitted.shapes_.table()

    def test_models_without_a_schema_have_none(self, estimator, path):
        save_model(estimator, path)
        read = load_model(path)
        assert not hasattr(read, "shapes_")
        with pytest.raises(ValueError, match="schema"):
            read.shapes()

    def test_means_that_do_not_fit_are_refused(self, fitted, path):
        save_model(fitted, path)
        document = json.loads(path.read_text())
        path.write_text(json.dumps(document | {"means": [0.5]}))
        with pytest.raises(ValueError, match="means of"):
            load_model(path)

    def test_noise_that_does_not_fit_is_refused(self, fitted, path):
        save_model(fitted, path)
        document = json.loads(path.read_text())
        if fitted.inference:
            zero = {"center": [[0.0]], "covariance": [[1.0]], "outputs": [1.0]}
            more = {"of_sampling": False, "degrees_of_freedom": 9.0, "doubt": None}
            document["noise"] = zero | more
        else:
            document["noise"]["outputs"].append(1.0)
        path.write_text(json.dumps(document))
        with pytest.raises(ValueError, match="noise"):
            load_model(path)
