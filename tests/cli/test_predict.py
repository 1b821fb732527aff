"""`dpglm predict`: one row for each row, in order."""

import numpy as np
import pandas as pd
import pytest

from dpglm import LogisticRegression, Ridge
from dpglm.report.model_file import load_model, save_model


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
