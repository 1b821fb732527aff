"""Compare the speed of dpglm with that of other libraries, and write ``docs/evidence/speed.md``.

Run with ``make speed``, which sets up the other libraries' environments. ``--quick`` tries
everything on small problems with few repetitions and writes nothing unless ``--docs`` says where.
"""

from __future__ import annotations

import argparse
import dataclasses
import platform
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.__main__ import Library
from benchmarks.peers.problems import PROBLEMS, Problem, shortened
from benchmarks.peers.protocol import ROOT
from benchmarks.peers.table import write
from benchmarks.step_cost.measure import Measurement, Pace, load, measure_fits, measure_steps, save
from benchmarks.step_cost.page import page_text
from benchmarks.step_cost.plots import draw
from benchmarks.step_cost.protocol import Worker, Workload

__all__ = ["LIBRARIES", "PAGE", "STORE", "Plan", "main"]

THREADS = 2
LIBRARIES = {
    "NumPy": Library("numpy"),
    "dpglm": Library("dpglm"),
    "JAX": Library("jax", "jax"),
    "Opacus": Library("opacus", "opacus"),
    "scikit-learn": Library("scikit_learn"),
    "diffprivlib": Library("diffprivlib", "diffprivlib"),
}
# The adapters of the others take dense rows only.
TAKES_CSR = ("NumPy", "dpglm", "scikit-learn")
GROWING = ("dpglm", "JAX, closed form", "Opacus, ghost clipping")
PAGE = ROOT / "docs" / "evidence" / "speed.md"
STORE = ROOT / "docs" / "figures" / "speed.json"


@dataclass(frozen=True)
class Plan:
    """The measurements."""

    steps: Sequence[Workload]
    growth: Mapping[str, Sequence[Workload]]
    problems: Sequence[str]
    draws: int
    pace: Pace
    growth_pace: Pace
    fit_pace: Pace
    shorten: bool


FULL = Plan(
    steps=(
        *(Workload(200_000, 100, dtype=dtype) for dtype in ("float32", "float64")),
        *(Workload(20_000, 2000, dtype=dtype) for dtype in ("float32", "float64")),
        Workload(60_000, 784, 10),
        *(Workload(10_000, 100_000, dtype=dtype, density=0.01) for dtype in ("float32", "float64")),
    ),
    growth={
        "n": [Workload(12_500 * 2**k, 100) for k in range(6)],
        "d": [Workload(50_000, 25 * 2**k) for k in range(6)],
        "K": [Workload(20_000, 100, 2**k) for k in range(1, 7)],
    },
    problems=("adult", "fashion"),
    draws=1_000_000,
    pace=Pace(),
    growth_pace=Pace(5, 2.0),
    fit_pace=Pace(15, 12.0),
    shorten=False,
)
QUICK = Plan(
    steps=(
        Workload(3000, 20),
        Workload(2000, 20, 3, dtype="float64"),
        Workload(500, 1000, density=0.01),
    ),
    growth={
        "n": [Workload(1000 * 2**k, 10) for k in range(2)],
        "d": [Workload(1000, 10 * 2**k) for k in range(2)],
        "K": [Workload(1000, 10, 2**k) for k in range(1, 3)],
    },
    problems=("adult",),
    draws=1000,
    pace=Pace(2, quiet=0.0),
    growth_pace=Pace(2, quiet=0.0),
    fit_pace=Pace(1),
    shorten=True,
)


PARTS = ("noise", "step", "n", "d", "K", "fit")


def chosen(plan: Plan, parts: Sequence[str]) -> Plan:
    """Keep the wanted measurements of a plan; ``parts`` are those of measurements."""
    return dataclasses.replace(
        plan,
        draws=plan.draws if "noise" in parts else 0,
        steps=plan.steps if "step" in parts else (),
        growth={part: cases for part, cases in plan.growth.items() if part in parts},
        problems=plan.problems if "fit" in parts else (),
    )


