"""The audit campaign: it is complete, and its lines state what was measured."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

import dpglm.estimators
import dpglm.preprocessing
import dpglm.selection
from docs._site import api_pages
from dpglm.solvers import SOLVERS
from experiments.audits import __main__ as command
from experiments.audits import local, table
from experiments.audits.campaign import CAMPAIGN
from experiments.audits.case import Line
from tests.planted import PLANTED, planted
from tests.slowly import slowly

# Types that others are made of, and mappings of rows without a choice of their own.
ABSTRACT = {"LinearUnits", "PlannedStep", "Preprocessor", "generalized_scores"}
# A pipeline runs the solver `Preprocessed`, which DPSGD-F is.
SOUND = [case for case in CAMPAIGN if not case.bug]
BUGS = [case for case in CAMPAIGN if case.bug]


@pytest.mark.parametrize(
    "names",
    [
        SOLVERS,
        api_pages.public_names(dpglm.preprocessing),
        api_pages.public_names(dpglm.selection),
        dpglm.estimators.__all__,
        [
            "exponential_mechanism",
            "generalized_exponential_mechanism",
            "generalized_scores",
            "permute_and_flip",
        ],
        ["exponential_mechanism_in_runs", "first_above"],
        ["add_l2_noise", "add_laplace"],
        ["add_gaussian"],
        ["D2P2Optimizer"],
        ["Study"],
        ["evaluate"],
    ],
    ids=[
        *("solvers", "preprocessing", "selection", "estimators"),
        *("choices", "ranks", "L2", "noise", "networks", "studies", "evaluations"),
    ],
)
def test_everything_is_attacked(names):
    # Whoever adds something public adds a line to the campaign.
    assert set(names) - ABSTRACT <= {case.subject for case in SOUND}


def test_every_listed_bug_is_planted():
    assert set(PLANTED) == {case.planted_bug for case in BUGS if case.planted_bug}


def test_every_bug_can_be_planted():
    """A patched name had been renamed, and the next campaign would have stopped there."""
    for case in BUGS:
        with planted(case.planted_bug):
            setup = case.make()
        with planted(case.planted_bug), setup.under():
            pass


def test_lines_differ():
    assert len({case.key for case in CAMPAIGN}) == len(CAMPAIGN)


def only(**wanted):
    return next(
        case
        for case in CAMPAIGN
        if all(getattr(case, name) == value for name, value in wanted.items())
    )


def measured(case, runs):
    line = case.measure(runs, 0.99, seed=1)
    assert line.key == case.key
    return line


def test_sound_code_stays_under_its_claim():
    line = measured(only(subject="accelerated_mirror_descent"), 100)
    assert 0.0 < line.share < 1.0
    assert not line.refuted


# One bug of each mechanism, and those that a general attack is too blunt for.
SMOKE = [
    ("noisy_gd", "no clipping", 100),
    ("noisy_gd", "one noise for all steps", 100),
    *slowly([("noisy_gd", "all iterates for the price of the last", 100)]),
    ("noisy_gd", "every row in every sample", 100),
    *slowly([("noisy_gd", "the least of a row's slopes as their length", 200)]),
    ("pure_gd", "half the noise", 100),
    ("frank_wolfe", "half the noise", 200),
    *slowly([("frank_wolfe", "noise of an erased row for a replaced one", 200)]),
    ("output_perturbation", "half the noise", 100),
    ("objective_perturbation", "a tenth of the linear term", 100),
    ("d2p2", "half the noise", 100),
    ("Center", "half the noise", 120),
    ("ClipToQuantile", "half the noise", 100),
    ("RandomlyRepeated", "the cost of repetition forgotten", 400),
]


@pytest.mark.parametrize(("subject", "bug", "runs"), SMOKE)
def test_bug_of_a_mechanism_is_caught(subject, bug, runs):
    line = measured(only(subject=subject, bug=bug), runs)
    assert line.share > 1.0
    assert line.refuted


@pytest.mark.parametrize("subject", ["pure_gd", "frank_wolfe", "objective_perturbation", "d2p2"])
def test_sound_mechanism_stays_under_its_claim(subject):
    line = measured(only(subject=subject, bug=""), 100)
    assert 0.0 < line.share < 1.0
    assert not line.refuted


@pytest.mark.slow
def test_half_the_noise_of_scores_and_hessians_is_caught():
    line = measured(only(subject="newton_raphson", planted_bug="half_noise"), 300)
    assert line.share > 1.0
    assert line.refuted


def test_maps_that_mix_rows_are_caught():
    assert not any(case.measure(0, 0.99).refuted for case in local.CASES)
    assert all(case.measure(0, 0.99).refuted for case in local.BUGS)


def test_page_is_written_from_measurements(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "CAMPAIGN", [*local.CASES, *local.BUGS])
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "audit_table.md").write_text(
        "before\n" + "\n".join(command.MARKS) + "\nafter\n"
    )
    assert command.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "evidence" / "audit_table.md").read_text()
    assert page.startswith("before")
    assert page.endswith("after\n")
    assert "| `SchemaEncoder` | zero_out |" in page
    assert page.count("| yes |") == len(local.BUGS)
    assert (tmp_path / "figures" / "audits.svg").exists()
    # One line anew; the others are kept.
    kept = json.loads((tmp_path / "figures" / "audits.json").read_text())
    assert command.main(["--docs", str(tmp_path), "--only", "SchemaEncoder"]) == 0
    assert json.loads((tmp_path / "figures" / "audits.json").read_text()) == kept
    assert capsys.readouterr().out.count("SchemaEncoder") == 2


def test_a_map_that_mixes_rows_fails_the_command(tmp_path, monkeypatch, capsys):
    wrong = dataclasses.replace(local.BUGS[0], bug="")
    monkeypatch.setattr(command, "CAMPAIGN", [wrong])
    (tmp_path / "evidence").mkdir()
    (tmp_path / "evidence" / "audit_table.md").write_text("\n".join(command.MARKS))
    assert command.main(["--docs", str(tmp_path)]) == 1
    assert "REFUTED" in capsys.readouterr().out


LINE = Line(
    "solvers",
    "noisy_gd",
    "",
    "zero_out",
    "all releases",
    4.0,
    0.01,
    1.0,
    0.5,
    10,
    "x",
    False,
    "Why.",
)


def test_weak_bounds_have_a_reason_and_strong_ones_none():
    assert "50% (1)" in table.subject_table([LINE])
    assert "1. Why." in table.subject_table([LINE])
    assert "Why." not in table.subject_table([dataclasses.replace(LINE, share=0.9)])


def test_failures_stand_out():
    assert "refuted**" in table.subject_table([dataclasses.replace(LINE, refuted=True, share=1.5)])
    assert "**no**" in table.bug_table([dataclasses.replace(LINE, bug="half the noise")])


def test_reasons_are_sentences():
    reasons = {case.why for case in SOUND if case.why}
    for why in reasons:
        assert why[0].isupper(), why
        assert why.endswith("."), why
        assert all(len(one.split()) <= 25 for one in why.split(". ")), why
    page = Path("docs/evidence/audit_table.md").read_text(encoding="utf-8")
    listed = re.findall(r"(?m)^\d+\. (.*)$", page)
    assert listed
    assert set(listed) <= reasons
