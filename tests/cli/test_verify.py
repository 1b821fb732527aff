"""`dpglm verify`: 0 for a claim that holds, 1 for one that does not, 2 for no certificate."""

import json
import shutil

import pytest

from dpglm import LogisticRegression
from dpglm.data.schema import Schema
from dpglm.report.model_file import save_model


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
    document.update(changes)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize("name", ["certificate.json", "model.json"])
def test_a_release_holds(run, released, name):
    done = run("verify", name)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.startswith("The certificate holds.")


@pytest.mark.parametrize(
    "changes", [{"epsilon": 1.0}, {"delta": 1e-9}, {"adjacency": "replace_one"}], ids=repr
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
def test_other_files_are_no_certificates(run, fails, tmp_path, text, says):
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
