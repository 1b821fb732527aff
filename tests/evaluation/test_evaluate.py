"""evaluate: releases, cost, results."""

import dataclasses
import json
import math

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression as PublicRegression
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import (
    d2_absolute_error_score,
    d2_log_loss_score,
    log_loss,
    mean_absolute_error,
    r2_score,
    roc_auc_score,
)

import dpglm
from benchmarks.evaluation import measured, shapes
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.verify import verify
from dpglm.evaluation import (
    BinaryTask,
    ClassesTask,
    RegressionTask,
    evaluate,
    evaluate_predictions,
    plan_evaluation,
)
from dpglm.evaluation import binary as binary_metrics
from dpglm.exceptions import BudgetExceededError, PlanMismatchError
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, ZeroConcentratedDP
from dpglm.tabulate import Number
from tests.evaluation.conftest import N
from tests.forgeries import part_of
from tests.oracle.watching import watching

WELL_ILL = ("well", "ill")
TASKS = [
    BinaryTask((0, 1)),
    BinaryTask((0, 1), probabilities=False),
    ClassesTask((0, 1, 2)),
    RegressionTask(-1.0, 3.0),
]
PLENTY = GaussianDP(1e5)


@pytest.fixture(scope="module")
def exact(binary):
    y, scores, region = binary
    return evaluate_predictions(
        y,
        scores,
        classes=WELL_ILL,
        budget=PLENTY,
        random_state=0,
        by=region,
        levels=["north", "south"],
        thresholds=(0.3, 0.5),
    )


def test_two_classes_without_noise(exact, binary):
    y, scores, _ = binary
    ill = y == "ill"
    assert exact.auc == pytest.approx(roc_auc_score(ill, scores), abs=1e-3)
    assert exact.log_loss == pytest.approx(log_loss(ill, scores), abs=1e-4)
    assert exact.brier == pytest.approx(((scores - ill) ** 2).mean(), abs=1e-4)
    for threshold in (0.3, 0.5):
        called = scores >= threshold
        assert exact.accuracy(threshold) == pytest.approx((called == ill).mean(), abs=1e-4)
        assert exact.precision(threshold) == pytest.approx(ill[called].mean(), abs=1e-4)
        assert exact.recall(threshold) == pytest.approx(called[ill].mean(), abs=1e-4)


def test_groups_are_evaluated_at_the_price_of_all(exact, binary):
    y, scores, region = binary
    assert list(exact.by_level) == ["north", "south", None]
    for name, level in exact.by_level.items():
        here = region == ("west" if name is None else name)
        assert level.rows.estimate == pytest.approx(here.sum(), abs=1.0)
        found = level.number("auc").estimate
        assert found == pytest.approx(roc_auc_score(y[here] == "ill", scores[here]), abs=4e-3)
    alone = plan_evaluation(BinaryTask((0, 1)), N, GaussianDP(0.3)).plan
    by = plan_evaluation(BinaryTask((0, 1)), N, GaussianDP(0.3), levels=["a", "b"]).plan
    assert by.coefficient_noise == pytest.approx(alone.coefficient_noise, rel=1e-3)


def test_each_metric_is_computed_once(binary, monkeypatch):
    found = evaluate_predictions(*binary[:2], classes=WELL_ILL, random_state=0)
    computed = []

    def noted(one):
        def value(*args):
            computed.append(one.name)
            return one.value(*args)

        return dataclasses.replace(one, value=value)

    monkeypatch.setattr(binary_metrics, "METRICS", tuple(map(noted, binary_metrics.METRICS)))
    for _ in range(2):
        found.summary(), found.to_dict(), found.measures, found.accuracy(), found.accuracy(0.5)
    assert sorted(computed) == sorted(one.name for one in found.all_rows.task.metrics)


