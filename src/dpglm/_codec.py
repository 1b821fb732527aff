"""Dataclasses as JSON and back, driven by the types of their fields.

What is written: None, bool, int, float (infinite ones as ``"inf"`` and ``"-inf"``), text of one
line, enumerations by their values, tuples, mappings with text as keys, unions, literals, arrays of
numbers, and frozen dataclasses of these. Numbers come back bit for bit.

A dataclass is an object with the fields that its constructor takes. Where a field is declared as an
abstract class, the key ``"type"`` says which of its subclasses the value is: the name of a class of
this library in lower case with underscores, of another class its module and name. Reading looks
that up among the subclasses that exist, so the class tree is the registry, and no file can make
anything be imported. Of classes that were defined twice, as by a cell that ran twice, the last
one counts.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, final

import numpy as np

from dpglm._json import (
    Reader,
    at,
    boolean,
    check_writable,
    integer,
    items,
    line,
    mapping,
    mapping_of,
    nullable,
    number,
    object_with,
    shown,
    text,
)
from dpglm._registry import snake_case

__all__ = ["decode", "encode", "type_name"]

T = TypeVar("T")

_TYPE = "type"
_PACKAGE = __name__.partition(".")[0]
_INFINITE = {"inf": math.inf, "-inf": -math.inf}
# What constructors raise for values that are of their types and yet make no sense.
_REFUSALS = (ArithmeticError, AttributeError, LookupError, TypeError)


def encode(value: Any, kind: Any = None) -> Any:
    """Write a value as JSON.

    Parameters
    ----------
    value : object
        Of the kinds above.
    kind : type, optional
        As what it will be read; by default its own class.

    Returns
    -------
    JSON value
        From which ``decode`` makes an equal value.

    Raises
    ------
    ValueError
        If a part of it cannot be written; the message names the place.

    Examples
    --------
    >>> from dpglm.problem import L2Ball
    >>> from dpglm.problem.constraints import Constraint
    >>> encode(L2Ball(2.0)), encode(L2Ball(2.0), Constraint)
    ({'radius': 2.0}, {'type': 'l2_ball', 'radius': 2.0})
    """
    own: Any = type(value) if kind is None else kind
    return _form(own).write(value)


def decode(kind: type[T], document: Any) -> T:
    """Read what ``encode`` wrote.

    Parameters
    ----------
    kind : type
        As in ``encode``. An abstract class stands for all of its subclasses.
    document : JSON value
        Nothing in it is trusted.

    Returns
    -------
    object

    Raises
    ------
    ValueError
        If it is not such a value; the message names the place.

    Examples
    --------
    >>> from dpglm.problem.constraints import Constraint
    >>> decode(Constraint, {"type": "l2_ball", "radius": 2.0})
    L2Ball(radius=2.0)
    """
    own: Any = kind
    read: Reader[T] = _form(own).read
    return read(document)


def type_name(kind: type) -> str:
    """Return the name of a class in documents: its own attribute ``type_name``, or by its module.

    Examples
    --------
    >>> import decimal
    >>> from dpglm.privacy import ZeroConcentratedDP
    >>> type_name(ZeroConcentratedDP), type_name(decimal.Decimal)
    ('zero_concentrated_dp', 'decimal.Decimal')
    """
    own: str | None = vars(kind).get("type_name")
    if own is not None:
        return own
    if kind.__module__.partition(".")[0] != _PACKAGE:
        return f"{kind.__module__}.{kind.__qualname__}"
    return snake_case(kind.__qualname__)


@final
@dataclass(frozen=True)
class _Form:
    """How values of one kind are written and read."""

    write: Callable[[Any], Any]
    read: Reader[Any]


@functools.cache
def _form(kind: Any) -> _Form:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in _GENERIC:
        return _GENERIC[origin](arguments)
    found = origin or kind
    if not isinstance(found, type):
        raise ValueError(f"values declared as {kind} cannot be written")
    if issubclass(found, enum.Enum):
        return _Form(lambda value: found(value).value, lambda value: _member(found, value))
    if dataclasses.is_dataclass(found) and not inspect.isabstract(found):
        return _record(found)
    return _one_of((found,))


def _record(kind: type) -> _Form:
    @functools.cache
    def fields() -> dict[str, _Form]:
        # When they are needed, as kinds may contain each other.
        hints = typing.get_type_hints(kind)
        return {one.name: _form(hints[one.name]) for one in dataclasses.fields(kind) if one.init}

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            raise ValueError(f"must be a {kind.__qualname__}, got {shown(value)}")
        found = {}
        for name, form in fields().items():
            with at(name):
                found[name] = form.write(getattr(value, name))
        return found

    def read(document: Any) -> Any:
        readers = {name: form.read for name, form in fields().items()}
        found = object_with(readers, f"a {type_name(kind)}")(document)
        try:
            return kind(**found)
        except _REFUSALS as error:
            raise ValueError(f"makes no {type_name(kind)}: {error}") from error

    return _Form(write, read)


def _one_of(bases: tuple[type, ...]) -> _Form:
    """Write a value with the name of its class, which is one of these or below them."""

    def write(value: Any) -> dict[str, Any]:
        kind = type(value)
        if not isinstance(value, bases) or not dataclasses.is_dataclass(kind):
            names = " or ".join(base.__qualname__ for base in bases)
            raise ValueError(f"must be a {names} that is a dataclass, to be written, got {value!r}")
        found: dict[str, Any] = _form(kind).write(value)
        if _TYPE in found:
            raise ValueError(f"{kind.__qualname__} must have no field named {_TYPE!r}")
        return {_TYPE: type_name(kind), **found}

    def read(document: Any) -> Any:
        found = mapping(document)
        with at(_TYPE):
            name = line(found.pop(_TYPE, None))
        known = {type_name(one): one for base in bases for one in _concrete(base)}
        if name not in known:
            names = " or ".join(base.__qualname__ for base in bases)
            advice = f": import {name.rpartition('.')[0]} first" if "." in name else ""
            raise ValueError(
                f"type must be one of {sorted(known)}, got {shown(name)}, which no {names} is "
                f"called{advice}"
            )
        return _form(known[name]).read(found)

    return _Form(write, read)


def _concrete(base: type) -> Iterator[type]:
    if dataclasses.is_dataclass(base) and not inspect.isabstract(base):
        yield base
    below: list[type] = base.__subclasses__()
    for one in below:
        yield from _concrete(one)


def _union(arms: tuple[Any, ...]) -> _Form:
    """Write None, one of several classes, or else a value of the first kind that takes it."""
    others = [arm for arm in arms if arm is not types.NoneType]
    # An integer is a float as well.
    others.sort(key=lambda arm: arm is float)
    classes = [arm for arm in others if isinstance(arm, type) and dataclasses.is_dataclass(arm)]
    if len(others) == 1:
        form = _form(others[0])
    elif len(classes) == len(others):
        form = _one_of(tuple(classes))
    else:
        forms = [_form(arm) for arm in others]
        form = _Form(_first([one.write for one in forms]), _first([one.read for one in forms]))
    if len(others) == len(arms):
        return form
    return _Form(lambda value: None if value is None else form.write(value), nullable(form.read))


def _first(ways: Sequence[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        reasons = []
        for way in ways:
            try:
                return way(value)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError("; or ".join(reasons))

    return convert


def _tuple(kinds: tuple[Any, ...]) -> _Form:
    if len(kinds) == 2 and kinds[1] is ...:
        form = _form(kinds[0])
        write, read = items(form.write), items(form.read)
        return _Form(lambda value: list(write(value)), read)
    forms = [_form(kind) for kind in kinds]

    def each(ways: Sequence[Callable[[Any], Any]], value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or len(value) != len(ways):
            raise ValueError(f"must be an array of {len(ways)} values, got {shown(value)}")
        found = []
        for position, (way, entry) in enumerate(zip(ways, value, strict=True)):
            with at(position):
                found.append(way(entry))
        return tuple(found)

    return _Form(
        lambda value: list(each([one.write for one in forms], value)),
        lambda value: each([one.read for one in forms], value),
    )


def _mapping(kinds: tuple[Any, ...]) -> _Form:
    key, form = kinds[0], _form(kinds[1])
    if key is not str:
        raise ValueError(f"mappings must have text as keys, to be written, got {key}")
    return _Form(mapping_of(form.write), mapping_of(form.read))


def _literal(values: tuple[Any, ...]) -> _Form:
    def check(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            raise ValueError(f"must be one of {list(values)}, got {shown(value)}")
        return value

    return _Form(check, check)


def _member(kind: Any, value: Any) -> Any:
    members: list[enum.Enum] = list(kind)
    for one in members:
        if type(one.value) is type(value) and one.value == value:
            return one
    raise ValueError(f"must be one of {[one.value for one in members]}, got {shown(value)}")


def _array(arguments: tuple[Any, ...]) -> _Form:
    def write(value: Any) -> dict[str, Any]:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise ValueError(f"must be an array of numbers, got one of {array.dtype}")
        flat = array.ravel().tolist()
        if array.dtype.kind == "f":
            flat = [_float(one) for one in flat]
        return {"dtype": array.dtype.str, "shape": list(array.shape), "values": flat}

    def read(document: Any) -> Any:
        found = object_with({"dtype": line, "shape": items(integer), "values": _VALUES})(document)
        values, shape = found["values"], found["shape"]
        if re.fullmatch(r"[<>|][biuf][1248]", found["dtype"]) is None:
            raise ValueError(f"must be of a type of numbers, got {shown(found['dtype'])}")
        if min(shape, default=0) < 0 or math.prod(shape) != len(values):
            raise ValueError(f"must have as many values as shape {shown(shape)}, got {len(values)}")
        return np.array(values, dtype=found["dtype"]).reshape(shape)

    return _Form(write, read)


def _float(value: Any) -> float | str:
    if isinstance(value, bool | np.bool_) or not isinstance(value, float | int | np.number):
        raise ValueError(f"must be a number, got {shown(value)}")
    found = float(value)
    if found != value:
        raise ValueError(f"must be a number that a float holds exactly, got {shown(value)}")
    return found if math.isfinite(found) else str(found)


def _read_float(value: Any) -> float:
    return _INFINITE[value] if isinstance(value, str) and value in _INFINITE else number(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise ValueError(f"must be an integer, got {shown(value)}")
    return integer(operator.index(value))


def _json_value(value: Any) -> Any:
    check_writable(value)
    if isinstance(value, Mapping):
        return {text(key): _json_value(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError(f"must be a JSON value, got {shown(value)}")


_VALUES = items(lambda value: value if isinstance(value, bool | int) else _read_float(value))
_PLAIN: dict[Any, _Form] = {
    Any: _Form(_json_value, lambda value: value),
    types.NoneType: _Form(_literal((None,)).write, _literal((None,)).read),
    bool: _Form(lambda value: boolean(bool(value) if type(value) is np.bool_ else value), boolean),
    int: _Form(_integer, integer),
    float: _Form(_float, _read_float),
    str: _Form(line, line),
}
_GENERIC: dict[Any, Callable[[tuple[Any, ...]], _Form]] = {
    typing.Union: _union,
    types.UnionType: _union,
    typing.Literal: _literal,
    tuple: _tuple,
    Sequence: lambda kinds: _tuple((*kinds, ...)),
    Mapping: _mapping,
    dict: _mapping,
    np.ndarray: _array,
}
