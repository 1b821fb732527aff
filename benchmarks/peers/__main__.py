"""Compare dpglm with other libraries: equal rows, equal splits, scored in one place.

Run with ``make peers``, or ``python -m benchmarks.peers`` where the other libraries' environments
are there. It rewrites the tables of ``docs/evidence/peers.md``. Results are stored, so that a part
can be measured again by itself: ``--only fashion dpglm`` is one problem with one library.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.problems import PROBLEMS, Problem, development, scores, shortened
from benchmarks.peers.protocol import ROOT, Answer, ask
from benchmarks.peers.table import Result, load, save, tables, write

EPSILONS = (0.1, 0.5, 1.0, 4.0)
STORE = ROOT / "docs" / "figures" / "peers.json"
PAGE = ROOT / "docs" / "evidence" / "peers.md"


@dataclass(frozen=True)
class Library:
    """An adapter, its environment and its epsilons."""

    adapter: str
    environment: str | None = None
    """Name of a virtual environment in the folder of environments; None: the one that runs this."""
    epsilons: Sequence[float] = EPSILONS
    takes_tables: bool = False
    """Whether it encodes tables itself; then it is left out for rows without a table."""

    def python(self, environments: Path) -> Path:
        if self.environment is None:
            return Path(sys.executable)
        # Not resolved: the interpreter finds its environment by the place of the link.
        python = (environments / self.environment / "bin" / "python").absolute()
        if not python.exists():
            raise SystemExit(f"{python} does not exist: `make peers` sets up all environments")
        return python


LIBRARIES = {
    "dpglm-additive": Library("dpglm_additive", takes_tables=True),
    "DP-EBM": Library("interpret", "interpret", takes_tables=True),
    "DP-XGBoost": Library("dp_xgboost", "dp_xgboost", takes_tables=True),
    "dpglm": Library("dpglm"),
    # Its settings were chosen for these epsilons only.
    "Opacus": Library("opacus", "opacus", epsilons=(0.1, 1.0, 4.0)),
    "dpglm-pure": Library("dpglm_pure"),
    "diffprivlib": Library("diffprivlib", "diffprivlib"),
    "scikit-learn": Library("scikit_learn", epsilons=(math.inf,)),
}


def seeds_for(problem: str, library: str, quick: bool) -> range:
    """Ten fits; three where a fit takes many seconds; one where nothing is drawn at random."""
    if quick or library == "scikit-learn":
        return range(1)
    return range(3 if problem == "fashion" else 10)


def measure(problem: Problem, name: str, environments: Path, seeds: range) -> Result:
    """Fit with one library at every epsilon and with every seed, and score the predictions."""
    library = LIBRARIES[name]
    task, X_test = problem.task, problem.X_test
    if library.takes_tables:
        assert problem.table is not None
        assert problem.table_test is not None
        task, X_test = problem.table, problem.table_test
    answer = ask(
        f"benchmarks.peers.{library.adapter}_adapter",
        library.python(environments),
        task,
        X_test,
        library.epsilons,
        seeds,
    )
    return scored(problem, name, answer)


def scored(problem: Problem, name: str, answer: Answer) -> Result:
    """Score a library's predictions."""
    keys = [str(epsilon) for epsilon in LIBRARIES[name].epsilons]
    found: dict[str, dict[str, list[float]]] = {}
    for key, of_seeds in zip(keys, answer.predictions, strict=True):
        for predictions in of_seeds:
            for measure_name, value in scores(problem, predictions).items():
                found.setdefault(measure_name, {}).setdefault(key, []).append(round(value, 5))
    return Result(
        problem=problem.task.problem,
        title=problem.title,
        n_rows=problem.task.X.shape[0],
        n_columns=problem.task.X.shape[1],
        n_test=len(problem.y_test),
        library=name,
        version=answer.version,
        guarantee=answer.guarantee,
        setting=answer.setting,
        scores=found,
        seconds={
            key: [round(one, 3) for one in row]
            for key, row in zip(keys, answer.seconds.tolist(), strict=True)
        },
    )


def main() -> None:
    """Measure the requested problems, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=Path, default=Path("splits"), metavar="FOLDER")
    parser.add_argument("--environments", type=Path, default=Path(".venv-peers"), metavar="FOLDER")
    parser.add_argument(
        "--only",
        nargs="*",
        choices=[*PROBLEMS, *LIBRARIES],
        default=[],
        metavar="NAME",
        help=f"problems, libraries or both, of: {', '.join([*PROBLEMS, *LIBRARIES])}",
    )
    trial = parser.add_mutually_exclusive_group()
    trial.add_argument(
        "--quick", action="store_true", help="one seed, 2000 rows; store and write nothing"
    )
    trial.add_argument(
        "--development",
        action="store_true",
        help="score on the last fifth of the training rows; store and write nothing",
    )
    options = parser.parse_args()
    results = {} if options.quick or options.development else load(STORE)
    for key in [name for name in PROBLEMS if name in options.only] or PROBLEMS:
        try:
            problem = PROBLEMS[key](options.splits)
        except FileNotFoundError as error:
            print(f"{key}: skipped, {error}", flush=True)
            continue
        if options.quick:
            problem = shortened(problem)
        if options.development:
            problem = development(problem)
        for name in [name for name in LIBRARIES if name in options.only] or LIBRARIES:
            if LIBRARIES[name].takes_tables and problem.table is None:
                continue
            seeds = seeds_for(key, name, options.quick)
            result = measure(problem, name, options.environments, seeds)
            print(tables([result], EPSILONS), flush=True)
            results[key, name] = result
            if options.quick or options.development:
                continue
            order = [(one, other) for one in PROBLEMS for other in LIBRARIES]
            known = [results[pair] for pair in order if pair in results]
            save(STORE, known)
            write(PAGE, tables(known, EPSILONS))


if __name__ == "__main__":
    main()
