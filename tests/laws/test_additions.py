"""Additions work as the pages of docs/contributing describe them."""

from __future__ import annotations

import importlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import sklearn.linear_model
from sklearn.base import clone

import dpglm
import dpglm.data
import dpglm.problem
import dpglm.solvers
from dpglm._registry import makers_in
from dpglm.certificate import Certificate, verify
from dpglm.certificate import certificate as certificates
from dpglm.data.collection import as_collection
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, GroupBound
from dpglm.data.split import composed_event
from dpglm.estimators import GeneralizedLinearRegressor, LogisticRegression
from dpglm.evaluation import binary, evaluate_predictions, private_scorer
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.accounting.accountants import accountant_for
from dpglm.privacy.events import Composed, Pure, Repeated
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.privacy.releases import Bounded, Mechanism, Release
from dpglm.problem import L2, Logistic, Loss, Problem
from dpglm.report.evaluation_page import write_evaluation
from dpglm.solvers import Method, NoisyGD, Outcome, Plan, Solver, StepInfo, run
from dpglm.study import planning
from dpglm.tables.schema import Schema
from tests import test_docs
from tests.laws import mechanisms as mechanism_rows
from tests.laws import test_cell_laws as cell_laws
from tests.laws import test_container_laws as container_laws
from tests.laws import test_event_laws as event_laws
from tests.laws import test_loss_laws as loss_laws
from tests.laws import test_plan_codec_laws as codec_laws
from tests.laws import test_solver_laws as solver_laws
from tests.laws.transcripts import excess, listening
from tests.privacy import test_releases as release_laws

PAGES = Path(__file__).parents[2] / "docs" / "contributing"


