"""Single values as JSON and back: numbers, text, arrays of them; errors name the place."""

from __future__ import annotations

import contextlib
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._json import at, check_text, check_writable, shown

T = TypeVar("T")
Way: TypeAlias = Callable[[Any], Any]
_INFINITE = {"inf": math.inf, "-inf": -math.inf}
APART: ContextVar[dict[str, Any] | None] = ContextVar("dpglm_arrays", default=None)
"""Arrays that are written apart, by name; see ``arrays_apart``."""


@final
@dataclass(frozen=True)
class Form:
    """How values of one kind are written and read."""

    write: Way
    read: Way


@contextlib.contextmanager
def arrays_apart(arrays: dict[str, Any]) -> Iterator[None]:
    """Write arrays into a mapping, or read them from it; a document holds their names.

    Each array is kept as one block, which may contain NaN.
    """
    token = APART.set(arrays)
    try:
        yield
    finally:
        APART.reset(token)


def each(parts: Iterable[tuple[Any, Way, Any]]) -> dict[Any, Any]:
    """Convert parts of a value, given as (place, way to convert, part)."""
    found = {}
    for place, way, part in parts:
        # A context manager for each number of a long array would take most of the time.
        try:
            found[place] = way(part)
        except ValueError:
            with at(place):
                raise
    return found


def items(way: Callable[[Any], T]) -> Callable[[Any], tuple[T, ...]]:
    """Return a reader of arrays, which reads each entry in one way; errors name the position."""

    def convert(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be an array, got {shown(value)}")
        return tuple(each((place, way, one) for place, one in enumerate(value)).values())

    return convert


def mapping(value: Any) -> dict[str, Any]:
    """Read an object with any keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, got {shown(value)}")
    return dict(value)


def text(value: Any) -> str:
    """Read text."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, got {shown(value)}")
    return check_text(value)


def line(value: Any) -> str:
    """Read text of one line, which cannot pose as further lines where it is shown."""
    if len(text(value).splitlines()) > 1:
        raise ValueError(f"must be one line of text, got {shown(value)}")
    return text(value)


def boolean(value: Any) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, got {shown(value)}")
    return value


def integer(value: Any) -> int:
    """Read an integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be an integer, got {shown(value)}")
    return value


def number(value: Any) -> float:
    """Read a finite number, as a float."""
    # An integer may be too large for a float.
    with contextlib.suppress(OverflowError):
        if not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value):
            return float(value)
    raise ValueError(f"must be a finite number, got {shown(value)}")


def read_float(value: Any) -> float:
    """Read a number, infinite ones too."""
    if value == "nan" and APART.get() is not None:
        return math.nan
    return _INFINITE[value] if isinstance(value, str) and value in _INFINITE else number(value)


def write_float(value: Any) -> float | str:
    """Write a number that a float holds exactly."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, float | int | np.number):
        raise ValueError(f"must be a number, got {shown(value)}")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if math.isnan(found) and APART.get() is not None:
        return "nan"
    if found != value:
        raise ValueError(f"must be a number that a float holds exactly, got {shown(value)}")
    return found if math.isfinite(found) else str(found)


def write_integer(value: Any) -> int:
    """Write an integer, also one of NumPy's."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise ValueError(f"must be an integer, got {shown(value)}")
    return operator.index(value)


def write_json(value: Any) -> Any:
    """Write a JSON value."""
    check_writable(value)
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {text(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"must be a JSON value, got {shown(value)}")


SCALAR = Form(
    lambda value: write_float(value) if isinstance(value, float) else value,
    lambda value: value if isinstance(value, bool | int) else read_float(value),
)
"""Return a number, or anything else that is not a float."""


# Vectors and matrices as JSON and back.


def _vector(value: object) -> NDArray[np.float64]:
    return np.array(items(number)(value), dtype=np.float64)


def _matrix(value: object) -> NDArray[np.float64]:
    rows = items(_vector)(value)
    width = len(rows[0]) if rows else 0
    if any(len(row) != width for row in rows):
        raise ValueError("must be a matrix, with rows of one length")
    return np.array(rows, dtype=np.float64).reshape(len(rows), width)


Vector: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _vector)]
Matrix: TypeAlias = Annotated[NDArray[np.float64], Form(np.ndarray.tolist, _matrix)]
