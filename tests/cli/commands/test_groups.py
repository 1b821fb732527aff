"""Commands on rows of persons: who is protected, and which options belong together."""

import pytest

from dpglm.certificate import verify
from dpglm.certificate.certificate import Certificate
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import ApproximateDP
from dpglm.privacy.budget import Unit
from dpglm.report.model_file import load_model

LIMIT = ("--groups", "person", "--max-rows-per-group", 1)


def protects_persons(certificate):
    assert verify(certificate).ok
    return certificate.data.unit is Unit.GROUP


@pytest.mark.parametrize(
    ("data", "options"),
    [
        ("visits.csv", ()),
        ("visits.csv", ("--max-rows-per-group", 1)),
        ("visits.parquet", ("--stream", "--cache", ".", "--checkpoint", "kept")),
        ("visits.csv", ("--additive", "--max-rows-per-group", 1)),
        ("visits.csv", ("--adjacency", "replace_one", "--n-rows", 380)),
        (
            "visits.csv",
            ("--adjacency", "add_remove", "--n-rows", 380, "--n-groups", 190),
        ),
    ],
)
def test_a_fit_protects_persons_and_is_the_one_that_was_planned(
    fit, visits, monkeypatch, data, options
):
    plans = []
    monkeypatch.setattr(
        "dpglm.cli.files.SpendingWatch.begins", lambda self, plan: plans.append(plan)
    )
    ledger = PrivacyLedger.create(
        "people.ledger",
        data="people",
        budget=ApproximateDP(9, 1e-4),
        unit="group",
        adjacency=options[1] if "--adjacency" in options else "zero_out",
    )
    done = fit("--groups", "person", "--ledger", "people.ledger", *options, data=data)
    assert done.exit_code == 0, done.output
    assert "PublicInformation" not in done.stderr
    assert "and therefore not used: id\n" in done.stderr
    certificate = load_model("model.json").certificate
    assert protects_persons(certificate)
    assert certificate.fact("n_groups").value == (190 if "add_remove" in options else 200)
    assert [entry.event for entry in ledger.contents().entries] == [plans[0].event]
    assert certificate.plan == plans[0].document


def test_a_ledger_of_rows_takes_no_fit_of_persons(fit, visits, fails):
    PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(9, 1e-4))
    fails(fit("--groups", "person", "--ledger", "people.ledger", data="visits.csv"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--groups", "age"), "--groups age: must not be a column of the model"),
        (("--groups", "ill"), "--groups ill: must not be a column of the model"),
        (("--groups", "nobody"), "there is no column 'nobody'"),
        (("--max-rows-per-group", 2), "--max-rows-per-group 2: needs --groups"),
        (("--n-groups", 2), "--n-groups 2: needs --groups"),
        (("--groups", "gap"), "groups must name a group for every row"),
        (
            ("--groups", "person", "--adjacency", "add_remove", "--n-rows", 400),
            "with --n-groups",
        ),
        (("--groups", "person", "--adjacency", "replace_one"), "with --n-rows"),
    ],
)
def test_wrong_options_of_a_fit_are_refused(fit, visits, fails, options, says):
    visits.assign(gap=visits["person"].where(visits["age"] > 50, "")).to_csv(
        "visits.csv", index=False
    )
    assert says in fails(fit(*options, data="visits.csv"))


@pytest.mark.parametrize("data", ["visits.csv", "visits.parquet"])
def test_looks_and_evaluations_protect_persons(fit, run, visits, data):
    assert fit().exit_code == 0
    looked = run(
        *("describe", data, "--schema", "schema.json", "--epsilon", 1, *LIMIT),
        *("--column", "age", "--report", "look"),
    )
    assert looked.exit_code == 0, looked.output
    evaluated = run(
        *("evaluate", data, "--model", "model.json", "--epsilon", 1, *LIMIT),
        *("--report", "performance"),
    )
    assert evaluated.exit_code == 0, evaluated.output
    for folder in ("look", "performance"):
        certificate = Certificate.from_json(f"{folder}/certificate.json")
        assert protects_persons(certificate)
        assert "200 rows" in (looked if folder == "look" else evaluated).output


def test_looks_and_evaluations_need_a_limit(fit, run, visits, fails):
    assert fit().exit_code == 0
    for command in (
        ("describe", "visits.csv", "--schema", "schema.json"),
        ("evaluate", "visits.csv", "--model", "model.json"),
    ):
        done = run(*command, "--epsilon", 1, "--groups", "person")
        assert "--groups person: needs --max-rows-per-group" in fails(done)
        done = run(*command, "--epsilon", 1, "--groups", "age", "--max-rows-per-group", 1)
        assert "must not be a column of the model" in fails(done)


def test_a_plan_of_persons(run, fails, files):
    sizes = ("plan", "--n-rows", 5000, "--schema", "schema.json")
    done = run(*sizes, "--n-groups", 1000, "--max-rows-per-group", 3)
    assert done.exit_code == 0, done.output
    assert "5000 rows of 1000 groups, 3 features" in done.stdout
    assert "--n-groups must be given" in fails(run(*sizes, "--max-rows-per-group", 3))
