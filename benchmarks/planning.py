"""How long plans and their verification take, and how much memory, in fresh interpreters.

Run with ``make planning`` (a few minutes on one core), which rewrites the table of
``docs/evidence/speed.md``. ``--only TEXT`` prints the lines with TEXT in their name, and writes
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bar import Bar
from benchmarks.step_cost.__main__ import about_machine
from dpglm.solvers import SOLVERS
from experiments.measured import put

__all__ = ["CASES", "PLANNING", "Case", "Measured", "main", "measure", "table"]

PAGE = Path(__file__).parent.parent / "docs" / "evidence" / "speed.md"
# Milliseconds of processor time, so that other work on the machine does not count: for events
# that are Gaussian throughout, and for all others.
_GAUSSIAN, _OTHER = 50.0, 2000.0
_MEMORY = 500.0

_PROGRAM = """
import gc, json, pathlib, sys, time
from dpglm.data.rows import DataSpec
from dpglm.preprocessing import Center, Scale
from dpglm.privacy import Adjacency, ApproximateDP, spent
from dpglm.privacy.selection.repetitions import NegativeBinomialNumber
from dpglm.problem import L1Ball, L2, L2Ball, Logistic, Problem, Sparsemax, Squared
from dpglm.certificate.recompute import recompute
from dpglm.selection.search import Candidate, HeldOutSearch, RepeatedSearch
from dpglm.solvers import *
from dpglm.solvers import SOLVERS

def candidate(l2, settings):
    return Candidate({"l2": l2}, NoisySGD(**settings), lambda data: Problem(Logistic(), L2(l2)))

def candidates(**settings):
    return tuple(candidate(l2, settings) for l2 in (1e-4, 1e-3, 1e-2, 1e-1))

solver, problem, intercept = (eval(part) for part in sys.argv[1:4])
targets = dict(target_low=-1.0, target_high=1.0)
if isinstance(problem.loss, Sparsemax):
    targets = dict(n_outputs=10)
data = DataSpec(n_rows=200_000, n_features=100, intercept=intercept, **targets)
planned, verified, claims = [], [], []
# A pass over all imported objects takes longer than a plan.
gc.freeze()
for relation in json.loads(sys.argv[4]):
    for epsilon in (0.01, 0.1, 1.0, 8.0):
        budget, adjacency = ApproximateDP(epsilon, 1e-5), Adjacency(relation)
        start = time.process_time()
        plan = solver.plan(problem, budget, data, adjacency)
        planned.append(1e3 * (time.process_time() - start))
        if epsilon == 1.0:
            claims.append((plan.event, adjacency, budget))
# Not ru_maxrss, which a process inherits from the one that started it.
status = pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1]
memory = int(status.split()[0]) / 1024
for event, adjacency, budget in claims:
    claim = spent(event, adjacency, budget)
    start = time.process_time()
    list(recompute(event, adjacency, claim["epsilon"], claim["delta"]))
    verified.append(1e3 * (time.process_time() - start))
