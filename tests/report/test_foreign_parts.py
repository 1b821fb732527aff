"""A model with other labels, names, schema or loss than its certificate is refused."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from dpglm import ApproximateDP, LogisticRegression, PrivacyLedger, Ridge
from dpglm._json import canonical_json
from dpglm.certificate.certificate import Certificate
from dpglm.report import load_model, save_model
from dpglm.tables.columns import NumericColumn
from dpglm.tables.schema import Schema
from dpglm.tables.targets import NumericTarget
from tests.fits import make_rows
from tests.forgeries import part_of


def sealed(path, **changes):
    """Change parts of a model file, and make its digest anew."""
    document = json.loads(path.read_text())
    del document["digest"]
    document.update(changes)
    digest = hashlib.sha256(canonical_json(document).encode()).hexdigest()
    path.write_text(json.dumps(document | {"digest": digest}))


@pytest.fixture
def path(tmp_path):
    X, y = make_rows()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    fitted = LogisticRegression(classes=[0, 1], row_norm=2.0).fit(frame, y)
    save_model(fitted, tmp_path / "model.json")
    return tmp_path / "model.json"


def test_a_sealed_file_without_changes_is_read(path):
    sealed(path)
    assert load_model(path).feature_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"classes": [1, 0]}, "classes of the model are not those"),
        ({"classes": [0, 2]}, "classes of the model are not those"),
        ({"classes": [0.0, 1.0]}, "classes of the model are not those"),
        ({"classes": ["0", "1"]}, "classes of the model are not those"),
        ({"feature_names": ["b", "a", "c"]}, "feature_names of the model are not those"),
        ({"feature_names": None}, "feature_names of the model are not those"),
        ({"estimator": "Ridge"}, "estimator is 'Ridge'"),
        ({"feature_names": ["a", "b"]}, "there are 2 feature_names for 3 features"),
        ({"classes": [1, 1]}, "classes must list each label once"),
        ({"classes": None}, "a model without classes"),
        ({"coef": [[1.0, 2.0], [3.0]]}, "coef must have rows of equal length"),
        ({"coef": [[1.0, None]]}, r"coef\[0\]\[1\] must be a finite number, got None"),
        ({"coef": [[1.0, "2"]]}, r"coef\[0\]\[1\] must be a finite number, got '2'"),
    ],
)
def test_sealed_changes_are_refused(path, changes, says):
    sealed(path, **changes)
    with pytest.raises(ValueError, match=rf"model\.json.*{says}"):
        load_model(path)


def test_the_certificate_of_another_model_is_refused(path, tmp_path):
    X, y = make_rows()
    other = Ridge(target_bounds=(0, 1), row_norm=2.0).fit(X, y)
    sealed(path, certificate=other.privacy_.to_dict())
    with pytest.raises(ValueError, match="'LogisticRegression', but its certificate's 'Ridge'"):
        load_model(path)


def test_a_schema_is_that_of_the_certificate(tmp_path, path):
    document = json.loads(path.read_text())
    fact = {"name": "schema", "value": {"columns": {}}, "provenance": "declared"}
    part_of(document["certificate"])["public_facts"].append(fact)
    sealed(path, certificate=document["certificate"])
    with pytest.raises(ValueError, match="schema of the model are not those"):
        load_model(path)


@pytest.mark.parametrize("change", ["classes", "feature_names", "estimator"])
def test_a_change_without_a_new_digest_is_told(path, change):
    text = path.read_text()
    document = json.loads(text)
    document[change] = {"classes": [0, 1.0]}.get(change, document[change])
    path.write_text(json.dumps(document | {"digest": "0" * 64}))
    with pytest.raises(ValueError, match="the file was changed after it was written"):
        load_model(path)


def test_names_and_labels_are_public_facts(path):
    certificate = Certificate.from_dict(json.loads(path.read_text())["certificate"])
    assert certificate.fact("feature_names").value == ["a", "b", "c"]
    assert certificate.fact("classes").value == [0, 1]


def test_old_versions_are_named(path):
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"version": 1}))
    with pytest.raises(ValueError, match="must have version 5, got 1"):
        load_model(path)
    path.write_text(json.dumps(document | {"version": 2}))
    with pytest.raises(ValueError, match=r"was written by dpglm 0\.1 .*: read it with"):
        load_model(path)


@pytest.mark.parametrize(
    ("loss", "says"),
    [
        (
            {"type": "hinge"},
            "loss of its certificate is Logistic.*, but the plan has another one",
        ),
        ({"type": "tangent"}, r"the loss of its certificate is Logistic\(\)"),
        ({"type": "softmax"}, "link SoftmaxLink"),
        ({"type": "elsewhere.Loss"}, "import elsewhere first"),
    ],
)
def test_another_loss_is_refused(path, loss, says):
    certificate = json.loads(path.read_text())["certificate"]
    part_of(certificate)["plan"]["method"]["problem"]["loss"] = loss
    sealed(path, certificate=certificate)
    with pytest.raises(ValueError, match=says):
        load_model(path)


def test_a_layout_of_ones_own_is_the_same_file(path):
    path.write_text("\ufeff" + json.dumps(json.loads(path.read_text()), indent=7))
    np.testing.assert_array_equal(load_model(path).classes_, [0, 1])


def test_unwritable_labels_are_refused_before_spending(tmp_path):
    ledger = PrivacyLedger.create(tmp_path / "l", data="people", budget=ApproximateDP(9.0, 1e-4))
    X, y = make_rows()
    labels = ["a", "b\ud800"]
    model = LogisticRegression(classes=labels, row_norm=2.0, ledger=ledger)
    with pytest.raises(ValueError, match=r"classes\[1\] must be Unicode text without lone surr"):
        model.fit(X, np.array(labels, dtype=object)[y])
    assert ledger.contents().entries == ()


def test_a_schema_with_a_lone_surrogate_cannot_be_made():
    columns = (NumericColumn("age\ud800", 0, 1),)
    with pytest.raises(ValueError, match=r"must be Unicode text without lone surrogates"):
        Schema(columns, NumericTarget("y", 0, 1), "known")
    with pytest.raises(ValueError, match=r"provenance must be Unicode text"):
        Schema((NumericColumn("age", 0, 1),), NumericTarget("y", 0, 1), "known\ud800")


def test_numbers_beyond_all_floats_are_refused_as_numbers():
    with pytest.raises(ValueError, match="epsilon must be a finite number"):
        ApproximateDP(10**400, 1e-6)
