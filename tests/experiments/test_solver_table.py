"""The comparison of solvers: its problems are solved, and its table has the measurements."""

import numpy as np
import pytest

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.problem import L2, Logistic, Problem
from dpglm.solvers import SOLVERS
from experiments import solver_table
from experiments.problems import PROBLEMS, Task, risk, solved_task


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, size=(800, 3))
    y = np.where(X @ [4.0, -4.0, 0.0] + rng.logistic(size=800) > 0.0, 1.0, -1.0)
    spec = DataSpec(400, 3, intercept=1.0)
    rows = [prepare_rows(X[part], y[part], spec) for part in (slice(400), slice(400, None))]

    def accuracy(y, z):
        return float((np.sign(z) == y).mean())

    return solved_task("tiny", Problem(Logistic(), L2(0.01)), *rows, accuracy, "accuracy")


def test_optimum_is_one(task):
    assert isinstance(task, Task)
    w = task.w
    for step in np.random.default_rng(1).normal(scale=0.01, size=(50, len(w))):
        assert risk(task.problem, task.train, w + step) >= task.optimum
    assert task.best_score > 0.6


def test_measures_excess_over_the_optimum_and_cost(task):
    result = solver_table.measure(task, "noisy_gd", 1e4, seeds=2)
    assert len(result.excess_risk) == len(result.score) == len(result.seconds) == 2
    assert 0.0 <= max(result.excess_risk) < 0.02
    assert result.gradient_evaluations_over_n >= 100
    # A solver that refuses the problem is left out.
    assert solver_table.measure(task, "sufficient_statistics", 1.0, seeds=1) is None


def test_table_is_sorted_by_excess_risk_at_epsilon_one(task):
    def made(solver, excess):
        return [
            solver_table.Result(
                task.name, solver, epsilon, [excess, excess], [0.5, 0.7], 3.0, [1.0]
            )
            for epsilon in solver_table.EPSILONS
        ]

    text = solver_table.section(task, made("worse", 0.2) + made("better", 0.1))
    anew = solver_table.section(task, made("worse", 0.05) + made("another", 0.3))
    both = solver_table.merged(text, anew)
    names = [one.split("`")[1] for one in both.splitlines() if one.startswith("| `")]
    assert names == ["worse", "better", "another"]
    assert both.startswith(text[: text.index("| `")])
    assert text.index("`better`") < text.index("`worse`")
    assert "0.1000 ± 0.0000" in text
    assert "0.600 ± 0.100" in text


def test_covers_every_name_and_four_problems():
    assert set(SOLVERS) - {"auto"} <= set(solver_table.CANDIDATES)
    assert len(PROBLEMS) == 4
