"""Ctrl-C prints the cost so far and how to go on, with exit code 130, at any time."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import dpglm
from dpglm import ApproximateDP, PrivacyLedger
from dpglm.cli.commands import app
from dpglm.cli.files import SpendingWatch
from dpglm.solvers.checkpoint import RunCheckpoint

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(dpglm.__file__).parent.parent)}
LEDGER = ("--ledger", "people.ledger", "--delta", "1e-5")


@pytest.fixture
def ledger(files):
    return PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(60.0, 1e-5))


def interrupt(*_, **__):
    raise KeyboardInterrupt


def after(calls, function):
    """A function that works some times, and is interrupted then."""
    left = [calls]

    def called(*arguments, **options):
        if left[0] == 0:
            raise KeyboardInterrupt
        left[0] -= 1
        return function(*arguments, **options)

    return called


def said(done):
    assert done.exit_code == 130, done.output
    assert "Traceback" not in done.output
    assert done.stdout == ""
    return " ".join(done.stderr.split())


@pytest.mark.parametrize(
    "where",
    [
        "dpglm.cli.commands.models.read_rows",
        "dpglm.cli.fitting.Schema.from_json",
        "dpglm.cli.fitting.ModelOptions.plan",
    ],
)
def test_before_anything_was_released(fit, files, ledger, listing, monkeypatch, where):
    before = listing(files)
    monkeypatch.setattr(where, interrupt)
    assert "before anything was released: nothing was spent or written." in said(fit(*LEDGER))
    assert ledger.contents().entries == ()
    assert listing(files) == before


def test_before_the_record(fit, files, ledger, listing, monkeypatch):
    """Rows are prepared, and checked, when the fit has begun but nothing is recorded."""
    monkeypatch.setattr(PrivacyLedger, "spend", interrupt)
    before = listing(files)
    text = said(fit(*LEDGER))
    assert "Nothing more was spent: the ledger" in text
    assert "did not get a new entry" in text
    assert listing(files) == before


def test_right_after_the_record(fit, ledger, monkeypatch):
    """The record is on the disk, although nothing was printed."""
    spend = PrivacyLedger.spend

    def spend_and_die(self, *arguments, **options):
        spend(self, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "spend", spend_and_die)
    text = said(fit(*LEDGER))
    (entry,) = ledger.contents().entries
    assert f"Spent: entry 1 of the ledger {ledger.path}, mu {entry.charge['mu']:.6g}" in text
    assert "The same command starts anew, and is charged again" in text
    assert "With --checkpoint FILE" in text


def test_between_steps_without_a_checkpoint(fit, files, listing, monkeypatch):
    monkeypatch.setattr(SpendingWatch, "stepped", after(7, SpendingWatch.stepped))
    before = listing(files)
    text = said(fit())
    assert re.search(r"after at least 7 of \d+ steps, which make \d+ releases together", text)
    assert "No ledger was given" in text
    assert "The same command starts anew. With --checkpoint FILE" in text
    assert listing(files) == before


def test_the_same_command_goes_on_from_a_checkpoint(fit, files, ledger, monkeypatch):
    options = (*LEDGER, "--label", "mine", "--checkpoint", "kept")
    with monkeypatch.context() as patched:
        patched.setattr(RunCheckpoint, "save", after(10, RunCheckpoint.save))
        text = said(fit(*options))
    assert re.search(r"Interrupted after at least \d+ of \d+ steps", text)
    assert "Spent: entry 1 of the ledger" in text
    assert "the same command continues from kept" in text
    with monkeypatch.context() as patched:
        patched.setattr(RunCheckpoint, "save", after(3, RunCheckpoint.save))
        again = said(fit(*options))
    assert "Nothing more was spent" in again
    assert not (files / "model.json").exists()
    done = fit(*options)
    assert done.exit_code == 0, done.output
    assert [one.label for one in ledger.contents().entries] == ["mine"]


def test_while_the_model_is_written(fit, files, ledger, listing, monkeypatch):
    monkeypatch.setattr("dpglm.cli.commands.models.write_release", interrupt)
    before = listing(files)
    text = said(fit(*LEDGER))
    assert "Spent: entry 1" in text
    assert "No model was written" in text
    assert listing(files) == before


def test_after_everything_was_written(fit, files, monkeypatch):
    monkeypatch.setattr("dpglm.cli.commands.models.print_sections", interrupt)
    assert "after the result was complete; it is written: model.json" in said(fit())
    assert (files / "model.json").exists()


def test_a_ledger_that_cannot_be_read_is_named(fit, files, ledger, monkeypatch):
    def damage(*_, **__):
        (files / "people.ledger").write_text("no ledger")
        raise KeyboardInterrupt

    monkeypatch.setattr(PrivacyLedger, "spend", damage)
    text = said(fit(*LEDGER))
    assert "The ledger cannot be read" in text
    assert "dpglm ledger show" in text


@pytest.mark.parametrize("name", sorted(set(app.commands) - {"fit", "ledger"}))
def test_every_command(run, files, monkeypatch, name):
    table = ("people.csv", "--schema", "schema.json", "--epsilon", 1)
    arms = ("--treatment", "smoker", "--outcome", "ill", "--adjust", "age")
    calls = {
        "ate": (*table, *arms, "-o", "e.json"),
        "audit": (),
        "demo": (),
        "describe": table,
        "evaluate": ("people.csv", "--model", "schema.json", "--epsilon", 1),
        "export": ("schema.json", "--to", "sql"),
        "moments": (*table, "-o", "m.json"),
        "monitor": ("schema.json", "people.csv"),
        "plan": ("--n-rows", 10, "--schema", "schema.json"),
        "predict": ("people.csv", "--model", "schema.json", "-o", "p.csv"),
        "regress": ("schema.json", "ill ~ age"),
        "schema": ("people.csv", "--target", "ill"),
        "study": ("schema.json",),
        "verify": ("schema.json",),
    }
    monkeypatch.setattr("dpglm.cli.console.refuse_twice_named", interrupt)
    assert "Interrupted" in said(run(name, *calls[name]))


def test_before_a_command_begins(run, monkeypatch):
    monkeypatch.setattr(click.Group, "invoke", interrupt)
    assert said(run("plan", "--n-rows", "10")) == "Interrupted."


def test_a_true_signal(fit, files, ledger, monkeypatch):
    save, saved = RunCheckpoint.save, []

    def kill(self, progress):
        save(self, progress)
        saved.append(progress)
        if len(saved) == 8:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(RunCheckpoint, "save", kill)
    # Shells that start a process in the background have it ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        text = said(fit(*LEDGER, "--checkpoint", "kept"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert "Spent: entry 1 of the ledger" in text
    assert "continues from kept" in text
    assert not (files / "model.json").exists()


def test_while_packages_are_loaded():
    code = "from dpglm import cli\ndef interrupt(name): raise KeyboardInterrupt\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "cli._is_installed = interrupt\ncli.main()", "plan"],
        capture_output=True,
        text=True,
        check=False,
        env=ENVIRONMENT,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Interrupted.\n")
