"""Compiled sums over rows, where the package was built with a C compiler."""

from __future__ import annotations

import ctypes
import functools
import math
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_info

from dpglm._validation import namespace

_ABI = 11
"""Changes with the arguments of the C functions, so that an old library is not used."""
_MOST_CLASSES = 64
"""As in ``_kernels.c``; with more of them a BLAS is faster."""
_CLASSES_AT_ONCE = 5
"""As in ``_class_kernels_of_type.h``."""
_VECTOR = 32
"""Bytes in ``lanes`` there; a panel of classes is two of them."""
_CACHE_LINE = 64
"""Bytes; vectors that straddle two are read at half the speed."""
_ENTRIES = 1 << 17
"""Entries that are multiplied in one call, few enough to stay in cache where they are copied."""


@final
class SlopeRule(ctypes.Structure):
    """How a row's prediction becomes its contribution; made by ``oracle.compiled_rule``.

    ``loss`` and ``clipping`` are numbers of the enumerations in ``_kernels.c``, ``parameter`` is
    the threshold of ``Huber``, and ``stability`` the constant of automatic clipping.
    """

    _fields_ = (
        ("loss", ctypes.c_int64),
        ("clipping", ctypes.c_int64),
        ("parameter", ctypes.c_double),
        ("bound", ctypes.c_double),
        ("stability", ctypes.c_double),
    )


def _load() -> ctypes.CDLL | None:
    # Not .so, which Python would take for a module.
    path = Path(__file__).with_name("_kernels.compiled")
    if not path.exists():
        return None
    library = ctypes.CDLL(str(path))
    return library if library.kernels_abi() == _ABI else None


_library = _load()
COMPILED = _library is not None
"""Whether the compiled sums are there; without them NumPy does the same in more passes."""


def bounded_sum(
    rule: SlopeRule,
    X: NDArray[Any],
    which: NDArray[np.int64] | None,
    w: NDArray[np.float64],
    intercept: float,
    *facts: NDArray[Any] | None,
) -> NDArray[np.float64] | None:
    """Sum over rows of the clipped slope times the row, reading each row from memory once.

    ``which`` lists the rows that count, by default all. ``facts`` are their targets, norms (above
    0) and weights, or None, of the type of ``X``. None is returned where no compiled code takes
    such arrays.
    """
    n, columns = X.shape
    n_rows = n if which is None else len(which)
    check_shapes(n_rows, columns + (intercept != 0.0), w, *facts)
    size = X.itemsize
    by_rows = X.strides[1] == size and X.strides[0] % size == 0
    by_columns = X.strides[0] == size and X.strides[1] % size == 0 and which is None
    if not (by_rows or by_columns) or not _can_sum(X, *facts):
        return None
    offset = intercept * float(w[-1]) if intercept else 0.0
    total = np.zeros(columns + 1)
    _call(
        function("bounded_sum" if by_rows else "bounded_sum_by_columns", X),
        pointer(X),
        X.strides[0 if by_rows else 1] // size,
        *([which] if by_rows else []),
        n_rows,
        columns,
        _coarse(w[:columns], X.dtype),
        offset,
        rule,
        *facts,
        total,
    )
    return _with_intercept(total, intercept)


def softmax_sum(
    rule: SlopeRule,
    X: NDArray[Any],
    which: NDArray[np.int64] | None,
    w: NDArray[np.float64],
    intercept: float,
    *facts: NDArray[Any] | None,
) -> NDArray[np.float64] | None:
    """Do as ``bounded_sum`` for softmax: w of shape (columns, classes), targets of int64."""
    columns, classes = X.shape[1], w.shape[1]
    n_rows = len(X) if which is None else len(which)
    check_shapes(n_rows, columns + (intercept != 0.0), w[:, 0], *facts)
    size = X.itemsize
    by_rows = X.strides[1] == size and X.strides[0] % size == 0
    targets, *others = facts
    if not by_rows or targets is None or targets.dtype != np.int64 or classes > _MOST_CLASSES:
        return None
    if not _can_sum(X, *others):
        return None
    layout = _by_panels if _panels_are_better(columns, classes, size) else _by_classes
    name, extra, parameter, total, by_columns = layout(w[:columns], X.dtype)
    offsets = np.ascontiguousarray(intercept * w[-1]) if intercept else np.zeros(classes)
    _call(
        function(name, X),
        pointer(X),
        X.strides[0] // size,
        which,
        n_rows,
        columns,
        classes,
        parameter,
        *extra,
        offsets,
        rule,
        *facts,
        total,
    )
    released = np.ascontiguousarray(by_columns.reshape(columns + 1, -1)[:, :classes])
    return _with_intercept(released, intercept)


