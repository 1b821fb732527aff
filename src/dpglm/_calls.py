"""Public calls: checks of arguments, fits that happen whole or not at all, progress, warnings."""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import importlib.util
import inspect
import itertools
import numbers
import sys
import time
import typing
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, final

import numpy as np

from dpglm._validation import in_one_line, is_number, is_path

T = TypeVar("T")
_TENTHS = 10


@final
@dataclass(frozen=True)
class ProgressStage:
    """Progress of a stage: ``done`` of ``total``, which is None if unknown.

    Privacy: names and counts are public and do not depend on rows: steps of a plan, runs of an
    audit, tenths of a pass over rows. When they are shown depends on the rows, and so may
    the number of passes of a step.
    """

    name: str
    done: int
    total: int | None
    depth: int = 0
    is_over: bool = False


Listener: TypeAlias = Callable[[ProgressStage], None]


_TELLING: ContextVar[tuple[Listener, list[object]] | None]
_TELLING = ContextVar("dpglm_progress", default=None)
"""The listener, and the open stages."""


def is_listening() -> bool:
    """Whether there is a listener."""
    return _TELLING.get() is not None


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call a listener with each stage of this block that begins, advances or ends.

    After an exception, which is dropped, it is not called again: its errors must not end a charged
    run.
    """
    failed = False

    def tell(one: ProgressStage) -> None:
        nonlocal failed
        if not failed:
            failed = True
            with contextlib.suppress(Exception):
                listener(one)
                failed = False

    token = _TELLING.set((tell, []))
    try:
        yield
    finally:
        _TELLING.reset(token)


@contextlib.contextmanager
def stage(
    name: str, total: int | None = None, *, least_depth: int = 0
) -> Iterator[Callable[[int], None]]:
    """Report the progress of a block; yield a function to call with each advance.

    Name and total are public. A ``least_depth`` of 1 marks a part of a larger stage, reported or
    not.
    """
    telling = _TELLING.get()
    if telling is None:
        yield lambda by: None
        return
    tell, opened = telling
    mark, depth, done = object(), max(least_depth, len(opened)), 0
    opened.append(mark)

    def advance(by: int) -> None:
        nonlocal done
        done += by
        if by:
            tell(ProgressStage(name, done, total, depth))

    tell(ProgressStage(name, 0, total, depth))
    try:
        yield advance
    finally:
        opened.remove(mark)
        tell(ProgressStage(name, done, total, depth, is_over=True))


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Report nothing of this block, as the number of its stages is secret."""
    token = _TELLING.set(None)
    try:
        yield
    finally:
        _TELLING.reset(token)


