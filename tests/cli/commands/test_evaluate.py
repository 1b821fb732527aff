"""`dpglm evaluate`: printed text, written files, refusals."""

import json

import pytest

from dpglm.certificate.certificate import Certificate
from dpglm.certificate.verify import verify
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import ApproximateDP

BASE = ("people.csv", "--model", "model.json", "--epsilon", "2")


@pytest.fixture
def model(fit):
    assert fit().exit_code == 0


@pytest.mark.parametrize("data", ["people.csv", "people.parquet"])
def test_numbers_are_printed_and_written(run, files, model, data):
    done = run("evaluate", data, *BASE[1:], "--by", "smoker", "--report", "performance")
    assert done.exit_code == 0, done.output
    printed = done.stdout + done.stderr
    assert "Private evaluation of 400 rows: epsilon 2, delta 1e-05" in printed
    assert "== yes" in printed
    assert verify(Certificate.from_json("performance/certificate.json")).ok
    assert run("verify", "performance/certificate.json").exit_code == 0
    document = json.loads((files / "performance/evaluation.json").read_text())
    assert 0.5 < document["all_rows"]["auc"]["estimate"] <= 1.0
    assert [one["value"] for one in document["by_level"]] == ["no", "yes", None]
    page = (files / "performance/evaluation.html").read_text()
    assert "By smoker" in page
    assert "<strong>Private.</strong>" in page


def test_the_ledger_pays_or_refuses(run, files, model):
    ledger = PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(2.1, 2e-5))
    command = ("evaluate", *BASE, "--ledger", "people.ledger")
    assert run(*command).exit_code == 0
    assert len(ledger.contents().entries) == 1
    assert run(*command, "--report", "performance").exit_code == 2
    assert not (files / "performance").exists()


def test_targets_that_no_schema_names(run, files, model, frame):
    frame.assign(sick=frame["ill"]).drop(columns="ill").to_csv("more.csv", index=False)
    done = run(
        *("evaluate", "more.csv", *BASE[1:], "--target", "sick", "--threshold", "0.3"),
        *("--by", "smoker"),
    )
    assert done.exit_code == 0, done.output
    assert "accuracy at 0.3" in done.stdout + done.stderr
    assert "== yes" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "age"], "must be a categorical column of the model's schema, one of smoker"),
        (["--target", "height"], "there is no column 'height'"),
        (["--target", "age"], "is not in the schema"),
        (["--threshold", "2"], "thresholds must be"),
        (["--adjacency", "add_remove"], "n_rows must be given"),
        (["--epsilon", "0"], "epsilon must be"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_spent(run, files, model, options, message):
    ledger = PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(9, 1e-4))
    done = run("evaluate", *BASE, "--ledger", "people.ledger", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not ledger.contents().entries


def test_a_model_of_numbers(run, files):
    schema = json.loads((files / "schema.json").read_text())
    schema["target"] = {"name": "id", "type": "numeric", "low": 0, "high": 400}
    (files / "numbers.json").write_text(json.dumps(schema))
    fitted = ("fit", "people.csv", "--schema", "numbers.json", "--epsilon", "2")
    assert run(*fitted, "--model", "model.json").exit_code == 0
    done = run("evaluate", *BASE)
    assert done.exit_code == 0, done.output
    assert "R²" in done.stdout + done.stderr
