"""The estimators have few tuned numbers: lower the limit when there are fewer."""

import importlib.util

from benchmarks.constants import NOT_TUNED, PACKAGES, SRC, numbers, tuned
from tests.slowly import together

LIMIT = 60


def test_tuned_numbers_are_few():
    assert len(tuned()) <= LIMIT


def test_tuned_numbers_are_constants_below_their_command():
    for one in tuned():
        assert one.is_constant, one
        assert one.command, one
        assert importlib.util.find_spec(one.command) is not None, one


@together("place", [place for places in NOT_TUNED.values() for place in places])
def test_exceptions_exist(place):
    file, _, owner = place.partition(": ")
    assert file.startswith(PACKAGES)
    found = numbers((SRC / file).read_text(encoding="utf-8"), file)
    assert any(one.owner == owner for one in found) if owner else found


def test_numbers_of_a_known_source():
    source = (
        "_A = 0.3\n# Chosen by ``python -m experiments.levels``.\n_B, _C = 0.4, 2.0 * x[3] ** 7\n"
        "class D:\n    e: float = 0.7\n    def f(self, level=0.95):\n"
        "        return 100.0 * self.e + 1e-300 + 9.0\n"
    )
    found = [(one.owner, one.value, one.command, one.is_constant) for one in numbers(source, "x")]
    assert found == [
        ("_A", 0.3, "", True),
        ("_B, _C", 0.4, "experiments.levels", True),
        ("D", 0.7, "experiments.levels", False),
        ("D.f", 9.0, "experiments.levels", False),
    ]
