"""Reading JSON that nobody vouches for: bounded, strict, and every error says where."""

from __future__ import annotations

import contextlib
import enum
import json
import math
import os
import reprlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, final

import numpy as np

__all__ = [
    "DocumentError",
    "Reader",
    "at",
    "boolean",
    "canonical_json",
    "check_kind",
    "check_text",
    "check_writable",
    "choice",
    "in_file",
    "integer",
    "is_kind",
    "items",
    "line",
    "load",
    "mapping",
    "mapping_of",
    "nullable",
    "number",
    "numbers",
    "object_with",
    "parse",
    "plain_json",
    "shown",
    "tagged",
    "text",
]

T = TypeVar("T")
E = TypeVar("E", bound=enum.StrEnum)
Reader: TypeAlias = Callable[[Any], T]
"""Turns a JSON value into what it stands for, or raises ValueError."""

_MOST_BYTES = 1 << 30
_DEEPEST = 64
_MOST_DIGITS = 20
_INTEGERS = range(-(2**63), 2**64)

_shorten = reprlib.Repr()
_shorten.maxlevel, _shorten.maxstring, _shorten.maxother, _shorten.maxlong = 2, 80, 80, 60


@final
class DocumentError(ValueError):
    """A part of a document is not what it must be.

    Parameters
    ----------
    place : str
        Where it is, such as ``releases[2].event``; empty for the whole.
    problem : str
        What is wrong, beginning with "must" or "is" where it follows on the place.
    """

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place, self.problem = place, problem

    def __str__(self) -> str:
        joint = " " if self.problem.startswith(("must ", "is ")) else ": "
        return f"{self.place}{joint}{self.problem}" if self.place else self.problem


@contextlib.contextmanager
def at(place: str | int) -> Iterator[None]:
    """Say of every ValueError of a block at which key or position it arose."""
    is_name = isinstance(place, str) and place.isidentifier() and len(place) <= 80
    step = str(place) if is_name else f"[{shown(place)}]"
    try:
        yield
    except DocumentError as error:
        joint = "." if error.place and not error.place.startswith("[") else ""
        raise DocumentError(f"{step}{joint}{error.place}", error.problem) from None
    except ValueError as error:
        raise DocumentError(step, str(error)) from None


@contextlib.contextmanager
def in_file(path: str | os.PathLike[str]) -> Iterator[None]:
    """Say of every ValueError of a block which file it is about."""
    try:
        yield
    except ValueError as error:
        raise DocumentError(os.fspath(path), str(error)) from error


def load(path: str | os.PathLike[str]) -> Any:
    """Read a JSON file as ``parse`` does; ``in_file`` adds its name to errors.

    Raises
    ------
    ValueError
        If it is no JSON, or more than a gibibyte.
    OSError
        If it cannot be read.
    """
    with Path(path).open("rb") as stream:
        content = stream.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"must be at most {_MOST_BYTES} bytes to be read")
    return parse(content)


def parse(content: str | bytes) -> Any:
    """Read JSON strictly.

    Parameters
    ----------
    content : str or bytes
        The document; bytes are UTF-8, with or without a byte order mark.

    Returns
    -------
    JSON value
        At most 64 levels deep, without repeated keys, NaN, infinite floats, integers beyond 64
        bits, or text that UTF-8 cannot hold (lone surrogates).

    Raises
    ------
    ValueError
        If it is not such a document; the message names the place.

    Examples
    --------
    >>> parse('{"steps": [{"noise": 1e400}]}')
    Traceback (most recent call last):
    ...
    dpglm._json.DocumentError: steps[0].noise must be a finite number
    """
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8-sig")
        value = json.loads(
            content,
            parse_int=_integer,
            parse_constant=lambda name: _Refused(f"must be a finite number, got {name}"),
            object_pairs_hook=_object,
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"is not text in UTF-8 (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not a JSON file: {error}") from None
    except RecursionError:
        raise ValueError(f"must be nested at most {_DEEPEST} levels deep") from None
    _check(value, 0)
    return value


def is_kind(document: Any, kind: str) -> bool:
    """Whether a document says that it is of a kind."""
    return isinstance(document, Mapping) and document.get("format") == kind


