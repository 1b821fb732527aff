"""Comparisons of private results: index and drifts, with the noise of both."""

import dataclasses
import json

import numpy as np
import pytest

from dpglm import LogisticRegression, describe, evaluate
from dpglm.report import monitoring
from dpglm.report.monitoring import compare, stability
from dpglm.tables.schema import Schema
from dpglm.tabulate import normal_quantile

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "job": {"type": "categorical", "categories": ["a", "b", "c"]},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up",
    }
)
BASE = np.array([0.02, 0.05, 0.1, 0.15, 0.2, 0.2, 0.13, 0.1, 0.04, 0.01])


def rows(seed, mean=50.0, shift=0.0, n=4000):
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(mean, 15.0, n), 0.0, 100.0)
    ill = rng.random(n) < 1 / (1 + np.exp((50.0 - age) / 10.0 - shift))
    return {"age": age, "job": rng.choice(["a", "b", "c"], n), "ill": np.where(ill, "yes", "no")}


def described(table, epsilon=1.0, **options):
    return describe(table, SCHEMA, epsilon=epsilon, **options)


def tilted(strength):
    shares = BASE * np.exp(strength * np.linspace(-1.0, 1.0, 10))
    return shares / shares.sum()


def coverage(strength, n, sigma, trials, known=1.0):
    """Return how often intervals of 95 % cover; ``known`` is the share of the noise they count."""
    rng = np.random.default_rng(3)
    both = BASE, tilted(strength)
    truth = float(np.sum((both[1] - both[0]) * np.log(both[1] / both[0])))
    covered = 0
    for _ in range(trials):
        found = []
        for shares in both:
            counts = rng.multinomial(n, shares) + rng.normal(0.0, sigma, 10)
            seen = np.maximum(counts, 0.0) / np.maximum(counts, 0.0).sum()
            std = np.sqrt((known * sigma / n) ** 2 + seen * (1.0 - seen) / n)
            found.append((seen, std))
        seen, std = (np.stack(one) for one in zip(*found, strict=True))
        index, _ = stability(seen, std, 0.05)
        covered += index.low <= truth <= index.high
    return covered / trials


