"""NumPy and SciPy: the matrix products alone, which any gradient needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import scipy

from benchmarks.step_cost.protocol import Adapter, Work, Workload, make_rows, serve


@contextmanager
def one_product(workload: Workload) -> Iterator[Work]:
    rows = make_rows(workload)
    yield lambda: rows.X @ rows.w


@contextmanager
def two_products(workload: Workload) -> Iterator[Work]:
    rows = make_rows(workload)
    slopes = rows.X @ rows.w
    yield lambda: (rows.X @ rows.w, rows.X.T @ slopes)


NUMPY = Adapter(
    f"NumPy {np.__version__}, SciPy {scipy.__version__}",
    {"one product": one_product, "two products": two_products},
)

if __name__ == "__main__":
    serve(NUMPY)
