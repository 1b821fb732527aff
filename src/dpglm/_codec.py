"""Dataclasses as JSON and back, driven by the types of their fields.

Supported: None, bool, int, float (infinite ones as ``"inf"`` and ``"-inf"``), text of one line,
enumerations by their values, tuples, mappings with text keys, unions, literals, arrays of numbers,
and frozen dataclasses of these. Numbers are exact. A type with another form declares it:
``Annotated[kind, Form(write, read)]``.

A dataclass is an object with the fields of its constructor, without the underscore at the end of a
name such as ``coef_``. A class with ``omits_defaults = True`` writes only the fields that differ
from their defaults; an absent field, null or an empty list is read as the default. For a field
declared as an abstract class, the key ``"type"`` names the subclass: a class of this library by its
name in snake case, another class by module and name. Reading looks the name up among the existing
subclasses, so the class tree is the registry, and a file cannot cause an import. If a class was
defined twice, as by running a notebook cell again, the last one counts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dpglm._json import at, check_writable, shown, text
from dpglm._registry import snake_case
from dpglm._words import did_you_mean

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


def line(value: Any) -> str:
    """Read text of one line, which cannot pose as further lines where it is shown."""
    found = text(value)
    if len(found.splitlines()) > 1:
        raise ValueError(f"must be one line of text, got {shown(value)}")
    return found


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


# Kinds of values: dataclasses, and containers of values.

_TYPE = "type"
_PACKAGE = __name__.partition(".")[0]
# Exceptions of constructors for inconsistent values of the right types.
_REFUSALS = (ArithmeticError, AttributeError, LookupError, TypeError)


def encode(value: Any, kind: Any = None) -> Any:
    """Return a value as JSON; a ValueError names the place of an unsupported value.

    ``kind`` is the type that it will be read as, by default its own class.

    >>> from dpglm.problem import L2Ball
    >>> from dpglm.problem.problem import Constraint
    >>> encode(L2Ball(2.0)), encode(L2Ball(2.0), Constraint)
    ({'radius': 2.0}, {'type': 'l2_ball', 'radius': 2.0})
    """
    own: Any = type(value) if kind is None else kind
    return _form(own).write(value)


def decode(kind: type[T], document: Any) -> T:
    """Read what ``encode`` wrote, trusting nothing in it; a ValueError names the place.

    >>> from dpglm.problem.problem import Constraint
    >>> decode(Constraint, {"type": "l2_ball", "radius": 2.0})
    L2Ball(radius=2.0)
    """
    own: Any = kind
    found: T = _form(own).read(document)
    return found


@functools.cache
def type_name(kind: type) -> str:
    """Return the name of a class in documents: its own attribute ``type_name``, or by its module.

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
class Format(Generic[T]):
    """Files of one format and version, each holding a value of one class.

    ``earlier`` maps versions that are no longer read to the release of this library that wrote
    them.
    """

    name: str
    version: int
    kind: type[T]
    earlier: Mapping[int, str] = field(default_factory=dict)

    def write(self, value: T) -> dict[str, Any]:
        """Return the document that holds a value."""
        kind: Any = self.kind
        return {"format": self.name, "version": self.version, **_form(kind).write(value)}

    def matches(self, document: Any) -> bool:
        """Whether a document declares this format."""
        return isinstance(document, Mapping) and document.get("format") == self.name

    def read(self, document: Any) -> T:
        """Read the value of a document; a ValueError names another format or version."""
        if not self.matches(document):
            raise ValueError(
                f"is not a {self.name}: it must have the format {self.name!r}, got "
                f"{shown(document.get('format')) if isinstance(document, Mapping) else 'no object'}"
            )
        fields = dict(document)
        del fields["format"]
        version = fields.pop("version", None)
        if type(version) is int and version in self.earlier:
            raise ValueError(
                f"was written by dpglm {self.earlier[version]} (version {version} of a "
                f"{self.name}, this is {self.version}): read it with that version"
            )
        if version != self.version:
            raise ValueError(f"must have version {self.version}, got {shown(version)}")
        return decode(self.kind, fields)


APART_FIELD: Mapping[str, bool] = MappingProxyType({"apart": True})
"""Metadata of a field with a default that is not in a document of its class."""


@functools.cache
def _form(kind: Any) -> Form:
    if kind in _PLAIN:
        return _PLAIN[kind]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in _GENERIC:
        return _GENERIC[origin](arguments)
    found = origin or kind
    if not isinstance(found, type):
        raise ValueError(f"values declared as {kind} cannot be written")
    if issubclass(found, enum.Enum):
        return Form(lambda value: found(value).value, lambda value: _member(found, value))
    if dataclasses.is_dataclass(found) and not inspect.isabstract(found):
        return _record(found)
    return _one_of((found,))


