"""Public calls: checks of their arguments, fits that happen whole or not at all, and warnings."""

from __future__ import annotations

import copy
import functools
import inspect
import numbers
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

import numpy as np

from dpglm._validation import in_one_line, is_number, is_path

CallableT = TypeVar("CallableT", bound=Callable[..., Any])


def checked(function: CallableT) -> CallableT:
    """Check the arguments of a function, or of a class, against its annotations first.

    Numbers, text, paths, lists, mappings and instances of classes are checked, and other
    annotations are not. Arguments that do not fit end in a ValueError with their name.
    """
    if inspect.isclass(function):
        setattr(function, "__init__", checked(vars(function)["__init__"]))  # noqa: B010
        return function
    signature: inspect.Signature = inspect.signature(function)
    known = inspect.unwrap(function).__globals__
    # Read at the first call, when all modules are loaded.
    tests: dict[str, _Test] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            one = signature.parameters[name]
            if name not in tests:
                is_given = isinstance(one.annotation, str) and one.kind is not one.VAR_KEYWORD
                tests[name] = _test(one.annotation, known) if is_given else lambda _: True
            if value is not one.default and not tests[name](value):
                raise _refusal(name, value, one.annotation, known)
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


_Test: TypeAlias = Callable[[Any], bool]


def _refusal(name: str, value: Any, annotation: str, known: Mapping[str, Any]) -> ValueError:
    allowed = []
    for head, _, inner in (one.partition("[") for one in _split(annotation, " | ")):
        is_callable = typing.get_origin(known.get(head)) is Callable
        is_class = head[0].isupper() and head != "None" and isinstance(known.get(head), type | None)
        name_of_one = f"a{'n' * (head[0] in 'AEIO')} {head}" if is_class else head
        word = "callable" if is_callable else _WORDS.get(head, name_of_one)
        allowed.append(inner.removesuffix("]") if head == "Literal" else word)
    text = " or ".join(dict.fromkeys(allowed))
    return ValueError(f"{name} must be {text}, got {in_one_line(value)}")


def _split(annotation: str, mark: str) -> list[str]:
    """Split an annotation at marks outside brackets."""
    parts, depth, start = [], 0, 0
    for place, letter in enumerate(annotation):
        depth += (letter == "[") - (letter == "]")
        if depth == 0 and annotation.startswith(mark, place):
            parts.append(annotation[start:place])
            start = place + len(mark)
    return [*parts, annotation[start:]]


def _test(annotation: str, known: Mapping[str, Any]) -> _Test:
    """Return a test whether a value has one of the types of an annotation."""
    kinds = _split(annotation, " | ")
    if "os.PathLike[str]" in kinds:
        # Text is a path too, and not every text is one.
        kinds = [one for one in kinds if one != "str"]
    tests = [_test_of_one(kind, known) for kind in kinds]
    return tests[0] if len(tests) == 1 else lambda value: any(one(value) for one in tests)


def _test_of_one(kind: str, known: Mapping[str, Any]) -> _Test:
    head, _, inner = kind.partition("[")
    of = _split(inner.removesuffix("]"), ", ")
    if head in ("Sequence", "tuple"):
        each, size = _test(of[0], known), len(of)
        is_list, is_pair = _PLAIN["Sequence"], head == "tuple" and of[-1] != "..."
        return lambda value: (
            is_list(value) and (not is_pair or len(value) == size) and all(map(each, value))
        )
    if head == "Mapping":
        key, each = _test(of[0], known), _test(of[-1], known)
        return lambda value: (
            isinstance(value, Mapping) and all(map(key, value)) and all(map(each, value.values()))
        )
    if head == "Literal":
        return lambda value: repr(value) in of
    wanted = known.get(head)
    if head in _PLAIN or typing.get_origin(wanted) is Callable:
        return _PLAIN.get(head, callable)
    if inspect.isclass(wanted):
        return lambda value: isinstance(value, wanted)
    # A class that is imported for annotations only; others are aliases.
    is_class = wanted is None and head.isidentifier() and head[0].isupper()
    return lambda value: not is_class or head in (one.__name__ for one in type(value).__mro__)


def _is_array(value: Any) -> bool:
    try:
        return np.asarray(value, dtype=np.float64) is not None
    except (TypeError, ValueError, OverflowError):
        return False


_PLAIN: Mapping[str, _Test] = MappingProxyType(
    {
        "": lambda _: True,
        "Any": lambda _: True,
        "None": lambda one: one is None,
        "bool": lambda one: isinstance(one, bool | np.bool_),
        "int": lambda one: isinstance(one, numbers.Integral) and not isinstance(one, bool),
        "float": is_number,
        "str": lambda one: isinstance(one, str),
        "os.PathLike": lambda one: is_path(one),
        "Callable": callable,
        "ArrayLike": _is_array,
        "Sequence": lambda one: (
            isinstance(one, Sequence | np.ndarray) and not isinstance(one, str | bytes)
        ),
        **dict.fromkeys(("NDArray", "Vector", "Matrix"), lambda one: isinstance(one, np.ndarray)),
    }
)
_WORDS = MappingProxyType(
    {
        "bool": "True or False",
        "int": "an integer",
        "float": "a number",
        "str": "text",
        "os.PathLike": "the path of a file",
        "Sequence": "a list",
        "tuple": "a list",
        "Mapping": "a mapping",
        "ArrayLike": "an array of numbers",
        "NDArray": "an array",
        "Vector": "an array",
        "Matrix": "an array",
    }
)


# Fits, and the stack level of warnings.


def frames_to_the_user() -> int:
    """Return the stack level of the first frame outside the library, for a warning."""
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dpglm."):
        depth, frame = depth + 1, frame.f_back
    return depth + 1


E = TypeVar("E")
P = ParamSpec("P")

# Resources rather than settings: a fit uses these objects and not copies.
_LIVE = frozenset({"_family", "callback", "ledger", "random_state"})


def all_or_nothing(fit: Callable[Concatenate[E, P], E]) -> Callable[Concatenate[E, P], E]:
    """Run ``fit`` on a draft of the estimator, and install the result in a single assignment.

    If ``fit`` raises, the estimator is unchanged; no signal interrupts the assignment. The draft
    has copies of all parameters, so later changes of parameters, also in place, do not reach the
    fitted attributes.
    """

    @functools.wraps(fit)
    def fit_whole(self: E, /, *args: P.args, **kwargs: P.kwargs) -> E:
        draft = _draft(self)
        given = frozenset(vars(draft))
        fit(draft, *args, **kwargs)
        learned = {name: value for name, value in vars(draft).items() if name not in given}
        kept = {name: value for name, value in vars(self).items() if not _is_learned(name)}
        self.__dict__ = kept | learned
        return self

    return fit_whole


def _is_learned(name: str) -> bool:
    """Whether an attribute is set by a fit, in scikit-learn's convention."""
    return name.endswith("_") and not name.startswith("_")


def _draft(estimator: E) -> E:
    """Copy an estimator with its parameters and without its fitted attributes."""
    draft = object.__new__(type(estimator))
    attributes = vars(estimator)
    live = [attributes[name] for name in _LIVE & set(attributes)]
    # deepcopy keeps the objects in this table, also as parts of others.
    copies: dict[int, Any] = {id(value): value for value in live}
    for name, value in attributes.items():
        if _is_learned(name):
            continue
        try:
            setattr(draft, name, copy.deepcopy(value, copies))
        except TypeError as error:
            raise ValueError(f"{name} must be an object that can be copied: {error}") from None
    return draft
