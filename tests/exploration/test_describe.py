"""describe: releases, cost, results."""

import json
import math
import warnings

import numpy as np
import pytest

from dpglm.certificate.certificate import Certificate
from dpglm.certificate.verify import verify
from dpglm.exceptions import BudgetExceededError, PlanMismatchError
from dpglm.exploration import describe, plan_description
from dpglm.exploration.description import two_digits
from dpglm.ledger import PrivacyLedger
from dpglm.privacy import Adjacency, ApproximateDP, GaussianDP, ZeroConcentratedDP, gdp
from dpglm.privacy.noise import SeededNoise, SystemNoise
from dpglm.tables.schema import Schema
from tests.exploration.conftest import N
from tests.forgeries import part_of
from tests.oracle.watching import watching

PAIRS = [("region", "smoker"), ("age", "region")]


@pytest.fixture(scope="module")
def exact(table, schema):
    return describe(
        table, schema, budget=GaussianDP(1e5), two_way=PAIRS, correlations=True, random_state=0
    )


def test_counts_are_those_of_the_table(exact, table):
    counts = {
        label: number.estimate
        for label, number in zip(exact["region"].labels, exact["region"].counts, strict=True)
    }
    for region in ("north", "south", "west"):
        assert counts[region] == pytest.approx((table["region"] == region).sum(), abs=0.1)
    assert counts["not listed"] == pytest.approx((table["region"] == "east").sum(), abs=0.1)
    assert exact["age"].missing.estimate == pytest.approx(np.isnan(table["age"]).sum(), abs=0.1)
    assert exact["smoker"].missing.estimate == pytest.approx(
        sum(cell is None for cell in table["smoker"]), abs=0.1
    )


def test_bins_outside_and_heaps_are_those_of_the_table(exact, table):
    income, column = table["income"], exact["income"]
    shares = dict(zip(column.labels, column.shares, strict=True))
    assert shares["exactly 0"].estimate == pytest.approx((income == 0.0).mean(), abs=1e-3)
    assert shares["above 100"].estimate == pytest.approx((income > 100.0).mean(), abs=1e-3)
    ages = exact["age"]
    below = dict(zip(ages.labels, ages.counts, strict=True))["below 18"]
    assert below.estimate == pytest.approx(np.nansum(table["age"] < 18), abs=0.1)


def test_moments_and_quantiles_are_those_of_the_table(exact, table):
    age = np.clip(table["age"][~np.isnan(table["age"])], 18, 90)
    assert exact["age"].mean.estimate == pytest.approx(age.mean(), abs=0.02)
    assert exact["age"].spread.estimate == pytest.approx(age.std(), abs=0.02)
    for q in (0.05, 0.3, 0.5, 0.95):
        found = exact["age"].quantile(q)
        true = np.quantile(age, q, method="inverted_cdf")
        assert found.low <= true <= found.high
        assert abs(found.estimate - true) < 1.01


def test_correlations_are_those_of_the_table(exact, table):
    there = ~np.isnan(table["age"])
    age, income = table["age"][there].clip(18, 90), table["income"][there].clip(0, 100)
    found = exact.correlations[("age", "income")]
    assert found.estimate == pytest.approx(np.corrcoef(age, income)[0, 1], abs=0.02)
    assert set(exact.correlations) == {
        ("age", "income"),
        ("age", "visits"),
        ("income", "visits"),
    }


def test_two_way_tables_are_those_of_the_table(exact, table):
    found = exact.two_way[("region", "smoker")]
    both = (table["region"] == "south") & (table["smoker"] == "yes")
    assert found.counts[1][1].estimate == pytest.approx(both.sum(), abs=0.5)
    assert found.row_labels == exact["region"].labels


@pytest.fixture(scope="module")
def noisy(table, schema):
    return describe(
        table, schema, epsilon=0.5, two_way=PAIRS, correlations=[("age", "smoker")], random_state=1
    )


def test_counts_add_up_and_are_not_negative(noisy):
    for column in noisy.columns.values():
        counts = np.array([count.estimate for count in column.counts])
        assert counts.sum() == pytest.approx(N)
        assert (counts >= 0.0).all()
    for (one, other), both in noisy.two_way.items():
        counts = np.array([[count.estimate for count in row] for row in both.counts])
        assert (counts >= 0.0).all()
        for axis, name in ((1, one), (0, other)):
            of_column = [count.estimate for count in noisy[name].counts]
            np.testing.assert_allclose(counts.sum(axis=axis), of_column, atol=1e-3)


