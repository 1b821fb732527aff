"""Fits with a ledger: recorded before anything leaves, once, and named by the certificate."""

import dataclasses
import importlib

import numpy as np
import pytest
from sklearn.base import clone

from dpglm import (
    ApproximateDP,
    GaussianDP,
    LogisticRegression,
    NoisyGD,
    PlanMismatchError,
    PrivacyLedger,
    PrivateGridSearchCV,
    PrivatePipeline,
    Ridge,
    ZeroConcentratedDP,
)
from dpglm._codec import decode
from dpglm.certificate.certificate import Certificate
from dpglm.estimators.linear import _base
from dpglm.exceptions import BudgetExceededError, LedgerError
from dpglm.ledger import LedgerReference
from dpglm.preprocessing import Center
from dpglm.privacy import Gaussian
from dpglm.privacy.releases import Curator

# The package has a function of this name.
solvers_run = importlib.import_module("dpglm.solvers.run")

SHORT = NoisyGD(n_steps=3)
SETTINGS = {"solver": SHORT, "row_norm": 2.0, "budget": GaussianDP(0.4)}


def data(n=60):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, size=(n, 3))
    return X, (X[:, 0] > 0.0).astype(int)


def logistic(**changes):
    return LogisticRegression(classes=[0, 1], **{**SETTINGS, **changes})


@pytest.fixture
def ledger(tmp_path):
    return PrivacyLedger.create(
        tmp_path / "rows.ledger", data="rows", budget=GaussianDP(1.0), filter="gaussian"
    )


@pytest.fixture
def general(tmp_path):
    """A ledger for all kinds of events."""
    return PrivacyLedger.create(
        tmp_path / "general.ledger", data="rows", budget=ApproximateDP(9.0, 1e-4), filter="basic"
    )


FITS = {
    "classifier": lambda ledger: logistic(ledger=ledger).fit(*data()),
    "regressor": lambda ledger: Ridge(target_bounds=(0, 1), ledger=ledger, **SETTINGS).fit(*data()),
    "pipeline": lambda ledger: PrivatePipeline(
        [Center(), LogisticRegression(classes=[0, 1], row_norm=2.0, solver=SHORT)],
        budget=GaussianDP(0.4),
        ledger=ledger,
    ).fit(*data()),
    "search": lambda ledger: PrivateGridSearchCV(
        LogisticRegression(classes=[0, 1], row_norm=2.0, solver=SHORT),
        {"C": [0.1, 1.0]},
        epsilon=2.0,
        ledger=ledger,
    ).fit(*data()),
}
GAUSSIAN = [name for name in FITS if name != "search"]


def recorded_before_releases(monkeypatch, ledger, fit):
    """Note for each release of a fit whether the ledger had an entry at that moment."""
    seen, plain = [], Curator.release

    def spying(self, declared, value):
        seen.append(len(ledger.contents().entries) == 1)
        return plain(self, declared, value)

    monkeypatch.setattr(Curator, "release", spying)
    fitted = fit(ledger)
    assert seen
    return fitted, all(seen)


class TestEveryFit:
    @pytest.mark.parametrize("name", FITS)
    def test_is_recorded_before_anything_is_released(self, monkeypatch, ledger, general, name):
        where = general if name == "search" else ledger
        fitted, before = recorded_before_releases(monkeypatch, where, FITS[name])
        assert before
        (entry,) = where.contents().entries
        assert entry.event == fitted.privacy_.event
        assert where.verify([fitted.privacy_.ledger]) == ()

    def test_a_fit_that_is_recorded_afterwards_is_seen(self, monkeypatch, ledger):
        def late(plan, rows, noise, progress, ledger, checkpoint):
            solution = solvers_run.run(plan, rows, noise, progress)
            reference = solvers_run.record_plan(plan, ledger, noise)
            return dataclasses.replace(solution, ledger_entry=reference)

        monkeypatch.setattr(_base, "run", late)
        _, before = recorded_before_releases(monkeypatch, ledger, FITS["classifier"])
        assert not before

    @pytest.mark.parametrize("name", GAUSSIAN)
    def test_spends_until_nothing_is_left(self, ledger, name):
        # Six of mu 0.4 are within mu 1 (sums of squares), seven are not.
        for _ in range(6):
            FITS[name](ledger)
        with pytest.raises(BudgetExceededError, match="Nothing was charged or released"):
            FITS[name](ledger)
        assert len(ledger.contents().entries) == 6

    def test_one_fit_may_spend_everything(self, tmp_path):
        for number, budget in enumerate(
            [ApproximateDP(1.0, 1e-5), GaussianDP(0.3), ZeroConcentratedDP(0.1)]
        ):
            path = tmp_path / f"{number}.ledger"
            PrivacyLedger.create(path, data="rows", budget=budget)
            logistic(budget=budget, ledger=path).fit(*data())
            with pytest.raises(BudgetExceededError):
                logistic(budget=GaussianDP(0.01), ledger=str(path)).fit(*data())


