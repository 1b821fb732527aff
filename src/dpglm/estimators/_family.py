"""What an estimator and its copies did in this process, and when that deserves a warning."""

from __future__ import annotations

import warnings
from typing import Any, Self, final

from dpglm._words import rounded_up
from dpglm.data.collection import Collection
from dpglm.estimators._frames import frames_to_the_user
from dpglm.exceptions import UnpaidReleaseWarning
from dpglm.privacy.accounting.calibrate import spent
from dpglm.privacy.events import Composed, canonical
from dpglm.solvers.base import Plan

__all__ = ["Family"]

# How many fits the second one warns of, as few searches and validations have less.
_MANY = 10


@final
class Family:
    """An estimator and what copying it makes: fits that no ledger pays for, and rows they read.

    ``sklearn.base.clone`` and ``copy.deepcopy`` keep the family, so that ``cross_val_score``,
    ``GridSearchCV`` and refits of one object are one family. What pickling brings into a process is
    one family there: that of a worker. Noise that can be reproduced is not private, and not noted.

    Privacy: a note in the memory of one process that is never released, saved or sent. It
    holds plans, which are public, and marks of matrices (``Collection.mark``). Whether ``score``
    warns depends on the rows only through this: whether the caller fitted the same ones, which the
    caller knows.
    """

    def __init__(self) -> None:
        self._plans: list[Plan] = []
        self._marks: set[bytes] = set()
        self._said: set[str] = set()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        # Nothing of the note, and always the same bytes: caches compare them.
        return _arrived, ()

    def fits(self, plan: Plan) -> None:
        """Note a fit that is about to happen and that no ledger pays for; warn of the second."""
        if "fits" in self._said:
            # A simulation may go on for ever, and the note must not grow with it.
            return
        alike = [one for one in self._plans if _comparable(one, plan)]
        if alike:
            self._warn("fits", _of_fits([*alike, plan]))
        self._plans.append(plan)

    def reads(self, rows: Collection) -> None:
        """Note the rows of a fit."""
        mark = rows.mark()
        if mark is not None:
            self._marks.add(mark)

    def scores(self, rows: Collection) -> None:
        """Warn if rows that are about to be scored are those of a fit."""
        if self._marks and rows.mark() in self._marks:
            self._warn("scores", _of_scores(self._plans, more="fits" in self._said))

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._said:
            warnings.warn(message, UnpaidReleaseWarning, stacklevel=frames_to_the_user())
            # After it, as a warning that is an error is no less one the next time.
            self._said.add(kind)


_ARRIVED = Family()


def _arrived() -> Family:
    return _ARRIVED


def _comparable(one: Plan, other: Plan) -> bool:
    """Whether what two plans release can be added up in the budget of the second."""
    return (
        one.adjacency is other.adjacency
        and one.data.unit is other.data.unit
        and type(one.budget) is type(other.budget)
    )


def _of_fits(plans: list[Plan]) -> str:
    latest = plans[-1]
    many = [*plans, *[latest] * (_MANY - len(plans))]
    return (
        f"This estimator or copies of it have now been fitted {len(plans)} times, and no ledger "
        "pays. Where such fits read the same rows, as in cross_val_score, GridSearchCV and refits, "
        f"the cost is that of all of them: {_total(plans)} so far, {_total(many)} after {_MANY} "
        f"like this one, not {_total([latest])}. Scores of private rows come on top. Give ledger= "
        "to every fit, or use PrivateGridSearchCV and dpglm.evaluate, which have one budget."
    )


def _of_scores(plans: list[Plan], *, more: bool) -> str:
    least = "at least " * more
    cost = f", which cost {least}{_total(plans)} so far" if plans else ""
    return (
        "The model is scored on rows that it, or a copy of it, was fitted on. A score has no "
        f"noise: whoever sees it learns about these rows beyond what the fits say{cost}, and no "
        "ledger can pay for it. Score public rows, or private ones by dpglm.evaluate within a "
        "budget."
    )


def _total(plans: list[Plan]) -> str:
    """Say what plans cost together: exactly where they are Gaussian, else at most."""
    events = tuple(one.event for one in plans)
    # In the currency of a budget, at the largest delta of all.
    budget = max((one.budget for one in plans), key=lambda one: one.to_dict().get("delta", 0.0))
    try:
        cost = spent(canonical(Composed(events)), plans[-1].adjacency, budget)
    except ValueError:
        # What no accountant takes, or takes in time, adds up at least like this.
        each = [one.privacy() for one in plans]
        cost = {name: sum(one[name] for one in each) for name in ("epsilon", "delta")}
    return ", ".join(
        f"{name}={rounded_up(value)}" for name, value in cost.items() if isinstance(value, float)
    )