def test_intervals_hold_their_estimates(noisy):
    for record in noisy.to_frame().to_dict("records"):
        assert record["low"] <= record["estimate"] <= record["high"]
        if not math.isnan(record["population_low"]):
            assert record["population_low"] <= record["low"]
            assert record["population_high"] >= record["high"]


def test_any_level_and_any_quantile_costs_nothing(noisy):
    wide = noisy.with_level(0.999)
    assert wide["age"].mean.high > noisy["age"].mean.high
    assert wide["age"].mean.estimate == noisy["age"].mean.estimate
    assert wide.privacy_ is noisy.privacy_
    assert noisy["age"].quantile(0.01).estimate <= noisy["age"].quantile(0.5).estimate


@pytest.mark.parametrize("adjacency", list(Adjacency))
@pytest.mark.parametrize(
    "budget", [GaussianDP(0.3), ZeroConcentratedDP(0.01), ApproximateDP(0.7, 1e-7)]
)
def test_the_cost_is_the_budget_by_an_independent_computation(table, schema, adjacency, budget):
    plan = plan_description(schema, N, budget, adjacency=adjacency, two_way=PAIRS)
    (release,) = plan.plan.method.releases
    # A row is in one cell of each table; replacing it moves numbers that have a sign twice as far,
    # and counts by the root of two.
    squares, signed = [], 0.0
    for cells in plan.part.design(plan.plan).cells.values():
        squares.append((cells.weight * (cells.bound if cells.values else 1.0)) ** 2)
        signed += squares[-1] if cells.is_signed else 0.0
    assert sum(squares) == pytest.approx(1.0)
    assert signed < 0.9
    factor = math.sqrt(2.0 + 2.0 * signed) if adjacency is Adjacency.REPLACE_ONE else 1.0
    mu = factor * math.sqrt(sum(squares)) / release.noise_std
    assert mu <= budget.gdp_mu()
    assert mu == pytest.approx(budget.gdp_mu(), rel=2e-2)
    made = plan.run(table, random_state=0)
    assert made.privacy_.epsilon <= gdp.epsilon(made.privacy_.delta, budget.gdp_mu()) * (1 + 1e-9)
    assert verify(made.privacy_).ok


def test_the_certificate_survives_a_file(noisy, tmp_path):
    noisy.privacy_.to_json(tmp_path / "certificate.json")
    read = Certificate.from_json(tmp_path / "certificate.json")
    assert verify(read).ok
    assert "Description was made with differential privacy" in read.statement()
    assert [one.stage for one in read.spending()] == ["tables"]


def test_a_forged_weight_is_found(noisy):
    document = json.loads(json.dumps(noisy.privacy_.to_dict()))
    part_of(document)["plan"]["method"]["tables"][0]["weight"] *= 2.0
    assert not verify(Certificate.from_dict(document)).ok


def test_the_ledger_pays_before_anything_is_released(table, schema, tmp_path):
    ledger = PrivacyLedger.create(
        tmp_path / "people.ledger", data="people", budget=ApproximateDP(1.0, 1e-5)
    )
    made = describe(table, schema, epsilon=0.4, delta=1e-6, ledger=ledger)
    assert made.privacy_.ledger is not None
    (entry,) = ledger.contents().entries
    assert entry.what == "tabulation"
    with watching() as watcher, pytest.raises(BudgetExceededError):
        describe(table, schema, epsilon=5.0, delta=1e-6, ledger=ledger)
    assert not hasattr(watcher, "declared")
    with pytest.raises(ValueError, match="random_state must be None"):
        describe(table, schema, epsilon=0.1, delta=1e-6, ledger=ledger, random_state=0)
    assert len(ledger.contents().entries) == 1


def test_a_plan_does_not_depend_on_rows_and_refuses_others(table, schema):
    plan = plan_description(schema, N, GaussianDP(0.1))
    assert plan.plan.document == plan_description(schema, N, GaussianDP(0.1)).plan.document
    fewer = {name: column[:-1] for name, column in table.items()}
    with pytest.raises(PlanMismatchError, match="rows, but the plan is for"):
        plan.run(fewer)
    with pytest.raises(ValueError, match="rows must be the table, got 2 arguments"):
        plan.run(fewer, fewer)


