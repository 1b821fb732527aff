"""The list of slow tests names tests that exist."""

from pathlib import Path

from tests.conftest import SLOW

ROOT = Path(__file__).parent.parent


def test_every_listed_test_exists():
    for name in SLOW:
        path, *_, test = name.partition("[")[0].split("::")
        assert f"def {test}(" in (ROOT / path).read_text(), name
