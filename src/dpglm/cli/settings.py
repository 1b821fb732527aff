"""Values of settings, read from text as the annotation of the parameter says."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, final

__all__ = ["Setting", "settings_of"]

_READ_AS: Mapping[str, bool] = MappingProxyType({"true": True, "false": False})


def _none(text: str) -> None:
    if text.strip().lower() not in ("none", "null"):
        raise ValueError


def _truth(text: str) -> bool:
    try:
        return _READ_AS[text.strip().lower()]
    except KeyError:
        raise ValueError from None


def _whole(text: str) -> int:
    if "_" in text:
        raise ValueError
    return int(text)


def _number(text: str) -> float:
    try:
        return _whole(text)
    except ValueError:
        value = float(text)
        if "_" in text or math.isnan(value):
            raise ValueError from None
        return value


def _mapping(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError
    return value


def _text(text: str) -> str:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return text
    return value if isinstance(value, str) else text


@final
@dataclass(frozen=True)
class _Reader:
    """Reads one kind of value."""

    read: Callable[[str], Any]
    words: str


# In this order: what one of them takes is not text.
_READERS: Mapping[Any, _Reader] = MappingProxyType(
    {
        types.NoneType: _Reader(_none, "none"),
        bool: _Reader(_truth, "true or false"),
        int: _Reader(_whole, "a whole number"),
        float: _Reader(_number, "a number"),
        Mapping: _Reader(_mapping, 'a JSON object such as {"yes": 2}'),
        str: _Reader(_text, "text"),
    }
)


@final
@dataclass(frozen=True)
class Setting:
    """A parameter that can be set by text."""

    name: str
    readers: tuple[_Reader, ...]

    def value(self, text: str) -> Any:
        """Read a value: None, a bool, a number, a dict or text."""
        for reader in self.readers:
            try:
                return reader.read(text)
            except ValueError:
                continue
        allowed = " or ".join(reader.words for reader in self.readers)
        raise ValueError(f"{self.name} must be {allowed}, got {text!r}")


def settings_of(annotations: Mapping[str, Any]) -> dict[str, Setting]:
    """List the parameters, of types as ``typing.get_type_hints`` gives them, that text can set."""
    found = {name: Setting(name, _readers(kind)) for name, kind in annotations.items()}
    nothing = _READERS[types.NoneType]
    return {name: one for name, one in sorted(found.items()) if set(one.readers) - {nothing}}


def _readers(kind: Any) -> tuple[_Reader, ...]:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        return (_choice(typing.get_args(kind)),)
    if origin in (types.UnionType, typing.Union):
        parts = [one for part in typing.get_args(kind) for one in _readers(part)]
        known = list(_READERS.values())
        return tuple(sorted(parts, key=lambda one: known.index(one) if one in known else 0))
    reader = _READERS.get(origin or kind)
    return () if reader is None else (reader,)


def _choice(allowed: tuple[Any, ...]) -> _Reader:
    def read(text: str) -> Any:
        if _text(text) not in allowed:
            raise ValueError
        return _text(text)

    return _Reader(read, " or ".join(map(repr, allowed)))
