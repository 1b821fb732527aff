"""No row moves a release by more than was declared: all solvers, steps and data."""

from __future__ import annotations

import dataclasses
import functools
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle import choices as coordinates
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SeededNoise, additive
from dpglm.privacy.releases import Curator
from dpglm.problem import Logistic, Problem, Squared, Target
from dpglm.solvers import NewtonRaphson, run
from dpglm.solvers.second_order.newton import NewtonMethod
from tests.laws.budgets import examples
from tests.laws.test_solver_laws import PROBLEMS, SOLVERS, Case
from tests.laws.transcripts import Transcript, excess, listening
from tests.planted import unclipped
from tests.slowly import slowly

MOST_ASKED = 5
"""Questions of each run that are compared; later ones are like these."""

# Examples begin with, and shrink to, the first of each list.
HUGE = (1e30, 1e6, 1.0, 5e-324, 1e-30, 0.0)


@dataclasses.dataclass(frozen=True)
class World:
    """Public facts, and how to make two neighbours that they hold for."""

    adjacency: Adjacency
    n: int
    d: int
    position: int
    row_norm: float
    intercept: float
    layout: str
    dtype: str
    weighted: bool
    weight_bound: float
    row: float
    others: float
    target: float
    turned: bool
    reach: float
    seed: int

    def spec(self, problem):
        real = problem.loss.target in (Target.REAL, Target.COUNT)
        return DataSpec(
            n_rows=self.n,
            n_features=self.d,
            n_outputs=3 if problem.loss.target is Target.CLASS else 1,
            row_norm=self.row_norm,
            intercept=self.intercept * self.row_norm,
            dtype=self.dtype,
            sparse=self.layout == "csr",
            weight_bound=self.weight_bound,
            target_low=0.0 if real else -np.inf,
            target_high=1.0 if real else np.inf,
        )

    def tables(self, problem):
        """Two neighbours: rows, targets, weights."""
        rng = np.random.default_rng(self.seed)
        X = rng.normal(size=(self.n, self.d)) * self.others * self.row_norm
        row = rng.choice([-1.0, 1.0], self.d) * self.row
        y, own, opposite = self._targets(problem, rng)
        weights = rng.uniform(0.0, self.weight_bound, self.n)
        X[self.position], y[self.position], weights[self.position] = row, own, self.weight_bound
        other = X.copy(), y.copy(), weights.copy()
        if self.adjacency is Adjacency.REPLACE_ONE:
            other[0][self.position] = rng.choice([-1.0, 1.0], self.d) * self.row
            other[1][self.position] = opposite if self.turned else own
        elif self.adjacency is Adjacency.ZERO_OUT:
            other[2][self.position] = 0.0
        else:
            other = tuple(np.delete(values, self.position, axis=0) for values in other)
        return (X, y, weights), other

    def _targets(self, problem, rng):
        target = problem.loss.target
        if target is Target.BINARY:
            return rng.choice([-1.0, 1.0], self.n), 1.0, -1.0
        if target is Target.CLASS:
            return rng.integers(0, 3, self.n), 2, 0
        return rng.uniform(0.0, 1.0, self.n), float(self.target >= 0.5), float(self.target < 0.5)

    def rows(self, table, spec):
        X, y, weights = table
        with np.errstate(over="ignore", under="ignore"):
            X = np.nan_to_num(X.astype(self.dtype), posinf=1e38, neginf=-1e38)
        stored = sparse.csr_array(X) if self.layout == "csr" else np.asarray(X, order=self.layout)
        weighted = self.weighted or self.adjacency is Adjacency.ZERO_OUT
        return prepare_rows(stored, y, spec, weights=weights if weighted else None)


