"""``where=``: a row that does not count enters nothing, and how many count stays private."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse

import dpglm
from dpglm.certificate import verify
from dpglm.data.collection import MatrixRows, Preparation
from dpglm.data.rows import DataSpec
from dpglm.exploration.description import Description
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.preprocessing import Center, SchemaEncoder
from dpglm.problem import Logistic, Poisson, Softmax
from dpglm.solvers import NoisySGD

pytestmark = pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")

N, D = 600, 3
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (N, D))
WHERE = RNG.random(N) < 0.6
SCORES = X @ [1.0, -1.0, 0.5] + 0.3
LABELS = np.array(["no", "yes", "so"])
IDS = RNG.integers(0, 90, N)
SEEDED = {"epsilon": 2.0, "row_norm": 2.0, "random_state": 0}

MODELS = {
    "logistic": (
        lambda: dpglm.LogisticRegression(classes=["no", "yes"], **SEEDED),
        LABELS[(SCORES > 0).astype(int)],
    ),
    "softmax": (
        lambda: dpglm.LogisticRegression(classes=["no", "so", "yes"], **SEEDED),
        LABELS[RNG.integers(0, 3, N)],
    ),
    "sgd": (
        lambda: dpglm.LogisticRegression(
            classes=["no", "yes"], solver=NoisySGD(n_steps=20), **SEEDED
        ),
        LABELS[(SCORES > 0).astype(int)],
    ),
    "linear": (
        lambda: dpglm.LinearRegression(
            target_bounds=(-3, 3), inference=True, **SEEDED | {"epsilon": 9.0}
        ),
        SCORES,
    ),
    "poisson": (
        lambda: dpglm.PoissonRegressor(target_bounds=(0, 20), **SEEDED),
        RNG.poisson(np.exp(SCORES)).astype(float),
    ),
    "gamma": (
        lambda: dpglm.GammaRegressor(target_bounds=(0.1, 20), **SEEDED),
        np.exp(SCORES),
    ),
    "centred": (
        lambda: dpglm.PrivatePipeline(
            [
                Center(),
                dpglm.LogisticRegression(classes=["no", "yes"], row_norm=2.0, weight_bound=1.0),
            ],
            epsilon=2.0,
            random_state=0,
        ),
        LABELS[(SCORES > 0).astype(int)],
    ),
}


def spoiled(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows with hostile contents where they do not count."""
    features, targets = X.copy(), np.array(y, dtype=object if y.dtype.kind == "U" else float)
    features[~WHERE] = RNG.choice([np.nan, np.inf, 1e300], (int((~WHERE).sum()), D))
    targets[~WHERE] = None if y.dtype.kind == "U" else np.nan
    return features, targets


def coefficients(model) -> np.ndarray:
    return np.append(np.ravel(model.coef_), model.intercept_)


