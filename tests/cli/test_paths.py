"""Outputs that would replace an input: refused before anything is read, spent or written."""

import json
import os
from pathlib import Path

import click
import pytest

from dpglm import ApproximateDP, LogisticRegression, PrivacyLedger
from dpglm._json import file_identity, is_below
from dpglm.cli.files import all_or_none
from dpglm.report import save_model


@pytest.fixture
def ledger(files):
    return PrivacyLedger.create("people.ledger", data="people", budget=ApproximateDP(60.0, 1e-5))


@pytest.fixture
def fitted(frame):
    model = LogisticRegression(epsilon=1.0, row_norm=200.0, classes=["no", "yes"])
    return model.fit(frame[["age"]], frame["ill"])


def contents(folder):
    return {str(one): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--model", "people.ledger"), "another file than --ledger people.ledger, which is kept"),
        (("--model", "people.ledger-journal"), "another file than --ledger people.ledger"),
        (("--model", "people.csv"), "another file than DATA people.csv, which is read"),
        (("--model", "schema.json"), "another file than --schema schema.json"),
        (("--model", "../{here}/people.csv"), "another file than DATA people.csv"),
        (("--model", "not/../people.csv"), "another file than DATA people.csv"),
        (("--model", "link.json"), "another file than DATA people.csv"),
        (("--model", "hard.json"), "another file than --ledger people.ledger"),
        (("--model", "x", "--checkpoint", "x"), "another file than --checkpoint x"),
        (("--model", ".x.lock", "--checkpoint", "x"), "another file than --checkpoint x"),
        (("--checkpoint", "people.csv"), "--checkpoint people.csv must be another file than DATA"),
        (("--checkpoint", "people.ledger"), "must be another file than"),
        (("--checkpoint", "schema.json"), "another file than --schema"),
        (("--report", "tables", "--model", "tables/report.html"), "named for two outputs"),
    ],
)
def test_a_fit_replaces_nothing_that_it_reads_or_keeps(fit, fails, files, ledger, options, says):
    (files / "link.json").symlink_to("people.csv")
    os.link("people.ledger", "hard.json")
    before = contents(files)
    options = [one.format(here=files.name) for one in options]
    said = fails(fit("--ledger", "people.ledger", "--delta", "1e-5", "--force", *options))
    assert says in said
    assert contents(files) == before
    assert ledger.contents().entries == ()


@pytest.mark.parametrize("output", ["people.csv", "model.csv", "LINK.csv"])
def test_predictions_replace_neither_rows_nor_model(run, fit, fails, files, output):
    fit(model="model.csv")
    (files / "LINK.csv").symlink_to("people.csv")
    before = contents(files)
    said = fails(run("predict", "people.csv", "--model", "model.csv", "-o", output, "--force"))
    assert f"--output {output} must be another file than" in said
    assert contents(files) == before


def test_a_folder_of_rows_is_left_alone(fit, fails, files):
    (files / "rows").mkdir()
    (files / "people.parquet").rename(files / "rows" / "part-0.parquet")
    before = contents(files)
    for name in ("part-0.parquet", "new.json"):
        said = fails(fit("--force", data="rows", model=f"rows/{name}"))
        assert f"--model rows/{name} must be outside of DATA rows" in said
    assert contents(files) == before


def test_ledger_next_to_the_rows_may_be_used(fit, files, ledger):
    (files / "rows").mkdir()
    (files / "people.parquet").rename(files / "rows" / "part-0.parquet")
    (files / "people.ledger").rename(files / "rows" / "people.ledger")
    done = fit("--ledger", "rows/people.ledger", "--delta", "1e-5", data="rows")
    assert done.exit_code == 0, done.output


def test_unnamed_ledger_is_never_replaced(fit, fails, files, ledger):
    before = contents(files)
    for name in ("people.ledger", "people.ledger-journal"):
        assert "a ledger is never replaced" in fails(fit("--force", model=name))
    assert contents(files) == before


def test_other_commands_replace_nothing_that_they_read(run, fails, files, ledger):
    before = contents(files)
    for call in (
        ("schema", "people.csv", "--target", "ill", "-o", "people.csv"),
        ("ledger", "export", "people.ledger", "-o", "people.ledger"),
        ("ledger", "export", "people.ledger", "-o", "people.ledger-journal"),
        ("ledger", "export", "people.ledger", "-o", "./people.ledger"),
    ):
        assert "must be another file than" in fails(run(*call, "--force"))
    assert contents(files) == before