def test_calibration_and_lift(exact, binary):
    y, scores, _ = binary
    for cell in exact.calibration_curve():
        here = (scores >= cell.low) & (scores < cell.high)
        assert cell.positives.estimate == pytest.approx((y[here] == "ill").mean(), abs=2e-3)
        assert cell.share.estimate == pytest.approx(here.mean(), abs=1e-3)
        assert cell.low <= cell.mean_score <= cell.high
        assert cell.mean_score == pytest.approx(scores[here].mean(), abs=0.02)
    top = scores >= np.quantile(scores, 0.9)
    lift = (y[top] == "ill").mean() / (y == "ill").mean()
    assert exact.all_rows.lift(0.1).estimate == pytest.approx(lift, rel=0.05)
    false, true, thresholds = exact.roc_curve()
    assert false.shape == true.shape == thresholds.shape
    assert thresholds[0] == math.inf


def test_several_classes_without_noise(classes):
    y, probabilities = classes
    found = evaluate_predictions(y, probabilities, classes=range(4), budget=PLENTY, random_state=0)
    called = probabilities.argmax(axis=1)
    assert found.accuracy() == pytest.approx((called == y).mean(), abs=1e-4)
    assert found.log_loss == pytest.approx(log_loss(y, probabilities), abs=1e-3)
    explained = d2_log_loss_score(y, probabilities)
    assert found.number("d2").estimate == pytest.approx(explained, abs=2e-3)
    area = roc_auc_score(y, probabilities, multi_class="ovr")
    assert found.auc == pytest.approx(area, abs=3e-3)
    matrix = found.all_rows.confusion_matrix()
    assert matrix[2, 1] == pytest.approx(((y == 2) & (called == 1)).sum(), abs=0.5)
    ranks = (probabilities > probabilities[np.arange(N), y][:, np.newaxis]).sum(axis=1)
    assert found.all_rows.top_k(2).estimate == pytest.approx((ranks < 2).mean(), abs=1e-3)
    of_one = found.all_rows.of_class(1)
    assert of_one["recall"].estimate == pytest.approx((called[y == 1] == 1).mean(), abs=1e-3)
    assert of_one["precision"].estimate == pytest.approx((y[called == 1] == 1).mean(), abs=1e-3)


def test_numbers_without_noise(numbers):
    y, predictions = numbers
    found = evaluate_predictions(
        y, predictions, target_bounds=(0.0, 5.0), budget=PLENTY, random_state=0
    )
    within = predictions.clip(0.0, 5.0)
    assert found.r2 == pytest.approx(r2_score(y, within), abs=1e-3)
    assert found.mse == pytest.approx(((y - within) ** 2).mean(), abs=1e-3)
    assert found.mae == pytest.approx(mean_absolute_error(y, within), abs=1e-3)
    explained = d2_absolute_error_score(y, within)
    assert found.number("d2").estimate == pytest.approx(explained, abs=5e-3)
    bias = found.number("bias").estimate
    assert bias == pytest.approx((y - within).mean(), abs=1e-3)
    for q in (0.1, 0.5, 0.9):
        quantile = found.all_rows.residual_quantile(q).estimate
        assert quantile == pytest.approx(np.quantile(y - within, q), abs=0.12)


def test_models_of_all_kinds_are_evaluated(binary):
    y, scores, _ = binary
    X = np.log(scores / (1.0 - scores))[:, np.newaxis]
    for model in (
        PublicRegression().fit(X, y),
        dpglm.LogisticRegression(epsilon=10.0, classes=WELL_ILL, row_norm=10.0, random_state=0).fit(
            X, y
        ),
        dpglm.LinearSVC(epsilon=10.0, classes=WELL_ILL, row_norm=10.0, random_state=0).fit(X, y),
    ):
        found = evaluate(model, X, y, budget=PLENTY, random_state=0)
        flipped = model.classes_[1] == "well"
        ill = roc_auc_score(y == "ill", scores)
        assert found.auc == pytest.approx(ill, abs=3e-3), flipped
        assert ("brier" in found.measures) == (not isinstance(model, dpglm.LinearSVC))
    slope = dpglm.LinearRegression(
        epsilon=10.0, row_norm=10.0, target_bounds=(0.0, 1.0), random_state=0
    ).fit(X, scores)
    assert evaluate(slope, X, scores, budget=PLENTY, random_state=0).r2 > 0.8


def shape_of(name):
    return next(one for one in shapes() if one.name == name)


