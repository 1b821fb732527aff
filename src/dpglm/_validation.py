"""Checks of public arguments, and arrays of NumPy or torch."""

from __future__ import annotations

import dataclasses
import functools
import math
import numbers
import os
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import NDArray

from dpglm._words import did_you_mean

Array: TypeAlias = NDArray[np.float64]
"""An array of float64."""
SMALLEST, LARGEST = 1e-15, 1e15
"""Range of bounds within which float32 arithmetic neither overflows nor underflows."""
_MOST_BITS = 256
_SHOWN = 160
"""Characters."""
_LARGEST_COUNT = 2**53
"""Counts up to this are exact as floating-point numbers."""


def in_one_line(value: object) -> str:
    """Return a short representation of an object in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def check_bool(name: str, value: object) -> bool:
    """Return ``value`` as a bool, or raise ValueError if it is not a bool."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def check_bools(settings: Any) -> None:
    """Check the fields of a frozen dataclass that are declared as ``bool``."""
    for field in dataclasses.fields(settings):
        if field.type == "bool":
            value = check_bool(field.name, getattr(settings, field.name))
            object.__setattr__(settings, field.name, value)


def check_kind(name: str, value: object, kinds: Any, what: str) -> None:
    """Raise ValueError unless a value is of some classes, which ``what`` names."""
    if not isinstance(value, kinds):
        raise ValueError(f"{name} must be {what}, got {value!r}")


def check_integer(name: str, value: object, *, least: int, most: int | None = None) -> int:
    """Return ``value`` as an int from ``least`` to ``most``, or raise ValueError.

    Without ``most`` it is below 2**256.
    """
    if isinstance(value, bool) or not isinstance(value, (int, numbers.Integral)) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")
    if int(value).bit_length() > _MOST_BITS:
        raise ValueError(f"{name} must be an integer below 2**{_MOST_BITS}, got a larger one")
    if most is not None and int(value) > most:
        raise ValueError(f"{name} must be at most {most}, got {value!r}")
    return int(value)


check_count = functools.partial(check_integer, least=1, most=_LARGEST_COUNT)
"""Return a value as an int from 1 to 2**53, or raise ValueError."""


def check_list(name: str, value: Any, what: str = "a list") -> tuple[Any, ...]:
    """Return a one-dimensional sequence as a tuple, or raise ValueError."""
    is_list = isinstance(value, Sequence | np.ndarray | Set) and not isinstance(value, str | bytes)
    if not is_list or np.ndim(value if isinstance(value, np.ndarray) else 0) > 1:
        raise ValueError(f"{name} must be {what}, got {in_one_line(value)}")
    return tuple(value)


def check_two(name: str, value: Any) -> tuple[float, float]:
    """Return two finite numbers, or raise ValueError."""
    found = check_list(name, value)
    if len(found) != 2:
        raise ValueError(f"{name} must be two numbers, got {in_one_line(value)}")
    return check_real(name, found[0]), check_real(name, found[1])


def check_path(name: str, value: Any) -> Path:
    """Return ``value`` as a Path, or raise ValueError."""
    if not is_path(value):
        raise ValueError(f"{name} must be the path of a file, got {in_one_line(value)}")
    return Path(value)


def is_path(value: Any) -> bool:
    """Whether a value is a path."""
    return isinstance(value, str | os.PathLike) and "\0" not in os.fspath(value) and value != ""


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
    found = float(value) if is_number(value) else math.nan
    if math.isfinite(found) and above < found < below and least <= found <= most:
        return found
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
    raise ValueError(f"{name} must be a finite number {allowed}".rstrip() + f", got {value!r}")


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a real number, without overflow as a float."""
    if isinstance(value, bool) or not isinstance(value, (float, int, numbers.Real)):
        return False
    try:
        float(value)
    except OverflowError:
        return False
    return True


def check_one_of(name: str, value: object, allowed: Sequence[str]) -> str:
    """Return ``value``, or raise ValueError if it is not one of the ``allowed`` strings."""
    if not isinstance(value, str) or value not in allowed:
        hint = did_you_mean(value, allowed)
        raise ValueError(f"{name} must be one of {list(map(str, allowed))}, got {value!r}{hint}")
    return value


# Arrays of NumPy, or of a library with the Array API.


def namespace(x: Any) -> Any:
    """Return the namespace of arrays like ``x``: NumPy, or the Array API of torch."""
    if isinstance(x, np.ndarray) or type(x).__module__.partition(".")[0] != "torch":
        return np
    try:
        import array_api_compat.torch
    except ImportError:
        raise ImportError(
            "tensors require the package array-api-compat: pip install 'dpglm[torch]'"
        ) from None
    return array_api_compat.torch


def like(x: Any, values: Any, dtype: Any = None) -> Any:
    """Return values as an array like ``x`` on the same device, without a needless copy."""
    xp = namespace(x)
    if xp is not np and isinstance(values, np.ndarray):
        # Tensors share memory with contiguous, writable arrays only.
        values = np.require(values, requirements=["C", "W"])
    return xp.asarray(values, dtype=dtype, device=x.device)


def finite(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with zeros in place of numbers that are not finite."""
    xp = namespace(values)
    # A single pass: a NaN or an infinity makes the sum NaN or infinite.
    if not xp.isfinite(values.sum()):
        values = xp.where(xp.isfinite(values), values, 0.0)
    return values


def weighted(slopes: NDArray[Any], weights: NDArray[Any] | None) -> NDArray[Any]:
    """Multiply finite slopes, of shape (rows,) or (rows, outputs), by weights; in place.

    Privacy: a slope that overflows counts as zero, so its row contributes nothing.
    """
    if weights is None:
        return slopes
    slopes *= weights if slopes.ndim == 1 else weights[:, np.newaxis]
    return finite(slopes)


def rounded_up(values: Any, dtype: Any) -> Any:
    """Return upper bounds on values in another type."""
    xp = namespace(values)
    rounded = xp.asarray(values, dtype=dtype)
    if rounded.dtype == values.dtype:
        return rounded
    return xp.nextafter(rounded, xp.full_like(rounded, math.inf))


def contiguous(x: Any) -> Any:
    """Return an array in C order, without a needless copy."""
    return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x.contiguous()


def as_host(x: Any) -> Any:
    """Return ``x`` as a NumPy array, without a needless copy."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.cpu())
