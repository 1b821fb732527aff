"""The grid over norms plans each candidate on its own ball, whatever solver trains it."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from dpglm import Ridge
from dpglm.certificate import verify
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import Arora2022Lipschitz, Arora2022Smooth
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Hinge, L2Ball, Problem, Squared
from dpglm.selection import ConfidenceBoosting, NormGridSearch
from dpglm.solvers import SOLVERS, JohnsonLindenstrauss, OutputPerturbation, run
from tests.slowly import slowly

DATA = DataSpec(n_rows=240, n_features=3, intercept=1.0, target_low=-1.0, target_high=1.0)
PROBLEM = Problem(Squared(), penalize_intercept=True)
BUDGET = ApproximateDP(1.0, 1e-5)
BOUNDS = (0.5, 1.0, 4.0)
NEED_A_BALL = {
    "arora2022_smooth": Arora2022Smooth(n_steps=3),
    "arora2022_lipschitz": Arora2022Lipschitz(n_steps=3),
    "embedded": JohnsonLindenstrauss(2, gradient_descent=Arora2022Smooth(n_steps=3)),
}
# Theorem 8 of arora2022: a grid of boosted output perturbation.
BOOSTED = ConfidenceBoosting(OutputPerturbation(), n_models=2)
ALL = {**{name: make() for name, make in SOLVERS.items()}, **NEED_A_BALL, "boosted": BOOSTED}


def takes_a_ball(solver):
    try:
        solver.plan(dataclasses.replace(PROBLEM, constraint=L2Ball(1.0)), BUDGET, DATA)
    except ValueError:
        return False
    return True


TAKE_A_BALL = {name: solver for name, solver in ALL.items() if takes_a_ball(solver)}


RELATIONS = [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE]
# Each solver once; the other relation repeats its evidence.
PAIRS = list(zip(TAKE_A_BALL, itertools.cycle(RELATIONS), strict=False))
OTHERS = [pair for pair in itertools.product(TAKE_A_BALL, RELATIONS) if pair not in PAIRS]


@pytest.mark.parametrize(("name", "adjacency"), [*PAIRS, *slowly(OTHERS)])
def test_every_solver_with_a_ball_is_planned_and_runs(name, adjacency):
    plan = NormGridSearch(ALL[name], BOUNDS).plan(PROBLEM, BUDGET, DATA, adjacency)
    assert within_budget(plan.event, adjacency, BUDGET)
    assert [one.problem.constraint for one in plan.method.children] == list(map(L2Ball, BOUNDS))
    X = np.random.default_rng(0).normal(size=(240, 3))
    rows = prepare_rows(X / np.linalg.norm(X, axis=1)[:, None], np.clip(X[:, 0], -1, 1), DATA)
    assert np.isfinite(run(plan, rows, SeededNoise(1)).w).all()


def test_only_solvers_without_ball_are_left_out():
    # Prototypes are of classes only.
    left_out = {"frank_wolfe", "newton_raphson", "objective_perturbation", "prototypes"}
    assert {*ALL} - {*TAKE_A_BALL} == left_out


@pytest.mark.parametrize("name", NEED_A_BALL)
def test_solvers_that_need_a_ball_are_asked_about_nothing_else(name):
    with pytest.raises(ValueError, match="bounded"):
        ALL[name].plan(PROBLEM, BUDGET, DATA)
    method = NormGridSearch(ALL[name], BOUNDS).plan(PROBLEM, BUDGET, DATA).method
    clips = [getattr(one.method, "inner", one).method.clipping.bound for one in method.children]
    assert clips == sorted(clips)
    assert len(set(clips)) == len(BOUNDS)


def test_kinked_losses_too():
    plan = NormGridSearch(Arora2022Lipschitz(), BOUNDS).plan(
        Problem(Hinge()), BUDGET, DataSpec(n_rows=240, n_features=3)
    )
    assert len(plan.theorems) >= 1


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_theorem_8_of_arora2022_is_planned_run_and_verified(adjacency):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(600, 2))
    model = Ridge(
        epsilon=2.0,
        delta=1e-5,
        alpha=0.0,
        row_norm=math.sqrt(2.0),
        target_bounds=(-1.0, 1.0),
        penalize_intercept=True,
        adjacency=adjacency,
        solver=NormGridSearch(BOOSTED, BOUNDS, choice_fraction=0.5),
    ).fit(X, np.clip(X[:, 0], -1, 1))
    assert verify(model.privacy_).ok
    assert model.privacy_.epsilon <= 2.0
