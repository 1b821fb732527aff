"""Pitfalls of whole fits: plans, refusals, resumed fits, files."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse

from dpglm import GaussianDP, LogisticRegression, MappedRows, NoisyGD, PrivacyLedger
from dpglm.cli import console as paths
from dpglm.cli.commands import app
from dpglm.data.compiled import kernels
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec
from dpglm.estimators.linear import _base
from dpglm.exceptions import BudgetExceededError, PlanMismatchError, RowsChangedError
from dpglm.ledger import store
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.counts import CountedRows
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.privacy.noise import SystemNoise
from dpglm.problem import Logistic, Poisson, Problem
from dpglm.selection import method as shares
from dpglm.selection.search import Candidate, HeldOutSearch
from dpglm.solvers import FrankWolfe, ObjectivePerturbation, pure_gd, run
from dpglm.tables.given import Watch
from tests.pitfalls.support import caught, model, small, unasked

PROBLEM = Problem(Logistic())


# 21. Parts within their shares, and a whole over the budget.


def the_whole_is_within_the_budget():
    ways = (NoisyGD(sampling_rate=0.05), pure_gd(), FrankWolfe())
    candidates = tuple(Candidate({"way": i}, way, lambda _: PROBLEM) for i, way in enumerate(ways))
    spec = DataSpec(n_rows=2000, n_features=5, intercept=1.0)
    budget = ApproximateDP(8.0, 1e-5)
    plan = HeldOutSearch(candidates, 0.2).plan(PROBLEM, budget, spec, Adjacency.REPLACE_ONE)
    assert plan.privacy()["epsilon"] <= 8.0


@contextlib.contextmanager
def each_part_has_the_whole_budget():
    with (
        mock.patch.object(shares, "shared_budget", lambda budget, count, gaussian: budget),
        mock.patch.object(shares, "within_budget", return_value=True),
    ):
        yield


def test_pitfall_21_the_whole_is_asked_and_not_only_its_parts():
    caught(unasked(each_part_has_the_whole_budget()), the_whole_is_within_the_budget)


# 22. A planned release that cannot be asked, so that a refusal tells neighbours apart.


def every_number_of_rows_is_fitted(n):
    spec = DataSpec(n_rows=10, n_features=3, intercept=1.0)
    plan = ObjectivePerturbation().plan(PROBLEM, ApproximateDP(1, 1e-5), spec, Adjacency.ADD_REMOVE)
    X, y = small(n)
    try:
        w = run(plan, prepare_rows(X, 2.0 * y - 1.0, spec), SystemNoise()).w
    except ValueError as error:
        pytest.fail(f"a fit of {n} rows was refused: {error}")
    assert np.isfinite(w).all()


def test_pitfall_22_no_private_number_of_rows_is_refused():
    every_number_of_rows_is_fitted(160)

    def limited(self, oracle):
        if oracle.rows.n_rows > 160:
            raise ValueError("n_rows must be at least 1/16 of the number of rows")
        return 1.0

    caught(mock.patch.object(CountedRows, "share", limited), every_number_of_rows_is_fitted, 161)


# 23. A refused refit that leaves names and labels of the refused rows.


def a_refused_refit_leaves_the_model_as_it_was(folder):
    X, y = small()
    fitted = model().fit(X, y)
    poor = PrivacyLedger.create(
        Path(folder) / f"{len(os.listdir(folder))}.ledger", data="rows", budget=GaussianDP(1e-3)
    )
    fitted.set_params(ledger=poor, classes=["healthy", "ill"])
    with pytest.raises(BudgetExceededError):
        fitted.fit(X[:, :2], np.where(y, "ill", "healthy"))
    assert fitted.classes_.tolist() == [0, 1]
    assert fitted.n_features_in_ == 3


def test_pitfall_23_a_refused_refit_leaves_the_model_as_it_was(tmp_path):
    as_it_goes = mock.patch.object(LogisticRegression, "fit", LogisticRegression.fit.__wrapped__)
    caught(as_it_goes, a_refused_refit_leaves_the_model_as_it_was, tmp_path)


# 24. A checkpoint that is taken up by a fit with other labels, bounds or weights.


class StopError(Exception):
    pass


def stop(info):
    if info.step == 2:
        raise StopError


def a_checkpoint_is_of_one_fit(folder):
    X, y = small()
    kept = Path(folder) / f"kept {len(os.listdir(folder))}"
    with pytest.raises(StopError):
        model(callback=stop).fit(X, y, checkpoint=kept)
    with pytest.raises(PlanMismatchError):
        model(classes=["no", "yes"]).fit(X, np.where(y, "no", "yes"), checkpoint=kept)


def test_pitfall_24_a_checkpoint_is_of_one_fit(tmp_path):
    bug = mock.patch.object(_base.PrivateLinearModel, "_identity", return_value={})
    caught(bug, a_checkpoint_is_of_one_fit, tmp_path)


# 25. A clip factor in single precision that overflows.


def a_tiny_row_is_clipped():
    spec = DataSpec(1, 1, row_norm=1.0, dtype="float32", sparse=True, target_high=1.0)
    rows = prepare_rows(sparse.csr_array(np.array([[1e-45]], np.float32)), np.ones(1), spec)
    with mock.patch.object(kernels, "_library", None):
        total = clipped_gradient_sum(rows, Poisson(), FlatClipping(1.0), np.array([4.97e47]))
    assert abs(total[0]) <= 1.0


def test_pitfall_25_a_clip_factor_never_overflows():
    def scale(self, slopes, row_norms):
        limits = np.divide(float(self.bound), row_norms)
        return np.clip(slopes, -limits, limits, out=slopes)

    caught(mock.patch.object(FlatClipping, "scale", scale), a_tiny_row_is_clipped)


# 27. An output that replaces the account, the table or the schema.


def the_account_is_never_replaced(folder):
    account = Path(folder) / f"{len(os.listdir(folder))}.ledger"
    PrivacyLedger.create(account, data="rows", budget=ApproximateDP(1.0, 1e-6))
    other = Path(os.path.relpath(account))
    before = account.read_bytes()
    CliRunner().invoke(app, ["ledger", "export", str(account), "-o", str(other), "--force"])
    assert account.read_bytes() == before


@contextlib.contextmanager
def nobody_looks():
    with (
        mock.patch.object(paths.CommandPath, "covers", return_value=False),
        mock.patch.object(store, "refuse_ledger"),
    ):
        yield


def test_pitfall_27_no_output_replaces_an_input(tmp_path):
    caught(nobody_looks(), the_account_is_never_replaced, tmp_path)


# 28. Rows that change after their bound was checked.


def rows_that_change_are_found(folder):
    X, y = small(600)
    path = Path(folder) / f"{len(os.listdir(folder))}.npy"
    np.save(path, X)
    rows = MappedRows(np.load(path, mmap_mode="r"), y)

    def change(info):
        if info.step == 1:
            with path.open("r+b") as file:
                file.seek(-X.nbytes, os.SEEK_END)
                file.write((1e6 * X).tobytes())
            later = os.stat(path).st_mtime_ns + 1
            os.utime(path, ns=(later, later))

    try:
        model(callback=change).fit(rows)
    except RowsChangedError:
        return
    pytest.fail("rows changed, and the fit went on")


def test_pitfall_28_rows_that_change_end_the_fit(tmp_path):
    caught(mock.patch.object(Watch, "check"), rows_that_change_are_found, tmp_path)
