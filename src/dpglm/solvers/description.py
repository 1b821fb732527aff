"""Public values as JSON that tells any two apart, and what differs between two such texts."""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import functools
import hashlib
import json
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["described", "differences"]

# Longer texts stand as their digests, so that a description of many columns stays short.
_LONGEST = 4000
_SHOWN = 60
_ABSENT = "absent"


@functools.singledispatch
def described(value: Any) -> Any:
    """Describe a value, with all that it is made of, as plain JSON.

    The same for equal values in any process, different for different ones; long parts become their
    SHA-256. Takes numbers, text, arrays, containers, dataclasses, and what ``pickle`` could write;
    raises ValueError where a part can be told from another in this process only, as a lambda.
    """
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        fields = {one.name: described(getattr(value, one.name)) for one in dataclasses.fields(kind)}
        return {"class": _qualified(kind), **fields}
    try:
        reduce = copyreg.dispatch_table.get(kind)
        made_by: Any = value.__reduce_ex__(2) if reduce is None else reduce(value)
    except TypeError as error:
        raise ValueError(f"{value!r} cannot be described: {error}") from None
    if isinstance(made_by, str):
        return {"class": _qualified(kind), "name": made_by}
    # Of an ordinary object: how it is made, its class, and its attributes.
    parts = [described(part) for part in made_by[:3]]
    return {"class": _qualified(kind), "made by": _shortened(parts)}


@described.register(type(None))
@described.register(bool)
@described.register(int)
@described.register(float)
def _(value: Any) -> Any:
    return value


@described.register
def _(value: str) -> Any:
    return _shortened(str(value))


@described.register
def _(value: bytes) -> Any:
    return {"bytes": _shortened(value.hex())}


@described.register
def _(value: enum.Enum) -> Any:
    return {"class": _qualified(type(value)), "name": value.name}


@described.register
def _(value: np.generic) -> Any:
    return described(value.item())


@described.register
def _(value: np.ndarray) -> Any:
    return {"dtype": str(value.dtype), "array": described(value.tolist())}


@described.register(list)
@described.register(tuple)
@described.register(range)
def _(value: Any) -> Any:
    return _shortened([described(part) for part in value])


@described.register(set)
@described.register(frozenset)
def _(value: Any) -> Any:
    return {"set": _shortened(sorted(_text(described(part)) for part in value))}


@described.register
def _(value: Mapping) -> Any:  # type: ignore[type-arg]
    if all(type(key) is str for key in value):
        return _shortened({key: described(part) for key, part in value.items()})
    pairs = [[described(key), described(part)] for key, part in value.items()]
    return {"mapping": _shortened(sorted(pairs, key=_text))}


@described.register(type)
@described.register(types.FunctionType)
@described.register(types.BuiltinFunctionType)
def _(value: Any) -> Any:
    name = _qualified(value)
    if "<" in name or getattr(value, "__closure__", None):
        raise ValueError(f"{name} cannot be described: it has no name that another process knows")
    return {"named": name, "of": described(getattr(value, "__self__", None))}


@described.register
def _(value: types.ModuleType) -> Any:
    return {"module": value.__name__}


def differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Say where two descriptions differ: "problem.loss.class was 'Logistic', is 'Squared'"."""
    if _text(before) == _text(now):
        return []
    nested = isinstance(before, dict) and isinstance(now, dict)
    # Of two of different kinds, that says enough.
    for kind in ("class", "type"):
        if nested and before.get(kind) != now.get(kind):
            before, now, nested = before.get(kind, before), now.get(kind, now), False
    if not nested:
        return [f"{name} was {_short(before)}, is {_short(now)}"]
    return [
        one
        for key in (before | now)
        for one in differences(
            before.get(key, _ABSENT), now.get(key, _ABSENT), f"{name}.{key}" if name else key
        )
    ]


def _qualified(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _text(value: Any) -> str:
    """Write JSON: other than Python's values, True and 1 and 1.0 differ."""
    return json.dumps(value, sort_keys=True)


def _shortened(value: Any) -> Any:
    text = _text(value)
    if len(text) <= _LONGEST:
        return value
    return {"sha256": hashlib.sha256(text.encode()).hexdigest(), "length": len(value)}


def _short(value: Any) -> str:
    text = value if value == _ABSENT else _text(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