def tenths(
    name: str, items: Iterable[T], size: Callable[[T], int], total: int
) -> Generator[T, None, None]:
    """Yield items and report each tenth of them by size.

    Privacy: ``total``, the sum of sizes, may be private; ten tenths are reported for any total.
    """
    with stage(name, _TENTHS, least_depth=1) as advance:
        seen = told = 0
        for item in items:
            yield item
            seen += size(item)
            reached = min(_TENTHS, _TENTHS * seen // max(total, 1))
            for _ in range(reached - told):
                advance(1)
            told = reached


# Progress as bars in a terminal or a notebook, or as lines in a log.

Clock: TypeAlias = Callable[[], float]
_LINES_OF_A_LOG = 4
_PATIENCE = 1.0
"""Seconds after which a nested stage gets its own bar."""
_SPEED = {"speed_estimate_period": 3600.0}
"""Window of rich's estimate in seconds, as a step may take longer than the default 30."""
_PAUSE = 0.1
"""Seconds between updates of a bar."""


def is_watched() -> bool:
    """Whether rich draws bars: in a terminal, or with ipywidgets in a notebook."""
    # Neither is imported for the test.
    in_notebook = "IPython" in sys.modules and _is_installed("ipywidgets")
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not (in_notebook or on_terminal) or not _is_installed("rich"):
        return False
    console = _console()
    if console.is_jupyter:
        return in_notebook
    return bool(on_terminal and console.is_terminal and not console.is_dumb_terminal)


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


@contextlib.contextmanager
def shown() -> Iterator[None]:
    """Show the progress of this block; no effect within another such block.

    Transient bars with the remaining time where ``is_watched``; else a line on standard error after
    each quarter of the outermost stages.
    """
    if is_listening():
        yield
        return
    if not is_watched():
        with listening(in_lines(lambda text: sys.stderr.write(f"{text}\n"))):
            yield
        return
    rich = importlib.import_module("rich.progress")
    progress = rich.Progress(*_columns(), console=_console(), transient=True, **_SPEED)
    with progress as bars, listening(in_bars(bars)):
        yield


def in_lines(write: Callable[[str], Any]) -> Listener:
    """Return a listener that writes a line after each quarter of an outermost stage."""
    quarters = 0

    def listen(one: ProgressStage) -> None:
        nonlocal quarters
        if one.depth or one.is_over or not one.total:
            return
        before, quarters = quarters, one.done * _LINES_OF_A_LOG // one.total
        if quarters > before:
            write(f"{one.name}: {one.done} of {one.total}")

    return listen


def in_bars(bars: Any, clock: Clock = time.monotonic) -> Listener:
    """Return a listener that draws bars with rich."""
    began: dict[int, float] = {}
    # The bar of each depth, and the time of its last update.
    drawn: dict[int, tuple[Any, float]] = {}

    def listen(one: ProgressStage) -> None:
        now = clock()
        start = began.setdefault(one.depth, now)
        bar, last = drawn.get(one.depth, (None, -1e300))
        if one.is_over:
            del began[one.depth]
            if drawn.pop(one.depth, None) is not None:
                bars.remove_task(bar)
            return
        is_long = one.depth == 0 or bar is not None or now - start >= _PATIENCE
        if not is_long or (now - last < _PAUSE and one.done != one.total):
            return
        if bar is None:
            name, left = "  " * one.depth + one.name, "left" if one.total else ""
            bar = bars.add_task(name, total=one.total, left=left)
        bars.update(bar, completed=one.done)
        drawn[one.depth] = bar, now

    return listen


def _console() -> Any:
    return importlib.import_module("rich.console").Console(stderr=True)


def _columns() -> tuple[Any, ...]:
    """Return the columns of a bar: name, bar, counts and the remaining time."""
    rich = importlib.import_module("rich.progress")
    return (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeRemainingColumn(),
        rich.TextColumn("{task.fields[left]}"),
    )


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
    parameters = signature.parameters
    by_place = [key for key, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD]
    known = inspect.unwrap(function).__globals__
    # Read at the first call, when all modules are loaded.
    tests: dict[str, _Test] = {}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(by_place, args, strict=False)) | kwargs
        if len(given) < len(args) + len(kwargs) or not given.keys() <= parameters.keys():
            given = signature.bind(*args, **kwargs).arguments
        for name, value in given.items():
            one = parameters[name]
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
        word = "callable" if is_callable else _KINDS.get(head, ("",))[0] or name_of_one
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
        tests = [_test(one, known) for one in of if one != "..."]
        is_list, is_fixed = _KINDS[head][1], head == "tuple" and of[-1] != "..."
        return lambda value: (
            is_list(value)
            and (not is_fixed or len(value) == len(tests))
            and all(test(one) for test, one in zip(itertools.cycle(tests), value, strict=False))
        )
    if head == "Mapping":
        key, each = _test(of[0], known), _test(of[-1], known)
        return lambda value: (
            isinstance(value, Mapping) and all(map(key, value)) and all(map(each, value.values()))
        )
    if head == "Literal":
        return lambda value: repr(value) in of
    wanted = known.get(head)
    if head in _KINDS or typing.get_origin(wanted) is Callable:
        return _KINDS.get(head, ("", callable))[1]
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


# The word for values of an annotation, "" for its own name, and their test.
_KINDS: Mapping[str, tuple[str, _Test]] = MappingProxyType(
    {
        "": ("", lambda _: True),
        "Any": ("", lambda _: True),
        "None": ("", lambda one: one is None),
        "bool": ("True or False", lambda one: isinstance(one, bool | np.bool_)),
        "int": (
            "an integer",
            lambda one: isinstance(one, numbers.Integral) and not isinstance(one, bool),
        ),
        "float": ("a number", is_number),
        "str": ("text", lambda one: isinstance(one, str)),
        "os.PathLike": ("the path of a file", is_path),
        "Callable": ("", callable),
        "ArrayLike": ("an array of numbers", _is_array),
        "Mapping": ("a mapping", lambda one: isinstance(one, Mapping)),
        **dict.fromkeys(
            ("Sequence", "tuple"),
            (
                "a list",
                lambda one: (
                    isinstance(one, Sequence | np.ndarray) and not isinstance(one, str | bytes)
                ),
            ),
        ),
        **dict.fromkeys(
            ("NDArray", "Vector", "Matrix"), ("an array", lambda one: isinstance(one, np.ndarray))
        ),
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
        given = dict(vars(draft))
        fit(draft, *args, **kwargs)
        # Private attributes of an earlier fit are in the draft, and replaced by this one.
        learned = {
            name: value
            for name, value in vars(draft).items()
            if name not in given or value is not given[name]
        }
        kept = {name: value for name, value in vars(self).items() if name in given}
        self.__dict__ = kept | learned
        return self

    return fit_whole


def _draft(estimator: E) -> E:
    """Copy an estimator with its parameters and without its fitted attributes."""
    draft = object.__new__(type(estimator))
    attributes = vars(estimator)
    live = [attributes[name] for name in _LIVE & set(attributes)]
    # deepcopy keeps the objects in this table, also as parts of others.
    copies: dict[int, Any] = {id(value): value for value in live}
    for name, value in attributes.items():
        # Attributes that a fit sets, in scikit-learn's convention, stay behind.
        if name.endswith("_") and not name.startswith("_"):
            continue
        try:
            setattr(draft, name, copy.deepcopy(value, copies))
        except TypeError as error:
            raise ValueError(f"{name} must be an object that can be copied: {error}") from None
    return draft
