"""`dpglm verify`: 0 for a claim that holds, 1 for one that does not, 2 for no certificate."""

import json
import shutil
import sys

import pytest

from dpglm import LogisticRegression
from dpglm.report.model_file import save_model
from dpglm.tables.schema import Schema
from tests.forgeries import part_of


@pytest.fixture(scope="module")
def release(tmp_path_factory, sample):
    """A folder with a model and its certificate, made once."""
    folder = tmp_path_factory.mktemp("release")
    schema, frame = Schema.from_dict(sample.schema), sample.frame()
    model = LogisticRegression(
        epsilon=5.0, row_norm=schema.row_norm, **schema.target.estimator_parameters()
    ).fit(schema.encode(frame), schema.encode_target(frame["ill"]))
    save_model(model, folder / "model.json", schema)
    model.privacy_.to_json(folder / "certificate.json")
    return folder


@pytest.fixture
def released(release, tmp_path, monkeypatch):
    shutil.copytree(release, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tamper(path, **changes):
    document = json.loads(path.read_text())
    for name, value in changes.items():
        (document if name in document else part_of(document))[name] = value
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["certificate.json", "model.json"])
def test_a_release_holds(run, released, name):
    done = run("verify", name)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("The certificate holds.")


@pytest.mark.parametrize(
    "changes", [{"epsilon": 1.0}, {"delta": 1e-9}, {"model_digest": ""}], ids=repr
)
def test_a_changed_claim_does_not(run, released, changes):
    tamper(released / "certificate.json", **changes)
    done = run("verify", "certificate.json")
    assert done.exit_code == 1
    assert "DOES NOT HOLD" in done.stdout


def test_changed_coefficients_are_not_those_of_the_certificate(run, released):
    tamper(released / "model.json", intercept=[0.0])
    done = run("verify", "model.json")
    assert done.exit_code == 1
    assert "THE MODEL IS NOT THE ONE OF THE CERTIFICATE" in done.stdout


def test_a_seeded_model_is_noted(run, fit):
    fit("--set", "random_state=1")
    assert "NOT PRIVATE" in run("verify", "model.json").stdout


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nothing", "is not a JSON file"),
        ("[1]", "is not a dpglm certificate"),
        ("{}", "is not a dpglm certificate"),
        ('{"certificate": {}}', "is not a dpglm certificate"),
    ],
)
def test_other_files_are_not_certificates(run, fails, tmp_path, text, says):
    (tmp_path / "c.json").write_text(text)
    assert says in fails(run("verify", tmp_path / "c.json"))


def test_a_certificate_with_a_part_of_the_wrong_kind_is_none(run, released, fails):
    path = released / "certificate.json"
    whole = path.read_text()
    for key in json.loads(whole):
        path.write_text(whole)
        tamper(path, **{key: [[]]})
        done = run("verify", path)
        assert done.exit_code in (1, 2), key
        assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("name", "change", "status", "says"),
    [
        ("model.json", {"classes": ["yes", "no"]}, 1, "classes of the model are not those"),
        ("model.json", {"digest": "0" * 64}, 1, "changed after it was written"),
        ("model.json", {"classes": 3}, 2, "model.json: classes must be an array, got 3"),
        ("model.json", {"coef": [[None]]}, 2, "coef[0][0] must be a finite number, got None"),
        ("model.json", {"certificate": None}, 2, "certificate is not a dpglm certificate"),
        ("certificate.json", {"epsilon": 1.0}, 1, "DOES NOT HOLD"),
        ("certificate.json", {"plan": {}}, 2, "plan.adjacency must be one of"),
        ("certificate.json", {"version": 3}, 2, "was written by dpglm 0.1"),
        ("certificate.json", {"epsilon": "1"}, 2, "epsilon must be a finite number, got '1'"),
        ("certificate.json", {"event": []}, 2, "event must be an object, got []"),
        ("certificate.json", {"releases": [{}]}, 2, "releases[0]: a release must have the keys"),
        ("certificate.json", {"versions": {"numpy": 2}}, 2, "versions.numpy must be text, got 2"),
    ],
)
def test_exit_code_is_1_for_false_claims_and_2_for_non_claims(
    run, released, name, change, status, says
):
    tamper(released / name, **change)
    done = run("verify", name)
    assert done.exit_code == status, done.output
    assert says in done.output
    assert "Traceback" not in done.output
    assert status == 1 or done.stdout == ""


def test_defect_is_not_a_verdict(run, released, monkeypatch):
    def broken(certificate):
        raise AttributeError("no such thing")

    monkeypatch.setattr(sys.modules["dpglm.certificate.verify"], "verify", broken)
    done = run("verify", "certificate.json")
    assert done.exit_code == 2
    assert "this is a defect of dpglm" in done.stderr


def test_too_little_memory_is_not_a_verdict(run, released, monkeypatch, fails):
    def hungry(certificate):
        raise MemoryError

    monkeypatch.setattr(sys.modules["dpglm.certificate.verify"], "verify", hungry)
    assert fails(run("verify", "certificate.json")) == "Error: not enough memory"


def test_costly_claims_neither_hold_nor_fail(run, released, monkeypatch):
    monkeypatch.setattr("dpglm.certificate.recompute._MOST_LAWS", 0)
    done = run("verify", "certificate.json")
    assert done.exit_code == 2
    assert done.stdout.startswith("THE CERTIFICATE IS TOO COSTLY TO CHECK.")
    # Checks without recomputation still count.
    tamper(released / "certificate.json", model_digest="x")
    assert run("verify", "certificate.json").exit_code != 0
