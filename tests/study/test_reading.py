"""Studies from files: settings are followed, and errors are named."""

import json
import re
from pathlib import Path

import pytest

from dpglm.datasets import load_adult
from dpglm.exploration.describe import DescriptionPart
from dpglm.study.reading import read_study
from tests.study.support import SCHEMA


@pytest.fixture
def read(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))

    def write_and_read(text, head='schema = "schema.json"\nepsilon = 0.5\n'):
        (tmp_path / "study.toml").write_text(head + text)
        return read_study(tmp_path / "study.toml")

    return write_and_read


def test_every_part(read):
    found = read(
        """
        title = "Who is ill?"

        [explore]
        two_way = [["sex", "ill"]]
        bins = { age = 5 }

        [fit]
        estimator = "svm"
        formula = "ill ~ age * C(sex)"
        C = 2.0
        """
    )
    assert (found.epsilon, found.title) == (0.5, "Who is ill?")
    assert isinstance(found.parts["exploration"], DescriptionPart)
    model = found.parts["model"].model
    assert (model.steps[-1].C, type(model.steps[-1]).__name__) == (2.0, "LinearSVC")
    assert model.steps[0].formula == "ill ~ age * C(sex)"
    assert found.plan(1000).epsilon == pytest.approx(0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("epsilon2 = 1", "must not have the key 'epsilon2'.*explore, fit, effects, evaluate"),
        ("[explore]\ntwo = 1", "explore must not have the key 'two'"),
        ("[explore]\nby = 'age'", "explore"),
        ("fit = 3", "must be a table"),
        ("[fit]\nestimator = 'forest'", "fit: estimator must be one of"),
        ("[fit]\nKK = 3", "fit"),
        ("this is no toml", "is not TOML"),
        ('title = "a\\nb"', "title"),
    ],
)
def test_errors_name_the_cause(read, text, said):
    with pytest.raises(ValueError, match=said) as raised:
        read(text)
    assert "study.toml" in str(raised.value)


def test_the_example_of_the_docs(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "study.md"
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "study.toml").write_text(text)
    (tmp_path / "adult.schema.json").write_text(json.dumps(load_adult().schema))
    found = read_study(tmp_path / "study.toml")
    assert list(found.parts) == ["exploration", "model", "evaluation"]
    assert found.plan(48842).epsilon == pytest.approx(1.0, rel=1e-6)


def test_a_schema_must_be_named(read):
    with pytest.raises(ValueError, match="must have a key 'schema'"):
        read("", head="epsilon = 1.0\n")
