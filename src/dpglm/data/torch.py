"""Rows in torch tensors, on the CPU or on a GPU: summed where they are.

Privacy: the difference of computed sums on a device, when one row changes.

A product of matrices is a function of its operands and of a *schedule*: which kernel runs, and
in which order its threads add up. The bound of ``dpglm.oracle.rounding.sum_rounding`` needs two
things of it.

1. *The schedule does not depend on the values of rows*, only on shapes, addresses, settings and
   chance. Then a fit is a mixture, over schedules, of fits with a fixed one, with the same
   weights for neighbouring data, so it is as private as its worst component; and with a fixed
   schedule neighbours of equal length give the same bits in every row's prediction but one, and
   in every partial sum but those that the row enters. Preparation, which makes new rows only
   where one of them is too long, must not let that show: rows are always contiguous and aligned.
   On CUDA even chance is excluded: cuBLAS promises the same bits in every run, also with other
   streams, with the workspace setting that is required here, and routines that use atomic
   additions are off unless asked for; the other operations used (elementwise, reductions,
   gathering rows) use none. All this is a promise of libraries, not a theorem. Predictions
   themselves may be rounded in any way: slopes are clipped whatever they are.
2. *Sums are as exact as their type allows, whatever the order of additions*: the error of a sum
   of m products in IEEE arithmetic of unit roundoff u is at most ``gamma_m = m u / (1 - m u)``
   times the sum of their magnitudes, for every order, tree or split, with or without fused
   multiply-add (Higham 2002, section 4.2). This bound fails for TF32,
   bfloat16 and emulated arithmetic. While a setting allows them, sums raise ``ValueError``; the
   setting itself is not changed, since it applies to all threads.

``weighted_sum`` multiplies runs of ``RUN_ROWS`` rows one by one (a batched product with
independent parts), and adds the runs in float64. So the row that changed enters one run in its
own precision, with ``gamma_(RUN_ROWS + 1)`` times the contributions of that run, like dense NumPy
rows. A term of a block of B rows passes at most this number of additions in float64:
``B / RUN_ROWS + RUN_ROWS + 2``: those between runs and groups of runs, one for the remainder, and
for the intercept's column those within a run. With at most ``2^16`` rows that number times B is
below the square of ``BLOCK_ROWS``, so their error, at most gamma of that number times all B
contributions, is within the ``gamma_BLOCK_ROWS * BLOCK_ROWS`` that ``sum_rounding`` allows for.
Blocks are added up on the device as ``Rows.sum`` does it: its transformation is exact in IEEE
float64, each operation being a kernel of its own.

Kernels that are not marked as ``AnyArrays`` get NumPy blocks of the usual size, copied to the
host, where the argument for ``ArrayRows`` applies.

Underflow: a device may flush numbers below the normal range to zero, which changes a product by
less than 2^-126. ``contribution_rounding`` counts one rounding more than needed, which is far more
for clips of at least 1e-15 and any number of columns.

Under ``add_remove`` a row more changes the shape of the last block, and so may change the last bits
of the predictions of other rows: such fits add up in the host's memory (``Rows.on_host``).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import as_host, like, namespace
from dpglm.data.collection import NO_TARGETS, Collection, MatrixRows, Preparation
from dpglm.data.memory import BLOCK_ROWS as HOST_BLOCK_ROWS
from dpglm.data.memory import RUN_ROWS, ArrayRows
from dpglm.data.rows import AnyArrays, Block, DataSpec, FloatType, Kernel, Rows, compensated_sum
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.cells import NUMBER_KINDS, check_finite
from dpglm.tables.given import as_column, as_floats, as_offset, as_weights

MOST_BLOCK_ROWS = 1 << 16
"""The most rows in a block on a device."""
# Numbers in a block, rows and predictions together: 1 GiB in double precision.
_BLOCK_ENTRIES = 1 << 27
# Numbers in the sums of runs that are in memory at a time.
_PARTIAL_ENTRIES = 1 << 24
# Alignment, in bytes, of memory that torch allocates, or that kernels distinguish.
_ALIGNMENT_ON_CPU, _ALIGNMENT_ELSEWHERE = 64, 256


@final
class TensorRows(Rows):
    """Rows of a torch tensor, which stay on its device; otherwise as ``ArrayRows``.

    ``X`` is copied unless it is contiguous and aligned.
    """

    def __init__(self, X: Any, y: Any, norms: Any, spec: DataSpec, weights: Any = None) -> None:
        self.spec = spec
        self._X, self._y, self._norms, self._weights = _aligned(X), y, norms, weights
        rows = _BLOCK_ENTRIES // (spec.n_columns + spec.n_outputs) // RUN_ROWS * RUN_ROWS
        self._block_rows = min(max(RUN_ROWS, rows), MOST_BLOCK_ROWS)

    @property
    def n_rows(self) -> int:
        return len(self._X)

    def blocks(self) -> Iterator[Block]:
        for X, y, norms, weights in self._slices(HOST_BLOCK_ROWS):
            yield from _dense(X, y, norms, self.spec, weights).blocks()

    def on_host(self) -> ArrayRows:
        return _dense(self._X, self._y, self._norms, self.spec, self._weights)

    def map_native(self, function: Callable[[Block], Any]) -> Iterator[Any]:
        # Without threads: one thread keeps a device's stream busy.
        return map(function, self._blocks_on_device())

    def _blocks_on_device(self) -> Iterator[Block]:
        check_exact(self._X.device)
        sent = _sender(self._X)
        for X, y, norms, weights in self._slices(self._block_rows):
            yield _TensorBlock(X, sent, y, norms, weights, self.spec.intercept)

    def clip_entries(self, bound: float) -> TensorRows:
        X = namespace(self._X).clip(self._X, -bound, bound)
        return TensorRows(X, self._y, self._norms, self.spec, self._weights)

    def sum(self, kernel: Kernel, shape: tuple[int, ...] | None = None) -> NDArray[np.float64]:
        """Add up as ``Rows.sum`` does, on the device if the kernel works there.

        Rows in the host's memory, which NumPy shares, are added up as those of ``ArrayRows`` are.
        """
        if not isinstance(kernel, AnyArrays) or _is_host(self._X.device):
            return super().sum(kernel, shape)
        xp = namespace(self._X)
        shape = self.spec.coefficient_shape if shape is None else shape
        zero = xp.zeros(shape, dtype=xp.float64, device=self._X.device)
        total: NDArray[np.float64] = as_host(compensated_sum(self.map_native(kernel), zero))
        return total

    def _slices(self, most: int) -> Iterator[tuple[Any, Any, Any, Any]]:
        for start in range(0, self.n_rows, most):
            rows = slice(start, start + most)
            weights = None if self._weights is None else self._weights[rows]
            yield self._X[rows], self._y[rows], self._norms[rows], weights

    def _taken(self, indices: NDArray[np.intp], spec: DataSpec) -> TensorRows:
        places = like(self._X, indices)
        weights = None if self._weights is None else self._weights[places]
        return TensorRows(self._X[places], self._y[places], self._norms[places], spec, weights)


def _dense(X: Any, y: Any, norms: Any, spec: DataSpec, weights: Any) -> ArrayRows:
    kept = None if weights is None else as_host(weights)
    return ArrayRows(as_host(X), as_host(y), as_host(norms), spec, kept)


def _is_host(device: Any) -> bool:
    return bool(device.type == "cpu")


def check_exact(device: Any) -> None:
    """Raise ValueError unless products of matrices on a device have the bounds stated above.

    They lack them where float32 products may be computed in less than float32, or in an order that
    differs from run to run.
    """
    import torch

    if device.type == "cpu":
        settings = torch.backends.mkldnn.matmul
        _check_unset(_FAST_MATHS, ("STRICT",))
    elif device.type == "cuda" and torch.version.hip is None:
        settings = torch.backends.cuda.matmul
        workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
        if workspace not in _DETERMINISTIC:
            raise ValueError(
                f"CUBLAS_WORKSPACE_CONFIG must be one of {', '.join(_DETERMINISTIC)}, so that sums "
                f"on a GPU are the same in every run, got {workspace!r}; set it in the environment "
                "before Python starts"
            )
        _check_unset(_EMULATIONS, ("0",))
    else:
        raise ValueError(f"tensors must be on the CPU or on an NVIDIA GPU, got {device}")
    if settings.fp32_precision not in ("none", "ieee"):
        raise ValueError(
            "float32 products must be computed in float32, because privacy rests on a bound on "
            f"their rounding, but torch is set to {settings.fp32_precision!r} for {device}; "
            "call torch.set_float32_matmul_precision('highest')"
        )


_DETERMINISTIC = (":4096:8", ":16:8")
_FAST_MATHS = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")
_EMULATIONS = ("CUBLAS_EMULATE_SINGLE_PRECISION", "CUBLAS_EMULATE_DOUBLE_PRECISION")


def _check_unset(names: tuple[str, ...], harmless: tuple[str, ...]) -> None:
    for name in names:
        value = os.environ.get(name, "")
        if value not in ("", *harmless):
            raise ValueError(
                f"{name} must not be set, because privacy rests on a bound on rounding that "
                f"reduced or emulated arithmetic does not promise, got {value!r}"
            )


def _aligned(X: Any) -> Any:
    """Return contiguous rows from an address like any that torch allocates."""
    X = X.contiguous()
    alignment = _ALIGNMENT_ON_CPU if X.device.type == "cpu" else _ALIGNMENT_ELSEWHERE
    return X.clone() if X.data_ptr() % alignment else X


def _sender(X: Any) -> Callable[[NDArray[np.float64]], Any]:
    """Return a function that sends each parameter to a device once, in a pass over the blocks."""
    sent: dict[int, tuple[NDArray[np.float64], Any]] = {}

    def send(w: NDArray[np.float64]) -> Any:
        # The array is kept as well, so that its id stays unique.
        if id(w) not in sent:
            sent[id(w)] = (w, like(X, w, X.dtype))
        return sent[id(w)][1]

    return send


@final
class _TensorBlock(Block):
    def __init__(self, X: Any, sent: Any, *facts: Any) -> None:
        super().__init__(X, None, *facts)
        self._sent = sent

    def predict(self, w: NDArray[np.float64]) -> Any:
        there = self._sent(w)
        if self._intercept == 0.0:
            return self._stored @ there
        z = self._stored @ there[:-1]
        z += self._intercept * there[-1]
        return z

    def features(self) -> Any:
        return self._stored

    def weighted_sum(self, slopes: Any) -> Any:
        columns = slopes if slopes.ndim > 1 else slopes[:, None]
        total = _sum_in_runs(self._stored, columns, self._intercept)
        return total if slopes.ndim > 1 else total[:, 0]


def _sum_in_runs(X: Any, slopes: Any, intercept: float) -> Any:
    """``[X, intercept]^T slopes`` with at most ``RUN_ROWS`` additions in the precision of ``X``."""
    xp = namespace(X)
    (rows, features), outputs = X.shape, slopes.shape[1]
    total = xp.zeros((outputs, features), dtype=xp.float64, device=X.device)
    last = xp.zeros((outputs, 1), dtype=xp.float64, device=X.device)
    whole = rows // RUN_ROWS * RUN_ROWS
    group = max(1, _PARTIAL_ENTRIES // (features * outputs)) * RUN_ROWS
    # Rows after the last whole run are a shorter run of their own.
    edges = [*range(0, whole, group), whole, rows]
    for start, stop in itertools.pairwise(edges):
        if start == stop:
            continue
        length = min(RUN_ROWS, stop - start)
        stacked_X = X[start:stop].reshape(-1, length, features)
        stacked = slopes[start:stop].reshape(-1, length, outputs).mT
        # Products this way round are several times faster on the CPU.
        total += xp.sum(xp.matmul(stacked, stacked_X), axis=0, dtype=xp.float64)
        if intercept:
            sums = xp.sum(stacked, axis=2, dtype=xp.float64)
            last += xp.sum(sums, axis=0)[:, None]
    return (xp.concat([total, intercept * last], axis=1) if intercept else total).T


# Torch tensors as a collection: rows stay on their device.

T = TypeVar("T")
_PART_BYTES = 1 << 27


@final
class TensorCollection(Collection):
    """A dense tensor on the CPU or on an NVIDIA GPU, with targets and weights of any kind.

    Targets and weights are copied to the host once, where labels are read.
    """

    copies_cheaply: ClassVar[bool] = True
    is_numpy: ClassVar[bool] = False
    dtype: FloatType = "float64"

    def __init__(self, X: Any, y: Any = None, weights: Any = None, offset: Any = None) -> None:
        import torch

        if X.ndim != 2 or X.layout is not torch.strided or X.is_complex():
            raise ValueError(
                f"X must be a dense tensor of real numbers of shape (n, n_features), got "
                f"{X.dtype} of shape {tuple(X.shape)} in layout {X.layout}"
            )
        self._X = X.detach()
        n_rows = len(self._X)
        self._y: NDArray[Any] | None = None if y is None else as_column(_host_column(y), n_rows)
        if offset is not None:
            own = as_offset(_host_column(offset), n_rows)
            self._y = np.column_stack([as_floats("y", self._targets()), own])
        self._weights = None if weights is None else as_weights(_host_column(weights), n_rows)
        self.is_weighted, self.has_offset = weights is not None, offset is not None
        narrow = X.dtype in (torch.float32, torch.float16, torch.bfloat16)
        self.dtype = "float32" if narrow else "float64"

    @property
    def shape(self) -> tuple[int, int]:
        return int(self._X.shape[0]), int(self._X.shape[1])

    def with_offset(self, offset: Any) -> TensorCollection:
        return TensorCollection(self._X, self._targets(), self._weights, offset)

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> MatrixRows:
        """Copy the rows to the host's memory, where sums over groups are computed."""
        xp, y = namespace(self._X), self._targets()
        X = as_host(check_finite(xp.asarray(self._X, dtype=getattr(xp, self.dtype))))
        return MatrixRows(X, y, self._weights).in_groups(ids, most, noise)

    def prepared(self, how: Preparation) -> Rows:
        check_exact(self._X.device)
        xp, y = namespace(self._X), self._targets()
        X = check_finite(xp.asarray(self._X, dtype=getattr(xp, how.spec.dtype)))
        return how.rows(X, y, self._weights)

    def apply(self, function: Callable[[Any], NDArray[Any]]) -> Any:
        results = [function(self._finite(rows)) for rows in self._slices()]
        together = np.concatenate(results)
        # Tensors cannot hold text labels.
        return like(self._X, together) if together.dtype.kind in NUMBER_KINDS else together

    def parts(self, function: Callable[[Any, Any, Any], T]) -> Iterator[T]:
        y, weights = self._targets(), self._weights
        for rows in self._slices():
            some = None if weights is None else weights[rows]
            yield function(self._finite(rows), y[rows], some)

    def _finite(self, rows: slice) -> Any:
        return check_finite(self._X[rows], first_row=rows.start)

    def _slices(self) -> list[slice]:
        n_rows, n_features = self.shape
        size = max(1, _PART_BYTES // (8 * n_features))
        return [slice(start, start + size) for start in range(0, n_rows, size)] or [slice(0, 0)]

    def _targets(self) -> NDArray[Any]:
        if self._y is None:
            raise ValueError(NO_TARGETS)
        return self._y


def _host_column(values: Any) -> Any:
    """Copy tensors to the host; leave other values as they are."""
    if namespace(values) is np:
        return values
    import torch

    values = values.detach()
    # NumPy does not know bfloat16.
    return as_host(values.float() if values.dtype is torch.bfloat16 else values)


collection_of, rows_of = TensorCollection, TensorRows
