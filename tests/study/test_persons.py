"""Studies that protect persons with all of their rows: each is in one part, and pays there."""

import dataclasses
import json

import numpy as np
import pytest

from dpglm import PrivacyLedger, Study
from dpglm.certificate import Certificate, verify
from dpglm.data.groups import Groups
from dpglm.privacy import Adjacency, ApproximateDP, SplitByCoins, default_delta
from dpglm.privacy.budget import Unit
from dpglm.privacy.noise import SeededNoise
from dpglm.study import Split
from dpglm.study.reading import read_study
from tests.study.support import PARTS, SCHEMA, study, table

PERSONS = 300
OPTIONS = {
    "adjacency": "add_remove",
    "n_rows": 600,
    "groups": "id",
    "n_groups": PERSONS,
    "max_rows_per_group": 3,
}


def visits():
    rows = table()
    return rows | {"id": np.random.default_rng(1).integers(0, PERSONS, 600)}


@pytest.fixture(scope="module")
def result():
    made = Study(SCHEMA, epsilon=4.0, **OPTIONS).explore(["age"]).fit().evaluate()
    return made.run(visits())


def test_every_part_protects_persons(result):
    certificate = result.privacy_
    assert result.verify().ok
    assert certificate.unit is Unit.GROUP
    sizes = {name: one.data.n_units for name, one in certificate.parts.items()}
    assert sizes == {"exploration": 300, "model": 240, "evaluation": 60}
    assert {one.unit for part in certificate.parts.values() for one in part.releases} == {
        Unit.GROUP
    }
    assert all(part.data.groups.rows <= 3.0 for part in certificate.parts.values())
    assert certificate.protection.n_units == PERSONS
    assert certificate.delta == default_delta(PERSONS)
    assert "600 rows of 300 persons" in certificate.statement()
    assert "600 rows of 300 persons" in str(result.plan)
    assert Certificate.from_dict(certificate.to_dict()) == certificate


def test_a_person_is_in_one_part():
    whose = dict(zip(visits()["age"].tolist(), visits()["id"].tolist(), strict=True))
    made, parts = study(**OPTIONS)
    made = dataclasses.replace(made, split=Split(0.25, "id"))
    assert any(isinstance(one, SplitByCoins) for one in everything_in(made.plan().event))
    made.run(visits())
    seen = {name: parts[name].seen[0].tolist() for name in PARTS}
    assert sorted(seen["model"] + seen["evaluation"]) == sorted(seen["exploration"])
    learned, held_out = ({whose[age] for age in seen[name]} for name in PARTS[1:])
    assert not learned & held_out


@pytest.mark.parametrize("spelled", [(0.0, -0.0), (0, 0.0), (0, False)])
def test_a_person_with_two_spellings_is_in_one_part(spelled):
    ids = np.arange(40, dtype=object)
    ids[:6] = spelled * 3
    for seed in range(9):
        mask = Split(0.5, "id").draw(40, Adjacency.ADD_REMOVE, SeededNoise(seed), ids)
        assert len(set(mask[:6].tolist())) == 1
    # All parts protect the same people.
    assert Groups.of(ids, 40).n_groups == 35


def test_persons_in_numbers_and_texts_are_refused(tmp_path):
    mixed = visits() | {"id": ["1", 1.0, 1] * 200}
    with pytest.raises(ValueError, match="column 'id': groups must be all numbers or all texts"):
        Study(SCHEMA, **OPTIONS).explore(["age"]).run(mixed)


def everything_in(event):
    yield event
    for one in getattr(event, "events", ()):
        yield from everything_in(one)


@pytest.mark.parametrize("persons", [None, "household"])
def test_plan_with_people_in_two_parts_is_refused(persons):
    made, _ = study(**OPTIONS)
    with pytest.raises(ValueError, match="split must be by the protected persons, 'id'"):
        dataclasses.replace(made, split=Split(0.25, persons)).plan()


def test_certificate_of_rows_split_singly_is_refused(result):
    """Planted: a person would be in both parts, and pay for both."""
    with pytest.raises(ValueError, match="split must be by person"):
        dataclasses.replace(result.privacy_, split=Split(0.2))


def test_certificate_of_parts_for_other_people_is_invalid(result):
    other = Study(SCHEMA, epsilon=4.0, **OPTIONS | {"n_groups": 290}).explore(["age"]).fit()
    other = other.evaluate().run(visits()).privacy_
    parts = {**result.privacy_.parts, "exploration": other.parts["exploration"]}
    forged = dataclasses.replace(result.privacy_, parts=parts)
    failed = {one.name: one.detail for one in verify(forged).checks if not one.passed}
    assert "the number of groups 290, not 300" in failed["parts have the stated protection"]


def test_model_uses_as_many_rows_as_stated():
    made = Study(SCHEMA, epsilon=4.0, **OPTIONS | {"n_groups": 290}).fit().run(visits())
    most = OPTIONS["max_rows_per_group"]
    # Planned for the mean, which is smaller and no whole number.
    assert 1.0 < made.plan.planned["model"].plan.data.groups.rows < most
    assert made.model.max_rows_per_group == most


def test_the_ledger_must_be_of_persons(tmp_path):
    made = Study(SCHEMA, epsilon=4.0, delta=1e-3, **OPTIONS).explore(["age"])
    for unit in ("row", "group"):
        ledger = PrivacyLedger.create(
            tmp_path / unit,
            data="visits",
            budget=ApproximateDP(9.0, 1e-2),
            adjacency="add_remove",
            unit=unit,
        )
        if unit == "row":
            with pytest.raises(ValueError, match="unit='group'"):
                made.run(visits(), ledger=ledger)
        else:
            made.run(visits(), ledger=ledger)
        assert len(ledger.contents().entries) == (unit == "group")


def test_an_interrupted_study_goes_on(tmp_path):
    made = Study(SCHEMA, epsilon=4.0, **OPTIONS).explore(["age"]).fit().evaluate()
    first = made.run(visits(), checkpoint=tmp_path / "begun")
    again = made.run(visits(), checkpoint=tmp_path / "begun")
    assert first.exploration["age"].mean == again.exploration["age"].mean
    assert first.evaluation.auc == again.evaluation.auc


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"groups": "age"}, "groups must be a column outside the schema"),
        ({"groups": None}, "n_groups must be given with groups"),
        (
            {"max_rows_per_group": None},
            "max_rows_per_group must be given with groups.* n_rows and adjacency=.add_remove.",
        ),
        ({"max_rows_per_group": 0}, "max_rows_per_group must be"),
        ({"adjacency": "zero_out"}, "groups requires a study with adjacency='add_remove'"),
    ],
)
def test_errors_state_the_cause(changed, message):
    with pytest.raises(ValueError, match=message):
        Study(SCHEMA, **OPTIONS | changed)


def test_other_persons_cannot_be_held_out():
    with pytest.raises(ValueError, match="persons must be None, or the study's groups 'id'"):
        Study(SCHEMA, **OPTIONS).fit().evaluate(persons="household")


def test_additive_models_learn_from_persons():
    made = Study(SCHEMA, epsilon=4.0, **OPTIONS).fit("additive").evaluate(by="sex")
    assert made.run(visits()).verify().ok


def test_a_file_names_persons(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    said = [f"{name} = {value!r}" for name, value in OPTIONS.items()]
    text = "\n".join(['schema = "schema.json"', *said, "[explore]", "[fit]", "[evaluate]"])
    (tmp_path / "study.toml").write_text(text)
    assert "600 rows of 300 persons" in str(read_study(tmp_path / "study.toml").plan())
