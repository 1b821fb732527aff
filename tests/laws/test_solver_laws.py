"""Requirements on every solver, for every problem it accepts: one row for each solver."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.optimize import minimize

from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.papers import (
    Arora2022Lipschitz,
    Arora2022Smooth,
    Song2021,
    Wang2017NonConvex,
    Wang2017PolyakLojasiewicz,
    dpsgd_f_theoretical,
)
from dpglm.preprocessing import Center
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.accounting.accountants import within_budget
from dpglm.privacy.events import canonical
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import (
    L2,
    ConvexScalarLoss,
    ElasticNetPenalty,
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    Poisson,
    Problem,
    Savage,
    SmoothedHinge,
    Softmax,
    Sparsemax,
    Squared,
    Target,
    Unconstrained,
)
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.solvers import (
    D2P2,
    SVRG,
    AcceleratedMirrorDescent,
    Constant,
    FrankWolfe,
    JohnsonLindenstrauss,
    LinearDecay,
    LocalSGD,
    Newton,
    NoisyGD,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    Preprocessed,
    Prototypes,
    Solver,
    SufficientStatistics,
    SVRGPlusPlus,
    TailAverage,
    UniformAverage,
    pure_gd,
    run,
)
from tests.slowly import some_quickly

pytestmark = pytest.mark.one_in(3)


def everything(problem):
    return True


def suits_an_l1_ball(problem):
    is_ball = isinstance(problem.constraint, Unconstrained | L1Ball)
    return is_ball and np.isfinite(problem.regularizer.smoothness)


def is_free(problem):
    """Whether the constraint and the penalty are those of the papers' unconstrained theorems."""
    return problem.constraint == Unconstrained() and np.isfinite(problem.regularizer.smoothness)


def is_comparable(problem):
    return problem.constraint == Unconstrained() and problem.loss.nonnegative


def is_lipschitz(problem):
    return is_free(problem) and np.isfinite(problem.loss.slope_bound)


def is_bounded(problem):
    return np.isfinite(problem.constraint.norm_bound(4))


def is_smooth(problem):
    return is_lipschitz(problem) and np.isfinite(problem.loss.smoothness)


def has_smooth_loss(problem):
    return np.isfinite(problem.loss.smoothness)


def is_convex(problem):
    return problem.loss.convex


def is_of_codes(problem):
    return problem.loss.of_codes


def is_least_squares(problem):
    return problem.loss == Squared()


def is_strongly_convex(problem):
    return is_smooth(problem) and problem.loss.convex and problem.regularizer.strong_convexity > 0


def has_certified_minimizer(problem):
    is_ball = isinstance(problem.constraint, Unconstrained | L2Ball)
    return is_ball and problem.loss.convex and problem.loss != Hinge()


def is_embeddable(problem):
    is_round = isinstance(problem.constraint, Unconstrained | L2Ball)
    return is_round and isinstance(problem.regularizer, NoPenalty | L2)


def is_perturbable(problem):
    scalar = isinstance(problem.loss, ConvexScalarLoss)
    return is_free(problem) and scalar and has_certified_minimizer(problem)


@dataclass(frozen=True)
class Case:
    """A solver, and the problems of the list below that it takes (others it must refuse)."""

    solver: Solver
    takes: Callable[[Problem], bool] = everything
    gap: float = 0.03
    """Share of the possible gain that may be missing if privacy is nearly free."""
    excess: float = 1e-4
    """Excess risk that may remain beyond that share."""
    needs_public_n: bool = False
    """Whether it refuses relations that keep the number of rows private."""