def sparse_bounded_sum(
    rule: SlopeRule,
    X: sparse.csr_array,
    rows: slice,
    w: NDArray[np.float64],
    intercept: float,
    *facts: NDArray[Any] | None,
) -> NDArray[np.float64] | None:
    """Do as ``bounded_sum`` for a slice of CSR rows, which hold no column twice."""
    columns = X.shape[1]
    pointers = X.indptr[rows.start : rows.stop + 1]
    packed_rows = X.data.flags.c_contiguous and X.indices.flags.c_contiguous
    if not packed_rows or X.indices.dtype != pointers.dtype:
        return None
    if not _can_sum(X, *facts):
        return None
    n_rows = len(pointers) - 1
    check_shapes(n_rows, columns + (intercept != 0.0), w, *facts)
    total = np.zeros(columns + 1)
    _call(
        function("bounded_sum", X.data, X.indices),
        X.data,
        X.indices,
        pointers,
        n_rows,
        columns,
        w,
        intercept * float(w[-1]) if intercept else 0.0,
        rule,
        *facts,
        total,
    )
    return _with_intercept(total, intercept)


def row_by_row_product(X: Any, matrix: Any) -> Any:
    """Return ``X @ matrix``: each row by the same operations in the same order, wherever it stands.

    ``matrix`` has shape (columns, outputs); its dtype is that of the product.

    Privacy: a product by a BLAS may round a row by its position and by the number of rows.
    """
    n_rows, outputs = len(X), matrix.shape[1]
    if _library is None or not isinstance(X, np.ndarray):
        product = namespace(X).zeros((n_rows, outputs), dtype=matrix.dtype, device=X.device)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            for column, along in zip(X.T, matrix, strict=True):
                product += column[:, None] * along
        return product
    product, by_output = np.empty((n_rows, outputs), matrix.dtype), np.ascontiguousarray(matrix.T)
    step = max(1, _ENTRIES // X.shape[1])
    for start in range(0, n_rows, step):
        # In C order whatever the order of X: an array of one row has both.
        rows = np.ascontiguousarray(X[start : start + step], matrix.dtype)
        here = product[start : start + step]
        _call(function("predictions", rows), rows, *rows.shape, outputs, by_output, here)
    return product


def sum_on_grid(X: Any, slopes: Any, large: float) -> NDArray[np.float64] | None:
    """Sum of slopes, of shape (rows, outputs), times row; shape (columns, outputs).

    Each product is rounded to float64's spacing at ``large``. None is returned where no compiled
    code takes such an array.
    """
    if not _rows_in_order(X) or slopes.dtype != X.dtype:
        return None
    total = np.zeros((slopes.shape[1], X.shape[1]))
    _call(function("sum_on_grid", X), X, *X.shape, slopes.shape[1], slopes, large, total)
    return total.T


def bounded_sum_on_grid(
    rule: SlopeRule,
    X: Any,
    which: NDArray[np.int64] | None,
    w: NDArray[np.float64],
    intercept: float,
    large: float,
    *facts: NDArray[Any] | None,
) -> NDArray[np.float64] | None:
    """Do as ``bounded_sum``, each product rounded as in ``sum_on_grid``."""
    if not _rows_in_order(X) or not _can_sum(X, *facts):
        return None
    columns = X.shape[1]
    n_rows = len(X) if which is None else len(which)
    check_shapes(n_rows, columns + (intercept != 0.0), w, *facts)
    total = np.zeros(columns + 1)
    _call(
        function("bounded_sum_on_grid", X),
        X,
        columns,
        which,
        n_rows,
        columns,
        _coarse(w[:columns], X.dtype),
        intercept,
        intercept * float(w[-1]) if intercept else 0.0,
        rule,
        *facts,
        large,
        total,
    )
    return total if intercept else total[:-1]


def prepare(
    X: Any, limits: Sequence[NDArray[Any]] | None, scaled: NDArray[Any]
) -> NDArray[np.float64] | None:
    """Return the norms of rows in C order, written to ``scaled`` within ``limits``.

    ``limits`` are the lower and upper bounds of the columns, their centers and scales; None leaves
    the rows as they are. None is returned like in ``sum_on_grid``.
    """
    if not (_rows_in_order(X) and scaled.flags.c_contiguous):
        return None
    norms = np.empty(len(X))
    given = [None] * 4 if limits is None else [np.asarray(v, X.dtype) for v in limits]
    _call(function("prepare", X), X, *X.shape, *given, None if limits is None else scaled, norms)
    return norms


def _rows_in_order(X: Any) -> bool:
    if _library is None or not isinstance(X, np.ndarray):
        return False
    return bool(X.flags.c_contiguous) and X.dtype in (np.float32, np.float64)


_TYPES = {("f", 4): "float32", ("f", 8): "float64", ("i", 4): "int32", ("i", 8): "int64"}


def function(name: str, *arrays: NDArray[Any]) -> Any:
    """Find the C function for arrays of these types; None without compiled code."""
    # Attribute access caches the function.
    types = (_TYPES[v.dtype.kind, v.dtype.itemsize] for v in arrays)
    return _library and getattr(_library, "_".join([name, *types]))


def _can_sum(X: NDArray[Any] | sparse.csr_array, *facts: NDArray[Any] | None) -> bool:
    return _library is not None and all(v is None or v.dtype == X.dtype for v in facts)


def check_shapes(n_rows: int, n_columns: int, w: NDArray[Any], *facts: NDArray[Any] | None) -> None:
    """Check the shapes that the C code relies on."""
    if not all(values is None or values.shape == (n_rows,) for values in facts):
        raise ValueError(f"targets, norms and weights must have shape {(n_rows,)}")
    if w.shape != (n_columns,):
        raise ValueError(f"w has shape {w.shape}, but rows have {n_columns} columns")


def _with_intercept(total: NDArray[np.float64], intercept: float) -> NDArray[np.float64]:
    """Turn the sum of the slopes, which comes last, into the intercept column's, or drop it."""
    if not intercept:
        return total[:-1]
    total[-1] *= intercept
    return total


def _panels_are_better(columns: int, classes: int, size: int) -> bool:
    """Say which layout of classes is faster.

    Each pads the classes to a multiple of its width, and its overhead for each row and class equals
    that of a few columns more, as measured.
    """
    lanes = _VECTOR // size
    by_panels = _whole(classes, 2 * lanes) * (columns + 4 * lanes)
    by_classes = _whole(classes, _CLASSES_AT_ONCE) * (columns + 3.5 * lanes**2)
    return by_panels < by_classes


_Layout = tuple[str, tuple[int, ...], NDArray[Any], NDArray[np.float64], NDArray[np.float64]]
"""The C function, its own arguments, the parameter, the sum, a view of it by columns."""


def _by_classes(w: NDArray[np.float64], dtype: np.dtype[Any]) -> _Layout:
    """Give each class a row: see ``softmax_sum`` in C."""
    columns, classes = w.shape
    padded = _whole(columns, _CACHE_LINE // dtype.itemsize)
    parameter = _aligned((_whole(classes, _CLASSES_AT_ONCE), padded), dtype)
    parameter[:classes, :columns] = _coarse(w.T, dtype)
    total = np.zeros((classes, columns + 1))
    return "softmax_sum", (padded,), parameter, total, total.T


def _by_panels(w: NDArray[np.float64], dtype: np.dtype[Any]) -> _Layout:
    """Give each column a row in panels of classes: see ``softmax_sum_by_panels`` in C."""
    columns, classes = w.shape
    panel = 2 * _VECTOR // dtype.itemsize
    filled = np.zeros((columns, _whole(classes, panel)))
    filled[:, :classes] = w
    parameter = _aligned((filled.shape[1] // panel, columns, panel), dtype)
    parameter[...] = _coarse(filled, dtype).reshape(columns, -1, panel).transpose(1, 0, 2)
    total = np.zeros((len(parameter), columns + 1, panel))
    return "softmax_sum_by_panels", (), parameter, total, total.transpose(1, 0, 2)


def _whole(count: int, unit: int) -> int:
    """Round up to a multiple."""
    return -(-count // unit) * unit


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros that begin with a cache line."""
    entries, n = _CACHE_LINE // dtype.itemsize, math.prod(shape)
    space = np.zeros(n + entries, dtype)
    start = -space.__array_interface__["data"][0] % _CACHE_LINE // dtype.itemsize
    return space[start : start + n].reshape(shape)


def _coarse(w: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a parameter in the type of the rows; overflow there makes slopes that are dropped."""
    with np.errstate(over="ignore", under="ignore"):
        return w.astype(dtype)


def _call(function: Any, *arguments: Any) -> None:
    """Call a C function with arrays (made contiguous), whole numbers, floats and structures."""
    # The list keeps the arrays alive, which pointers do not.
    held = [np.ascontiguousarray(one) if isinstance(one, np.ndarray) else one for one in arguments]
    given: list[Any] = []
    for one in held:
        if one is None or isinstance(one, np.ndarray):
            given.append(pointer(one))
        elif isinstance(one, int | np.integer):
            given.append(ctypes.c_ssize_t(int(one)))
        elif isinstance(one, float):
            given.append(ctypes.c_double(one))
        else:
            given.append(ctypes.byref(one) if isinstance(one, ctypes.Structure) else one)
    function(*given)


def pointer(values: NDArray[Any] | None) -> ctypes.c_void_p:
    """Return where an array begins, which must outlive the call; null for None."""
    return ctypes.c_void_p(None if values is None else values.__array_interface__["data"][0])


# Libraries and processor, which decide how a process rounds.


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


# Compiled sums of scores over rows in a public basis; everything in double precision.

_MOST_COLUMNS = 128
"""As in ``_score_kernels.h``; with more of them a BLAS is as fast."""
_PANEL = 4
"""As there."""
_SUMS = {"scores": 0, "curvature": 1, "squares": 2, "variance": 3}
ScoreSum: TypeAlias = Literal["scores", "curvature", "squares", "variance"]
"""Summands: f s z, or z z^T times f h, (f s)^2, or f^2 h."""


@final
class ScoreRule(ctypes.Structure):
    """Limits of a row's contribution; ``Scores`` explains the numbers."""

    _fields_ = (
        ("loss", ctypes.c_int64),
        ("sums", ctypes.c_int64),
        ("slope", ctypes.c_double),
        ("curvature", ctypes.c_double),
        ("clip", ctypes.c_double),
        ("square", ctypes.c_double),
        ("margin", ctypes.c_double),
    )


def score_sum(
    of: ScoreSum,
    limits: tuple[float, float, float, float, float],
    X: Any,
    basis: NDArray[np.float64],
    intercept: float,
    v: NDArray[np.float64],
    targets: Any,
    weights: Any,
) -> NDArray[np.float64] | None:
    """Sum over rows of logistic scores, or of products of rows in the basis.

    ``limits`` are the largest slope and curvature, those of ``f |z|`` and ``f |z|^2``, and the
    margin of the norm.
    None is returned where no compiled code takes such arrays. Only the diagonal of a matrix, and
    the entries above it, count.
    """
    if not isinstance(X, np.ndarray) or X.dtype not in (np.float32, np.float64):
        return None
    columns, size = X.shape[1], basis.shape[1]
    add_up = function("score_sum", X)
    if (
        add_up is None
        or max(columns, size) > _MOST_COLUMNS
        or any(s % X.itemsize for s in X.strides)
    ):
        return None
    check_shapes(len(X), size, v, targets, weights)
    padded = -(-size // _PANEL) * _PANEL
    panels = np.zeros((padded // _PANEL, columns, _PANEL))
    filled = np.zeros((len(basis), padded))
    filled[:, :size] = basis
    panels[...] = filled[:columns].reshape(columns, -1, _PANEL).transpose(1, 0, 2)
    level = intercept * filled[columns] if intercept else np.zeros(padded)
    along = np.zeros(padded)
    along[:size] = v
    facts = [None if one is None else np.asarray(one, X.dtype) for one in (targets, weights)]
    total = np.zeros(padded if of == "scores" else (padded, padded))
    _call(
        add_up,
        ScoreRule(0, _SUMS[of], *limits),
        pointer(X),
        *(stride // X.itemsize for stride in X.strides),
        len(X),
        columns,
        padded,
        panels,
        level,
        along,
        *facts,
        total,
    )
    return total[:size] if of == "scores" else total[:size, :size]
