"""Estimators on rows that are not one matrix in memory."""

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone, is_regressor
from sklearn.preprocessing import Normalizer

from dpglm import (
    GeneralizedLinearRegressor,
    HuberRegressor,
    LogisticRegression,
    PoissonRegressor,
    PrivateGridSearchCV,
    PrivatePipeline,
    Ridge,
)
from dpglm.data import torch as tensor_collection
from dpglm.data.stream import stored
from dpglm.data.stream import stored as mapped
from dpglm.data.stream.arrow import ParquetRows
from dpglm.data.stream.stored import MappedRows
from dpglm.ledger import PrivacyLedger
from dpglm.preprocessing import Center
from dpglm.privacy.budget import ApproximateDP
from dpglm.solvers import Auto, NoisyGD, NoisySGD
from tests.slowly import some_quickly

N = 600
ESTIMATORS = [
    LogisticRegression(),
    Ridge(),
    HuberRegressor(),
    GeneralizedLinearRegressor(),
    PoissonRegressor(),
]
FACTS = {"row_norm": 1.2, "weight_bound": 0.8}


def data(estimator):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(N, 3)).astype(np.float32)
    if is_regressor(estimator):
        return X, np.clip(X @ np.array([1.0, -1.0, 0.5]) + 2.0, 0.0, 4.0)
    return X, np.array(["a", "b", "c"])[rng.integers(0, 3, N)]


def declared(estimator, **options):
    target = (
        {"target_bounds": (0.0, 3.5)} if is_regressor(estimator) else {"classes": ["a", "b", "c"]}
    )
    return clone(estimator).set_params(random_state=0, **FACTS, **target, **options)


@pytest.mark.parametrize(
    "estimator", some_quickly(ESTIMATORS, 2), ids=lambda made: type(made).__name__
)
def test_the_model_is_that_of_the_same_rows_in_memory(tmp_path, estimator):
    X, y = data(estimator)
    weights = np.random.default_rng(1).uniform(0, 1, N)
    # The choices of estimators for collections.
    model = declared(estimator, solver=Auto(may_copy=False))
    if not is_regressor(model):
        model.set_params(class_weight={"b": 2.0})
    inside = clone(model).fit(X, y, weights)
    targets = pd.Series(y, name="target")
    named = clone(model).fit(pd.DataFrame(X, columns=["u", "v", "w"]), targets, weights)
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(target=y, weight=weights)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=250)
    np.save(tmp_path / "X.npy", X)
    stored = ParquetRows(tmp_path / "rows.parquet", "target", sample_weight="weight")
    lying = MappedRows(np.load(tmp_path / "X.npy", mmap_mode="r"), y, weights)
    for rows, alike in ((stored, named), (lying, inside)):
        made = clone(model).set_params(solver="auto").fit(rows)
        np.testing.assert_allclose(made.coef_, inside.coef_, rtol=1e-6)
        np.testing.assert_allclose(made.intercept_, inside.intercept_, rtol=1e-6)
        assert made.solution_.plan == inside.solution_.plan
        assert made.privacy_.public_facts == alike.privacy_.public_facts
        assert made.n_features_in_ == 3
    assert clone(model).fit(stored).feature_names_in_.tolist() == ["u", "v", "w"]


def test_bounded_features_come_back_in_the_units_of_the_rows():
    X, y = data(LogisticRegression())
    model = LogisticRegression(
        classes=["a", "b", "c"], feature_bounds=(-0.5, [1, 2, 3]), random_state=0, solver="noisy_gd"
    )
    inside, streamed = clone(model).fit(X, y), clone(model).fit(MappedRows(X, y))
    np.testing.assert_allclose(streamed.coef_, inside.coef_, rtol=1e-6)


def test_large_mapped_arrays_are_streamed_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(mapped, "STREAMED_BYTES", 100)
    X, y = data(Ridge())
    np.save(tmp_path / "X.npy", X)
    lying = np.load(tmp_path / "X.npy", mmap_mode="r")
    prepared = []
    inner = MappedRows.prepared
    monkeypatch.setattr(MappedRows, "prepared", lambda *args: prepared.append(1) or inner(*args))
    model = declared(Ridge()).fit(lying, y, np.ones(N))
    assert prepared == [1]
    np.testing.assert_allclose(model.coef_, declared(Ridge()).fit(X, y, np.ones(N)).coef_)


@pytest.mark.parametrize(
    ("estimator", "undeclared", "message"),
    [
        (LogisticRegression(), "classes", "classes must be declared"),
        (LogisticRegression(), "row_norm", "row_norm or feature_bounds must be declared"),
        (LogisticRegression(), "weight_bound", "weight_bound must be declared"),
        (Ridge(), "target_bounds", "target_bounds must be declared"),
        (Ridge(), "row_norm", "row_norm or feature_bounds must be declared"),
    ],
)
def test_a_fact_that_is_not_declared_is_named(estimator, undeclared, message):
    X, y = data(estimator)
    model = declared(estimator).set_params(**{undeclared: None})
    with pytest.raises(ValueError, match=message):
        model.fit(MappedRows(X, y, np.ones(N)))


