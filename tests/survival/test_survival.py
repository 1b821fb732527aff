"""Survival curves: those of the rows without noise, and bands that cover with it."""

import dataclasses
import itertools

import numpy as np
import pytest

import dpglm
from dpglm import LogisticRegression
from dpglm.certificate.verify import verify
from dpglm.privacy import GaussianDP
from dpglm.survival import kaplan_meier, person_period, survival_curve

CUTS = [0.0, 6.0, 12.0, 24.0, 36.0, 48.0]
SCHEMA = {
    "columns": {
        "months": {"type": "numeric", "low": 0, "high": 60},
        "arm": {"type": "categorical", "categories": ["old", "new"]},
    },
    "target": {"name": "died", "type": "binary", "classes": [0, 1]},
    "provenance": "made up",
}
MEAN = {"old": 30.0, "new": 45.0}


def made(seed=0, n=4000):
    rng = np.random.default_rng(seed)
    arm = np.where(rng.random(n) < 0.5, "new", "old")
    death = rng.exponential(np.where(arm == "new", MEAN["new"], MEAN["old"]))
    end = np.minimum(rng.exponential(90.0, n), 60.0)
    return {
        "months": np.minimum(death, end),
        "died": (death <= end).astype(int),
        "arm": arm,
    }


def actuarial(months, died):
    """The life table, by its definition."""
    survival = [1.0]
    for low, high in itertools.pairwise(CUTS):
        entered = (months > low).sum()
        events = ((months > low) & (months <= high) & (died == 1)).sum()
        lost = ((months > low) & (months <= high) & (died == 0)).sum()
        survival.append(survival[-1] * (1.0 - events / (entered - 0.5 * lost)))
    return np.array(survival)


def test_curve_without_noise_is_the_life_table():
    table = made()
    found = kaplan_meier(
        table,
        SCHEMA,
        time="months",
        event="died",
        cuts=CUTS,
        by="arm",
        budget=GaussianDP(1e4),
        random_state=0,
    )
    for level in ("old", "new"):
        own = table["arm"] == level
        wanted = actuarial(table["months"][own], table["died"][own])
        assert np.allclose(found.curve(level).survival, wanted, atol=1e-3)
    assert verify(found.privacy_).findings == ()
    with pytest.raises(ValueError, match="level must be one of old, new"):
        found.curve()


def coverage(runs, spoil=lambda found: found):
    covered = []
    for seed in range(runs):
        found = spoil(
            kaplan_meier(
                made(seed, 1500),
                SCHEMA,
                time="months",
                event="died",
                cuts=CUTS,
                by="arm",
                epsilon=0.3,
                random_state=seed,
            )
        )
        for level, mean in MEAN.items():
            curve = found.curve(level)
            truth = np.exp(-np.array(CUTS) / mean)
            covered.append(((curve.low <= truth) & (truth <= curve.high)).all())
    return float(np.mean(covered))


def test_simultaneous_bands_cover_and_forgotten_noise_does_not():
    assert 0.9 <= coverage(60) <= 1.0
    assert coverage(60, lambda found: dataclasses.replace(found, noise_std=0.0)) < 0.87


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove", "replace_one"])
def test_cost_of_curves_is_the_budget(adjacency):
    size = {"n_rows": 500} if adjacency == "add_remove" else {}
    found = kaplan_meier(
        made(0, 500),
        SCHEMA,
        time="months",
        event="died",
        cuts=CUTS,
        adjacency=adjacency,
        budget=GaussianDP(0.5),
        random_state=0,
        **size,
    )
    (release,) = found.privacy_.releases
    (scale,) = found.privacy_.noise_scales
    wanted = np.sqrt(2.0) if adjacency == "replace_one" else 1.0
    assert release.sensitivity == pytest.approx(wanted, rel=1e-2)
    assert scale >= release.sensitivity / 0.5 * (1.0 - 1e-9)


def test_periods_have_the_same_rows_for_every_person():
    table = made(0, 50)
    periods = person_period(table, SCHEMA, time="months", event="died", cuts=CUTS)
    assert len(periods.persons) == 50 * 5
    assert (np.bincount(periods.persons) == 5).all()
    for person in range(50):
        rows = periods.persons == person
        months, died = table["months"][person], table["died"][person]
        whole = sum(months >= high for high in CUTS[1:])
        partly = bool(died and months <= CUTS[-1] and whole < 5)
        assert periods.at_risk[rows].sum() == whole + partly
        assert periods.table["died"][rows].sum() == (died and months <= CUTS[-1])


def test_first_cut_is_the_begin_of_observation():
    table = {"months": [2.0, 6.0, 6.0, 7.0, 12.0], "died": [1, 1, 0, 1, 1], "arm": ["old"] * 5}
    periods = person_period(table, SCHEMA, time="months", event="died", cuts=[6.0, 12.0, 24.0])
    counted = periods.at_risk.reshape(5, 2)
    assert counted.tolist() == [[False] * 2, [True, False], [False] * 2, *[[True, False]] * 2]
    assert periods.table["died"].reshape(5, 2)[:, 0].tolist() == [0, 1, 0, 1, 1]
    found = kaplan_meier(
        table,
        SCHEMA,
        time="months",
        event="died",
        cuts=[6.0, 12.0, 24.0],
        budget=GaussianDP(1e4),
        random_state=0,
    )
    assert np.allclose(found.counts[0], [[1.0, 3.0], [0.0, 0.0], [0.0, 0.0]], atol=1e-2)


def test_hazard_regression_gives_the_survival_of_an_arm():
    periods = person_period(made(1), SCHEMA, time="months", event="died", cuts=CUTS)
    model = dpglm.from_formula(
        "died ~ interval + arm",
        periods.schema,
        LogisticRegression(C=np.inf, inference=True),
        epsilon=8.0,
        max_rows_per_group=5,
        random_state=0,
    )
    model.fit(periods.table, **periods.fit_arguments())
    for arm, mean in MEAN.items():
        curve = survival_curve(model, CUTS, {"arm": arm})
        truth = np.exp(-np.array(CUTS) / mean)
        assert (curve.low - 0.03 <= truth).all()
        assert (truth <= curve.high + 0.03).all()
        assert (np.diff(curve.survival) < 0.0).all()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("time", "arm"),
        ("time", "q"),
        ("event", "arm"),
        ("cuts", [1.0]),
        ("cuts", [2.0, 1.0]),
        ("by", "months"),
        ("adjacency", "none"),
        ("epsilon", -1.0),
    ],
)
def test_wrong_argument_is_named(argument, value):
    good = {"time": "months", "event": "died", "cuts": CUTS}
    with pytest.raises(ValueError, match=argument):
        kaplan_meier(made(0, 20), SCHEMA, **{**good, argument: value})
