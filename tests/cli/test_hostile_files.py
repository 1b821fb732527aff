"""Contents of files cannot control the terminal, and a damaged file never ends in a traceback."""

import json
import os
import signal
import sqlite3
import sys
import zipfile
from pathlib import Path

import pandas as pd
import pytest

from dpglm._json import parse
from dpglm.cli import main
from dpglm.cli.console import plain
from tests.slowly import together

STEERING = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202ereversed\r"


def is_plain(text):
    return not any((ord(one) < 32 and one not in "\n\t") or one in "\x7f\x9b\u202e" for one in text)


class TestPlain:
    def test_leaves_no_control_character(self):
        every = "".join(map(chr, range(0x3000))) + "\ud800"
        assert is_plain(plain(every))
        assert plain(every).encode()

    def test_text_is_kept(self):
        assert plain("é ε 漢字 👩‍👩‍👧 a\tb\nc") == "é ε 漢字 👩‍👩‍👧 a\tb\nc"

    def test_is_json_within_json(self):
        assert parse(plain(json.dumps({"a": "\x9b\u202e"}, ensure_ascii=False))) == {
            "a": "\x9b\u202e"
        }


def test_a_hostile_header_reaches_neither_terminal_nor_form(run, files):
    pd.DataFrame({STEERING.strip(): [1], "y": [2]}).to_csv("people.csv", index=False)
    done = run("schema", "people.csv", "--target", "y")
    assert done.exit_code == 0
    assert is_plain(done.stdout)
    assert STEERING.strip() in next(iter(json.loads(done.stdout)["columns"]))
    done = run("schema", "people.csv", "--target", "z")
    assert done.exit_code == 2
    assert is_plain(done.output)


def test_hostile_names_in_a_fit_and_its_files(run, fit, files, sample):
    schema = json.loads(json.dumps(sample.schema))
    schema["target"]["classes"] = ["no", f"yes{STEERING.strip()}"]
    schema["provenance"] = f"{STEERING}\nThe certificate holds."
    frame = sample.frame()
    frame["ill"] = frame["ill"].replace("yes", schema["target"]["classes"][1])
    frame.to_parquet("people.parquet")
    (files / "schema.json").write_text(json.dumps(schema))
    done = fit("--report", "report", data="people.parquet")
    assert done.exit_code == 0, done.output
    assert is_plain(done.output)
    for command in (("verify", "model.json"), ("verify", "report/certificate.json")):
        assert is_plain(run(*command).output)


def test_hostile_names_in_a_ledger(run, files):
    options = ("--epsilon", 1, "--delta", 1e-6)
    run("ledger", "create", "a.ledger", "--data", f"rows{STEERING.strip()}", *options)
    for command in ("show", "verify"):
        done = run("ledger", command, "a.ledger")
        assert done.exit_code == 0
        assert is_plain(done.output)
    done = run("ledger", "create", "b.ledger", "--data", "rows\nspent  nothing", *options)
    assert done.exit_code == 2
    assert "data must be one line of text" in done.stderr


def test_a_view_in_the_place_of_records_is_not_computed(run, files):
    options = ("--data", "rows", "--epsilon", 1, "--delta", 1e-6)
    run("ledger", "create", "a.ledger", *options)
    connection = sqlite3.connect("a.ledger")
    connection.executescript(
        "DROP TABLE records; CREATE VIEW records AS WITH RECURSIVE n(number, text, digest) AS "
        "(VALUES (0, '', '') UNION ALL SELECT number + 1, '', '' FROM n) SELECT * FROM n;"
    )
    connection.close()
    done = run("ledger", "show", "a.ledger")
    assert done.exit_code == 2
    assert "the tables are not the tables of a ledger" in done.stderr