SHAPES = [one.name for one in shapes()]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", SHAPES)
def test_pitfall_36_scores_of_any_scale_are_covered(name):
    population, n_rows = shape_of(name), 16_000
    plan = plan_evaluation(population.task, n_rows, ApproximateDP(1.0, 1e-5), level=0.999)
    predictions, y = population.sample(n_rows, np.random.default_rng(0))
    found, exact = plan.run(y, predictions).number("auc"), roc_auc_score(y, predictions)
    assert found.low <= exact <= found.high
    # It is narrow, too, if classes depend smoothly on scores with few ties.
    most = {"not monotone": 0.08, "two decimals": 0.02}
    assert found.high - found.low < most.get(name, 0.012)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_scores_of_any_scale_have_coverage(name):
    for n_rows, epsilon in ((16_000, 1.0), (4_000, 0.3)):
        line = measured(shape_of(name), n_rows, epsilon, 60)
        assert min(line.covered["auc"], line.covered_rows["auc"]) > 0.85


@pytest.mark.parametrize(
    ("model", "scale"),
    [
        (SGDClassifier(alpha=1e-9, random_state=0), 1.0),
        (PublicRegression(C=1e-6), 1.0),
        (PublicRegression(C=1e-6), 1e-3),
    ],
    ids=["large margins", "small log odds", "smaller ones"],
)
def test_models_of_any_scale_have_their_area(binary, model, scale):
    y, scores, _ = binary
    rng = np.random.default_rng(0)
    X = scale * np.column_stack([np.log(scores / (1.0 - scores)), rng.normal(size=N)])
    model = model.fit(X, y)
    made = evaluate(model, X, y, epsilon=5.0)
    exact = roc_auc_score(y == model.classes_[1], model.decision_function(X))
    low, high = made.with_level(0.999).conf_int("auc", of="rows")
    assert low <= exact <= high
    assert high - low < 0.05
    decided = (model.predict(X) == y).mean()
    assert made.accuracy() == pytest.approx(decided, abs=0.02)


def test_decision_values_need_no_range(binary):
    y, scores, _ = binary
    values = 1e6 * np.log(scores / (1.0 - scores))
    given = {"classes": WELL_ILL, "budget": PLENTY, "random_state": 0}
    made = evaluate_predictions(y, values, probabilities=False, thresholds=(-1e6, 0.0), **given)
    assert made.auc == pytest.approx(roc_auc_score(y == "ill", scores), abs=1e-3)
    for threshold in (-1e6, 0.0):
        assert made.recall(threshold) == pytest.approx((values >= threshold)[y == "ill"].mean())
    assert "calibration_slope" not in made.measures
    assert made.summary()
    assert json.dumps(made.to_dict(), allow_nan=False)
    with pytest.raises(ValueError, match="scores must be finite numbers"):
        evaluate_predictions(y, np.full(N, np.inf), probabilities=False, **given)
    with pytest.raises(ValueError, match="probabilities=False"):
        evaluate_predictions(y, values, **given)


@pytest.mark.parametrize(("slope", "shift"), [(1.0, 0.0), (0.5, 0.3), (2.0, -1.0)])
def test_calibration_is_that_of_a_regression(slope, shift):
    rng = np.random.default_rng(0)
    odds = rng.normal(-1.0, 1.2, 20_000)
    y = (rng.uniform(size=odds.size) < expit(shift + slope * odds)).astype(int)
    scores = expit(odds)
    found = evaluate_predictions(y, scores, classes=[0, 1], budget=PLENTY, random_state=0)
    fitted = PublicRegression(C=np.inf, tol=1e-8).fit(odds[:, np.newaxis], y)
    number = found.number("calibration_slope")
    assert number.estimate == pytest.approx(fitted.coef_[0, 0], rel=0.01)
    assert found.number("mean_prediction").estimate == pytest.approx(scores.mean(), abs=1e-4)
    shifted = found.number("calibration_intercept").estimate
    assert expit(odds + shifted).mean() == pytest.approx(y.mean(), abs=1e-3)
    noisy = evaluate_predictions(y, scores, classes=[0, 1], epsilon=1.0).with_level(0.999)
    for name, truth in (("calibration_slope", slope), ("mean_prediction", scores.mean())):
        low, high = noisy.conf_int(name)
        assert low < truth < high


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
@pytest.mark.parametrize("budget", [GaussianDP(0.3), ApproximateDP(0.7, 1e-7)])
def test_the_cost_is_the_budget_by_an_independent_computation(task, adjacency, budget):
    plan = plan_evaluation(task, N, budget, adjacency=adjacency).plan
    # Replacing a row moves farther; Gaussian releases compose by their squares.
    replaced = adjacency is Adjacency.REPLACE_ONE
    squares = [
        one.count
        * ((one.diameter if replaced else 1.0) * one.contribution_bound / one.noise_std) ** 2
        for one in plan.method.releases
    ]
    mu = math.sqrt(sum(squares))
    assert mu <= budget.gdp_mu()
    assert mu == pytest.approx(budget.gdp_mu(), rel=2e-2)


