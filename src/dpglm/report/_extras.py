"""Optional packages: imported when needed, with an error that says what to install."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["require"]


def require(module: str, extra: str) -> Any:
    """Import an optional package.

    Parameters
    ----------
    module : str
        Full name of the module.
    extra : str
        The extra of dpglm that installs it.

    Returns
    -------
    module

    Raises
    ------
    ImportError
        If it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(
            f"this needs {package}, which is not installed: pip install 'dpglm[{extra}]'"
        ) from error
