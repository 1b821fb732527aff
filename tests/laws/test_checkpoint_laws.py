"""A checkpoint is of one fit: whatever else a fit could have been given, it is refused."""

from __future__ import annotations

import dataclasses
import os
import shutil
from dataclasses import dataclass

import numpy as np
import pytest
from sklearn.base import clone

from dpglm import (
    ElasticNet,
    GaussianDP,
    HuberRegressor,
    Lasso,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    NoisyGD,
    PoissonRegressor,
    PrivacyLedger,
    Ridge,
    RobustClassifier,
)
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.data.stream.arrow import ParquetRows
from dpglm.data.stream.stored import MappedRows
from dpglm.estimators.linear import _base as _identity
from dpglm.exceptions import BudgetExceededError, PlanMismatchError
from dpglm.preprocessing import Center
from dpglm.privacy.budget import ApproximateDP
from dpglm.privacy.noise import NoiseSource, SystemNoise
from dpglm.problem import (
    L1,
    L2,
    L2Ball,
    Logistic,
    Problem,
    SmoothedHinge,
    Sparsemax,
    Squared,
    Tangent,
    Target,
)
from dpglm.selection import BestIterate
from dpglm.solvers import D2P2, SOLVERS, CheckpointFile, NoisySGD, Preprocessed, run
from dpglm.solvers.gradient.noisy_gd_method import NoisyGDMethod
from dpglm.tables.schema import Schema
from tests.slowly import some_quickly

N, D = 200, 3
STEPS = NoisyGD(n_steps=4)


class OtherNoise(NoiseSource):
    """Private noise by another name."""

    name, is_private = "another generator", True

    def words(self, count):
        return SystemNoise().words(count)


CHANGES = {
    "adjacency": "replace_one",
    "alpha": 0.5,
    "budget": GaussianDP(1.0),
    "C": 0.25,
    "class_weight": {0: 0.5},
    "classes": [0, 1, 2],
    "constraint": L2Ball(2.0),
    "delta": 1e-6,
    "epsilon": 0.9,
    "feature_bounds": (-2.0, 2.0),
    "fit_intercept": False,
    "l1_ratio": 0.25,
    "multi_class": "ovr",
    "n_rows": N,
    "penalize_intercept": True,
    "prior_scales": 3.0,
    "random_state": OtherNoise(),
    "regularizer": L1(0.3),
    "row_norm": 2.5,
    "solver": NoisyGD(n_steps=5),
    "target_bounds": (0.0, 4.0),
    "offset_bounds": (-1.0, 1.0),
    "threshold": 0.4,
    "weight_bound": 0.5,
}
LOSSES = {"LinearSVC": SmoothedHinge(0.5), "RobustClassifier": Tangent()}
# Who may change: the model is the same whatever these are.
FREE = {"callback", "ledger", "verbose"}
# Refused with this solver, and without groups: tests/inference/test_inference.py,
# tests/estimators/test_groups.py.
ELSEWHERE = {"inference", "max_rows_per_group", "n_groups", "weighting"}

CLASSIFIERS = [LogisticRegression(), LinearSVC(), RobustClassifier()]
REGRESSORS = [
    LinearRegression(),
    Ridge(),
    Lasso(),
    ElasticNet(),
    HuberRegressor(),
    PoissonRegressor(),
]
DECLARED = {"solver": STEPS, "feature_bounds": (-1.0, 1.0), "row_norm": 2.0}


class InterruptionError(Exception):
    pass


def interrupt(info):
    if info.step == 2:
        raise InterruptionError


def data():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(N, D))
    return X, (X[:, 0] > 0).astype(int)


def declared(estimator):
    own = {"classes": [0, 1]} if hasattr(estimator, "classes") else {"target_bounds": (0.0, 1.0)}
    return clone(estimator).set_params(**DECLARED, **own)


def interrupted(model, path, X, y, **options):
    with pytest.raises(InterruptionError):
        clone(model).set_params(callback=interrupt).fit(X, y, checkpoint=path, **options)


def taken_up(model, path, X, y, **options):
    """The error of a fit with a copied checkpoint: None if the fit goes on."""
    copy = path.with_name("copy")
    shutil.copy(path, copy)
    try:
        model.fit(X, y, checkpoint=copy, **options)
    except PlanMismatchError as error:
        return str(error)
    return None


@pytest.mark.parametrize("estimator", CLASSIFIERS + REGRESSORS, ids=lambda one: type(one).__name__)
def test_every_parameter_is_part_of_a_checkpoint(tmp_path, estimator):
    model, path, (X, y) = declared(estimator), tmp_path / "kept", data()
    interrupted(model, path, X, y)
    changes = {**CHANGES, "loss": LOSSES.get(type(estimator).__name__)}
    for name in sorted(set(model.get_params()) - FREE - ELSEWHERE):
        message = taken_up(clone(model).set_params(**{name: changes[name]}), path, X, y)
        assert message is not None, name
        assert "is the checkpoint of another fit" in message
    ledger = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=GaussianDP(9.0))
    free = clone(model).set_params(callback=[].append, ledger=ledger, verbose=1)
    assert taken_up(free, path, X, y) is None


