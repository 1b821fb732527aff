"""BinomialRegressor of two labels, and of counts of successes: the fit of the shares."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from sklearn.metrics import r2_score, roc_auc_score

import dpglm
from dpglm import BinomialRegressor, ParquetRows, PrivatePipeline, from_formula
from dpglm.preprocessing import SchemaEncoder
from dpglm.report import load_model, save_model
from dpglm.tables.schema import Schema

N = 4000
FREE = {"epsilon": 1e5, "delta": 1e-6, "random_state": 0}
COLUMNS = {"columns": {"age": {"type": "numeric", "low": 16, "high": 90}}, "provenance": "known"}
ILL = {"name": "ill", "type": "binary", "classes": ["no", "yes"]}


def rows():
    rng = np.random.default_rng(4)
    age = rng.uniform(16, 90, N)
    return rng, age, 1.0 / (1.0 + np.exp(-0.05 * (age - 50)))


def labelled():
    rng, age, p = rows()
    return {"age": age, "ill": np.where(rng.uniform(size=N) < p, "yes", "no")}


@pytest.mark.parametrize("link", ["logit", "probit", "cloglog"])
@pytest.mark.parametrize("labels", [("no", "yes"), (1, 2), (False, True)])
def test_labels_are_zeros_and_ones(link, labels):
    table = labelled()
    X, ill = table["age"][:, np.newaxis], table["ill"] == "yes"
    options = {"link": link, "feature_bounds": (16, 90), **FREE}
    known = BinomialRegressor(**options).fit(X, ill.astype(float))
    y = np.where(ill, labels[1], labels[0])
    model = BinomialRegressor(classes=labels, **options).fit(X, y)
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-9)
    assert model.score(X, y) == pytest.approx(known.score(X, ill))
    with pytest.raises(ValueError, match=r"not in classes|another type"):
        model.fit(X, np.where(ill, "perhaps", "no"))


@pytest.mark.parametrize(
    ("classes", "words"),
    [(["yes"], "two labels"), (["a", "b", "c"], "two labels"), ("no", "a list of labels")],
)
def test_other_than_two_labels_are_refused(classes, words):
    model = BinomialRegressor(classes=classes, row_norm=1.0)
    with pytest.raises(ValueError, match=f"classes must be {words}"):
        model.plan(100, 2)


def test_a_formula_s_binary_target(tmp_path):
    """It could not be predicted "as the schema describes it"."""
    pytest.importorskip("formulaic")
    table, schema = labelled(), COLUMNS | {"target": ILL}
    estimator = BinomialRegressor(link="probit", inference=True)
    model = from_formula("ill ~ age", schema, estimator, **FREE).fit(table)
    assert model.inference_.names == ("intercept", "age")
    assert "yes, against no" in str(model.inference_)
    ill = table["ill"] == "yes"
    predicted = model.predict(table)
    assert model.score(table) == pytest.approx(r2_score(ill, predicted))
    save_model(model, tmp_path / "model.json")
    read = load_model(tmp_path / "model.json")
    for one in (model, read):
        found = dpglm.evaluate(one, table, table["ill"], epsilon=1e3)
        assert found.auc == pytest.approx(roc_auc_score(ill, predicted), abs=0.01)


def test_streamed_labels(tmp_path):
    table, schema = labelled(), Schema.from_dict(COLUMNS | {"target": ILL})
    parquet.write_table(pa.table(table), tmp_path / "rows.parquet")
    stream = ParquetRows(tmp_path / "rows.parquet", schema=schema, dtype="float64")
    told = {"row_norm": schema.row_norm, **schema.target.estimator_parameters()}
    model = BinomialRegressor(link="cloglog", **told, **FREE).fit(stream)
    known = BinomialRegressor(link="cloglog", **told, **FREE)
    known.fit(schema.encode(table), table["ill"])
    np.testing.assert_allclose(model.coef_, known.coef_, rtol=1e-6)
    assert model.score(stream) == pytest.approx(known.score(schema.encode(table), table["ill"]))


def test_counts_of_successes_by_formula():
    """The recipe of docs/models.md: shares as targets, trials as weights."""
    pytest.importorskip("formulaic")
    rng, age, p = rows()
    trials = rng.integers(1, 9, N)
    k = rng.binomial(trials, p)
    model = from_formula("~ age", COLUMNS, BinomialRegressor(weight_bound=8), **FREE)
    model.fit({"age": age}, k / trials, sample_weight=trials)
    np.testing.assert_allclose(model.predict({"age": [50.0, 70.0]}), [0.5, 0.731], atol=0.03)
    schema = COLUMNS | {"target": {"name": "share", "type": "numeric", "low": 0, "high": 1}}
    same = PrivatePipeline(
        [SchemaEncoder(schema), BinomialRegressor(weight_bound=8, target_bounds=(0, 1))], **FREE
    ).fit({"age": age, "share": k / trials}, sample_weight=trials)
    np.testing.assert_allclose(same.coef_, model.coef_, rtol=1e-9)
