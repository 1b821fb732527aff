"""A small private table with its schema, and a way to run commands on it."""

import functools
import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from dpglm.cli.commands import app

SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "smoker": {"type": "categorical", "categories": ["no", "yes"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "made up for tests",
}


def make_frame(n_rows=400):
    rng = np.random.default_rng(0)
    age, smoker = rng.integers(0, 101, n_rows), rng.random(n_rows) < 0.5
    ill = age + 40 * smoker + rng.normal(0, 10, n_rows) > 70
    return pd.DataFrame(
        {
            "age": age,
            "smoker": np.where(smoker, "yes", "no"),
            "ill": np.where(ill, "yes", "no"),
            "id": np.arange(n_rows),
        }
    )


@functools.cache
def stored():
    """Return the table as files."""
    frame = make_frame()
    text = frame.to_csv(index=False).encode()
    return {"people.csv": text, "people.parquet": frame.to_parquet()}


@pytest.fixture(autouse=True)
def _undrawn(undrawn):
    """Tests of pages look at pictures; commands only write pages."""


@pytest.fixture
def frame():
    return make_frame()


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A working folder with people.csv, people.parquet and schema.json."""
    monkeypatch.chdir(tmp_path)
    for name, content in stored().items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    return tmp_path


@pytest.fixture
def visits(files, frame):
    """The same rows, one after the other two of a person, in visits.csv and visits.parquet."""
    visits = frame.assign(person=[f"p{i // 2}" for i in range(len(frame))])
    visits.to_csv("visits.csv", index=False)
    visits.to_parquet("visits.parquet")
    return visits


@pytest.fixture
def run():
    """Run a command in this process; result has exit_code, stdout and stderr."""

    def invoke(*arguments):
        return CliRunner().invoke(app, [str(one) for one in arguments])

    return invoke


@pytest.fixture
def fit(run, files):
    """Fit the small table; more options replace the usual ones."""

    def invoke(*more, data="people.csv", schema="schema.json", epsilon="5", model="model.json"):
        options = ("--schema", schema, "--epsilon", epsilon, "--model", model)
        return run("fit", data, *options, *more)

    return invoke


@pytest.fixture
def listing():
    """Return all paths below a folder, hidden ones too."""
    return lambda folder: sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.fixture
def fails():
    """Check that a command ended with exit code 2 and one message, which is returned."""

    def check(result):
        assert result.exit_code == 2, result.output
        assert "Traceback" not in result.stderr
        assert result.stdout == ""
        return " ".join(result.stderr.split())

    return check


@pytest.fixture(scope="session")
def sample():
    return SimpleNamespace(schema=SCHEMA, frame=make_frame)