@pytest.mark.parametrize("wrong", ["feature", "label", "target"])
def test_errors_in_a_row_spend_nothing(tmp_path, wrong):
    estimator = Ridge() if wrong == "target" else LogisticRegression()
    X, y = data(estimator)
    if wrong == "feature":
        X[N // 2, 1] = np.nan
    else:
        y[N // 2] = "d" if wrong == "label" else np.nan
    ledger = PrivacyLedger.create(
        tmp_path / "ledger.db", data="rows", budget=ApproximateDP(10.0, 1e-3)
    )
    heard = []
    model = declared(estimator).set_params(random_state=None, ledger=ledger, callback=heard.append)
    with pytest.raises(ValueError, match=r"finite|labels that are not in classes"):
        model.fit(MappedRows(X, y))
    assert heard == []
    assert ledger.contents().entries == ()


def test_non_numeric_targets_are_refused():
    X, y = data(LogisticRegression())
    with pytest.raises(ValueError, match="y must contain numbers"):
        declared(Ridge()).fit(MappedRows(X, y))
    with pytest.raises(ValueError, match="labels"):
        declared(LogisticRegression()).fit(MappedRows(X, data(Ridge())[1]))


def test_poisson_batches_of_streamed_rows_are_those_in_memory(tmp_path):
    X, y = data(LogisticRegression())
    model = declared(LogisticRegression(), solver=NoisySGD(n_steps=5, sampling_rate=0.2))
    frame = pd.DataFrame(X).rename(columns=str).assign(y=y)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    inside = clone(model).fit(X, y)
    for rows in (MappedRows(X, y), ParquetRows(tmp_path / "rows.parquet", "y")):
        np.testing.assert_allclose(clone(model).fit(rows).coef_, inside.coef_, rtol=1e-6)


def test_without_a_matrix_in_memory_no_solver_copies_all_rows():
    X, y = data(LogisticRegression())
    model = declared(LogisticRegression())
    model.fit(MappedRows(X, y))
    assert model.solution_.plan.method.algorithm == "noisy gradient descent"
    model.fit(X, y)
    assert model.solution_.plan.method.algorithm != "noisy gradient descent"


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    X, y = data(LogisticRegression())
    model = declared(LogisticRegression(), solver=NoisyGD(n_steps=6)).set_params(random_state=None)
    path = tmp_path / "kept"

    class InterruptionError(Exception):
        pass

    def interrupt(info):
        if info.step == 4:
            raise InterruptionError

    with pytest.raises(InterruptionError):
        clone(model).set_params(callback=interrupt).fit(X, y, checkpoint=path)
    heard = []
    first = clone(model).set_params(callback=heard.append).fit(X, y, checkpoint=path)
    assert [info.step for info in heard] == [5, 6]
    assert first.n_iter_ == len(first.solution_.history) == 6
    with pytest.warns(UserWarning, match="complete"):
        second = clone(model).fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(first.coef_, second.coef_)
    ridge = declared(Ridge(), solver=NoisyGD(n_steps=3)).set_params(random_state=None)
    ridge.fit(MappedRows(*data(Ridge())), checkpoint=tmp_path / "ridge")
    assert (tmp_path / "ridge").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


def kinds(folder, X, y, weights):
    """The same rows, targets and weights in each kind of collection, by name."""
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(target=y, weight=weights)
    frame.to_parquet(folder / "rows.parquet", row_group_size=250)
    made = {
        "mapped": (MappedRows(X, y, weights),),
        "parquet": (ParquetRows(folder / "rows.parquet", "target", sample_weight="weight"),),
    }
    made["dask"] = tuple(da.from_array(one, chunks=250) for one in (X, y, weights))
    made["torch"] = (torch.as_tensor(X), y, weights)
    return made


def on_the_host(result):
    return np.asarray(result.compute() if hasattr(result, "compute") else result)


class TestPredictions:
    @pytest.mark.parametrize(
        ("estimator", "options"),
        [
            (LogisticRegression(), {}),
            (LogisticRegression(), {"classes": ["a", "b"]}),
            (LogisticRegression(), {"multi_class": "ovr", "feature_bounds": (-0.5, [1, 2, 3])}),
            (Ridge(), {"feature_bounds": (-0.5, 0.5)}),
            (PoissonRegressor(), {}),
        ],
        ids=["softmax", "two classes", "ovr, clipped columns", "ridge, clipped", "counts"],
    )
    def test_are_those_of_the_same_rows_in_memory(self, folder, monkeypatch, estimator, options):
        # Several parts, the last one shorter.
        monkeypatch.setattr(stored, "_PART_BYTES", 70 * 12)
        monkeypatch.setattr(tensor_collection, "_PART_BYTES", 170 * 24)
        X, y = data(estimator)
        if len(options.get("classes", ())) == 2:
            y = np.where(y == "c", "a", y)
        weights = np.random.default_rng(1).uniform(0, 1, N)
        model = declared(estimator, solver="noisy_gd").set_params(**options).fit(X, y)
        methods = ["predict", "decision_function", "predict_proba"]
        with dask.config.set(scheduler="synchronous"):
            for rows in kinds(folder, X, y, weights).values():
                for method in methods if not is_regressor(model) else methods[:1]:
                    expected = getattr(model, method)(X)
                    result = on_the_host(getattr(model, method)(rows[0]))
                    assert result.shape == expected.shape
                    if expected.dtype.kind == "U":
                        np.testing.assert_array_equal(result, expected)
                    else:
                        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)
                score = model.score(*rows)
                assert score == pytest.approx(model.score(X, y, weights), abs=1e-10)

    def test_are_of_the_kind_of_the_rows(self):
        X, _ = data(Ridge())
        y = np.arange(N) % 3
        model = declared(LogisticRegression(), solver="noisy_gd").set_params(classes=[0, 1, 2])
        model.fit(X, y)
        tensor = torch.as_tensor(X).requires_grad_()
        for method in ("predict", "predict_proba", "decision_function"):
            result = getattr(model, method)(tensor)
            assert isinstance(result, torch.Tensor)
            assert result.device == tensor.device
        rows, computed = da.from_array(X, chunks=200), []
        lazy = rows.map_blocks(lambda chunk: computed.append(1) or chunk, meta=X[:0])
        result = model.predict_proba(lazy)
        assert computed == []
        assert (result.shape, result.chunks[0], result.dtype) == ((N, 3), rows.chunks[0], float)
        assert model.predict(lazy).chunks == rows.chunks[:1]

    def test_need_no_targets_but_scores_and_fits_do(self, folder):
        X, y = data(Ridge())
        model = declared(Ridge(), solver="noisy_gd").fit(X, y)
        pd.DataFrame(X, columns=["u", "v", "w"]).to_parquet(folder / "features.parquet")
        files = ParquetRows(folder / "features.parquet", columns=["u", "v", "w"])
        for rows in (MappedRows(X), files):
            np.testing.assert_allclose(model.predict(rows), model.predict(X))
            for use in (model.score, clone(model).fit):
                with pytest.raises(ValueError, match="y must be given, got None"):
                    use(rows)

    def test_refuse_other_columns_and_numbers_that_are_not_finite(self, folder):
        X, y = data(Ridge())
        files = kinds(folder, X, y, np.ones(N))["parquet"][0]
        model = declared(Ridge(), solver="noisy_gd").fit(files)
        with pytest.raises(ValueError, match="2 features, but Ridge is expecting 3"):
            model.predict(MappedRows(X[:, :2]))
        swapped = ParquetRows(folder / "rows.parquet", columns=["v", "u", "w"])
        with pytest.raises(ValueError, match="must have the features that were fitted"):
            model.predict(swapped)
        X[N // 2, 1] = np.nan
        for rows in (MappedRows(X), da.from_array(X, chunks=200)):
            with pytest.raises(ValueError, match="X must be finite"):
                on_the_host(model.predict(rows))

    def test_constant_targets_score_as_in_memory(self):
        X, _ = data(Ridge())
        model = declared(Ridge(), solver="noisy_gd").fit(*data(Ridge()))
        y = np.full(N, 2.0)
        assert model.score(MappedRows(X, y)) == model.score(X, y) == 0.0


def test_pipelines_and_searches_take_collections(folder):
    X, y = data(LogisticRegression())
    model = LogisticRegression(classes=["a", "b", "c"], row_norm=2.0, weight_bound=1.0)
    pipeline = PrivatePipeline([("center", Center()), ("model", model)])
    model.set_params(solver=NoisyGD(n_steps=3))
    search = PrivateGridSearchCV(model, {"C": [0.1, 1.0]}, method="held_out")
    stored_rows = kinds(folder, X, y, np.ones(N))["parquet"][0]
    for made, rows in ((pipeline, stored_rows), (search, MappedRows(X, y))):
        assert made.fit(rows).predict(rows).shape == (N,)
        assert 0.0 < made.score(rows) < 1.0
    fixed = PrivatePipeline([("normalizer", Normalizer()), ("model", model)])
    for rows in (MappedRows(X, y), da.from_array(X)):
        with pytest.raises(ValueError, match=r"not have fixed .*, got 'normalizer'"):
            fixed.fit(rows)
