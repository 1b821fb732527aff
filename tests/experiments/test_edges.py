"""The table of default settings at the edges: its problems, its numbers and its verdicts."""

import dataclasses

import numpy as np
import pytest

from experiments import edges
from experiments.edges import Edge, Result

SMALL = Edge("LogisticRegression", 500, 5)


def test_lines_differ_and_cover_the_edges():
    lines = edges.edges()
    labels = [one.label for one in lines]
    assert len(set(labels)) == len(labels)
    assert {one.estimator for one in lines} == set(edges.ESTIMATORS)
    assert {500, 5000} == {one.n_rows for one in lines}
    assert {5, 100, 1000, 10_000} == {one.n_features for one in lines}
    assert {2, 10, 100} == {one.n_classes for one in lines}


@pytest.mark.parametrize(
    "edge",
    [
        SMALL,
        dataclasses.replace(SMALL, n_classes=3),
        dataclasses.replace(SMALL, columns="scales"),
        dataclasses.replace(SMALL, columns="sparse", n_features=300),
        Edge("LinearRegression", 500, 5, columns="heavy-tailed"),
        Edge("PoissonRegressor", 500, 5),
    ],
    ids=lambda edge: edge.label,
)
def test_without_noise_models_beat_the_zero_model(edge):
    result = edges.measure(edge, (50.0,), seeds=2)
    assert len(result.risks) == 1
    assert len(result.risks[0]) == len(result.scores[0]) == 2
    if edge.columns != "heavy-tailed":
        assert result.non_private < result.zero
        assert not edges.is_worse(result, 0)


@pytest.mark.parametrize("name", edges.ESTIMATORS)
def test_models_of_scikit_learn_see_the_same_rows(name):
    edge = dataclasses.replace(SMALL, estimator=name, columns="scales")
    X, y, facts = edges.generate(edge, 0)
    risk = edges._fit_reference(edge, X, y, facts)
    if name == "RobustClassifier":
        assert np.isnan(risk)
    else:
        assert risk < edges._constants(edge, y[:500], y[500:])[0] - 0.1


def test_classes_without_a_row_do_not_stop_the_reference():
    edge = dataclasses.replace(SMALL, n_classes=100)
    X, y, facts = edges.generate(edge, 0)
    y[:500] %= 50
    assert np.isfinite(edges._fit_reference(edge, X, y, facts))


def test_some_lines_are_printed_and_not_written(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["edges", "--only", "Ridge", "500", "| 5 |", "--seeds", "1"])
    monkeypatch.setattr(edges, "write", lambda text: pytest.fail("it was written"))
    edges.main()
    assert capsys.readouterr().out.count("`Ridge` | 500 | 5 |") == 1


def test_one_in_a_hundred_is_rare():
    _, y, _ = edges.generate(dataclasses.replace(SMALL, rare=0.01), 0)
    assert np.mean(y) == pytest.approx(0.01, abs=0.002)


def test_worse_than_zero_is_bold():
    better = Result(SMALL, 0.7, 0.7, 0.5, 0.5, [[0.69, 0.71]] * 5, [[0.5, 0.5]] * 5)
    worse = dataclasses.replace(better, risks=[[0.79, 0.8]] * 5)
    assert "**" not in edges.table([better])
    assert edges.table([worse]).count("**0.795**") == 5
    assert edges.is_worse(dataclasses.replace(better, risks=[[float("nan")]]), 0)
