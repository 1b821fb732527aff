"""The page about pitfalls names tests for each of them, and all of these exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"\btest_pitfall_(\d\d)_\w+")
ENTRIES = 37


def defined_in(folder):
    paths = folder.rglob("test_*.py")
    return {match[0] for path in paths for match in NAME.finditer(path.read_text())}


def test_every_entry_has_tests_and_every_test_is_in_the_page():
    named = {}
    for line in (ROOT / "docs" / "audit.md").read_text().splitlines():
        if entry := re.match(r"\| (\d+) \|", line):
            named[int(entry[1])] = [match[0] for match in NAME.finditer(line)]
    assert sorted(named) == list(range(1, ENTRIES + 1))
    for number, names in named.items():
        assert names, number
        assert all(NAME.fullmatch(name)[1] == f"{number:02d}" for name in names)
    assert {name for names in named.values() for name in names} >= defined_in(
        ROOT / "tests/pitfalls"
    )
    assert {name for names in named.values() for name in names} <= defined_in(ROOT / "tests")


def test_every_check_is_shown_to_fail_on_a_planted_bug():
    for path in sorted((ROOT / "tests/pitfalls").glob("test_*.py")):
        functions = re.split(r"\n(?=@pytest|def )", path.read_text())
        bodies = [one for one in functions if "def test_pitfall_" in one]
        assert all("caught(" in body for body in bodies)