@st.composite
def worlds(draw, case):
    """The relations and types that one solver accepts."""
    relations = [one for one in Adjacency if one.n_is_public or not case.needs_public_n]
    adjacency = draw(st.sampled_from(relations[::-1]))
    layout = draw(st.sampled_from(["C", "csr", "F"]))
    exact = case.solver.needs_float64(Problem(Logistic()), ApproximateDP(1.0, 1e-5)) or (
        layout != "csr" and not adjacency.n_is_public
    )
    n = draw(st.sampled_from([130, 3, 65, 64] if case.needs_public_n else [65, 1, 2, 130, 3]))
    return World(
        adjacency=adjacency,
        n=n,
        d=draw(st.sampled_from([3, 1, 2])),
        position=draw(st.integers(0, n - 1)),
        row_norm=draw(st.sampled_from([1.0, 0.01, 100.0, 1e-6, 1e6])),
        intercept=draw(st.sampled_from([1.0, 1.0, 0.0])),
        layout=layout,
        dtype="float64" if exact else draw(st.sampled_from(["float32", "float64"])),
        weighted=draw(st.booleans()),
        weight_bound=draw(st.sampled_from([1.0, 0.1, 3.0])),
        row=draw(st.sampled_from(HUGE)),
        others=draw(st.sampled_from([1.0, *HUGE])),
        target=draw(st.sampled_from([0.0, 1.0])),
        turned=draw(st.booleans()),
        reach=draw(st.sampled_from([1e4, 1.0])),
        seed=draw(st.integers(0, 2**16)),
    )


@functools.lru_cache(maxsize=512)
def planned(solver, problem, spec, adjacency, epsilon):
    """The plan, or why there is none."""
    try:
        return solver.plan(problem, ApproximateDP(epsilon, 1e-3), spec, adjacency)
    except ValueError as refused:
        return str(refused)


def listened(plan, rows, world, earlier=None) -> Transcript:
    where = {"missing": world.position, "n": world.n}
    with listening(earlier, most=MOST_ASKED, reach=world.reach, **where) as seen:
        run(plan, rows, SeededNoise(world.seed))
    return seen


def farthest(solver, problem, world, epsilon=5.0):
    """Largest move of a release by the row, over its bound."""
    spec = world.spec(problem)
    plan = planned(solver, problem, spec, world.adjacency, epsilon)
    if isinstance(plan, str):
        return 0.0
    one, other = (world.rows(table, spec) for table in world.tables(problem))
    first = listened(plan, one, world)
    return excess(first, listened(plan, other, world, first))


@pytest.mark.parametrize("name", SOLVERS)
@examples(2)
@given(data=st.data())
def test_rows_move_solver_releases_within_bounds(name, data):
    case = SOLVERS[name]
    problem = data.draw(st.sampled_from([one for one in PROBLEMS if case.takes(one)]))
    assert farthest(case.solver, problem, data.draw(worlds(case))) <= 1.0


# The law can fail.

PLAIN = World(
    adjacency=Adjacency.REPLACE_ONE,
    n=65,
    d=3,
    position=64,
    row_norm=1.0,
    intercept=1.0,
    layout="C",
    dtype="float64",
    weighted=False,
    weight_bound=1.0,
    row=1e30,
    others=1.0,
    target=1.0,
    turned=False,
    reach=1e4,
    seed=0,
)


def half_the_noise(name):
    """Scales of half the right size."""
    honest = getattr(additive, name)

    def planted(*args):
        scale = honest(*args)
        return dataclasses.replace(scale, std=0.5 * scale.std)

    return mock.patch.object(additive, name, planted)


def no_factor_of_two():
    return mock.patch.object(Adjacency, "sum_sensitivity", lambda self, bound, *_: bound)


def a_smaller_score_bound():
    honest = coordinates.largest_entry
    return mock.patch.object(coordinates, "largest_entry", lambda data: 0.2 * honest(data))