def check_kind(
    document: Any, kind: str, version: int, earlier: Mapping[int, str] | None = None
) -> dict[str, Any]:
    """Return an object that says it is of a kind and version.

    Parameters
    ----------
    document : JSON value
        What was read.
    kind : str
        What it must be.
    version : int
        Of its format.
    earlier : mapping from int to str, optional
        Versions of the format that are read no more, and which version of this library wrote them.

    Raises
    ------
    ValueError
        If it is of another kind or version.
    """
    if not is_kind(document, kind):
        raise ValueError(f"is not a {kind}: it must be an object with the format {kind!r}")
    found = dict(document)
    own = found.get("version")
    if earlier and type(own) is int and own in earlier:
        raise ValueError(
            f"was written by dpglm {earlier[own]} (version {own} of a {kind}, this is {version}): "
            "read it with that version"
        )
    if own != version:
        raise ValueError(f"must have version {version}, got {shown(found.get('version'))}")
    return found


def canonical_json(document: Mapping[str, Any]) -> str:
    """Write a JSON object in the one way that digests are made of."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)


def check_text(value: str) -> str:
    r"""Return text that can be written as UTF-8; lone surrogates are a ValueError.

    Examples
    --------
    >>> check_text("caf\udce9")
    Traceback (most recent call last):
    ...
    ValueError: must be Unicode text without lone surrogates, got 'caf\udce9'
    """
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(
            f"must be Unicode text without lone surrogates, got {shown(value)}"
        ) from None
    return value


def check_writable(value: Any) -> None:
    """Check that ``parse`` would read back a JSON value, once written.

    Raises
    ------
    ValueError
        If text in it holds a lone surrogate, a number is not finite or an integer beyond 64 bits,
        or it is nested too deeply; the message names the place.

    Examples
    --------
    >>> check_writable({"sizes": [1.0, float("inf")]})
    Traceback (most recent call last):
    ...
    dpglm._json.DocumentError: sizes[1] must be a finite number
    """
    _check(value, 0)


def shown(value: Any) -> str:
    """Write a value for a message, shortened where it is long.

    Examples
    --------
    >>> shown("a"), shown(list(range(10)))
    ("'a'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return _shorten.repr(value)


def plain_json(value: Any) -> Any:
    """Return ``value`` as what JSON can hold, so that writing and reading changes nothing."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain_json(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_json(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


def text(value: Any) -> str:
    """Read text."""
    if not isinstance(value, str):
        raise ValueError(f"must be text, got {shown(value)}")
    return check_text(value)


def line(value: Any) -> str:
    """Read text of one line: a name, which must not look like lines of what shows it."""
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
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"must be a finite number, got {shown(value)}")
    return float(value)


def numbers(value: Any) -> list[float]:
    """Read an array of finite numbers, as floats."""
    if not isinstance(value, list):
        raise ValueError(f"must be an array of numbers, got {shown(value)}")
    if set(map(type, value)) <= {float, int} and all(map(math.isfinite, value)):
        return list(map(float, value))
    return list(items(number)(value))


def choice(kind: type[E]) -> Reader[E]:
    """Return a reader of the members of an enumeration of texts."""

    def read_member(value: Any) -> E:
        if not isinstance(value, str) or value not in list(kind):
            raise ValueError(f"must be one of {[str(one) for one in kind]}, got {shown(value)}")
        return kind(value)

    return read_member


def mapping(value: Any) -> dict[str, Any]:
    """Read an object with any keys."""
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object, got {shown(value)}")
    return dict(value)


def mapping_of(read: Reader[T]) -> Reader[dict[str, T]]:
    """Return a reader of objects with any keys, each value by one reader."""

    def read_values(value: Any) -> dict[str, T]:
        found = mapping(value)
        return object_with(dict.fromkeys(found, read))(found)

    return read_values


def nullable(read: Reader[T]) -> Reader[T | None]:
    """Return a reader that reads null too, as None."""
    return lambda value: None if value is None else read(value)


def items(read: Reader[T]) -> Reader[tuple[T, ...]]:
    """Return a reader of arrays, each entry by one reader; errors name the position."""

    def read_all(value: Any) -> tuple[T, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be an array, got {shown(value)}")
        found = []
        for position, entry in enumerate(value):
            with at(position):
                found.append(read(entry))
        return tuple(found)

    return read_all


def object_with(readers: Mapping[str, Reader[Any]], what: str = "") -> Reader[dict[str, Any]]:
    """Return a reader of objects with exactly these keys, each by its reader.

    Parameters
    ----------
    readers : mapping from str to Reader
        The keys.
    what : str, default=""
        How messages call the object, where its place does not say it.

    Examples
    --------
    >>> read = object_with({"name": text, "sizes": items(integer)})
    >>> read({"name": "a", "sizes": [1, "b"]})
    Traceback (most recent call last):
    ...
    dpglm._json.DocumentError: sizes[1] must be an integer, got 'b'
    """

    def read_fields(value: Any) -> dict[str, Any]:
        found = mapping(value)
        lacking, odd = sorted(set(readers) - set(found)), sorted(set(found) - set(readers))
        if lacking or odd:
            raise ValueError(
                f"{what} must have the keys {', '.join(readers)}; missing: {shown(lacking)}, "
                f"unknown: {shown(odd)}".lstrip()
            )
        fields = {}
        for key, read in readers.items():
            with at(key):
                fields[key] = read(found[key])
        return fields

    return read_fields


def tagged(
    what: str,
    readers: Mapping[str, tuple[Mapping[str, Reader[Any]], Callable[..., T]]],
) -> Reader[T]:
    """Return a reader of objects whose key "type" says what they are.

    Parameters
    ----------
    what : str
        How messages call the object.
    readers : mapping from str to (mapping from str to Reader, callable)
        For each type its other keys with their readers, and what makes the object of the values,
        in this order.

    Examples
    --------
    >>> read = tagged("number", {"real": ({"value": number}, float)})
    >>> read({"type": "real", "value": 1})
    1.0
    """

    def read_tagged(value: Any) -> T:
        found = dict(value) if isinstance(value, Mapping) else {}
        kind = found.pop("type", None)
        if not isinstance(kind, str) or kind not in readers:
            raise ValueError(f"{what} type must be one of {sorted(readers)}, got {shown(kind)}")
        fields, build = readers[kind]
        return build(*object_with(fields, f"a {kind!r} {what}")(found).values())

    return read_tagged


@final
@dataclass(frozen=True)
class _Refused:
    """Stands in a parsed document for what may not be there, until its place is known."""

    problem: str


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for i, key in enumerate(keys) if key in keys[:i])
        return _Refused(f"must have each key once, but {shown(repeated)} is repeated")
    return found


def _integer(digits: str) -> int | _Refused:
    # Python refuses more than 4300 digits by an error that knows no place.
    if len(digits) <= _MOST_DIGITS and int(digits) in _INTEGERS:
        return int(digits)
    return _Refused(f"must be an integer of at most 64 bits, got {shown(digits)}")


def _check(value: Any, depth: int) -> None:
    """Look at everything in a parsed value for what may not be there."""
    if depth > _DEEPEST:
        raise DocumentError("", f"must be nested at most {_DEEPEST} levels deep")
    check = _CHECKS.get(type(value))
    if check is not None:
        check(value, depth)


def _check_float(value: float, _: int) -> None:
    if not math.isfinite(value):
        raise ValueError("must be a finite number")


def _check_integer(value: int, _: int) -> None:
    if value not in _INTEGERS:
        raise ValueError("must be an integer of at most 64 bits")


def _check_list(value: list[Any], depth: int) -> None:
    for position, entry in enumerate(value):
        _check_entry(position, entry, depth)


def _check_dict(value: dict[str, Any], depth: int) -> None:
    for key, entry in value.items():
        check_text(key)
        _check_entry(key, entry, depth)


def _check_entry(place: str | int, value: Any, depth: int) -> None:
    # A context manager for each number of a long list would take most of the time.
    try:
        _check(value, depth + 1)
    except ValueError:
        with at(place):
            raise


def _raise_refused(value: _Refused, _: int) -> None:
    raise ValueError(value.problem)


_CHECKS: dict[type, Callable[[Any, int], object]] = {
    float: _check_float,
    int: _check_integer,
    str: lambda value, _: check_text(value),
    list: _check_list,
    dict: _check_dict,
    _Refused: _raise_refused,
}
