"""Files that appear all together or not at all."""

import os
from pathlib import Path

import pytest

from dpglm.cli.files import all_or_none


def publish(targets, force=False):
    with all_or_none(targets, force=force) as drafts:
        for target in targets:
            drafts[target].write_text(f"new {target.name}")


def test_files_appear_at_the_end_of_the_block(tmp_path, listing):
    targets = [tmp_path / "a" / "x.json", tmp_path / "b.csv"]
    with all_or_none(targets, force=False) as drafts:
        for target in targets:
            assert drafts[target].name == target.name
            drafts[target].write_text("new")
            assert not target.exists()
    assert listing(tmp_path) == ["a", "a/x.json", "b.csv"]


def test_a_failure_leaves_everything_as_it_was(tmp_path, listing):
    old = tmp_path / "old.txt"
    old.write_text("old")

    def fail():
        with all_or_none([old, tmp_path / "a" / "b" / "new.txt"], force=True) as drafts:
            drafts[old].write_text("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert listing(tmp_path) == ["old.txt"]
    assert old.read_text() == "old"


def test_a_file_that_was_not_written_fails_all(tmp_path, listing):
    def write_one_of_two():
        targets = [tmp_path / "one", tmp_path / "two"]
        with all_or_none(targets, force=False) as drafts:
            drafts[targets[0]].write_text("new")

    with pytest.raises(FileNotFoundError):
        write_one_of_two()
    assert listing(tmp_path) == []


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failing_move_is_undone(tmp_path, monkeypatch, listing, failing):
    targets = [tmp_path / name for name in ("one", "two", "three")]
    targets[0].write_text("old")
    move = os.replace

    def replace(source, target):
        is_draft = Path(source).name == Path(target).name
        if Path(target) == targets[failing] and is_draft:
            raise OSError("full")
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(OSError, match="full"):
        publish(targets, force=True)
    assert listing(tmp_path) == ["one"]
    assert targets[0].read_text() == "old"


def test_force_replaces(tmp_path):
    target = tmp_path / "one"
    target.write_text("old")
    with pytest.raises(ValueError, match=r"one exists already: .*--force"):
        publish([target])
    publish([target], force=True)
    assert target.read_text() == "new one"


def test_a_file_that_appears_meanwhile_is_kept(tmp_path):
    target = tmp_path / "one"

    def race():
        with all_or_none([target], force=False) as drafts:
            drafts[target].write_text("new")
            target.write_text("somebody else's")

    with pytest.raises(ValueError, match="exists already"):
        race()
    assert target.read_text() == "somebody else's"


def test_impossible_targets_are_refused_before_anything_is_done(tmp_path, listing):
    (tmp_path / "file").write_text("")
    before = listing(tmp_path)
    for targets, says in (
        ([tmp_path], "is a folder"),
        ([tmp_path / "file" / "x"], "file is a file"),
        ([tmp_path / "x", tmp_path / "y" / ".." / "x"], "two outputs"),
    ):
        with pytest.raises(ValueError, match=says):
            publish(targets)
    assert listing(tmp_path) == before
