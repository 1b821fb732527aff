"""Accuracy against epsilon on generated rows of a plan's shape, before any private row."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpglm._progress import stage
from dpglm._validation import check_integer, check_real
from dpglm.data.prepare import prepare_rows
from dpglm.data.spec import DataSpec
from dpglm.privacy import gdp
from dpglm.privacy.budget import ApproximateDP, GaussianDP, default_delta, is_pure
from dpglm.privacy.noise import SeededNoise
from dpglm.problem import Target
from dpglm.solvers.auto import Auto
from dpglm.solvers.base import Plan, Solver
from dpglm.solvers.run import run

# Generated rows and targets with signal of typical strength, and scores of models.

METRIC: Mapping[Target, str] = MappingProxyType(
    {
        Target.BINARY: "Area under the ROC curve",
        Target.CLASS: "Accuracy",
        Target.REAL: "R squared",
        Target.COUNT: "Share of the deviance that is explained",
        Target.POSITIVE: "Share of the deviance that is explained",
        Target.PROPORTION: "Square of the correlation of ranks",
    }
)
"""What ``GeneratedRows.score`` returns."""
Floats = NDArray[np.float64]
_N_TEST = 4000
# Typical length of a row against the bound, and the share of its square common to all rows.
_LENGTH, _COMMON = 0.5, 0.5
# The score times these is the log odds of two classes, or what Gumbel noise is added to.
_SLOPE, _SLOPE_OF_CLASSES = 2.6, 5.0
# Standard deviation of numbers, in half ranges of the target.
_SPREAD = 0.4
# Mean of counts and amounts, in units of the largest, and standard deviation of their logarithms.
_MEAN_COUNT, _SPREAD_OF_COUNTS = 0.2, 0.8


@final
@dataclass(frozen=True, eq=False)
class GeneratedRows:
    """A law of rows and targets, with test rows from it.

    Rows are ``mean + directions z`` with z standard normal, of shape (n_features,); scores, of unit
    variance, are ``z @ coefficients``, of shape (n_outputs,).
    """

    data: DataSpec
    target: Target
    mean: Floats
    directions: Floats
    coefficients: Floats
    X_test: Floats
    y_test: NDArray[Any]

    @classmethod
    def draw(cls, data: DataSpec, target: Target, rng: np.random.Generator) -> Self:
        """Draw a law, and rows to measure on."""
        d = data.n_features
        length = _LENGTH * data.row_norm
        variances = 1.0 / np.arange(1.0, d + 1.0)
        std = length * np.sqrt((1.0 - _COMMON) * variances / variances.sum())
        mean = rng.normal(size=d)
        mean *= length * math.sqrt(_COMMON) / np.linalg.norm(mean)
        turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
        coefficients = std[:, np.newaxis] * rng.normal(size=(d, data.n_outputs))
        coefficients /= np.linalg.norm(coefficients, axis=0)
        nothing = np.zeros((0, d)), np.zeros(0)
        law = cls(data, target, mean, std[:, np.newaxis] * turn, coefficients, *nothing)
        return cls(data, target, mean, law.directions, coefficients, *law.sample(_N_TEST, rng))

    def sample(self, n_rows: int, rng: np.random.Generator) -> tuple[Floats, NDArray[Any]]:
        """Draw rows, in the type of the shape, and their targets."""
        data = self.data
        normal = rng.normal(size=(n_rows, data.n_features))
        targets = _TARGETS[self.target](normal @ self.coefficients, data, rng)
        X = normal @ self.directions
        X += self.mean
        np.clip(X, -data.entry_bound, data.entry_bound, out=X)
        return X.astype(data.dtype, copy=False), targets

    def score(self, w: Floats) -> float:
        """Measure coefficients (intercept last, in units of its column) on the test rows."""
        w = w.reshape(self.data.n_columns, -1)
        z = self.X_test @ w[: self.data.n_features]
        if self.data.intercept:
            z = z + self.data.intercept * w[-1]
        return _SCORES[self.target](z, self.y_test)

    @property
    def constant_score(self) -> float:
        """Score of the best constant answer."""
        if self.target is Target.CLASS:
            return float(np.bincount(self.y_test).max() / len(self.y_test))
        return 0.5 if self.target is Target.BINARY else 0.0


def _binary(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    return np.where(rng.logistic(size=len(z)) < _SLOPE * z[:, 0], 1, -1)


def _classes(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    winners: NDArray[np.intp] = (_SLOPE_OF_CLASSES * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return winners


def _numbers(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(data, -1.0, 1.0)
    noisy = (z[:, 0] + rng.normal(size=len(z))) / math.sqrt(2.0)
    return np.clip(0.5 * (low + high + (high - low) * _SPREAD * noisy), low, high)


def _counts(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(data, 0.0, 1.0)
    noisy = (z[:, 0] + rng.normal(size=len(z))) / math.sqrt(2.0)
    logs = _SPREAD_OF_COUNTS * noisy - 0.5 * _SPREAD_OF_COUNTS**2
    return np.clip(_MEAN_COUNT * high * np.exp(logs), low, high)


def _proportions(z: Floats, data: DataSpec, rng: np.random.Generator) -> NDArray[Any]:
    low, high = _range(data, 0.0, 1.0)
    noisy = (z[:, 0] + rng.normal(size=len(z))) / math.sqrt(2.0)
    return np.clip(1.0 / (1.0 + np.exp(-_SLOPE * noisy)), low, high)


def _range(data: DataSpec, low: float, high: float) -> tuple[float, float]:
    """Return the declared range of the target, or a default."""
    is_bounded = math.isfinite(data.target_low) and math.isfinite(data.target_high)
    return (data.target_low, data.target_high) if is_bounded else (low, high)


def _area(z: Floats, y: NDArray[Any]) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(y, z[:, 0]))


def _accuracy(z: Floats, y: NDArray[Any]) -> float:
    return float(np.mean(z.argmax(axis=1) == y))


def _r_squared(z: Floats, y: NDArray[Any]) -> float:
    return float(1.0 - np.mean((y - z[:, 0]) ** 2) / np.var(y))


def _deviance(z: Floats, y: NDArray[Any]) -> float:
    from sklearn.metrics import d2_tweedie_score

    # Beyond these a prediction is as wrong as can be.
    return float(d2_tweedie_score(y, np.exp(np.clip(z[:, 0], -30.0, 30.0)), power=1))


def _of_ranks(z: Floats, y: NDArray[Any]) -> float:
    """Score a model of proportions, whatever its link is."""
    from scipy.stats import spearmanr

    if np.ptp(z) == 0.0:
        return 0.0
    correlation = float(spearmanr(z[:, 0], y).statistic)
    return math.copysign(correlation**2, correlation)


_TARGETS: Mapping[Target, Callable[[Floats, DataSpec, np.random.Generator], NDArray[Any]]] = {
    Target.BINARY: _binary,
    Target.CLASS: _classes,
    Target.REAL: _numbers,
    Target.COUNT: _counts,
    Target.POSITIVE: _counts,
    Target.PROPORTION: _proportions,
}
_SCORES: Mapping[Target, Callable[[Floats, NDArray[Any]], float]] = {
    Target.BINARY: _area,
    Target.CLASS: _accuracy,
    Target.REAL: _r_squared,
    Target.COUNT: _deviance,
    Target.POSITIVE: _deviance,
    Target.PROPORTION: _of_ranks,
}


# Fractions of the budget's epsilon.
_FRACTIONS = (0.03, 0.1, 0.3, 1.0, 3.0)
_LARGEST_EPSILON = 1e6
_NO_NOISE = GaussianDP(1e4)
# Larger problems are stood in for by smaller ones.
_MOST_COLUMNS, _MOST_ENTRIES, _ENOUGH_ROWS_PER_COLUMN = 400, 2_000_000, 10


@final
@dataclass(frozen=True, eq=False)
class ExpectedCurve:
    """Scores of private fits to generated rows at several epsilons.

    Parameters
    ----------
    epsilons : tuple of float
        Ascending.
    scores : ndarray of shape (n_epsilons, n_runs)
        Score of each fit, on fresh generated rows.
    without_noise : float
        Score of the default solver with hardly any noise.
    without_features : float
        Score of the best constant answer.
    chosen : float
        The plan's epsilon, to three digits.
    metric : str
        What the scores are.
    remarks : tuple of str
        How the rows were generated, and what that means.
    """

    epsilons: tuple[float, ...]
    scores: NDArray[np.float64]
    without_noise: float
    without_features: float
    chosen: float
    metric: str
    remarks: tuple[str, ...]

    def figure(self) -> Any:
        """Draw the curve as a Matplotlib figure (``pip install 'dpglm[plot]'``)."""
        from dpglm.report.plots import accuracy_against_epsilon

        fits = self.scores.shape[1]
        runs = f"Line: mean of {fits} fits. Shaded: their range." if fits > 1 else "Line: one fit."
        return accuracy_against_epsilon(
            self.epsilons,
            self.scores,
            without_privacy=self.without_noise,
            without_features=self.without_features,
            chosen=self.chosen if self.chosen in self.epsilons else None,
            metric=self.metric,
            title="What privacy costs on generated rows of this shape",
            subtitle="\n".join([*self.remarks[:-1], f"Not your data: levels will differ. {runs}"]),
        )


def expected_curve(
    plan: Plan,
    epsilons: Sequence[float] | None = None,
    *,
    solver: Solver | None = None,
    n_runs: int = 3,
    random_state: int | None = None,
) -> ExpectedCurve:
    """Fit a plan's problem to generated rows of its shape, at several epsilons.

    Parameters
    ----------
    plan : Plan
        From ``estimator.plan(...)``.
    epsilons : sequence of float, optional
        Above 0, different; by default 0.03, 0.1, 0.3, 1 and 3 times the plan's.
    solver : Solver, optional
        What the estimator was told to use; by default the default solver.
    n_runs : int, default=3
        Fits for each epsilon, at least 1.
    random_state : int, optional
        Seed of rows and noise; by default others each time.

    Returns
    -------
    ExpectedCurve

    Raises
    ------
    ValueError
        If a parameter is out of range, the solver does not fit the problem, or the plan is for
        groups.

    Notes
    -----
    Rows are half as long as ``row_norm`` allows, half of that (by squared length) being common
    to all rows; the variance along the k-th direction, turned at random, goes as 1/k. A linear
    score with random coefficients decides the target: two classes that overlap so far that the
    best area under the ROC curve is about 0.9; several classes of which the largest score plus
    Gumbel noise wins; numbers of which half of the variance can be predicted, with a standard
    deviation of a fifth of their range; counts whose logarithms are such numbers. So it shows
    what the numbers of rows, columns and classes, the budget and the solver do, with signal of a
    usual strength. It knows nothing of your columns: where these tell more or less, hold
    outliers, or rows are far shorter than ``row_norm``, levels differ.

    Problems too large to be tried quickly are stood in for by fewer rows and columns at the same
    ``n mu / sqrt(coefficients)``, and ``remarks`` says so.

    Privacy: no private row is used, and the plan depends on public facts only.

    Examples
    --------
    >>> from dpglm import LogisticRegression
    >>> plan = LogisticRegression(row_norm=2.0).plan(n_rows=2000, n_features=5)
    >>> curve = expected_curve(plan, [0.01, 1.0], n_runs=2, random_state=0)
    >>> curve.scores.shape, curve.metric
    ((2, 2), 'Area under the ROC curve')
    """
    check_integer("n_runs", n_runs, least=1)
    if plan.data.groups is not None:
        raise ValueError(
            f"n_groups must be None for a plan that is drawn, got {plan.data.groups.n_groups}: "
            "nothing tells how alike the rows of a group are"
        )
    budget = _in_epsilon(plan)
    epsilons = default_epsilons(plan) if epsilons is None else epsilons
    eps = sorted(check_real("epsilons", one, above=0.0, most=_LARGEST_EPSILON) for one in epsilons)
    if not eps or len(set(eps)) < len(eps):
        raise ValueError(f"epsilons must be different numbers above 0, got {epsilons!r}")
    data, stretch = _stand_in(plan)
    rng = np.random.default_rng(random_state)
    made = GeneratedRows.draw(data, plan.problem.loss.target, rng)
    X, y = made.sample(data.n_rows, rng)
    rows = prepare_rows(sparse.csr_array(X) if data.sparse else X, y, data)

    def score(solver: Solver, budget: ApproximateDP | GaussianDP) -> float:
        fit = solver.plan(plan.problem, budget, data, plan.adjacency)
        w = run(fit, rows, SeededNoise(int(rng.integers(2**63)))).w
        advance(1)
        return made.score(w)

    solver = Auto() if solver is None else solver
    budgets = [_stretched(ApproximateDP(one, budget.delta), stretch) for one in eps]
    with stage("Fits to generated rows", len(eps) * n_runs + 1) as advance:
        scores = np.array([[score(solver, one) for _ in range(n_runs)] for one in budgets])
        without_noise = score(Auto(), _NO_NOISE)
    return ExpectedCurve(
        epsilons=tuple(eps),
        scores=scores,
        without_noise=without_noise,
        without_features=made.constant_score,
        chosen=_rounded(budget.epsilon),
        metric=METRIC[plan.problem.loss.target],
        remarks=_remarks(plan, data),
    )


def default_epsilons(plan: Plan) -> list[float]:
    """Return the epsilons at which a plan is tried unless others are given."""
    found = [_rounded(_in_epsilon(plan).epsilon * part) for part in _FRACTIONS]
    return [epsilon for epsilon in found if epsilon <= _LARGEST_EPSILON]


def _in_epsilon(plan: Plan) -> ApproximateDP:
    """Return the budget, or an approximate equivalent at the default delta."""
    if isinstance(plan.budget, ApproximateDP):
        return plan.budget
    delta = default_delta(plan.data.n_rows)
    return ApproximateDP(_rounded(gdp.epsilon(delta, plan.budget.gdp_mu())), delta)


def _rounded(epsilon: float) -> float:
    return float(f"{epsilon:.3g}")


def _stand_in(plan: Plan) -> tuple[DataSpec, float]:
    """Return a size that is quick to try, and the factor on mu that it needs."""
    whole = plan.data
    n_features = min(whole.n_features, _MOST_COLUMNS)
    data = dataclasses.replace(whole, n_features=n_features)
    # Rows per column stay what they are, up to where more make no difference.
    n_rows = min(
        math.ceil(whole.n_rows * n_features / whole.n_features),
        max(_MOST_ENTRIES // data.n_coefficients, _ENOUGH_ROWS_PER_COLUMN * data.n_columns),
    )
    fewer = data.n_coefficients / whole.n_coefficients
    root = fewer if is_pure(plan.budget) else math.sqrt(fewer)
    return dataclasses.replace(data, n_rows=n_rows), whole.n_rows / n_rows * root


def _stretched(budget: ApproximateDP, stretch: float) -> ApproximateDP:
    if stretch == 1.0:
        return budget
    if budget.delta == 0.0:
        return ApproximateDP(min(budget.epsilon * stretch, _LARGEST_EPSILON), 0.0)
    epsilon = gdp.epsilon(budget.delta, budget.gdp_mu() * stretch)
    # A mu below that of epsilon 0 is left to the least epsilon above it.
    return ApproximateDP(min(max(epsilon, 1e-9), _LARGEST_EPSILON), budget.delta)


def _remarks(plan: Plan, data: DataSpec) -> tuple[str, ...]:
    whole = plan.data
    sizes = f"{whole.n_rows} rows, {whole.n_features} columns"
    if whole.n_outputs > 1:
        sizes += f", {whole.n_outputs} classes"
    signals = {
        Target.BINARY: "the best model has an area of about 0.9",
        Target.CLASS: "classes overlap",
        Target.REAL: "half of the target's variance can be predicted",
        Target.COUNT: "half of the variance of the log count can be predicted",
        Target.POSITIVE: "half of the variance of the log target can be predicted",
        Target.PROPORTION: "half of the variance of the log odds can be predicted",
    }
    found = [f"{sizes}; {signals[plan.problem.loss.target]}."]
    if (data.n_rows, data.n_features) != (whole.n_rows, whole.n_features):
        found.append(
            f"To be quick, tried with {data.n_rows} rows and {data.n_features} columns at the same "
            "signal per coefficient."
        )
    found.append(
        "Generated rows know nothing of yours: where your columns tell more or less, or rows are "
        "far shorter than row_norm, levels differ."
    )
    return tuple(found)
