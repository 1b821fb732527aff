"""`dpglm audit`: exit codes, the report, and wrong options."""

import json

import pytest

from tests.planted import planted

SMALL = ("--runs", 30, "--n-features", 1, "--solver-set", "n_steps=1", "--solver-set", "clip=0.25")


def test_a_right_claim_is_not_refuted(run, tmp_path):
    report = tmp_path / "audit.json"
    result = run("audit", *SMALL, "--json", report)
    assert result.exit_code == 0, result.stderr
    assert "not refuted" in result.stdout
    document = json.loads(report.read_text())
    assert document["claim"]["epsilon"] == pytest.approx(8.0)
    assert (document["runs"], document["noise"]) == (30, "system")
    assert run("audit", *SMALL, "--json", report).exit_code == 2


def test_a_refuted_claim_has_exit_code_1(run, tmp_path):
    report = tmp_path / "audit.json"
    with planted("fixed_seed"):
        result = run("audit", *SMALL, "--json", report)
    assert result.exit_code == 1
    assert "REFUTED" in result.stdout
    assert json.loads(report.read_text())["refuted"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--solver", "magic"), "must be one of"),
        (("--solver-set", "speed=3"), "NAME=VALUE with a name among"),
        (("--set", "epsilon=3"), "NAME=VALUE with a name among"),
        (("--confidence", "1"), "is not in the range"),
        (("--solver", "sufficient_statistics"), "loss must"),
    ],
)
def test_wrong_options_have_exit_code_2(run, arguments, message):
    result = run("audit", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
