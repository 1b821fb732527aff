"""Tensors of torch as a collection: rows stay on the device that they are on."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._arrays import as_host, namespace
from dpglm.data.collection import Collection, TargetMap
from dpglm.data.prepare import ColumnScaling, prepare_rows
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec, FloatType
from dpglm.data.tensors import check_exact

__all__ = ["TensorCollection", "tensor_collection"]


@final
class TensorCollection(Collection):
    """Rows of a tensor, with targets and weights of any kind.

    Parameters
    ----------
    X : torch.Tensor of shape (n, n_features)
        Real numbers, on the CPU or on an NVIDIA GPU.
    y : torch.Tensor or array_like of shape (n,)
        Targets, on any device; copied to the host once, where labels are read.
    weights : torch.Tensor or array_like of shape (n,), optional
        Weights.

    Raises
    ------
    ValueError
        If shapes or types are not these, or sums on the device would not be exact enough.
    """

    copies_cheaply: ClassVar[bool] = True

    def __init__(self, X: Any, y: Any, weights: Any = None) -> None:
        import torch

        if X.ndim != 2 or X.layout is not torch.strided or X.is_complex():
            raise ValueError(
                f"X must be a dense tensor of real numbers of shape (n, n_features), got "
                f"{X.dtype} of shape {tuple(X.shape)} in layout {X.layout}"
            )
        check_exact(X.device)
        self._X = X.detach()
        self._y = self._column("y", y)
        self._weights = None if weights is None else self._column("sample_weight", weights)
        narrow = X.dtype in (torch.float32, torch.float16, torch.bfloat16)
        self._dtype: FloatType = "float32" if narrow else "float64"

    def _column(self, name: str, values: Any) -> NDArray[Any]:
        column = _host_column(values)
        if column.shape != (len(self._X),):
            raise ValueError(
                f"{name} must have shape ({len(self._X)},), as X has so many rows, got shape "
                f"{column.shape}"
            )
        return column

    @property
    def shape(self) -> tuple[int, int]:
        return int(self._X.shape[0]), int(self._X.shape[1])

    @property
    def dtype(self) -> FloatType:
        return self._dtype

    @property
    def is_weighted(self) -> bool:
        return self._weights is not None

    def prepared(
        self,
        spec: DataSpec,
        scaling: ColumnScaling | None,
        targets: TargetMap,
        weights: TargetMap | None = None,
    ) -> Rows:
        xp = namespace(self._X)
        X = xp.asarray(self._X, dtype=getattr(xp, spec.dtype))
        if not xp.all(xp.isfinite(X)):
            raise ValueError("X must be finite, got NaN or infinity")
        row_weights = self._row_weights(weights)
        y = targets(self._y)
        if not np.isfinite(y).all():
            raise ValueError("y must be finite, got NaN or infinity")
        return prepare_rows(X, y, spec, scaling, row_weights)

    def _row_weights(self, factors: TargetMap | None) -> NDArray[np.float64] | None:
        weights = None if self._weights is None else self._weights.astype(np.float64)
        if weights is not None and not (np.isfinite(weights).all() and (weights >= 0.0).all()):
            raise ValueError("sample_weight must be finite and at least 0 in every row")
        if factors is None:
            return weights
        return factors(self._y) if weights is None else factors(self._y) * weights


def tensor_collection(X: Any, y: Any, weights: Any) -> Collection:
    """Read the arguments of a fit whose rows are a tensor."""
    return TensorCollection(X, y, weights)


def _host_column(values: Any) -> NDArray[Any]:
    if namespace(values) is np:
        return np.asarray(values)
    import torch

    values = values.detach()
    # NumPy does not know bfloat16.
    column: NDArray[Any] = as_host(values.float() if values.dtype is torch.bfloat16 else values)
    return column
