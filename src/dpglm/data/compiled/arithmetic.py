"""What decides how a process rounds."""

from __future__ import annotations

import functools
import platform

import numpy as np
import scipy.linalg
from threadpoolctl import threadpool_info

from dpglm.data.compiled.kernels import COMPILED

__all__ = ["arithmetic"]


@functools.cache
def arithmetic() -> str:
    """Name everything that the last bits of a sum may depend on besides its terms."""
    built = np.show_config(mode="dicts")
    blas = built["Build Dependencies"]["blas"]
    # SciPy's own BLAS is loaded by its linear algebra, so that is imported here.
    kernels = {str(library.get("architecture")) for library in threadpool_info()}
    parts = (
        "compiled sums" if COMPILED else "no compiled sums",
        f"NumPy {np.__version__}",
        f"SciPy {scipy.__version__}",
        f"{blas['name']} {blas['version']} for {' and '.join(sorted(kernels - {'None'}))}",
        " ".join(
            (*platform.libc_ver(), platform.machine(), *built["SIMD Extensions"].get("found", ()))
        ),
    )
    return ", ".join(parts)
