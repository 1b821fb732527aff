"""`dpglm demo`, on a part of Adult so that it is quick."""

import dataclasses

import numpy as np
import pytest

from dpglm import datasets
from dpglm.certificate import verify
from dpglm.certificate.certificate import Certificate
from dpglm.cli.commands import demo as module
from dpglm.report.model_file import load_model

FILES = ["accuracy_against_epsilon.png", "certificate.json", "model.json", "report.html"]


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
    monkeypatch.setattr(module, "_EPSILONS", (0.3, 1.0))
    monkeypatch.setattr(module, "_RUNS", 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_writes_everything_and_says_what_it_means(run, small, listing):
    done = run("demo")
    assert done.exit_code == 0, done.output
    assert listing(small / "dpglm-demo") == FILES
    certificate = Certificate.from_json(small / "dpglm-demo" / "certificate.json")
    assert verify(certificate).ok
    assert certificate.is_private
    assert certificate.caveats() == ()
    assert (certificate.budget.epsilon, certificate.delta) == (1.0, 1e-5)
    assert load_model(small / "dpglm-demo" / "model.json").schema is not None
    picture = (small / "dpglm-demo" / "accuracy_against_epsilon.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    for text in (
        "1000 rows to learn from, 500 to test on",
        "Always the larger class",
        "Private logistic regression, epsilon 1",
        "Without privacy (scikit-learn)",
        "epsilon = 1, delta = 1e-05, relation 'zero_out'",
        "What was treated as public",
        "are not part of the claim",
    ):
        assert text in " ".join(done.stdout.split())
    assert "Private fit: " in done.stderr


def test_the_default_folder_is_replaced(run, small, monkeypatch):
    (small / "dpglm-demo").mkdir()
    (small / "dpglm-demo" / "model.json").write_text("of an earlier demo")
    monkeypatch.setattr(module, "write_release", _write_little)
    assert run("demo").exit_code == 0
    assert (small / "dpglm-demo" / "model.json").read_text() == "little"


def _write_little(estimator, schema, drafts, *, model, report, **page):
    for draft in drafts.values():
        draft.write_text("little")


def test_a_given_folder_is_not_replaced(run, small, fails, listing):
    (small / "mine").mkdir()
    (small / "mine" / "model.json").write_text("precious")
    assert "exists already" in fails(run("demo", "--out", "mine"))
    assert listing(small) == ["mine", "mine/model.json"]


def test_wrong_budgets_leave_nothing(run, small, listing):
    for options in (("--epsilon", "-1"), ("--delta", "-1"), ("--delta", "1")):
        assert run("demo", *options).exit_code == 2
    assert listing(small) == []
