"""`dpglm ledger` and `dpglm fit --ledger`."""

import json
import sqlite3

import pytest

from dpglm import PrivacyLedger
from dpglm.certificate.certificate import Certificate


@pytest.fixture
def made(run, files):
    done = run(
        *("ledger", "create", "people.ledger", "--data", "people 2025"),
        *("--epsilon", 6, "--delta", 1e-5, "--fingerprint", "v1"),
    )
    assert done.exit_code == 0, done.output
    return PrivacyLedger("people.ledger", data="people 2025", fingerprint="v1")


def fit_paid(fit, *arguments, **options):
    return fit("--ledger", "people.ledger", "--delta", "1e-5", *arguments, **options)


class TestFit:
    def test_is_recorded_and_named(self, made, fit, run):
        done = fit_paid(fit, "--report", "report")
        assert done.exit_code == 0, done.output
        assert "entry 1 of the ledger for 'people 2025'" in " ".join(done.stdout.split())
        (entry,) = made.contents().entries
        certificate = Certificate.from_json("report/certificate.json")
        assert certificate.ledger == made.terms().reference(entry)
        assert entry.digest in (made.path.parent / "report" / "report.html").read_text()

    def test_is_refused_when_too_little_is_left(self, made, fit, files):
        assert fit_paid(fit).exit_code == 0
        done = fit_paid(fit, model="other.json")
        assert done.exit_code == 2
        assert "the remaining budget of the ledger for 'people 2025'" in done.stderr
        assert not (files / "other.json").exists()
        assert len(made.contents().entries) == 1

    def test_has_a_label_if_it_is_given_one(self, made, fit, run):
        assert fit_paid(fit, "--label", "illness by age", epsilon=1).exit_code == 0
        assert fit_paid(fit, epsilon=1, model="other.json").exit_code == 0
        assert [one.label for one in made.contents().entries] == ["illness by age", None]
        shown = run("ledger", "show", "people.ledger").stdout
        header, first, second = shown.splitlines()[-3:]
        assert header.split()[:3] == ["what", "number", "label"]
        assert " 1  illness by age  " in first
        assert " 2               -  " in second

    def test_descriptions_have_labels(self, made, run, files):
        done = run(
            *("describe", "people.csv", "--schema", "schema.json", "--epsilon", 1),
            *("--delta", 1e-5, "--ledger", "people.ledger", "--label", "first look"),
        )
        assert done.exit_code == 0, done.output
        assert [one.label for one in made.contents().entries] == ["first look"]

    def test_a_label_names_an_entry(self, fit, fails, files, listing):
        before = listing(files)
        assert "--label mine: needs --ledger" in fails(fit("--label", "mine"))
        assert listing(files) == before

    def test_needs_a_ledger(self, fit, files):
        (files / "people.ledger").write_text("no ledger")
        done = fit_paid(fit)
        assert done.exit_code == 2
        assert "cannot be used as a ledger" in done.stderr


class TestShow:
    def test_text_lists_charges_and_remaining_budget(self, made, fit, run):
        fit_paid(fit)
        shown = run("ledger", "show", "people.ledger")
        assert shown.exit_code == 0, shown.output
        for text in ("people 2025", "epsilon 6, delta 1e-05", "left", "zero_out", "gaussian", "v1"):
            assert text in shown.stdout
        (entry,) = made.contents().entries
        assert f"{entry.what}" in shown.stdout
        assert entry.who in shown.stdout

    def test_another_filter(self, run, files):
        options = ("--data", "rows", "--epsilon", 1, "--delta", 1e-6)
        run("ledger", "create", "a.ledger", *options, "--filter", "renyi", "--order", 30)
        assert "renyi, order 30" in run("ledger", "show", "a.ledger").stdout


