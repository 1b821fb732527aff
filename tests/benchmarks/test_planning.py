"""The benchmark of planning: it plans every solver, and writes its measurements."""

import dataclasses

import pytest

from benchmarks.planning import CASES, Case, Measured, measure, table
from dpglm.solvers import SOLVERS


def test_every_solver_is_planned():
    planned = " ".join(one.name for one in CASES)
    assert [name for name in SOLVERS if f"`{name}`" not in planned] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [one for one in CASES if "large" not in one.name], ids=lambda one: one.name
)
def test_a_plan_is_measured_in_an_interpreter_of_its_own(case):
    found = measure(dataclasses.replace(case, relations=("zero_out",)))
    assert (len(found.planned), len(found.verified)) == (4, 1)
    assert min(found.planned) > 0.0
    assert 20.0 < found.memory < 2000.0


def test_the_first_plan_stands_by_itself():
    lines = table([Measured(Case("x", "", bar=None), (9.0, 1.0, 2.0), (3.0, 4.0), 5.0)])
    assert lines.splitlines()[2] == "| x | 9 | 2 |  | 4 | 5 |"
