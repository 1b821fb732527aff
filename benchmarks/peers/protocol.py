"""Input and output of an adapter; needs NumPy only, so every library can run it.

An adapter is a module that is run by its library's own interpreter,
``python -m benchmarks.peers.NAME_adapter FOLDER``. FOLDER holds ``job.json`` and ``job.npz``, and
receives ``answer.json`` and ``answer.npz``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Adapter", "Answer", "Predict", "Task", "ask", "serve"]

ROOT = Path(__file__).parent.parent.parent

Predict = Callable[[NDArray[Any]], NDArray[Any]]
"""From rows to decision values (two classes: (n,); more: (n, K)) or predicted numbers (n,)."""


@dataclass(frozen=True)
class Task:
    """Training rows, and the public facts about them.

    Entries are in [-1, 1]; or, where ``columns`` are given, those of a table: numbers in its units,
    and positions among the categories.
    """

    problem: str
    kind: str
    """"binary" (targets 0 and 1), "classes" (targets 0, 1, 2, ...) or "regression"."""
    X: NDArray[Any]
    y: NDArray[Any]
    row_norm: float
    """No row is longer."""
    n_classes: int = 2
    target_low: float = 0.0
    """Bounds of a regression's targets."""
    target_high: float = 1.0
    delta: float = 1e-5
    """For the libraries that have one."""
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The type, and bounds or categories, of each column of a table."""


@dataclass(frozen=True)
class Adapter:
    """How one library fits one model."""

    version: str
    """Names and versions of the libraries that compute."""
    fit: Callable[[Task, float, int], Predict]
    """Fits to the task's rows at an epsilon with a seed."""
    guarantee: str
    """The meaning of the library's epsilon, in words."""
    setting: Callable[[Task], str]
    """All that is not the library's default, in words."""


@dataclass(frozen=True)
class Answer:
    """Predictions for the test rows, and the seconds of each fit."""

    version: str
    guarantee: str
    setting: str
    predictions: NDArray[np.float64]
    """Shape (epsilons, seeds, test rows[, classes])."""
    seconds: NDArray[np.float64]
    """Shape (epsilons, seeds)."""


def serve(adapter: Adapter) -> None:
    """Do the job in the folder that the command line names."""
    folder = Path(sys.argv[1])
    job = json.loads((folder / "job.json").read_text())
    with np.load(folder / "job.npz") as arrays:
        task = Task(X=arrays["X"], y=arrays["y"], **job["task"])
        X_test = arrays["X_test"]
    predictions, seconds = [], []
    for epsilon in job["epsilons"]:
        for seed in job["seeds"]:
            start = time.perf_counter()
            predict = adapter.fit(task, epsilon, seed)
            seconds.append(time.perf_counter() - start)
            predictions.append(np.asarray(predict(X_test), dtype=np.float64))
    shape = (len(job["epsilons"]), len(job["seeds"]))
    np.savez(
        folder / "answer.npz",
        predictions=np.reshape(predictions, (*shape, *predictions[0].shape)),
        seconds=np.reshape(seconds, shape),
    )
    about = {
        "version": adapter.version,
        "guarantee": adapter.guarantee,
        "setting": adapter.setting(task),
    }
    (folder / "answer.json").write_text(json.dumps(about))


def ask(
    module: str,
    python: Path,
    task: Task,
    X_test: NDArray[Any],
    epsilons: Sequence[float],
    seeds: Sequence[int],
) -> Answer:
    """Have an adapter fit once for each epsilon and seed, in a process and on a core of its own."""
    facts = asdict(task)
    arrays = {"X": facts.pop("X"), "y": facts.pop("y"), "X_test": X_test}
    job = {"task": facts, "epsilons": list(epsilons), "seeds": list(seeds)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(job))
        np.savez(folder / "job.npz", **arrays)
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        quiet = {"PYTHONWARNINGS": "ignore"}
        subprocess.run(
            [python, "-m", module, folder],
            cwd=ROOT,
            env={**os.environ, **threads, **quiet},
            check=True,
        )
        with np.load(folder / "answer.npz") as found:
            return Answer(**json.loads((folder / "answer.json").read_text()), **found)
