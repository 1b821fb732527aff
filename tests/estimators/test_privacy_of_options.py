"""One row of 1e6 moves no released sum further than the noise was made for, in any options."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone, is_regressor

from dpglm import (
    ElasticNet,
    GeneralizedLinearClassifier,
    GeneralizedLinearRegressor,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NoisyGD,
    PoissonRegressor,
    Ridge,
    RobustClassifier,
)
from dpglm.data import prepare
from dpglm.data.rows import DataSpec
from dpglm.problem import L2Ball
from dpglm.solvers import UniformAverage
from tests.audit.attack import scripted_releases
from tests.planted import unclipped

pytestmark = pytest.mark.one_in(3)

N, D, K = 30, 4, 11
CLASSIFIERS = [
    LogisticRegression(),
    LinearSVC(),
    LinearSVC(loss="hinge"),
    LinearSVC(loss="smoothed_hinge"),
    RobustClassifier(),
    GeneralizedLinearClassifier(),
    RobustClassifier(loss="tangent"),
    RobustClassifier(loss="tempered"),
]
REGRESSORS = [
    LinearRegression(),
    Ridge(),
    Lasso(alpha=0.01),
    ElasticNet(alpha=0.01),
    HuberRegressor(),
    GeneralizedLinearRegressor(),
    PoissonRegressor(),
]
OPTIONS = {
    "estimator": CLASSIFIERS + REGRESSORS,
    "adjacency": ["zero_out", "add_remove", "replace_one"],
    "layout": ["C", "F", "csr"],
    "dtype": ["float64", "float32"],
    "fit_intercept": [True, False],
    "bounds": ["row_norm", "feature_bounds", "both"],
    "weights": ["none", "sample", "class", "both"],
    "clipping": [{}, {"automatic_clipping": True}, {"clip": 0.05}, {"clip": 50.0}],
    "steps": [
        {},
        {"momentum": 0.0, "output": UniformAverage()},
        {"sampling_rate": 0.5},
    ],
    "extra": [{}, {"penalize_intercept": True}, {"constraint": L2Ball(0.7)}],
    "n_classes": [2, 3],
}


def covering(count, seed=0):
    """Random rows of options in which every pair of values of two options occurs often."""
    rng = np.random.default_rng(seed)
    columns = {}
    for name, values in OPTIONS.items():
        repeated = np.resize(np.arange(len(values)), count)
        columns[name] = [values[i] for i in rng.permutation(repeated)]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


CASES = covering(96)


def configured(case):
    regress = is_regressor(case["estimator"])
    options = {
        "adjacency": case["adjacency"],
        "fit_intercept": case["fit_intercept"],
        "random_state": 5,
        "epsilon": 20.0,
        "delta": 1e-3,
        "weight_bound": 3.0 if case["weights"] in ("sample", "both") else 1.0,
        "solver": NoisyGD(n_steps=4, step_size=1.0, **case["clipping"], **case["steps"]),
        **case["extra"],
    }
    if case["bounds"] in ("row_norm", "both"):
        options["row_norm"] = 1.5
    if case["bounds"] in ("feature_bounds", "both"):
        options["feature_bounds"] = ([-2.0, 0.0, -1.0, -1.0], [1.0, 3.0, 0.0, 1.0])
    if regress:
        options["target_bounds"] = (0.0, 5.0)
    else:
        options["classes"] = list(range(case["n_classes"]))
        if case["weights"] in ("class", "both"):
            options["class_weight"] = {0: 0.5, 1: 4.0}
    if case["adjacency"] == "add_remove":
        options["n_rows"] = N
    return clone(case["estimator"]).set_params(**options)


def table(case, row, target, *, drop=False, erase=False):
    """The common data with one row set, and erased or left out where a neighbour wants that."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1.5, 1.5, size=(N, D))
    regress = is_regressor(case["estimator"])
    y = rng.uniform(0, 5, N) if regress else rng.integers(0, case["n_classes"], N)
    weights = rng.uniform(0, 3, N) if case["weights"] in ("sample", "both") else np.ones(N)
    X[K], y[K], weights[K] = row, target, 1e6
    if erase:
        weights[K] = 0.0
    if drop:
        X, y, weights = (np.delete(a, K, axis=0) for a in (X, y, weights))
    X = X.astype(case["dtype"])
    stored = sparse.csr_array(X) if case["layout"] == "csr" else np.asarray(X, order=case["layout"])
    return stored, y, weights


def pairs(case):
    high = 1e6 if is_regressor(case["estimator"]) else case["n_classes"] - 1
    huge = np.array([1e6, -1e6, 1e6, 0.3])
    if case["adjacency"] == "replace_one":
        yield table(case, huge, high), table(case, -huge, 0)
        yield table(case, huge, high), table(case, np.zeros(D), 1)
    else:
        lost = {"erase": True} if case["adjacency"] == "zero_out" else {"drop": True}
        yield table(case, huge, high), table(case, huge, high, **lost)
        yield table(case, -huge, 0), table(case, -huge, 0, **lost)


