"""No public option lets one row move a release by more than was declared."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.preprocessing import Normalizer, PolynomialFeatures

from dpglm import (
    ApproximateDP,
    BinomialRegressor,
    ElasticNet,
    GammaRegressor,
    GeneralizedLinearClassifier,
    GeneralizedLinearRegressor,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    MappedRows,
    NegativeBinomialRegressor,
    NoisyGD,
    PoissonRegressor,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    QuantileRegressor,
    Ridge,
    RobustClassifier,
    TweedieRegressor,
)
from dpglm.preprocessing import Center, ClipToQuantile, RandomProjection, Scale, Whiten
from dpglm.privacy import Adjacency
from dpglm.problem import L2Ball
from dpglm.selection import BestIterate, ConfidenceBoosting, NormGridSearch
from dpglm.solvers import SOLVERS, NoisySGD, UniformAverage
from tests.fits import admitted_bounds
from tests.laws.budgets import examples
from tests.laws.transcripts import Transcript, excess, listening

ESTIMATORS = [
    LogisticRegression(),
    Ridge(),
    LinearSVC(loss="hinge"),
    LinearSVC(),
    RobustClassifier(loss="tempered"),
    GeneralizedLinearClassifier(loss="savage"),
    GeneralizedLinearRegressor(loss="poisson"),
    LinearRegression(),
    Lasso(alpha=0.01),
    ElasticNet(alpha=0.01),
    HuberRegressor(),
    PoissonRegressor(),
    GammaRegressor(),
    TweedieRegressor(),
    NegativeBinomialRegressor(dispersion=0.5),
    BinomialRegressor(link="cloglog"),
    QuantileRegressor(quantile=0.2),
]
WITH_OFFSETS = PoissonRegressor | GammaRegressor | NegativeBinomialRegressor | BinomialRegressor
CONTAINERS = {
    "strided": lambda X, y, weights: (np.repeat(X, 2, axis=1)[:, ::2], y, weights),
    "csr": lambda X, y, weights: (sparse.csr_array(X), y, weights),
    "C": lambda X, y, weights: (np.ascontiguousarray(X), y, weights),
    "F": lambda X, y, weights: (np.asfortranarray(X), y, weights),
    "table": lambda X, y, weights: (pd.DataFrame(X), pd.Series(y), weights),
    "lists": lambda X, y, weights: (X.tolist(), y.tolist(), weights.tolist()),
    "tensor": lambda X, y, weights: (torch.tensor(X), torch.tensor(y), weights),
    "mapped": lambda X, y, weights: (MappedRows(X, y, weights), None, None),
}
# By name with default settings, and with settings that the name does not reach.
ALL_SOLVERS = (
    *SOLVERS,
    NoisyGD(n_steps=4, step_size=1.0, automatic_clipping=True),
    NoisyGD(n_steps=4, step_size=1.0, clip=50.0, sampling_rate=0.5, momentum=0.0),
    NoisyGD(clip=1e-6, output=UniformAverage(), shrink=True, compare=True),
    NoisySGD(n_steps=4, sampling_rate=0.3, clip=0.05),
    BestIterate(n_steps=3),
    NormGridSearch(NoisyGD(n_steps=2), bounds=(1.0, 2.0)),
    ConfidenceBoosting(NoisyGD(n_steps=2), n_models=2),
)
STEPS = {
    "none": [],
    "center": [Center()],
    "clip, scale": [ClipToQuantile(), Scale()],
    "whiten": [Whiten()],
    "project": [RandomProjection(2)],
    "fixed": [Normalizer()],
    "fixed, center": [PolynomialFeatures(2, include_bias=False), Center()],
}
IN_MEMORY_ONLY = {"fixed", "fixed, center"}
ROWS = (1e30, 1e6, 5e-324, 1.0, 0.0)
REFUSED = (np.nan, np.inf, -np.inf)
D, MOST_ASKED, HEAVIEST = 3, 6, 3.0


@dataclasses.dataclass(frozen=True)
class Fit:
    """One choice of every option."""

    estimator: Any
    solver: Any
    adjacency: Adjacency
    container: str
    dtype: str
    steps: str
    search: str
    n: int
    options: dict[str, Any]
    row: float
    target: float
    seed: int
    reach: float
    # Of the row; all others have small ones.
    offset: float | None

    @property
    def weighted(self) -> bool:
        return self.adjacency is Adjacency.ZERO_OUT or self.options.get("weight_bound", 1.0) != 1.0

    def model(self, ledger=None):
        regress = is_regressor(self.estimator)
        options = {
            "solver": self.solver,
            "adjacency": self.adjacency.value,
            "random_state": self.seed if ledger is None else None,
            "epsilon": 5.0,
            "delta": 1e-3,
            "n_rows": None if self.adjacency.n_is_public else self.n,
            **self.options,
            **({"target_bounds": admitted_bounds(self.estimator, (0.0, 5.0))} if regress else {}),
        }
        if regress:
            options.pop("classes", None)
            options.pop("class_weight", None)
        model = clone(self.estimator).set_params(**options)
        shared = {name: options[name] for name in ("epsilon", "delta")}
        own = {name: options[name] for name in ("adjacency", "n_rows", "random_state")}
        solver = "solver"
        if STEPS[self.steps]:
            model.set_params(adjacency="zero_out", n_rows=None, random_state=None)
            model.set_params(epsilon=1.0, delta="auto")
            model = PrivatePipeline([*STEPS[self.steps], ("model", model)], **own)
            solver = "model__solver"
        if self.search:
            model.set_params(epsilon=1.0, delta="auto")
            grid = {solver: [self.solver, NoisyGD(n_steps=2)]}
            return PrivateGridSearchCV(model, grid, method=self.search, ledger=ledger, **shared)
        return model.set_params(ledger=ledger, **shared)

    def tables(self):
        """Rows, targets and weights of two neighbours; the row is the last one."""
        rng = np.random.default_rng(self.seed)
        X = rng.uniform(-1.5, 1.5, size=(self.n, D))
        if is_regressor(self.estimator):
            least = 1e-6 if isinstance(self.estimator, GammaRegressor) else 0.0
            y, ends = rng.uniform(0.0, 5.0, self.n), (self.target, least)
        else:
            classes = self.options["classes"]
            y, ends = rng.choice(classes, self.n), (classes[-1], classes[0])
        weights = rng.uniform(0.0, HEAVIEST, self.n)
        row = self.row * rng.choice([-1.0, 1.0], D)
        X[-1], y[-1], weights[-1] = row, ends[0], 1e6
        X2, y2, weights2 = X.copy(), y.copy(), weights.copy()
        if self.adjacency is Adjacency.REPLACE_ONE:
            X2[-1], y2[-1] = self.row * rng.choice([-1.0, 1.0], D), rng.choice(ends)
        elif self.adjacency is Adjacency.ZERO_OUT:
            weights2[-1] = 0.0
        else:
            X2, y2, weights2 = X2[:-1], y2[:-1], weights2[:-1]
        return (X, y, weights), (X2, y2, weights2)

    def stored(self, table):
        X, y, weights = table
        X, y, weights = CONTAINERS[self.container](X.astype(self.dtype), y, weights)
        return X, y, weights if self.weighted else None

    def asked(self, table, earlier=None, ledger=None) -> tuple[Transcript, str]:
        """Releases of a fit, and the reason of a refusal."""
        refused = ""
        where = {"missing": self.n - 1, "n": self.n}
        with listening(earlier, most=MOST_ASKED, reach=self.reach, **where) as seen:
            try:
                X, y, weights = self.stored(table)
                given = {"sample_weight": weights}
                if self.offset is not None:
                    rng = np.random.default_rng(self.seed)
                    given["offset"] = rng.uniform(-1.0, 1.0, self.n)
                    given["offset"][-1] = self.offset
                    given["offset"] = given["offset"][: len(table[0])]
                self.model(ledger).fit(X, y, **given)
            except ValueError as error:
                refused = str(error)
        return seen, refused


@st.composite
def fits(draw, rows=ROWS, solvers=ALL_SOLVERS):
    estimator = draw(st.sampled_from(ESTIMATORS))
    steps = draw(st.sampled_from(list(STEPS)))
    containers = [one for one in CONTAINERS if one not in ("mapped", "tensor", "lists")]
    container = draw(st.sampled_from(list(containers if STEPS[steps] else CONTAINERS)))
    bounds: dict[str, Any] = draw(
        st.sampled_from(
            [
                {"row_norm": 1.5},
                {"feature_bounds": ([-2.0, 0.0, -1.0], [1.0, 3.0, 0.0])},
                {"row_norm": 1e-6, "feature_bounds": (-1e3, 1e6)},
                {"row_norm": 1e6},
            ]
        )
    )
    if STEPS[steps] and "feature_bounds" in bounds:
        bounds = {"row_norm": 1.5}
    options = {
        **bounds,
        "fit_intercept": draw(st.sampled_from([True, True, False])),
        "classes": draw(st.sampled_from([[0, 1], [0, 1, 2]])),
        "weight_bound": draw(st.sampled_from([HEAVIEST, 1.0, 0.1])),
        "penalize_intercept": draw(st.booleans()),
        "constraint": draw(st.sampled_from([None, L2Ball(0.7)])),
    }
    if not is_regressor(estimator):
        options["class_weight"] = draw(st.sampled_from([None, {0: 0.5, 1: 4.0}]))
    search = draw(st.sampled_from(["", "", "repeated", "held_out"]))
    offset = None
    if isinstance(estimator, WITH_OFFSETS) and not (
        STEPS[steps] or search or container == "mapped"
    ):
        offset = draw(st.sampled_from([None, 1e300, -1e300, 50.0]))
        options["offset_bounds"] = draw(st.sampled_from([None, (-1.0, 2.0)]))
    return Fit(
        offset=offset,
        estimator=estimator,
        solver=draw(st.sampled_from(solvers)),
        adjacency=draw(st.sampled_from(list(Adjacency)[::-1])),
        container=container,
        dtype=draw(st.sampled_from(["float32", "float64"])),
        steps=steps,
        search=search,
        n=draw(st.sampled_from([40, 2, 3, 1])),
        options=options,
        row=draw(st.sampled_from(rows)),
        target=draw(st.sampled_from([1e6, 1e30, 0.0])),
        seed=draw(st.integers(0, 2**16)),
        reach=draw(st.sampled_from([1e3, 1.0])),
    )


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@examples(10)
@given(fit=fits())
def test_rows_move_releases_within_bounds(fit):
    one, other = fit.tables()
    if not len(other[0]) or not other[2].any():
        # Empty tables and zero weights are refused, as scikit-learn requires.
        return
    seen, refused = fit.asked(one)
    again, refused_again = fit.asked(other, seen)
    if "infinity" in refused + refused_again:
        # A fixed transformer may make such a value out of a huge one.
        assert not seen.asked
        return
    assert refused == refused_again
    assert excess(seen, again) <= 1.0


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::RuntimeWarning")
@examples(6)
@given(fit=fits(rows=REFUSED, solvers=("noisy_gd", "newton")))
def test_non_finite_rows_are_refused_before_any_release(fit):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.ledger"
        ledger = PrivacyLedger.create(
            path,
            data="rows",
            budget=ApproximateDP(50.0, 1e-2),
            filter="basic",
            adjacency=fit.adjacency,
        )
        seen, refused = fit.asked(fit.tables()[0], ledger=ledger)
        assert re.search("NaN|infinity|finite", refused) or "must" in refused
        assert not seen.asked
        assert not ledger.contents().entries
