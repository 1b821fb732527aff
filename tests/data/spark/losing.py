"""Run with ``python -m tests.data.spark.losing FOLDER``: a fit on Spark that loses an executor.

Two executors with processes of their own fit twice. In the second fit, one of them is killed
between two passes. Prints how many files of encoded rows the second fit has before that and at its
end, and whether the coefficients are the same bits.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from dpglm import LogisticRegression, SparkRows
from dpglm.data import pyspark as spark
from dpglm.solvers import NoisyGD

N = 300


def executors() -> list[int]:
    """Return the processes of executors of this session's Spark, and of nothing else."""
    listed = subprocess.run(["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True).stdout
    lines = [line.split(maxsplit=2) for line in listed.splitlines()[1:]]
    own, found = {os.getpid()}, []
    for _ in lines:
        own |= {int(pid) for pid, parent, _ in lines if int(parent) in own}
    for pid, _, command in lines:
        if int(pid) in own and "CoarseGrainedExecutorBackend" in command:
            found.append(int(pid))
    return found


def main() -> None:
    """Fit twice, and kill an executor in the second fit."""
    # Here, as tests are collected without Spark, too.
    from pyspark.sql import SparkSession

    folder = Path(sys.argv[1])
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_DIRS": f"{folder}"}
    session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.host", "localhost")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (2, N))
    table = pa.table({"a": a, "b": b, "y": (a > 0).astype(int)})
    session.createDataFrame(table).repartition(4).write.parquet(f"{folder}/rows")
    ask, passes, fits, files = spark.SparkFrame.ask, [], [], []

    def kept(frame: spark.SparkFrame) -> int:
        return len(list(folder.rglob(f"dpglm-{frame.recipe.token}/*")))

    def counting(self: spark.SparkFrame, handles: spark.Task) -> list[object]:
        passes.append(handles)
        if len(passes) == 8:
            found = executors()
            assert len(found) == 2, found
            files.append(kept(self))
            os.kill(found[0], signal.SIGKILL)
        return ask(self, handles)

    spark.SparkFrame.ask = counting  # type: ignore[method-assign]
    for _ in range(2):
        rows = SparkRows(session.read.parquet(f"{folder}/rows"), "y", dtype="float64")
        facts = {"classes": [0, 1], "row_norm": 2.0, "epsilon": 1.0, "random_state": 0}
        fits.append(LogisticRegression(**facts, solver=NoisyGD(n_steps=5)).fit(rows).coef_)
    files.append(kept(rows._source))
    print(*files, np.array_equal(*fits))  # noqa: T201
    session.stop()


if __name__ == "__main__":
    main()
