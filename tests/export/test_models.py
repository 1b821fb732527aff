"""Fitted estimators, pipelines and model files export their predictions."""

import ast
import builtins

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import dpglm
from dpglm.export import written
from dpglm.export.scoring import scoring_of
from dpglm.preprocessing import SchemaEncoder
from dpglm.problem import IdentityLink, LogitLink, OneVsRestLink, ProbitLink
from dpglm.report import load_model, save_model
from dpglm.tables.schema import Schema
from tests.export import scored
from tests.fits import make_rows

COLUMNS = {
    "age": {"type": "numeric", "low": 16, "high": 90},
    "pay": {"type": "numeric", "low": 0, "high": 1e5, "scale": "log", "missing": 0},
    "job": {"type": "categorical", "categories": ["", "clerk", "nurse", "smith"]},
}
KINDS = {"age": "number", "pay": "number", "job": "text"}
TARGETS = {
    "two": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "three": {"name": "place", "type": "classes", "classes": ["a", "b", "c"]},
    "count": {"name": "visits", "type": "count", "high": 8},
}
N = 600


def table_and_targets(seed=0):
    rng = np.random.default_rng(seed)
    table = {
        "age": rng.uniform(10.0, 99.0, N),
        "pay": np.where(rng.random(N) < 0.1, np.nan, 10 ** rng.uniform(0.0, 6.0, N)),
        "job": rng.choice(["", "clerk", "nurse", "smith"], N),
    }
    place = rng.integers(0, 3, N)
    two = rng.random(N) < 1 / (1 + np.exp(-(table["age"] - 50) / 10))
    return table, {
        "two": np.where(two, "yes", "no"),
        "three": np.array(["a", "b", "c"])[place],
        "count": np.minimum(rng.poisson(np.exp(table["age"] / 60)), 8),
    }


def schema_of(target):
    document = {"columns": COLUMNS, "target": TARGETS[target], "provenance": "made up"}
    return Schema.from_dict(document)


def pipeline(estimator, target, formula=None):
    encoder = SchemaEncoder(schema_of(target).with_formula(formula))
    return dpglm.PrivatePipeline([encoder, estimator], epsilon=5.0, random_state=0)


def additive(kind, target, **options):
    options = {"epsilon": 5.0, "random_state": 0, "schema": schema_of(target)} | options
    return kind(**options)


def two_classes():
    return dpglm.LogisticRegression(classes=["no", "yes"])


MODELS = {
    "logistic": (lambda: pipeline(two_classes(), "two"), "two"),
    "softmax": (
        lambda: pipeline(dpglm.LogisticRegression(classes=["a", "b", "c"]), "three"),
        "three",
    ),
    "formula": (lambda: pipeline(two_classes(), "two", "~ age * job + bs(pay, df=4)"), "two"),
    "natural splines": (
        lambda: pipeline(two_classes(), "two", "~ ns(pay, df=4) * job + rcs(age, 4)"),
        "two",
    ),
    "vectors": (lambda: pipeline(dpglm.LinearSVC(classes=["no", "yes"]), "two"), "two"),
    "ridge": (lambda: pipeline(dpglm.Ridge(target_bounds=(0, 8)), "count"), "count"),
    "Poisson": (lambda: pipeline(dpglm.PoissonRegressor(target_bounds=(0, 8)), "count"), "count"),
    "curves": (
        lambda: additive(dpglm.AdditiveClassifier, "two", interactions=[("age", "job")]),
        "two",
    ),
    "counts": (lambda: additive(dpglm.AdditiveRegressor, "count", loss="poisson"), "count"),
    "monotone": (lambda: additive(dpglm.AdditiveClassifier, "two", monotone={"age": 1}), "two"),
}


def wanted(model, table):
    if hasattr(model, "predict_proba"):
        shares = model.predict_proba(table)
        return shares[:, 1:] if shares.shape[1] == 2 else shares
    if hasattr(model, "decision_function"):
        return model.decision_function(table).reshape(N, -1)
    return model.predict(table)[:, np.newaxis]


@pytest.fixture(params=MODELS)
def fitted(request):
    make, target = MODELS[request.param]
    table, targets = table_and_targets()
    return make().fit(table, targets[target]), table


def as_cells(table):
    return {name: column.tolist() for name, column in table.items()}


def test_model_exports_its_predictions(fitted, tmp_path):
    model, table = fitted
    want, cells = wanted(model, table), as_cells(table)
    save_model(model, tmp_path / "model.json")
    read = load_model(tmp_path / "model.json")
    sql = model.export("sql")
    assert sql == read.export("sql")
    assert model.export("python") == read.export("python")
    for engine in (scored.sqlite, scored.duck):
        np.testing.assert_allclose(engine(sql, cells, KINDS), want, rtol=1e-9, atol=1e-9)
    found = scored.python(model.export("python"), cells)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)
    found = scored.onnx(model.export("onnx"), cells)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_matrix_model_clips_its_columns(multinomial):
    X, _ = make_rows()
    X = 3.0 * X
    table = {f"x{i}": column.tolist() for i, column in enumerate(X.T)}
    kinds = dict.fromkeys(table, "number")
    want = multinomial.predict_proba(X)
    found = scored.duck(multinomial.export("sql"), table, kinds)
    np.testing.assert_allclose(found, want, rtol=1e-9, atol=1e-9)


