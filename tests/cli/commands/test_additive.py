"""`dpglm fit --additive` and `dpglm plan --additive`."""

import json

import numpy as np
import pandas as pd
import pytest

from dpglm import AdditiveClassifier, AdditiveRegressor
from dpglm.certificate import verify
from dpglm.report.model_file import load_model

PAIR = ("--interaction", "age:smoker")


def test_the_model_is_that_of_python(fit, files, frame, sample):
    done = fit("--additive", *PAIR, "--set", "random_state=3", "--delta", "1e-5", "--report", "r")
    assert done.exit_code == 0, done.output
    assert "Curves: 2 segments for each numeric column" in done.stderr
    model = load_model("model.json")
    wanted = AdditiveClassifier(
        sample.schema, epsilon=5.0, delta=1e-5, interactions=[("age", "smoker")], random_state=3
    ).fit(frame)
    np.testing.assert_array_equal(model.coef_, wanted.coef_)
    np.testing.assert_allclose(model.predict_proba(frame), wanted.predict_proba(frame))
    assert verify(model.certificate).ok
    assert model.certificate.fact("schema").value["additive"]["interactions"] == [["age", "smoker"]]
    assert "age x smoker" in (files / "r" / "report.html").read_text()


def test_predictions_come_from_the_saved_model(fit, run, frame):
    fit("--additive", "--monotone", "age=+1")
    done = run("predict", "people.csv", "--model", "model.json", "--output", "found.csv")
    assert done.exit_code == 0, done.output
    model, found = load_model("model.json"), pd.read_csv("found.csv")
    assert (found["prediction"] == frame["ill"]).mean() > 0.75
    np.testing.assert_allclose(
        found["probability of yes"], model.predict_proba(frame)[:, 1], atol=1e-6
    )
    ages = {"age": np.arange(101), "smoker": ["no"] * 101}
    assert (np.diff(model.predict_proba(ages)[:, 1]) >= -1e-9).all()
    assert model.certificate.fact("monotone").value == {"age": 1}


def test_streamed_rows_are_encoded_as_they_are_read(fit):
    done = fit("--additive", "--stream", data="people.parquet")
    assert done.exit_code == 0, done.output
    assert "Streaming 400 rows" in done.stderr
    assert "age at 0" in load_model("model.json").schema.units.names


def test_numbers_are_predicted_with_the_loss_that_is_set(fit, files, frame, sample):
    target = {"name": "cost", "type": "numeric", "low": 0, "high": 10}
    (files / "costs.json").write_text(json.dumps(sample.schema | {"target": target}))
    frame.assign(cost=frame["age"] / 10.0).to_csv("costs.csv", index=False)
    setting = ("--set", "loss=huber", "--set", "random_state=0", "--delta", "1e-5")
    done = fit("--additive", *setting, data="costs.csv", schema="costs.json")
    assert done.exit_code == 0, done.output
    wanted = AdditiveRegressor(
        json.loads((files / "costs.json").read_text()),
        loss="huber",
        epsilon=5.0,
        delta=1e-5,
        random_state=0,
    ).fit(pd.read_csv("costs.csv"))
    np.testing.assert_array_equal(load_model("model.json").coef_, wanted.coef_)


def test_the_plan_is_the_one_of_the_fit(fit, run):
    done = run("plan", "--n-rows", "400", "--schema", "schema.json", "--epsilon", "5", "--additive")
    assert done.exit_code == 0, done.output
    curves = next(line for line in done.stderr.splitlines() if line.startswith("Curves"))
    assert curves in fit("--additive").stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PAIR, "--interaction age:smoker: needs --additive"),
        (("--monotone", "age=+1"), "--monotone age=+1: needs --additive"),
        (("--additive", "--interaction", "age:nose"), "must be COLUMN:COLUMN, two columns"),
        (("--additive", "--monotone", "age=up"), "must be COLUMN=+1 or COLUMN=-1"),
        (("--additive", "--monotone", "smoker=1"), "monotone must name numeric or ordered columns"),
        (("--additive", "--estimator", "svm"), "--estimator cannot be combined with --additive"),
        (("--additive", "--formula", "~ age"), "--formula cannot be combined with --additive"),
        (("--additive", "--set", "schema=x.json"), "must be NAME=VALUE with a name among"),
    ],
)
def test_impossible_cases(fit, fails, listing, files, options, message):
    before = listing(files)
    assert message in fails(fit(*options))
    assert listing(files) == before
