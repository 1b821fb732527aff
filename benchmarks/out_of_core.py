"""Rows that do not fit into memory: speed against rows in memory, and how much memory a fit takes.

Run with ``python -m benchmarks.out_of_core [--gigabytes G] [--folder FOLDER]``: fits a logistic
regression to a memory-mapped file and to a Parquet data set of G gigabytes each, which are made in
FOLDER and deleted afterwards, and prints the largest memory that each fit took (pages of mapped
files included; read from /proc, so on Linux only). ``make bars`` measures the ratio of speeds.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bar import Bar
from dpglm import LogisticRegression, MappedRows, NoisyGD, ParquetRows
from dpglm.data.collection import Collection, Preparation
from dpglm.data.prepare import prepare_rows
from dpglm.data.rows import DataSpec, Rows, threads_over
from dpglm.oracle.clipping import FlatClipping
from dpglm.oracle.gradients import clipped_gradient_sum
from dpglm.problem import Logistic

__all__ = ["OUT_OF_CORE"]

_FEATURES = 100
_ROWS_AT_ONCE = 1 << 17
_REPETITIONS = 15
_STEPS = 3


def streaming(splits: Path) -> Iterator[Bar]:
    """Speed of gradients of streamed rows over that of the same rows in memory."""
    n_rows = 1_000_000
    spec = DataSpec(n_rows=n_rows, n_features=_FEATURES, row_norm=20.0, dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        write_array(Path(folder), n_rows)
        write_parquet(Path(folder), n_rows)
        X, y = read_array(Path(folder))
        stored = Path(folder) / "parquet"
        inside = prepare_rows(np.array(X), _signs(y), spec)
        collections: Mapping[str, Collection] = {
            "memory-mapped array": MappedRows(X, y),
            "Parquet with a cache": ParquetRows(stored, "y", cache=folder),
            "Parquet, decoded at each step": ParquetRows(stored, "y"),
        }
        for name, collection in collections.items():
            rows = collection.prepared(Preparation(spec, None, _signs))
            ratios = [_seconds(inside) / _seconds(rows) for _ in range(_REPETITIONS)]
            # Without a cache, decoding dominates a step; this is for information.
            bar = 0.7 if "each" not in name else 0.0
            yield Bar(
                f"speed of a step over that in memory, {name}, n = {n_rows}, d = {_FEATURES}",
                float(np.median(ratios)),
                float(np.std(ratios)),
                bar,
                True,
                "x",
            )


def _signs(y: NDArray[Any]) -> NDArray[Any]:
    return 2 * y - 1


def _seconds(rows: Rows) -> float:
    w = np.random.default_rng(0).standard_normal(_FEATURES)
    with threads_over(rows.n_rows * rows.spec.n_columns):
        start = time.perf_counter()
        clipped_gradient_sum(rows, Logistic(), FlatClipping(1.0), w)
        return time.perf_counter() - start


def _chunks(n_rows: int) -> Iterator[tuple[NDArray[np.float32], NDArray[np.int8]]]:
    """Yield the same rows again and again, as nothing here depends on their values."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((_ROWS_AT_ONCE, _FEATURES), dtype=np.float32)
    y = (X[:, 0] > 0).astype(np.int8)
    for start in range(0, n_rows, _ROWS_AT_ONCE):
        yield X[: n_rows - start], y[: n_rows - start]


def write_array(folder: Path, n_rows: int) -> None:
    """Write rows as two files in NumPy's format."""
    with open(folder / "X.npy", "wb") as rows, open(folder / "y.npy", "wb") as labels:
        for file, descr, shape in ((rows, "<f4", (n_rows, _FEATURES)), (labels, "|i1", (n_rows,))):
            header = {"descr": descr, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        for X, y in _chunks(n_rows):
            rows.write(X.data)
            labels.write(y.data)


def read_array(folder: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    """Map the files of ``write_array`` into memory."""
    return np.load(folder / "X.npy", mmap_mode="r"), np.load(folder / "y.npy", mmap_mode="r")


def write_parquet(folder: Path, n_rows: int) -> None:
    """Write rows as a folder of one Parquet file, a column for each feature."""
    import pyarrow as pa
    from pyarrow import parquet

    (folder / "parquet").mkdir()
    names = [*(f"x{i}" for i in range(_FEATURES)), "y"]
    types = [pa.float32()] * _FEATURES + [pa.int8()]
    schema = pa.schema(list(zip(names, types, strict=True)))
    path, plain = folder / "parquet" / "0.parquet", {"use_dictionary": False}
    with parquet.ParquetWriter(path, schema, compression="none", **plain) as writer:
        for X, y in _chunks(n_rows):
            writer.write_table(pa.table([*np.ascontiguousarray(X.T), y], schema=schema))


def fit(kind: str, folder: Path) -> None:
    """Fit, and print seconds and the largest memory of this process."""
    given: Mapping[str, Callable[[], tuple[Any, ...]]] = {
        "array": lambda: read_array(folder),
        "parquet": lambda: (ParquetRows(folder / "parquet", "y"),),
        "cached parquet": lambda: (ParquetRows(folder / "parquet", "y", cache=folder),),
    }
    model = LogisticRegression(classes=[0, 1], row_norm=20.0, solver=NoisyGD(n_steps=_STEPS))
    start = time.perf_counter()
    model.fit(*given[kind]())
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) / 1e6
    print(
        f"{kind}: {seconds:.0f} s for {_STEPS} steps, at most {peak:.2f} GB of memory", flush=True
    )


def main() -> None:
    """Make the files, and fit to each in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fit:
        fit(arguments.fit, arguments.folder)
        return
    n_rows = int(arguments.gigabytes * 1e9 / 4 / _FEATURES)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as made:
        folder = Path(made)
        for write, kinds in (
            (write_array, ["array"]),
            (write_parquet, ["parquet", "cached parquet"]),
        ):
            write(folder, n_rows)
            for kind in kinds:
                command = [sys.executable, "-m", __spec__.name, "--fit", kind, "--folder", made]
                subprocess.run(command, check=True)
            for one in folder.iterdir():
                shutil.rmtree(one) if one.is_dir() else one.unlink()


OUT_OF_CORE: Mapping[str, Callable[[Path], Iterator[Bar]]] = {"streaming": streaming}

if __name__ == "__main__":
    main()