def _record(kind: type) -> Form:
    @functools.cache
    def fields() -> dict[str, tuple[str, Form]]:
        # When they are needed, as kinds may contain each other.
        try:
            hints = typing.get_type_hints(kind, include_extras=True)
        except (NameError, AttributeError, TypeError) as error:
            raise ValueError(f"the fields of {type_name(kind)} lack types: {error}") from error
        own = [one for one in dataclasses.fields(kind) if one.init and "apart" not in one.metadata]
        return {one.name.rstrip("_"): (one.name, _form(hints[one.name])) for one in own}

    defaults = {
        one.name: one.default
        for one in dataclasses.fields(kind)
        if getattr(kind, "omits_defaults", False) and one.default is not dataclasses.MISSING
    }

    def write(value: Any) -> dict[str, Any]:
        if type(value) is not kind:
            raise ValueError(f"must be a {kind.__qualname__}, got {shown(value)}")
        return each(
            (key, form.write, getattr(value, name))
            for key, (name, form) in fields().items()
            if name not in defaults or getattr(value, name) != defaults[name]
        )

    def read(document: Any) -> Any:
        found, own = mapping(document), fields()
        if getattr(kind, "omits_defaults", False):
            found = {key: one for key, one in found.items() if one is not None and one != []}
        required = {key for key, (name, _) in own.items() if name not in defaults}
        if not required <= found.keys() <= own.keys():
            lacking = sorted(required - found.keys())
            odd = sorted(found.keys() - own.keys(), key=str)
            name = type_name(kind).lstrip("_")
            what = f"type {name!r}" if "type_name" in vars(kind) else f"a {name}"
            optional = ", ".join(key for key in own if key not in required)
            raise ValueError(
                f"{what} must have the keys "
                f"{', '.join(key for key in own if key in required)}"
                f"{f' (optional: {optional})' if optional else ''}; missing: "
                f"{shown(lacking)}, unknown: {shown(odd)}{did_you_mean(odd[0], own) if odd else ''}"
            )
        values = each(
            (key, form.read, found[key]) for key, (_, form) in own.items() if key in found
        )
        try:
            return kind(**{own[key][0]: value for key, value in values.items()})
        except _REFUSALS as error:
            raise ValueError(f"makes no {type_name(kind)}: {error}") from error

    return Form(write, read)


def _one_of(bases: tuple[type, ...]) -> Form:
    """Write a value with the name of its class, which is one of these or below them."""
    names = " or ".join(base.__qualname__ for base in bases)
    concrete = functools.partial(_concrete, bases)
    return named(names, concrete, lambda value: isinstance(value, bases))


def named(what: str, kinds: Callable[[], Iterable[type]], accepts: Callable[[Any], bool]) -> Form:
    """Return the form of dataclasses of several kinds, each written with the name of its class."""

    def write(value: Any) -> dict[str, Any]:
        kind = type(value)
        if not accepts(value) or not dataclasses.is_dataclass(kind):
            raise ValueError(f"must be a {what} that is a dataclass, to be written, got {value!r}")
        found: dict[str, Any] = _form(kind).write(value)
        if _TYPE in found:
            raise ValueError(f"{kind.__qualname__} must not have a field named {_TYPE!r}")
        return {_TYPE: type_name(kind), **found}

    def read(document: Any) -> Any:
        found = mapping(document)
        name = found.pop(_TYPE, None)
        known = {type_name(one): one for one in kinds()}
        if not isinstance(name, str) or name not in known:
            module = name.rpartition(".")[0] if isinstance(name, str) else ""
            advice = f"; import {module} first" if module else ""
            raise ValueError(f"type must be one of {sorted(known)}, got {shown(name)}{advice}")
        return _form(known[name]).read(found)

    return Form(write, read)


def _concrete(bases: Iterable[type]) -> Iterator[type]:
    for base in bases:
        if dataclasses.is_dataclass(base) and not inspect.isabstract(base):
            yield base
        yield from _concrete(base.__subclasses__())


def _union(arms: tuple[Any, ...]) -> Form:
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
        form = Form(_first([one.write for one in forms]), _first([one.read for one in forms]))
    if len(others) == len(arms):
        return form
    return Form(
        lambda value: None if value is None else form.write(value),
        lambda value: None if value is None else form.read(value),
    )


