"""Fits to a table in DuckDB, or on Spark, against fits to the same rows in Parquet.

Run with ``python -m benchmarks.databases [--spark] [--steps S] [--rows N] [--folder FOLDER]
[--repeat R]``: makes a table of 20 columns, a target and N rows in a DuckDB file and in a Parquet
file, fits a logistic regression to each in a process of its own, in turns, and prints the median
time of each, their ratios and the largest memory of that process (on Linux, from /proc). A fit has
S gradient steps, or with 0 those of the default solver. ``--spark`` reads the Parquet file with two
tasks of Spark on this machine in place of DuckDB; starting Spark with a fit to a few rows is not
counted, and neither is the memory of its processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from dpglm import ArrowRows, LogisticRegression, NoisyGD, ParquetRows, SparkRows

__all__ = ["main"]

_COLUMNS = 20


def write(folder: Path, n_rows: int) -> None:
    """Write the same rows to ``rows.duckdb`` and ``rows.parquet``."""
    numbers = [f"(random() - 0.5) as x{i}" for i in range(_COLUMNS - 5)]
    whole = [f"(hash(range * {i + 3}) % 100)::integer as k{i}" for i in range(5)]
    columns = ", ".join([*numbers, *whole, "(random() < 0.5)::integer as y"])
    with duckdb.connect(folder / "rows.duckdb", config={"memory_limit": "2GB"}) as connection:
        connection.execute(f"create table people as select {columns} from range({n_rows})")
        connection.execute(f"copy people to '{folder}/rows.parquet' (format parquet)")


def fit(kind: str, folder: Path, steps: int) -> None:
    """Fit, and print seconds and the largest memory of this process in GB."""
    low, high = [-0.5] * (_COLUMNS - 5) + [0.0] * 5, [0.5] * (_COLUMNS - 5) + [99.0] * 5
    solver = NoisyGD(n_steps=steps) if steps else "auto"
    model = LogisticRegression(classes=[0, 1], feature_bounds=(low, high), solver=solver)
    frame = None
    if kind == "spark":
        frame = _on_spark(folder)
        first = LogisticRegression(classes=[0, 1], row_norm=9.0, solver=NoisyGD(n_steps=1))
        first.fit(SparkRows(frame.limit(1000), target="y"))
    start = time.perf_counter()
    rows: ArrowRows | ParquetRows | SparkRows
    if kind == "duckdb":
        rows = ArrowRows(f"duckdb:{folder}/rows.duckdb?table=people", target="y")
    elif kind == "spark":
        rows = SparkRows(frame, target="y")
    else:
        rows = ParquetRows(folder / "rows.parquet", target="y")
    model.fit(rows)
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    print(seconds, int(status.partition("VmHWM:")[2].split()[0]) / 1e6, flush=True)


def _on_spark(folder: Path) -> Any:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = session.config("spark.driver.memory", "3g")
    return session.getOrCreate().read.parquet(str(folder / "rows.parquet"))


def main() -> None:
    """Write the table, and fit to each file in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        fit(arguments.fit, arguments.folder, arguments.steps)
        return
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        write(Path(made), arguments.rows)
        other = "spark" if arguments.spark else "duckdb"
        found: dict[str, list[tuple[float, float]]] = {"parquet": [], other: []}
        for _ in range(arguments.repeat):
            for kind, numbers in found.items():
                command = [sys.executable, "-m", __spec__.name, "--fit", kind, "--folder", made]
                command += ["--steps", str(arguments.steps)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                seconds, memory = map(float, done.stdout.split())
                numbers.append((seconds, memory))
        times = {kind: statistics.median(one for one, _ in all_) for kind, all_ in found.items()}
        for kind, numbers in found.items():
            peak = max(one for _, one in numbers)
            print(f"{kind}: {times[kind]:.1f} s, at most {peak:.2f} GB of memory")
        ratios = [
            one / base for (one, _), (base, _) in zip(found[other], found["parquet"], strict=True)
        ]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        print(
            f"{arguments.rows} rows x {_COLUMNS} columns: {other} takes {middle:.2f} "
            f"({low:.2f} to {high:.2f}) times as long"
        )


if __name__ == "__main__":
    main()