def test_pipeline_of_scikit_learn_takes_a_schema():
    table, targets = table_and_targets()
    encoder = SchemaEncoder(schema_of("two"))
    made = make_pipeline(encoder, dpglm.LogisticRegression(row_norm=2.0, classes=["no", "yes"]))
    made.fit(table, targets["two"])
    sql = made[-1].export("sql", schema=schema_of("two"))
    found = scored.duck(sql, as_cells(table), KINDS)
    np.testing.assert_allclose(found[:, 0], made.predict_proba(table)[:, 1], rtol=1e-9)


def test_python_imports_nothing(binary):
    tree = ast.parse(binary.export("python"))
    assert [type(one).__name__ for one in tree.body] == ["FunctionDef"]
    assert not [one for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom)]
    nodes = list(ast.walk(tree))
    names = [one for one in nodes if isinstance(one, ast.Name)]
    known = {one.id for one in names if isinstance(one.ctx, ast.Store)} | set(dir(builtins))
    known |= {one.name for one in nodes if isinstance(one, ast.FunctionDef)}
    known |= {one.arg for one in nodes if isinstance(one, ast.arg)}
    assert {one.id for one in names} <= known


def test_python_names_the_refused_cell(binary):
    predict = scored.function_of(binary.export("python"))
    with pytest.raises(ValueError, match=r"column 'x1': the model does not take inf"):
        predict({"x0": 0.0, "x1": float("inf"), "x2": 1.0})


@pytest.mark.parametrize("scale", [1.0, 500.0])
@pytest.mark.parametrize("link", [LogitLink(), ProbitLink()])
def test_extreme_scores_do_not_overflow(link, scale):
    columns = {"x": {"type": "numeric", "low": -2, "high": 2}}
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    scoring = scoring_of([[2.0 * scale]], [0.0], ["no", "yes"], link, schema)
    cells = [-2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.0]
    want = link.probabilities(np.array(cells) * scale)[:, 1]
    for found in (
        scored.sqlite(written(scoring, "sql"), {"x": cells}, {"x": "number"}),
        scored.duck(written(scoring, "sql"), {"x": cells}, {"x": "number"}),
        scored.python(written(scoring, "python"), {"x": cells}),
        scored.onnx(written(scoring, "onnx"), {"x": cells}),
    ):
        np.testing.assert_allclose(found[:, 0], want, atol=1e-11)


def test_wide_models_are_within_limits_of_parsers():
    columns = {f"x{i}": {"type": "numeric", "low": 0, "high": 1} for i in range(1500)}
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    w = np.linspace(-1.0, 1.0, 1500)
    scoring = scoring_of([w], [0.5], None, IdentityLink(), schema)
    table = {name: [0.25, 1.0] for name in columns}
    want = np.array([-0.5, 1.0])[:, np.newaxis] * np.ones(1500) @ w + 0.5
    found = scored.sqlite(written(scoring, "sql"), table, dict.fromkeys(table, "number"))
    np.testing.assert_allclose(found[:, 0], want, rtol=1e-9)
    found = scored.python(written(scoring, "python"), table)
    np.testing.assert_allclose(found[:, 0], want, rtol=1e-9)


def test_text_in_a_number_column_stays_text_in_sqlite():
    columns = {"x": {"type": "numeric", "low": 0, "high": 2}}
    schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
    sql = written(scoring_of([[1.0]], [0.0], None, IdentityLink(), schema), "sql")
    found = scored.sqlite(sql, {"x": ["abc", "2", 2.0]}, {"x": "text"})
    assert np.isnan(found[0, 0])
    assert found[1:, 0].tolist() == [1.0, 1.0]


class TestRefusals:
    def test_unknown_language(self, binary):
        with pytest.raises(ValueError, match=r"to must be one of .*'sql'.*got 'cobol'"):
            binary.export("cobol")

    def test_other_transformers(self):
        table, targets = table_and_targets()
        from sklearn.preprocessing import Normalizer

        steps = [Normalizer(), dpglm.LogisticRegression(classes=["no", "yes"])]
        model = dpglm.PrivatePipeline(steps, random_state=0)
        model.fit(np.column_stack([table["age"], table["age"]]), targets["two"])
        with pytest.raises(ValueError, match="Normalizer"):
            model.export("sql")

    def test_schema_of_another_model(self, binary):
        with pytest.raises(ValueError, match="schema must have 3 features"):
            binary.export("sql", schema=schema_of("two"))

    def test_link_that_excludes_every_class(self):
        link = OneVsRestLink(ProbitLink())
        with pytest.raises(ValueError, match="logistic"):
            scoring_of(np.eye(3), np.zeros(3), ["a", "b", "c"], link, None)

    def test_name_with_a_zero(self):
        columns = {"x\0y": {"type": "numeric", "low": 0, "high": 1}}
        schema = Schema.from_dict({"columns": columns, "provenance": "made up"})
        scoring = scoring_of([[1.0]], [0.0], None, IdentityLink(), schema)
        with pytest.raises(ValueError, match="character 0"):
            written(scoring, "sql")

    def test_onnx_without_its_package(self, binary, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "onnx", None)
        with pytest.raises(ImportError, match=r"pip install 'dpglm\[onnx\]'"):
            binary.export("onnx")
