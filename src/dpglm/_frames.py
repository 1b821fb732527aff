"""Whose line a warning is about."""

from __future__ import annotations

import sys

__all__ = ["frames_to_the_user"]


def frames_to_the_user() -> int:
    """Count the frames from the caller of this up to the first one outside the library."""
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dpglm."):
        depth, frame = depth + 1, frame.f_back
    return depth + 1