def contributed(task, y, predictions):
    """Return the contribution of one row to each release, for any cells."""
    plan = plan_evaluation(task, 1, GaussianDP(1.0), levels=["a"]).plan
    row = np.column_stack([[1.0], task.encode(np.array([y]), np.array([predictions]))])
    method = plan.method
    refined = getattr(method, "refined", ())
    found = [[one.searched for one in refined], [one.fine for one in refined]]
    lists = [*(found if refined else []), method.tables]
    for declared, tables in zip(method.releases, lists, strict=True):
        added = np.concatenate([table.weight * table.sums(row) for table in tables])
        yield declared.contribution_bound, added


@pytest.mark.parametrize(
    ("task", "rows"),
    [
        (TASKS[0], [(0, 0.0), (1, 0.0), (1, 1.0), (0, 0.3)]),
        (TASKS[2], [(0, [1.0, 0, 0]), (2, [1.0, 0, 0]), (1, [0.2, 0.3, 0.5])]),
        (TASKS[3], [(-1.0, 3.0), (3.0, -1.0), (3.0, 3.0), (0.0, 0.5)]),
    ],
    ids=["binary", "classes", "regression"],
)
def test_no_row_adds_more_than_its_bound(task, rows):
    reached = [
        np.linalg.norm(added) / bound for row in rows for bound, added in contributed(task, *row)
    ]
    # The bound is tight: the worst row reaches it.
    assert max(reached) == pytest.approx(1.0, abs=1e-6)
    assert max(reached) <= 1.0 + 1e-12


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_certificates_verify_and_survive_files(task, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=200)
    predictions = rng.dirichlet(np.ones(3), 200) if isinstance(task, ClassesTask) else y * 0.5
    made = plan_evaluation(task, 200, ZeroConcentratedDP(0.05)).run(y, predictions)
    assert verify(made.privacy_).ok
    made.privacy_.to_json(tmp_path / "certificate.json")
    assert verify(Certificate.from_json(tmp_path / "certificate.json")).ok
    assert made.privacy_.is_private
    document = json.loads(json.dumps(made.privacy_.to_dict()))
    part_of(document)["plan"]["method"]["tables"][0]["weight"] *= 2.0
    assert not verify(Certificate.from_dict(document)).ok


def test_the_ledger_pays_before_anything_is_released(binary, tmp_path):
    y, scores, _ = binary
    ledger = PrivacyLedger.create(
        tmp_path / "people.ledger", data="people", budget=ApproximateDP(1.0, 1e-5)
    )
    settings = {"classes": WELL_ILL, "delta": 1e-6, "ledger": ledger}
    evaluate_predictions(y, scores, epsilon=0.4, **settings)
    with watching() as watcher, pytest.raises(BudgetExceededError):
        evaluate_predictions(y, scores, epsilon=5.0, **settings)
    assert not hasattr(watcher, "declared")
    with pytest.raises(ValueError, match="scores must be from 0 to 1"):
        evaluate_predictions(y, scores + 1.0, epsilon=0.1, **settings)
    assert len(ledger.contents().entries) == 1


