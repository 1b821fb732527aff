"""`dpglm predict`: one row for each row, in order."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier

from dpglm import LogisticRegression, Ridge
from dpglm.cli.fitting import estimator_class
from dpglm.cli.options import ESTIMATORS
from dpglm.report.model_file import load_model, save_model

CLASSIFIERS = [name for name in ESTIMATORS if is_classifier(estimator_class(name)())]


@pytest.fixture
def model(fit):
    assert fit().exit_code == 0
    return load_model("model.json")


@pytest.mark.parametrize("output", ["p.csv", "p.csv.gz", "p.parquet", "new/p.pq"])
def test_labels_and_probabilities(run, files, frame, model, output):
    done = run("predict", "people.csv", "--model", "model.json", "-o", output)
    assert done.exit_code == 0, done.output
    assert f"Wrote 400 predictions to {output}" in done.stderr
    read = pd.read_csv if ".csv" in output else pd.read_parquet
    found = read(files / output)
    assert list(found) == ["prediction", "probability of no", "probability of yes"]
    assert found["prediction"].tolist() == model.predict(frame).tolist()
    assert np.allclose(found.iloc[:, 1:], model.predict_proba(frame), rtol=1e-15)


def test_only_the_models_columns_are_needed(run, files, frame, model):
    frame[["smoker", "age"]].to_parquet("new.parquet")
    run("predict", "new.parquet", "--model", "model.json", "-o", "p.csv")
    assert pd.read_csv("p.csv")["prediction"].tolist() == model.predict(frame).tolist()


def test_a_model_without_probabilities_or_schema(run, files, frame):
    X = frame[["age", "id"]]
    bounds = {"feature_bounds": (0, 1000), "target_bounds": (0, 100)}
    save_model(Ridge(**bounds).fit(X, frame["age"]), "ridge.json")
    done = run("predict", "people.csv", "--model", "ridge.json", "-o", "p.csv")
    assert done.exit_code == 0, done.output
    found = pd.read_csv("p.csv")
    assert list(found) == ["prediction"]
    assert np.allclose(found["prediction"], load_model("ridge.json").predict(X))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("people.csv", "--model", "schema.json", "-o", "p.csv"), "is not a dpglm model"),
        (("people.csv", "--model", "model.json", "-o", "p.txt"), "must end in .csv"),
        (("people.csv", "--model", "model.json", "-o", "schema.json/p.csv"), "is a file"),
        (("people.csv", "--model", "model.json", "-o", "people.parquet"), "exists already"),
        (("people.csv", "--model", "model.json", "-o", "people.csv"), "another file than DATA"),
        (("few.csv", "--model", "model.json", "-o", "p.csv"), "few.csv: there is no column 'age'"),
        (("bad.csv", "--model", "model.json", "-o", "p.csv"), "column 'smoker', row 2: 'hm' is"),
        (("people.csv", "--model", "bare.json", "-o", "p.csv"), "does not name the columns"),
    ],
)
def test_errors_leave_no_file(run, fails, files, frame, model, listing, arguments, says):
    (files / "few.csv").write_text("smoker\nyes\n")
    (files / "bad.csv").write_text("smoker,age\nyes,3\nhm,4\n")
    bare = LogisticRegression(row_norm=200.0, classes=["no", "yes"])
    save_model(bare.fit(frame[["age"]].to_numpy(), frame["ill"]), "bare.json")
    before = listing(files)
    assert says in fails(run("predict", *arguments))
    assert listing(files) == before


class TestProbabilities:
    """They are written where the estimator has them, and are those that it gives."""

    @pytest.fixture
    def regions(self, files, sample, frame):
        """A table with a target of three classes."""
        frame["region"] = np.array(["north", "south", "west"])[frame["age"] // 34]
        frame.to_csv("regions.csv", index=False)
        target = {"name": "region", "type": "classes", "classes": ["north", "south", "west"]}
        (files / "regions.json").write_text(json.dumps(sample.schema | {"target": target}))
        return frame

    def test_one_against_the_rest(self, fit, run, files, regions):
        options = ("--set", "multi_class=ovr")
        assert fit(*options, data="regions.csv", schema="regions.json").exit_code == 0
        assert run("predict", "regions.csv", "--model", "model.json", "-o", "p.csv").exit_code == 0
        found, model = pd.read_csv("p.csv"), load_model("model.json")
        names = ["probability of north", "probability of south", "probability of west"]
        assert list(found) == ["prediction", *names]
        assert np.allclose(found[names], model.predict_proba(regions), rtol=1e-15)
        assert np.allclose(found[names].sum(axis=1), 1.0)

    @pytest.mark.parametrize("name", CLASSIFIERS)
    @pytest.mark.parametrize("labels", [2, 3])
    def test_every_classifier(self, run, files, name, labels):
        rng = np.random.default_rng(0)
        X = pd.DataFrame(rng.uniform(-1, 1, (60, 2)), columns=["a", "b"])
        y = np.arange(60) % labels
        kind = estimator_class(name)
        given = {"epsilon": 1e3, "row_norm": 2.0, "classes": list(range(labels))}
        ways = ("multinomial", "ovr") if "multi_class" in kind().get_params() else (None,)
        for way in ways:
            chosen = {} if way is None else {"multi_class": way}
            fitted = kind(**given, **chosen).fit(X, y)
            save_model(fitted, "any.json")
            X.to_csv("X.csv", index=False)
            done = run("predict", "X.csv", "--model", "any.json", "-o", "p.csv", "--force")
            assert done.exit_code == 0, done.output
            found = pd.read_csv("p.csv")
            assert found["prediction"].tolist() == fitted.predict(X).tolist()
            gives = getattr(fitted, "predict_proba", None)
            assert found.shape[1] == (1 if gives is None else 1 + labels)
            if gives is not None:
                assert np.allclose(found.iloc[:, 1:], gives(X), rtol=1e-12)


class TestKeep:
    @pytest.mark.parametrize("output", ["p.csv", "p.parquet"])
    def test_columns_are_copied_in_the_order_given(self, run, files, frame, model, output):
        frame["code"] = [f"{i:05d}" for i in frame["id"]]
        frame.to_csv("new.csv", index=False)
        keep = ("--keep", "code", "--keep", "age", "--keep", "id")
        done = run("predict", "new.csv", "--model", "model.json", "-o", output, *keep)
        assert done.exit_code == 0, done.output
        read = pd.read_parquet if output.endswith("parquet") else pd.read_csv
        found = read(output) if read is pd.read_parquet else read(output, dtype=str)
        assert list(found)[:4] == ["code", "age", "id", "prediction"]
        assert found["code"].tolist() == frame["code"].tolist()
        assert found["age"].tolist() == frame["age"].astype(str).tolist()
        assert found["prediction"].tolist() == model.predict(frame).tolist()

    def test_parquet_keeps_its_types(self, run, files, frame, model):
        frame["when"] = pd.Timestamp("2026-01-31 10:00", tz="UTC")
        frame["note"] = [None if i % 2 else 'of "two", words' for i in frame["id"]]
        frame.to_parquet("new.parquet")
        options = ("--keep", "id", "--keep", "when", "--keep", "note")
        for output in ("p.parquet", "p.csv"):
            done = run("predict", "new.parquet", "--model", "model.json", "-o", output, *options)
            assert done.exit_code == 0, done.output
        found = pd.read_parquet("p.parquet")
        for name in ("id", "when", "note"):
            assert found[name].equals(frame[name]), name
        text = pd.read_csv("p.csv")
        assert text["id"].tolist() == frame["id"].tolist()
        assert text["note"].equals(frame["note"])

    def test_model_without_a_schema(self, run, files, frame):
        bounds = {"feature_bounds": (0, 1000), "target_bounds": (0, 100)}
        X = frame[["age", "id"]]
        save_model(Ridge(**bounds).fit(X, frame["age"]), "ridge.json")
        options = ("--keep", "smoker", "--keep", "id", "--keep", "smoker")
        done = run("predict", "people.csv", "--model", "ridge.json", "-o", "p.csv", *options)
        assert done.exit_code == 0, done.output
        found = pd.read_csv("p.csv")
        assert list(found) == ["smoker", "id", "prediction"]
        assert np.allclose(found["prediction"], load_model("ridge.json").predict(X))

    @pytest.mark.parametrize(
        ("column", "says"),
        [
            ("name", "people.csv: there is no column 'name'; the file has 'age'"),
            ("prediction", "--keep prediction: must name another column than those of the predi"),
            ("probability of yes", "--keep probability of yes: must name another column than"),
        ],
    )
    def test_states_that_cannot_be_kept(self, run, fails, files, model, listing, column, says):
        before = listing(files)
        options = ("--model", "model.json", "-o", "p.csv", "--keep", column)
        assert says in fails(run("predict", "people.csv", *options))
        assert listing(files) == before
