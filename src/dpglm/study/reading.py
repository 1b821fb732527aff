"""Studies from TOML files."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Mapping
from typing import Any

from dpglm._json import at, in_file
from dpglm._validation import check_path
from dpglm.study.study import Study
from dpglm.tables.schema import Schema

__all__ = ["read_study"]

_PARTS = ("explore", "fit", "effects", "evaluate")
# Parameters that a file cannot hold.
_OBJECTS = ("schema", "budget", "parts", "split")


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read a study from a TOML file.

    Parameters
    ----------
    path : path-like
        The file: parameters of ``Study``, with ``schema`` the path of a schema relative to the
        file, and a table ``[explore]``, ``[fit]``, ``[effects]`` or ``[evaluate]`` for each part,
        with the parameters of that method.

    Raises
    ------
    ValueError
        If the file is not TOML, lacks the schema, or has an invalid key or value; the message names
        the place.
    OSError
        If a file cannot be read.

    Notes
    -----
    Privacy: a file of public facts, to be written before looking at the rows.
    """
    where = check_path("path", path)
    with in_file(where):
        try:
            document = tomllib.loads(where.read_text("utf-8-sig"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"is not TOML: {error}") from None
        parts = {name: document.pop(name) for name in _PARTS if name in document}
        if not isinstance(document.get("schema"), str):
            raise ValueError("must have a key 'schema', the path of the schema's file")
        schema = Schema.from_json(where.parent / document.pop("schema"))
        study = Study(schema, **_known(document, Study, *_PARTS))
        for name, given in parts.items():
            with at(name):
                if not isinstance(given, Mapping):
                    raise ValueError(f"must be a table, [{name}], got {given!r}")
                declare = getattr(study, name)
                study = declare(**_known(given, declare))
    return study


def _known(given: Mapping[str, Any], callee: Callable[..., Any], *others: str) -> dict[str, Any]:
    """Check that a function has these parameters; the error also names the keys ``others``."""
    parameters = inspect.signature(callee).parameters.values()
    allowed = [one.name for one in parameters if one.name not in _OBJECTS]
    takes_others = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    unknown = [] if takes_others else [name for name in given if name not in allowed]
    if unknown:
        keys = ", ".join([*allowed, *others])
        raise ValueError(f"must not have the key {unknown[0]!r}; allowed keys are {keys}")
    return dict(given)