# A new solver is one row here.
SOLVERS = {
    "noisy_gd": Case(NoisyGD(clip=10.0)),
    "noisy_gd, no momentum": Case(NoisyGD(momentum=0.0, n_steps=600, clip=10.0)),
    "noisy_gd, tail average": Case(NoisyGD(output=TailAverage(0.25), clip=10.0)),
    "noisy_gd, compared": Case(NoisyGD(shrink=True, compare=True, clip=10.0)),
    "noisy_gd, Poisson": Case(NoisyGD(sampling_rate=0.5, n_steps=400, clip=10.0)),
    "noisy_gd, uniform average": Case(
        NoisyGD(output=UniformAverage(), schedule=Constant(), n_steps=1500, clip=10.0)
    ),
    "noisy_sgd": Case(NoisySGD(clip=10.0)),
    # Worst-case step sizes are small, so the papers' settings leave more.
    "song2021": Case(
        Song2021(rank=3, n_steps=300),
        lambda problem: is_lipschitz(problem) and problem.loss.convex,
        gap=0.1,
    ),
    "arora2022, smooth": Case(Arora2022Smooth(n_steps=500), is_bounded, gap=0.2),
    "arora2022, Lipschitz": Case(Arora2022Lipschitz(n_steps=300), is_bounded),
    "wang2017, Polyak and Lojasiewicz": Case(Wang2017PolyakLojasiewicz(), is_strongly_convex),
    # Without a constraint the ball grows with the steps, so that more of them gain little.
    "frank_wolfe": Case(FrankWolfe(n_steps=200, slope_clip=10.0), suits_an_l1_ball, gap=0.5),
    "frank_wolfe, radius": Case(
        FrankWolfe(n_steps=300, radius=6.0, slope_clip=10.0),
        lambda problem: suits_an_l1_ball(problem) and not is_bounded(problem),
    ),
    # One pass over few rows, six of them in a block.
    "local_sgd": Case(
        LocalSGD(clip=10.0, n_blocks=100, step_size=1.0),
        gap=0.15,
        excess=3e-3,
        needs_public_n=True,
    ),
    "newton": Case(Newton(n_steps=40), is_convex),
    "pure_gd": Case(pure_gd(n_steps=50, clip=10.0)),
    "output_perturbation": Case(OutputPerturbation(clip=10.0), has_certified_minimizer, gap=0.05),
    "objective_perturbation": Case(ObjectivePerturbation(clip=10.0), is_perturbable),
    "sufficient_statistics": Case(SufficientStatistics(), is_least_squares),
    # No minimiser: rows of a class may vary more in some directions.
    "prototypes": Case(Prototypes(), is_of_codes, gap=0.6),
    "johnson_lindenstrauss": Case(
        JohnsonLindenstrauss(dimension=64, gradient_descent=NoisyGD(clip=10.0)), is_embeddable
    ),
    # Where a penalty has a kink, the noise of projections does not vanish at the optimum.
    "d2p2": Case(
        D2P2(dimension=200, stability=1.0, clip=40.0, n_steps=300, schedule=LinearDecay()), gap=0.2
    ),
    "d2p2, Poisson": Case(
        D2P2.dp2_sgd(
            dimension=40,
            normalize=False,
            clip=10.0,
            n_steps=200,
            schedule=LinearDecay(),
            sampling_rate=0.5,
        ),
        gap=0.2,
    ),
    "d2p2, PrivSGD": Case(
        D2P2.priv_sgd(dimension=40, normalize=False, clip=10.0, n_steps=200, schedule=LinearDecay())
    ),
    "svrg": Case(SVRG(clip=10.0), has_smooth_loss),
    "svrg, full batch": Case(
        SVRG(clip=10.0, inner_steps=40, sampling_rate=1.0, averaging=UniformAverage()),
        has_smooth_loss,
    ),
    "svrg, accelerated": Case(SVRG(clip=10.0, momentum=0.5), has_smooth_loss),
    "svrg_plus_plus": Case(SVRGPlusPlus(clip=10.0), has_smooth_loss),
    "accelerated_mirror_descent": Case(
        AcceleratedMirrorDescent(clip=10.0, n_steps=300),
        lambda problem: has_smooth_loss(problem) and problem.loss.convex,
    ),
    "wang2017, non-convex": Case(Wang2017NonConvex(n_steps=300), is_smooth, gap=0.1),
    # The scale of penalties and constraints changes with the rows.
    "preprocessed": Case(Preprocessed([Center()], NoisyGD(clip=10.0)), gap=0.05, excess=2e-3),
    "dpsgd_f, theoretical": Case(dpsgd_f_theoretical(NoisyGD(clip=10.0)), gap=0.25, excess=5e-3),
    "best_iterate": Case(BestIterate(n_steps=400, clip=10.0), is_free, gap=0.1),
    "norm_grid_search": Case(
        NormGridSearch(NoisyGD(n_steps=100, clip=10.0), bounds=(1.0, 8.0)),
        is_comparable,
        gap=0.1,
        needs_public_n=True,
    ),
    # Each model has a part of the rows, and is compared with the optimum for all.
    "confidence_boosting": Case(
        ConfidenceBoosting(NoisyGD(n_steps=100, clip=10.0), n_models=2),
        lambda problem: problem.loss.nonnegative,
        gap=0.3,
        needs_public_n=True,
    ),
}
SCALAR_LOSSES = [Logistic(), Hinge(), SmoothedHinge(0.5), Squared(), Huber(0.5), Poisson()]
LOSSES = [*SCALAR_LOSSES, Softmax(), Sparsemax()]
PENALTIES = [NoPenalty(), L2(0.1), ElasticNetPenalty(0.1, 0.5)]
PROBLEMS = [
    *(Problem(loss, L2(0.05), penalize_intercept=True) for loss in LOSSES),
    *(Problem(Logistic(), penalty, penalize_intercept=True) for penalty in PENALTIES),
    Problem(Squared(), constraint=L2Ball(0.3), penalize_intercept=True),
    Problem(Squared(), constraint=L1Ball(0.3), penalize_intercept=True),
    Problem(Savage(), L2(0.3), penalize_intercept=True),
]
N_ROWS = 600


