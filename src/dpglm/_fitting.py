"""All-or-nothing fits, and the stack level of warnings."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar


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
