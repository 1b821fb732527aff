"""Settings of theorems about other solvers than noisy gradient descent, from their formulas."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dpglm.data.spec import DataSpec
from dpglm.papers import (
    Arora2022GridSearch,
    Arora2022OutputPerturbation,
    Arora2022Smooth,
    Song2021,
    Song2021NonConvex,
    Wang2017MirrorDescent,
    Wang2017SVRG,
    Wang2017SVRGPlusPlus,
    d2p2_theorems,
)
from dpglm.privacy import ApproximateDP
from dpglm.privacy.accounting.calibrate import within_budget
from dpglm.problem import L2, Hinge, L1Ball, L2Ball, Logistic, Problem, SmoothedHinge, Squared
from dpglm.solvers import (
    AcceleratedMirrorDescent,
    InverseSqrt,
    OutputPerturbation,
    RandomIterate,
    UniformAverage,
)

BUDGET = ApproximateDP(1.0, 1e-5)
MU = BUDGET.gdp_mu()
DATA = DataSpec(n_rows=1000, n_features=5, target_low=-1.0, target_high=1.0)
LOGISTIC = Problem(Logistic())


def planned(solver, problem, data=DATA):
    plan = solver.plan(problem, BUDGET, data)
    assert within_budget(plan.event, plan.adjacency, BUDGET)
    return plan


def test_theorem_3_2_of_song2021_runs_n_squared_steps():
    data = dataclasses.replace(DATA, n_rows=40)
    plan = planned(Song2021(rank=3, norm=2.0, population=True), LOGISTIC, data)
    T, s = 1600, 1.0 / (MU * 40)
    assert (plan.n_steps, plan.theorem.n_steps, plan.theorem.name) == (
        T,
        T,
        "song2021, Theorem 3.2",
    )

    def bound(eta):
        stability = 4.0 * eta * (math.sqrt(T) + T / 40)
        return 4.0 / (2 * eta * T) + eta * (1.0 + 3 * T * s**2) / 2 + stability

    best = min((bound(10.0**k), 10.0**k) for k in (-5 + j / 200 for j in range(1200)))[1]
    assert plan.method.step_sizes[0] == pytest.approx(best, rel=0.02)
    assert planned(Song2021(population=True), LOGISTIC).theorems[0].endswith("not claimed.")


def test_theorem_3_of_arora2022_takes_a_clip_that_never_binds():
    problem = Problem(Squared(), constraint=L2Ball(2.0))
    G, B, H = 3.0, 2.0, 1.0
    method = planned(Arora2022OutputPerturbation(), problem).method
    assert method.objective.clip == pytest.approx(G)
    strength = (2 * H) ** (1 / 3) * (G / (1000 * MU * B)) ** (2 / 3)
    assert method.objective.strength == pytest.approx(1000 * strength, rel=1e-6)
    # The default clips half of the slopes that count as large, so it is not the theorem's.
    assert planned(OutputPerturbation(), problem).method.objective.clip < 0.4 * G
    assert planned(OutputPerturbation(), problem).theorems == ()


def test_theorem_5_of_arora2022():
    problem = Problem(SmoothedHinge(0.05), constraint=L2Ball(2.0))
    plan = planned(Arora2022OutputPerturbation(lipschitz=True), problem)
    assert plan.theorem.name == "arora2022, Theorem 5"
    assert plan.method.objective.clip == pytest.approx(1.0)
    strength = math.sqrt(2.0 / (1000 * MU)) / 2.0
    assert plan.method.objective.strength == pytest.approx(1000 * strength, rel=1e-6)
    with pytest.raises(ValueError, match="SmoothedHinge"):
        planned(Arora2022OutputPerturbation(True), Problem(Hinge(), constraint=L2Ball(2.0)))


def test_the_grid_of_theorem_8_of_arora2022_does_not_depend_on_units():
    plan = planned(Arora2022GridSearch(), Problem(Squared()))
    radii = [one.problem.constraint.radius for one in plan.method.children]
    assert radii[0] == pytest.approx(2.0 * math.sqrt(0.5))
    assert len(radii) == math.ceil(math.log2(math.sqrt(1000)))
    assert plan.theorem.name == "arora2022, Theorem 8 (corrected)"
    longer = planned(
        Arora2022GridSearch(), Problem(Squared()), dataclasses.replace(DATA, row_norm=7.0)
    )
    again = [one.problem.constraint.radius for one in longer.method.children]
    assert again == pytest.approx([radius / 7.0 for radius in radii])
    other = planned(Arora2022GridSearch(Arora2022Smooth(n_steps=2)), Problem(Squared()))
    assert other.theorem.name == "arora2022, Theorem 7 (corrected)"


def test_theorem_5_4_of_wang2017_has_the_step_of_its_proof():
    problem = Problem(Logistic(), constraint=L1Ball(2.0))
    method = planned(Wang2017MirrorDescent(), problem).method
    # 1/L, where the default takes 2/L.
    assert method.step_sizes[0] == pytest.approx(4.0)
    default = planned(AcceleratedMirrorDescent(), problem).method
    assert default.step_sizes[0] == pytest.approx(8.0)
    same = planned(AcceleratedMirrorDescent(step_size=4.0, clip=method.clip), problem).method
    assert same.n_steps == method.n_steps


@pytest.mark.parametrize("strength", [0.02, 0.5])
def test_theorem_4_2_of_wang2017_meets_its_inequality(strength):
    plan = planned(Wang2017SVRG(), Problem(Logistic(), L2(strength)))
    method = plan.method
    L, m, eta = 0.25, method.lengths[0], method.step_size
    left = 1.0 / (eta * (1 - 8 * eta * L) * strength * m)
    left += 8 * L * eta * (m + 1) / (m * (1 - 8 * L * eta))
    assert left < 0.5
    needed = math.ceil(math.log2((1000 * MU) ** 2 / 10))
    assert plan.theorem.n_steps == m * needed
    assert plan.n_steps == m * min(needed, max(1, 20_000 // m))
    assert method.averaging == UniformAverage()
    with pytest.raises(ValueError, match="growth must be given"):
        planned(Wang2017SVRG(), LOGISTIC)


def test_theorem_4_4_of_wang2017():
    plan = planned(Wang2017SVRGPlusPlus(norm=2.0), LOGISTIC)
    first = max(2, math.ceil(0.25 * 4.0 / math.log(2.0)))
    needed = math.ceil(math.log2(1000 * MU / math.sqrt(5)))
    assert plan.method.step_size == pytest.approx(4.0 / 13.0)
    assert plan.method.lengths == tuple(first * 2**k for k in range(needed))
    assert plan.theorem.n_steps == plan.n_steps == first * (2**needed - 1)


@pytest.mark.parametrize(("convex", "output"), [(True, UniformAverage()), (False, RandomIterate())])
def test_theorems_2_and_3_of_d2p2(convex, output):
    solver = d2p2_theorems(25, 0.5, convex=convex)
    assert (solver.n_steps, solver.step_size, solver.output) == (25, 0.1, output)
    assert solver.normalize
    assert solver.projected
    assert solver.noise_schedule == InverseSqrt()
    assert set(planned(solver, LOGISTIC).method.step_sizes) == {0.1}


def test_epochs_that_no_run_could_take_are_refused():
    with pytest.raises(ValueError, match=r"growth must allow for epochs of at most 20000 steps"):
        planned(Wang2017SVRG(growth=1e-9), LOGISTIC)
    with pytest.raises(ValueError, match=r"norm must allow for epochs of at most 20000 steps"):
        planned(Wang2017SVRGPlusPlus(norm=1e9), LOGISTIC)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Arora2022GridSearch(failure=0.0), "failure"),
        (lambda: Song2021NonConvex(choice_share=1.0), "choice_share"),
        (lambda: Song2021NonConvex(rank=0), "rank"),
        (lambda: Wang2017SVRG(growth=-1.0), "growth"),
        (lambda: Wang2017SVRG(n_epochs=0), "n_epochs"),
        (lambda: Wang2017MirrorDescent(n_steps=0), "n_steps"),
    ],
)
def test_bad_settings_are_named(make, name):
    with pytest.raises(ValueError, match=name):
        make()
