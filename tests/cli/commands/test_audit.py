"""`dpglm audit`: exit codes, the report, and wrong options."""

import json

import pytest

from dpglm.audit import PLANTED
from dpglm.cli.commands import audit as module

SMALL = ("--runs", 30, "--columns", 1, "--solver-set", "n_steps=1", "--solver-set", "clip=0.25")


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
    result = run("audit", *SMALL, "--planted-bug", "fixed_seed", "--json", report)
    assert result.exit_code == 1
    assert "REFUTED" in result.stdout
    assert "a seed that is written in the code" in result.stderr
    assert json.loads(report.read_text())["refuted"] is True


def test_all_planted_bugs_can_be_named():
    assert sorted(PLANTED) == sorted(module.BUGS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--solver", "magic"), "must be one of"),
        (("--solver-set", "speed=3"), "NAME=VALUE with a name among"),
        (("--set", "epsilon=3"), "NAME=VALUE with a name among"),
        (("--planted-bug", "none"), "is not one of"),
        (("--confidence", "1"), "is not in the range"),
        (("--solver", "sufficient_statistics"), "loss must"),
    ],
)
def test_wrong_options_have_exit_code_2(run, arguments, message):
    result = run("audit", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
