"""Offsets and exposures: in every container, and bounded where a proof needs it."""

from __future__ import annotations

import math

import dask.array as da
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor as KnownPoisson
from sklearn.metrics import r2_score

import dpglm
from dpglm import (
    BinomialRegressor,
    GammaRegressor,
    GaussianDP,
    GeneralizedLinearRegressor,
    LogisticRegression,
    MappedRows,
    NegativeBinomialRegressor,
    NoisyGD,
    ParquetRows,
    PoissonRegressor,
    PrivateGridSearchCV,
    PrivatePipeline,
    QuantileRegressor,
    Ridge,
    TweedieRegressor,
    certificate,
)
from dpglm.preprocessing import Center
from dpglm.problem import Savage, WithOffset
from dpglm.report import load_model, save_model
from dpglm.solvers import Constant, ObjectivePerturbation, OutputPerturbation
from dpglm.tables.named import OffsetColumn
from tests.estimators.linear.test_families import close, maximum_likelihood

N = 700
LONG, SHORT = (NoisyGD(n_steps=n, step_size=1.0, clip=50.0, schedule=Constant()) for n in (800, 60))
QUIET = {"budget": GaussianDP(1e7), "row_norm": 2.0, "solver": SHORT, "random_state": 0}


def rows():
    rng = np.random.default_rng(0)
    X, exposure = rng.uniform(-1, 1, (N, 2)), rng.uniform(0.1, 4.0, N)
    return rng, X, exposure, rng.poisson(exposure * np.exp(X @ [0.6, -0.8] - 0.5)).astype(float)


def poisson(**options):
    return PoissonRegressor(alpha=0.0, target_bounds=(0, 20), **{**QUIET, **options})


def test_poisson_with_exposures_is_scikit_learn_s_fit_of_rates():
    _, X, exposure, y = rows()
    known = KnownPoisson(alpha=0.0, tol=1e-10).fit(X, y / exposure, sample_weight=exposure)
    expected = np.append(known.coef_, known.intercept_)
    close(poisson(solver=LONG).fit(X, y, exposure=exposure), expected)
    close(poisson(solver=LONG).fit(X, y, offset=np.log(exposure).tolist()), expected)
    bounds = (math.log(0.1), math.log(4.0))
    model = poisson(solver=LONG, offset_bounds=bounds).fit(X, y, exposure=exposure)
    close(model, expected)
    assert model.privacy_.fact("offset_bounds").value == list(bounds)
    without = poisson(offset_bounds=(-1.0, 2.0), fit_intercept=False)
    assert without.plan(100, 2, offset=True).problem.loss.bound == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("model", "mean", "loss"),
    [
        (
            GammaRegressor(alpha=0.0, target_bounds=(0.01, 30)),
            np.exp,
            lambda z, y: (z + y * np.exp(-z)).sum(),
        ),
        (
            TweedieRegressor(power=1.5, alpha=0.0, target_bounds=(0.01, 30)),
            np.exp,
            lambda z, y: (np.exp(z / 2) / 0.5 + y * np.exp(-z / 2) / 0.5).sum(),
        ),
        (
            NegativeBinomialRegressor(dispersion=0.2, target_bounds=(0.01, 30)),
            np.exp,
            lambda z, y: ((y + 5) * np.log1p(0.2 * np.exp(z)) - y * z).sum(),
        ),
        (
            BinomialRegressor(link="logit"),
            lambda z: 1 / (1 + np.exp(-z)),
            lambda z, y: (np.logaddexp(0, z) - y * z).sum(),
        ),
    ],
    ids=["gamma", "tweedie", "negative binomial", "logit"],
)
def test_other_links_and_families(model, mean, loss):
    rng, X, exposure, _ = rows()
    offset = np.log(exposure)
    y = mean(X @ [0.6, -0.8] - 0.5 + offset) * rng.uniform(0.5, 1.5, N)
    y = np.clip(y, 0.01, 1.0 if isinstance(model, BinomialRegressor) else 30.0)
    A = np.column_stack([X, np.zeros(N)])
    w = maximum_likelihood(A, lambda z: loss(z + offset, y))
    slow = NoisyGD(n_steps=2000, step_size=2.0, clip=50.0, schedule=Constant())
    model.set_params(**QUIET, offset_bounds=(-2.5, 1.5)).set_params(solver=slow)
    model.fit(X, y, offset=offset)
    close(model, w[[0, 1, 3]], atol=1e-3)
    predicted = mean(X @ w[:2] + w[3] + offset)
    np.testing.assert_allclose(model.predict(X, offset=offset), predicted, rtol=5e-3, atol=1e-3)


