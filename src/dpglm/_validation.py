"""Checks of public arguments: errors that name the parameter, the value and what is allowed."""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = [
    "check_bool",
    "check_bools",
    "check_count",
    "check_integer",
    "check_one_of",
    "check_real",
    "in_one_line",
]


_SHOWN = 160
"""Characters."""

_LARGEST_COUNT = 2**53
"""Counts up to this are exact as floating-point numbers."""


def in_one_line(value: object) -> str:
    """Show an estimator, a step or a setting of one in one line, shortened where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` as a bool, or raise ValueError if it is neither Python's nor NumPy's."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_bools(settings: Any) -> None:
    """Check every field of a frozen dataclass that is declared as ``bool``, and make it one."""
    for field in dataclasses.fields(settings):
        if field.type == "bool":
            value = check_bool(field.name, getattr(settings, field.name))
            object.__setattr__(settings, field.name, value)


def check_integer(name: str, value: object, *, least: int) -> int:
    """Return ``value`` as an int, or raise ValueError if it is not one of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    return int(value)


def check_count(name: str, value: object) -> int:
    """Return ``value`` as an int, or raise ValueError unless it is from 1 to the largest count."""
    count = check_integer(name, value, least=1)
    if count > _LARGEST_COUNT:
        raise ValueError(f"{name} must be at most {_LARGEST_COUNT}, got a larger integer")
    return count


def check_real(
    name: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    below: float = math.inf,
) -> float:
    """Return ``value`` as a finite float, or raise ValueError if it is out of range."""
    allowed = " and ".join(
        text
        for bound, text in (
            (above, f"above {above:g}"),
            (least, f"at least {least:g}"),
            (most, f"at most {most:g}"),
            (below, f"below {below:g}"),
        )
        if math.isfinite(bound)
    )
    found = _as_float(value)
    if not (math.isfinite(found) and above < found < below and least <= found <= most):
        raise ValueError(f"{name} must be a finite number {allowed}".rstrip() + f", got {value!r}")
    return found


def _as_float(value: object) -> float:
    """Return a number as a float, infinite where it is beyond them; NaN for all else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def check_one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value``, or raise ValueError if it is not one of the ``allowed`` strings."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {list(map(str, allowed))}, got {value!r}")
    return value