def test_the_number_of_rows_is_private_under_add_remove(table, schema):
    options = {"adjacency": "add_remove", "epsilon": 1.0, "n_rows": 2500, "random_state": 0}
    made = describe(table, schema, **options)
    assert made.n_rows.low <= N <= made.n_rows.high
    assert made.n_rows.low < made.n_rows.high
    for column in made.columns.values():
        total = sum(count.estimate for count in column.counts)
        assert total == pytest.approx(made.n_rows.estimate)
    fewer = {name: column[:-700] for name, column in table.items()}
    other = describe(fewer, schema, **options)
    assert other.solution.plan.document == made.solution.plan.document
    with pytest.raises(ValueError, match="n_rows must be given under adjacency 'add_remove'"):
        describe(table, schema, adjacency="add_remove")


def test_groups_add_up_at_the_price_of_one_description(table, schema):
    alone = plan_description(schema, N, GaussianDP(0.2))
    by = plan_description(schema, N, GaussianDP(0.2), by="region")
    noises = [one.plan.coefficient_noise for one in (alone, by)]
    assert noises[1] == pytest.approx(noises[0], rel=1e-4)
    made = by.run(table, random_state=0)
    assert list(made.by_level) == ["north", "south", "west", "not listed", "missing"]
    assert sum(group.n_rows.estimate for group in made.by_level.values()) == pytest.approx(N)
    for group in made.by_level.values():
        for column in group.columns.values():
            total = sum(count.estimate for count in column.counts)
            assert total == pytest.approx(group.n_rows.estimate, abs=1e-6)
    with pytest.raises(ValueError, match="use by_level"):
        _ = made["age"]
    frame = made.to_frame()
    assert set(frame["by"]) == set(made.by_level)


def test_groups_are_those_of_the_table(table, schema):
    made = describe(table, schema, budget=GaussianDP(1e5), by="region", random_state=0)
    here = (table["region"] == "south") & ~np.isnan(table["age"])
    south = made.by_level["south"]["age"]
    assert south.mean.estimate == pytest.approx(table["age"][here].clip(18, 90).mean(), abs=0.1)


def test_noise_differs_from_run_to_run_and_is_private_by_default(table, schema):
    one, other = (describe(table, schema, columns=["age"]) for _ in range(2))
    assert (one.solution.w != other.solution.w).all()
    assert one.privacy_.noise_source == SystemNoise.name
    assert one.privacy_.is_private
    seeded = describe(table, schema, columns=["age"], random_state=SeededNoise(3))
    assert not seeded.privacy_.is_private


def test_less_budget_is_more_noise(schema):
    widths = [
        plan_description(schema, N, GaussianDP(mu)).precision()[0].half_width
        for mu in (0.05, 0.1, 0.5)
    ]
    assert widths[0] > widths[1] > widths[2]


def test_a_checkpoint_returns_the_same_description(table, schema, tmp_path):
    plan = plan_description(schema, N, GaussianDP(0.2))
    kept = tmp_path / "description.checkpoint"
    one = plan.run(table, checkpoint=kept)
    with pytest.warns(UserWarning, match="complete"):
        other = plan.run(table, checkpoint=kept)
    assert (one.solution.w == other.solution.w).all()


def test_an_intermediate_document_is_plain(noisy):
    document = json.loads(json.dumps(noisy.to_dict()))
    assert document["epsilon"] <= 0.5
    assert document["columns"]["age"]["mean"]["low"] < document["columns"]["age"]["mean"]["high"]
    assert "age" in noisy.summary()
    assert "NOT PRIVATE" in noisy._repr_html_()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"adjacency": "add"}, "adjacency must be one of"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"delta": 0.0}, "delta must be above 0 for Gaussian noise"),
        ({"delta": "little"}, "delta must be a number from 0 to below 1, or 'auto'"),
        ({"n_rows": 7}, "n_rows must be the number of rows"),
        ({"level": 1.0}, "level must be"),
        ({"two_way": ["age"]}, "two_way must list pairs"),
        ({"two_way": [("age", "age")]}, "two different columns"),
        ({"two_way": [("age", "region"), ("region", "age")]}, "each pair once"),
        ({"two_way": [("age", "height")]}, "there is no column 'height'"),
        ({"correlations": [("age", "region")]}, "correlations must name numeric"),
        ({"by": "age"}, "by must name a column of categories"),
        ({"by": "region", "two_way": [("age", "region")]}, "must not name the column of by="),
        ({"columns": ["region"], "by": "region"}, "besides that of by="),
        ({"random_state": 0.5}, "random_state must be None"),
        ({"budget": 1.0}, "budget must be a PrivacyBudget"),
    ],
)
def test_wrong_arguments_are_refused_before_anything(table, schema, change, message):
    with watching() as watcher, pytest.raises(ValueError, match=message):
        describe(table, schema, **change)
    assert not hasattr(watcher, "declared")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": ["old"] * N}, "column 'age', row 1: 'old' is not a number"),
        ({"age": [np.inf] * N}, "column 'age', row 1: the value is infinite"),
        ({"smoker": [["yes"]] * N}, "column 'smoker'"),
        ({"visits": [1]}, "column 'visits' has 1 rows"),
    ],
)
def test_wrong_cells_are_refused_before_anything(table, schema, change, message):
    with watching() as watcher, pytest.raises(ValueError, match=message):
        describe({**table, **change}, schema, random_state=0)
    assert not hasattr(watcher, "declared")


