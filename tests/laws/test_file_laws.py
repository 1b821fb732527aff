"""Files of every kind, damaged in any way, end in one line that names them, or change nothing."""

import contextlib
import hashlib
import json
import sqlite3
import warnings
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpglm import LogisticRegression
from dpglm._json import canonical_json, in_file, load
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.verify import verify
from dpglm.exceptions import PlanMismatchError
from dpglm.ledger import LedgerContents, PrivacyLedger
from dpglm.privacy.budget import ApproximateDP
from dpglm.report import load_model, model_file, save_model
from dpglm.solvers import NoisyGD
from dpglm.tables.schema import Schema
from tests.laws.hostile import HOSTILE, damaged, mutated, written

FEW = settings(
    max_examples=min(60, settings.default.max_examples),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
MANY = settings(max_examples=1500, suppress_health_check=[HealthCheck.function_scoped_fixture])

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100, "missing": 50},
            "smoker": {"type": "categorical", "categories": ["no", "yes"], "other": "no"},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "the questionnaire",
    }
)
TABLE = {"age": np.linspace(0.0, 100.0, 60), "smoker": np.array(["no", "yes"] * 30)}
TARGET = np.where(TABLE["age"] > 50.0, "yes", "no")
X = SCHEMA.encode(TABLE)


def classifier(**options):
    return LogisticRegression(
        classes=["no", "yes"], row_norm=SCHEMA.row_norm, solver=NoisyGD(n_steps=3), **options
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A file of every kind, of one fit."""
    folder = tmp_path_factory.mktemp("whole")
    ledger = PrivacyLedger.create(folder / "ledger", data="people", budget=ApproximateDP(9.0, 1e-4))
    model = classifier(ledger=ledger).fit(X, TARGET, checkpoint=folder / "checkpoint")
    save_model(model, folder / "model.json", SCHEMA)
    model.privacy_.to_json(folder / "certificate.json")
    (folder / "schema.json").write_text(json.dumps(SCHEMA.to_dict()))
    (folder / "export.json").write_text(json.dumps(ledger.export()))
    return folder


def read(name, path):
    """Read a file as the library does, and use the result."""
    return READERS[name](path)


def use_model(path):
    return load_model(path).predict(TABLE)


def use_certificate(path):
    certificate = Certificate.from_json(path)
    verify(certificate).summary()
    return certificate.statement()


def use_export(path):
    with in_file(path):
        contents = LedgerContents.from_dict(load(path))
        return contents.spent(), contents.left(), contents.problems()


def use_ledger(path):
    with in_file(path):
        contents = PrivacyLedger(path).contents()
        return contents.spent(), contents.left(), contents.problems()


def use_checkpoint(path):
    """Take up a fit that is complete: whatever is read is the model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classifier().fit(X, TARGET, checkpoint=path).coef_


READERS = {
    "model.json": use_model,
    "certificate.json": use_certificate,
    "schema.json": Schema.from_json,
    "export.json": use_export,
    "ledger": use_ledger,
    "checkpoint": use_checkpoint,
}
DOCUMENTS = ["model.json", "certificate.json", "schema.json"]


def check(name, path, content):
    """Read changed content: it is refused by a ValueError of one line that names the file.

    Only errors in a form that people fill in are listed, a line for each column.
    """
    path.write_bytes(content)
    try:
        return read(name, path)
    except PlanMismatchError:
        # The whole run was compared with its plan, and nothing is read.
        return None
    except ValueError as error:
        message = str(error)
        assert path.name in message, message
        assert "\n" not in message or "the schema is not complete" in message, message
        return None


def replaced_document(name, folder, path, data):
    tree = json.loads((folder / name).read_text())
    found = check(name, path, data.draw(mutated(tree)).encode())
    if name == "model.json" and found is not None:
        np.testing.assert_array_equal(found, use_model(folder / name))


def sealed_document(name, folder, path, data):
    """A forgery with recomputed digests; consistent contents are read."""
    tree = json.loads((folder / name).read_text())
    tree.pop("digest", None)
    text = data.draw(mutated(tree))
    with contextlib.suppress(ValueError, RecursionError, TypeError):
        document = dict(json.loads(text))
        document["digest"] = hashlib.sha256(canonical_json(document).encode()).hexdigest()
        check(name, path, json.dumps(document).encode())


def sealed_records(name, folder, path, data):
    """Records in a chain that is made anew, as an export and in SQLite."""
    export = json.loads((folder / "export.json").read_text())
    position = data.draw(st.integers(0, len(export["records"]) - 1))
    text = data.draw(mutated(export["records"][position]["record"]))
    records, before = [], "0" * 64
    for number, one in enumerate(export["records"]):
        record = text if number == position else canonical_json(one["record"])
        before = hashlib.sha256(f"{before}\n{record}".encode("utf-8", "replace")).hexdigest()
        records.append((number, record, before))
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    source = sqlite3.connect(folder / "ledger")
    source.backup(connection)
    source.close()
    with connection:
        connection.execute("DROP TRIGGER no_change")
        connection.executemany(
            "UPDATE records SET text = ?2, digest = ?3 WHERE number = ?1", records
        )
        connection.execute("UPDATE head SET digest = ?", (before,))
    connection.close()
    check(name, path, path.read_bytes())


def sealed_checkpoint(name, folder, path, data):
    with np.load(folder / name) as file:
        arrays = dict(file)
    header = data.draw(mutated(json.loads(arrays["header"].tobytes())))
    arrays["header"] = np.frombuffer(header.encode(), np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, **arrays)
    check(name, path, path.read_bytes())


def damaged_bytes(name, folder, path, data):
    found = check(name, path, data.draw(damaged((folder / name).read_bytes())))
    if name in ("model.json", "checkpoint", "ledger") and found is not None:
        np.testing.assert_equal(found, read(name, folder / name))


LAWS = [
    (replaced_document, "model.json"),
    (replaced_document, "certificate.json"),
    (replaced_document, "schema.json"),
    (replaced_document, "export.json"),
    (sealed_document, "model.json"),
    (sealed_records, "ledger"),
    (sealed_checkpoint, "checkpoint"),
    (damaged_bytes, "model.json"),
    (damaged_bytes, "certificate.json"),
    (damaged_bytes, "schema.json"),
    (damaged_bytes, "checkpoint"),
    (damaged_bytes, "ledger"),
]


@pytest.mark.parametrize(("law", "name"), LAWS)
@FEW
@given(data=st.data())
def test_changed_files_are_refused_in_one_line(law, name, folder, tmp_path, data):
    law(name, folder, tmp_path / name, data)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "name"), LAWS)
@MANY
@given(data=st.data())
def test_thousands_of_changed_files(law, name, folder, tmp_path, data):
    law(name, folder, tmp_path / name, data)


def plant_trust(monkeypatch):
    monkeypatch.setattr(model_file, "disagreements", lambda model: ())
    monkeypatch.setattr(model_file, "_digest", lambda document: mock.ANY)


def plant_no_names(monkeypatch):
    monkeypatch.setattr(model_file, "in_file", lambda path: contextlib.nullcontext())


@pytest.mark.parametrize("plant", [plant_trust, plant_no_names], ids=lambda one: one.__name__)
def test_a_reader_that_is_not_strict_is_found_out(plant, folder, tmp_path, monkeypatch):
    tree, expected = (
        json.loads((folder / "model.json").read_text()),
        use_model(folder / "model.json"),
    )

    def law():
        for text in HOSTILE:
            content = written(tree, ("intercept", 0), text).encode()
            found = check("model.json", tmp_path / "model.json", content)
            if found is not None:
                np.testing.assert_array_equal(found, expected)

    law()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        law()
