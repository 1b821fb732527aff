"""The command line: `dpglm`."""

from __future__ import annotations

import importlib
import sys

__all__ = ["main"]

_NEEDED = ("click", "pyarrow", "rich")


def main() -> None:
    """Run the command line; installed as the script ``dpglm``."""
    try:
        _run()
    except KeyboardInterrupt as stop:
        # While packages are loaded, or a message is printed.
        sys.stderr.write("Interrupted.\n")
        raise SystemExit(*(stop.args or (130,))) from None


def _run() -> None:
    lacking = [name for name in _NEEDED if not _is_installed(name)]
    if lacking:
        sys.stderr.write(
            f"The command line needs {', '.join(lacking)}, which the core install leaves out.\n"
            "Install with: pip install 'dpglm[cli]'\n"
        )
        raise SystemExit(2)
    if sys.flags.optimize > 1:
        sys.stderr.write("The command line reads docstrings: run Python without -OO.\n")
        raise SystemExit(2)
    from dpglm.cli.commands import app
    from dpglm.cli.console import unfailing_streams
    from dpglm.cli.files import listen

    unfailing_streams()
    listen()
    app(prog_name="dpglm")


def _is_installed(name: str) -> bool:
    try:
        importlib.import_module(name)
    except ImportError:
        return False
    return True
