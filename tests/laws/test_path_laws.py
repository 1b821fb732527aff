"""No command of the command line writes a file that it reads or keeps, whatever it is called."""

import itertools
import os
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from dpglm.cli.commands import app
from dpglm.cli.console import CommandPath, Use, guarded
from dpglm.cli.options import INPUT_FILE, OUTPUT_FILE

SAYS = ("must be another file than", "must be outside of", "is named for two outputs")
# Options with free text as value. Add new ones here.
_COLUMNS = {"reference", "formula", "interaction", "monotone"}
_CSV = {"separator", "decimal", "thousands", "encoding"}
_BESIDE = {"exposure", "offset", "trials"}
TEXTS = {
    "ate": {"label", "delta", "groups", "treatment", "outcome", "adjust", "part"},
    "describe": {
        "label",
        "columns",
        "two_way",
        "by",
        "bins",
        "bounds",
        "delta",
        "groups",
        "part",
        "where",
    }
    | _CSV,
    "evaluate": {
        "label",
        "target",
        "target_bounds",
        "by",
        "levels",
        "delta",
        "groups",
        "part",
        "where",
    }
    | _BESIDE
    | _CSV,
    "audit": {"settings", "solver", "solver_settings", "delta"},
    "fit": {"target", "settings", "delta", "label", "part", "groups", "exposure_bounds", "where"}
    | _COLUMNS
    | _BESIDE
    | _CSV,
    "ledger create": {"data", "fingerprint", "delta"},
    "moments": {"label", "columns", "terms", "delta", "groups", "part"},
    "plan": {"target", "settings", "delta", "groups", "exposure", "exposure_bounds", "trials"}
    | _COLUMNS,
    "predict": {"keep", "exposure", "offset"} | _CSV,
    "regress": {"formula", "penalty"},
    "schema": {"target"} | _CSV,
    "study": {"label", "part"},
}
# A valid value of each required option that is not a path.
REQUIRED = {
    "--epsilon": "1",
    "--delta": "1e-6",
    "--n-rows": "10",
    "--target": "y",
    "--treatment": "sex",
    "--outcome": "y",
    "--adjust": "age",
    "--data": "people",
    "--to": "sql",
}


def leaves(command, name=()):
    if isinstance(command, click.Group):
        for part, one in command.commands.items():
            yield from leaves(one, (*name, part))
    else:
        yield name, command


def is_path(option):
    return isinstance(option.type, CommandPath)


def hidden_paths(group, texts):
    """Options that may name a file, without a declared role."""
    plain = (click.Choice, click.IntRange, click.FloatRange, type(click.FLOAT), type(click.BOOL))
    for name, command in leaves(group):
        for option in command.params:
            kind = option.type
            known = is_path(option) or isinstance(kind, plain)
            if not known and option.name not in texts.get(" ".join(name), ()):
                yield " ".join((*name, option.name))


def spellings(target, folder):
    """Names of one file that exists, or of its place."""
    link = folder / "link to folder"
    if not link.exists():
        link.symlink_to(target.parent, target_is_directory=True)
    yield target
    yield Path(os.path.relpath(target))
    yield target.parent / "not there" / ".." / target.name
    yield link / target.name
    if target.is_file():
        for name, make in (("soft", os.symlink), ("hard", os.link)):
            other = folder / f"{name} {target.name}"
            if not other.exists():
                make(target, other)
            yield other


def words(option, value):
    return [str(value)] if isinstance(option, click.Argument) else [option.opts[-1], str(value)]


def arguments(command, given, folder):
    """A call of a command with some paths, and something for all else that it needs."""
    for option in command.params:
        if option.name in given:
            yield from words(option, given[option.name])
        elif option.name == "force":
            yield "--force"
        elif option.required and is_path(option):
            yield from words(option, made(option, folder / f"{option.name}.csv"))
        elif option.required:
            yield from words(option, REQUIRED[option.opts[-1]])


