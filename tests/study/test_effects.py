"""Standardised means: value, coverage, sensitivity, cost, certificate, and an attack."""

from __future__ import annotations

import dataclasses
import functools
import json
import math

import numpy as np
import pytest
from dp_accounting import ComposedDpEvent, GaussianDpEvent
from dp_accounting.pld import PLDAccountant

from dpglm import LogisticRegression, PoissonRegressor, Study
from dpglm.audit import Claim
from dpglm.certificate import Certificate, verify
from dpglm.certificate.execution import PartInput
from dpglm.data.rows import Protection
from dpglm.evaluation.task import in_range
from dpglm.oracle.counts import table_sum
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP
from dpglm.study.effects import _Standardized
from dpglm.study.writing import write_study
from experiments.audits.case import Case, of_plan, summed_as

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
RELATIONS = list(Adjacency)
COLUMNS = {
    "age": {"type": "numeric", "low": 20, "high": 80},
    "arm": {"type": "categorical", "categories": ["old", "new"]},
}
SCHEMA = {
    "columns": COLUMNS,
    "target": {"name": "ill", "type": "binary", "classes": [0, 1]},
    "provenance": "made up",
}
FORMULA = "ill ~ C(arm) * age"


def score(age, new):
    return -1.0 + 0.03 * (age - 50.0) + new * (0.8 + 0.02 * (age - 50.0))


def expit(z):
    return 1.0 / (1.0 + np.exp(-z))