def parameters(model):
    return np.append(model.coef_, model.intercept_)


# Rows that are all short enough are used as they are stored, others prepared at each pass.
@pytest.mark.parametrize("row_norm", [2.0, 0.8])
def test_every_container_gives_the_same_model(row_norm, tmp_path):
    _, X, exposure, y = rows()
    model, offset = poisson(row_norm=row_norm), np.log(exposure)
    expected = parameters(model.fit(X, y, offset=offset))
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y, "log": offset, "time": exposure})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=300)
    columns = {"columns": ["a", "b"], "target": "y", "dtype": "float64"}
    for arguments, given in [
        ((sparse.csr_array(X), y), {"offset": offset}),
        ((pd.DataFrame(X), pd.Series(y)), {"exposure": pd.Series(exposure)}),
        ((torch.tensor(X), torch.tensor(y)), {"exposure": torch.tensor(exposure)}),
        (
            (da.from_array(X, chunks=(200, 2)), da.from_array(y, chunks=200)),
            {"exposure": da.from_array(exposure, chunks=300)},
        ),
        ((MappedRows(X, y, offset=offset),), {}),
        ((MappedRows(X, y, offset=offset, cache=tmp_path),), {}),
        ((ParquetRows(tmp_path / "rows.parquet", offset="log", **columns),), {}),
        ((ParquetRows(tmp_path / "rows.parquet", exposure="time", **columns),), {}),
    ]:
        found = parameters(model.fit(*arguments, **given))
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert isinstance(model.solution_.plan.problem.loss, WithOffset)


def test_a_large_mapped_array_is_streamed_with_offsets(tmp_path, monkeypatch):
    _, X, exposure, y = rows()
    monkeypatch.setattr("dpglm.data.stream.stored.STREAMED_BYTES", 0)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    found = parameters(poisson().fit(mapped, y, exposure=exposure))
    expected = parameters(poisson().fit(X, y, exposure=exposure))
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_and_files_include_offsets(tmp_path):
    _, X, exposure, y = rows()
    model = poisson().fit(X, y, exposure=exposure)
    predicted = model.predict(X, exposure=exposure)
    np.testing.assert_allclose(predicted, exposure * model.predict(X))
    r2 = 1 - ((y - predicted) ** 2).sum() / ((y - y.mean()) ** 2).sum()
    assert model.score(MappedRows(X, y, offset=np.log(exposure))) == pytest.approx(r2)
    assert certificate.verify(model.privacy_).ok
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(X, exposure=exposure), predicted)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_offsets_that_are_not_finite_are_refused(bad):
    _, X, exposure, y = rows()
    offset = np.log(exposure)
    offset[5] = bad
    for given in (
        lambda model: model.fit(X, y, offset=offset),
        lambda model: model.fit(torch.tensor(X), torch.tensor(y), offset=torch.tensor(offset)),
        lambda model: model.fit(MappedRows(X, y, offset=offset)),
        lambda model: model.fit(
            da.from_array(X), da.from_array(y), offset=da.from_array(offset, chunks=100)
        ),
    ):
        with pytest.raises(ValueError, match="offset must be finite"):
            given(poisson())


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan])
def test_exposures_are_above_zero(bad):
    _, X, exposure, y = rows()
    exposure[3] = bad
    with pytest.raises(ValueError, match="exposure above 0"):
        poisson().fit(X, y, exposure=exposure)
    model = poisson().fit(X, y)
    with pytest.raises(ValueError, match="exposure above 0"):
        model.predict(X, exposure=exposure)