def sums(case, data, size):
    model = configured(case)
    X, y, weights = data
    with scripted_releases(seed=2, size=size) as seen, np.errstate(over="ignore"):
        model.fit(X, y, sample_weight=weights)
    return seen, model.solution_.plan


def excess(case):
    """Largest distance of two neighbours' sums, relative to the declared bound."""
    worst = 0.0
    if case["adjacency"] == "add_remove" and "sampling_rate" in case["steps"]:
        # The same bits sample other rows once one is missing, so that sums cannot be compared.
        case = {**case, "steps": {}}
    # Iterates of ordinary size, and far out, where slopes saturate or overflow.
    for (first, second), size in zip(pairs(case), (1.0, 1e5), strict=True):
        seen, plan = sums(case, first, size)
        other, same_plan = sums(case, second, size)
        assert plan == same_plan
        assert len(seen) == len(other) == 4
        for (a, std), (b, _) in zip(seen, other, strict=True):
            made_for = std / plan.method.noise_multiplier
            worst = max(worst, float(np.linalg.norm(a - b)) / made_for)
        # Not by noise made for more than was declared.
        factor = 2.0 if case["adjacency"] == "replace_one" else 1.0
        declared = factor * plan.method.clipping.bound * plan.data.weight_bound
        assert made_for <= 1.02 * declared
    return worst


@pytest.mark.parametrize("case", CASES, ids=[str(i) for i in range(len(CASES))])
def test_one_row_of_1e6_stays_within_the_noise_s_sensitivity(case):
    assert excess(case) <= 1.0


@pytest.mark.parametrize("case", CASES[::3], ids=[str(i) for i in range(0, len(CASES), 3)])
def test_fit_executes_exactly_the_plan(case):
    model = configured(case)
    X, y, weights = table(case, np.ones(D), 1)
    sizes = {} if is_regressor(model) else {"n_classes": case["n_classes"]}
    planned = model.plan(N, D, dtype=case["dtype"], sparse=case["layout"] == "csr", **sizes)
    happened = model.fit(X, y, sample_weight=weights).solution_.plan
    assert model.privacy_.event == happened.event
    assert model.privacy_.mechanisms == happened.method.mechanisms
    assert model.n_iter_ == happened.n_steps
    assert happened == planned


def test_the_bound_is_attained():
    # Else the test above could not fail.
    assert max(excess(case) for case in CASES[:12]) > 0.95


PLAIN = {
    "estimator": LogisticRegression(),
    "adjacency": "zero_out",
    "layout": "C",
    "dtype": "float64",
    "fit_intercept": True,
    "bounds": "row_norm",
    "weights": "none",
    "clipping": {"clip": 0.05},
    "steps": {},
    "extra": {},
    "n_classes": 2,
}


BUGS = {
    "no clipping": (unclipped(), {}),
    "no clipping without an intercept": (
        unclipped(),
        {"fit_intercept": False, "layout": "csr"},
    ),
    "rows keep their length": (
        mock.patch.object(prepare, "_scale_rows", lambda X, factors: X),
        {"clipping": {"clip": 50.0}, "estimator": Ridge()},
    ),
    "weights are not clipped": (
        mock.patch.object(prepare.np, "clip", lambda a, *bounds, **kw: np.asarray(a)),
        {"weights": "sample"},
    ),
}


@pytest.mark.parametrize(("bug", "change"), BUGS.values(), ids=BUGS)
def test_planted_bugs_are_caught(bug, change):
    case = {**PLAIN, **change}
    assert excess(case) <= 1.0
    with bug:
        assert excess(case) > 1.0


@pytest.mark.parametrize("layout", ["C", "csr"])
@pytest.mark.parametrize("position", [0, 1, 10, N - 1])
def test_no_repair_of_a_row_depends_on_other_rows(layout, position):
    # One huge row, clipped or scaled, must leave every other row as it was.
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(N, D))
    y = rng.integers(0, 2, N) * 2 - 1
    X_huge = X.copy()
    X_huge[position] = 1e9
    spec = DataSpec(n_rows=N, n_features=D, row_norm=1.0, intercept=1.0, sparse=layout == "csr")
    stored = [sparse.csr_array(m) if layout == "csr" else m for m in (X, X_huge)]
    a, b = (next(prepare.prepare_rows(m, y, spec).blocks()) for m in stored)
    others = np.arange(N) != position
    for w in np.eye(D + 1):
        np.testing.assert_array_equal(a.predict(w)[others], b.predict(w)[others])
    np.testing.assert_array_equal(a.norms[others], b.norms[others])