def made(option, path):
    """Make the path of an option, with useless contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not option.type.file_okay:
        path.mkdir(exist_ok=True)
    elif option.type.use is not Use.WRITTEN:
        path.write_bytes(b"precious")
    return path


def place(option, path):
    """Where a file of an option is, if the option is given a path."""
    return list(option.type.files(path))[-1] if option.type.use is Use.WRITTEN else path


def snapshot(folder):
    return {
        str(one): one.read_bytes() if one.is_file() else None for one in sorted(folder.rglob("*"))
    }


def refused(group, name, command, given, folder):
    """Run a command; None if it refused two paths as it should, and touched nothing."""
    call = [*name, *arguments(command, given, folder / "others")]
    before = snapshot(folder)
    done = CliRunner().invoke(group, call)
    said = " ".join(done.output.split())
    if done.exit_code == 2 and any(text in said for text in SAYS) and snapshot(folder) == before:
        return None
    return f"dpglm {' '.join(call)}: {done.exit_code} {said[-200:]}"


def violations(group, folder):
    """Pairs of options that may name one file, though a command writes or keeps it."""
    number = 0
    for name, command in leaves(group):
        for one, other in itertools.combinations(filter(is_path, command.params), 2):
            kept, written = sorted((one, other), key=lambda o: list(Use).index(o.type.use))
            if written.type.use is Use.READ or not (kept.type.file_okay or written.type.dir_okay):
                continue
            own = folder / str(number := number + 1)
            path = own / "shared.csv"
            target = place(written, path)
            for kept_path in filter(os.path.exists, spellings(made(kept, target), own)):
                yield refused(group, name, command, {kept.name: kept_path, written.name: path}, own)
            beside = [] if kept.type.use is Use.WRITTEN else list(kept.type.files(target))[1:]
            if place(written, path) == path:
                for path in itertools.chain(spellings(target, own), beside):
                    if written.type.exists and not os.path.exists(path):
                        continue
                    yield refused(
                        group, name, command, {kept.name: target, written.name: path}, own
                    )


def test_every_option_declares_the_role_of_its_file():
    assert list(hidden_paths(app, TEXTS)) == []


def test_commands_do_not_overwrite_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = list(violations(app, tmp_path))
    assert len(found) > 150
    assert [one for one in found if one is not None] == []


def test_nothing_is_written_below_a_folder_of_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows, elsewhere = tmp_path / "rows", tmp_path / "elsewhere.parquet"
    (rows / "sub").mkdir(parents=True)
    elsewhere.write_bytes(b"precious")
    (rows / "part-0.parquet").write_bytes(b"precious")
    (rows / "part-1.parquet").symlink_to(elsewhere)
    (rows / "notes.txt").write_bytes(b"precious")
    (rows / "sub" / "part-2.pq").write_bytes(b"precious")
    inside = [one for one in rows.rglob("*") if one.is_file()]
    fit = app.commands["fit"]
    for written in filter(is_path, fit.params):
        if written.type.use is Use.READ:
            continue
        for target in (*inside, elsewhere, rows / "new.parquet"):
            is_kept = written.type.use is Use.KEPT
            if is_kept and (target.suffix == ".txt" or not target.exists()):
                continue  # a ledger or a checkpoint may lie next to the rows
            path = target.parent if written.name == "report" else target
            if written.name == "report" and target == elsewhere:
                continue  # a report's files have other names
            given = {"data": rows, written.name: path}
            assert refused(app, ("fit",), fit, given, tmp_path) is None


@click.group()
def careless():
    """Commands that ignore their arguments."""


@careless.command()
@click.argument("source", type=INPUT_FILE)
@click.option("--target", type=OUTPUT_FILE)
def unguarded(source, target):
    target.write_bytes(source.read_bytes() + b" and more")


@careless.command()
@click.argument("source", type=INPUT_FILE)
@click.option("--target", type=click.Path(path_type=Path))
@click.option("--log", default="log.txt")
@guarded
def undeclared(source, target, log):
    target.write_bytes(source.read_bytes() + b" and more")


@careless.command()
@click.argument("source", type=INPUT_FILE)
@click.option("--target", type=OUTPUT_FILE)
@guarded
def careful(source, target):
    target.write_bytes(source.read_bytes() + b" and more")


class TestPlanted:
    def test_a_path_of_another_type_is_seen(self):
        assert list(hidden_paths(careless, {})) == ["undeclared target", "undeclared log"]

    def test_a_command_that_does_not_check_is_seen(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        found = [one for one in violations(careless, tmp_path) if one is not None]
        assert found
        assert all(one.startswith("dpglm unguarded ") for one in found)

    @pytest.mark.parametrize("resolve", [Path, lambda path: Path(os.path.abspath(path))])
    def test_comparing_names_is_not_enough(self, tmp_path, monkeypatch, resolve):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("dpglm.cli.console.file_identity", resolve)
        assert any(one is not None for one in violations(app, tmp_path))
