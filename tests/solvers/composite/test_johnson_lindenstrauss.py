"""The Johnson-Lindenstrauss method: noisy gradient descent on embedded rows, and nothing else."""

from __future__ import annotations

import dataclasses
import math
from unittest import mock

import numpy as np
import pytest
from scipy import sparse

from dpglm.data.maps import (
    GaussianEmbedding,
    SparseEmbedding,
    embedded_rows,
    embedded_spec,
)
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.oracle.rounding import sum_rounding
from dpglm.privacy.budget import Adjacency, ApproximateDP, GaussianDP
from dpglm.privacy.events import Gaussian, LastIterate, Repeated
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L1,
    L2,
    Box,
    ElasticNetPenalty,
    GroupLasso,
    Hinge,
    L1Ball,
    L2Ball,
    Logistic,
    Poisson,
    Problem,
    Simplex,
    Softmax,
    Squared,
    Unconstrained,
)
from dpglm.selection.method import Candidate
from dpglm.selection.search import HeldOutSearch
from dpglm.solvers import Constant, FrankWolfe, JohnsonLindenstrauss, NoisyGD, run
from dpglm.solvers.composite import johnson_lindenstrauss as module
from dpglm.solvers.composite.johnson_lindenstrauss import balanced_dimension
from tests.audit.attack import released_sums
from tests.planted import not_shortened

BUDGET = ApproximateDP(1.0, 1e-5)
LOGISTIC = Problem(Logistic())
FEW = NoisyGD(n_steps=4, step_size=0.5, clip=0.5)


def make(n=80, d=40, *, n_outputs=1, layout="dense", dtype="float64", intercept=1.0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)
    y = rng.integers(0, 3, n) if n_outputs > 1 else rng.choice([-1.0, 1.0], n)
    spec = DataSpec(
        n_rows=n,
        n_features=d,
        n_outputs=n_outputs,
        intercept=intercept,
        dtype=dtype,
        sparse=layout == "csr",
    )
    stored = X.astype(dtype)
    return prepare_rows(sparse.csr_array(stored) if layout == "csr" else stored, y, spec), spec


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else matrix


# 1. The run.


@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("embedding", [SparseEmbedding(), GaussianEmbedding()], ids=repr)
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("intercept", [0.0, 1.0])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_it_is_noisy_gradient_descent_on_embedded_rows(
    layout, embedding, n_outputs, intercept, adjacency
):
    rows, spec = make(n_outputs=n_outputs, layout=layout, intercept=intercept)
    problem = Problem(Softmax() if n_outputs > 1 else Logistic(), L2(0.01))
    solver = JohnsonLindenstrauss(dimension=9, embedding=embedding, gradient_descent=FEW)
    plan = solver.plan(problem, BUDGET, spec, adjacency)
    got = run(plan, rows, SeededNoise(5))

    seed = int(SeededNoise(5).words(1)[0])
    matrix = embedding.draw(40, 9, seed)
    few = embedded_spec(spec, 9, "float64")
    inner = FEW.plan(problem, BUDGET, few, adjacency)
    expected = run(inner, embedded_rows(rows, matrix, few), SeededNoise(5))
    lifted = np.concatenate([dense(matrix) @ expected.w[:9], expected.w[9:]])
    np.testing.assert_allclose(got.w, lifted, rtol=1e-12, atol=1e-14)
    assert got.w.shape == spec.coefficient_shape
    assert plan.event == inner.event
    assert got.history == expected.history


def test_predictions_are_those_on_embedded_rows():
    _, spec = make(layout="csr")
    plan = JohnsonLindenstrauss(dimension=7, gradient_descent=FEW).plan(LOGISTIC, BUDGET, spec)
    state = plan.method.init(3)
    v = np.arange(8.0)
    inner = dataclasses.replace(state.model, returned=v)
    w = plan.method.finish(dataclasses.replace(state, model=inner)).w
    x = np.linspace(-1, 1, 40)
    assert x @ w[:40] + w[40] == pytest.approx((x @ dense(plan.method.transform(3))) @ v[:7] + v[7])


@pytest.mark.parametrize("seed", [1, 2])
def test_matrices_differ_between_runs(seed):
    plan = JohnsonLindenstrauss(dimension=7, gradient_descent=FEW).plan(LOGISTIC, BUDGET, make()[1])
    one, other = plan.method.transform(seed), plan.method.transform(seed + 1)
    assert (dense(one) != dense(other)).any()


