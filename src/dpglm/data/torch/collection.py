"""Torch tensors as a collection: rows stay on their device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import as_host, like, namespace
from dpglm.data.collection import NO_TARGETS, Collection, Preparation
from dpglm.data.memory.matrix import MatrixRows
from dpglm.data.rows import Rows
from dpglm.data.spec import FloatType
from dpglm.data.torch.tensors import check_exact
from dpglm.privacy.noise import NoiseSource
from dpglm.tables.finite import NUMBER_KINDS, check_finite
from dpglm.tables.given import as_column, as_floats, as_offset, as_weights

__all__ = ["TensorCollection", "tensor_collection"]

T = TypeVar("T")

_PART_BYTES = 1 << 27


@final
class TensorCollection(Collection):
    """A dense tensor on the CPU or on an NVIDIA GPU, with targets and weights of any kind.

    Targets and weights are copied to the host once, where labels are read.
    """

    copies_cheaply: ClassVar[bool] = True
    is_numpy: ClassVar[bool] = False

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
        narrow = X.dtype in (torch.float32, torch.float16, torch.bfloat16)
        self._dtype: FloatType = "float32" if narrow else "float64"

    @property
    def shape(self) -> tuple[int, int]:
        return int(self._X.shape[0]), int(self._X.shape[1])

    @property
    def dtype(self) -> FloatType:
        return self._dtype

    def with_offset(self, offset: Any) -> TensorCollection:
        return TensorCollection(self._X, self._targets(), self._weights, offset)

    def in_groups(self, ids: Any, most: int | None, noise: NoiseSource) -> MatrixRows:
        """Copy the rows to the host's memory, where sums over groups are computed."""
        xp, y = namespace(self._X), self._targets()
        X = as_host(check_finite(xp.asarray(self._X, dtype=getattr(xp, self._dtype))))
        return MatrixRows(X, y, self._weights).in_groups(ids, most, noise)

    def _prepared(self, how: Preparation) -> Rows:
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


def tensor_collection(X: Any, y: Any, weights: Any) -> Collection:
    """Return the collection of a fit whose rows are a tensor."""
    return TensorCollection(X, y, weights)


def _host_column(values: Any) -> Any:
    """Copy tensors to the host; leave other values as they are."""
    if namespace(values) is np:
        return values
    import torch

    values = values.detach()
    # NumPy does not know bfloat16.
    return as_host(values.float() if values.dtype is torch.bfloat16 else values)
