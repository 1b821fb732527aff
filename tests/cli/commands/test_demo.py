"""`dpglm demo`, on a part of Adult so that it is quick."""

import dataclasses

import numpy as np
import pytest
from click.testing import CliRunner

from dpglm import datasets
from dpglm.certificate import Certificate, verify
from dpglm.report.model_file import load_model
from examples import demo as comparison

FILES = [
    "certificate.json",
    "evaluation.json",
    "exploration.json",
    "ledger.json",
    "model.json",
    "report.html",
]


@pytest.fixture(scope="module")
def part():
    adult = datasets.load_adult()
    rows = np.r_[adult.train[:1000], adult.test[:500]]
    return dataclasses.replace(
        adult,
        data={name: values[rows] for name, values in adult.data.items()},
        target=adult.target[rows],
        train=np.arange(1000),
        test=np.arange(1000, 1500),
    )


@pytest.fixture
def small(part, monkeypatch, tmp_path):
    monkeypatch.setattr(datasets, "load_adult", lambda: part)
    monkeypatch.setattr(comparison, "_EPSILONS", (0.3, 1.0))
    monkeypatch.setattr(comparison, "_RUNS", 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_all_files_are_written_and_explained(run, small, listing):
    folder = small / "dpglm-demo"
    folder.mkdir()
    (folder / "model.json").write_text("of an earlier demo")
    done = run("demo")
    assert done.exit_code == 0, done.output
    assert listing(folder) == FILES
    certificate = Certificate.from_json(folder / "certificate.json")
    assert verify(certificate).ok
    assert certificate.is_private
    assert certificate.caveats() == ()
    assert (certificate.budget.epsilon, certificate.delta) == (1.0, 1e-5)
    assert list(certificate.parts) == ["exploration", "model", "evaluation"]
    assert load_model(folder / "model.json").schema is not None
    for text in (
        "1500 rows, 11 columns",
        "On the rows held out",
        "Strongest effects",
        "epsilon = 1, delta = 1e-05, relation 'zero_out'",
        "Budget by part",
        "The certificate holds.",
    ):
        assert text in " ".join(done.stdout.split())
    assert "Parts of the study: 3 of 3" in done.stderr
    page = (folder / "report.html").read_text()
    for text in (
        "The data at a glance",
        "Effect of each column",
        "Performance on held-out rows",
        "By sex",
    ):
        assert text in page
    assert "are not part of the claim" not in page
    checked = run(
        "ledger",
        "verify",
        "dpglm-demo/ledger.json",
        "--certificate",
        "dpglm-demo/certificate.json",
    )
    assert checked.exit_code == 0, checked.output
    assert "1 entry, epsilon 1" in checked.stdout


def test_comparison_is_printed_and_drawn(small):
    done = CliRunner().invoke(comparison.main, [])
    assert done.exit_code == 0, done.output
    for text in (
        "Always the larger class",
        "Private model, epsilon 1, on rows held out",
        "Without privacy (scikit-learn)",
    ):
        assert text in done.stdout
    assert "are not part of the claim" in (small / "dpglm-demo" / "report.html").read_text()


def test_a_given_folder_is_not_replaced(run, small, fails, listing):
    (small / "mine").mkdir()
    (small / "mine" / "model.json").write_text("precious")
    assert "exists already" in fails(run("demo", "--out", "mine"))
    assert listing(small) == ["mine", "mine/model.json"]


def test_wrong_budgets_leave_nothing(run, small, listing):
    for options in (("--epsilon", "-1"), ("--delta", "-1"), ("--delta", "1")):
        assert run("demo", *options).exit_code == 2
    assert listing(small) == []