def test_special_files_are_not_replaced(fit, fails, files):
    os.mkfifo("pipe")
    assert "pipe is not a regular file" in fails(fit("--force", model="pipe"))
    assert (files / "pipe").is_fifo()


def test_a_link_to_nothing_is_not_replaced_without_force(fit, fails, files):
    (files / "link.json").symlink_to("later.json")
    assert "link.json exists already" in fails(fit(model="link.json"))
    assert (files / "link.json").is_symlink()


def test_output_that_became_an_input_is_not_replaced(files):
    """Outputs are compared again just before they appear; also those that no option names."""
    from dpglm.cli.commands.models import fit as command

    context = click.Context(command)
    context.params = {"data": Path("people.csv")}

    def publish():
        with context, all_or_none([Path("model.json")], force=True) as drafts:
            drafts[Path("model.json")].write_text("new")
            os.link("people.csv", "model.json")

    with pytest.raises(ValueError, match="another file than DATA"):
        publish()
    assert (files / "people.csv").read_text().startswith("age,")


class TestInPython:
    def test_a_checkpoint_is_another_file_than_the_ledger(self, files, frame, ledger):
        model = LogisticRegression(
            epsilon=1.0, delta=1e-5, row_norm=200.0, classes=["no", "yes"], ledger=ledger
        )
        (files / "link").symlink_to("people.ledger")
        os.link("people.ledger", ".ck.lock")
        before = contents(files)
        for name in (
            "people.ledger",
            "people.ledger-journal",
            "link",
            "not/../people.ledger",
            "ck",
        ):
            with pytest.raises(ValueError, match="checkpoint must be another file than those of"):
                model.fit(frame[["age"]], frame["ill"], checkpoint=name)
        assert contents(files) == before

    def test_lock_leaves_files_unchanged(self, files, frame):
        (files / ".ck.lock").write_text("precious")
        model = LogisticRegression(epsilon=1.0, row_norm=200.0, classes=["no", "yes"])
        model.fit(frame[["age"]], frame["ill"], checkpoint="ck")
        assert (files / ".ck.lock").read_text() == "precious"

    @pytest.mark.parametrize("name", ["people.ledger", "people.ledger-journal", "link.ledger"])
    def test_nothing_is_written_onto_a_ledger(self, files, ledger, fitted, name):
        from dpglm.report.html import write_report

        (files / "link.ledger").symlink_to("people.ledger")
        before = contents(files)
        for write in (
            lambda: save_model(fitted, name),
            lambda: fitted.privacy_.to_json(name),
            lambda: write_report(fitted, name),
        ):
            with pytest.raises(ValueError, match="a ledger is never replaced"):
                write()
        assert contents(files) == before

    def test_other_files_are_replaced_as_before(self, files, fitted):
        save_model(fitted, "model.json")
        save_model(fitted, "model.json")
        assert json.loads((files / "model.json").read_text())["format"] == "dpglm model"


class TestIdentity:
    def test_names_that_differ(self, tmp_path):
        (tmp_path / "a").write_text("")
        (tmp_path / "b").write_text("")
        assert file_identity(tmp_path / "a") != file_identity(tmp_path / "b")
        assert file_identity(tmp_path / "x") != file_identity(tmp_path / "y")
        assert file_identity(tmp_path / "a") != file_identity(tmp_path / "x" / "a")

    def test_new_names_that_a_disk_may_merge(self, tmp_path):
        """Case, and accents written as one character or two."""
        assert file_identity(tmp_path / "Model") == file_identity(tmp_path / "mODEL")
        assert file_identity(tmp_path / "caf\u00e9") == file_identity(tmp_path / "cafe\u0301")
        assert file_identity(tmp_path / "N" / "x") == file_identity(tmp_path / "n" / "x")

    def test_disk_decides_on_names_of_existing_files(self, tmp_path):
        (tmp_path / "a").write_text("")
        is_one = (tmp_path / "A").exists()
        assert (file_identity(tmp_path / "a") == file_identity(tmp_path / "A")) is is_one

    def test_places_below(self, tmp_path):
        (tmp_path / "link").symlink_to(tmp_path / "folder")
        (tmp_path / "folder").mkdir()
        assert is_below(tmp_path / "link" / "new" / "x", tmp_path / "folder")
        assert not is_below(tmp_path / "folder" / ".." / "x", tmp_path / "folder")
        assert not is_below(tmp_path / "folder", tmp_path / "folder")
