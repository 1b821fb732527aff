"""Registries that a package's exports fill: a new member is found by its export."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["makers_in", "snake_case"]

_WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z0-9])(?=[A-Z][a-z])")


def snake_case(name: str) -> str:
    """Return the name of a class in lower case with underscores.

    >>> [snake_case(name) for name in ("NoisyGD", "SVRGPlusPlus", "D2P2", "L2Ball")]
    ['noisy_gd', 'svrg_plus_plus', 'd2p2', 'l2_ball']
    """
    return _WORDS.sub("_", name).lower()


def makers_in(namespace: Mapping[str, Any], kind: type) -> dict[str, Callable[[], Any]]:
    """Return, by name, the callables of a module that make an object of a kind without arguments.

    These are concrete subclasses, by their names in lower case with underscores, and functions
    declared to return the kind.
    """
    return dict(sorted(_makers(namespace.values(), kind)))


def _makers(values: Any, kind: type) -> Iterator[tuple[str, Callable[[], Any]]]:
    for value in values:
        if inspect.isclass(value):
            made: Any = value
        elif inspect.isfunction(value) and _needs_nothing(value):
            made = typing.get_type_hints(value).get("return")
        else:
            continue
        if not (inspect.isclass(made) and issubclass(made, kind) and not inspect.isabstract(made)):
            continue
        if made is not value or _needs_nothing(value):
            yield snake_case(value.__name__), value


def _needs_nothing(make: Callable[..., Any]) -> bool:
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return all(
        one.default is not inspect.Parameter.empty or one.kind in optional
        for one in inspect.signature(make).parameters.values()
    )
