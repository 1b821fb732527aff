"""Progress of a fit as ``verbose`` asks for it: a bar in a terminal, else lines."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable

from dpglm._progress_shown import is_watched, shown
from dpglm.solvers.base import Plan, StepInfo

__all__ = ["heard", "showing"]


def showing(verbose: int, plan: Plan | None = None) -> contextlib.AbstractContextManager[None]:
    """Show the progress of a block, unless lines for the steps of its plan will."""
    lines_do = plan is not None and plan.method.releases_iterates and not is_watched()
    return shown() if verbose and not lines_do else contextlib.nullcontext()


def heard(
    callback: Callable[[StepInfo], None] | None, verbose: int
) -> Callable[[StepInfo], None] | None:
    """Return the function that is called after each step: the callback, and a writer of lines.

    Privacy: it is not called where only the last iterate is released.
    """
    wanted = verbose > 1 or (verbose and not is_watched())
    hearers = [one for one in (callback, _print_step if wanted else None) if one is not None]

    def tell(info: StepInfo) -> None:
        for one in hearers:
            one(info)

    return tell if hearers else None


def _print_step(info: StepInfo) -> None:
    sys.stderr.write(
        f"step {info.step}: step size {info.step_size:.3g}, "
        f"noisy gradient norm {info.gradient_norm:.3g}\n"
    )