def test_the_matrix_is_the_same_for_rows_and_for_the_result():
    rows, spec = make()
    plan = JohnsonLindenstrauss(dimension=7, gradient_descent=FEW).plan(LOGISTIC, BUDGET, spec)
    with mock.patch.object(module, "embedded_rows", wraps=embedded_rows) as embedding:
        run(plan, rows, SeededNoise(0))
    ((_, used, _), _) = embedding.call_args
    seed = int(SeededNoise(0).words(1)[0])
    np.testing.assert_array_equal(
        dense(used), dense(plan.method.transform(plan.method.init(seed).seed))
    )


def test_penalty_on_v_is_a_penalty_on_norm_up_to_distortion():
    # v in the range of Phi: |Phi^T v| is close to |v| when there are many columns.
    matrix = dense(SparseEmbedding().draw(20, 4000, 0))
    u = np.random.default_rng(0).normal(size=20)
    v = u @ matrix
    assert np.linalg.norm(matrix @ v) == pytest.approx(np.linalg.norm(v), rel=0.05)


# 2. The plan.


def test_a_ball_of_radius_b_becomes_one_of_2b():
    rows, spec = make()
    problem = Problem(Logistic(), constraint=L2Ball(0.05))
    solver = JohnsonLindenstrauss(
        dimension=9, gradient_descent=NoisyGD(n_steps=20, step_size=5.0, clip=1.0)
    )
    plan = solver.plan(problem, GaussianDP(1e6), spec)
    assert plan.method.inner.problem.constraint == L2Ball(0.1)
    assert plan.problem is problem
    seed = int(SeededNoise(1).words(1)[0])
    state, oracle_rows = plan.method.init(seed), plan.method.prepare(rows, seed)
    with released_sums():
        w = run(plan, rows, SeededNoise(1)).w
    v = np.linalg.lstsq(dense(plan.method.transform(state.seed)), w[:40])[0]
    assert np.linalg.norm(v) == pytest.approx(0.1, rel=1e-6)
    assert oracle_rows.spec.n_features == 9


@pytest.mark.parametrize(
    "regularizer", [L1(0.1), ElasticNetPenalty(0.1, 0.5), GroupLasso(0.1, ((0, 1),))], ids=repr
)
def test_penalties_that_single_out_coefficients_are_refused(regularizer):
    for dimension in (None, 9):
        with pytest.raises(ValueError, match="regularizer must be NoPenalty or L2"):
            JohnsonLindenstrauss(dimension).plan(
                Problem(Logistic(), regularizer), BUDGET, make()[1]
            )


@pytest.mark.parametrize("constraint", [L1Ball(1.0), Box(-1.0, 1.0), Simplex()], ids=repr)
def test_sets_that_are_not_round_are_refused(constraint):
    with pytest.raises(ValueError, match="constraint must be Unconstrained or an L2Ball"):
        JohnsonLindenstrauss(9).plan(Problem(Logistic(), constraint=constraint), BUDGET, make()[1])


@pytest.mark.parametrize("dimension", [0, -3, 2.5, "9"])
def test_bad_dimensions_are_named(dimension):
    with pytest.raises(ValueError, match="dimension must be an integer of at least 1"):
        JohnsonLindenstrauss(dimension)


def test_budgets_that_gaussian_noise_cannot_meet_are_refused():
    with pytest.raises(ValueError, match="delta"):
        JohnsonLindenstrauss().plan(LOGISTIC, ApproximateDP(1.0, 0.0), make()[1])


def test_float32_becomes_float64_if_an_added_row_shifts_others():
    spec = dataclasses.replace(make(layout="csr")[1], dtype="float32")
    for adjacency, dtype in zip(Adjacency, ("float32", "float64", "float32"), strict=True):
        plan = JohnsonLindenstrauss(9).plan(LOGISTIC, BUDGET, spec, adjacency)
        assert plan.method.inner.data.dtype == dtype


def test_the_last_iterate_alone_is_cheaper_here_too():
    solver = JohnsonLindenstrauss(
        9,
        gradient_descent=NoisyGD(
            n_steps=200, step_size=1.0, clip=0.5, momentum=0.0, schedule=Constant()
        ),
    )
    rows, spec = make()
    problem = Problem(Logistic(), L2(0.1), penalize_intercept=True)
    plan = solver.plan(problem, BUDGET, spec)
    assert isinstance(plan.event, LastIterate)
    assert not plan.method.releases_iterates
    assert plan.method.releases[0].event == Gaussian(plan.event.noise_multiplier)
    assert run(plan, rows, SeededNoise(0)).history == ()


