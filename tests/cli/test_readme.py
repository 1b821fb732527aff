"""The commands of docs/command_line.md, one after the other, on rows that they fit."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd

import dpglm

PAGE = Path(dpglm.__file__).parents[2] / "docs" / "command_line.md"
SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "region": {"type": "categorical", "categories": ["north", "south"]},
    },
    "target": {"name": "income", "type": "binary", "classes": ["low", "high"]},
    "provenance": "made up for tests",
}
STUDY = 'schema = "schema.json"\nepsilon = 1.0\n[explore]\n[fit]\n[evaluate]\n'


def make_table(n_rows, seed):
    rng = np.random.default_rng(seed)
    age = rng.integers(0, 101, n_rows)
    income = np.where(age + rng.normal(0, 20, n_rows) > 50, "high", "low")
    region = rng.choice(["north", "south"], n_rows)
    return pd.DataFrame({"id": np.arange(n_rows), "age": age, "region": region, "income": income})


def commands_of_the_page():
    section = PAGE.read_text("utf-8").partition("## A typical session")[2]
    for line in re.search(r"```\n(.*?)```", section, re.DOTALL)[1].splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "dpglm"
        yield words[1:]


def test_documented_commands_work_in_order(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("people.csv", "held_out.csv", "new.csv")):
        make_table(2000, seed).to_csv(name, index=False)
    Path("study.toml").write_text(STUDY)
    tried = []
    for words in commands_of_the_page():
        # Any size of an attack will do.
        done = run(*words, *(["--runs", "10"] if words[0] == "audit" else []))
        assert done.exit_code == 0, (words, done.output)
        tried.append(words[0])
        if words[0] == "schema":
            Path("schema.json").write_text(json.dumps(SCHEMA))
    assert len(tried) > 9
    assert len(pd.read_csv("predictions.csv")) == 2000


def test_predictions_go_through_a_pipe(fit, run, files):
    from click.testing import CliRunner

    from dpglm.cli.commands import app

    assert fit().exit_code == 0
    assert run("predict", "people.csv", "--model", "model.json", "-o", "p.csv").exit_code == 0
    rows = Path("people.csv").read_bytes()
    words = ["predict", "-", "--model", "model.json", "-o", "-"]
    done = CliRunner().invoke(app, words, input=rows)
    assert done.exit_code == 0, done.stderr
    assert done.stdout_bytes == Path("p.csv").read_bytes()
    assert not Path("-").exists()
    done = CliRunner().invoke(app, words, input=b"age\n1\n")
    assert done.exit_code == 2
    assert "standard input.csv: there is no column 'smoker'" in done.stderr