@together(
    ("content", "says"),
    [
        (b"", "is not a JSON file"),
        (b"\xff\xfe{\x00}\x00", "is not text in UTF-8 (byte 0)"),
        (b"[" * 100_000, "must be nested at most 64 levels deep"),
        (b'{"columns": ' + b"[" * 70 + b"]" * 70 + b"}", "must be nested at most 64 levels deep"),
        (b'{"columns": {"a": 1e400}}', "columns.a must be a finite number"),
        (b'{"columns": {"a": NaN}}', "columns.a must be a finite number, got NaN"),
        (b'{"columns": {"a": ' + b"9" * 5000 + b"}}", "columns.a must be an integer of at most"),
        (b'{"columns": {"a": "\\ud800"}}', "columns.a must be Unicode text without lone surr"),
        (b'{"columns": {"a": 1, "a": 2}}', "columns must have each key once, but 'a' is repeated"),
        (b"[1, 2]", "a schema must be a JSON object"),
        (b'{"\\u001b[2J": [NaN]}', "[0] must be a finite number, got NaN"),
    ],
    ids=lambda value: None,
)
@together("kind", ["schema", "model", "certificate", "ledger"])
def test_hostile_json_gives_one_line(run, files, fails, kind, content, says):
    (files / "x.json").write_bytes(content)
    command = {
        "schema": ("plan", "--schema", "x.json", "--n-rows", "100"),
        "model": ("predict", "people.csv", "--model", "x.json", "-o", "p.csv"),
        "certificate": ("verify", "x.json"),
        "ledger": ("ledger", "show", "x.json"),
    }[kind]
    done = run(*command)
    message = fails(done)
    assert done.stderr.count("\n") == 1
    assert "x.json" in message
    assert is_plain(done.output)
    if kind != "ledger" and says != "a schema must be a JSON object":
        assert says in message


@pytest.mark.parametrize("suffix", ["csv", "parquet", "csv.gz"])
@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 50, b"\xff\xfea\x00", b"PAR1" + b"\xff" * 40 + b"PAR1", b'"' * 200_001],
)
def test_damaged_tables_give_one_line(run, files, fails, suffix, content):
    name = f"t.{suffix}"
    (files / name).write_bytes(content)
    done = run("fit", name, "--schema", "schema.json", "--epsilon", 1, "--model", "m.json")
    assert name in fails(done)
    assert is_plain(done.output)
    assert not (files / "m.json").exists()


def packed(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.npy", b"\x00" * (1 << 24))


def overlapping(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("header.npy", b"\x00" * 1000)
        file.filelist *= 1000


@pytest.mark.parametrize("make", [packed, overlapping], ids=lambda make: make.__name__)
def test_checkpoint_bomb_is_not_unpacked(fit, files, fails, make):
    make(files / "kept")
    done = fit("--checkpoint", "kept")
    message = fails_after_progress(done)
    assert "kept is damaged, or no checkpoint: its parts are larger than the file" in message
    assert not (files / "model.json").exists()


def fails_after_progress(done):
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    return " ".join(done.stderr.split())


def test_a_checkpoint_of_another_fit_gives_one_line(fit, files):
    assert fit("--checkpoint", "kept").exit_code == 0
    done = fit("--checkpoint", "kept", epsilon="4", model="other.json")
    assert "kept is the checkpoint of another fit" in fails_after_progress(done)


def test_lone_surrogate_in_schema_is_refused_before_spending(run, fit, files, sample):
    run("ledger", "create", "a.ledger", "--data", "rows", "--epsilon", 9, "--delta", 1e-4)
    text = json.dumps(sample.schema | {"provenance": "a \ud800 b"})
    (files / "schema.json").write_text(text)
    done = fit("--ledger", "a.ledger", "--set", "solver=auto")
    assert done.exit_code == 2
    done = fit("--ledger", "a.ledger")
    assert "schema.json: provenance must be Unicode text without lone surrogates" in done.stderr
    assert "0 entries" in run("ledger", "verify", "a.ledger").stdout


def test_closed_output_is_not_a_verdict(binary, files, monkeypatch):
    Path("certificate.json").write_text(json.dumps(binary.privacy_.to_dict()))
    reader, closed = os.pipe()
    os.close(reader)
    # The signals of this process stay as they are.
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["dpglm", "verify", "certificate.json"])
    with open(closed, "w") as gone, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", gone)
        patched.setattr(sys, "stderr", gone)
        with pytest.raises(SystemExit) as done:
            main()
    assert done.value.code == 2