@pytest.mark.parametrize("other", REGRESSORS[1:], ids=lambda one: type(one).__name__)
def test_the_estimator_is_part_of_a_checkpoint(tmp_path, other):
    path, (X, y) = tmp_path / "kept", data()
    interrupted(declared(LinearRegression()), path, X, y)
    assert "estimator" in taken_up(declared(other), path, X, y)


@dataclass
class Unit:
    """An object of the user's, distinguished by its contents."""

    factor: float


class Rescaled(Ridge):
    """Has a parameter that no plan, no fact and no list in the library knows of."""

    def __init__(
        self, *, unit=None, solver=STEPS, target_bounds=None, feature_bounds=None, callback=None
    ):
        super().__init__(
            solver=solver,
            target_bounds=target_bounds,
            feature_bounds=feature_bounds,
            callback=callback,
        )
        self.unit = unit

    def _model(self, values):
        coef, intercept = super()._model(values)
        return coef * self.unit.factor, intercept * self.unit.factor


def rescaled(factor):
    return Rescaled(unit=Unit(factor), target_bounds=(0.0, 1.0), feature_bounds=(-1.0, 1.0))


def test_unknown_parameter_counts(tmp_path):
    path, (X, y) = tmp_path / "kept", data()
    interrupted(rescaled(1.0), path, X, y)
    assert "fact unit.factor was 1.0, is 2.0" in taken_up(rescaled(2.0), path, X, y)


def test_a_parameter_that_is_left_out_is_found_out(tmp_path, monkeypatch):
    # Planted: the list of ignored names has one too many.
    path, (X, y) = tmp_path / "kept", data()
    planted = _identity._WITHOUT_EFFECT | {"unit"}
    monkeypatch.setattr(_identity, "_WITHOUT_EFFECT", planted)
    interrupted(rescaled(1.0), path, X, y)
    assert taken_up(rescaled(2.0), path, X, y) is None


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({"classes": [1, 2]}, "classes"),
        ({"classes": [False, True]}, "classes"),
        ({"class_weight": {1: 0.001}}, "class_weight"),
        ({"feature_bounds": (-1.0, 1.5)}, "feature_bounds"),
    ],
)
def test_labels_weights_and_bounds_of_another_fit_are_refused(tmp_path, changed, names):
    path, (X, y) = tmp_path / "kept", data()
    model = declared(LogisticRegression())
    interrupted(model, path, X, y)
    labels = y + 1 if changed.get("classes") == [1, 2] else y
    assert f"fact {names}" in taken_up(clone(model).set_params(**changed), path, X, labels)


def test_targets_in_other_units_are_refused(tmp_path):
    path, (X, y) = tmp_path / "kept", data()
    model = declared(Ridge())
    interrupted(model, path, X, y)
    other = clone(model).set_params(target_bounds=(0.0, 100.0))
    assert "target_bounds was [0.0, 1.0], is [0.0, 100.0]" in taken_up(other, path, X, 100.0 * y)


@pytest.mark.filterwarnings("ignore::dpglm.exceptions.PublicInformationWarning")
def test_facts_taken_from_other_data_are_refused(tmp_path):
    path, (X, y) = tmp_path / "kept", data()
    interrupted(LogisticRegression(solver=STEPS, row_norm=2.0), path, X, y)
    model = LogisticRegression(solver=STEPS, row_norm=2.0)
    assert "fact classes in use" in taken_up(model, path, X, np.where(y, "yes", "no"))


def test_refused_fit_does_not_block_later_ones(tmp_path):
    path, (X, y) = tmp_path / "kept", data()
    poor = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=GaussianDP(0.1))
    model = declared(Ridge()).set_params(ledger=poor)
    with pytest.raises(BudgetExceededError):
        model.fit(X, y, checkpoint=path)
    model.set_params(budget=GaussianDP(0.05)).fit(X, y, checkpoint=path)
    assert len(poor.contents().entries) == 1
    # The charge is another matter.
    with pytest.raises(PlanMismatchError, match="of another fit"):
        model.set_params(budget=GaussianDP(0.04)).fit(X, y, checkpoint=path)


def test_checkpoint_contains_column_names_and_weights(tmp_path):
    pd = pytest.importorskip("pandas")
    path, (X, y) = tmp_path / "kept", data()
    model = declared(LogisticRegression())
    interrupted(model, path, pd.DataFrame(X, columns=["a", "b", "c"]), y)
    swapped = pd.DataFrame(X, columns=["a", "c", "b"])
    assert "feature names" in taken_up(model, path, swapped, y)
    assert "feature names" in taken_up(model, path, X, y)
    interrupted(model, weighted := tmp_path / "weighted", MappedRows(X, y), None)
    model.set_params(weight_bound=1.0)
    rows = MappedRows(X, y, np.full(N, 0.5))
    assert "weighted rows was false, is true" in taken_up(model, weighted, rows, None)


