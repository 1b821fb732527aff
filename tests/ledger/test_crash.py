"""Processes that are killed, and processes that race: never a release without its record."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.ledger.moments import can_be_seen

PROGRAM = Path(__file__).with_name("crash.py")
ROOT = PROGRAM.parents[2]
ROOM, RACERS = 16, 3


def outcome(folder, *kills):
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, *map(str, kills)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    if not can_be_seen():
        pytest.skip("this SQLite does not let its system calls be replaced")
    return outcome(tmp_path_factory.mktemp("ledgers"))


def is_safe(killed):
    return killed["unrecorded"] == 0 and killed["unreadable"] == 0


class TestKilled:
    def test_releases_are_recorded_in_a_valid_ledger(self, found):
        assert all(map(is_safe, found["as it is"]))

    def test_kills_came_at_telling_moments(self, found):
        for killed in found["as it is"]:
            # Each write has two: the journal, the records, and the mark of the ledger's end.
            assert killed["interrupted"] > 10  # in the middle of a transaction
            assert killed["kills"] > killed["interrupted"]
            assert killed["released"] > 0
        once, recovering = found["as it is"]
        assert recovering["kills"] > once["kills"]
        assert 0 < found["while created"]["made"] < found["while created"]["kills"]

    @pytest.mark.parametrize("planted", ["recorded afterwards", "without a transaction"])
    def test_planted_bugs_are_seen(self, found, planted):
        assert not any(map(is_safe, found[planted]))

    def test_a_ledger_is_made_whole_or_can_be_made_again(self, found):
        assert found["while created"]["unreadable"] == 0


class TestRaces:
    def test_exact_remaining_budget_is_accepted(self, found):
        assert found["races"]["as it is"] == {"allowed": ROOM, "refused": (RACERS - 1) * ROOM}

    def test_a_planted_bug_is_seen(self, found):
        # All of them found room for one.
        assert found["races"]["balance read before the lock"]["allowed"] == ROOM - 1 + RACERS


@pytest.mark.slow
@pytest.mark.parametrize(("on_disk", "kills"), [(False, 2000), (True, 300)])
def test_thousands_of_kills_at_random_moments(tmp_path, on_disk, kills):
    with tempfile.TemporaryDirectory(dir=None if on_disk else tmp_path) as folder:
        assert is_safe(outcome(folder, kills))
