"""After publication an error does not look like a failure, and a paid result is never lost."""

import errno
import io
import json
import os
import pkgutil
import re
import signal
import sys
from pathlib import Path

import click
import pytest

from dpglm import ApproximateDP, PrivacyLedger
from dpglm.cli import main
from dpglm.cli.commands import app
from dpglm.cli.files import reserved
from dpglm.moments import release_moments
from dpglm.report.model_file import load_model
from dpglm.tables.schema import Schema
from tests.slowly import first_quickly

if os.name != "posix":
    pytest.skip("forks processes", allow_module_level=True)

resource = pytest.importorskip("resource")

STUDY = """
schema = "schema.json"
epsilon = 5.0
delta = 1e-5
[explore]
[fit]
estimator = "additive"
[evaluate]
"""
SCHEMA = ("--schema", "schema.json", "--delta", "1e-5")
LEDGER = ("--ledger", "people.ledger")
FIT = ("fit", "people.csv", *SCHEMA, "--epsilon", "5", *LEDGER, "--model", "new.json")
DESCRIBE = ("describe", "people.csv", *SCHEMA, "--epsilon", "1", *LEDGER)
EVALUATE = ("evaluate", "people.csv", "--model", "model.json", "--epsilon", "1", "--delta", "1e-5")
MOMENTS = ("moments", "people.csv", *SCHEMA, "--epsilon", "1", *LEDGER, "-o", "moments.json")
ARMS = ("--treatment", "smoker", "--outcome", "ill", "--adjust", "age")
EFFECT = ("ate", "people.csv", *SCHEMA, "--epsilon", "5", *LEDGER, *ARMS, "-o", "effect.json")
REPORT = ("--report", "report")
OF_STUDY = ("study", "study.toml", "people.csv", "--out", "results", *LEDGER)
NEW_LEDGER = ("ledger", "create", "new.ledger", "--data", "x", "--epsilon", "1", "--delta", "1e-6")
WRITING = {
    "audit": (("audit", "--runs", "10", "--json", "audit.json"), ["audit.json"]),
    "demo": (("demo", "--out", "demo"), ["demo/report.html", "demo/model.json"]),
    "describe": ((*DESCRIBE, *REPORT), ["report/description.json", "report/certificate.json"]),
    "evaluate": ((*EVALUATE, *LEDGER, *REPORT), ["report/evaluation.json"]),
    "export": (("export", "model.json", "--to", "sql", "-o", "score.sql"), ["score.sql"]),
    "fit": ((*FIT, *REPORT), ["new.json", "report/report.html"]),
    "ledger create": (NEW_LEDGER, ["new.ledger"]),
    "ledger export": (("ledger", "export", "people.ledger", "-o", "out.json"), ["out.json"]),
    "ate": (EFFECT, ["effect.json"]),
    "moments": (MOMENTS, ["moments.json"]),
    "monitor": (("monitor", "old.json", "now.json", "--page", "drift.html"), ["drift.html"]),
    "predict": (("predict", "people.csv", "--model", "model.json", "-o", "p.csv"), ["p.csv"]),
    "schema": (("schema", "people.csv", "--target", "ill", "-o", "s.json"), ["s.json"]),
    "study": (OF_STUDY, ["results/model.json", "results/report.html"]),
}
PRINTING = {
    "export": ("export", "model.json", "--to", "python"),
    "ledger show": ("ledger", "show", "people.ledger"),
    "ledger verify": ("ledger", "verify", "people.ledger"),
    "monitor": ("monitor", "old.json", "now.json"),
    "plan": ("plan", "--n-rows", "200", *SCHEMA[:2]),
    "predict": ("predict", "people.csv", "--model", "model.json", "-o", "-"),
    "regress": ("regress", "released.json", "ill ~ age"),
    "schema": ("schema", "people.csv", "--target", "ill"),
    "verify": ("verify", "model.json"),
}
_SLOW = ("audit", "demo")
AUC = {"estimate": 0.8, "low": 0.79, "high": 0.81, "population_low": 0.7, "population_high": 0.9}
STORED = {"level": 0.95, "epsilon": 1.0, "delta": 1e-6, "all_rows": {"auc": AUC}}


PICTURED = (
    "dpglm.report.description_page.description_page",
    "dpglm.report.evaluation_page.evaluation_page",
    "dpglm.report.html.report_page",
    "dpglm.study.writing.study_page",
)


# Files of the fit that tests begin with.
FITTED = {}


@pytest.fixture
def prepared(fit, files, monkeypatch):
    """The usual files, a model, a study and a ledger; pages without pictures, which take long."""
    for page in PICTURED:
        monkeypatch.setattr(page, lambda *_, **__: "a page")
    if not FITTED:
        before = {*files.iterdir()}
        done = fit("--delta", "1e-5")
        assert done.exit_code == 0, done.output
        FITTED.update({one.name: one.read_bytes() for one in {*files.iterdir()} - before})
    for name, content in FITTED.items():
        (files / name).write_bytes(content)
    (files / "study.toml").write_text(STUDY)
    for name in ("old.json", "now.json"):
        (files / name).write_text(json.dumps(STORED))
    schema = Schema.from_json("schema.json")
    release_moments("people.csv", schema, epsilon=1.0, delta=1e-5).save("released.json")
    PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(60.0, 1e-5))
    return files