def _first(ways: Sequence[Way]) -> Way:
    def convert(value: Any) -> Any:
        reasons = []
        for way in ways:
            try:
                return way(value)
            except ValueError as error:
                reasons.append(str(error))
        raise ValueError("; or ".join(reasons))

    return convert


def _tuple(kinds: tuple[Any, ...]) -> Form:
    if len(kinds) == 2 and kinds[1] is ...:
        form = _form(kinds[0])
        write = items(form.write)
        return Form(lambda value: list(write(value)), items(form.read))
    forms = [_form(kind) for kind in kinds]

    def convert(ways: Sequence[Way], value: Any) -> list[Any]:
        if not isinstance(value, list | tuple) or len(value) != len(ways):
            raise ValueError(f"must be an array of {len(ways)} values, got {shown(value)}")
        return list(each(zip(range(len(ways)), ways, value, strict=True)).values())

    return Form(
        lambda value: convert([one.write for one in forms], value),
        lambda value: tuple(convert([one.read for one in forms], value)),
    )


def _mapping(kinds: tuple[Any, ...]) -> Form:
    key, form = kinds[0], _form(kinds[1])
    if key is not str:
        raise ValueError(f"mappings must have text as keys, to be written, got {key}")

    def convert(way: Way) -> Way:
        return lambda value: each((name, way, one) for name, one in mapping(value).items())

    return Form(convert(form.write), convert(form.read))


def _literal(values: tuple[Any, ...]) -> Form:
    def check(value: Any) -> Any:
        if not any(type(value) is type(one) and value == one for one in values):
            raise ValueError(f"must be one of {list(values)}, got {shown(value)}")
        return value

    return Form(check, check)


def _member(kind: Any, value: Any) -> Any:
    members: list[enum.Enum] = list(kind)
    for one in members:
        if type(one.value) is type(value) and one.value == value:
            return one
    raise ValueError(f"must be one of {[one.value for one in members]}, got {shown(value)}")


@final
@dataclass(frozen=True)
class _Array:
    """An array of numbers as it is written."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[Annotated[Any, SCALAR], ...]


def _write_array(value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
        raise ValueError(f"must be an array of numbers, got {shown(value)}")
    arrays = APART.get()
    if arrays is not None:
        known = (name for name, one in arrays.items() if one is value)
        name = next(known, f"array_{len(arrays)}")
        arrays[name] = value
        return {"array": name}
    return encode(_Array(value.dtype.str, value.shape, tuple(value.ravel().tolist())))


def _read_array(document: Any) -> Any:
    arrays = APART.get()
    if arrays is not None:
        found = mapping(document)
        if found.keys() != {"array"} or text(found["array"]) not in arrays:
            raise ValueError(f"must be the name of an array, got {shown(document)}")
        return arrays[found["array"]]
    stated = decode(_Array, document)
    if re.fullmatch(r"[<>|][biuf][1248]", stated.dtype) is None:
        raise ValueError(f"must be of a type of numbers, got {shown(stated.dtype)}")
    size = len(stated.values)
    if min(stated.shape, default=0) < 0 or math.prod(stated.shape) != size:
        raise ValueError(f"must have as many values as shape {shown(stated.shape)}, got {size}")
    try:
        with np.errstate(over="ignore"):
            values = np.array(stated.values, dtype=stated.dtype)
    except (OverflowError, TypeError) as error:
        raise ValueError(f"must have values of type {stated.dtype}: {error}") from error
    if values.tolist() != list(stated.values):
        raise ValueError(f"must have values that the type {stated.dtype} holds exactly")
    return values.reshape(stated.shape)


Text: TypeAlias = Annotated[str, Form(text, text)]
"""Text of any number of lines."""

_ARRAY = Form(_write_array, _read_array)
_PLAIN: dict[Any, Form] = {
    Any: Form(write_json, lambda value: value),
    types.NoneType: _literal((None,)),
    bool: Form(lambda value: boolean(bool(value) if type(value) is np.bool_ else value), boolean),
    int: Form(write_integer, integer),
    float: Form(write_float, read_float),
    str: Form(line, line),
    np.ndarray: _ARRAY,
}
_GENERIC: dict[Any, Callable[[tuple[Any, ...]], Form]] = {
    Annotated: operator.itemgetter(1),
    typing.Union: _union,
    types.UnionType: _union,
    typing.Literal: _literal,
    tuple: _tuple,
    Sequence: lambda kinds: _tuple((*kinds, ...)),
    Mapping: _mapping,
    dict: _mapping,
    np.ndarray: lambda _: _ARRAY,
}