class TestIndex:
    @pytest.mark.parametrize("strength", [0.0, 0.3, 0.6])
    @pytest.mark.parametrize(("n", "sigma"), [(2000, 30.0), (20_000, 5.0)])
    def test_intervals_cover_the_index(self, strength, n, sigma):
        assert coverage(strength, n, sigma, 150) >= 0.9

    def test_intervals_that_forget_the_noise_do_not_cover(self):
        assert coverage(0.0, 2000, 60.0, 60, known=0.0) < 0.5

    def test_intervals_of_too_few_cells_do_not_cover(self, monkeypatch):
        monkeypatch.setattr(monitoring, "_LEAST_CLEAR", 15.0)
        assert coverage(0.6, 2000, 30.0, 60) < 0.8

    def test_without_noise_it_is_the_formula(self):
        both = np.stack([BASE, tilted(0.5)])
        index, n_cells = stability(both, np.full((2, 10), 1e-9), 0.05)
        truth = np.sum((both[1] - both[0]) * np.log(both[1] / both[0]))
        assert (index.low, index.high) == pytest.approx((truth, truth), rel=1e-5)
        assert n_cells == 10

    def test_equal_shares_give_zero(self):
        index, _ = stability(np.stack([BASE, BASE]), np.full((2, 10), 0.01), 0.05)
        assert index.estimate == index.low == 0.0 < index.high

    @pytest.mark.slow
    def test_intervals_of_descriptions_cover(self):
        """The truth is that of two large samples, in the cells of the description."""
        edges = [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        shares = []
        for mean in (50.0, 58.0):
            counts = np.histogram(rows(99, mean, n=2_000_000)["age"], edges)[0]
            shares.append(counts / counts.sum())
        truth = float(np.sum((shares[1] - shares[0]) * np.log(shares[1] / shares[0])))
        covered = 0
        for seed in range(60):
            results = [
                described(rows(2 * seed + i, mean, n=1500), 0.3, bins={"age": edges})
                for i, mean in enumerate((50.0, 58.0))
            ]
            index = compare(*results).shifts[0].index
            covered += index.low <= truth <= index.high
        assert covered >= 53


class TestDescriptions:
    def test_verdicts_follow_the_intervals(self):
        stored = described(rows(0), 2.0)
        same = compare(stored, described(rows(1), 2.0))
        moved = compare(stored, described(rows(2, mean=75.0), 2.0))
        assert {one.column: one.verdict for one in same.shifts} == dict.fromkeys(
            ("age", "job", "ill"), "stable"
        )
        assert moved.shifts[0].verdict == "shifted"
        assert moved.shifts[1].verdict == "stable"
        assert "shifted" in str(moved)
        index = dataclasses.replace(moved.shifts[0].index, low=0.2)
        assert dataclasses.replace(moved.shifts[0], index=index).verdict == "unclear"

    def test_other_cells_name_the_remedy(self):
        stored, new = described(rows(0), bins={"age": 8}), described(rows(1), bins={"age": 4})
        with pytest.raises(ValueError, match=r"--bins age=4"):
            compare(new, stored)


@pytest.fixture(scope="module")
def model():
    options = {"classes": ["no", "yes"], "feature_bounds": ([0.0], [100.0]), "epsilon": 20.0}
    table = rows(7, n=8000)
    return LogisticRegression(**options, delta=1e-6).fit(table["age"][:, np.newaxis], table["ill"])


def evaluated(model, table, **options):
    options = {"epsilon": 1.0, "delta": 1e-6} | options
    return evaluate(model, table["age"][:, np.newaxis], table["ill"], **options)


class TestEvaluations:
    def test_changed_calibration_is_clear(self, model):
        stored = evaluated(model, rows(0))
        found = compare(stored, evaluated(model, rows(1, shift=0.8)))
        drifts = {one.metric: one for one in found.drifts}
        change = drifts["calibration intercept"].change
        assert change.population_low < 0.8 < change.population_high
        assert drifts["calibration intercept"].is_clear
        assert not drifts["calibration slope"].is_clear
        same = {one.metric: one for one in compare(stored, evaluated(model, rows(2))).drifts}
        assert not same["calibration intercept"].is_clear

    def test_widths_add_in_squares(self, model):
        first, last = evaluated(model, rows(0)), evaluated(model, rows(1), epsilon=0.2)
        found = {one.metric: one.change for one in compare(first, last).drifts}["auc"]
        ends = [one.number("auc") for one in (first, last)]
        for low, high in (("low", "high"), ("population_low", "population_high")):
            halves = [0.5 * (getattr(one, high) - getattr(one, low)) for one in ends]
            half = 0.5 * (getattr(found, high) - getattr(found, low))
            assert half == pytest.approx(np.hypot(*halves), rel=1e-6)

    def test_levels_of_both_results_count(self, model):
        first, last = evaluated(model, rows(0)), evaluated(model, rows(1))
        wide = {one.metric: one.change for one in compare(first.with_level(0.5), last).drifts}
        same = {one.metric: one.change for one in compare(first, last).drifts}
        assert wide["auc"].population_low == pytest.approx(same["auc"].population_low, rel=0.1)
        assert normal_quantile(0.5) < normal_quantile(0.95)


class TestSources:
    def test_files_and_folders_are_read(self, model, tmp_path):
        results = {}
        for name, seed in (("before", 0), ("after", 1)):
            folder = tmp_path / name
            folder.mkdir()
            results[name] = described(rows(seed)), evaluated(model, rows(seed))
            for kind, one in zip(("description", "evaluation"), results[name], strict=True):
                (folder / f"{kind}.json").write_text(json.dumps(one.to_dict()))
        both = compare(tmp_path / "before", tmp_path / "after")
        assert both.shifts == compare(results["before"][0], results["after"][0]).shifts
        assert both.drifts == compare(results["before"][1], results["after"][1]).drifts
        assert len(both.costs) == 4
        file = "evaluation.json"
        one = compare(tmp_path / "before" / file, (tmp_path / "after" / file).as_posix())
        assert one.drifts == both.drifts
        assert json.loads(json.dumps(both.to_dict()))["shifts"][0]["column"] == "age"

    def test_different_kinds_are_refused(self, model):
        with pytest.raises(ValueError, match="two descriptions of all rows, or two evaluations"):
            compare(described(rows(0)), evaluated(model, rows(0)))

    def test_page_escapes_names_and_shows_both(self, model, tmp_path):
        found = compare(described(rows(0)), described(rows(1)))
        odd = dataclasses.replace(found.shifts[0], column="<script>")
        found = dataclasses.replace(found, shifts=(odd, *found.shifts[1:]))
        drifts = compare(evaluated(model, rows(0)), evaluated(model, rows(1))).drifts
        dataclasses.replace(found, drifts=drifts).to_html(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text()
        assert "<script>" not in page
        assert "&lt;script&gt;" in page
        assert "calibration slope" in page
        assert "no privacy cost" in page
