"""Additive models: kinds of targets and containers, plans, certificates, model files."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import dpglm
from dpglm import (
    AdditiveClassifier,
    AdditiveRegressor,
    LogisticRegression,
    NoisyGD,
    PrivatePipeline,
)
from dpglm.certificate import verify
from dpglm.exceptions import BudgetExceededError
from dpglm.ledger import PrivacyLedger
from dpglm.preprocessing import SchemaEncoder, SplineEncoder
from dpglm.privacy import ApproximateDP
from dpglm.report import load_model, save_model
from dpglm.report.html import report_page
from dpglm.report.page import coefficient_table
from dpglm.tables.schema import Schema
from tests.estimators.additive.tables import COLUMNS, schema, table

ROWS = table(6000)
FEW_STEPS = NoisyGD(n_steps=4)
COST = {"name": "cost", "type": "numeric", "low": -5.0, "high": 5.0}


def rows(n: int | None = None, *left_out: str) -> dict[str, Any]:
    return {name: column[:n] for name, column in ROWS.items() if name not in left_out}


def classifier(**parameters: Any) -> AdditiveClassifier:
    known: dict[str, Any] = {"schema": schema(), "random_state": 0, "epsilon": 4.0}
    return AdditiveClassifier(**known | parameters)


@pytest.fixture(scope="module")
def fitted() -> AdditiveClassifier:
    return classifier(interactions=[("age", "sex")]).fit(ROWS)


def test_curves_fit_bent_effects_unlike_lines() -> None:
    linear = PrivatePipeline(
        [SchemaEncoder(schema()), LogisticRegression(classes=["no", "yes"])],
        epsilon=4.0,
        random_state=0,
    )
    held = table(4000, seed=1)
    truth = held["ill"] == "yes"
    curved = roc_auc_score(truth, classifier().fit(ROWS).decision_function(held))
    assert curved > roc_auc_score(truth, linear.fit(ROWS).decision_function(held)) + 0.1


def test_the_model_is_that_of_a_linear_model_of_encoded_rows(fitted: AdditiveClassifier) -> None:
    X = fitted.schema_.encode(ROWS)
    scores = X @ fitted.coef_[0] + fitted.intercept_[0]
    np.testing.assert_allclose(fitted.decision_function(ROWS), scores, atol=1e-9)
    np.testing.assert_allclose(fitted.predict_proba(ROWS)[:, 1], 1 / (1 + np.exp(-scores)))
    assert fitted.privacy_.plan["data"]["row_norm"] == fitted.schema_.row_norm
    terms = fitted.schema_.additive_encoding.terms
    effects = sum(
        term.basis(*(ROWS[name] for name in term.columns)) @ fitted.coef_[0, term.features]
        for term in terms
    )
    np.testing.assert_allclose(scores - fitted.intercept_[0], effects, atol=1e-9)


@pytest.mark.parametrize(
    ("target", "loss", "algorithm"),
    [
        (COST, "auto", "newton"),
        ({"name": "visits", "type": "count", "high": 20}, "auto", "Poisson"),
        (COST, "huber", "Huber"),
    ],
)
def test_regressors_by_target_and_loss(target: dict[str, Any], loss: str, algorithm: str) -> None:
    model = AdditiveRegressor(schema(target), loss=loss, epsilon=4.0, random_state=0).fit(ROWS)
    assert algorithm in f"{model.solution_.plan.method.algorithm} {model.solution_.plan.problem}"
    assert model.score(ROWS) > 0.2


def test_several_classes() -> None:
    target = {"name": "kind", "type": "classes", "classes": ["a", "b", "c"]}
    model = AdditiveClassifier(schema(target), epsilon=8.0, random_state=0).fit(ROWS)
    assert model.coef_.shape[0] == 3
    assert model.score(ROWS) > 0.5
    assert model.predict_proba(rows(3)).shape == (3, 3)


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_data_frames_are_fitted_as_mappings_are(kind: Any) -> None:
    wanted = classifier().fit(rows(2000))
    found = classifier().fit(kind(rows(2000)))
    np.testing.assert_array_equal(found.coef_, wanted.coef_)
    np.testing.assert_array_equal(found.predict(kind(rows(9, "ill"))), wanted.predict(rows(9)))


def test_schemas_are_mappings_objects_or_files(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(schema()))
    wanted = classifier().fit(rows(500)).coef_
    for given in (str(path), path, Schema.from_dict(schema())):
        model = AdditiveClassifier(given, epsilon=4.0, random_state=0).fit(rows(500))
        np.testing.assert_array_equal(model.coef_, wanted)


def test_parquet_is_encoded_as_it_is_read(tmp_path: Path) -> None:
    frame = pd.DataFrame(rows(600))
    frame.to_parquet(tmp_path / "rows.parquet")
    model = classifier(solver=FEW_STEPS).fit(tmp_path / "rows.parquet")
    given = dpglm.ParquetRows(tmp_path / "rows.parquet", schema=Schema.from_dict(schema()))
    again = classifier(solver=FEW_STEPS).fit(given)
    np.testing.assert_allclose(again.coef_, model.coef_)
    assert model.privacy_.fact("schema") is not None
    assert model.score(given) == pytest.approx(model.score(frame))
    np.testing.assert_array_equal(model.predict(given), model.predict(frame))


def test_parquet_without_a_target_in_the_schema(tmp_path: Path) -> None:
    frame = pd.DataFrame(rows(600)).assign(ill=lambda one: (one.ill == "yes").astype(int))
    frame.to_parquet(tmp_path / "rows.parquet")
    plain = Schema.from_dict({"columns": COLUMNS, "provenance": "made up"})
    given = dpglm.ParquetRows(tmp_path / "rows.parquet", "ill", schema=plain)
    model = AdditiveClassifier(plain, classes=[0, 1], solver=FEW_STEPS, random_state=0).fit(given)
    assert model.classes_.tolist() == [0, 1]


def test_data_frames_of_dask_are_encoded_in_partitions() -> None:
    frames = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(rows(600))
    given = frames.from_pandas(frame, npartitions=3)
    model = classifier(solver=FEW_STEPS).fit(given)
    found = model.decision_function(given)
    np.testing.assert_allclose(found.compute(), model.decision_function(frame), atol=1e-9)
    assert 0.0 <= model.score(given) <= 1.0


def test_the_plan_is_the_one_that_is_executed(fitted: AdditiveClassifier) -> None:
    plan = clone(fitted).plan(6000)
    assert plan.document == fitted.solution_.plan.document
    assert clone(fitted).resolve(6000) == fitted.resolution_


def test_the_certificate_is_verified_and_names_the_schema(fitted: AdditiveClassifier) -> None:
    assert verify(fitted.privacy_).ok
    fact = fitted.privacy_.fact("schema")
    assert fact is not None
    assert fact.value["additive"]["interactions"] == [["age", "sex"]]
    assert Schema.from_dict(fact.value) == fitted.schema_


def test_a_ledger_is_charged(tmp_path: Path) -> None:
    budget = ApproximateDP(2.5, 1.2e-5)
    ledger = PrivacyLedger.create(tmp_path / "rows.ledger", data="made up", budget=budget)
    classifier(epsilon=2.0, ledger=ledger, random_state=None).fit(rows(500))
    with pytest.raises(BudgetExceededError):
        classifier(epsilon=2.0, ledger=ledger, random_state=None).fit(rows(500))


def test_model_files_hold_the_curves(fitted: AdditiveClassifier, tmp_path: Path) -> None:
    save_model(fitted, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_allclose(loaded.predict_proba(ROWS), fitted.predict_proba(ROWS))
    assert loaded.schema == fitted.schema_


def test_inference_is_about_values_of_effects() -> None:
    model = classifier(inference=True, segments=2).fit(ROWS)
    assert {"age at 20", "pay missing", "sex=m"} <= set(model.inference_.names)
    assert coefficient_table(model).inference is not None
    low, high = model.inference_.prediction_interval(rows(4)).T
    scores = model.predict_proba(rows(4))[:, 1]
    assert (low < scores).all()
    assert (scores < high).all()


def test_inference_changes_neither_fit_nor_bands() -> None:
    plain, full = (classifier(inference=one, epsilon=0.1, delta=1e-5) for one in (False, True))
    plain, full = plain.fit(ROWS), full.fit(ROWS)
    np.testing.assert_array_equal(plain.coef_, full.coef_)
    assert plain.privacy_.releases == full.privacy_.releases
    for name, shape in plain.shapes_.items():
        assert shape.band is not None
        np.testing.assert_array_equal(shape.band, full.shapes_[name].band)
        assert np.isfinite(shape.band).all()
    assert np.isfinite(full.inference_.standard_errors).all()
    low, high = full.shapes(simultaneous=False)["sex"].band[0].T
    found = full.inference_.pairwise("sex")
    # Two values with mean 0: their difference has twice the error of each.
    np.testing.assert_allclose((high - low)[0] / 1.96, found.standard_errors[0], rtol=1e-3)
    assert not hasattr(plain, "inference_")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epsilon": 1.0, "delta": 0.0}, "inference must be False with a solver"),
        ({"solver": FEW_STEPS}, "inference must be False with a solver"),
        ({"class_weight": {"no": 1.0, "yes": 2.0}}, "labels without weights"),
        ({"inference": "robust"}, "inference must be True or False"),
    ],
)
def test_inference_is_refused_before_spending(given: Any, words: str, tmp_path: Path) -> None:
    budget = ApproximateDP(9.0, 1e-4)
    ledger = PrivacyLedger.create(tmp_path / "rows.ledger", data="made up", budget=budget)
    model = classifier(**{"inference": True, "ledger": ledger, "random_state": None, **given})
    with pytest.raises(ValueError, match=words):
        model.fit(rows(500))
    assert not ledger.contents().entries


def test_inference_with_many_levels_needs_the_stated_solver() -> None:
    columns = {
        "age": {"type": "numeric", "low": 0, "high": 100},
        "ward": {"type": "categorical", "categories": [f"w{one}" for one in range(250)]},
    }
    target = {"name": "ill", "type": "classes", "classes": ["no", "yes"]}
    facts = {"columns": columns, "target": target, "provenance": "made up"}
    model = AdditiveClassifier(facts, epsilon=1.0, inference=True)
    with pytest.raises(ValueError, match=r"got the solver random intercepts .* solver='newton'"):
        model.plan(20_000)
    assert model.set_params(solver="newton").plan(20_000).method.estimates_errors


class TestMonotone:
    def test_curves_rise_or_fall(self) -> None:
        for direction in (1, -1):
            model = classifier(monotone={"age": direction}).fit(ROWS)
            ages = np.linspace(10, 70, 200)
            term = model.schema_.additive_encoding.terms[0]
            curve = term.basis(ages) @ model.coef_[0, term.features]
            assert (direction * np.diff(curve) >= -1e-9).all()
            assert np.ptp(curve) > 0.01
            assert verify(model.privacy_).ok
            fact = model.privacy_.fact("monotone")
            assert fact is not None
            assert fact.value == {"age": direction}

    def test_directions_may_be_integers_of_numpy(self) -> None:
        model = classifier(monotone={"age": np.int64(-1)}).fit(rows(500))
        fact = model.privacy_.fact("monotone")
        assert fact is not None
        assert type(fact.value["age"]) is int
        assert verify(model.privacy_).ok

    def test_missing_numbers_keep_their_level(self) -> None:
        free, bound = classifier().fit(ROWS), classifier(monotone={"pay": 1}).fit(ROWS)
        gap = {"age": [40], "pay": [np.nan], "sex": ["f"]}
        np.testing.assert_allclose(free.decision_function(gap), bound.decision_function(gap))
        assert not np.allclose(free.coef_, bound.coef_)

    @pytest.mark.parametrize(
        "monotone", [{"sex": 1}, {"nose": 1}, {"age": 2}, {"age": True}, ["age"]]
    )
    def test_columns_that_cannot_be_monotone(self, monotone: Any) -> None:
        with pytest.raises(ValueError, match="monotone must"):
            classifier(monotone=monotone).fit(ROWS)

    def test_not_in_interactions_nor_for_several_classes(self) -> None:
        with pytest.raises(ValueError, match="monotone must"):
            classifier(monotone={"age": 1}, interactions=[("age", "sex")]).fit(ROWS)
        pair: dict[str, Any] = {"age x sex": 1}
        with pytest.raises(ValueError, match=r"in no interaction, \['pay'\], got 'age x sex'"):
            classifier(monotone=pair, interactions=[("age", "sex")]).fit(ROWS)
        target = {"name": "kind", "type": "classes", "classes": ["a", "b", "c"]}
        with pytest.raises(ValueError, match="monotone must be None unless two classes"):
            AdditiveClassifier(schema(target), monotone={"age": 1}).fit(ROWS)


class TestResolution:
    @pytest.mark.parametrize("n_rows", [1, 100, 10**4, 10**7])
    def test_curves_become_finer_with_rows_and_budget(self, n_rows: int) -> None:
        found = [
            classifier(epsilon=epsilon, delta=1e-8).resolve(n_rows).settings.segments
            for epsilon in (0.01, 0.1, 1.0, 10.0)
        ]
        assert found == sorted(found)
        assert 1 <= found[0] <= found[-1] <= 20

    def test_few_rows_give_lines_and_many_give_curves(self) -> None:
        assert classifier(epsilon=0.1, delta=1e-6).resolve(100).settings.segments == 1
        assert classifier(epsilon=1.0, delta=1e-6).resolve(10**6).settings.segments >= 8

    def test_stated_values_are_kept(self) -> None:
        model = classifier(segments=5, smoothness=0.2, pair_segments=3)
        settings = model.resolve(1000).settings
        assert (settings.segments, settings.reach, settings.pair_segments) == (5, 0.2, 3)

    def test_segments_of_a_column_are_as_knots_of_the_schema(self) -> None:
        model = classifier(segments={"age": 6}, solver=FEW_STEPS).fit(ROWS)
        known = schema()
        age = {**COLUMNS["age"], "knots": np.linspace(20, 60, 7).tolist()}
        known["columns"] = {**COLUMNS, "age": age}
        listed = classifier(schema=known, solver=FEW_STEPS).fit(ROWS)
        assert model.n_features_in_ == listed.n_features_in_
        np.testing.assert_array_equal(model.coef_, listed.coef_)
        assert model.shapes_["age"].values.size == 7
        assert classifier(segments={"age": 1}).resolve(6000).settings.segments > 1

    def test_amounts_of_money_get_fine_curves_with_enough_signal(self) -> None:
        little, much = (classifier(delta=1e-6).resolve(n).settings for n in (1000, 10**6))
        assert little.log_segments is None
        assert much.log_segments == 80 > much.segments
        stated = classifier(segments=5, delta=1e-6).resolve(10**6).settings
        assert stated.log_segments is None
        column = Schema.from_dict(schema()).with_additive(much).additive_encoding.terms[1].axes[0]
        assert len(column.labels) == 82  # knots, and the level of missing values
        encoded = Schema.from_dict(schema()).with_additive(much)
        assert Schema.from_dict(encoded.to_dict()).additive == much

    @pytest.mark.parametrize("solver", ["auto", "newton_raphson"])
    def test_with_much_smoothness_curves_are_straight_lines(self, solver: str) -> None:
        given = {"segments": 8, "random_state": 1, "solver": solver, "epsilon": 8.0}
        bends = []
        for smoothness in (1.0, 1e6):
            model = classifier(**given, smoothness=smoothness).fit(ROWS)
            curve = model.shapes_["age"].values[0]
            knots = np.linspace(-1.0, 1.0, 9)
            bends.append(np.abs(curve - np.polyval(np.polyfit(knots, curve, 1), knots)).max())
        assert bends[0] > 1.0
        assert bends[1] < 0.01

    def test_reason_is_stated(self) -> None:
        said = str(classifier(delta=1e-6).resolve(10_000))
        assert "segments for each numeric column" in said
        assert "by the number of rows" in said

    @pytest.mark.parametrize("parameters", [{"delta": 0.0}, {"adjacency": "replace_one"}])
    def test_other_budgets_and_relations(self, parameters: dict[str, Any]) -> None:
        model = classifier(**parameters)
        assert model.plan(3000).event is not None
        assert model.resolve(3000).settings.segments <= classifier().resolve(3000).settings.segments


class TestEdges:
    def test_unreadable_input_is_reported(self, tmp_path: Path) -> None:
        plain = AdditiveClassifier({"columns": COLUMNS, "provenance": "made up"}, classes=[0, 1])
        with pytest.raises(ValueError, match="y must be given, as the schema describes no target"):
            plain.fit(rows(100))
        with pytest.raises(ValueError, match=r"must be the path of Parquet .* read text first"):
            plain.fit(tmp_path / "rows.csv")

    @pytest.mark.usefixtures("undrawn")
    def test_pages_name_the_model_and_how_fine_it_is(self) -> None:
        pytest.importorskip("jinja2")
        pytest.importorskip("matplotlib")
        page = report_page(classifier().fit(rows(500)))
        assert "<title>AdditiveClassifier" in page
        assert "segments for each numeric column" in page

    def test_declared_knots_leave_no_segments_to_decide(self) -> None:
        columns = {"age": {"type": "numeric", "low": 0, "high": 9, "knots": [3, 5]}}
        facts = {"columns": columns, "provenance": "made up"}
        assert "as declared in the schema" in str(AdditiveClassifier(facts).resolve(1000))

    def test_one_row(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpglm.LowSignalWarning)
            model = classifier(epsilon=1.0).fit(rows(1))
        assert np.isfinite(model.decision_function(ROWS)).all()

    def test_constant_columns_and_values_outside_the_bounds(self) -> None:
        constant = {name: np.repeat(column[:1], 500) for name, column in ROWS.items()}
        constant["age"] = np.full(500, 1e300)
        model = classifier().fit(constant)
        assert np.isfinite(model.decision_function(constant)).all()

    def test_unseen_levels_are_an_error_that_names_them(self) -> None:
        with pytest.raises(ValueError, match=r"column 'sex', row 3: 'x' is not in the schema"):
            classifier().fit(rows(500) | {"sex": np.array(["f", "m", "x"] + ["f"] * 497)})

    def test_many_levels_are_sparse(self) -> None:
        n, levels = 300, 20_000
        columns = {
            "place": {"type": "categorical", "categories": list(range(levels))},
            "age": COLUMNS["age"],
        }
        wide = {"columns": columns, "target": schema()["target"], "provenance": "made up"}
        given = {
            "place": np.arange(n) * 37 % levels,
            "age": ROWS["age"][:n],
            "ill": ROWS["ill"][:n],
        }
        model = AdditiveClassifier(wide, solver=FEW_STEPS, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dpglm.LowSignalWarning)
            model.fit(given)
        assert model.coef_.shape[1] > levels
        assert model.plan(n).document == model.solution_.plan.document

    @pytest.mark.slow
    def test_many_columns(self) -> None:
        rng = np.random.default_rng(0)
        columns = {f"x{i}": {"type": "numeric", "low": -3, "high": 3} for i in range(200)}
        wide = {"columns": columns, "target": schema()["target"], "provenance": "made up"}
        given = {name: rng.normal(size=4000) for name in columns}
        given["ill"] = np.where(given["x0"] ** 2 > 1, "yes", "no")
        model = AdditiveClassifier(wide, epsilon=8.0, segments=20, random_state=0).fit(given)
        assert model.coef_.shape == (1, 4000)

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"segments": "fine"}, "segments must be"),
            ({"segments": {"nose": 6}}, "segments must be of numeric columns .* got 'nose'; these"),
            ({"segments": {"age": 0}}, "segments of 'age' must be an integer of at least 1"),
            ({"segments": {"age": 5000}}, "segments of 'age' must be at most 1000"),
            ({"smoothness": -1}, r"smoothness \(reach\) must be"),
            ({"schema": 3}, "schema must be a Schema"),
            ({"interactions": [("age", "nose")]}, "interactions must name columns"),
            ({"schema": schema(COST)}, "target with classes"),
        ],
    )
    def test_wrong_parameters(self, parameters: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            classifier().set_params(**parameters).fit(ROWS)

    def test_collections_without_columns(self) -> None:
        with pytest.raises(ValueError, match="X must be a table with the columns"):
            classifier().fit(dpglm.MappedRows(np.zeros((3, 3)), np.zeros(3)))

    @pytest.mark.parametrize("given", [None, 3])
    def test_no_table(self, given: Any) -> None:
        with pytest.raises(ValueError, match=r"X must be a table .*, got a value of"):
            classifier().fit(given)


def test_the_encoder_goes_into_pipelines() -> None:
    encoder = SplineEncoder(schema(), segments=4, interactions=[("age", "sex")])
    last = LogisticRegression(classes=["no", "yes"])
    model = PrivatePipeline([encoder, last], epsilon=4.0, random_state=0)
    plan = model.plan(6000)
    assert model.fit(ROWS).solution_.plan.document == plan.document
    assert plan.data.row_norm == encoder.fit(ROWS).row_norm_
    assert math.sqrt(4) >= encoder.row_norm_
    units = model.table_units()
    assert units is not None
    assert units.names is not None
    assert "age at 30" in units.names
    assert clone(encoder).fit(rows(1)).transform(rows(3)).shape == (3, len(model.coef_[0]))


@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_multiplicative_means_stay_finite_with_few_rows(epsilon):
    """At the end of a curve; predictions were hundreds and more, for counts to 20."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.uniform(0, 10, 6000), "b": rng.normal(0, 1, 6000)})
    mean = np.exp(0.15 * (table.a - 5) + 0.25 * table.b)
    y = rng.poisson(mean * rng.gamma(2, 0.5, 6000)).clip(0, 20)
    columns = {
        "a": {"type": "numeric", "low": 0, "high": 10},
        "b": {"type": "numeric", "low": -4, "high": 4},
    }
    model = dpglm.AdditiveRegressor(
        {"columns": columns, "provenance": "generated"},
        loss="negative_binomial",
        target_bounds=(0, 20),
        epsilon=epsilon,
        random_state=0,
    ).fit(table, y)
    found = model.predict(table)
    assert found.max() < 20.0
    assert np.mean((found - mean) ** 2) < 0.5 * np.var(mean)