BUGS = {
    "no clipping": (unclipped, "noisy_gd"),
    "half the noise": (functools.partial(half_the_noise, "noise_scale"), "noisy_gd"),
    "half the noise of a pure release": (
        functools.partial(half_the_noise, "noise_scale"),
        "pure_gd",
    ),
    "replace-one taken for zero-out": (no_factor_of_two, "sufficient_statistics"),
    "too little for a choice": (a_smaller_score_bound, "frank_wolfe"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bugs_break_the_law(bug):
    plant, name = BUGS[bug]
    case = SOLVERS[name]
    problem = next(one for one in PROBLEMS if case.takes(one) and one.loss == Squared())
    worlds = [dataclasses.replace(PLAIN, seed=seed) for seed in range(5)]

    def worst():
        planned.cache_clear()
        return max(farthest(case.solver, problem, world) for world in worlds)

    assert 0.3 < worst() <= 1.0
    with plant():
        assert worst() > 1.0
    planned.cache_clear()


def as_planned(declared):
    """A release without its stage, and without bounds that shrink during a run."""
    own = dataclasses.replace(declared, quantity=declared.quantity.split(": ")[-1])
    if own.quantity == "gradient difference sum":
        return dataclasses.replace(own, contribution_bound=0.0, rounding=0.0, magnitude=0.0)
    return own


LISTENED = {**SOLVERS, "newton_raphson": Case(NewtonRaphson())}


def told(name, most=40, epsilon=1.0):
    """Return the plan of a solver, with results and transcripts of runs on two neighbours."""
    case, world = LISTENED[name], dataclasses.replace(PLAIN, n=130, turned=True)
    problem = next(one for one in PROBLEMS if case.takes(one))
    spec = world.spec(problem)
    plan = case.solver.plan(problem, ApproximateDP(epsilon, 1e-3), spec, world.adjacency)
    found, seen = [], None
    for table in world.tables(problem):
        with listening(seen, most=most, missing=world.position, n=world.n) as seen:
            found.append(run(plan, world.rows(table, spec), SeededNoise(0)).w)
    return plan, found, seen


def unplanned(name):
    """Return the releases of a run that were not planned, or whose noise was too small."""
    plan, _, seen = told(name)
    assert seen.asked
    releases = {as_planned(one) for one in plan.method.releases}
    return [
        one.declared
        for one in seen.asked
        if as_planned(one.declared) not in releases
        or np.max(one.made_for) < one.declared.sensitivity * (1.0 - 1e-9)
    ]


@pytest.mark.parametrize("name", LISTENED)
def test_solver_releases_are_planned_releases(name):
    assert not unplanned(name)


def leaks(name):
    """Whether results on neighbours differ although all their releases are the same."""
    _, (one, other), _ = told(name, most=10**9, epsilon=20.0)
    return not np.array_equal(one, other)


# Others take hundreds of steps.
SHORT = ("newton", "newton_raphson", "sufficient_statistics", "prototypes", "pure_gd", "svrg")


@pytest.mark.parametrize("name", [*SHORT, *slowly([one for one in SOLVERS if one not in SHORT])])
def test_results_depend_on_releases_only(name):
    assert not leaks(name)


def test_results_that_depend_on_unreleased_values_break_the_law(monkeypatch):
    step = NewtonMethod.step

    def planted(self, state, oracle):
        after, info = step(self, state, oracle)
        (block,) = oracle.rows.blocks()
        return dataclasses.replace(after, w=after.w + 1e-9 * block.targets[64]), info

    monkeypatch.setattr(NewtonMethod, "step", planted)
    assert leaks("newton")


@pytest.mark.parametrize("change", [{"diameter": 1.0}, {"contribution_bound": 5.0}], ids=str)
@pytest.mark.parametrize("name", ["johnson_lindenstrauss", "accelerated_mirror_descent", "newton"])
def test_release_of_another_declaration_breaks_the_law(name, change):
    release = Curator.release

    def other(self, declared, value):
        value = dataclasses.replace(value, contribution_bound=0.0)
        return release(self, dataclasses.replace(declared, **change), value)

    with mock.patch.object(Curator, "release", other):
        assert unplanned(name)


def test_there_is_one_way_to_release():
    assert [name for name in vars(Curator) if name.startswith("release")] == ["release"]
