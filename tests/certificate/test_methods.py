"""The methods paragraph and the record for registries: every number is that of the certificate."""

import json

import numpy as np
import pytest

import dpglm
from dpglm import LogisticRegression, Study
from dpglm.survival import kaplan_meier

SCHEMA = {
    "columns": {"x": {"type": "numeric", "low": 0, "high": 1}},
    "target": {"name": "y", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "the  questionnaire.",
}
N = 300
TABLE = {
    "x": np.linspace(0.0, 1.0, N),
    "y": np.where(np.arange(N) % 3 == 0, "yes", "no"),
    "id": np.repeat(np.arange(N // 3), 3),
}


@pytest.fixture(scope="module")
def study():
    made = Study(SCHEMA, epsilon=2.0, delta=1e-5).explore().fit().evaluate()
    return made.run({name: TABLE[name] for name in "xy"}, random_state=0)


def test_paragraph_of_study_has_its_numbers(study):
    text = study.methods()
    assert "We analysed 300 records under differential privacy with dpglm" in text
    assert "epsilon = 2 and delta = 1e-05, shared by the exploration" in text
    assert "(the questionnaire)" in text
    counts = [sum(one.count for one in part.releases) for part in study.privacy_.parts.values()]
    for count in counts:
        assert f"on {count} noisy release" in text
    assert "20 % of the records, chosen at random" in text
    assert "so that the results are NOT private" in text


def test_paragraph_of_people_names_the_person():
    found = dpglm.describe(
        TABLE, SCHEMA, epsilon=1.0, columns=["x"], groups=TABLE["id"], max_rows_per_group=2
    )
    text = found.privacy_.methods()
    assert "one person with all records" in text
    assert "at most 2 records of a person" in text
    assert "the operating system's random numbers" in text


def test_paragraph_names_facts_from_the_data():
    with pytest.warns(dpglm.PublicInformationWarning):
        model = LogisticRegression(row_norm=1.0).fit([[0.5], [1.0]], [0, 1])
    assert "taken from the data without protection: classes" in model.privacy_.methods()


def test_record_is_json_and_lists_each_release(study):
    found = json.loads(json.dumps(study.privacy_.record()))
    assert found["epsilon"] == study.privacy_.epsilon
    assert found["privacy unit"] == "record"
    assert set(found["parts"]) == {"exploration", "model", "evaluation"}
    (only,) = found["parts"]["exploration"]["releases"]
    release = study.privacy_.parts["exploration"].releases[0]
    assert only["sensitivity"] == release.sensitivity
    assert only["noise scale"] == pytest.approx(release.scale.std)
    assert found["is private"] is False


def test_moments_and_survival_are_named():
    rows = {name: TABLE[name] for name in "xy"}
    numeric = {**SCHEMA, "target": {"name": "x", "type": "numeric", "low": 0, "high": 1}}
    numeric["columns"] = {"z": {"type": "numeric", "low": 0, "high": 1}}
    table = {"x": TABLE["x"], "z": TABLE["x"][::-1]}
    moments = dpglm.release_moments(table, numeric, epsilon=2.0, delta=1e-5, random_state=0)
    text = moments.privacy_.methods()
    assert "The second moments behind all linear models rest on" in text
    curves = kaplan_meier(
        rows, SCHEMA, time="x", event="y", cuts=[0, 0.5, 1], epsilon=2.0, random_state=0
    )
    text = curves.privacy_.methods()
    assert "Survival curves rest on 1 noisy release (Gaussian noise of" in text
    assert "The model" not in text
