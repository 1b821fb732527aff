"""`dpglm export`: a model file in other languages."""

import numpy as np
import pytest

from dpglm.report.model_file import load_model
from tests.export import scored


@pytest.fixture
def model(fit):
    assert fit().exit_code == 0
    return load_model("model.json")


def test_sql_is_printed(run, frame, model):
    done = run("export", "model.json", "--to", "sql")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{model.export('sql')}\n"
    table = {name: frame[name].tolist() for name in model.schema.column_names}
    kinds = {name: "text" if isinstance(table[name][0], str) else "number" for name in table}
    found = scored.duck(done.stdout, table, kinds)
    np.testing.assert_allclose(found[:, 0], model.predict_proba(frame)[:, 1], rtol=1e-9)


@pytest.mark.parametrize(("to", "name"), [("python", "score.py"), ("onnx", "model.onnx")])
def test_files_are_written(run, files, frame, model, to, name):
    done = run("export", "model.json", "--to", to, "-o", name)
    assert done.exit_code == 0, done.output
    assert f"Wrote {name}" in done.stderr
    table = {column: frame[column].tolist() for column in model.schema.column_names}
    if to == "python":
        found = scored.python((files / name).read_text(), table)
    else:
        import onnx

        found = scored.onnx(onnx.load(files / name), table)
    np.testing.assert_allclose(found[:, 0], model.predict_proba(frame)[:, 1], rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("model.json", "--to", "onnx"), "--output must name a file for ONNX"),
        (("model.json", "--to", "cobol"), "'cobol' is not one of"),
        (("schema.json", "--to", "sql"), "is not a dpglm model"),
        (("model.json", "--to", "sql", "-o", "model.json"), "another file than MODEL"),
    ],
)
def test_refusals(run, model, arguments, says):
    done = run("export", *arguments)
    assert done.exit_code == 2
    assert says in done.output
