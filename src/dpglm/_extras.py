"""Optional packages: imported when needed, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["require"]


def require(module: str, extra: str) -> Any:
    """Import an optional package; the ImportError says which extra of dpglm installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}, which is not installed: pip install 'dpglm[{extra}]'"
        ) from error
