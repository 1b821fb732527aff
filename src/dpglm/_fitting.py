"""Whose line a warning is about."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar


def frames_to_the_user() -> int:
    """Count the frames from the caller of this up to the first one outside the library."""
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("dpglm."):
        depth, frame = depth + 1, frame.f_back
    return depth + 1


# A fit changes an estimator once, when it has succeeded, or not at all.

E = TypeVar("E")
P = ParamSpec("P")

# Resources, not settings: a fit must use these objects, not copies.
_LIVE = frozenset({"callback", "ledger", "random_state"})


def all_or_nothing(fit: Callable[Concatenate[E, P], E]) -> Callable[Concatenate[E, P], E]:
    """Let ``fit`` work on a draft of the estimator, and install what it learned in one assignment.

    Whatever ``fit`` raises, the estimator is as before; no signal interrupts the assignment. The
    draft has copies of all parameters, so changing these afterwards, in place or by ``set_params``,
    changes nothing that a fitted attribute holds.
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
    """Whether an attribute is what a fit sets, by scikit-learn's convention."""
    return name.endswith("_") and not name.startswith("_")


def _draft(estimator: E) -> E:
    """Copy an estimator with its parameters, but without what it has learned."""
    draft = object.__new__(type(estimator))
    attributes = vars(estimator)
    live = [attributes[name] for name in _LIVE & set(attributes)]
    # Objects that deepcopy finds here it takes as they are, also where they are parts of others.
    copies: dict[int, Any] = {id(value): value for value in live}
    for name, value in attributes.items():
        if _is_learned(name):
            continue
        try:
            setattr(draft, name, copy.deepcopy(value, copies))
        except TypeError as error:
            raise ValueError(f"{name} must be of a kind that can be copied: {error}") from None
    return draft
