"""A fit and a study visit few functions: raise a limit only with a reason in the commit."""

import pytest

from benchmarks.visited import CALLS, counts, n_plans, visited
from dpglm.privacy import gdp

LIMITS = {"fit": (45, 346), "study": (73, 737)}


@pytest.mark.parametrize("name", LIMITS)
def test_calls_visit_few_functions(name):
    files, functions = counts(name)
    assert files <= LIMITS[name][0]
    assert functions <= LIMITS[name][1]


@pytest.mark.parametrize(("name", "parts"), [("fit", 1), ("study", 3)])
def test_each_part_is_planned_once(name, parts):
    assert n_plans(CALLS[name]) == parts


def test_visited_functions_of_a_known_call():
    found = visited(lambda: [gdp.delta(1.0, 1.234567) for _ in range(2)])
    assert set(found) == {"privacy/gdp.py"}
    assert {name.partition(":")[0] for name in found["privacy/gdp.py"]} >= {"delta", "log_delta"}
