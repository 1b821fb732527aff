"""`dpglm describe`: printed text, written files, refusals."""

import json

import pytest

from dpglm.certificate.certificate import Certificate
from dpglm.certificate.verify import verify
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import ApproximateDP
from dpglm.tables.schema import Schema

BASE = ("people.csv", "--schema", "schema.json", "--epsilon", "1")


@pytest.mark.parametrize("data", ["people.csv", "people.parquet"])
def test_a_look_is_printed_and_written(run, files, data):
    done = run(
        *("describe", data, *BASE[1:], "--two-way", "smoker,ill", "--correlations"),
        *("--bins", "age=5", "--report", "look"),
    )
    assert done.exit_code == 0, done.output
    printed = done.stdout + done.stderr
    assert "Private description of 400 rows: epsilon 1, delta 1e-05" in printed
    assert "80 to 100" in printed
    assert "age and ill" in printed
    assert verify(Certificate.from_json("look/certificate.json")).ok
    assert run("verify", "look/certificate.json").exit_code == 0
    document = json.loads((files / "look/description.json").read_text())
    assert document["columns"]["smoker"]["cells"][1]["cell"] == "yes"
    page = (files / "look/description.html").read_text()
    assert "smoker by ill" in page
    assert "<strong>Private.</strong>" in page


def test_bounds_are_bought_and_written(run, files):
    done = run(
        *("describe", *BASE, "--column", "age", "--bounds", "0.1,0.9"),
        *("--bounded-schema", "narrower.json"),
    )
    assert done.exit_code == 0, done.output
    age = Schema.from_json("narrower.json").columns[0]
    assert 0.0 < age.low < 30.0 < 70.0 < age.high < 100.0
    assert age.paid_bounds[2].epsilon <= 1.0


def test_groups_and_the_ledger(run, files):
    ledger = PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(1.1, 2e-5))
    command = ("describe", *BASE, "--by", "smoker", "--ledger", "people.ledger")
    done = run(*command)
    assert done.exit_code == 0, done.output
    assert "== yes" in done.stdout + done.stderr
    assert len(ledger.contents().entries) == 1
    again = run(*command, "--report", "look")
    assert again.exit_code == 2
    assert not (files / "look").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--two-way", "age"], "--two-way age: give two"),
        (["--two-way", "age,height"], "there is no column 'height'"),
        (["--bins", "age"], "--bins age: give COLUMN=NUMBER"),
        (["--bounds", "0.1,0.9"], "must be given together"),
        (["--bounds", "a,b", "--bounded-schema", "s.json"], "a,b: give two numbers"),
        (["--bounds", "0.9,0.1", "--bounded-schema", "s.json"], "ascending"),
        (
            ["--bounds", "0.1,0.9", "--bounded-schema", "s.json", "--by", "smoker"],
            "needs a description of all rows",
        ),
        (["--by", "age"], "by must name a column of categories"),
        (["--adjacency", "add_remove"], "n_rows must be given"),
        (["--epsilon", "0"], "epsilon must be"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_spent(run, files, options, message):
    ledger = PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(9, 1e-4))
    done = run("describe", *BASE, "--ledger", "people.ledger", *options)
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.split())
    assert not ledger.contents().entries
    assert not (files / "s.json").exists()
