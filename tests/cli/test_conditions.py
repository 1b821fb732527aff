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
from dpglm.tables.schema import Schema

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 20, "high": 80},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
        "seen": {"low": "2022-01-01", "high": "2023-12-31", "missing": "2023-01-01"},
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


def test_selected_keeps_rows_that_count():
    table = {"c": CELLS, "g": np.arange(8)}
    where, made = selected(read_conditions(["c=x"], table), table, None, kept="g")
    assert where.counts.tolist() == [False, True, *[False] * 6]
    assert made["c"].tolist() == ["x"]
    assert made["g"].tolist() == list(range(8))
    where, made = selected(read_conditions(["c=nowhere"], table), table, None, kept="g")
    assert not where.counts.any()
    assert len(made["c"]) == 0
    assert selected([], table, None)[0] is None


def test_dates_of_the_schema_are_compared_as_dates():
    cells = np.array(["01.06.2023", "2023-05-31", "15.07.2022", ""], dtype=object)
    schema = Schema.from_dict(SCHEMA)
    for text, places in [("seen>=2023-06-01", [0]), ("seen<01.06.2023", [1, 2]), ("seen=", [3])]:
        where, _ = selected(read_conditions([text], ["seen"]), {"seen": cells}, schema)
        assert np.flatnonzero(where.counts).tolist() == places


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["age,sex,ill,site,who,seen"]
    for place in range(900):
        age = f"{rng.uniform(20, 80):.1f}" if place % 3 else ""
        lines.append(
            f"{age},{'fm'[place % 2]},{rng.choice(['no', 'yes'])},s{place % 2},{place // 4},"
            f"2023-0{1 + place % 9}-01"
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
@pytest.mark.parametrize("text", ["none=1", "age>sixty", "sex=F", "seen>=june"])
def test_wrong_conditions_spend_nothing(folder: Path, text: str):
    made = run("fit", "rows.csv", "--schema", "schema.json", "--model", "m.json", "--where", text)
    assert made.exit_code == 2
    assert f"--where {text}: must" in made.output
    assert not (folder / "m.json").exists()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("further", [[], ["--additive"]])
def test_errors_number_the_rows_of_the_file(folder: Path, further: list[str]):
    lines = (folder / "rows.csv").read_text().splitlines()
    # The first row that counts is row 2.
    lines[2] = lines[2].replace(",m,", ",x,")
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")
    made = run(
        "fit", "rows.csv", "--schema", "schema.json", "--model", "m.json", "--where", "site=s1",
        "--where", "age!=", *further,
    )  # fmt: skip
    assert made.exit_code == 2
    assert "column 'sex', row 2: 'x'" in made.output


@pytest.mark.filterwarnings("ignore")
def test_success_is_independent_of_counted_rows(folder: Path):
    for text in ("age>500", "age>50"):
        fit = ["fit", "rows.csv", "--schema", "schema.json", "--model", f"{len(text)}.json"]
        for further in (["--additive", "--groups", "who"], []):
            assert run(*fit, "--where", text, "--force", *further).exit_code == 0
        described = ["describe", "rows.csv", "--schema", "schema.json", "--where", text]
        assert run(*described).exit_code == 0
        made = run("evaluate", "rows.csv", "--model", fit[-1], "--where", text)
        assert made.exit_code == 0, made.output


def test_weak_coefficients_are_named_by_the_table_alone(folder: Path):
    command = ["fit", "rows.csv", "--schema", "schema.json", "--model", "m.json"]
    done = CliRunner().invoke(
        app,
        [*command, "--where", "age!=", "--inference", "model", "--epsilon", "0.3"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert "carry little information" in " ".join(done.output.split())
    assert "about x" not in done.output
    assert "x0" not in done.output
