"""How long a first plan takes and how much memory, each solver in a fresh interpreter."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.bar import Bar

__all__ = ["PLANNING"]

# Milliseconds of processor time, so that other work on the machine does not count: for events
# that are Gaussian throughout, and for all others.
_GAUSSIAN, _OTHER = 50.0, 2000.0
_MEMORY = 500.0

_PROGRAM = """
import json, resource, sys, time
from dpglm.data.spec import DataSpec
from dpglm.privacy import Adjacency, ApproximateDP
from dpglm.problem import L1Ball, L2, L2Ball, Logistic, Problem, Squared
from dpglm.solvers.registry import SOLVERS

name, settings, problem, budgets = json.loads(sys.argv[1])
data = DataSpec(
    n_rows=200_000, n_features=100, intercept=float(name == "dpsgd_f"),
    target_low=-1.0, target_high=1.0,
)
problem = eval(problem)
times = []
for epsilon, delta, adjacency in budgets:
    start = time.process_time()
    SOLVERS[name](**settings).plan(
        problem, ApproximateDP(epsilon, delta), data, Adjacency(adjacency)
    )
    times.append(1e3 * (time.process_time() - start))
print(json.dumps([times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""

_LOGISTIC, _RIDGE = "Problem(Logistic())", "Problem(Logistic(), L2(0.1), L2Ball(5.0))"
_LARGE = {"n_steps": 100_000, "sampling_rate": 0.001}
# One row per way to plan: solver, settings, problem, and the bar on its time.
_CASES: tuple[tuple[str, dict[str, float], str, float], ...] = (
    ("accelerated_mirror_descent", {}, "Problem(Logistic(), constraint=L2Ball(5.0))", _GAUSSIAN),
    ("auto", {}, _LOGISTIC, _GAUSSIAN),
    ("d2p2", {}, _LOGISTIC, _OTHER),
    ("d2p2", _LARGE, _LOGISTIC, _OTHER),
    ("dpsgd_f", {}, _LOGISTIC, _GAUSSIAN),
    ("frank_wolfe", {}, "Problem(Logistic(), constraint=L1Ball(5.0))", _OTHER),
    ("johnson_lindenstrauss", {}, _LOGISTIC, _GAUSSIAN),
    ("local_sgd", {}, _LOGISTIC, _GAUSSIAN),
    ("newton", {}, _LOGISTIC, _GAUSSIAN),
    ("noisy_gd", {}, _LOGISTIC, _GAUSSIAN),
    ("noisy_gd", {}, _RIDGE, _GAUSSIAN),
    ("noisy_sgd", {}, _LOGISTIC, _OTHER),
    ("noisy_sgd", _LARGE, _LOGISTIC, _OTHER),
    ("objective_perturbation", {}, "Problem(Logistic(), L2(0.1))", _OTHER),
    ("output_perturbation", {}, _RIDGE, _GAUSSIAN),
    ("pure_gd", {}, _LOGISTIC, _OTHER),
    ("sufficient_statistics", {}, "Problem(Squared(), L2(0.1))", _GAUSSIAN),
    ("svrg", {}, _LOGISTIC, _OTHER),
    ("svrg_plus_plus", {}, _LOGISTIC, _OTHER),
)
_RELATIONS = ("zero_out", "add_remove", "replace_one")


def planning(splits: Path) -> Iterator[Bar]:
    """Slowest plan of each solver, imports included, and the most memory."""
    most = 0.0
    for name, settings, problem, bar in _CASES:
        relations = [one for one in _RELATIONS if (name, one) != ("local_sgd", "add_remove")]
        budgets = [*itertools.product((0.01, 0.1, 1.0, 8.0), (1e-5,), relations)]
        program = json.dumps((name, settings, problem, budgets))
        found = subprocess.run(
            [sys.executable, "-c", _PROGRAM, program], capture_output=True, check=True
        )
        times, memory = json.loads(found.stdout)
        most = max(most, memory)
        steps = ", q = 0.001, T = 100000" if settings else ""
        yield Bar(f"plan of {name}{steps}, slowest", max(times), 0.0, bar, False, "ms")
    yield Bar("planning, peak memory", most, 0.0, _MEMORY, False, "MB")


PLANNING: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"planning": planning}
