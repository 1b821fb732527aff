"""Estimators on rows that are not one matrix in memory."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone, is_regressor

from dpglm import HuberRegressor, LogisticRegression, PoissonRegressor, Ridge
from dpglm.data import mapped
from dpglm.data.mapped import MappedRows
from dpglm.data.parquet import ParquetRows
from dpglm.ledger import PrivacyLedger
from dpglm.privacy.budget import ApproximateDP
from dpglm.solvers import Auto, NoisyGD, NoisySGD

N = 600
ESTIMATORS = [
    LogisticRegression(),
    Ridge(),
    HuberRegressor(),
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


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda made: type(made).__name__)
def test_the_model_is_that_of_the_same_rows_in_memory(tmp_path, estimator):
    X, y = data(estimator)
    weights = np.random.default_rng(1).uniform(0, 1, N)
    # What estimators choose for collections.
    model = declared(estimator, solver=Auto(may_copy=False))
    if not is_regressor(model):
        model.set_params(class_weight={"b": 2.0})
    inside = clone(model).fit(X, y, weights)
    frame = pd.DataFrame(X, columns=["u", "v", "w"]).assign(target=y, weight=weights)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=250)
    np.save(tmp_path / "X.npy", X)
    stored = ParquetRows(tmp_path / "rows.parquet", "target", sample_weight="weight")
    lying = MappedRows(np.load(tmp_path / "X.npy", mmap_mode="r"), y, weights)
    for rows in (stored, lying):
        made = clone(model).set_params(solver="auto").fit(rows)
        np.testing.assert_allclose(made.coef_, inside.coef_, rtol=1e-6)
        np.testing.assert_allclose(made.intercept_, inside.intercept_, rtol=1e-6)
        assert made.solution_.plan == inside.solution_.plan
        assert made.privacy_.public_facts == inside.privacy_.public_facts
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


def test_targets_that_are_no_numbers_are_refused():
    X, y = data(LogisticRegression())
    with pytest.raises(ValueError, match="y must hold numbers"):
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
    assert model.solution_.plan.method.settings()["algorithm"] == "noisy gradient descent"
    model.fit(X, y)
    assert model.solution_.plan.method.settings()["algorithm"] != "noisy gradient descent"


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