def test_models_without_offsets_refuse_them():
    _, X, exposure, y = rows()
    options = {"row_norm": 2.0, "target_bounds": (0.0, 20.0)}
    for model in (Ridge(**options), QuantileRegressor(**options)):
        with pytest.raises(ValueError, match="subtract it from y"):
            model.fit(X, y, offset=exposure)
        with pytest.raises(ValueError, match="subtract it from y"):
            model.plan(100, 2, offset=True)
    with pytest.raises(ValueError, match="offset and exposure must be None for a classifier"):
        LogisticRegression(row_norm=2.0, classes=["a", "b"]).fit(
            X, np.where(y > 1, "a", "b"), offset=exposure
        )
    with pytest.raises(ValueError, match="other than the logarithm"):
        BinomialRegressor(row_norm=2.0).fit(X, y / 20, exposure=exposure)
    with pytest.raises(ValueError, match="must not both be given"):
        poisson().fit(X, y, exposure=exposure, offset=exposure)
    with pytest.raises(ValueError, match="None for rows with offsets"):
        poisson().fit(MappedRows(X, y, offset=exposure), offset=exposure)
    with pytest.raises(ValueError, match="shape"):
        poisson().fit(X, y, offset=exposure[:-1])
    with pytest.raises(ValueError, match="shape"):
        poisson().fit(X, y).predict(X, offset=exposure[:-1])
    search = PrivateGridSearchCV(
        PoissonRegressor(**options), {"alpha": [0.1, 1.0]}, method="held_out"
    )
    with pytest.raises(ValueError, match="loss must not have an offset"):
        search.fit(MappedRows(X, y, offset=exposure))


@pytest.mark.parametrize("solver", [ObjectivePerturbation(), OutputPerturbation()], ids=repr)
def test_certified_minimisers_need_bounds_on_offsets(solver):
    _, X, exposure, y = rows()
    options = {"target_bounds": (0.0, 20.0), "row_norm": 1.5, "alpha": 0.1, "solver": solver}
    with pytest.raises(ValueError, match="offset_bounds must be declared"):
        PoissonRegressor(**options).fit(X, y, exposure=exposure)
    model = PoissonRegressor(offset_bounds=(-3.0, 2.0), **options)
    planned = model.plan(N, 2, offset=True)
    model.fit(X, y, exposure=exposure)
    assert model.solution_.plan == planned
    assert planned.problem.loss.bound == pytest.approx(2.5)


