"""Backends by the types of the objects that they take; each is loaded when it is first needed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["maker_of_collections", "maker_of_rows"]

# Package of a type, or type: module and function (X, y, weights) -> Collection or None.
_COLLECTIONS: Mapping[str, str] = MappingProxyType(
    {
        "dask": "dpglm.data.dask.arrays:dask_arrays",
        "numpy.memmap": "dpglm.data.stream.mapped:mapped_rows",
        "torch": "dpglm.data.torch.collection:tensor_collection",
    }
)

# Package of the type of a dense matrix: module and class of the rows that keep it where it is.
_ROWS: Mapping[str, str] = MappingProxyType({"torch": "dpglm.data.torch.tensors:TensorRows"})


def maker_of_collections(kind: type) -> Callable[..., Any] | None:
    """Return the maker of collections of objects of a type; None for matrices in memory."""
    return _found(_COLLECTIONS, kind)


def maker_of_rows(kind: type) -> Callable[..., Any] | None:
    """Return the class of rows that keeps dense matrices of a type in place; None for NumPy's."""
    return _found(_ROWS, kind)


def _found(backends: Mapping[str, str], kind: type) -> Callable[..., Any] | None:
    package = kind.__module__.partition(".")[0]
    name = backends.get(f"{package}.{kind.__name__}", backends.get(package))
    if name is None:
        return None
    module, _, member = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), member)
    return found