# 3. The rule for the dimension.


def rule(loss, *, n=10_000, mu=0.2, row_norm=1.0, constraint=None, **facts):
    data = DataSpec(n, 100_000, row_norm=row_norm, **facts)
    return balanced_dimension(loss, constraint or Unconstrained(), data, mu)


def test_the_rule_is_that_of_the_theorems():
    assert rule(Logistic()) == round(4000 ** (2 / 3))
    assert rule(Logistic(), n=80_000) == pytest.approx(4 * rule(Logistic()), rel=0.01)
    assert rule(Hinge(), n=4000) == round(math.sqrt(2) * 800)
    # H B R / (G + H B R), with H = 1/4 and G = 1/2.
    assert rule(Logistic(), constraint=L2Ball(2.0)) == round(2000 ** (2 / 3))
    assert rule(Logistic(), constraint=L2Ball(0.5)) < rule(Logistic(), constraint=L2Ball(5.0))
    few = {"target_low": -1.0, "target_high": 1.0}
    assert rule(Squared(), constraint=L2Ball(1.0), **few) == round(2000 ** (2 / 3))
    assert rule(Poisson(), target_low=0.0, target_high=5.0) == 2048


@pytest.mark.parametrize("factor", [1e-3, 7.0, 1e4])
def test_the_rule_does_not_depend_on_units(factor):
    # As printed, Theorem 2's k changes when rows are multiplied by c and B by 1/c.
    for loss in (Logistic(), Hinge()):
        one = rule(loss, constraint=L2Ball(3.0))
        assert rule(loss, row_norm=factor, constraint=L2Ball(3.0 / factor)) == one

    def printed(B, X, H=0.25, Y=1.0, n=1e4):
        return (B * math.sqrt(H) * X * n / (Y * X + math.sqrt(H) * B * X**2)) ** (2 / 3)

    assert printed(3.0 / factor, factor) != pytest.approx(printed(3.0, 1.0), rel=0.1)


def test_rule_balances_its_two_terms():
    # The smooth case: k minimises H B^2 R^2 / k + (G + H B R) R B sqrt(k) / (n mu).
    n, mu, H, G, B, R = 50_000, 0.3, 0.25, 0.5, 4.0, 2.0
    k = np.arange(1, 5000)
    cost = H * B**2 * R**2 / k + (G + H * B * R) * R * B * np.sqrt(k) / (n * mu)
    best = rule(Logistic(), n=n, mu=mu, row_norm=R, constraint=L2Ball(B))
    assert abs(best - k[cost.argmin()]) <= 1
    cost = math.sqrt(2.0) * B * R / np.sqrt(k) + R * B * np.sqrt(k) / (2000 * mu)
    assert abs(rule(Hinge(), n=2000, mu=mu, constraint=L2Ball(B)) - k[cost.argmin()]) <= 1


def test_the_rule_has_practical_ends():
    assert rule(Logistic(), n=5) == 32
    assert rule(Hinge(), n=10**7) == 2048
    assert rule(Squared()) == rule(Logistic())


def test_the_dimension_follows_from_the_budget_and_the_relation():
    spec = DataSpec(20_000, 50_000, weight_bound=2.0)

    def dimension(epsilon, adjacency=Adjacency.ZERO_OUT, **facts):
        data = dataclasses.replace(spec, **facts)
        plan = JohnsonLindenstrauss().plan(LOGISTIC, ApproximateDP(epsilon, 1e-5), data, adjacency)
        return plan.method.inner.data.n_features

    assert dimension(0.5) < dimension(1.0)
    assert dimension(1.0, Adjacency.REPLACE_ONE) < dimension(1.0)
    assert dimension(1.0) < dimension(1.0, weight_bound=1.0)


def test_nothing_is_embedded_where_there_is_nothing_to_gain():
    rows, spec = make(n=3000, d=12)
    problem = Problem(Logistic(), L2(0.01), L2Ball(3.0))
    plan = JohnsonLindenstrauss(gradient_descent=FEW).plan(problem, BUDGET, spec)
    assert plan == FEW.plan(problem, BUDGET, spec)
    assert run(plan, rows, SeededNoise(0)).w.shape == (13,)