def code_of(page: str, language: str = "python") -> list[str]:
    """Return the code of a page: that of new files, or lines (``py``) for files that exist."""
    found = test_docs.blocks((PAGES / page).read_text())
    return [block.code for block in found if block.language == language]


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Make a module of the code of a page, as a file outside the repository."""

    def add(page: str, name: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text("\n".join(code_of(page)))
        monkeypatch.syspath_prepend(tmp_path)
        importlib.invalidate_caches()
        # A module that was made before would stand in for this one.
        monkeypatch.delitem(importlib.sys.modules, name, raising=False)
        return importlib.import_module(name)

    return add


def evaluated(line: str, *namespaces: ModuleType | SimpleNamespace) -> Any:
    known = {name: value for one in namespaces for name, value in vars(one).items()}
    return eval(line, known)


class TestSolver:
    PAGE = "adding_a_solver.md"

    @pytest.fixture
    def module(self, added):
        return added(self.PAGE, "heavy_ball")

    @pytest.fixture
    def registered(self, module, monkeypatch):
        """Export it, and add its row to the law."""
        export, row = code_of(self.PAGE, "py")
        assert re.search(r"import HeavyBall as HeavyBall$", export.strip())
        found = makers_in({**vars(dpglm.solvers), "HeavyBall": module.HeavyBall}, Solver)
        assert found.keys() - dpglm.solvers.SOLVERS.keys() == {"heavy_ball"}
        ((name, case),) = evaluated(f"{{{row}}}", solver_laws, module).items()
        assert name == "heavy_ball"
        monkeypatch.setitem(solver_laws.SOLVERS, name, case)
        return found[name]

    def test_keeps_the_law_of_solvers(self, registered):
        for adjacency, epsilon in zip(Adjacency, (0.1, 1.0, 8.0), strict=True):
            solver_laws.test_plans_are_within_budget_and_followed("heavy_ball", adjacency, epsilon)
        solver_laws.test_noise_falls_with_epsilon_and_grows_for_replace_one("heavy_ball")
        for problem in solver_laws.PROBLEMS[::4]:
            solver_laws.test_reaches_the_optimum_where_privacy_is_nearly_free("heavy_ball", problem)

    def test_plans_come_back_and_certificates_verify(self, registered):
        for plan in codec_laws.plans_of(registered()):
            codec_laws.comes_back(plan)
        plan = next(codec_laws.plans_of(registered()))
        codec_laws.is_rebuilt(codec_laws.certified(plan))

    def test_resumes_from_a_checkpoint(self, module, tmp_path):
        problem = Problem(Logistic())
        X, y, spec = solver_laws.make_data(problem)
        plan = module.HeavyBall(n_steps=5).plan(problem, ApproximateDP(1.0, 1e-5), spec)
        rows, kept, steps = prepare_rows(X, y, spec), tmp_path / "kept", []

        def note(info):
            steps.append(info.step)
            if len(steps) == 2:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            run(plan, rows, SystemNoise(), note, checkpoint=kept)
        run(plan, rows, SystemNoise(), note, checkpoint=kept)
        assert steps == [1, 2, 3, 4, 5]

    def test_is_noisy_gradient_descent_bit_for_bit(self, module):
        problem = Problem(Logistic(), L2(0.1))
        X, y, spec = solver_laws.make_data(problem)
        rows, budget = prepare_rows(X, y, spec), ApproximateDP(1.0, 1e-5)
        ours, theirs = (
            run(solver.plan(problem, budget, spec), rows, SeededNoise(0)).w
            for solver in (module.HeavyBall(n_steps=30), NoisyGD(n_steps=30))
        )
        np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize("facts", [{"weight_bound": 3.0}, {"groups": GroupBound(500, 16.0)}])
    def test_steps_follow_from_the_unit_contribution(self, module, facts):
        problem, budget = Problem(Logistic()), ApproximateDP(1.0, 1e-5)
        data = DataSpec(8000, 5, **facts)
        ours, theirs = (
            solver.plan(problem, budget, data) for solver in (module.HeavyBall(), NoisyGD())
        )
        assert ours.method.step_sizes == theirs.method.step_sizes
        alone = module.HeavyBall().plan(problem, budget, DataSpec(8000, 5))
        assert ours.method.step_sizes[0] < alone.method.step_sizes[0]

    def test_fitted_estimator_has_a_valid_certificate(self, module):
        X, y, _ = solver_laws.make_data(Problem(Logistic()))
        model = LogisticRegression(classes=[-1, 1], row_norm=1.0, solver=module.HeavyBall())
        assert verify(model.fit(X, y).privacy_).ok

    def test_a_planted_bug_breaks_the_law(self, registered, module, monkeypatch):
        # A step that asks twice differs from its plan.
        step = module.HeavyBallMethod.step

        def twice(self, state, oracle):
            oracle.noisy_gradient(self.gradients, state.w, self.clipping)
            return step(self, state, oracle)

        monkeypatch.setattr(module.HeavyBallMethod, "step", twice)
        with pytest.raises(Exception, match="planned"):
            solver_laws.test_plans_are_within_budget_and_followed(
                "heavy_ball", Adjacency.ZERO_OUT, 1.0
            )


class TestLoss:
    PAGE = "adding_a_loss.md"
    # The law for one loss.
    LAW = (
        loss_laws.test_global_constants_are_tight,
        loss_laws.test_constants_grow_with_the_range,
        loss_laws.test_a_wrong_constant_is_caught,
        loss_laws.test_derivatives_are_those_of_the_value,
        loss_laws.test_the_value_is_the_integral_of_the_slope_across_kinks,
        loss_laws.test_a_wrong_derivative_is_caught,
        loss_laws.test_convexity_is_as_declared,
        loss_laws.test_the_sign_is_as_declared,
        loss_laws.test_slopes_at_extreme_predictions_are_those_of_the_value,
        loss_laws.test_float32_agrees_with_float64,
        loss_laws.test_arguments_are_left_alone_and_results_are_new,
        loss_laws.test_rows_do_not_see_each_other,
        loss_laws.test_shapes_that_would_broadcast_are_refused,
        loss_laws.test_a_loss_is_a_value,
        loss_laws.test_standardized_targets_have_the_same_minimisers,
    )

    @pytest.fixture
    def module(self, added):
        return added(self.PAGE, "log_cosh")

    @pytest.fixture
    def rows(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1, 1, (4000, 2))
        return X, X @ [2.0, -1.0] + 0.5 + 0.1 * rng.normal(size=4000)

    def test_has_a_name_by_its_export(self, module):
        makers = makers_in({**vars(dpglm.problem), "LogCosh": module.LogCosh}, Loss)
        assert makers.keys() - dpglm.problem.LOSSES.keys() == {"log_cosh"}
        assert makers["log_cosh"]() == module.LogCosh()

    def test_keeps_the_law_of_losses(self, module):
        export, row = code_of(self.PAGE, "py")
        assert re.search(r"import LogCosh as LogCosh$", export.strip())
        case = evaluated(row, loss_laws, module)
        for law in self.LAW:
            law(case)
        for bounds in loss_laws.RANGES[case.loss.target]:
            loss_laws.test_slope_bound(case, bounds)
            loss_laws.test_smoothness(case, bounds)
        for dtype in (np.float32, np.float64):
            loss_laws.test_extreme_predictions_are_finite_and_keep_the_dtype(case, dtype)

    def test_a_constant_that_is_too_small_breaks_the_law(self, module, monkeypatch):
        honest = module.LogCosh._slope_bound_on
        monkeypatch.setattr(module.LogCosh, "_slope_bound_on", lambda *given: 0.9 * honest(*given))
        with pytest.raises(AssertionError):
            loss_laws.test_slope_bound(loss_laws.Case(module.LogCosh()), (1.0, -3, 3))

    def test_its_estimator_fits_is_certified_and_saved(self, module, rows, tmp_path):
        bounds = {"row_norm": 2.0, "target_bounds": (-2.5, 3.5)}
        model = module.LogCoshRegressor(width=0.5, random_state=0, **bounds).fit(*rows)
        assert model.score(*rows) > 0.9
        codec_laws.predicts_alike(model, rows[0], tmp_path / "model.json")
        # The generic estimator is the same.
        other = GeneralizedLinearRegressor(loss=module.LogCosh(0.5), random_state=0, **bounds)
        np.testing.assert_array_equal(model.coef_, other.fit(*rows).coef_)
        assert clone(model).get_params()["width"] == 0.5
        assert "target_bounds" in module.LogCoshRegressor.__doc__
        codec_laws.is_rebuilt(module.LogCoshRegressor(**bounds).fit(*rows).privacy_)


class TestContainer:
    PAGE = "adding_a_container.md"

    @pytest.fixture
    def module(self, added, monkeypatch):
        """Add its row to the law."""
        found = added(self.PAGE, "array_parts")
        (row,) = code_of(self.PAGE, "py")
        monkeypatch.setattr(
            container_laws,
            "CONTAINERS",
            container_laws.CONTAINERS | evaluated(f"{{{row}}}", container_laws, found),
        )
        return found

    @pytest.mark.parametrize("numeric", [False, True])
    @pytest.mark.filterwarnings("ignore::sklearn.exceptions.DataConversionWarning")
    def test_keeps_the_law_of_containers(self, module, numeric, tmp_path):
        for position, (kind, _, change, match) in enumerate(container_laws.CASES):
            if kind is numeric:
                folder = tmp_path / str(position)
                folder.mkdir()
                container_laws.check_fit(folder, "array parts", numeric, change, match)
        (tmp_path / "scores").mkdir()
        container_laws.test_scores_of_all_containers_accept_and_refuse_alike(
            tmp_path / "scores", "array parts", numeric
        )

    def test_fits_as_one_array_does(self, module):
        X, y, _ = solver_laws.make_data(Problem(Logistic()))
        weights = np.random.default_rng(0).uniform(0.5, 1.0, len(y))
        model = LogisticRegression(
            classes=[-1, 1], row_norm=1.0, weight_bound=1.0, random_state=0, solver="noisy_gd"
        )
        together = clone(model).fit(X, y, sample_weight=weights)
        parts = module.ArrayParts([X[:100], X[100:101], X[101:]], y, weights)
        np.testing.assert_array_equal(clone(model).fit(parts).coef_, together.coef_)
        np.testing.assert_array_equal(together.predict(parts), together.predict(X))
        expected = together.score(X, y, sample_weight=weights)
        assert together.score(parts) == pytest.approx(expected)
        certified = clone(model).set_params(random_state=None).fit(parts)
        codec_laws.is_rebuilt(certified.privacy_)

    def test_foreign_objects_are_handled_by_their_module(self, module, monkeypatch, tmp_path):
        (tmp_path / "parted.py").write_text(
            "import array_parts\n"
            "def collection_of(X, y, weights):\n"
            "    return array_parts.ArrayParts(X.parts, y, weights)\n"
        )
        monkeypatch.setattr(dpglm.data, "__path__", [*dpglm.data.__path__, str(tmp_path)])
        monkeypatch.delitem(importlib.sys.modules, "dpglm.data.parted", raising=False)
        X, y, _ = solver_laws.make_data(Problem(Logistic()))
        kind = type("Parted", (), {"__module__": "parted.arrays", "parts": [X[:100], X[100:]]})
        model = LogisticRegression(classes=[-1, 1], row_norm=1.0, random_state=0, solver="noisy_gd")
        expected = clone(model).fit(X, y)
        np.testing.assert_array_equal(model.fit(kind(), y).coef_, expected.coef_)
        # Of a package that no module is called after, an object is a matrix, or nothing.
        other = type("Parted", (), {"__module__": "other.arrays", "parts": [X]})
        assert as_collection(other(), y) is None

    def test_one_that_lets_infinity_in_breaks_the_law(self, module, monkeypatch, tmp_path):
        monkeypatch.setattr(module, "check_finite", lambda X, **_: X)
        change, match = container_laws.ANY_TARGET["NaN in X"]
        with pytest.raises(AssertionError):
            container_laws.check_fit(tmp_path, "array parts", False, change, match)


@dataclass(frozen=True)
class Choosing(Method[int]):
    """Choose by a mechanism among scores that do not depend on rows."""

    problem: Problem
    data: DataSpec
    adjacency: Adjacency
    mechanism: Mechanism
    n_steps = 3
    gradient_evaluations = coefficient_noise = 0.0

    @property
    def release(self):
        return Release("choice", self.mechanism, self.adjacency, 1.0, count=self.n_steps)

    @property
    def releases(self):
        return (self.release,)

    def init(self, seed):
        return 0

    def step(self, state, oracle):
        scores = np.array([2.0, 0.0, 1.0])
        choice = oracle.curator.release(self.release, Bounded(scores, 1.0))
        return choice, StepInfo(1, 1.0)

    def finish(self, state):
        return Outcome(np.full(self.data.coefficient_shape, float(state)))


class TestColumn:
    PAGE = "adding_a_column.md"
    SCHEMA: ClassVar[dict[str, Any]] = {
        "columns": {
            "share": {"type": "percent", "low": 0, "high": 50},
            "age": {"type": "numeric", "low": 16, "high": 90},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up",
    }

    @pytest.fixture
    def module(self, added):
        return added(self.PAGE, "percent")

    @pytest.fixture
    def table(self):
        rng = np.random.default_rng(0)
        share, age = rng.uniform(0, 60, 3000).round(1), rng.uniform(16, 90, 3000).round()
        ill = np.where(rng.uniform(size=3000) < share / 60, "yes", "no")
        return {"share": share, "age": age, "ill": ill}

    def in_text(self, table):
        return {**table, "share": [f" {one} %" for one in table["share"].tolist()]}

    def test_keeps_the_law_of_cells(self, module, monkeypatch):
        (row,) = code_of(self.PAGE, "py")
        ((name, entry),) = evaluated(f"{{{row}}}").items()
        monkeypatch.setitem(cell_laws.COLUMNS, name, entry)
        for cells in ([" 1 %", "word"], ["7%", 0.1, None], [b"1", "1.0", 12], ["99.9 %"]):
            alone = [[one] for one in cells]
            cell_laws.check_rows_alone(cell_laws.encoded, name, cells, alone)
        assert cell_laws.encoded(name, [" 1 %"]) == cell_laws.encoded(name, [1.0])

    def test_a_rule_that_looks_at_other_rows_breaks_the_law(self, module, monkeypatch):
        def planted(self, values):
            numbers = np.asarray(values, np.float64)
            return 100.0 * numbers / numbers.max()

        (row,) = code_of(self.PAGE, "py")
        ((name, entry),) = evaluated(f"{{{row}}}").items()
        monkeypatch.setitem(cell_laws.COLUMNS, name, entry)
        monkeypatch.setattr(module.PercentColumn, "plain_cells", planted)
        with pytest.raises(AssertionError):
            cell_laws.check_rows_alone(cell_laws.encoded, name, [1, 2], [[1], [2]])

    def test_is_that_of_numbers_in_models_curves_and_descriptions(self, module, table):
        schema = Schema.from_dict(self.SCHEMA)
        assert Schema.from_dict(schema.to_dict()) == schema
        plain = {**self.SCHEMA["columns"], "share": {"type": "numeric", "low": 0, "high": 50}}
        numbers = Schema.from_dict({**self.SCHEMA, "columns": plain})
        written = self.in_text(table)
        np.testing.assert_array_equal(schema.encode(written), numbers.encode(table))
        assert (schema.feature_names, schema.row_norm) == (numbers.feature_names, numbers.row_norm)
        options = {"epsilon": 4.0, "random_state": SeededNoise(0)}
        model = dpglm.AdditiveClassifier(schema, **options).fit(written)
        same = dpglm.AdditiveClassifier(numbers, **{**options, "random_state": SeededNoise(0)}).fit(
            table
        )
        np.testing.assert_array_equal(model.coef_, same.coef_)
        described = dpglm.describe(written, schema, epsilon=4.0, random_state=0)
        assert described["share"].to_dict() == (
            dpglm.describe(table, numbers, epsilon=4.0, random_state=0)["share"].to_dict()
        )

    def test_wrong_cells_are_refused_by_column_and_row(self, module, table):
        schema, written = Schema.from_dict(self.SCHEMA), self.in_text(table)
        written["share"][2] = "12 €"
        with pytest.raises(ValueError, match=r"'share'.*row 3"):
            schema.encode(written)
        with pytest.raises(ValueError, match="low"):
            Schema.from_dict(
                {**self.SCHEMA, "columns": {"share": {"type": "percent", "low": 3, "high": 1}}}
            )


class TestPart:
    PAGE = "adding_a_part.md"

    @pytest.fixture
    def module(self, added):
        return added(self.PAGE, "level_counts")

    @pytest.fixture
    def table(self):
        rng = np.random.default_rng(0)
        age, region = rng.uniform(16, 90, 4000), rng.choice(["north", "south"], 4000, p=[0.8, 0.2])
        ill = np.where(rng.uniform(size=4000) < age / 90, "yes", "no")
        return {"age": age, "region": region, "ill": ill}

    SCHEMA = Schema.from_dict(
        {
            "columns": {
                "age": {"type": "numeric", "low": 16, "high": 90},
                "region": {"type": "categorical", "categories": ["north", "south", ""]},
            },
            "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
            "provenance": "made up",
        }
    )

    def study(self, module, **options):
        part = module.LevelCountsPart(self.SCHEMA, "region")
        given = {"epsilon": 2.0, "n_rows": 4000, **options}
        return dpglm.Study(self.SCHEMA, **given).add("level_counts", part)

    @pytest.mark.parametrize("adjacency", [one.value for one in Adjacency])
    def test_runs_next_to_other_parts_and_is_verified(self, module, table, adjacency):
        study = self.study(module, adjacency=adjacency).explore(columns=["age"]).fit("logistic")
        study = study.evaluate()
        result = study.run(table, random_state=0)
        assert list(result.results) == ["exploration", "level_counts", "model", "evaluation"]
        counted = result.results["level_counts"]
        exact = (table["region"] == "north").sum()
        assert counted.counts["north"] == pytest.approx(exact, abs=5.0 * counted.deviation)
        verification = result.verify()
        assert verification.ok, verification.summary()
        assert result.privacy_.epsilon <= 2.0
        # By an independent computation: the part composes with either side of the split.
        plans = {name: part.plan for name, part in study.plan(4000).planned.items()}
        sides = [[plans[name].event for name in (*plans,) if name != one] for one in SIDES]
        costs = [accounted(Composed(tuple(events)), adjacency) for events in sides]
        assert result.privacy_.epsilon == pytest.approx(max(costs), rel=1e-3)

    def test_shares_divide_the_budget_by_the_roots_of_noise(self, module):
        alone = self.study(module).plan()
        assert alone.epsilon == pytest.approx(2.0, rel=1e-6)
        both = self.study(module).add("again", module.LevelCountsPart(self.SCHEMA, "region"))
        first, second = (part.plan.coefficient_noise for part in both.plan().planned.values())
        assert first == pytest.approx(second, rel=1e-9)
        part, *_ = alone.planned.values()
        assert first == pytest.approx(math.sqrt(2.0) * part.plan.coefficient_noise, rel=1e-6)

    def test_a_part_that_is_not_charged_is_found(self, module, table, monkeypatch):
        def charged(events, *others):
            return composed_event({n: e for n, e in events.items() if n in SIDES}, *others)

        study = self.study(module).fit("logistic").evaluate()
        with monkeypatch.context() as planted:
            for place in (planning, certificates):
                planted.setattr(place, "composed_event", charged)
            certificate = study.run(table, random_state=0).privacy_
        document = json.loads(json.dumps(certificate.to_dict()))
        assert not verify(Certificate.from_dict(document)).ok

    def test_names_that_are_taken_or_no_words_are_refused(self, module):
        part = module.LevelCountsPart(self.SCHEMA, "region")
        for name in ("model", "study", "Level counts", "../x", ""):
            with pytest.raises(ValueError, match="name"):
                self.study(module).add(name, part)
        with pytest.raises(ValueError, match="once only"):
            self.study(module).add("level_counts", part)


SIDES = ("model", "evaluation")


def accounted(event, adjacency):
    return accountant_for(event, Adjacency(adjacency)).epsilon(event, Adjacency(adjacency), 1e-5)


class TestMetric:
    PAGE = "adding_a_metric.md"

    @pytest.fixture
    def row(self, monkeypatch):
        (line,) = code_of(self.PAGE, "py")
        row = evaluated(line, binary)
        monkeypatch.setattr(binary, "METRICS", (*binary.METRICS, row))
        chapter = importlib.import_module("dpglm.evaluation.evaluate")
        monkeypatch.setattr(chapter, "METRICS", (*chapter.METRICS, row))
        return row

    @pytest.fixture
    def scored(self):
        rng = np.random.default_rng(0)
        scores = rng.uniform(size=3000)
        return rng.uniform(size=3000) < scores, scores

    def exact(self, y, scores, threshold):
        called = scores >= threshold
        return (called & y).sum() / (called | y).sum()

    @pytest.mark.usefixtures("undrawn")
    def test_is_found_by_results_summaries_and_the_page(self, row, scored, tmp_path):
        budget = {"budget": GaussianDP(1e4), "random_state": 0}
        found = evaluate_predictions(*scored, classes=(False, True), thresholds=(0.3,), **budget)
        exact = self.exact(*scored, 0.3)
        assert found.number("jaccard", 0.3).estimate == pytest.approx(exact, abs=1e-3)
        assert found.all_rows.at(0.3)["jaccard"].estimate == found.number("jaccard", 0.3).estimate
        write_evaluation(found, tmp_path / "page.html")
        assert "Jaccard index" in (tmp_path / "page.html").read_text()

    def test_its_intervals_hold_the_value_of_the_rows(self, row, scored):
        exact, held = self.exact(*scored, 0.5), 0
        for seed in range(20):
            budget = {"budget": GaussianDP(0.3), "random_state": seed}
            found = evaluate_predictions(*scored, classes=(False, True), **budget)
            low, high = found.conf_int("jaccard", of="rows")
            held += low <= exact <= high
        assert held >= 16

    def test_a_metric_of_other_cells_is_found_out(self, row, scored):
        # The planted bug: the wrong cell of the confusion matrix.
        wrong = binary._at("jaccard", lambda tn, fp, fn, tp: binary.ratio(tn, tp + fp + fn))
        budget = {"budget": GaussianDP(1e4), "thresholds": (0.3,)}
        found = evaluate_predictions(*scored, classes=(False, True), **budget)
        value = wrong.value(found.all_rows, 0.3).estimate
        assert value != pytest.approx(self.exact(*scored, 0.3), abs=0.05)

    def test_scores_models_and_charges_a_ledger(self, row, scored, tmp_path):
        y, scores = scored
        limit = ApproximateDP(1.0, 1e-5)
        ledger = PrivacyLedger.create(tmp_path / "kept", data="rows", budget=limit)
        made = private_scorer("jaccard", epsilon=0.5, delta=1e-6, ledger=ledger)
        X = scores[:, np.newaxis]
        model = sklearn.linear_model.LogisticRegression().fit(X, y)
        exact = self.exact(y, model.predict_proba(X)[:, 1], 0.5)
        assert made(model, X, y) == pytest.approx(exact, abs=0.1)
        assert len(ledger.contents().entries) == 1


class TestMechanism:
    PAGE = "adding_a_mechanism.md"

    @pytest.fixture
    def module(self, added):
        return added(self.PAGE, "randomized_response")

    @pytest.fixture
    def make(self, module, monkeypatch):
        """Add its row to the law."""
        _, row, _ = code_of(self.PAGE, "py")
        ((name, made),) = evaluated(f"{{{row}}}", mechanism_rows, module).items()
        monkeypatch.setitem(event_laws.EVENTS, name, made)
        return made

    @pytest.fixture
    def case(self, module, monkeypatch):
        """Add its row to the laws of releases and of neighbours."""
        *_, row = code_of(self.PAGE, "py")
        names = SimpleNamespace(randomized_response=module)
        (case,) = evaluated(f"[{row}]", mechanism_rows, module, names)
        monkeypatch.setitem(mechanism_rows.CASES, module.RandomizedChoice, case)
        return case

    def test_keeps_the_law_of_releases(self, case):
        for law in (
            release_laws.test_only_amplified_events_can_be_sampled,
            release_laws.test_multipliers_can_be_changed_where_they_decide_the_cost,
            release_laws.test_a_release_is_recorded_and_answered,
            release_laws.test_a_value_that_was_not_declared_is_refused,
            release_laws.test_observer_answers_and_records_everything,
        ):
            law(case)
        for adjacency in Adjacency:
            release_laws.test_the_event_and_the_noise_are_those_of_the_formulas(case, adjacency)
            release_laws.test_a_mechanism_comes_back_from_json(case, adjacency)
        for bad in (0.0, -1.0, math.nan, math.inf):
            release_laws.test_a_mechanism_that_cannot_be_is_refused(case, bad)

    def test_is_compared_on_neighbours(self, case):
        declared = release_laws.declare(case.mechanism)
        runs = []
        for scores in (case.value, -case.value):
            with listening(*runs[:1]) as run:
                release_laws.curator().release(declared, Bounded(scores, 1.5))
            runs.append(run)
        assert len(runs[0].asked) == 1
        assert excess(*runs) == 0.0
        assert runs[0].asked[0].answer == runs[1].asked[0].answer

    @pytest.mark.parametrize("adjacency", Adjacency)
    def test_keeps_the_law_of_events(self, make, adjacency):
        event_laws.test_every_event_has_accountants_except_private_parts()
        event_laws.test_accountants_agree("randomized response", adjacency)
        for accountant in event_laws.ACCOUNTANTS:
            if accountant.supports(make(1.0), adjacency):
                given = make, accountant, adjacency
                event_laws.test_repeating_is_composing_with_itself(*given)
                event_laws.test_order_of_composition_does_not_matter(*given)
                event_laws.test_more_noise_costs_less(*given)
                event_laws.test_more_events_cost_more(*given)
                event_laws.test_delta_falls_in_epsilon_and_inverts_it(*given)
                event_laws.test_claims_survive_json(*given)

    def test_cost_equals_definition_and_is_below_pure(self, module):
        event, adjacency = module.RandomizedResponse(1.0, 4), Adjacency.ZERO_OUT
        # One of them, by hand: delta(e) = p - exp(e) q.
        p, q = math.e / (math.e + 3.0), 1.0 / (math.e + 3.0)
        found = accountant_for(event, adjacency).delta(event, adjacency, 0.5)
        assert found == pytest.approx(p - math.exp(0.5) * q, rel=1e-3)
        ours, pure = (
            accountant_for(many, adjacency).epsilon(many, adjacency, 1e-5)
            for many in (Repeated(event, 20), Repeated(Pure(1.0), 20))
        )
        assert ours < 0.95 * pure

    def test_is_drawn_planned_and_verified(self, module):
        mechanism = module.RandomizedChoice(1.0, 3)
        declared = Release("choice", mechanism, Adjacency.ZERO_OUT, 1.0)
        noise = SeededNoise(0)
        draws = [mechanism.draw(declared, np.array([2.0, 0.0, 1.0]), noise) for _ in range(4000)]
        shares = np.bincount(draws, minlength=3) / 4000
        expected = np.array([1.0, math.e, 1.0]) / (2.0 + math.e)
        np.testing.assert_allclose(shares, expected, atol=0.04)
        problem, data = Problem(Logistic()), codec_laws.DATA
        method = Choosing(problem, data, Adjacency.ZERO_OUT, mechanism)
        plan = Plan(data, ApproximateDP(3.0, 1e-5), Adjacency.ZERO_OUT, method)
        codec_laws.comes_back(plan)
        certificate = codec_laws.certified(plan)
        codec_laws.is_rebuilt(certificate)
        assert verify(certificate).ok

    def test_a_loss_that_is_too_small_is_found_out(self, make, module, monkeypatch):
        # Of half the epsilon, while the curves that claims are checked by are honest.
        honest = module.RandomizedResponse.losses
        monkeypatch.setattr(
            module.RandomizedResponse,
            "losses",
            lambda self, adjacency: honest(
                module.RandomizedResponse(0.5 * self.epsilon, self.answers), adjacency
            ),
        )
        problem, data = Problem(Logistic()), codec_laws.DATA
        method = Choosing(problem, data, Adjacency.ZERO_OUT, module.RandomizedChoice(1.0, 3))
        plan = Plan(data, ApproximateDP(3.0, 1e-5), Adjacency.ZERO_OUT, method)
        verification = verify(codec_laws.certified(plan))
        assert any("hockey sticks" in one for one in verification.findings)
