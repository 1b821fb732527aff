"""Parts of a table: fits on disjoint parts compose in parallel, others in sequence."""

import dataclasses
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given
from hypothesis import strategies as st

from dpglm import ApproximateDP, LogisticRegression, PrivacyLedger
from dpglm.exceptions import BudgetExceededError, LedgerError
from dpglm.ledger import LedgerContents
from dpglm.ledger.entry import LedgerTerms, Spend
from dpglm.privacy import Gaussian
from tests.laws.budgets import examples

BUDGET = ApproximateDP(1.0, 1e-6)
MONTHS = ("2026-10", "2026-11", "2026-12")


@pytest.fixture
def create(tmp_path):
    def make(name="table.ledger", **terms):
        return PrivacyLedger.create(tmp_path / name, data="visits", budget=BUDGET, **terms)

    return make


def of(ledger, *parts):
    return dataclasses.replace(ledger, parts=parts or None)


class TestCharges:
    def test_other_parts_are_not_charged(self, create):
        ledger = create()
        for month in MONTHS:
            of(ledger, month).spend(Gaussian(5.0), "zero_out", what="a model")
        once = LedgerContents.from_records(ledger.contents().records[:2]).spent()
        assert ledger.contents().spent() == once
        assert list(ledger.contents().spent_by_part()) == list(MONTHS)
        with pytest.raises(BudgetExceededError, match=r"part '2026-11', mu 0\.1"):
            of(ledger, "2026-11").spend(Gaussian(5.0), "zero_out", what="another")
        assert len(ledger.contents().entries) == 3
        assert ledger.verify() == ()

    def test_a_fit_on_several_parts_is_charged_to_each(self, create):
        ledger = create()
        of(ledger, *MONTHS[:2]).spend(Gaussian(5.0), "zero_out", what="a window")
        for month in MONTHS[:2]:
            with pytest.raises(BudgetExceededError):
                of(ledger, month).spend(Gaussian(5.0), "zero_out", what="a month")
        of(ledger, MONTHS[2]).spend(Gaussian(5.0), "zero_out", what="a month")

    def test_a_fit_on_all_rows_is_charged_to_every_part(self, create):
        ledger = create()
        of(ledger, MONTHS[0]).spend(Gaussian(5.0), "zero_out", what="a month")
        with pytest.raises(BudgetExceededError):
            ledger.spend(Gaussian(5.0), "zero_out", what="all rows")
        ledger.spend(Gaussian(10.0), "zero_out", what="all rows")
        # Also to parts without an entry of their own.
        spent = ledger.contents().by_part
        assert [len(spent[part]) for part in (None, MONTHS[0])] == [1, 2]
        with pytest.raises(BudgetExceededError):
            of(ledger, MONTHS[1]).spend(Gaussian(4.5), "zero_out", what="a new month")

    def test_one_part_has_one_spelling(self, create):
        ledger = create()
        of(ledger, "Z\u00fcrich").spend(Gaussian(5.0), "zero_out", what="a model")
        with pytest.raises(BudgetExceededError):
            of(ledger, " Zu\u0308rich").spend(Gaussian(5.0), "zero_out", what="a model")

    @pytest.mark.parametrize(
        "terms", [{"adjacency": "replace_one"}, {"unit": "group"}], ids=["replaced", "groups"]
    )
    def test_relations_that_span_parts_are_refused(self, create, terms):
        ledger = create(**terms)
        with pytest.raises(ValueError, match="parts must be None for a ledger of groups or of"):
            of(ledger, MONTHS[0])

    @pytest.mark.parametrize("parts", [(), ("",), (3,), "two\nlines"])
    def test_odd_names_are_refused(self, create, parts):
        with pytest.raises(ValueError, match="parts must"):
            PrivacyLedger(create().path, parts=parts)

    def test_a_resumed_fit_keeps_its_parts(self, create):
        ledger = create()
        mine = of(ledger, MONTHS[0])
        first = mine.spend(Gaussian(9.0), "zero_out", what="a model", key="k")
        assert mine.spend(Gaussian(9.0), "zero_out", what="a model", key="k") == first
        with pytest.raises(LedgerError, match="parts must be"):
            of(ledger, MONTHS[1]).spend(Gaussian(9.0), "zero_out", what="a model", key="k")

    def test_export_keeps_them(self, create):
        ledger = create()
        of(ledger, *MONTHS).spend(Gaussian(9.0), "zero_out", what="a model")
        assert "parts" not in LedgerContents.from_dict(ledger.export()).records[0].record
        read = LedgerContents.from_dict(ledger.export())
        assert read.entries[0].parts == MONTHS
        assert "part 2026-11" in str(read)

    def test_an_estimator_charges_its_part(self, create):
        ledger = create()
        rng = np.random.default_rng(0)
        for month in MONTHS:
            X = rng.uniform(-1, 1, size=(500, 2))
            own = of(ledger, month)
            public = {"classes": [False, True], "feature_bounds": (-1, 1), "delta": 1e-6}
            model = LogisticRegression(epsilon=1.0, ledger=own, **public)
            model.fit(X, X[:, 0] > 0)
            assert ledger.verify([model.privacy_.ledger]) == ()
        assert ledger.contents().spent()["epsilon"] == pytest.approx(1.0, abs=1e-3)