@pytest.mark.parametrize("groups", [None, IDS], ids=["rows", "groups"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_that_do_not_count_are_not_looked_at(name, groups):
    make, y = MODELS[name]
    grouped = {} if groups is None else {"max_rows_per_group": 20}
    features, targets = spoiled(y)
    fits = [
        make().set_params(**grouped).fit(rows, one, where=WHERE, groups=groups)
        for rows, one in ((X, y), (features, targets))
    ]
    np.testing.assert_array_equal(*map(coefficients, fits))
    facts = fits[0].privacy_
    assert facts.fact("n_rows").value == N
    assert "stays private" in facts.fact("where").value


@pytest.mark.parametrize("name", ["logistic", "softmax", "sgd", "poisson", "gamma", "centred"])
def test_where_is_a_weight_of_zero_or_one(name):
    """The laws of weights hold for it: the two fits are the same."""
    make, y = MODELS[name]
    zeroed = np.where(WHERE[:, None], X, 0.0)
    # A target that is there for the sake of its shape.
    y = np.where(WHERE, y, {"softmax": "no", "poisson": 1.0, "gamma": 1.0}.get(name, "yes"))
    chosen = make().fit(zeroed, y, where=WHERE)
    weighted = make() if name == "centred" else make().set_params(weight_bound=1.0)
    weighted.fit(zeroed, y, sample_weight=WHERE.astype(float))
    np.testing.assert_array_equal(coefficients(chosen), coefficients(weighted))


@pytest.mark.parametrize("loss", [Logistic(), Poisson(), Softmax()], ids=repr)
@pytest.mark.parametrize("store", [np.asarray, sparse.csr_array])
def test_one_more_row_moves_a_sum_by_its_bound_at_most(loss, store):
    outputs = 3 if isinstance(loss, Softmax) else 1
    spec = DataSpec(
        N, D, n_outputs=outputs, row_norm=2.0, intercept=2.0, sparse=store is not np.asarray,
        target_low=0.0, target_high=5.0,
    )  # fmt: skip
    y = np.arange(N) % 3 if outputs == 3 else np.where(SCORES > 0, 1.0, -1.0)
    w = np.random.default_rng(1).normal(size=spec.coefficient_shape)
    flipped = WHERE.copy()
    flipped[7] = ~flipped[7]
    sums = []
    for where in (WHERE, flipped):
        rows = MatrixRows(store(X[where]), y[where]).spread(where)
        prepared = rows.prepared(Preparation(spec, None, np.asarray))
        assert prepared.n_rows == N
        sums.append(clipped_gradient_sum(prepared, loss, FlatClipping(0.01), w))
    # Such a clip binds for every row.
    assert 0.00999 < np.linalg.norm(sums[0] - sums[1]) <= 0.01 * (1 + 1e-10)


@pytest.mark.parametrize(
    "container", [pd.DataFrame, pl.DataFrame, sparse.csr_array, lambda rows: rows.tolist()]
)
def test_where_takes_every_container_in_memory(container):
    make, y = MODELS["logistic"]
    expected = make().fit(X, y, where=WHERE)
    rows = container(X)
    found = make().fit(rows, y, where=pd.Series(WHERE, index=range(5, N + 5)))
    np.testing.assert_allclose(coefficients(found), coefficients(expected), rtol=1e-7)


SCHEMA = {
    "columns": {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "sex": {"type": "categorical", "categories": ["f", "m"]},
    },
    "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
    "provenance": "the questionnaire",
}
AGES = RNG.uniform(20, 80, N)
TABLE = {
    "age": np.where(WHERE, AGES, np.nan),
    "sex": np.where(WHERE, RNG.choice(["f", "m"], N), "?"),
    "ill": np.where(WHERE, RNG.choice(["no", "yes"], N), "perhaps"),
}


@pytest.mark.parametrize("frame", [dict, pd.DataFrame])
def test_tables_are_fitted_where_their_cells_are_complete(frame):
    pipeline = dpglm.PrivatePipeline(
        [SchemaEncoder(SCHEMA), dpglm.LogisticRegression(classes=["no", "yes"])], epsilon=1.0
    )
    additive = dpglm.AdditiveClassifier(SCHEMA, epsilon=1.0)
    for model in (pipeline, additive):
        with pytest.raises(ValueError, match="where=, False for such rows"):
            model.fit(frame(TABLE))
        model.fit(frame(TABLE), where=WHERE)
        assert model.privacy_.fact("n_rows").value == N
        assert verify(model.privacy_).ok


def test_zero_counted_rows_are_accepted():
    nobody = np.zeros(N, bool)
    for name in ("logistic", "poisson"):
        make, y = MODELS[name]
        assert np.isfinite(coefficients(make().fit(X, y, where=nobody))).all()
    assert dpglm.describe(TABLE, SCHEMA, where=nobody).n_rows.low == 0.0


def described(**options) -> Description:
    return dpglm.describe(TABLE, SCHEMA, epsilon=5.0, delta=1e-5, **options)


def test_descriptions_estimate_how_many_rows_count():
    found = described(where=WHERE)
    assert found.n_rows.low < WHERE.sum() < found.n_rows.high
    assert abs(found["age"].mean.estimate - AGES[WHERE].mean()) < 1.0
    assert found.privacy_.fact("n_rows").value == N
    assert verify(found.privacy_).ok
    assert f"some of {N} rows" in repr(found)
    whole = described()
    assert whole.n_rows.low == whole.n_rows.high == N
    by_group = described(where=WHERE, groups=IDS, max_rows_per_group=20)
    assert by_group.n_rows.low < WHERE.sum() < by_group.n_rows.high


@pytest.mark.parametrize("kind", ["binary", "several", "numbers"])
def test_evaluations_estimate_how_many_rows_count(kind):
    y, guesses, options = (SCORES > 0) * 1, 1 / (1 + np.exp(-SCORES)), {"classes": [0, 1]}
    if kind == "several":
        y, guesses, options = np.arange(N) % 3, np.full((N, 3), 1 / 3), {"classes": [0, 1, 2]}
    if kind == "numbers":
        y, guesses, options = SCORES, X[:, 0], {"target_bounds": (-3.0, 3.0)}
    guesses = np.where(WHERE if guesses.ndim == 1 else WHERE[:, None], guesses, np.nan)
    found = dpglm.evaluate_predictions(y, guesses, where=WHERE, epsilon=5.0, **options)
    rows = found.all_rows.rows
    assert rows.low < WHERE.sum() < rows.high < N
    assert verify(found.privacy_).ok
    assert found.privacy_.fact("n_rows").value == N


def test_models_are_evaluated_where_rows_count():
    make, y = MODELS["logistic"]
    model = make().fit(X, y)
    features, targets = spoiled(y)
    found = dpglm.evaluate(model, features, targets, where=WHERE, epsilon=5.0)
    assert found.auc > 0.7


def test_pitfall_33_a_table_of_chosen_rows_publishes_n():
    """The certificate says that such a number is public only without a private condition."""
    make, y = MODELS["logistic"]
    fact = make().fit(X[WHERE], y[WHERE]).privacy_
    assert fact.fact("n_rows").value == WHERE.sum()
    assert "unless a private condition selected the rows" in fact.statement()


@pytest.mark.parametrize(
    "where", [WHERE[:-1], WHERE.astype(float), ["yes"] * N, np.where(WHERE, True, None)]
)
def test_where_must_be_true_or_false_in_every_row(where):
    make, y = MODELS["logistic"]
    with pytest.raises(ValueError, match="where"):
        make().fit(X, y, where=where)
    with pytest.raises(ValueError, match="where"):
        described(where=where)


def test_studies_count_rows_in_every_part(tmp_path):
    study = dpglm.Study(SCHEMA, epsilon=6.0, delta=1e-5, split=dpglm.study.Split(0.4))
    study = study.explore().fit("logistic").evaluate()
    with pytest.raises(ValueError, match=r"column 'age'|not in the schema's list"):
        study.run(TABLE)
    found = study.run(TABLE, where=WHERE, checkpoint=tmp_path)
    again = study.run(TABLE, where=WHERE, checkpoint=tmp_path)
    np.testing.assert_array_equal(found.model.coef_, again.model.coef_)
    assert found.exploration.n_rows.low < WHERE.sum() < found.exploration.n_rows.high
    assert 0 < found.evaluation.all_rows.rows.estimate < 0.4 * N
    assert found.model.privacy_.fact("where") is not None
    with pytest.raises(dpglm.exceptions.PlanMismatchError):
        study.run(TABLE, where=WHERE & (AGES > 30), checkpoint=tmp_path)


def test_searches_take_where():
    model = dpglm.LogisticRegression(classes=["no", "yes"], row_norm=2.0)
    search = dpglm.PrivateGridSearchCV(model, {"C": [0.1, 10.0]}, method="held_out")
    features, targets = spoiled(MODELS["logistic"][1])
    assert search.fit(features, targets, where=WHERE).privacy_.fact("n_rows").value == N


@pytest.mark.parametrize(
    "kind", ["matrix", "target", "formula", "description", "evaluation", "study"]
)
def test_errors_number_rows_of_the_whole_table(kind):
    """The first row that counts is row 101, and row 201 is wrong."""
    table = {"age": [str(20 + one % 40) for one in range(300)], "ill": ["no", "yes"] * 150}
    features, labels = np.zeros((300, 1)), np.array(table["ill"], dtype=object)
    where = np.arange(300) >= 100
    model = dpglm.LogisticRegression(classes=["no", "yes"], **SEEDED)
    schema = {
        "columns": {"age": {"low": 20, "high": 60}},
        "target": {"name": "ill", "classes": ["no", "yes"]},
        "provenance": "made up for tests",
    }
    curves = dpglm.AdditiveClassifier(schema, epsilon=2.0).fit(table)
    table["age"][200], features[200], labels[200] = "old", np.nan, None

    def fail():
        match kind:
            case "matrix":
                model.fit(features, np.array(table["ill"]), where=where)
            case "target":
                model.fit(np.zeros((300, 1)), labels, where=where)
            case "formula":
                dpglm.from_formula("ill ~ age", schema, epsilon=2.0).fit(table, where=where)
            case "description":
                dpglm.describe(table, schema, epsilon=2.0, where=where)
            case "evaluation":
                dpglm.evaluate(curves, table, epsilon=2.0, where=where)
            case "study":
                dpglm.Study(schema, 2.0, 1e-6).fit("additive").run(table, where=where)

    with pytest.raises(ValueError, match="row 201"):
        fail()
    # Numbers after an error are those of another table again.
    with pytest.raises(ValueError, match="row 201"):
        dpglm.describe(table, schema, epsilon=2.0)


def test_lists_of_no_counted_row_are_evaluated():
    rows = {"age": [30.0, 40.0] * 20, "ill": ["no", "yes"] * 20}
    schema = {
        "columns": {"age": {"low": 20, "high": 60}},
        "target": {"name": "ill", "classes": ["no", "yes"]},
        "provenance": "made up for tests",
    }
    model = dpglm.AdditiveClassifier(schema, epsilon=2.0).fit(rows)
    found = dpglm.evaluate(model, rows, epsilon=2.0, where=np.zeros(40, bool))
    assert found.all_rows.rows.low == 0.0