def test_a_table_without_a_column_is_refused(table, schema):
    lacking = {name: cells for name, cells in table.items() if name != "visits"}
    with pytest.raises(ValueError, match="the data lack column 'visits'"):
        describe(lacking, schema)
    columns = ["age", "income", "region", "smoker"]
    assert set(describe(lacking, schema, columns=columns).columns) == set(columns)
    none = {name: cells[:0] for name, cells in table.items()}
    with pytest.raises(ValueError, match="n_rows must be an integer of at least 1, got 0"):
        describe(none, schema)
    # Where the number of rows is private, a refusal would depend on it.
    assert describe(none, schema, adjacency="add_remove", n_rows=900).columns
    with pytest.raises(ValueError, match="columns by name"):
        describe(np.zeros((3, 5)), schema)


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_handful_of_rows_is_described(table, schema, rows):
    few = {name: cells[:rows] for name, cells in table.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = describe(few, schema, epsilon=0.1, correlations=True, two_way=PAIRS)
        _ = made.summary(), made.to_dict()


def test_charged_bounds_are_marked_wherever_used(table, schema, noisy, tmp_path):
    narrower = noisy.schema(bounds=(0.05, 0.9))
    age = narrower.columns[0]
    assert 18.0 < age.low < 30.0
    assert 60.0 < age.high < 70.0
    assert age.provenance.epsilon == noisy.privacy_.epsilon
    assert age.provenance.certificate == noisy.privacy_.model_digest
    assert narrower.columns[2] == schema.columns[2]
    assert narrower.target == schema.target
    assert Schema.from_dict(json.loads(json.dumps(narrower.to_dict()))) == narrower
    numbers = {**table, "age": np.nan_to_num(table["age"], nan=40.0)}
    again = describe(numbers, narrower, epsilon=0.3, columns=["age", "income"], random_state=0)
    fact = again.privacy_.fact("bounds of age")
    assert fact.provenance == "private"
    assert fact.value["certificate"] == noisy.privacy_.model_digest
    assert "bounds of age = low" in again.privacy_.statement()
    assert "at extra cost" in again.privacy_.statement()
    assert verify(again.privacy_).ok


def test_a_column_of_one_value_keeps_its_bounds(schema, table):
    same = {**table, "income": np.zeros(N)}
    seen = describe(same, schema, budget=GaussianDP(1e4), random_state=0)
    narrower = seen.schema()
    assert narrower.columns[1] == schema.columns[1]
    assert narrower.columns[0].provenance is not None


@pytest.mark.parametrize("bounds", [(0.9, 0.1), (0.5, 0.5), (-0.1, 0.5), (0.1,)])
def test_bounds_that_make_no_sense_are_refused(noisy, bounds):
    with pytest.raises(ValueError, match="bounds"):
        noisy.schema(bounds=bounds)


def test_a_forged_provenance_is_refused(noisy):
    document = noisy.schema().to_dict()
    document["columns"]["age"]["provenance"] = "private"
    with pytest.raises(ValueError, match="provenance must be an object"):
        Schema.from_dict(document)


def test_plans_state_precision_and_weakness(schema):
    weak = plan_description(schema, N, ApproximateDP(21.0, 1e-6), columns=["age"], by="region")
    assert [one.name for one in weak.part.design(weak.plan).described] == ["age"]
    lines = str(weak).splitlines()
    assert lines[1].startswith("  levels of region: share of rows ±")
    assert lines[-1].startswith("  Caution: epsilon 21 protects little")
    assert "protects little" in weak._repr_html_()
    assert "Caution" not in str(plan_description(schema, N, GaussianDP(0.3)))
    with pytest.raises(ValueError, match="columns must"):
        plan_description(schema, N, GaussianDP(0.3), columns="age", by="region")


def test_summaries_fold_empty_and_noisy_levels():
    """A bound far above all values gives a long tail of bins, and hides correlations."""
    rng = np.random.default_rng(0)
    wide = {"type": "numeric", "low": 0, "high": 1000}
    facts = {"columns": {"a": wide, "b": wide, "c": wide | {"high": 2}}, "provenance": "made up"}
    table = {name: rng.uniform(0.1, 2.0, 5000) for name in "abc"}
    seen = describe(table, facts, epsilon=0.2, correlations=True, bins={"a": 10}, random_state=0)
    lines = seen.summary().splitlines()
    bins = [line.split("  ")[1] for line in lines[lines.index("a") + 3 : lines.index("b") - 1]]
    assert bins[:2] == ["0 to 100", "100 to 200"]
    assert bins[2].startswith("and 12 more, each at most")
    assert lines[-1].startswith("  3 more cannot be estimated at this budget")
    column = lines[lines.index("c") :]
    assert any(line.startswith("  and 4 more") or "(below 0, " in line for line in column)
    assert two_digits(-0.001) == "0.00"


AMOUNT = {"type": "numeric", "low": 0, "high": 10, "missing": 5}


def _mostly_missing(present, seed):
    facts = {"columns": {"a": AMOUNT}, "provenance": "made up"}
    cells = np.concatenate([present, np.full(1000 - len(present), np.nan)])
    return describe({"a": cells}, facts, epsilon=1.0, random_state=seed)


def test_columns_that_may_be_all_missing_have_no_mean():
    """A standard deviation of 0 [0, 0] is wrong if noise dominates the counts."""
    said = [_mostly_missing(np.empty(0), seed) for seed in range(40)]
    silent = [one for one in said if one["a"].mean is None]
    assert len(silent) >= 38
    one = silent[0]
    assert one["a"].spread is one["a"].ranks is None
    assert one["a"].quantiles == {}
    assert "too few values to estimate them" in one.summary()
    assert "mean" not in one.to_dict()["columns"]["a"]
    assert one.schema() == one.part.schema
    with pytest.raises(ValueError, match="values cannot be distinguished from zero"):
        one["a"].quantile(0.5)


@pytest.mark.parametrize("share", [0.02, 0.05, 0.1])
def test_standard_deviations_of_few_values_are_covered(share):
    """Values near a bound: the largest possible variance is itself only known with noise."""
    rng, repeats = np.random.default_rng(0), 80
    values = np.where(rng.uniform(size=round(1000 * share)) < 0.9, 9.9, 5.0)
    found = [_mostly_missing(values, seed)["a"] for seed in range(repeats)]
    said = [one for one in found if one.mean is not None]
    assert len(said) > 0.8 * repeats
    for true, numbers in (
        (values.std(), [one.spread for one in said]),
        (values.mean(), [one.mean for one in said]),
    ):
        assert np.mean([one.low <= true <= one.high for one in numbers]) > 0.86


def test_columns_of_log_scale_have_bins_of_log_scale():
    rng = np.random.default_rng(0)
    amounts = np.exp(rng.normal(4.0, 1.5, 4000))
    facts = {
        "columns": {
            "one": {"type": "numeric", "low": 1, "high": 1e6, "scale": "log"},
            "zero": {"type": "numeric", "low": 0, "high": 1e6, "scale": "log"},
        },
        "provenance": "made up",
    }
    seen = describe({"one": amounts, "zero": amounts}, facts, epsilon=1.0, random_state=0)
    ratios = np.diff(np.log(seen["one"].column.edges))
    assert ratios.max() < 3.0 * ratios.min()
    assert seen["zero"].column.edges[:3] == (0.0, 10_000.0, 20_000.0)
    median = seen["one"].quantiles[0.5]
    assert median.low <= np.median(amounts) <= median.high < 2.0 * median.low
    given = describe({"one": amounts}, facts, columns=["one"], bins={"one": 6}, random_state=0)
    assert given["one"].column.edges == (1.0, 10.0, 100.0, 1000.0, 10_000.0, 100_000.0, 1e6)


def test_groups_that_may_be_empty_take_one_line():
    levels = [f"level {place}" for place in range(30)]
    facts = {
        "columns": {"a": AMOUNT, "g": {"type": "categorical", "categories": levels}},
        "provenance": "made up",
    }
    table = {"a": np.linspace(0, 10, 2000), "g": ["level 0", "level 1"] * 1000}
    seen = describe(table, facts, epsilon=1.0, by="g", random_state=0)
    lines = seen.summary().splitlines()
    assert len(lines) < 80
    assert [line.split(":")[0] for line in lines if line.startswith("==")][:2] == [
        "== level 0",
        "== level 1",
    ]
    assert lines[-1].startswith("Levels that may be empty, with at most ")
    assert set(seen.by_level) == {*levels, "not listed", "missing"}