def table(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.normal(50.0, 12.0, n_rows).clip(20.0, 80.0)
    new = rng.uniform(size=n_rows) < expit((age - 50.0) / 15.0)
    ill = rng.uniform(size=n_rows) < expit(score(age, new))
    return {"age": age, "arm": np.where(new, "new", "old"), "ill": ill.astype(int)}


def study(**options):
    made = Study(SCHEMA, **options)
    return made.fit(LogisticRegression(inference=True), formula=FORMULA).effects("arm")


@pytest.fixture(scope="module")
def ran():
    return study(epsilon=1.0, title="Arms").evaluate().run(table(20_000), random_state=0)


def without_noise(rows):
    """Return the effects of a released model over rows, with noise that is next to nothing."""
    made = study(epsilon=50.0)
    result, part = made.run(rows, random_state=0), made.parts["effects"]
    n_rows = len(rows["age"])
    plan = part.plan(Protection(Adjacency.ZERO_OUT, GaussianDP(1e5), n_rows))
    given = PartInput((rows,), random_state=0, earlier={"model": result.model})
    return result.model, part.run(plan, given)


def test_means_are_those_of_the_released_model():
    rows = table(4000)
    model, found = without_noise(rows)
    expected = [
        model.predict_proba({**rows, "arm": np.full(4000, one)})[:, 1].mean()
        for one in ("old", "new")
    ]
    assert found.values == ("old", "new")
    assert found.means == pytest.approx(expected, abs=1e-6)
    assert found.differences.estimates == pytest.approx([expected[1] - expected[0]], abs=1e-5)
    assert found.ratios.estimates == pytest.approx([expected[1] / expected[0]], abs=1e-5)


def test_intervals_without_noise_are_those_of_the_delta_method():
    rows = table(4000)
    _, found = without_noise(rows)
    estimates = found.inference.scores.estimates
    params, covariance = estimates.params, estimates.covariance

    def means(beta):
        arms = [np.full(4000, one) for one in ("old", "new")]
        X = [found.inference.scores.features({**rows, "arm": one}) for one in arms]
        return np.array([expit(beta[0] + np.asarray(one) @ beta[1:]) for one in X])

    steps = 1e-5 * np.eye(len(params))
    jacobian = [(means(params + h) - means(params - h)).mean(axis=1) / 2e-5 for h in steps]
    of_model = np.array(jacobian).T @ covariance @ np.array(jacobian)
    wanted = of_model + np.cov(means(params)) / 4000
    for rows_of, made in (
        (np.eye(2), found.predictions),
        (np.array([[-1.0, 1.0]]), found.differences),
    ):
        errors = np.sqrt(np.diag(rows_of @ wanted @ rows_of.T))
        assert made.standard_errors == pytest.approx(errors, rel=1e-3)
    ratio, (low, high) = found.ratios, found.means
    slopes = np.array([-1.0 / low, 1.0 / high])
    assert ratio.standard_errors[0] == pytest.approx(np.sqrt(slopes @ wanted @ slopes), rel=1e-3)
    assert np.log(ratio.intervals[0]).mean() == pytest.approx(np.log(ratio.estimates[0]))


def test_rare_category_lengthens_intervals_little():
    rows = table(20_000)
    rng = np.random.default_rng(1)
    rows["ward"] = rng.choice(["a", "b", "c", "d"], 20_000, p=[0.6, 0.3, 0.0995, 0.0005])
    ward = {"type": "categorical", "categories": ["a", "b", "c", "d"]}
    made = Study({**SCHEMA, "columns": {**COLUMNS, "ward": ward}}).fit(
        LogisticRegression(inference=True), formula=f"{FORMULA} + C(ward)"
    )
    found = made.effects("arm").run(rows, random_state=0).effects
    own = found.inference.scores
    gradients = []
    for arm in found.values:
        X = np.asarray(own.features({**rows, "arm": np.full(20_000, arm)}), dtype=float)
        X = np.insert(X, 0, 1.0, axis=1)
        p = expit(X @ own.estimates.params)
        gradients.append(((p * (1.0 - p))[:, np.newaxis] * X).mean(axis=0))
    change = gradients[1] - gradients[0]
    exact = np.sqrt(change @ own.estimates.covariance @ change)
    error = found.differences.standard_errors[0]
    assert 0.95 * exact < error < 1.25 * exact
    # A bound that forgets the noise of the gradients and errors is not longer than the exact one.
    none = dataclasses.replace(found, noise=(0.0, 0.0), errors=found.errors + 1e9)
    assert none.differences.standard_errors[0] < error


@functools.cache
def effects_of(runs):
    """Return the effects that studies of fresh tables state."""
    made = study(epsilon=0.7)
    return [made.run(table(6000, seed), random_state=seed).effects for seed in range(runs)]


def covered(runs, spoil=lambda found: found):
    age = table(400_000, seed=10**6)["age"]
    truth = [expit(score(age, one)).mean() for one in (0.0, 1.0)]
    hits = []
    for found in map(spoil, effects_of(runs)):
        (low, high), (first, last) = found.differences.intervals[0], found.ratios.intervals[0]
        hits.append(low <= truth[1] - truth[0] <= high and first <= truth[1] / truth[0] <= last)
    return float(np.mean(hits))


@pytest.mark.slow
def test_intervals_cover_the_risk_difference_and_ratio():
    assert 0.9 <= covered(150) <= 0.99


def test_intervals_without_the_coefficients_do_not_cover():
    def spoil(found):
        none = {"gradients": 0.0 * found.gradients, "errors": 0.0 * found.errors}
        return dataclasses.replace(found, noise=(0.0, 0.0), **none)

    assert covered(8) >= 0.7
    assert covered(8, spoil) < 0.5


HALF = GaussianDP(0.5)


def planned(relation, budget=HALF, n_rows=400):
    part = study().parts["effects"]
    return part, part.plan(Protection(relation, budget, n_rows))


@pytest.mark.parametrize("relation", RELATIONS)
def test_worst_row_reaches_the_declared_sensitivity(relation):
    _, plan = planned(relation)
    declared, tables = plan.method.releases[0].sensitivity, plan.method.tables

    def contribution(row):
        X = np.tile(row, (1, 1)).astype(float)
        return np.concatenate([one.weight * one.sums(X) for one in tables])

    width = plan.data.n_features
    rng = np.random.default_rng(0)
    huge = [1e9 * rng.choice([-1.0, 1.0], width) for _ in range(50)]
    rows = [contribution(one) for one in (np.ones(width), -np.ones(width), *huge)]
    if relation is Adjacency.REPLACE_ONE:
        reached = max(float(np.linalg.norm(one - other)) for one in rows for other in rows)
    else:
        reached = max(float(np.linalg.norm(one)) for one in rows)
    # The rest is for rounding, and for products, which cannot all be opposed.
    assert (0.95 if relation is Adjacency.REPLACE_ONE else 0.99) * declared <= reached <= declared


@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_rows_of_any_model_are_within_the_bound(ran, scale):
    part, plan = planned(Adjacency.ZERO_OUT)
    own = ran.effects.inference.scores
    wild = dataclasses.replace(own.estimates, params=scale * own.estimates.params)
    inference = dataclasses.replace(
        ran.effects.inference, scores=dataclasses.replace(own, estimates=wild)
    )
    X = _Standardized(part, inference, 0.25).encode(table(200))
    assert X.shape == (200, plan.data.n_features)
    for row in X:
        parts = [one.weight * one.sums(row[np.newaxis]) for one in plan.method.tables]
        assert np.linalg.norm(np.concatenate(parts)) <= 1.0 + 1e-12
    if scale == 1.0:
        # Nothing of an honest model is cut off.
        assert in_range("X", X, -1.0, 1.0, "(n, d)", 2) is not None


@pytest.mark.parametrize("relation", RELATIONS)
def test_cost_of_study_with_effects_is_the_budget(relation):
    size = {"n_rows": 20_000} if relation is Adjacency.ADD_REMOVE else {}
    plan = study(epsilon=1.0, delta=1e-5, adjacency=relation.value, **size).plan(20_000)
    events = [
        GaussianDpEvent(release.scale.std / release.sensitivity)
        for _, part in plan.planned.items()
        for release in part.plan.method.releases
        for _ in range(release.count)
    ]
    assert len(plan.planned["effects"].plan.method.releases) == 1
    spent = PLDAccountant().compose(ComposedDpEvent(events)).get_epsilon(1e-5)
    assert 0.97 < spent <= 1.0 + 1e-3
    assert plan.costs()[1][0] == "effects"
    assert plan.exploration_share > 0.0


def test_certificate_has_the_release_and_detects_less_noise(ran):
    assert verify(ran.privacy_).ok
    document = ran.privacy_.to_dict()
    assert list(document["parts"]) == ["model", "effects", "evaluation"]
    text = json.dumps(document)
    (release,) = ran.privacy_.parts["effects"].releases
    assert release.quantity == "weighted tables"
    multiplier = release.mechanism.noise_multiplier
    forged = json.loads(text.replace(repr(multiplier), repr(0.5 * multiplier)))
    assert forged != document
    assert not verify(Certificate.from_dict(forged)).ok


def test_methods_name_what_each_part_did(ran):
    text = ran.methods()
    assert "Standardised mean predictions rest on 1 noisy release (Gaussian noise of" in text
    assert "the effects (" in text
    assert "model and evaluation on disjoint records" in text
    assert text.count("The model (") == 1


ROW, OTHER = 1.0, -1.0


def attacked(relation, under=None):
    _, plan = planned(relation, ApproximateDP(4.0, 1e-2), n_rows=4)
    width = plan.data.n_features
    return of_plan(plan, [ROW] * width, replacement=([OTHER] * width, 1.0))


@pytest.mark.parametrize("relation", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_attack_stays_under_the_claim(relation):
    case = Case("effects", "standardised means", lambda: attacked(relation), relation, "", "")
    line = case.measure(150, 0.99, seed=1)
    assert not line.refuted
    assert line.share > 0.4


def test_attack_finds_gradients_that_the_bound_forgets():
    """Noise for the means alone: the gradients of a row come on top."""
    sound = attacked(Adjacency.ZERO_OUT)

    def of_means(tables):
        return dataclasses.replace(table_sum(tables), bound=table_sum(tables[:3]).bound)

    def forgetful():
        with summed_as(of_means):
            method = dataclasses.replace(sound.target.method)
            plan = dataclasses.replace(sound.target, method=method)
            _ = plan.method.releases
        claimed = {"claim": Claim.of(sound.target), "under": lambda: summed_as(of_means)}
        return dataclasses.replace(of_plan(plan, [ROW] * plan.data.n_features), **claimed)

    case = Case("bugs", "standardised means", forgetful, bug="gradients forgotten")
    assert case.measure(200, 0.99, seed=1).refuted


def test_rows_that_do_not_count_change_nothing():
    rows = table(6000)
    counted = np.arange(6000) < 5000
    other = {name: np.where(counted, cells, cells[0]) for name, cells in rows.items()}
    found = [
        study(epsilon=4.0).run(one, where=counted, random_state=0).effects for one in (rows, other)
    ]
    assert found[0].means.tolist() == found[1].means.tolist()
    assert found[0].means == pytest.approx(
        study(epsilon=500.0)
        .run({k: v[:5000] for k, v in rows.items()}, random_state=0)
        .effects.means,
        abs=0.03,
    )


def test_people_are_averaged_with_all_their_rows():
    rows = {**table(12_000), "id": np.repeat(np.arange(4000), 3)}
    options = {"groups": "id", "n_groups": 4000, "max_rows_per_group": 3}
    made = Study(SCHEMA, epsilon=4.0, adjacency="add_remove", n_rows=12_000, **options)
    made = made.fit(LogisticRegression(inference="robust"), formula=FORMULA).effects("arm")
    found = made.run(rows, random_state=0)
    age = rows["age"]
    wanted = [expit(score(age, one)).mean() for one in (0.0, 1.0)]
    low, high = found.effects.predictions.intervals.T
    assert ((low <= wanted) & (wanted <= high)).all()
    assert found.verify().ok


def test_counts_are_averaged_within_their_bounds():
    rng = np.random.default_rng(0)
    rows = table(8000)
    rows["ill"] = rng.poisson(np.exp(0.3 + 0.5 * (rows["arm"] == "new"))).clip(0, 30)
    schema = {**SCHEMA, "target": {"name": "ill", "type": "count", "high": 30}}
    made = Study(schema, epsilon=8.0).fit(
        PoissonRegressor(inference=True), formula="ill ~ C(arm) + age"
    )
    found = made.effects("age", [30, 60]).run(rows, random_state=0).effects
    assert found.predictions.names == ("age = 30", "age = 60")
    low, high = found.predictions.intervals.T
    mean = rows["ill"].mean()
    assert ((low < mean + 0.1) & (mean - 0.1 < high)).all()


def test_page_and_files_show_effects(ran, tmp_path):
    pytest.importorskip("jinja2")
    write_study(ran, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Adjusted effects" in page
    assert "arm: new - old" in page
    numbers = json.loads((tmp_path / "effects.json").read_text())["numbers"]
    estimate = float(ran.effects.differences.estimates[0])
    assert numbers["arm: new - old"]["estimate"] == estimate
    assert math.isfinite(numbers["arm: new / old"]["high"])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: Study(SCHEMA).effects("arm"), "call fit before effects"),
        (lambda: Study(SCHEMA).fit().effects("arm"), "effects require a linear model"),
        (lambda: Study(SCHEMA).fit("additive").effects("arm"), "effects require a linear model"),
        (lambda: study().effects("arm"), "declared once only"),
        (lambda: fitted().effects("ward"), "column must be"),
        (lambda: fitted().effects("age"), "values must be given for the numeric column"),
        (lambda: fitted().effects("age", [30, 90]), "age must be"),
        (lambda: fitted().effects("arm", ["new", "new"]), "values must be 1 to 12 different"),
        (lambda: fitted().effects("arm", level=2.0), "level"),
        (lambda: fitted().add("effects", study().parts["effects"]), "name must be that of a new"),
    ],
)
def test_argument_is_checked_when_declared(call, match):
    with pytest.raises(ValueError, match=match):
        call()


def fitted():
    return Study(SCHEMA).fit(LogisticRegression(inference=True), formula=FORMULA)
