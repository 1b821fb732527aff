"""Processes that are killed, and processes that race: never a release without its record."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dpglm

PROGRAM = Path(__file__).with_name("crash.py")
SOURCE = Path(dpglm.__file__).parent.parent
# What a killed process leaves does not depend on the disk; in memory it is killed more often.
MEMORY = Path("/dev/shm")


def outcome(folder, kills):
    done = subprocess.run(
        [sys.executable, PROGRAM, folder, str(kills)],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found():
    where = MEMORY if os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as folder:
        return outcome(folder, kills=200)


def is_safe(killed):
    return killed["unrecorded"] == 0 and killed["unreadable"] == 0


class TestKilled:
    def test_what_was_released_is_recorded_and_the_ledger_is_whole(self, found):
        assert is_safe(found["as it is"])

    def test_kills_came_at_telling_moments(self, found):
        assert found["as it is"]["kills"] == 200
        assert found["as it is"]["released"] > 20
        assert found["as it is"]["interrupted"] > 0  # in the middle of a transaction

    @pytest.mark.parametrize("planted", ["recorded afterwards", "without a transaction"])
    def test_planted_bugs_are_seen(self, found, planted):
        assert not is_safe(found[planted])

    def test_a_ledger_is_made_whole_or_can_be_made_again(self, found):
        assert found["while created"]["unreadable"] == 0


class TestRaces:
    def test_exactly_what_there_is_room_for_is_let_through(self, found):
        assert found["races"]["as it is"] == {"allowed": 16, "refused": 4 * 32 - 16}

    def test_a_planted_bug_is_seen(self, found):
        assert found["races"]["balance read before the lock"]["allowed"] > 16


@pytest.mark.slow
@pytest.mark.parametrize(("on_disk", "kills"), [(False, 2000), (True, 300)])
def test_thousands_of_kills(tmp_path, on_disk, kills):
    where = MEMORY if os.access(MEMORY, os.W_OK) and not on_disk else tmp_path
    with tempfile.TemporaryDirectory(dir=where) as folder:
        found = outcome(folder, kills)
    assert is_safe(found["as it is"])
    assert found["while created"]["unreadable"] == 0
    assert found["races"]["as it is"]["allowed"] == 16