class TestRefusals:
    def refused(self, ledger, error, message, **changes):
        model = logistic(ledger=ledger, **changes)
        with pytest.raises(error, match=message):
            model.fit(*data())
        assert not hasattr(model, "coef_")

    def test_reproducible_noise(self, ledger):
        self.refused(ledger, ValueError, "random_state must be None", random_state=0)
        assert ledger.contents().entries == ()

    @pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
    def test_another_relation(self, ledger, adjacency):
        message = f"adjacency must match the ledger for 'rows', 'zero_out', got '{adjacency}'"
        self.refused(ledger, ValueError, message, adjacency=adjacency, n_rows=60)
        assert ledger.contents().entries == ()

    @pytest.mark.parametrize("bad", [3, True, ["x"]])
    def test_files_other_than_ledgers(self, bad):
        self.refused(bad, ValueError, "ledger must be a PrivacyLedger, a path or None")

    def test_a_path_without_a_ledger(self, tmp_path):
        self.refused(tmp_path / "nowhere", LedgerError, "which is not a file")
        assert list(tmp_path.iterdir()) == []

    def test_samples_in_a_gaussian_ledger(self, ledger):
        solver = NoisyGD(n_steps=3, sampling_rate=0.3)
        budget = ApproximateDP(0.1, 1e-6)
        self.refused(ledger, ValueError, "'renyi' or 'basic'", solver=solver, budget=budget)
        assert ledger.contents().entries == ()

    def test_a_search_has_a_ledger_of_its_own(self, general):
        search = PrivateGridSearchCV(logistic(ledger=general, budget=None), {"C": [1.0]})
        with pytest.raises(ValueError, match="ledger must be set on the search"):
            search.fit(*data())
        with pytest.raises(ValueError, match="ledger must be set on the pipeline"):
            PrivatePipeline([Center(), logistic(ledger=general, budget=None)]).fit(*data())
        assert general.contents().entries == ()


class TestFailures:
    def test_bad_data_cost_nothing(self, ledger):
        X, y = data()
        with pytest.raises(ValueError, match="NaN"):
            logistic(ledger=ledger).fit(np.where(X > 0.9, np.nan, X), y)
        assert ledger.contents().entries == ()

    def test_a_fit_that_fails_later_stays_recorded(self, ledger):
        def fail(info):
            if info.step == 2:
                raise RuntimeError("lost")

        with pytest.raises(RuntimeError, match="lost"):
            logistic(ledger=ledger, callback=fail).fit(*data())
        assert len(ledger.contents().entries) == 1

    def test_a_release_that_was_not_planned_stays_recorded(self, monkeypatch, ledger):
        monkeypatch.setattr(Curator, "event", Gaussian(1.0))
        with pytest.raises(PlanMismatchError):
            logistic(ledger=ledger).fit(*data())
        assert len(ledger.contents().entries) == 1


class TestCertificate:
    def test_names_the_entry(self, ledger, tmp_path):
        certificate = logistic(ledger=ledger).fit(*data()).privacy_
        (entry,) = ledger.contents().entries
        assert certificate.ledger == ledger.terms().reference(entry)
        assert f"entry 1 of the ledger for 'rows', digest {entry.digest}" in certificate.statement()
        certificate.to_json(tmp_path / "certificate.json")
        assert Certificate.from_json(tmp_path / "certificate.json") == certificate

    def test_silent_without_one(self):
        certificate = logistic().fit(*data()).privacy_
        assert certificate.ledger is None
        assert "Recorded" not in certificate.statement()
        assert certificate.to_dict()["ledger"] is None

    @pytest.mark.parametrize(
        "bad",
        [
            3,
            {},
            {"data": "x"},
            {"data": "x", "ledger": "y", "number": "1", "entry": "", "digest": ""},
        ],
    )
    def test_a_bad_reference_is_refused(self, bad):
        message = "a ledger_reference must have the keys|number must be an integer|be an object"
        with pytest.raises(ValueError, match=message):
            decode(LedgerReference, bad)

    def test_text_states_the_fitted_model(self, ledger):
        logistic(ledger=ledger).fit(*data())
        (entry,) = ledger.contents().entries
        assert entry.what == "noisy gradient descent for Logistic()"


class TestInterruptedFits:
    def test_are_paid_for_once(self, ledger, tmp_path):
        def stop(info):
            if info.step == 2:
                raise KeyboardInterrupt

        kept = tmp_path / "fit.checkpoint"
        with pytest.raises(KeyboardInterrupt):
            logistic(ledger=ledger, callback=stop).fit(*data(), checkpoint=kept)
        model = logistic(ledger=ledger).fit(*data(), checkpoint=kept)
        assert len(ledger.contents().entries) == 1
        assert model.privacy_.ledger == ledger.terms().reference(ledger.contents().entries[0])

    def test_are_paid_for_once_if_killed_before_the_checkpoint_knows(
        self, ledger, tmp_path, monkeypatch
    ):
        kept = tmp_path / "fit.checkpoint"
        plain = solvers_run.record_plan

        def killed(*arguments):
            plain(*arguments)
            raise KeyboardInterrupt

        monkeypatch.setattr(solvers_run, "record_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            logistic(ledger=ledger).fit(*data(), checkpoint=kept)
        monkeypatch.setattr(solvers_run, "record_plan", plain)
        logistic(ledger=ledger).fit(*data(), checkpoint=kept)
        assert len(ledger.contents().entries) == 1


def test_clones_and_parameters_keep_the_ledger(ledger):
    model = clone(logistic(ledger=ledger))
    assert model.ledger == ledger
    assert model.get_params()["ledger"] == ledger
    assert model.set_params(ledger=None).ledger is None
