"""``--where``: private conditions select rows, and their number stays private."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from dpglm.cli.commands import app
from dpglm.cli.console import CommandError
from dpglm.cli.rows import holds, read_conditions, selected

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 20, "high": 80},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "made up for tests",
}
CELLS = np.array([" 17.0", "x", "", None, np.nan, 17, -3.5, "ä"], dtype=object)


@pytest.mark.parametrize(
    ("text", "places"),
    [("c=17", [0, 5]), ("c!=17", [1, 6, 7]), ("c=", [2, 3, 4]), ("c!=", [0, 1, 5, 6, 7]),
     ("c<0", [6]), ("c>=17", [0, 5]), ("c=x", [1]), ("c = a\u0308", [7]), ("c>", []),
     ("c!=x", [0, 5, 6, 7])],
)  # fmt: skip
def test_condition_compares_numbers_by_value_and_text_as_text(text, places):
    ((name, *how),) = read_conditions([text], ["c", "other"])
    assert name == "c"
    assert np.flatnonzero(holds(*how, CELLS)).tolist() == places


def test_names_of_columns_may_contain_signs():
    assert read_conditions(["a<b>=3"], ["a", "a<b"]) == [("a<b", ">=", "3")]
    with pytest.raises(CommandError, match="must be COLUMN"):
        read_conditions(["none=1"], ["a"])


def test_rows_that_do_not_count_have_valid_cells():
    table = {"c": CELLS, "g": np.arange(8)}
    counts, made = selected(read_conditions(["c=x"], table), table, kept="g")
    assert counts.tolist() == [False, True, *[False] * 6]
    assert made["c"].tolist() == ["x"] * 8
    assert made["g"].tolist() == list(range(8))
    counts, made = selected(read_conditions(["c=nowhere"], table), table, kept="g")
    assert not counts.any()
    assert made["g"].tolist() == list(range(8))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["age,sex,ill,site,who"]
    for place in range(900):
        age = f"{rng.uniform(20, 80):.1f}" if place % 3 else ""
        lines.append(
            f"{age},{'fm'[place % 2]},{rng.choice(['no', 'yes'])},s{place % 2},{place // 4}"
        )
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, [*words, "--epsilon", "4"], catch_exceptions=False)


@pytest.mark.filterwarnings("ignore")
def test_commands_count_rows_that_fulfil_conditions(folder: Path):
    described = ["--schema", "schema.json", "--where", "age!="]
    for further in ([], ["--additive"], ["--groups", "who", "--max-rows-per-group", "3"]):
        made = run("fit", "rows.csv", *described, "--model", "model.json", "--force", *further)
        assert made.exit_code == 0, made.output
        facts = json.loads((folder / "model.json").read_text())["certificate"]
        assert "stays private" in json.dumps(facts)
    made = run("describe", "rows.csv", *described, "--where", "site=s1", "--report", "look")
    assert made.exit_code == 0, made.output
    assert "some of 900 rows" in made.output
    made = run(
        "evaluate", "rows.csv", "--model", "model.json", "--where", "age!=", "--where", "sex=f"
    )
    assert made.exit_code == 0, made.output
    assert "some of 900 rows" in made.output


@pytest.mark.filterwarnings("ignore")
def test_wrong_conditions_spend_nothing(folder: Path):
    made = run(
        "fit", "rows.csv", "--schema", "schema.json", "--model", "m.json", "--where", "none=1"
    )
    assert made.exit_code == 2
    assert not (folder / "m.json").exists()


@pytest.mark.filterwarnings("ignore")
def test_success_is_independent_of_counted_rows(folder: Path):
    for text in ("age>500", "age>50"):
        fit = ["fit", "rows.csv", "--schema", "schema.json", "--model", f"{len(text)}.json"]
        assert run(*fit, "--where", text, "--force").exit_code == 0
        described = ["describe", "rows.csv", "--schema", "schema.json", "--where", text]
        assert run(*described).exit_code == 0
        made = run("evaluate", "rows.csv", "--model", fit[-1], "--where", text)
        assert made.exit_code == 0, made.output
