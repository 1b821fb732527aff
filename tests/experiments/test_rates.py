"""The rate experiments: fits are right, bounds are ordered, the page has the measurements."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path

import numpy as np
import pytest

from experiments import arora2022_rates, hard_instances, rates, song2021_rates
from experiments.curves import Curve, write_csv

pytest.importorskip("matplotlib")

DOCS = Path(__file__).parent.parent.parent / "docs"
SIZES = np.array([100.0, 200.0, 400.0, 800.0])


def test_slopes_of_power_laws_and_their_errors():
    exact = Curve("", SIZES, np.outer(3.0 * SIZES**-0.7, np.ones(5)))
    assert exact.slope == pytest.approx((-0.7, 0.0))
    # The jackknife's error is the spread of the slope over repetitions of the experiment.
    rng = np.random.default_rng(0)
    noisy = [
        Curve("", SIZES, np.outer(SIZES**-1.0, np.ones(8)) * rng.gamma(20.0, 0.05, (4, 8))).slope
        for _ in range(300)
    ]
    slopes, errors = np.transpose(noisy)
    assert slopes.mean() == pytest.approx(-1.0, abs=0.02)
    assert np.mean(errors) == pytest.approx(slopes.std(), rel=0.2)


def test_optimum_in_a_ball_has_outward_gradient():
    task = arora2022_rates.low_task()
    X, y = task.sample(500, 0)
    assert np.linalg.norm(X, axis=1) == pytest.approx(1.0)
    assert np.abs(y).max() <= 1.0
    for radius in (0.1, 0.5, 100.0):
        w = arora2022_rates.best_in_ball(X, y, radius)
        gradient = X.T @ (X @ w - y) / 500
        if radius == 100.0:
            assert np.linalg.norm(gradient) < 1e-6
        else:
            assert np.linalg.norm(w) == pytest.approx(radius)
            assert gradient @ w == pytest.approx(-radius * np.linalg.norm(gradient))


def test_population_excess_is_the_mean_over_fresh_rows():
    task = arora2022_rates.low_task()
    w = task.truth + np.linspace(-0.5, 0.5, 10)
    X, y = task.sample(200_000, 1)
    losses = ((X @ w - y) ** 2 - (X @ task.truth - y) ** 2) / 2.0
    assert task.population_excess(w) == pytest.approx(losses.mean(), abs=4 * losses.std() / 447.0)


def test_song2021_rows_have_the_rank_and_the_norm_that_are_said():
    X, y = song2021_rates.sample(50, 8, 40, 0)
    assert X.shape == (50, 40)
    assert np.linalg.matrix_rank(X.toarray()) == 8
    assert np.linalg.norm(X.toarray(), axis=1) == pytest.approx(1.0)
    truth = np.zeros(40)
    truth[:8] = song2021_rates.NORM / math.sqrt(8)
    assert X @ truth == pytest.approx(y)


@pytest.mark.parametrize("name", rates.FIGURES)
def test_every_figure_is_measured_and_drawn(name, tmp_path):
    figure = rates.FIGURES[name]
    panels = figure.measure(True)
    curves = {(panel, curve.label): curve for panel, shown in panels for curve in shown}
    for curve in curves.values():
        assert curve.values.shape == (len(curve.x), curve.values.shape[1])
        assert np.isfinite(curve.values).all()
    assert {(claim.panel, claim.curve) for claim in figure.claims} <= set(curves)
    figure.draw(panels).savefig(tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").stat().st_size > 10_000
    write_csv(tmp_path / "figure.csv", panels)
    with (tmp_path / "figure.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == sum(len(curve.x) for curve in curves.values())


def test_measured_risk_is_between_the_floor_and_the_ceiling():
    for _, curves in hard_instances.measure(quick=True):
        by_label = {curve.label: curve.mean for curve in curves}
        assert (by_label[hard_instances.FLOOR] <= by_label[hard_instances.MEASURED]).all()
        assert (by_label[hard_instances.MEASURED] <= by_label[hard_instances.CEILING]).all()
        assert (by_label[hard_instances.FLOOR] <= by_label[hard_instances.ZERO]).all()


def means(name):
    """Contents of a figure's file of numbers: sizes and mean risks for each panel and curve."""
    found = {}
    with (DOCS / "figures" / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            sizes, risks = found.setdefault((row["panel"], row["curve"]), ([], []))
            sizes.append(float(row["x"]))
            risks.append(float(row["mean"]))
    return found


@pytest.mark.parametrize("name", rates.FIGURES)
def test_page_has_the_slopes_of_its_numbers(name):
    page = (DOCS / "evidence" / "papers.md").read_text()
    assert f"(../figures/{name}.svg)" in page
    assert f"(../figures/{name}.csv)" in page
    assert (DOCS / "figures" / f"{name}.svg").exists()
    numbers = means(name)
    lines = [line.split("|") for line in page.splitlines() if line.startswith(f"| {name} |")]
    assert len(lines) == len(rates.FIGURES[name].claims)
    for claim, line in zip(rates.FIGURES[name].claims, lines, strict=True):
        sizes, risks = numbers[claim.panel, claim.curve]
        slope = np.polyfit(np.log(sizes), np.log(risks), 1)[0]
        shown = float(re.match(r" *(-?[0-9.]+) ±", line[5]).group(1))
        assert shown == pytest.approx(slope, abs=0.006)


def test_figures_on_the_page_keep_their_promises():
    # Statements of the text about the numbers that the command wrote.
    low = means("arora2022_rates")
    for curve in ("noisy GD, empirical", "noisy GD, population"):
        sizes, risks = low[arora2022_rates.LOW, curve]
        assert -1.3 < np.polyfit(np.log(sizes), np.log(risks), 1)[0] < -0.8
    song = means("song2021_rates")
    _, flat = song["dimension", song2021_rates.FREE]
    _, growing = song["dimension", song2021_rates.BALL]
    assert max(flat) < 2.0 * min(flat)
    assert growing[-1] > 10.0 * growing[0]
    hard = means("hard_instances")
    for panel in ("rows", "epsilon"):
        _, below = hard[panel, hard_instances.FLOOR]
        _, measured = hard[panel, hard_instances.MEASURED]
        _, above = hard[panel, hard_instances.CEILING]
        assert all(a <= b <= c for a, b, c in zip(below, measured, above, strict=True))