def schema(high):
    return Schema.from_dict(
        {
            "columns": {"a": {"type": "numeric", "low": 0, "high": high}},
            "target": {"name": "y", "type": "binary", "classes": [0, 1]},
            "provenance": "made up",
        }
    )


def test_the_schema_of_a_file_is_part_of_a_checkpoint(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y = data()
    pq.write_table(pa.table({"a": abs(X[:, 0]), "y": y}), tmp_path / "rows.parquet")
    path = tmp_path / "kept"
    model = LogisticRegression(solver=STEPS, row_norm=1.0, classes=[0, 1])
    one, other = (ParquetRows(tmp_path / "rows.parquet", schema=schema(high)) for high in (1, 2))
    interrupted(model, path, one, None)
    assert "fact schema" in taken_up(model, path, other, None)


def test_facts_of_the_user_are_part_of_a_checkpoint(tmp_path):
    path, (X, y) = tmp_path / "kept", data()
    model = declared(LogisticRegression())
    interrupted(model, CheckpointFile(path, {"encoding": 1}), X, y)
    with pytest.raises(PlanMismatchError, match="fact encoding was 1, is 2"):
        model.fit(X, y, checkpoint=CheckpointFile(path, {"encoding": 2}))
    with pytest.raises(ValueError, match=r"facts of other names than \['classes'\]"):
        model.fit(X, y, checkpoint=CheckpointFile(path, {"classes": 2}))
    model.fit(X, y, checkpoint=CheckpointFile(path, {"encoding": 1}))


def tried(tmp_path, plan, noise=None):
    """Run a plan with checkpoint and ledger; return whether it was refused, and the cost."""
    rng = np.random.default_rng(0)
    data = plan.data
    kinds = {Target.BINARY: np.sign, Target.CLASS: lambda z: (z > 0).astype(int)}
    target = kinds.get(plan.problem.loss.target, np.asarray)
    X = rng.uniform(-0.5, 0.5, (data.n_rows, data.n_features))
    rows = prepare_rows(X, target(X[:, 0]), data)
    ledger = PrivacyLedger.create(
        tmp_path / "ledger.db", data="people", budget=ApproximateDP(9.0, 0.1), filter="basic"
    )
    try:
        run(plan, rows, SystemNoise(), ledger=ledger, checkpoint=tmp_path / "kept")
    except ValueError:
        refused = True
    else:
        refused = False
    return refused, len(ledger.contents().entries)


def spends_for_nothing(outcome):
    return outcome not in ((True, 0), (False, 1))


def plan_of(solver):
    last = None
    for loss in (Logistic(), Squared(), Sparsemax()):
        data = DataSpec(
            n_rows=N,
            n_features=D,
            n_outputs=3 if loss == Sparsemax() else 1,
            intercept=1.0,
            entry_bound=1.0,
            target_low=-1.0,
            target_high=1.0,
        )
        try:
            return solver.plan(Problem(loss, L2(0.05)), ApproximateDP(1.0, 1e-5), data)
        except ValueError as error:
            last = error
    raise AssertionError(last)


NAMES = [*SOLVERS, "best_iterate"]
SHORT = {
    "noisy_sgd": NoisySGD(n_steps=3),
    "d2p2": D2P2(n_steps=3),
    "best_iterate": BestIterate(n_steps=3),
}


@pytest.mark.parametrize(
    ("name", "wrapped"),
    [
        *((name, False) for name in NAMES),
        # First one with an array as its state.
        *some_quickly(
            [(name, True) for name in sorted(NAMES, key="output_perturbation".__ne__)], 4
        ),
    ],
)
def test_state_that_cannot_be_kept_is_refused_before_spending(tmp_path, monkeypatch, name, wrapped):
    # Only time would be lost by waiting for the disk.
    monkeypatch.setattr(os, "fsync", lambda file: None)
    solver = SHORT[name] if name in SHORT else SOLVERS[name]()
    plan = plan_of(Preprocessed([Center()], solver) if wrapped else solver)
    assert not spends_for_nothing(tried(tmp_path, plan))


def test_a_state_that_cannot_be_kept_later_is_found_out(tmp_path, monkeypatch):
    # Planted: the state after the second step cannot be written.
    step = NoisyGDMethod.step

    def late(self, state, oracle):
        state, info = step(self, state, oracle)
        if info.step == 2:
            state = dataclasses.replace(state, velocity={"not": "an array"})
        return state, info

    monkeypatch.setattr(NoisyGDMethod, "step", late)
    assert spends_for_nothing(tried(tmp_path, plan_of(STEPS)))


def test_indistinguishable_facts_are_refused_before_spending(tmp_path):
    path, (X, y) = tmp_path / "kept", data()
    ledger = PrivacyLedger.create(tmp_path / "ledger.db", data="people", budget=GaussianDP(9.0))
    model = declared(LogisticRegression()).set_params(ledger=ledger)
    for unknown in (lambda: 1, (one for one in ())):
        with pytest.raises(ValueError, match="cannot be described"):
            model.fit(X, y, checkpoint=CheckpointFile(path, {"mine": unknown}))
    assert ledger.contents().entries == ()
    assert not path.exists()