def test_offsets_beyond_their_bounds_are_clipped():
    _, X, exposure, y = rows()
    wild, tame = np.log(exposure), np.log(exposure)
    wild[[1, 4]] = 1e30, -1e30
    tame[[1, 4]] = 2.0, -3.0
    models = [poisson(offset_bounds=(-3.0, 2.0)).fit(X, y, offset=one) for one in (wild, tame)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize("offset", [1e300, -1e300, 800.0])
def test_row_with_huge_offset_moves_sum_by_at_most_the_clip(offset):
    _, X, exposure, y = rows()
    step = NoisyGD(n_steps=1, step_size=1.0, clip=0.5, momentum=0.0, schedule=Constant())
    found = []
    for first in (0.0, offset):
        given = np.log(exposure)
        given[0] = first
        model = poisson(solver=step).fit(X, y, offset=given)
        found.append(model.solution_.w)
    assert np.linalg.norm(found[0] - found[1]) <= 2 * 0.5 / N * (1 + 1e-6)


def test_a_loss_that_is_not_convex_takes_none():
    class_loss = Savage()
    with pytest.raises(ValueError, match="loss must be one of"):
        GeneralizedLinearRegressor(loss=class_loss, row_norm=1.0, target_bounds=(0, 1)).plan(
            100, 2, offset=True
        )


@pytest.mark.parametrize("unit", [1.0, 500.0])
def test_default_is_near_likelihood_in_any_exposure_unit(unit):
    _, X, exposure, y = rows()
    known = KnownPoisson(alpha=0.0, tol=1e-10).fit(X, y / exposure, sample_weight=exposure)
    model = PoissonRegressor(
        alpha=0.0, target_bounds=(0, 20), row_norm=2.0, budget=GaussianDP(1e5), random_state=0
    ).fit(X, y, exposure=unit * exposure)
    expected = np.append(known.coef_, known.intercept_ - math.log(unit))
    # A quarter of the standard error of the coefficients.
    np.testing.assert_allclose(parameters(model), expected, atol=0.015)


def test_two_rows_with_offsets_are_not_taken_for_a_matrix():
    X, y = np.zeros((2, 1)), np.array([3.0, 1.0])
    model = PoissonRegressor(target_bounds=(0, 20), row_norm=1.0, budget=GaussianDP(1e5))
    model.fit(X, y, offset=np.log([3.0, 1.0]))
    assert model.predict([[0.0]])[0] == pytest.approx(1.0, abs=0.05)


def test_a_checkpoint_holds_a_fit_with_offsets(tmp_path):
    _, X, exposure, y = rows()
    model = poisson(random_state=None)
    given = {"exposure": exposure, "checkpoint": tmp_path / "fit"}
    first = clone(model).fit(X, y, **given)
    with pytest.warns(UserWarning, match="complete"):
        again = clone(model).fit(X, y, **given)
    np.testing.assert_array_equal(first.coef_, again.coef_)


def test_pipelines_and_formulas_pass_offsets_on():
    _, X, exposure, y = rows()
    schema = {
        "columns": {name: {"type": "numeric", "low": -1, "high": 1} for name in "ab"},
        "target": {"name": "y", "type": "count", "high": 20},
        "provenance": "generated",
    }
    table = {"a": X[:, 0], "b": X[:, 1], "y": y}
    own = PoissonRegressor(alpha=0.0, solver=LONG)
    model = dpglm.from_formula("y ~ a + b", schema, own, budget=GaussianDP(1e6))
    model.fit(table, exposure=exposure)
    known = KnownPoisson(alpha=0.0, tol=1e-10).fit(X, y / exposure, sample_weight=exposure)
    predicted = model.predict(table, exposure=exposure)
    np.testing.assert_allclose(predicted, exposure * known.predict(X), rtol=1e-2)
    np.testing.assert_allclose(predicted, exposure * model.predict(table))
    steps = [("center", Center()), ("model", PoissonRegressor(row_norm=2.0, target_bounds=(0, 20)))]
    PrivatePipeline(steps).fit(X, y, offset=np.log(exposure))
    with pytest.raises(ValueError, match="offset must be None for a private search"):
        PrivateGridSearchCV(own, {"alpha": [0.1, 1.0]}).fit(X, y, offset=exposure)


@pytest.mark.parametrize("known", ["exposure", "offset"])
@pytest.mark.parametrize("named", [True, False])
def test_model_file_describes_its_offsets(known, named, tmp_path):
    _, X, exposure, y = rows()
    values = exposure if known == "exposure" else np.log(exposure)
    given = {known: {"years": values} if named else values}
    model = poisson().fit(X, y, **given)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.offset_column == OffsetColumn(known, "years" if named else None)
    assert ("years" in str(model.privacy_.sections())) == named
    np.testing.assert_allclose(loaded.predict(X, **given), model.predict(X, exposure=exposure))
    save_model(poisson().fit(X, y), tmp_path / "plain.json")
    assert load_model(tmp_path / "plain.json").offset_column is None


def test_a_series_names_its_column():
    _, X, exposure, y = rows()
    model = poisson().fit(X, y, exposure=pd.Series(exposure, name="hours"))
    assert model.privacy_.fact("exposure").value == "hours"


@pytest.mark.parametrize("layout", ["dense", "sparse", "pipeline", "mapped"])
def test_scores_take_exposures(layout):
    _, X, exposure, y = rows()
    model = poisson().fit(X, y, exposure=exposure)
    expected = r2_score(y, model.predict(X, exposure=exposure))
    assert abs(expected - model.score(X, y)) > 0.1
    if layout == "mapped":
        assert model.score(MappedRows(X, y, offset=np.log(exposure))) == pytest.approx(expected)
        return
    if layout == "pipeline":
        estimator = poisson(budget=None, random_state=None)
        model = PrivatePipeline([estimator], budget=QUIET["budget"]).fit(X, y, exposure=exposure)
        expected = r2_score(y, model.predict(X, exposure=exposure))
    rows_of = sparse.csr_array(X) if layout == "sparse" else X
    assert model.score(rows_of, y, exposure=exposure) == pytest.approx(expected)
    assert model.score(rows_of, y, offset=np.log(exposure)) == pytest.approx(expected)


@pytest.mark.parametrize("has_target", [True, False])
def test_streamed_rows_are_predicted_with_their_exposures(tmp_path, has_target):
    _, X, exposure, y = rows()
    table = {"a": X[:, 0], "b": X[:, 1], "years": exposure}
    parquet.write_table(
        pa.table(table | ({"y": y} if has_target else {})), tmp_path / "rows.parquet"
    )
    given = {"target": "y"} if has_target else {"columns": ["a", "b"]}
    read = ParquetRows(tmp_path / "rows.parquet", exposure="years", dtype="float64", **given)
    model = poisson().fit(X, y, exposure=exposure)
    np.testing.assert_allclose(model.predict(read), model.predict(X, exposure=exposure))
    with pytest.raises(ValueError, match="None for rows with offsets"):
        model.predict(read, exposure=1.0)
    if has_target:
        fitted = poisson().fit(read)
        assert fitted.privacy_.fact("exposure").value == "years"
        expected = r2_score(y, fitted.predict(read))
        assert fitted.score(read) == pytest.approx(expected)
    labels = LogisticRegression(classes=[0, 1], row_norm=2.0).fit(X, y > 1)
    with pytest.raises(ValueError, match="must be None for a classifier"):
        labels.predict(read)


def test_an_evaluation_of_a_model_of_exposures_needs_them():
    _, X, exposure, y = rows()
    model = poisson().fit(X, y, exposure=exposure)
    free = {"epsilon": 1e4, "target_bounds": (0, 20)}
    with pytest.raises(ValueError, match="exposure or offset must be given"):
        dpglm.evaluate(model, X, y, **free)
    found = dpglm.evaluate(model, X, y, exposure=exposure, **free)
    assert found.r2 == pytest.approx(r2_score(y, model.predict(X, exposure=exposure)), abs=0.02)
    rates = dpglm.evaluate(model, X, y, exposure=1.0, **free)
    assert rates.r2 < found.r2 - 0.1
    unlike = LogisticRegression(classes=[0, 1], row_norm=2.0).fit(X, y > 1)
    with pytest.raises(ValueError, match="None for a classifier"):
        dpglm.evaluate(unlike, X, y > 1, exposure=exposure)


@pytest.mark.parametrize("given", ["years", ["a"] * N, {"a": np.ones(N), "b": np.ones(N)}])
def test_invalid_exposure_is_an_error(given):
    _, X, _, y = rows()
    with pytest.raises(ValueError, match="exposure must"):
        poisson().fit(X, y, exposure=given)


def test_intervals_need_bounds_on_offsets():
    """Without them the fit starts at an exposure of 1, however large the true ones are."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(20_000, 2))
    exposure = 1e5 * rng.uniform(0.5, 1.5, size=20_000)
    y = np.minimum(rng.poisson(exposure * np.exp(X @ [0.5, -0.3] - 11.0)), 20)
    model = PoissonRegressor(
        alpha=0.0, inference=True, feature_bounds=(-1, 1), target_bounds=(0, 20), random_state=0
    )
    with pytest.raises(
        ValueError, match=r"offset_bounds must be .* offset_bounds= of .*from_formula"
    ):
        model.fit(X, y, exposure=exposure)
    model.set_params(offset_bounds=(math.log(5e4), math.log(1.5e5))).fit(X, y, exposure=exposure)
    ends = model.inference_.conf_int(0.999)
    assert ((ends[:, 0] < [-11.0, 0.5, -0.3]) & (ends[:, 1] > [-11.0, 0.5, -0.3])).all()
