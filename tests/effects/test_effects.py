"""Treatment effects: the doubly robust estimate, its cost, and intervals that cover."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import dpglm
from dpglm.certificate import certificate as certificates
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.execution import PartInput
from dpglm.certificate.verify import verify
from dpglm.data.rows import Protection
from dpglm.data.split import NUISANCES, composed_event
from dpglm.effects.effect import AverageEffect, Contrast, plan_effect
from dpglm.effects.parts import (
    CALIBRATION,
    EFFECT,
    SPREAD,
    Sums,
    SumsPart,
    _errors,
    _within,
    bound_of,
    calibration_of,
)
from dpglm.effects.question import question_of
from dpglm.oracle.counts import table_sum
from dpglm.privacy import Adjacency, GaussianDP, gdp
from dpglm.privacy.noise import SeededNoise
from dpglm.study import planning
from dpglm.tables.schema import Schema
from experiments import ate as experiment

SCHEMA = {
    "columns": {
        "x": {"type": "numeric", "low": -3, "high": 3},
        "arm": {"type": "categorical", "categories": ["old", "new"]},
    },
    "target": {"name": "y", "type": "numeric", "low": -5, "high": 5},
    "provenance": "made up",
}
SICK = {**SCHEMA, "target": {"name": "y", "type": "binary", "classes": ["well", "sick"]}}
EFFECT_SIZE = 0.4


def question(schema=SCHEMA, overlap=0.1):
    return question_of(Schema.from_dict(schema), "arm", "y", ["x"], overlap)


def chance(x):
    return np.clip(1.0 / (1.0 + np.exp(-x)), 0.1, 0.9)


def rows(seed=0, n=2000, schema=SCHEMA):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n).clip(-3.0, 3.0)
    treated = rng.random(n) < chance(x)
    y = x + EFFECT_SIZE * treated + rng.normal(size=n)
    if schema is SICK:
        y = np.where(rng.random(n) < 0.2 + 0.1 * treated, "sick", "well")
    return {"x": x, "arm": np.where(treated, "new", "old"), "y": y}


def asked(table, schema=SCHEMA, **options):
    given = {"treatment": "arm", "outcome": "y", "adjust": ["x"], "random_state": 0, **options}
    return dpglm.ate(table, schema=schema, **given)


class Known:
    """A public model of the treatment, or of the outcome."""

    def __init__(self, function, classes=None):
        self.function = function
        if classes is not None:
            self.classes_ = np.array(classes)

    def predict(self, table):
        return self.function(table)

    def predict_proba(self, table):
        p = self.function(table)
        return np.column_stack([1.0 - p, p])


# Classes of fitted models are sorted: "old" is the second one.
PROPENSITY = Known(lambda table: 1.0 - chance(table["x"]), ["new", "old"])
OUTCOME = Known(lambda table: table["x"] + EFFECT_SIZE * (table["arm"] == "new"))
NO_PROPENSITY = Known(lambda table: np.full(len(table["x"]), 0.5), ["new", "old"])
NO_OUTCOME = Known(lambda table: np.zeros(len(table["x"])))


def halves(n):
    return np.arange(n) % 2 == 1


def contributions(models, table):
    return question().contributions(table, [models, models], halves(len(table["x"])))


@pytest.mark.parametrize(
    ("models", "is_right"),
    [
        ((PROPENSITY, OUTCOME), True),
        ((NO_PROPENSITY, OUTCOME), True),
        ((PROPENSITY, NO_OUTCOME), True),
        ((NO_PROPENSITY, NO_OUTCOME), False),
    ],
)
def test_estimate_is_doubly_robust(models, is_right):
    table = rows(0, 200_000)
    found = 10.0 * contributions(models, table)[0]
    error = found.mean() - EFFECT_SIZE
    assert (abs(error) < 4.0 * found.std() / np.sqrt(len(found))) == is_right


def test_contributions_are_those_of_the_definition():
    table = rows(1, 500)
    difference, regressions, residuals, at_clip = contributions((PROPENSITY, OUTCOME), table)
    t, e = (table["arm"] == "new") * 1.0, chance(table["x"])
    control, treated = table["x"].clip(-5, 5), (table["x"] + EFFECT_SIZE).clip(-5, 5)
    y = table["y"].clip(-5, 5)
    one = treated + t * (y - treated) / e
    other = control + (1 - t) * (y - control) / (1 - e)
    assert np.allclose(10.0 * difference, one - other)
    assert np.allclose(10.0 * (regressions + residuals), one + other)
    assert at_clip.mean() == ((e <= 0.1) | (e >= 0.9)).mean()


def test_each_half_is_predicted_by_the_models_of_the_other():
    table, side = rows(2, 10), halves(10)
    first, second = (Known(lambda table, k=k: np.full(len(table["x"]), k)) for k in (1.0, 2.0))
    pairs = [(PROPENSITY, first), (PROPENSITY, second)]
    _, regressions, _, _ = question().contributions(table, pairs, side)
    predicted = 10.0 * regressions / 2.0
    assert np.allclose(predicted, np.where(side, 1.0, 2.0))


def worst(overlap):
    """Rows, propensities and regressions at all ends: bound on each contribution."""
    grid = np.array(np.meshgrid([0, 1], [overlap, 1 - overlap], *[[-0.5, 0.5]] * 3)).reshape(5, -1)
    t, e, control, treated, y = grid
    residual = np.where(t == 1, (y - treated) / e, (y - control) / (1 - e))
    difference = treated - control + np.where(t == 1, residual, -residual)
    return difference, treated + control, residual, np.zeros(len(t), bool)


@pytest.mark.parametrize("overlap", [0.01, 0.1, 0.4])
def test_largest_contribution_is_attained(overlap):
    found = np.abs(worst(overlap)[0]).max()
    assert found == pytest.approx(question(overlap=overlap).largest)


@pytest.mark.parametrize("relation", list(Adjacency))
@pytest.mark.parametrize("bound", [0.3, 2.0, 10.0])
def test_no_row_moves_the_sums_by_more_than_declared(relation, bound):
    part = SumsPart(question(), EFFECT)
    plan = part.plan(Protection(relation, GaussianDP(0.5), 1000))
    vectors = []
    for row in _within(*worst(0.1), bound):
        sums = [table.weight * table.sums(row[np.newaxis]) for table in part.tables]
        vectors.append(np.concatenate(sums))
    lengths = np.linalg.norm(vectors, axis=1)
    moved = lengths.max()
    if relation is Adjacency.REPLACE_ONE:
        moved = max(np.linalg.norm(one - other) for one in vectors for other in vectors)
    (release,) = plan.method.releases
    assert moved <= release.sensitivity
    assert moved >= 0.7 * release.sensitivity
    assert table_sum(part.tables).bound == pytest.approx(1.0)


@pytest.mark.parametrize("relation", list(Adjacency))
def test_cost_is_that_of_an_independent_accountant(relation):
    plan = plan_effect(question(), Protection(relation, GaussianDP(0.3), 20_000))
    events = {}
    for name, part in plan.planned.items():
        own = [
            dp_event.SelfComposedDpEvent(
                dp_event.GaussianDpEvent(one.scale.std / one.sensitivity), one.count
            )
            for one in part.plan.method.releases
        ]
        events[name] = dp_event.ComposedDpEvent(own)
    costs = []
    for half in NUISANCES:
        accountant = PLDAccountant(value_discretization_interval=1e-3)
        for name in (*half, CALIBRATION, SPREAD, EFFECT):
            accountant.compose(events[name])
        costs.append(accountant.get_epsilon(plan.delta))
    assert plan.epsilon <= gdp.epsilon(plan.delta, 0.3)
    assert max(costs) == pytest.approx(plan.epsilon, rel=5e-3)


def test_people_with_several_rows_pay_once_for_all_rows():
    table = {**rows(0, 400), "id": np.repeat(np.arange(200), 2)}
    size = {"adjacency": "add_remove", "n_rows": 400, "n_groups": 200, "max_rows_per_group": 2}
    found = asked(table, groups="id", budget=GaussianDP(5.0), **size)
    assert verify(found.privacy_).ok
    assert found.design_effect == 2.0
    effect = found.privacy_.parts["effect"].releases[0]
    assert effect.sensitivity == pytest.approx(2.0, rel=1e-2)
    with pytest.raises(ValueError, match="add_remove"):
        asked(table, groups="id", n_groups=200, max_rows_per_group=2)


def known_runs(runs, n=1000, mu=0.3, models=(PROPENSITY, OUTCOME)):
    """Effects with public models, which take milliseconds."""
    asks = question()
    protection = Protection(Adjacency.ZERO_OUT, GaussianDP(mu), n)
    names = CALIBRATION, SPREAD, EFFECT
    plans = {name: SumsPart(asks, name).plan(protection) for name in names}
    known = {name: model for half in NUISANCES for name, model in zip(half, models, strict=True)}
    for seed in range(runs):
        noise, found = SeededNoise(seed), dict(known)
        for name in names:
            given = PartInput((rows(seed, n),), None, None, None, noise)
            given = dataclasses.replace(given, earlier=found, held_out=halves(n))
            found[name] = SumsPart(asks, name).run(plans[name], given)
        spread, effect = found[SPREAD], found[EFFECT]
        parts = {name: found[name].privacy_.part for name in (SPREAD, EFFECT)}
        made = dataclasses.replace(effect.privacy_, parts=parts)
        bias = calibration_of(asks, [models, models], found[CALIBRATION])[1]
        yield AverageEffect(asks, spread.values, effect.values, 1.0, bias, made)


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.SeededNoiseWarning")
def test_intervals_cover_and_forgotten_noise_does_not():
    contrasts = [one.difference for one in known_runs(200, mu=0.2)]
    errors = np.array([one.estimate - EFFECT_SIZE for one in contrasts])
    # The models are public and right, which intervals of private models cannot rely on.
    both = np.array([np.hypot(one.sampling_error, one.noise_error) for one in contrasts])
    sampling = np.array([one.sampling_error for one in contrasts])
    assert 0.92 <= np.mean(np.abs(errors) < 1.96 * both) <= 0.98
    assert np.mean(np.abs(errors) < 1.96 * sampling) < 0.88


# Models that are fitted to noise: one is five times too steep, and the other ten times too flat.
STEEP = Known(
    lambda table: 1.0 - np.clip(0.5 + 5.0 * (chance(table["x"]) - 0.5), 0, 1), ["new", "old"]
)
FLAT = Known(lambda table: 0.1 * table["x"])


def calibrated(models, table, mu):
    """Lines and remaining error of two halves with these models."""
    plan = SumsPart(question(), CALIBRATION).plan(
        Protection(Adjacency.ZERO_OUT, GaussianDP(mu), len(table["x"]))
    )
    earlier = {n: m for half in NUISANCES for n, m in zip(half, models, strict=True)}
    given = PartInput((table,), None, None, None, SeededNoise(0))
    given = dataclasses.replace(given, earlier=earlier, held_out=halves(len(table["x"])))
    sums = SumsPart(question(), CALIBRATION).run(plan, given)
    return calibration_of(question(), [models, models], sums)


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.SeededNoiseWarning")
def test_calibration_removes_bias_of_models_below_noise():
    table, models = rows(0, 100_000), (STEEP, FLAT)
    lines, error = calibrated(models, table, 0.3)
    side = halves(len(table["x"]))
    before, after = (
        10.0 * question().contributions(table, [models, models], side, one)[0]
        for one in (None, lines)
    )
    spread = after.std() / np.sqrt(len(after))
    assert abs(before.mean() - EFFECT_SIZE) > 20.0 * spread
    assert abs(after.mean() - EFFECT_SIZE) < 4.0 * np.hypot(spread, 10.0 * error)


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.SeededNoiseWarning")
def test_calibration_leaves_right_models_and_counts_noise():
    table = rows(1, 100_000)
    lines, error = calibrated((PROPENSITY, OUTCOME), table, 100.0)
    np.testing.assert_allclose(lines[..., 1], 1.0, atol=0.05)
    assert 10.0 * error < 0.003
    # Noise that hides errors of models leaves them as they are, and is in the interval.
    lines, error = calibrated((PROPENSITY, OUTCOME), rows(1, 1000), 0.05)
    assert 10.0 * error > 0.5


@pytest.mark.parametrize("relation", list(Adjacency))
def test_no_row_moves_the_calibration_by_more_than_declared(relation):
    part = SumsPart(question(), CALIBRATION)
    plan = part.plan(Protection(relation, GaussianDP(0.5), 1000))
    grid = np.array(np.meshgrid([0, 1], [-9, 0, 1], [0, 1], [-9, 1], [0, 1], [-2, 0.5]))
    t, own, chance_, other, side, y = grid.reshape(6, -1)
    units = np.stack([np.zeros((2, 2)), np.ones((2, 2))])
    X = _errors(t == 1, y, np.stack([own * chance_, other, other]), side, units)
    vectors = [
        np.concatenate([table.weight * table.sums(row[np.newaxis]) for table in part.tables])
        for row in X
    ]
    moved = np.linalg.norm(vectors, axis=1).max()
    if relation is Adjacency.REPLACE_ONE:
        moved = max(np.linalg.norm(one - another) for one in vectors for another in vectors)
    (release,) = plan.method.releases
    assert 0.7 * release.sensitivity <= moved <= release.sensitivity


def test_drawn_rows_are_within_the_schema():
    columns = {
        "x": {"type": "numeric", "low": 2, "high": 3},
        "day": {"type": "date", "low": "2020-01-01", "high": "2021-01-01"},
        "kind": {"type": "categorical", "categories": ["a", "b"]},
    }
    schema = Schema.from_dict({**SCHEMA, "columns": {**columns, "arm": SCHEMA["columns"]["arm"]}})
    asks = question_of(schema, "arm", "y", list(columns), 0.1)
    drawn = asks.drawn()
    for column in asks.schema.columns[:-1]:
        column.read(drawn[column.source])
    assert drawn["x"].min() >= 2.0
    assert drawn["x"].max() <= 3.0
    assert set(drawn["kind"]) == {"a", "b"}


@pytest.mark.slow
@pytest.mark.parametrize("binary", [False, True])
def test_intervals_of_private_models_cover(binary):
    found = [experiment.one(seed, "propensity", binary=binary) for seed in range(60)]
    error, se, _, own = np.array(found).T
    assert 0.88 <= np.mean(np.abs(error) < 1.96 * se) <= 1.0
    assert np.mean(se / own) < 1.6


@pytest.mark.slow
def test_intervals_of_models_below_noise_cover():
    found = [experiment.one(seed, "neither", binary=False, n_rows=2000) for seed in range(60)]
    error, se, _, _ = np.array(found).T
    assert np.mean(np.abs(error) < 1.96 * se) >= 0.9


def test_estimate_without_noise_is_that_without_privacy():
    table = rows(3, 4000)
    found = asked(table, budget=GaussianDP(1e4))
    t, e = (table["arm"] == "new") * 1.0, chance(table["x"])
    own = table["x"] + t * EFFECT_SIZE
    psi = EFFECT_SIZE + (t / e - (1 - t) / (1 - e)) * (table["y"] - own)
    assert found.estimate == pytest.approx(psi.mean(), abs=0.3 * found.standard_error)
    assert found.difference.sampling_error == pytest.approx(psi.std() / 4000**0.5, rel=0.1)
    assert found.difference.noise_error < 0.01 * found.standard_error
    treated = found.means["new"].estimate - found.means["old"].estimate
    assert treated == pytest.approx(found.estimate)


def test_risk_ratio_is_that_of_both_means():
    found = asked(rows(0, 20_000, SICK), SICK, budget=GaussianDP(5.0))
    well, sick = (found.means[arm].estimate for arm in ("old", "new"))
    assert found.ratio.estimate == pytest.approx(sick / well)
    low, high = found.ratio.conf_int()
    assert low < 1.5 < high
    assert found.estimate == pytest.approx(0.1, abs=4 * found.standard_error)
    assert found.ratio.p_value < 0.001
    with pytest.raises(ValueError, match="two categories"):
        _ = asked(rows(0, 400), budget=GaussianDP(5.0)).ratio


def test_certificate_holds_and_an_uncharged_part_is_found(monkeypatch):
    def charged(events, *others):
        return composed_event({n: e for n, e in events.items() if n != SPREAD}, *others)

    assert verify(asked(rows(0, 400), budget=GaussianDP(1.0)).privacy_).ok
    with monkeypatch.context() as planted:
        for place in (planning, certificates):
            planted.setattr(place, "composed_event", charged)
        found = asked(rows(0, 400), budget=GaussianDP(1.0)).privacy_
    assert not verify(Certificate.from_dict(json.loads(json.dumps(found.to_dict())))).ok
    with pytest.raises(ValueError, match="split must be given"):
        dataclasses.replace(found, split=None)


def test_bound_follows_the_spread_and_keeps_most_rows():
    asks = question()
    counts = np.zeros(24)
    counts[8:12] = [1000.0, 2000.0, 4000.0, 3000.0]
    found = bound_of(asks, Sums(counts, 10.0))
    assert found == pytest.approx(10.0 * 2.0 ** (-0.5 * 11))
    # Noise that could hide more than a small share of the rows: nothing is clipped.
    assert bound_of(asks, Sums(counts, 1000.0)) == asks.largest
    assert bound_of(asks, Sums(np.eye(24)[23] * 1e4, 10.0)) == asks.largest
    assert bound_of(asks, Sums(np.zeros(24), 10.0)) == asks.largest


def test_only_selected_rows_count():
    table = rows(0, 1000)
    chosen = table["x"] < 0.5
    other = {**table, "y": np.where(chosen, table["y"], np.nan)}
    found = asked(other, where=chosen, budget=GaussianDP(1e3))
    assert found._found.rows == pytest.approx(chosen.sum(), abs=1.0)
    # Without a condition their number is public, and has no noise.
    assert asked(table, budget=GaussianDP(0.5))._found.rows == 1000.0
    assert found.estimate == pytest.approx(EFFECT_SIZE, abs=0.5)


def test_saved_effect_is_read_and_changes_are_found(tmp_path):
    found = asked(rows(0, 400), budget=GaussianDP(5.0))
    found.save(tmp_path / "effect.json")
    again = dpglm.load_effect(tmp_path / "effect.json")
    assert again.summary() == found.summary()
    assert again.methods() == found.methods()
    document = json.loads((tmp_path / "effect.json").read_text())
    for name, value in (("overlap", 0.2), ("effect", [0.0] * 9), ("bias", -0.5)):
        (tmp_path / "other.json").write_text(json.dumps({**document, name: value}))
        with pytest.raises(ValueError, match=r"other\.json"):
            dpglm.load_effect(tmp_path / "other.json")


def test_result_states_errors_overlap_and_assumptions():
    text = asked(rows(0, 2000, SICK), SICK).summary()
    for words in ("risk difference", "sampling", "noise", "propensities clipped", "confounding"):
        assert words in text
    assert "halves" in asked(rows(0, 2000)).methods()


def test_interrupted_study_resumes_and_pays_once(tmp_path, monkeypatch):
    budget, table = GaussianDP(1.0), rows(0, 400)
    path = tmp_path / "people.ledger"
    ledger = dpglm.PrivacyLedger.create(path, data="made up", budget=GaussianDP(1.5))
    options = {"budget": budget, "ledger": ledger, "checkpoint": tmp_path / "begun"}
    options["random_state"] = None
    honest = SumsPart.run

    def interrupted(part, plan, given):
        if part.name == EFFECT:
            raise KeyboardInterrupt
        return honest(part, plan, given)

    with monkeypatch.context() as planted:
        planted.setattr(SumsPart, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            asked(table, **options)
    first, second = asked(table, **options), asked(table, **options)
    assert first.summary() == second.summary()
    (entry,) = ledger.contents().entries
    assert "effect of arm on y" in entry.what


def test_predictions_that_are_no_numbers_do_not_stop_a_run():
    nothing = Known(lambda table: np.full(len(table["x"]), np.nan), ["new", "old"])
    none = Known(lambda table: np.full(len(table["x"]), np.nan))
    found = contributions((nothing, none), rows(0, 50))
    assert np.isfinite(found[:3]).all()


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.LowSignalWarning")
@pytest.mark.parametrize("n", [0, 1, 2, 3])
@pytest.mark.parametrize("schema", [SCHEMA, SICK], ids=["number", "binary"])
def test_few_rows_are_answered_where_their_number_is_private(n, schema):
    table = {**rows(n=n, schema=schema), "id": np.arange(n)}
    private = {"adjacency": "add_remove", "n_rows": 1000, "schema": schema}
    people = {"groups": "id", "max_rows_per_group": 1, "n_groups": 1000}
    for seed in range(3):
        # Both halves are empty, or one, for some of these seeds.
        found = asked(table, random_state=seed, **private)
        assert verify(found.privacy_).ok
        assert_within_range(found)
    assert_within_range(asked(table, **private, **people))


def assert_within_range(found):
    """Estimates and intervals are possible values, and intervals contain the estimates."""
    low, high = found.question.range
    width = high - low
    for one, limits in [(found.difference, (-width, width))] + [
        (one, (low, high)) for one in found.means.values()
    ]:
        first, last = one.conf_int()
        assert limits[0] <= first <= one.estimate <= last <= limits[1]


def test_projection_keeps_tests_and_intervals_of_the_estimate():
    free = Contrast("mean", 7.0, 3.0, 4.0, 0.0)
    shown = Contrast("mean", 2.0, 3.0, 4.0, 0.0, limits=(-2.0, 2.0), beyond=5.0)
    assert shown.p_value == free.p_value
    assert shown.conf_int(0.5) == (2.0, 2.0)
    assert shown.conf_int(0.99) == (-2.0, 2.0)
    assert shown.conf_int(0.7)[0] == pytest.approx(free.conf_int(0.7)[0])


def test_result_states_that_noise_dominates_the_models():
    found = asked(rows(0, 400), epsilon=0.5)
    assert "noise in the models dominates" in found.caution
    assert found.caution in found.summary()
    assert found.caution in found._repr_html_()
    assert asked(rows(0, 4000), budget=GaussianDP(1.0)).caution is None


def test_formula_adjusts_for_transforms():
    found = asked(rows(0, 2000), adjust="bs(x, df=4)", budget=GaussianDP(50.0))
    assert found.estimate == pytest.approx(EFFECT_SIZE, abs=5 * found.standard_error)
    assert "bs(x, df=4)" in found.methods()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"treatment": "x"}, "treatment must be a column with two categories"),
        ({"treatment": "z"}, "treatment must name a column of the schema"),
        ({"outcome": "arm"}, "outcome must differ from the treatment"),
        ({"adjust": ["x", "arm"]}, "adjust must name other columns"),
        ({"adjust": []}, "adjust must name other columns"),
        ({"overlap": 0.5}, "overlap must be"),
        ({"design_effect": 0.5}, "design_effect must be"),
        ({"n_groups": 5}, "groups must be given"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_spent(options, message, tmp_path):
    budget = GaussianDP(1.0)
    ledger = dpglm.PrivacyLedger.create(tmp_path / "ledger.json", data="made up", budget=budget)
    with pytest.raises(ValueError, match=message):
        asked(rows(0, 100), ledger=ledger, budget=GaussianDP(0.5), **options)
    assert not ledger.contents().entries