def test_a_checkpoint_returns_the_same_evaluation(binary, tmp_path):
    y, scores, _ = binary
    plan = plan_evaluation(BinaryTask(WELL_ILL), N, GaussianDP(0.2))
    kept = tmp_path / "evaluation.checkpoint"
    one = plan.run(y, scores, checkpoint=kept)
    with pytest.warns(UserWarning, match="complete"):
        other = plan.run(y, scores, checkpoint=kept)
    assert (one.solution.w == other.solution.w).all()


def test_the_number_of_rows_is_private_under_add_remove(binary):
    y, scores, _ = binary
    settings = {"classes": WELL_ILL, "adjacency": "add_remove", "n_rows": 3500, "random_state": 0}
    made = evaluate_predictions(y, scores, **settings)
    fewer = evaluate_predictions(y[:-900], scores[:-900], **settings)
    assert made.solution.plan.document == fewer.solution.plan.document
    assert made.all_rows.rows.low <= N <= made.all_rows.rows.high
    with pytest.raises(ValueError, match="n_rows must be given under adjacency 'add_remove'"):
        evaluate_predictions(y, scores, classes=WELL_ILL, adjacency="add_remove")


def test_a_plan_refuses_other_rows(binary):
    y, scores, _ = binary
    with pytest.raises(PlanMismatchError, match="4000 rows, but the plan is for n_rows=10"):
        plan_evaluation(BinaryTask(WELL_ILL), 10, GaussianDP(0.2)).run(y, scores)


