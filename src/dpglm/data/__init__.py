"""Rows in blocks, their public facts, and the preparation that makes the facts true."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpglm.data.stream.arrow import ArrowRows as ArrowRows
    from dpglm.tables.databases import Query as Query

__all__ = ["ArrowRows", "Query"]

# Loaded when first used: a fit on an array reads no stream.
_HOME = {"ArrowRows": "dpglm.data.stream.arrow", "Query": "dpglm.tables.databases"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpglm.data' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
