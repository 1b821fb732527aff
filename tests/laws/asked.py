"""Generated settings of every solver, and hostile rows within the types that were declared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy import sparse

from dpglm.data.groups import GroupedRows
from dpglm.data.memory import ArrayRows
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, GroupBound, Rows
from dpglm.papers import (
    Arora2022GridSearch,
    Arora2022Lipschitz,
    Arora2022OutputPerturbation,
    Arora2022Smooth,
    Song2021,
    Song2021NonConvex,
    Wang2017MirrorDescent,
    Wang2017NonConvex,
    Wang2017PolyakLojasiewicz,
    Wang2017SVRG,
    Wang2017SVRGPlusPlus,
    dpsgd_f_theoretical,
)
from dpglm.preprocessing import (
    Center,
    ClipToQuantile,
    InstanceOptimalCenter,
    RandomProjection,
    Scale,
    Whiten,
)
from dpglm.privacy import (
    Adjacency,
    ApproximateDP,
    GaussianDP,
    PrivacyBudget,
    ZeroConcentratedDP,
)
from dpglm.privacy.selection.repetitions import NegativeBinomialNumber, PoissonNumber
from dpglm.problem import (
    L1,
    L2,
    Binomial,
    Box,
    ComplementaryLogLog,
    ElasticNetPenalty,
    Gamma,
    GroupLasso,
    Hinge,
    Huber,
    L1Ball,
    L2Ball,
    Logistic,
    NoPenalty,
    OneVsRest,
    Pinball,
    Poisson,
    Probit,
    Problem,
    Savage,
    Simplex,
    SmoothedHinge,
    Softmax,
    Sparsemax,
    Squared,
    SquaredHinge,
    Tangent,
    Target,
    Tempered,
    Tweedie,
    Unconstrained,
    WithOffset,
)
from dpglm.problem import NegativeBinomial as NegativeBinomialLoss
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.selection.search import Candidate, HeldOutSearch, RepeatedSearch
from dpglm.solvers import (
    D2P2,
    SVRG,
    AcceleratedMirrorDescent,
    Auto,
    Calibrated,
    Constant,
    FrankWolfe,
    JohnsonLindenstrauss,
    LinearDecay,
    LocalSGD,
    Newton,
    NewtonRaphson,
    NoisyGD,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    Plan,
    Preprocessed,
    RandomIntercepts,
    RandomIterate,
    Solver,
    SufficientStatistics,
    SVRGPlusPlus,
    TailAverage,
    UniformAverage,
    dpsgd_f,
    pure_gd,
)
from dpglm.solvers import SOLVERS as NAMED

__all__ = ["Setting", "settings_and_rows"]

FEW = NoisyGD(n_steps=3)
LOSSES = (
    Logistic(),
    Squared(),
    Huber(0.5),
    Hinge(),
    SmoothedHinge(0.5),
    SquaredHinge(),
    Poisson(),
    Gamma(),
    Tweedie(1.5),
    NegativeBinomialLoss(0.5),
    Binomial(),
    Probit(),
    ComplementaryLogLog(),
    Pinball(0.3),
    WithOffset(Poisson()),
    WithOffset(NegativeBinomialLoss(0.5), 3.0),
    Softmax(),
    Sparsemax(),
    Savage(),
    Tangent(),
    Tempered(),
    OneVsRest(Logistic(), 3),
)
PENALTIES = (
    NoPenalty(),
    L2(0.1),
    L2(1e-12),
    L2(1e12),
    L2(1e300),
    L1(0.1),
    ElasticNetPenalty(0.1, 0.5),
    GroupLasso(0.1, ((0,), (1,))),
)
CONSTRAINTS = (
    Unconstrained(),
    L2Ball(1.0),
    L2Ball(1e-12),
    L2Ball(1e12),
    L1Ball(1.0),
    L1Ball(1e-9),
    Box(-1.0, 1.0),
    Simplex(1.0),
)
BUDGETS: tuple[PrivacyBudget, ...] = (
    *(ApproximateDP(1.0, delta) for delta in (1e-5, 0.0, 1e-12, 1e-70, 0.5)),
    *(ApproximateDP(epsilon, 1e-5) for epsilon in (1e-6, 1e-3, 0.1, 8.0, 1e3, 1e6)),
    *(ApproximateDP(epsilon, 0.0) for epsilon in (1e-6, 1e-3, 8.0, 1e6)),
    GaussianDP(1e-6),
    GaussianDP(0.5),
    GaussianDP(1e6),
    ZeroConcentratedDP(0.1),
)
ROW_NORMS = (1.0, 1e-15, 1e-6, 1e3, 1e15)
TARGETS = (
    (0.0, 1.0),
    (-1.0, 1.0),
    (0.0, 0.0),
    (5.0, 5.0),
    (0.0, 1e-200),
    (0.0, 5e-324),
    (-1e-15, 1e-15),
    (1e15, 1e15),
    (-1e15, 1e15),
    (-1e150, 1e300),
    (-math.inf, math.inf),
)
TINY_AND_HUGE = (1e-15, 1e-6, 1.0, 1e6, 1e15)


def _candidates(one: Solver, other: Solver) -> tuple[Candidate, ...]:
    def problem(data: DataSpec) -> Problem:
        if data.n_outputs > 1:
            return Problem(Softmax())
        return Problem(Logistic() if math.isinf(data.target_high) else Squared())

    return tuple(Candidate({"solver": j}, s, problem) for j, s in enumerate((one, other)))


OPTIONS: tuple[Solver, ...] = (
    Auto(),
    Auto(may_copy=False),
    FEW,
    NoisyGD(),
    NoisyGD(n_steps=3, sampling_rate=0.05, momentum=0.0),
    NoisyGD(n_steps=3, automatic_clipping=True),
    NoisyGD(n_steps=3, shrink=True, compare=True),
    NoisyGD(n_steps=3, output=TailAverage(0.5), schedule=LinearDecay()),
    NoisyGD(n_steps=3, output=RandomIterate()),
    NoisyGD(n_steps=40, step_size=0.1, momentum=0.0, schedule=Constant(), clip=1.0),
    NoisyGD(n_steps=3, step_size=1e300),
    NoisyGD(n_steps=3, step_size=1e-300),
    *(NoisyGD(n_steps=2, clip=clip) for clip in (1e-300, 1e-15, 1e15, 1e300)),
    NoisySGD(n_steps=3, sampling_rate=1e-6),
    NoisySGD(n_steps=5),
    pure_gd(n_steps=3),
    pure_gd(),
    FrankWolfe(n_steps=3),
    FrankWolfe(n_steps=2, radius=1e12),
    FrankWolfe(n_steps=2, slope_clip=1e-15),
    Newton(n_steps=3),
    Newton(),
    Calibrated(FEW, share=0.3),
    Calibrated(Preprocessed([Center()], FEW), share=0.3),
    RandomIntercepts(((0, 2),)),
    RandomIntercepts(((0, 2),), "model"),
    SufficientStatistics(),
    SufficientStatistics(clip=1e-12),
    SufficientStatistics(inference="model"),
    SufficientStatistics(inference="robust", clip=1e9),
    SufficientStatistics(inference="model", full_weights=True),
    NewtonRaphson(inference="robust"),
    NewtonRaphson(inference="model", full_weights=True),
    OutputPerturbation(),
    OutputPerturbation(strength=1e-12),
    OutputPerturbation(strength=1e12, clip=1e-9),
    ObjectivePerturbation(),
    ObjectivePerturbation(strength=1e12),
    ObjectivePerturbation(clip=1e-12),
    JohnsonLindenstrauss(),
    JohnsonLindenstrauss(dimension=2, gradient_descent=FEW),
    D2P2(n_steps=3),
    D2P2(n_steps=3, dimension=2),
    D2P2.dp2_sgd(dimension=2, normalize=False, clip=10.0, n_steps=3, sampling_rate=0.5),
    LocalSGD(),
    LocalSGD(n_blocks=2, step_size=1.0),
    SVRG(),
    SVRG(inner_steps=3, sampling_rate=1.0, averaging=UniformAverage()),
    SVRG(inner_steps=3, momentum=0.9),
    SVRGPlusPlus(),
    AcceleratedMirrorDescent(n_steps=3),
    dpsgd_f(),
    dpsgd_f_theoretical(FEW),
    Song2021(rank=1, n_steps=3),
    Song2021(rank=1, n_steps=3, population=True),
    Song2021NonConvex(n_steps=3),
    Arora2022OutputPerturbation(),
    Arora2022OutputPerturbation(lipschitz=True),
    Arora2022GridSearch(Arora2022Smooth(n_steps=2)),
    Wang2017MirrorDescent(n_steps=3),
    Wang2017SVRG(n_epochs=1),
    Wang2017SVRG(growth=10.0, n_epochs=1),
    Wang2017SVRGPlusPlus(norm=0.1, n_epochs=1),
    Arora2022Smooth(n_steps=3),
    Arora2022Lipschitz(n_steps=3),
    Wang2017NonConvex(n_steps=3),
    Wang2017PolyakLojasiewicz(),
    *(
        Preprocessed(steps, solver)
        for steps, solver in (
            ([Center()], FEW),
            ([Scale()], FEW),
            ([ClipToQuantile(), Center()], Newton(n_steps=2)),
            ([Whiten()], FEW),
            ([InstanceOptimalCenter()], FEW),
            ([RandomProjection(2)], FEW),
            ([Center(), Scale()], NoisySGD(n_steps=3)),
            ([Center()], OutputPerturbation()),
            ([ClipToQuantile()], pure_gd(n_steps=2)),
        )
    ),
    BestIterate(n_steps=3),
    BestIterate(),
    NormGridSearch(FEW, bounds=(1.0, 2.0)),
    NormGridSearch(pure_gd(n_steps=2)),
    ConfidenceBoosting(FEW, n_models=2),
    ConfidenceBoosting(OutputPerturbation(), n_models=2, choice_fraction=0.5),
    HeldOutSearch(_candidates(FEW, Newton(n_steps=2)), 0.2),
    HeldOutSearch(_candidates(NoisySGD(n_steps=3), pure_gd(n_steps=2)), 0.5),
    RepeatedSearch(_candidates(FEW, Newton(n_steps=2)), NegativeBinomialNumber(0.5), 0.1),
    RepeatedSearch(_candidates(FEW, OutputPerturbation()), PoissonNumber(2.0), 0.2),
    RepeatedSearch(_candidates(NoisySGD(n_steps=3), FEW), NegativeBinomialNumber(0.5), 0.1),
)
# A new solver is asked with its default settings.
SOLVERS: tuple[Solver, ...] = (
    *OPTIONS,
    *(one for one in (make() for make in NAMED.values()) if type(one) not in map(type, OPTIONS)),
)


@dataclass(frozen=True)
class Setting:
    """A planned problem, and its rows."""

    solver: Solver
    problem: Problem
    budget: PrivacyBudget
    facts: dict[str, Any]
    adjacency: Adjacency
    n: int
    kind: str
    seed: int

    def plan(self) -> Plan:
        """Plan, or raise ValueError, before a row is seen."""
        return self.solver.plan(self.problem, self.budget, DataSpec(**self.facts), self.adjacency)

    def rows(self) -> Rows:
        """Rows within the types, however hostile."""
        rng, data = np.random.default_rng(self.seed), DataSpec(**self.facts)
        X = KINDS[self.kind](rng, self.n, data.n_features).astype(data.dtype)
        if data.sparse:
            X = sparse.csr_array(X)
        weights = None
        if data.weight_bound != 1.0:
            weights = rng.choice([1e300, 1.0, 5e-324], self.n)
        rows = prepare_rows(X, self._targets(rng, data), data, weights=weights)
        if data.groups is None:
            return rows
        assert isinstance(rows, ArrayRows)
        ends = np.sort(rng.integers(0, self.n + 1, data.groups.n_groups - 1))
        return GroupedRows(rows, np.concatenate([[0], ends, [self.n]]))

    def _targets(self, rng: np.random.Generator, data: DataSpec) -> Any:
        one = rng.random() < 0.3
        if self.problem.loss.target is Target.BINARY:
            return np.full(self.n, 1.0) if one else rng.choice([-1.0, 1.0], self.n)
        if self.problem.loss.target is Target.CLASS:
            classes = data.n_outputs
            return np.full(self.n, classes - 1) if one else rng.integers(0, classes, self.n)
        low, high = data.target_range(self.problem.loss.target.bounds)
        low, high = max(low, -1e300), min(high, 1e300)
        if self.problem.loss.target is Target.POSITIVE:
            low, high = max(low, 5e-324), max(high, 5e-324)
        y = np.full(self.n, high) if one else rng.choice([low, high], self.n)
        if self.problem.loss.target is Target.COUNT:
            y = np.full(self.n, math.floor(min(high, 1e300)), dtype=float)
        if not isinstance(self.problem.loss, WithOffset):
            return y
        reach = min(self.problem.loss.bound, 1e300)
        return np.column_stack([y, rng.choice([-reach, 0.0, reach], self.n)])


def _mixed(rng: np.random.Generator, n: int, d: int) -> Any:
    scales = rng.choice([1e30, 1e-30, 1.0, 0.0, 5e-324, 1e-308], (n, 1))
    return rng.normal(size=(n, d)) * scales


KINDS = {
    "usual": lambda rng, n, d: rng.normal(size=(n, d)),
    "zero": lambda rng, n, d: np.zeros((n, d)),
    "equal": lambda rng, n, d: np.full((n, d), 0.3),
    "huge": lambda rng, n, d: rng.choice([-1e38, 1e38], (n, d)),
    "tiny": lambda rng, n, d: rng.choice([-5e-324, 1e-40, 0.0], (n, d)),
    "mixed": _mixed,
    "one column": lambda rng, n, d: np.eye(1, d) * rng.normal(size=(n, 1)),
}


@st.composite
def settings_and_rows(draw: Any, solvers: tuple[Solver, ...] = SOLVERS) -> Setting:
    """Draw a setting: at most three things about it are out of the ordinary."""
    strange = draw(st.sets(st.integers(0, 7), max_size=3))

    def pick(number: int, usual: Any, others: tuple[Any, ...]) -> Any:
        return draw(st.sampled_from(others)) if number in strange else usual

    solver = draw(st.sampled_from(solvers))
    loss = draw(st.sampled_from(LOSSES))
    is_number = loss.target.is_number
    low, high = pick(0, (0.0, 1.0), TARGETS) if is_number else (-math.inf, math.inf)
    problem = Problem(
        loss,
        draw(st.sampled_from(PENALTIES)),
        pick(1, Unconstrained(), CONSTRAINTS),
        penalize_intercept=draw(st.booleans()),
    )
    row_norm = pick(2, 1.0, ROW_NORMS)
    n_rows = draw(st.sampled_from((40, 1, 2, 3, 300)))
    adjacency = draw(st.sampled_from(list(Adjacency)))
    facts: dict[str, Any] = dict(  # noqa: C408
        n_rows=n_rows,
        n_features=pick(3, 3, (1, 2, 40, 300)),
        n_outputs=3 if loss.target is Target.CLASS else 1,
        row_norm=row_norm,
        intercept=draw(st.sampled_from((0.0, row_norm, 1.0))),
        dtype=draw(st.sampled_from(("float64", "float64", "float32"))),
        sparse=draw(st.booleans()),
        weight_bound=pick(4, 1.0, TINY_AND_HUGE),
        target_low=low,
        target_high=high,
        entry_bound=pick(5, math.inf, TINY_AND_HUGE),
        groups=pick(7, None, (GroupBound(3, 2.0), GroupBound(20, 1.0), GroupBound(1, 40.0))),
    )
    n = n_rows if adjacency.n_is_public else draw(st.sampled_from((n_rows, 1, 40 * n_rows + 7)))
    return Setting(
        solver=solver,
        problem=problem,
        budget=pick(6, BUDGETS[0], BUDGETS),
        facts=facts,
        adjacency=adjacency,
        n=n,
        kind=draw(st.sampled_from(list(KINDS))),
        seed=draw(st.integers(0, 2**16)),
    )
