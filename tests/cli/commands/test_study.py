"""`dpglm study`: a study from a file, its page, and its certificate."""

import json

import pytest

from dpglm import ApproximateDP, PrivacyLedger

STUDY = """
schema = "schema.json"
title = "Who is ill?"
epsilon = 5.0
delta = 1e-5

[explore]
two_way = [["smoker", "ill"]]

[fit]
estimator = "additive"

[evaluate]
by = "smoker"
"""
WRITTEN = [
    "certificate.json",
    "evaluation.json",
    "exploration.json",
    "model.json",
    "report.html",
]


@pytest.fixture
def study(run, files):
    (files / "study.toml").write_text(STUDY)
    return lambda *more: run("study", "study.toml", *more)


def test_a_plan_needs_no_data(study, listing, files):
    before = listing(files)
    done = study("--n-rows", "400")
    assert done.exit_code == 0, done.output
    assert "epsilon 5 at delta 1e-05" in done.stdout
    assert "share of rows" in done.stdout
    assert listing(files) == before


@pytest.mark.parametrize("data", ["people.csv", "people.parquet"])
def test_everything_is_written_and_holds(study, run, listing, files, data):
    done = study(data, "--out", "results")
    assert done.exit_code == 0, done.output
    assert listing(files / "results") == WRITTEN
    checked = run("verify", "results/certificate.json")
    assert checked.exit_code == 0, checked.output
    assert "The certificate holds." in checked.stdout
    assert "evaluation" in checked.stdout
    assert "On the rows held out" in done.stdout
    page = (files / "results" / "report.html").read_text()
    for text in (
        "Who is ill?",
        "The data at a glance",
        "smoker by ill",
        "Effect of each column",
        "Performance on held-out rows",
        "By smoker",
        "Private.",
    ):
        assert text in page
    predicted = run("predict", "people.csv", "--model", "results/model.json", "-o", "p.csv")
    assert predicted.exit_code == 0, predicted.output


def test_a_forged_certificate_is_found(study, run, files):
    (files / "study.toml").write_text(STUDY.replace("additive", "logistic"))
    assert study("people.csv", "--out", "results").exit_code == 0
    path = files / "results" / "certificate.json"
    document = json.loads(path.read_text())
    del document["parts"]["exploration"]
    document["epsilon"] = 2.0
    path.write_text(json.dumps(document))
    checked = run("verify", "results/certificate.json")
    assert checked.exit_code == 1
    assert "DOES NOT HOLD" in checked.stdout


def test_a_checkpoint_returns_the_same_and_spends_once(study, files):
    PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(6.0, 1e-5))
    (files / "study.toml").write_text(STUDY.replace("additive", "logistic"))
    kept = ("--checkpoint", "begun", "--ledger", "people.ledger")
    for out in ("one", "other"):
        done = study("people.csv", "--out", out, *kept)
        assert done.exit_code == 0, done.output
    one, other = ((files / out / "model.json").read_text() for out in ("one", "other"))
    # Of the same released numbers; last bits of what linear algebra makes of them depend on where
    # arrays lie in memory.
    assert json.loads(one)["coef"][0] == pytest.approx(json.loads(other)["coef"][0], rel=1e-12)
    (entry,) = PrivacyLedger("people.ledger").contents().entries
    assert entry.what == "study 'Who is ill?': exploration, model, evaluation"


def test_mistakes_are_named(study, fails, files):
    assert "--out" in fails(study("people.csv"))
    (files / "study.toml").write_text(STUDY.replace("epsilon", "epsilom"))
    assert "epsilom" in fails(study("--n-rows", "400"))