class TestExportAndVerify:
    def test_export_states_the_same(self, made, fit, run, files):
        fit_paid(fit)
        assert run("ledger", "export", "people.ledger", "-o", "people.json").exit_code == 0
        assert json.loads((files / "people.json").read_text()) == made.export()
        for command in ("show", "verify"):
            original = run("ledger", command, "people.ledger")
            assert original.exit_code == 0
            assert run("ledger", command, "people.json").stdout == original.stdout
        again = run("ledger", "export", "people.ledger", "-o", "people.json")
        assert again.exit_code == 2
        assert "exists already" in again.stderr

    def test_a_whole_ledger_with_its_certificates(self, made, fit, run):
        fit_paid(fit, "--report", "report")
        done = run("ledger", "verify", "people.ledger", "--certificate", "report/certificate.json")
        assert done.exit_code == 0, done.output
        assert "is whole: 1 entry, " in done.stdout

    def test_a_tampered_one(self, made, fit, run):
        fit_paid(fit)
        connection = sqlite3.connect(made.path)
        with connection:
            connection.execute("DROP TRIGGER no_change")
            connection.execute(
                "UPDATE records SET text = replace(text, '\"number\":1', '\"number\":2')"
            )
        connection.close()
        done = run("ledger", "verify", "people.ledger")
        assert done.exit_code == 1
        assert "WRONG: people.ledger: record 1 of the ledger was changed" in done.stdout

    def test_a_certificate_of_another_ledger(self, made, fit, run):
        fit_paid(fit, "--report", "report")
        run("ledger", "create", "b.ledger", "--data", "others", "--epsilon", 1, "--delta", 1e-6)
        done = run("ledger", "verify", "b.ledger", "--certificate", "report/certificate.json")
        assert done.exit_code == 1
        assert "another ledger" in done.stdout

    def test_a_certificate_without_a_ledger(self, made, fit, run):
        fit("--report", "report")
        done = run("ledger", "verify", "people.ledger", "--certificate", "report/certificate.json")
        assert done.exit_code == 2
        assert "does not name a ledger" in done.stderr

    @pytest.mark.parametrize("content", ["", "{}", "{", "text"])
    def test_files_other_than_ledgers(self, run, files, content):
        (files / "a.ledger").write_text(content)
        assert run("ledger", "verify", "a.ledger").exit_code == 1
        assert run("ledger", "show", "a.ledger").exit_code == 2


class TestCreate:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (("--delta", "auto"), "'--delta': 'auto' is not a valid float"),
            (("--delta", "0"), "delta must be above 0"),
            (("--delta", "1e-6", "--epsilon", "-1"), "epsilon must be"),
            (("--delta", "1e-6", "--order", "8"), "order must be None"),
            (("--delta", "1e-6", "--data", " "), "data must be text"),
        ],
    )
    def test_bad_input_is_named(self, run, files, options, message):
        done = run("ledger", "create", "a.ledger", "--data", "rows", "--epsilon", "1", *options)
        assert done.exit_code == 2
        assert message in done.stderr
        assert not (files / "a.ledger").exists()

    def test_delta_must_be_given(self, run, files):
        """It said 'auto' by default, which it does not take."""
        done = run("ledger", "create", "a.ledger", "--data", "rows", "--epsilon", "1")
        assert done.exit_code == 2
        assert "Missing option '--delta'" in done.stderr

    def test_any_existing_file_is_kept_and_said_to_exist(self, run, fails, files):
        options = ("--data", "rows", "--epsilon", "1", "--delta", "1e-6")
        said = fails(run("ledger", "create", "people.csv", *options))
        assert "must be a new file, got 'people.csv', which exists" in said

    def test_an_existing_file_is_kept(self, made, run):
        before = made.path.read_bytes()
        options = ("--data", "rows", "--epsilon", "1", "--delta", "1e-6")
        done = run("ledger", "create", "people.ledger", *options)
        assert done.exit_code == 2
        assert "which exists" in done.stderr
        assert made.path.read_bytes() == before


def test_parts_are_charged_separately(run, fit):
    made = ("--data", "people", "--epsilon", "1", "--delta", "1e-6")
    assert run("ledger", "create", "monthly.ledger", *made).exit_code == 0
    charged = ("--ledger", "monthly.ledger", "--force", "--delta", "1e-6")
    for month in ("2026-10", "2026-11"):
        assert fit(*charged, "--part", month, epsilon="1").exit_code == 0
    again = fit(*charged, "--part", "2026-11", epsilon="1")
    assert again.exit_code == 2
    assert "part '2026-11'" in again.output
    shown = run("ledger", "show", "monthly.ledger").output
    assert "part 2026-10" in shown
    assert "2026-11" in shown
    lacking = fit("--part", "2026-11", "--force")
    assert lacking.exit_code == 2
    assert "--part 2026-11: needs --ledger" in lacking.output
