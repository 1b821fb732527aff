"""Every command on the address of a table in a database."""

import json
import os
import pwd
import shutil
import subprocess
import sys

import adbc_driver_sqlite.dbapi as sqlite
import duckdb
import pyarrow as pa
import pytest

from tests.cli.commands.test_study import STUDY

GROUPS = ("--groups", "id", "--max-rows-per-group", 1)
FIT = ("--schema", "schema.json", "--epsilon", 5)


@pytest.fixture(params=["duckdb", "sqlite"])
def address(request, files, frame):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if request.param == "duckdb":
        with duckdb.connect("people.db") as connection:
            connection.register("given", table)
            connection.execute("create table people as select * from given")
        return "duckdb:people.db?table=people"
    with sqlite.connect("people.db") as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("people", table)
        connection.commit()
    return "sqlite:people.db?query=select+*+from+people"


def ok(done):
    assert done.exit_code == 0, done.stderr
    return done


def test_all_commands_take_an_address(run, files, address):
    before = (files / "people.db").read_bytes()
    form = json.loads(ok(run("schema", address, "--target", "ill")).stdout)
    assert list(form["columns"]) == ["age", "smoker", "id"]
    assert form["columns"]["age"]["type"] == "numeric"
    done = ok(run("fit", address, *FIT, "--model", "model.json", *GROUPS))
    assert "Streaming 400 rows" in done.stderr
    ok(run("describe", address, *FIT, "--report", "look"))
    ok(run("evaluate", address, "--model", "model.json", "--epsilon", 5, "--report", "found"))
    ok(run("predict", address, "--model", "model.json", "-o", "there.csv"))
    ok(run("predict", "people.csv", "--model", "model.json", "-o", "here.csv"))
    assert (files / "there.csv").read_bytes() == (files / "here.csv").read_bytes()
    (files / "study.toml").write_text(STUDY)
    ok(run("study", "study.toml", address, "--out", "results"))
    assert (files / "people.db").read_bytes() == before
    assert not [
        one for one in os.listdir(files) if one.startswith("people.db") and one != "people.db"
    ]


def test_a_database_is_never_replaced(run, files, fails, address):
    before = (files / "people.db").read_bytes()
    said = fails(run("fit", address, *FIT, "--model", "people.db", "--force"))
    assert "is read and never replaced" in said
    assert (files / "people.db").read_bytes() == before


def test_addresses_with_mistakes_are_refused(run, files, fails, address):
    place = address.partition("?")[0]
    assert "?table=NAME" in fails(run("fit", place, *FIT, "--model", "m.json"))
    said = fails(run("fit", f"{place}?table=none", *FIT, "--model", "m.json"))
    assert "the query cannot be run" in said
    assert "none" in said
    said = fails(run("fit", "sqlite:other.db?table=a", *FIT, "--model", "m.json"))
    assert "does not exist" in said
    assert not (files / "other.db").exists()
    said = fails(run("fit", address, *FIT, "--model", "m.json", "--trials", "id"))
    assert "--trials" in said


def test_a_driver_that_is_not_installed_is_named(run, files, fails, monkeypatch):
    (files / "people.db").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    said = fails(run("fit", "duckdb:people.db?table=a", *FIT, "--model", "m.json"))
    assert "pip install 'dpglm[duckdb]'" in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("postgres") is None, reason="no PostgreSQL")
def test_postgresql_is_read_by_its_uri(run, files, frame, tmp_path):
    driver = pytest.importorskip("adbc_driver_postgresql.dbapi")
    home = tmp_path / "server"
    home.mkdir()
    as_user = {}
    if os.getuid() == 0:
        # The server does not run as root.
        user = pwd.getpwnam("nobody")
        os.chown(home, user.pw_uid, user.pw_gid)
        for folder in (tmp_path, *tmp_path.parents[:3]):
            folder.chmod(folder.stat().st_mode | 0o011)
        as_user = {"user": user.pw_uid, "group": user.pw_gid}
    call = {"check": True, "stdout": subprocess.DEVNULL, **as_user}
    subprocess.run(["initdb", "-D", home / "data", "-A", "trust", "-U", "me"], **call)
    options = f"-k {home} -c listen_addresses="
    subprocess.run(["pg_ctl", "-D", home / "data", "-w", "-o", options, "start"], **call)
    try:
        uri = f"postgresql:///postgres?host={home}&user=me"
        with driver.connect(uri) as connection, connection.cursor() as cursor:
            cursor.adbc_ingest("people", pa.Table.from_pandas(frame, preserve_index=False))
            connection.commit()
        ok(run("fit", f"{uri}&table=people", *FIT, "--model", "model.json"))
        ok(run("predict", f"{uri}&table=public.people", "--model", "model.json", "-o", "a.csv"))
        ok(run("predict", "people.csv", "--model", "model.json", "-o", "b.csv"))
        assert (files / "a.csv").read_bytes() == (files / "b.csv").read_bytes()
    finally:
        subprocess.run(["pg_ctl", "-D", home / "data", "-m", "fast", "stop"], **call)