# 4. Privacy.


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("row_norm", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("n", [1, 300])
def test_worst_neighbours_stay_within_the_declared_sensitivity(dtype, layout, row_norm, n):
    rng = np.random.default_rng(3)
    X = (rng.normal(size=(n, 20)) * row_norm).astype(dtype)
    clipping, most = FlatClipping(0.3 * row_norm), 0.0
    spec = DataSpec(
        n, 20, row_norm=row_norm, intercept=row_norm, dtype=dtype, sparse=layout == "csr"
    )
    few = embedded_spec(spec, 6, dtype)
    ws = [rng.normal(size=7) * size / row_norm for size in (0.0, 1.0, 50.0, 50.0, 1e8)]
    for seed, huge in enumerate((1e6, -1e6, 1e30)):
        matrix = (SparseEmbedding(3), GaussianEmbedding())[seed % 2].draw(20, 6, seed)
        embedded = []
        for value, weight in ((huge, 1.0), (-huge, 1.0), (huge, 0.0)):
            one, weights = X.copy(), np.ones(n)
            one[n // 2], weights[n // 2] = value, weight
            stored = sparse.csr_array(one) if layout == "csr" else one
            rows = prepare_rows(stored, np.ones(n), spec, weights=weights)
            embedded.append(embedded_rows(rows, matrix, few))
        for w in ws:
            sums = [clipped_gradient_sum(each, Logistic(), clipping, w) for each in embedded]
            for adjacency, other in ((Adjacency.REPLACE_ONE, 1), (Adjacency.ZERO_OUT, 2)):
                bound = clipping.bound + sum_rounding(few, adjacency, clipping.bound)
                distance = np.linalg.norm(sums[0] - sums[other])
                assert distance <= adjacency.sum_sensitivity(bound)
                most = max(most, distance / clipping.bound)
    assert most > 0.9


def test_forgetting_to_shorten_embedded_rows_would_be_seen():
    spec = DataSpec(3, 2)
    X = np.zeros((3, 2))
    X[0] = 1.0, 0.0
    rows = prepare_rows(X, np.ones(3), spec)
    few = embedded_spec(spec, 4, "float64")
    matrix = next(
        m
        for m in (GaussianEmbedding().draw(2, 4, seed) for seed in range(99))
        if np.linalg.norm(m[0]) > 1.5
    )
    clipping, w = FlatClipping(0.5), np.zeros(4)

    def contribution(embed):
        return np.linalg.norm(
            clipped_gradient_sum(embed(rows, matrix, few), Logistic(), clipping, w)
        )

    assert contribution(embedded_rows) <= 0.5 * (1.0 + 1e-9)
    assert contribution(not_shortened) > 0.7


def test_event_equals_that_of_the_inner_run():
    plan = JohnsonLindenstrauss(9, gradient_descent=FEW).plan(LOGISTIC, BUDGET, make()[1])
    (release,) = plan.method.releases
    assert plan.event == Repeated(Gaussian(release.noise_multiplier), 4)
    assert release.coordinates == 10
    assert release.quantity == "embedded rows: clipped gradient sum"


def test_an_inner_solver_gets_the_rows_that_it_prepares():
    # Its bound is on entries of rows that it scales: here the constant is far larger.
    data = DataSpec(50, 40, intercept=10.0)
    inner = FrankWolfe(n_steps=2)
    plan = JohnsonLindenstrauss(9, gradient_descent=inner).plan(LOGISTIC, BUDGET, data)
    rows = prepare_rows(np.eye(50, 40), np.ones(50), data)
    assert run(plan, rows, SeededNoise(0)).w.shape == (41,)


def test_disjoint_parts_within_are_accounted_for_as_such():
    search = HeldOutSearch((Candidate({}, FEW, lambda data: LOGISTIC),), 0.25)
    plan = JohnsonLindenstrauss(9, gradient_descent=search).plan(LOGISTIC, BUDGET, make(400)[1])
    assert plan.method.mechanisms == plan.method.inner.method.mechanisms
    assert run(plan, make(400)[0], SeededNoise(0)).w.shape == (41,)


def test_expected_noise_in_coefficients_is_right():
    rows, spec = make(intercept=0.0)
    problem = Problem(Logistic(), L2(0.5))
    for embedding in (SparseEmbedding(), GaussianEmbedding()):
        plan = JohnsonLindenstrauss(20, embedding, FEW).plan(problem, BUDGET, spec)
        zero = rows.take(np.arange(80))
        zero._X[:] = 0.0
        found = [run(plan, zero, SeededNoise(seed)).w for seed in range(60)]
        assert np.std(found) == pytest.approx(plan.coefficient_noise, rel=0.1)
