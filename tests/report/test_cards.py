"""Display in notebooks: short, true to the object, and safe for any names."""

import copy
import dataclasses
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm import ApproximateDP, LogisticRegression, PrivacyLedger
from dpglm._words import card, visible
from dpglm.audit import audit
from dpglm.certificate import PublicFact, verify
from dpglm.guidance import guidance
from dpglm.privacy import Gaussian
from dpglm.solvers.gradient.noisy_gd import NoisyGD
from tests.forgeries import changed

ALLOWED = {"div", "strong", "p", "table", "tr", "th", "td", "details", "summary", "ul", "li"}


class Card(HTMLParser):
    """Elements, and the text between them; refuse elements that a card must not have."""

    def __init__(self, text):
        super().__init__()
        self.words, self.open = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        assert tag in ALLOWED, tag
        assert {name for name, _ in attributes} <= {"style"}
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


NASTY = "</td><script>alert(1)</script><img src=x onerror=alert(1)>&\"'\u202e\ud800\x1b[2J"


@given(st.text(), st.text(), st.text(), st.text())
def test_whatever_is_in_a_card_is_only_text(title, name, value, sentence):
    text = card(title, [(name, value)], warnings=[sentence], sections=[(name, [sentence])])
    text.encode("utf-8")
    Card(text)


def test_the_check_sees_text_that_is_not_escaped(monkeypatch):
    monkeypatch.setattr("dpglm._words._text", str)
    with pytest.raises(AssertionError):
        Card(card(NASTY, []))


def test_values_below_noise_are_marked():
    assert visible("a\u202eb\x00\ud800\n") == "a\ufffdb\ufffd\ufffd "
    assert visible("Größe ∑ 中文") == "Größe ∑ 中文"


def test_issue_14_a_plan_is_a_card():
    """Its repr is a wall of text."""
    plan = LogisticRegression(row_norm=1.0).plan(n_rows=1000, n_features=5)
    shown = Card(plan._repr_html_()).text
    for part in ("Logistic()", "1000 rows, 5 columns", "epsilon=1.0", "zero_out"):
        assert part in shown
    for release in plan.method.releases:
        assert release.quantity in shown
    assert 2 * len(shown) < len(repr(plan))


def test_issue_14_a_certificate_is_a_card(binary):
    certificate = binary.privacy_
    shown = Card(certificate._repr_html_()).text
    assert "Privacy of LogisticRegression" in shown
    for _, sentences in certificate.sections():
        for sentence in sentences:
            assert sentence in shown


def test_cautions_come_first(binary):
    weak = dataclasses.replace(binary.privacy_, epsilon=1e5)
    shown = Card(weak._repr_html_()).text
    assert shown.index("WEAK GUARANTEE") < shown.index("relation")
    assert shown.count("WEAK GUARANTEE") == 1


def test_names_in_a_certificate_are_only_text(binary):
    name = NASTY.replace("\ud800", "")  # refused in facts
    fact = PublicFact(name, {name: [name]}, "from the data")
    nasty = changed(binary.privacy_, estimator=NASTY, noise_source=NASTY, public_facts=(fact,))
    Card(nasty._repr_html_())
    Card(verify(nasty)._repr_html_())


def test_solution_and_expectation_are_cards(binary):
    solution = binary.solution_
    assert f"{solution.n_steps}" in Card(solution._repr_html_()).text
    expected = guidance(LogisticRegression(row_norm=9.0, epsilon=11.0).plan(50, 30))
    shown = Card(expected._repr_html_()).text
    assert expected.verdict in shown
    assert expected.cautions[0] in shown
    assert all(cure in shown for cure in expected.cures)


def test_a_check_that_failed_is_seen_first(binary):
    forged = dataclasses.replace(binary.privacy_, epsilon=0.5)
    found = verify(forged)
    shown = Card(found._repr_html_()).text
    assert shown.startswith("THE CERTIFICATE DOES NOT HOLD.")
    assert found.findings[0] in shown


def test_a_ledger_is_a_card_of_its_latest_entries(tmp_path):
    ledger = PrivacyLedger.create(
        tmp_path / "people.ledger", data=f"people {NASTY[:30]}", budget=ApproximateDP(1.0, 1e-6)
    )
    for number in range(25):
        ledger.spend(Gaussian(100.0), "zero_out", what=f"<b>mean {number}")
    shown = Card(ledger._repr_html_()).text
    assert "(5 earlier ones)" in shown
    assert "25. <b>mean 24" in shown
    assert "mean 4 " not in shown
    assert "entries 25" in " ".join(shown.split())


def test_missing_ledger_is_an_error(tmp_path):
    path = tmp_path / "people.ledger"
    ledger = PrivacyLedger.create(path, data="people", budget=ApproximateDP(1.0, 1e-6))
    path.write_bytes(b"no ledger any more")
    assert "people.ledger" in Card(copy.copy(ledger)._repr_html_()).text


def test_an_audit_is_a_card():
    model = LogisticRegression(epsilon=8.0, row_norm=1.0, solver=NoisyGD(n_steps=1))
    report = audit(model, runs=20, pilot_runs=20, seed=0)
    shown = Card(report._repr_html_()).text
    assert all(text in shown for _, text in report.lines())


def test_printed_text_is_short():
    plan = LogisticRegression(row_norm=1.0, epsilon=20.0).plan(n_rows=1000, n_features=5)
    for part in ("Logistic()", "1000 rows", "zero_out", "Caution: epsilon 20 protects"):
        assert part in str(plan)
        assert part.removeprefix("Caution: ") in Card(plan._repr_html_()).text
    assert len(str(plan)) < len(repr(plan))


def test_printed_certificate_lists_cautions(binary):
    weak = dataclasses.replace(binary.privacy_, epsilon=1e5)
    assert str(weak).startswith("Privacy of LogisticRegression: epsilon 1e+05, delta ")
    assert "WEAK GUARANTEE" in str(weak)
    assert "\n" not in str(binary.privacy_)