def first_problem(name):
    """Logistic regression with a ridge where the solver takes it, else the first that it does."""
    return next(problem for problem in PROBLEMS if SOLVERS[name].takes(problem))


def make_data(problem, n=N_ROWS, seed=0):
    """Rows of a well-conditioned problem; the optimum lies well within reach."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 3)) / np.sqrt(3)
    z = X @ [1.0, -1.0, 0.5]
    target = problem.loss.target
    if target is Target.BINARY:
        y = np.where(rng.random(n) < 1 / (1 + np.exp(-2 * z)), 1.0, -1.0)
    elif target is Target.CLASS:
        scores = 4.0 * X @ rng.normal(size=(3, 3)) + rng.gumbel(size=(n, 3))
        y = scores.argmax(axis=1)
    else:
        y = np.clip(z + rng.normal(scale=0.1, size=n), 0.0, 1.0)
    real = target in (Target.REAL, Target.COUNT)
    spec = DataSpec(
        n_rows=n,
        n_features=3,
        n_outputs=3 if target is Target.CLASS else 1,
        row_norm=1.0,
        intercept=1.0,
        target_low=0.0 if real else -np.inf,
        target_high=1.0 if real else np.inf,
    )
    return X, y, spec


def risk(problem, X, y, w, spec):
    augmented = np.column_stack([X, np.full(len(X), spec.intercept)])
    return float(problem.loss.value(augmented @ w, y).mean()) + problem.regularizer.value(w)


@functools.cache
def optimum(problem):
    """Risk of the exact minimiser, by a general-purpose method that shares no code."""
    X, y, spec = make_data(problem)
    shape = spec.coefficient_shape

    def objective(flat):
        return risk(problem, X, y, flat.reshape(shape), spec)

    constraints = ()
    if not np.isinf(problem.constraint.norm_bound(spec.n_coefficients)):
        limit = problem.constraint.radius
        order = 1 if isinstance(problem.constraint, L1Ball) else 2
        constraints = ({"type": "ineq", "fun": lambda w: limit - np.linalg.norm(w, order)},)
    start = np.full(spec.n_coefficients, 0.01)
    method = "SLSQP" if constraints else "Powell"
    options = {"maxiter": 50_000, "ftol": 1e-12}
    found = minimize(objective, start, method=method, constraints=constraints, options=options)
    return min(found.fun, objective(np.zeros(spec.n_coefficients)))


def every_pair():
    """Each solver with each problem: quickly its first, every eighth, and those that it refuses."""
    for (i, name), (j, problem) in itertools.product(enumerate(SOLVERS), enumerate(PROBLEMS)):
        first = problem == first_problem(name)
        quick = first or (i + j) % 8 == 0 or not SOLVERS[name].takes(problem)
        marks = () if quick else pytest.mark.slow
        yield pytest.param(name, problem, marks=marks, id=f"{problem!r}-{name}")


@pytest.mark.filterwarnings("ignore:Method Powell:RuntimeWarning")
@pytest.mark.parametrize(("name", "problem"), list(every_pair()))
def test_reaches_the_optimum_where_privacy_is_nearly_free(name, problem):
    X, y, spec = make_data(problem)
    case = SOLVERS[name]
    if not case.takes(problem):
        with pytest.raises(ValueError, match="must"):
            case.solver.plan(problem, ApproximateDP(1e5, 1e-2), spec)
        return
    plan = case.solver.plan(problem, ApproximateDP(1e5, 1e-2), spec)
    w = run(plan, prepare_rows(X, y, spec), SeededNoise(0)).w
    start = risk(problem, X, y, np.zeros(spec.coefficient_shape), spec)
    best = optimum(problem)
    assert risk(problem, X, y, w, spec) - best <= case.gap * (start - best) + case.excess


@pytest.mark.parametrize("name", SOLVERS)
# Each relation with another epsilon.
@pytest.mark.parametrize(
    ("adjacency", "epsilon"), some_quickly(itertools.product(Adjacency, [0.1, 1.0, 8.0]), 4)
)
def test_plans_are_within_budget_and_followed(name, adjacency, epsilon):
    problem = first_problem(name)
    X, y, spec = make_data(problem)
    budget = ApproximateDP(epsilon, 1e-5)
    if SOLVERS[name].needs_public_n and not adjacency.n_is_public:
        with pytest.raises(ValueError, match="adjacency must be"):
            SOLVERS[name].solver.plan(problem, budget, spec, adjacency)
        return
    plan = SOLVERS[name].solver.plan(problem, budget, spec, adjacency)
    assert within_budget(plan.event, adjacency, budget)
    assert plan.privacy()["epsilon"] <= epsilon
    solution = run(plan, prepare_rows(X, y, spec), SeededNoise(1))
    assert np.isfinite(solution.w).all()
    assert solution.w.shape == spec.coefficient_shape
    assert solution.plan is plan
    # The curator's record was compared with this inside run; it is not empty.
    assert canonical(plan.method.mechanisms).terms


# Shares of the releases depend on the budget; some releases are left out.
DIVIDE_BY_BUDGET = {"sufficient_statistics"}


@pytest.mark.parametrize("name", SOLVERS)
def test_noise_falls_with_epsilon_and_grows_for_replace_one(name):
    problem = first_problem(name)

    def noise(epsilon, n, adjacency=Adjacency.ZERO_OUT):
        larger = dataclasses.replace(make_data(problem)[2], n_rows=n)
        plan = SOLVERS[name].solver.plan(problem, ApproximateDP(epsilon, 1e-5), larger, adjacency)
        return [one.scale.std / one.contribution_bound for one in plan.method.releases]

    for epsilons in itertools.pairwise([0.05, 0.5, 1.0, 5.0]):
        less, more = (np.array(noise(epsilon, 1000)) for epsilon in epsilons)
        # Of all releases together, and of each where budgets are divided alike.
        assert (more**-2.0).sum() > (less**-2.0).sum()
        assert name in DIVIDE_BY_BUDGET or (more < less).all()
    # By the diameter with the full batch; group privacy is on the safe side under sampling.
    facts = dataclasses.replace(make_data(problem)[2], n_rows=1000)
    budget, replaced = ApproximateDP(1.0, 1e-5), Adjacency.REPLACE_ONE
    releases = SOLVERS[name].solver.plan(problem, budget, facts, replaced).method.releases
    factors = [one.diameter for one in releases]
    more, less = noise(1.0, 1000, replaced), noise(1.0, 1000)
    assert all(a >= 0.95 * f * b for a, f, b in zip(more, factors, less, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVERS)
def test_excess_risk_falls_with_epsilon(name):
    problem = first_problem(name)
    X, y, spec = make_data(problem, n=2000)
    rows = prepare_rows(X, y, spec)
    means = []
    for epsilon in (0.02, 0.3, 20.0):
        plan = SOLVERS[name].solver.plan(problem, ApproximateDP(epsilon, 1e-5), spec)
        risks = [
            risk(problem, X, y, run(plan, rows, SeededNoise(seed)).w, spec) for seed in range(4)
        ]
        means.append(np.mean(risks))
    assert means[0] > means[2]
    assert means[1] > means[2] - 1e-6


@pytest.mark.parametrize("name", some_quickly(SOLVERS, 4))
def test_threads_change_nothing(name, monkeypatch):
    problem = first_problem(name)
    X, y, spec = make_data(problem)
    plan = SOLVERS[name].solver.plan(problem, ApproximateDP(1.0, 1e-5), spec)
    rows = prepare_rows(X, y, spec)
    serial = run(plan, rows, SeededNoise(2)).w
    monkeypatch.setattr("dpglm.data.rows._PARALLEL_ENTRIES", 1)
    np.testing.assert_array_equal(run(plan, rows, SeededNoise(2)).w, serial)