class TestManyLevels:
    """A column of more than 200 levels is pooled by default, without inference."""

    SCHEMA: ClassVar = {
        "columns": {
            "age": {"low": 0, "high": 1},
            "ward": {"categories": [f"w{one}" for one in range(210)]},
        },
        "target": {"name": "ill", "classes": ["no", "yes"]},
        "provenance": "made up for tests",
    }
    TABLE: ClassVar = {
        "age": np.linspace(0.0, 1.0, 630),
        "ward": [f"w{one % 210}" for one in range(630)],
        "ill": ["no", "yes", "no"] * 210,
    }

    def model(self, **options):
        return dpglm.AdditiveClassifier(self.SCHEMA, epsilon=1.0, **options)

    def test_pure_budgets_do_not_pool(self):
        assert self.model(delta=0).fit(self.TABLE).privacy_.delta == 0.0
        assert "random intercepts" in self.model(delta=1e-6).plan(630).method.algorithm

    def test_pure_inference_names_solver_and_delta(self):
        with pytest.raises(ValueError, match="use solver='newton', with a delta above 0"):
            self.model(delta=0, inference=True).fit(self.TABLE)
        fitted = self.model(delta=1e-6, inference=True, solver="newton").fit(self.TABLE)
        assert len(fitted.inference_.params) > 200