def full():
    return os.open("/dev/full", os.O_WRONLY)


def unread():
    """A pipe without its reader."""
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def in_a_process(arguments, out, *, encoding="utf-8", before=lambda: None):
    """Run the program in a forked process; return exit code and standard error.

    ``out`` opens standard output, or is None if that is closed; ``before`` is called there first.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.close(reader)
            os.dup2(writer, 2)
            if out is None:
                sys.stdout = None
            else:
                os.dup2(out(), 1)
                sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding)
            sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding)
            sys.argv = ["dpglm", *arguments]
            before()
            main()
        except SystemExit as end:
            code = end.code or 0
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, encoding=encoding) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), text


def left_behind(folder):
    return [one for one in folder.rglob("*") if one.name.startswith((".dpglm", ".room"))]


def leaves(command, name=()):
    if not isinstance(command, click.Group):
        yield " ".join(name)
        return
    for part, one in command.commands.items():
        yield from leaves(one, (*name, part))


def test_every_command_is_tried():
    assert set(leaves(app)) == {*WRITING, *PRINTING}


@pytest.mark.parametrize("out", first_quickly(full, unread, None), ids=["full", "pipe", "closed"])
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one in _SLOW else one for one in WRITING]
)
def test_pitfall_37_unprinted_output_is_not_a_failure(prepared, name, out):
    arguments, written = WRITING[name]
    code, said = in_a_process(arguments, out)
    assert code == 0, said
    assert "Traceback" not in said
    assert [one for one in written if not Path(one).is_file()] == []
    assert left_behind(prepared) == []


@pytest.mark.parametrize("encoding", first_quickly("cp1252", "ascii"))
@pytest.mark.parametrize("name", first_quickly("fit", "describe", "evaluate", "study"))
def test_unencodable_text_is_not_a_failure(prepared, sample, name, encoding):
    schema = json.loads(json.dumps(sample.schema))
    schema["provenance"] = "σ ≤ 漢字"
    (prepared / "schema.json").write_text(json.dumps(schema))
    arguments, written = WRITING[name]
    code, said = in_a_process(
        arguments, lambda: os.open("out.txt", os.O_WRONLY | os.O_CREAT), encoding=encoding
    )
    assert code == 0, said
    assert [one for one in written if not Path(one).is_file()] == []
    assert "�" not in Path("out.txt").read_bytes().decode(encoding)


@pytest.mark.parametrize("name", PRINTING)
def test_a_command_that_only_prints_fails_if_it_cannot(prepared, name):
    code, said = in_a_process(PRINTING[name], full)
    assert code == 2
    assert said.endswith("Error: standard output: No space left on device\n")
    assert in_a_process(PRINTING[name], unread)[0] == 2


@pytest.mark.parametrize("out", [full, unread], ids=["full", "pipe"])
@pytest.mark.parametrize("arguments", [DESCRIBE, (*EVALUATE, *LEDGER)], ids=lambda one: one[0])
def test_a_paid_result_that_cannot_be_printed_is_kept(prepared, arguments, out):
    code, said = in_a_process(arguments, out)
    assert code == 0, said
    (kept,) = prepared.glob("dpglm-rescued-*/*.json")
    assert f"Not everything could be printed: the result is in {kept.relative_to(prepared)}" in said
    assert json.loads(kept.read_text())


@pytest.mark.parametrize("name", ["describe", "evaluate", "fit", "study"])
def test_pitfall_37_full_disk_is_found_before_spending(prepared, listing, name):
    before = listing(prepared)

    def with_little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    code, said = in_a_process(WRITING[name][0], full, before=with_little_room)
    assert code == 2
    assert "File too large" in said
    assert PrivacyLedger("people.ledger").contents().entries == ()
    assert listing(prepared) == before


def test_a_new_ledger_on_a_full_disk_leaves_no_file(prepared, listing):
    before = listing(prepared)

    def without_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    code, said = in_a_process(NEW_LEDGER, full, before=without_room)
    assert code == 2
    assert "new.ledger" in said
    assert listing(prepared) == before


def no_space(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


PAGES = {
    "describe": ("dpglm.report.description_page.write_description", "report/description.json"),
    "evaluate": ("dpglm.report.evaluation_page.write_evaluation", "report/evaluation.json"),
    "fit": ("dpglm.report.html.write_report", "new.json"),
    "study": ("dpglm.study.writing.study_page", "results/model.json"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_cannot_be_written_loses_no_result(prepared, run, monkeypatch, name):
    page, result = PAGES[name]
    monkeypatch.setattr(page, no_space)
    done = run(*WRITING[name][0])
    assert done.exit_code == 3, done.output
    said = " ".join(done.stderr.split())
    assert "No space left on device" in said
    assert re.search(rf"It is in ([^ ]+, )*{result}", said)
    assert re.search(r"Spent: entry 1 of the ledger [^ ]*people\.ledger", said)
    assert "Do not run the command again" in said
    assert Path(result).is_file()
    assert left_behind(prepared) == []


@pytest.mark.parametrize("name", PAGES)
def test_result_of_occupied_path_is_kept_elsewhere(prepared, run, monkeypatch, name):
    _, result = PAGES[name]
    spend = PrivacyLedger.spend

    def take(self, *arguments, **options):
        Path(result).write_text("theirs")
        return spend(self, *arguments, **options)

    monkeypatch.setattr(PrivacyLedger, "spend", take)
    done = run(*WRITING[name][0])
    assert done.exit_code == 3, done.output
    assert f"{result} exists already" in done.stderr
    assert Path(result).read_text() == "theirs"
    (kept,) = Path(result).parent.glob(f"dpglm-rescued-*/**/{Path(result).name}")
    assert str(kept) in done.stderr
    if name == "fit":
        assert load_model(kept).estimator == "LogisticRegression"


def test_a_full_disk_moves_the_result_to_another(prepared, run, monkeypatch, tmp_path_factory):
    from dpglm.ledger import store as files

    other = tmp_path_factory.mktemp("other")
    monkeypatch.setattr("tempfile.tempdir", str(other))
    replacing = files.replacing

    def only_there(path, *arguments):
        if not path.is_relative_to(other):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return replacing(path, *arguments)

    monkeypatch.setattr(files, "replacing", only_there)
    done = run(*FIT, *REPORT)
    assert done.exit_code == 3, done.output
    said = "".join(done.stderr.split())
    assert "new.json:Nospaceleftondevice" in said
    (kept,) = other.glob("dpglm-rescued-*/**/new.json")
    assert str(kept) in said
    assert load_model(kept).estimator == "LogisticRegression"
    assert left_behind(prepared) == []


def test_fit_failing_after_its_charge_explains_resuming(prepared, run, monkeypatch):
    from dpglm.cli.files import SpendingWatch

    def fail(self, info):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(SpendingWatch, "stepped", fail)
        done = run(*FIT, "--checkpoint", "kept")
        assert done.exit_code == 3
        said = " ".join(done.stderr.split())
        assert re.search(r"Error: not enough memory Spent: entry 1 of the ledger [^ ]+", said)
        assert "the same command continues from kept" in said
    assert run(*FIT, "--checkpoint", "kept").exit_code == 0
    assert len(PrivacyLedger("people.ledger").contents().entries) == 1


def test_racing_commands_are_told_before_either_spends(prepared, run):
    for target in ("new.json", "NEW.json", "../{here}/new.json"):
        with reserved([Path(target.format(here=prepared.name))], force=False):
            done = run(*FIT)
        assert done.exit_code == 2
        assert "new.json is being written by another command that is running" in done.stderr
    assert PrivacyLedger("people.ledger").contents().entries == ()
    assert run(*FIT).exit_code == 0


def test_drafts_of_a_killed_command_are_removed(prepared):
    def die():
        with reserved([Path("new.json")], force=False) as outputs:
            outputs.drafts[Path("new.json")].write_text("half")
            os._exit(9)

    assert in_a_process((), full, before=die)[0] == 9
    assert left_behind(prepared) != []
    code, said = in_a_process(FIT, full)
    assert code == 0, said
    assert left_behind(prepared) == []


STOPPED_AT = {
    "released": "dpglm.solvers.checkpoint.RunCheckpoint.save",
    "writing": "dpglm.report.html.write_report",
    "moving": "dpglm.cli.files._move",
}


@pytest.mark.parametrize("name", first_quickly("SIGTERM", "SIGHUP", "SIGINT"))
@pytest.mark.parametrize("when", STOPPED_AT)
def test_signals_stop_a_command_cleanly(prepared, monkeypatch, name, when):
    number = getattr(signal, name)
    module, _, place = STOPPED_AT[when].rpartition(".")
    function = getattr(pkgutil.resolve_name(module), place)

    def stop(*arguments, **options):
        if when != "released":
            os.kill(os.getpid(), number)
        function(*arguments, **options)
        if when == "released" and arguments[1].steps:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(STOPPED_AT[when], stop)
    code, said = in_a_process((*FIT, *REPORT, "--checkpoint", "kept"), full)
    assert code == 128 + number, said
    assert "Traceback" not in said
    assert left_behind(prepared) == []
    if when == "released":
        assert "the same command continues from kept" in said
        assert not Path("new.json").exists()
    else:
        assert re.search(r"the result was complete; it is written: new\.json", said)
        assert load_model("new.json").estimator == "LogisticRegression"
