"""Backends by the packages whose objects they take; each is loaded when it is first needed.

The module or folder of ``dpglm.data`` that is called as another package takes the objects of that
package. Its ``collection_of`` (X, y, weights) returns a Collection, or None for what is read as a
matrix in memory; its ``rows_of`` is the class of rows that keeps dense matrices where they are.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["maker_of_collections", "maker_of_rows"]


def maker_of_collections(kind: type) -> Callable[..., Any] | None:
    """Return the maker of collections of objects of a type; None for matrices in memory."""
    package = kind.__module__.partition(".")[0]
    if (package, kind.__name__) == ("numpy", "memmap"):
        # Of NumPy's arrays these alone are not in memory.
        return _backend("stream.mapped").get("mapped_rows")
    return _backend(package).get("collection_of")


def maker_of_rows(kind: type) -> Callable[..., Any] | None:
    """Return the class of rows that keeps dense matrices of a type in place; None for NumPy's."""
    return _backend(kind.__module__.partition(".")[0]).get("rows_of")


@functools.cache
def _backend(package: str) -> Mapping[str, Any]:
    name = f"{__package__}.{package}"
    if importlib.util.find_spec(name) is None:
        return {}
    return vars(importlib.import_module(name))