def test_pages_are_plain(binary):
    y, scores, region = binary
    made = evaluate_predictions(
        y, scores, classes=WELL_ILL, by=region, levels=["north", "south", "nowhere"], random_state=1
    )
    document = json.loads(json.dumps(made.to_dict()))
    assert document["all_rows"]["auc"]["low"] < document["all_rows"]["auc"]["high"]
    text = made.summary()
    assert "== north" in text
    # A level without rows, which has numbers of noise only, is left out.
    assert "nowhere" not in text
    said = "Levels that may be empty are not shown."
    assert text.count(said) == 1
    everyone = evaluate_predictions(y, scores, classes=WELL_ILL, random_state=1)
    assert said not in everyone.summary()
    assert "NOT PRIVATE" in made._repr_html_()
    wide, usual = made.with_level(0.999).conf_int("auc"), made.conf_int("auc")
    assert wide[0] < usual[0] < made.auc < usual[1] < wide[1]
    rows = made.conf_int("auc", of="rows")
    assert usual[0] < rows[0] < rows[1] < usual[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": "little"}, "delta must be a number from 0 to below 1, or 'auto'"),
        ({"adjacency": "add"}, "adjacency must be one of"),
        ({"classes": ["ill", "ill"]}, "classes must be at least two different labels"),
        ({"classes": ["ill", "tired"]}, "y must hold the classes"),
        ({"thresholds": (1.0,)}, "thresholds must be"),
        ({"n_rows": 7}, "n_rows must be the number of rows"),
        ({"by": ["north"] * N}, "levels must list the public levels of by"),
        ({"by": ["north"], "levels": ["north"]}, "by must have shape"),
        ({"levels": ["north", "north"]}, "levels must be different"),
        ({"level": 1.0}, "level must be"),
        ({"classes": None}, "classes or target_bounds must be given"),
        ({"classes": ["ill", "well", "dead"]}, "scores must have shape"),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_released(binary, change, message):
    y, scores, _ = binary
    with watching() as watcher, pytest.raises(ValueError, match=message):
        evaluate_predictions(y, scores, **({"classes": WELL_ILL} | change))
    assert not hasattr(watcher, "declared")


@pytest.mark.parametrize("levels", [(), ("a", "b")])
def test_planned_precision_equals_that_of_runs(numbers, levels):
    y, predictions = numbers
    plan = plan_evaluation(RegressionTask(0.0, 5.0), N, GaussianDP(0.3), levels=levels)
    made = plan.run(y, predictions, ["a"] * N if levels else None)
    names = {"bias": "mean error", "mae": "mean absolute error", "mse": "mean squared error"}
    for name, said in names.items():
        low, high = made.conf_int(name, of="rows")
        assert 0.5 * (high - low) == pytest.approx(dict(plan.precision())[said], rel=1e-3)


@pytest.mark.parametrize("n_rows", [1, 40])
@pytest.mark.parametrize("epsilon", [1e-3, 100.0, 1e5])
def test_whatever_the_rows_are_the_result_can_be_read(n_rows, epsilon):
    by = {"by": ["a"] * n_rows, "levels": ["a", "nobody"]}
    ones = np.ones(n_rows)
    found = [
        evaluate_predictions(ones, 0.0 * ones, classes=[0, 1], epsilon=epsilon, **by),
        evaluate_predictions(0 * ones, 0.5 * ones, classes=[0, 1], epsilon=epsilon),
        evaluate_predictions(ones, np.eye(3)[[0] * n_rows], classes=[0, 1, 2], epsilon=epsilon),
        evaluate_predictions(ones, 0 * ones, target_bounds=(0.0, 1.0), epsilon=epsilon, **by),
    ]
    for made in found:
        text = made.summary() + json.dumps(made.to_dict(), allow_nan=False)
        assert "nan" not in text


@pytest.mark.parametrize("bounds", [(-1e100, 1e100), (-1e308, 1e308), (0.0, 1e-60), (0.0, 0.0)])
def test_bounds_with_overflowing_powers_are_refused(bounds):
    """Else results could not be read or written, after they were paid for."""
    with pytest.raises(ValueError, match="target_bounds must be"):
        RegressionTask(*bounds)


@pytest.mark.parametrize("bounds", [(-1e50, 1e50), (1.0, 1.0 + 1e-15), (0.0, 1e-50)])
@pytest.mark.parametrize("mu", [1e-6, 1e4])
def test_numbers_within_any_bounds_can_be_written(bounds, mu):
    y, guess = np.array([bounds[0], bounds[1], 1e300]), np.array([bounds[1], -1e300, bounds[0]])
    made = evaluate_predictions(y, guess, target_bounds=bounds, budget=GaussianDP(mu))
    json.dumps(made.to_dict(), allow_nan=False)
    assert made.summary()


def test_nan_is_written_as_none():
    assert Number(math.nan, -math.inf, 1.0).to_dict() == {
        "estimate": None,
        "low": None,
        "high": 1.0,
    }


def test_threshold_that_was_not_declared_is_named():
    rng = np.random.default_rng(0)
    scores = rng.random(4000)
    y = np.where(rng.random(4000) < scores, 1, 0)
    found = dpglm.evaluate_predictions(
        y, scores, classes=[0, 1], thresholds=[0.3], epsilon=5.0, delta=1e-6
    )
    assert found.all_rows.threshold_used(0.3) == pytest.approx(0.3)
    found.number("recall", 0.3)
    other = next(one for one in np.linspace(0.4, 0.6, 21)
                 if abs(found.all_rows.threshold_used(float(one)) - one) > 2e-3)  # fmt: skip
    with pytest.warns(UserWarning, match="was used in place of"):
        found.number("recall", float(other))
    found.number("auc", float(other))


def test_ks_without_a_positive_gap_has_an_interval():
    """Noise can make all gaps negative: the estimate is 0, and not exact."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(0.02, 0.2, 1000)
    labels = (rng.random(1000) < scores).astype(int)
    options = {"classes": [0, 1], "epsilon": 0.1, "delta": 1e-6}
    found = [
        dpglm.evaluate_predictions(labels, scores, **options, random_state=seed).measures["ks"]
        for seed in range(12)
    ]
    assert any(one.estimate == 0.0 for one in found)
    assert all(one.high - one.low > 0.2 for one in found)


def test_summary_shows_few_levels_with_few_metrics():
    rng = np.random.default_rng(0)
    scores, by = rng.uniform(0.02, 0.98, 6000), np.arange(6000) % 15
    found = dpglm.evaluate_predictions(
        (rng.random(6000) < scores).astype(int),
        scores,
        classes=[0, 1],
        epsilon=9.0,
        by=by,
        levels=range(15),
    )
    first, *levels = found.summary().split("\n== ")[1:]
    assert "calibration slope" in first
    assert len(levels) == 12
    assert all("AUC" in one and "calibration slope" not in one for one in levels)
    assert "3 more levels are in by_level" in levels[-1]
    assert len(found.likely_levels) == 15