def law_of_charges(entries, terms):
    """Check by part that total and permission are those of the entries that touch it."""
    by_part = terms.by_part(entries)
    named = {part for one in entries for part in one.parts or ()}
    assert set(by_part) == named | {None}
    for part in by_part:
        touching = [one.charge for one in entries if one.parts is None or part in one.parts]
        assert by_part[part] == touching


PARTS = st.none() | st.sets(st.sampled_from(MONTHS), min_size=1).map(sorted).map(tuple)


@examples(40)
@given(chosen=st.lists(st.tuples(PARTS, st.floats(0.01, 0.3)), max_size=12))
def test_every_part_stays_within_the_budget(tmp_path_factory, chosen):
    """A law, against the sum of squares of each row, and the composition of dp_accounting."""
    limit = BUDGET.gdp_mu()
    path = tmp_path_factory.mktemp("law") / "table.ledger"
    ledger = PrivacyLedger.create(path, data="visits", budget=BUDGET)
    squares = dict.fromkeys((*MONTHS, "later"), 0.0)
    for parts, mu in chosen:
        touched = squares if parts is None else parts
        fits = all(squares[part] + mu**2 <= limit**2 * (1 + 1e-9) for part in touched)
        try:
            of(ledger, *(parts or ())).spend(Gaussian(1.0 / mu), "zero_out", what="a release")
        except BudgetExceededError:
            assert max(squares[part] + mu**2 for part in touched) > limit**2 * (1 - 1e-9)
            continue
        assert fits
        for part in touched:
            squares[part] += mu**2
    if max(squares.values()) > 0.0:
        sigma = 1.0 / math.sqrt(max(squares.values()))
        exact = pld.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3)
        found = ledger.contents().spent()["epsilon"]
        assert found == pytest.approx(exact.get_epsilon_for_delta(1e-6), rel=0.01, abs=2e-3)
    law_of_charges(
        [Spend(one.id, one.charge, one.parts) for one in ledger.contents().entries],
        ledger.terms(),
    )


class TestAttack:
    """An attacker adds up the releases of all windows that a row is in."""

    WINDOWS = tuple((f"2024-{number:02}", "a month in every window") for number in range(1, 25))

    def measured(self, create):
        """Return the largest loss that the sum of the permitted releases shows."""
        ledger, mus = create(), []
        for parts in self.WINDOWS:
            for sigma in (4.3, 8.6, 17.2):
                try:
                    of(ledger, *parts).spend(Gaussian(sigma), "zero_out", what="a sum")
                except BudgetExceededError:
                    continue
                mus.append(1.0 / sigma)
        rng = np.random.default_rng(0)
        noise = rng.normal(0.0, 1.0, (len(mus), 50_000)) / np.array(mus)[:, np.newaxis]
        # The best test: each release weighted by its precision.
        score = np.square(mus) @ noise
        signal = float(np.square(mus).sum())
        cut = signal + np.std(score)
        return math.log(np.mean(score + signal > cut) / np.mean(score > cut))

    def test_attack_fails_on_the_ledger(self, create):
        assert self.measured(create) < 1.0

    def test_attack_succeeds_on_a_planted_bug(self, create, monkeypatch):
        monkeypatch.setattr(
            LedgerTerms,
            "by_part",
            lambda terms, entries: {
                # The first part of a window alone is charged.
                **{part: [] for part in (None, "a month in every window")},
                **{one.parts[0]: [one.charge] for one in entries},
            },
        )
        assert self.measured(create) > 2.0