print(json.dumps([planned, verified, memory]))
"""


@dataclass(frozen=True)
class Case:
    """One way to plan: solver and problem as expressions, and the bar on its time, if any.

    Parameters
    ----------
    name : str
        As in the table.
    solver, problem : str
        Python expressions.
    bar : float or None
        Milliseconds.
    relations : tuple of str
        Neighbouring relations that are planned for.
    intercept : float
        As in ``DataSpec``.
    """

    name: str
    solver: str
    problem: str = "Problem(Logistic())"
    bar: float | None = _GAUSSIAN
    relations: tuple[str, ...] = ("zero_out", "add_remove", "replace_one")
    intercept: float = 0.0


@dataclass(frozen=True)
class Measured:
    """Milliseconds of every plan and of every verification of its claim, and megabytes."""

    case: Case
    planned: tuple[float, ...]
    verified: tuple[float, ...]
    memory: float


def _default(name: str, problem: str = "Problem(Logistic())", bar: float = _GAUSSIAN) -> Case:
    return Case(f"`{name}`", f"SOLVERS[{name!r}]()", problem, bar)


_RIDGE = "Problem(Logistic(), L2(0.1), L2Ball(5.0))"
_LARGE = "n_steps=100_000, sampling_rate=0.001"
_COUNTED = ("zero_out", "replace_one")  # relations under which the number of rows is public
_CHOSEN = (
    _default("accelerated_mirror_descent", "Problem(Logistic(), constraint=L2Ball(5.0))"),
    _default("auto"),
    _default("d2p2", bar=_OTHER),
    Case("`d2p2`, large", f"D2P2({_LARGE})", bar=_OTHER),
    Case("`dpsgd_f`", "SOLVERS['dpsgd_f']()", intercept=1.0),
    _default("frank_wolfe", "Problem(Logistic(), constraint=L1Ball(5.0))", _OTHER),
    _default("johnson_lindenstrauss"),
    Case("`local_sgd`", "SOLVERS['local_sgd']()", relations=_COUNTED),
    _default("newton"),
    _default("newton_raphson"),
    _default("noisy_gd"),
    Case("`noisy_gd`, last iterate", "NoisyGD()", _RIDGE),
    _default("noisy_sgd", bar=_OTHER),
    Case("`noisy_sgd`, large", f"NoisySGD({_LARGE})", bar=_OTHER),
    _default("objective_perturbation", "Problem(Logistic(), L2(0.1))", _OTHER),
    _default("output_perturbation", _RIDGE),
    _default("prototypes", "Problem(Sparsemax())", _OTHER),
    _default("pure_gd", bar=_OTHER),
    _default("sufficient_statistics", "Problem(Squared(), L2(0.1))"),
    _default("svrg", bar=_OTHER),
    Case(
        "`svrg`, large",
        "SVRG(n_epochs=5, inner_steps=20_000, sampling_rate=0.001)",
        bar=_OTHER,
    ),
    _default("svrg_plus_plus", bar=_OTHER),
    Case(
        "`svrg_plus_plus`, large",
        "SVRGPlusPlus(n_epochs=4, inner_steps=6_666, sampling_rate=0.001)",
        bar=_OTHER,
    ),
    Case(
        "pipeline of two steps and `noisy_sgd`, large",
        f"Preprocessed([Center(), Scale()], NoisySGD({_LARGE}))",
        bar=None,
        intercept=1.0,
    ),
    Case(
        "search over four `noisy_sgd`, large, rows held out",
        f"HeldOutSearch(candidates({_LARGE}), 0.2)",
        bar=None,
        relations=("zero_out",),
    ),
    Case(
        "search over four `noisy_sgd`, large, repeated",
        f"RepeatedSearch(candidates({_LARGE}), NegativeBinomialNumber(1 / 12), 0.1)",
        bar=None,
        relations=("zero_out",),
    ),
)
# A new solver is planned with its default settings.
_PLANNED = " ".join(case.name for case in _CHOSEN)
CASES = (
    *_CHOSEN,
    *(_default(name, bar=_OTHER) for name in SOLVERS if f"`{name}`" not in _PLANNED),
)


def measure(case: Case) -> Measured:
    """Plan for epsilons from 0.01 to 8, every relation, in a new interpreter.

    Parameters
    ----------
    case : Case
        The planned fit; the first plan includes the time of imports.
    """
    arguments = case.solver, case.problem, repr(case.intercept), json.dumps(case.relations)
    # Threads of BLAS count as processor time while they wait, so there is one.
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        stdout=subprocess.PIPE,
        check=True,
        env={**os.environ, **one},
    )
    planned, verified, memory = json.loads(found.stdout)
    return Measured(case, tuple(planned), tuple(verified), memory)


def table(measured: Iterable[Measured]) -> str:
    """Write the measurements as a table.

    Parameters
    ----------
    measured : iterable of Measured
        One for each line.
    """
    lines = [
        "| plan of | first, ms | slowest after it, ms | bar, ms | verify at ε = 1, ms | peak, MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in measured:
        bar = "" if one.case.bar is None else f"{one.case.bar:.0f}"
        lines.append(
            f"| {one.case.name} | {one.planned[0]:.0f} | {max(one.planned[1:]):.0f} | {bar} "
            f"| {max(one.verified):.0f} | {one.memory:.0f} |"
        )
    return "\n".join(lines)


def planning(splits: Path) -> Iterator[Bar]:
    """Slowest plan of each solver, imports included, and the most memory."""
    most = 0.0
    for case in CASES:
        if case.bar is not None:
            found = measure(case)
            most = max(most, found.memory)
            yield Bar(f"plan of {case.name}", max(found.planned), 0.0, case.bar, False, "ms")
    yield Bar("planning, peak memory", most, 0.0, _MEMORY, False, "MB")


PLANNING: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"planning": planning}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and write the table into the docs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description=__doc__)
    parser.add_argument("--only", help="only measurements with this text in their name")
    options = parser.parse_args(arguments)
    cases = [one for one in CASES if options.only is None or options.only in one.name]
    machine = about_machine()
    text = "\n\n".join(
        (
            f"{machine['processor']}, one thread, Python {machine['python']}.",
            table(measure(one) for one in cases),
        )
    )
    print(text)
    if options.only is None:
        put(PAGE, "planning", text)


if __name__ == "__main__":
    main()
