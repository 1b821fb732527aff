"""Constructor parameters of estimators, declared and documented once, on scikit-learn's bases."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import types
import typing
from typing import TYPE_CHECKING, Any, dataclass_transform

if TYPE_CHECKING:
    from typing import Self

    from sklearn.utils import Tags

    class BaseEstimator:
        def get_params(self, deep: bool = True) -> dict[str, Any]: ...
        def set_params(self, **params: Any) -> Self: ...
        def __sklearn_clone__(self) -> Self: ...
        def __sklearn_tags__(self) -> Tags: ...

    class Mixin: ...

    ClassifierMixin = Mixin
    MetaEstimatorMixin = Mixin
    RegressorMixin = Mixin

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin  # noqa: F401

_SECTION = re.compile(r"^(\w[\w ]*)\n-+\n", re.MULTILINE)
_ENTRY = re.compile(r"^(?=\S)", re.MULTILINE)
_ORDER = ("Parameters", "Attributes", "Notes", "References", "Examples")
_LISTS = ("Parameters", "Attributes")


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(dataclasses.field,))
class Declared(BaseEstimator):
    """An estimator with its annotated attributes as constructor parameters.

    They are keyword-only unless declared by ``field(kw_only=False)``. A subclass inherits
    parameters and attributes with their descriptions, and the docstring sections that it lacks.
    Its own parameters come first, or last with ``own_first=False``.
    """

    def __init_subclass__(cls, *, own_first: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):  # a constructor of a user
            return
        base: Any = next(one for one in cls.__mro__[1:] if issubclass(one, Declared))
        made: Any = dataclasses.dataclass(kw_only=True, eq=False, repr=False, match_args=False)(cls)
        fields, init = dataclasses.fields(made), made.__init__
        # Shown as written; resolved with the names in the module of each class.
        init.__signature__ = inspect.signature(init)
        own = types.SimpleNamespace(__annotations__=vars(cls).get("__annotations__", {}))
        hints = typing.get_type_hints(own, vars(sys.modules[cls.__module__]))
        known = {} if base is Declared else base.__init__.__annotations__
        init.__annotations__ = known | hints | {"return": None}
        if cls.__doc__:
            inherited = {} if base is Declared else _parsed(base.__doc__)[1]
            positional = [one.name for one in fields if not one.kw_only]
            cls.__doc__ = _completed(cls.__doc__, inherited, positional, own_first=own_first)


def _completed(
    doc: str, inherited: dict[str, str], positional: list[str], *, own_first: bool
) -> str:
    """Add the parameters, attributes and sections of the base."""
    head, sections = _parsed(doc)
    sections = inherited | sections
    for title in set(_LISTS) & set(sections):
        own, theirs = _entries(sections[title]), _entries(inherited.get(title, ""))
        entries = own | theirs | own if own_first else theirs | own
        if title == "Parameters":
            entries = {name: entries[name] for name in positional} | entries
        sections[title] = "".join(entries.values())
    titles = sorted(sections, key=_ORDER.index)
    parts = [f"{title}\n{'-' * len(title)}\n{sections[title]}" for title in titles]
    return "\n".join([f"{head.strip()}\n", *parts])


def _parsed(doc: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring into its head and its sections by title."""
    head, *rest = _SECTION.split(inspect.cleandoc(doc or ""))
    bodies = (body.strip() + "\n" for body in rest[1::2])
    return head, dict(zip(rest[::2], bodies, strict=True))


def _entries(text: str) -> dict[str, str]:
    """Split a list of parameters by name."""
    entries = [entry for entry in _ENTRY.split(text) if entry.strip()]
    return {entry.partition("\n")[0].partition(" : ")[0]: entry for entry in entries}