def measure(
    plan: Plan, environments: Path, only: Sequence[str]
) -> tuple[dict[str, str], list[Measurement]]:
    """Start all libraries and measure everything."""
    found: list[Measurement] = []

    def note(new: Sequence[Measurement]) -> None:
        for one in new:
            text = " ".join(str(value) for value in one.case.values())
            print(f"{one.part:5} {text:40} {one.method:30} {1e3 * one.median:10.2f} ms", flush=True)
        found.extend(new)

    with ExitStack() as stack:
        workers: dict[str, Worker] = {}
        steps: dict[str, str] = {}
        fits: dict[str, str] = {}
        machine = about_machine()
        for name in only:
            library = LIBRARIES[name]
            module = f"benchmarks.step_cost.{library.adapter}_adapter"
            worker = Worker(module, library.python(environments), THREADS)
            workers[name] = stack.enter_context(closing(worker))
            machine[name], its_steps, its_fits = worker.ask("about")
            steps |= dict.fromkeys(its_steps, name)
            fits |= dict.fromkeys(its_fits, name)
        noise_method = {"noise": steps.pop("noise")} if "noise" in steps else {}
        if noise_method and plan.draws:
            noise = Workload(1, plan.draws, dtype="float64")
            note(measure_steps(workers, "noise", noise, noise_method, plan.pace))
        for workload in plan.steps:
            able = {
                method: library
                for method, library in steps.items()
                if workload.density == 1.0 or library in TAKES_CSR
            }
            note(measure_steps(workers, "step", workload, able, plan.pace))
        growing = {method: steps[method] for method in GROWING if method in steps}
        for part, workloads in plan.growth.items():
            for workload in workloads:
                note(measure_steps(workers, part, workload, growing, plan.growth_pace))
        for problem in problems(plan):
            note(list(measure_fits(workers, problem, fits, plan.fit_pace)))
    return machine, found


def problems(plan: Plan) -> list[Problem]:
    """Return the problems with available data."""
    known = []
    for name in plan.problems:
        try:
            problem = PROBLEMS[name](Path("splits"))
        except FileNotFoundError as error:
            print(f"{name}: skipped, {error}", flush=True)
            continue
        known.append(shortened(problem) if plan.shorten else problem)
    return known


def about_machine() -> dict[str, str]:
    """Name the facts besides versions on which the figures depend."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].split(":")[1].strip() if names else processor
    return {"processor": processor, "threads": str(THREADS), "python": platform.python_version()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line, measure, write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step_cost", description=__doc__)
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"), metavar="FOLDER")
    parser.add_argument("--docs", type=Path, metavar="FOLDER", help="where to write")
    parser.add_argument("--quick", action="store_true", help="small problems, to try the code")
    parser.add_argument(
        "--only", nargs="*", choices=LIBRARIES, default=list(LIBRARIES), metavar="LIBRARY"
    )
    parser.add_argument("--stored", action="store_true", help="write the stored results anew")
    parser.add_argument(
        "--parts", nargs="*", choices=PARTS, default=PARTS, help="measure these, keep the others"
    )
    options = parser.parse_args(arguments)
    docs = options.docs or (None if options.quick else ROOT / "docs")
    if options.stored:
        machine, found = load(STORE)
    else:
        plan = QUICK if options.quick else FULL
        plan = chosen(plan, options.parts)
        machine, found = measure(plan, options.environments, options.only)
        if docs is not None and set(options.parts) < set(PARTS):
            stored = load(docs / "figures" / STORE.name)[1]
            found += [one for one in stored if one.part not in options.parts]
    text = page_text(machine, found)
    if docs is None:
        print(text)
        return
    (docs / "figures").mkdir(exist_ok=True)
    save(docs / "figures" / STORE.name, machine, found)
    draw(docs / "figures", found)
    write(docs / "evidence" / PAGE.name, text)


if __name__ == "__main__":
    main()
