"""Differences between levels in units of spread, and spreads that agree with the histogram."""

import numpy as np
import pytest

import dpglm
from dpglm.privacy import GaussianDP
from dpglm.tabulate import Number

N = 6000
SCHEMA = {
    "columns": {
        "a": {"type": "numeric", "low": 0, "high": 100},
        "far": {"type": "numeric", "low": 0, "high": 1000},
        "c": {"type": "categorical", "categories": ["p", "q", "r"]},
        "g": {"type": "categorical", "categories": ["one", "two"]},
    },
    "provenance": "made up",
}


def made(seed=0):
    rng = np.random.default_rng(seed)
    g = np.where(rng.random(N) < 0.4, "one", "two")
    return {
        "a": np.clip(rng.normal(50.0 + 6.0 * (g == "one"), 10.0), 0.0, 100.0),
        "far": rng.gamma(2.0, 15.0, N),
        "c": rng.choice(["p", "q", "r"], N, p=[0.5, 0.3, 0.2]),
        "g": g,
    }


def test_differences_without_noise_are_those_of_the_rows():
    table = made()
    found = dpglm.describe(table, SCHEMA, by="g", budget=GaussianDP(1e5), random_state=0)
    differences = found.standardized_differences("one", "two")
    a, b = (table["a"][table["g"] == level] for level in ("one", "two"))
    wanted = (a.mean() - b.mean()) / np.sqrt(0.5 * (a.var() + b.var()))
    assert differences["a"].estimate == pytest.approx(wanted, abs=2e-3)
    p, q = ((table["c"][table["g"] == level] == "q").mean() for level in ("one", "two"))
    share = (p - q) / np.sqrt(0.5 * (p * (1 - p) + q * (1 - q)))
    assert differences["c=q"].estimate == pytest.approx(share, abs=2e-3)
    with pytest.raises(ValueError, match="by must have the level 'three'"):
        found.standardized_differences("one", "three")


def test_interval_of_difference_covers_the_population():
    covered = []
    for seed in range(40):
        found = dpglm.describe(
            made(seed), SCHEMA, columns=["a", "c"], by="g", epsilon=0.5, random_state=seed
        )
        one = found.standardized_differences("one", "two")["a"]
        covered.append(one.population_low <= 0.6 <= one.population_high)
        assert one.low <= one.estimate <= one.high
    assert np.mean(covered) >= 0.85


def test_spread_follows_histogram_if_sums_are_noise():
    for seed in range(10):
        found = dpglm.describe(made(seed), SCHEMA, by="g", epsilon=0.3, random_state=seed)
        for level in ("one", "two"):
            spread = found.by_level[level].columns["far"].spread
            if spread is not None:
                assert 0.0 < spread.estimate <= spread.high


def test_numbers_are_printed_with_their_intervals():
    number = Number(0.123456, 0.1, 0.2, 0.05, 0.25)
    assert repr(number) == "0.12 (0.10 to 0.20), population 0.05 to 0.25"
    assert repr(Number(9979.0, 9979.0, 9979.0)) == "9979"
    found = dpglm.describe(made(), SCHEMA, by="g", epsilon=2.0, random_state=0)
    shown = str(found.standardized_differences("one", "two"))
    assert "estimate=" not in shown
    assert shown.count("population") == len(found.standardized_differences("one", "two"))
