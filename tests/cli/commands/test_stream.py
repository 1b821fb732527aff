"""`dpglm fit` on Parquet that is streamed, and fits that go on after an interruption."""

from dpglm.cli import rows as reading
from dpglm.solvers.checkpoint import RunCheckpoint

OPTIONS = ("--schema", "schema.json", "--epsilon", 1, "--model", "model.json")


def test_a_parquet_file_is_streamed_if_asked_to(files, run):
    done = run("fit", "people.parquet", *OPTIONS, "--stream", "--cache", ".")
    assert done.exit_code == 0, done.stderr
    assert "Streaming 400 rows from people.parquet; first, all of them are checked" in done.stderr
    assert "Not in the schema, and therefore not used: id" in done.stderr
    predicted = run("predict", "people.csv", "--model", "model.json", "--output", "predicted.csv")
    assert predicted.exit_code == 0, predicted.stderr


def test_large_files_and_folders_are_streamed(files, run, monkeypatch):
    monkeypatch.setattr(reading, "STREAMED_BYTES", 100)
    assert "Streaming" in run("fit", "people.parquet", *OPTIONS).stderr
    (files / "folder").mkdir()
    (files / "people.parquet").rename(files / "folder" / "part-0.parquet")
    assert "Streaming 400 rows" in run("fit", "folder", *OPTIONS, "--force").stderr


def test_only_parquet_is_streamed(files, run):
    done = run("fit", "people.csv", *OPTIONS, "--stream")
    assert done.exit_code == 2
    assert "--stream needs Parquet, got people.csv" in done.stderr
    assert not (files / "model.json").exists()


def test_a_cache_that_is_not_used_is_said_to_be(files, run):
    done = run("fit", "people.csv", *OPTIONS, "--cache", ".")
    assert done.exit_code == 0, done.stderr
    assert "--cache . is not used" in done.stderr


def test_the_same_command_goes_on_after_an_interruption(files, run, monkeypatch):
    save, saved = RunCheckpoint.save, []

    def interrupt(self, progress):
        if len(saved) == 10:
            raise OSError("the power is cut")
        saved.append(progress.steps)
        save(self, progress)

    options = (*OPTIONS, "--stream", "--checkpoint", "kept")
    with monkeypatch.context() as patched:
        patched.setattr(RunCheckpoint, "save", interrupt)
        cut = run("fit", "people.parquet", *options)
    assert cut.exit_code == 2
    assert "the power is cut" in cut.stderr
    assert not (files / "model.json").exists()
    done = run("fit", "people.parquet", *options)
    assert done.exit_code == 0, done.stderr
    steps = [line for line in done.stderr.splitlines() if line.startswith("Private fit: ")]
    taken, _, planned = steps[-1].removeprefix("Private fit: ").partition(" of ")
    assert int(taken) == int(planned) > max(saved) == 9
