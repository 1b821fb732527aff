"""Record the fits of this process, and warn where their privacy costs add up."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any, Self, final

from dpglm._frames import frames_to_the_user
from dpglm._words import rounded_up
from dpglm.data.collection import Collection
from dpglm.exceptions import UnpaidReleaseWarning
from dpglm.privacy.accounting.calibrate import spent
from dpglm.privacy.adjacency import Unit
from dpglm.privacy.events import Composed, canonical
from dpglm.solvers.base import Plan

__all__ = ["Family"]

# The second fit warns of the cost of this many; searches and validations rarely have fewer.
_MANY = 10
# Fits without a ledger by the rows that they read, whatever the estimator; None: warned already.
_FITS: OrderedDict[bytes, list[Plan] | None] = OrderedDict()
_MOST_MARKS = 256


@final
class Family:
    """Fits without a ledger by an estimator and its copies, and the rows that they read.

    ``sklearn.base.clone`` and ``copy.deepcopy`` keep the family, so that ``cross_val_score``,
    ``GridSearchCV`` and refits of one object are one family. Fits of the same rows by other
    estimators (members of a vote, models that are compared) add up as well. Unpickled estimators
    share one family, that of the worker process.

    Privacy: a note in the memory of one process that is never released, saved or sent. It
    holds plans, which are public, and marks of matrices (``Collection.mark``). Warnings depend on
    the rows only through whether the caller fitted the same ones, which the caller knows.
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
        # Empty, and always the same bytes: caches compare them.
        return _arrived, ()

    def fits(self, plan: Plan, mark: bytes | None) -> None:
        """Record a fit without a ledger before it happens; warn of the second one."""
        of_rows = [] if mark is None else _FITS.get(mark, [])
        if of_rows is None:
            return
        warned = "fits" in self._said
        # By identity, as equal plans are different fits.
        earlier = {id(one): one for one in (*self._plans, *of_rows)}.values()
        alike = [one for one in earlier if _comparable(one, plan)]
        if alike and not warned:
            self._warn("fits", _of_fits([*alike, plan]))
        # A simulation may fit for ever, and the records must not grow with it.
        if not warned:
            self._plans.append(plan)
        if mark is not None:
            _FITS[mark] = None if alike and not warned else [*of_rows, plan][:2]
            _FITS.move_to_end(mark)
            if len(_FITS) > _MOST_MARKS:
                _FITS.popitem(last=False)

    def reads(self, mark: bytes | None) -> None:
        """Record the rows of a fit."""
        if mark is not None:
            self._marks.add(mark)

    def scores(self, rows: Collection) -> None:
        """Warn if rows that are about to be scored are those of a fit."""
        if self._marks and rows.mark() in self._marks:
            self._warn("scores", _of_scores(self._plans, more="fits" in self._said))

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._said:
            warnings.warn(message, UnpaidReleaseWarning, stacklevel=frames_to_the_user())
            # Recorded after the warning, which may be an error and is one again next time.
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
        f"{len(plans)} fits without a ledger were made in this process by one estimator and its "
        f"copies, or of the same rows. {_protected(latest)} If they read the same "
        "rows, as in cross_val_score, GridSearchCV, ensembles and refits, they cost together "
        f"{_total(plans)} so far, and {_total(many)} after {_MANY} fits, not {_total([latest])}. "
        "Scores of private rows cost more on top. Give every fit the same ledger=, or use "
        "PrivateGridSearchCV and dpglm.evaluate, which keep to one budget."
    )


def _protected(plan: Plan) -> str:
    """Name the protected unit: scikit-learn keeps ``groups`` from a fit unless they are routed."""
    if plan.data.unit is Unit.GROUP:
        return "Each protects one group (person)."
    return (
        "Each protects one row: groups= of cross_validate or GridSearchCV reaches a fit only with "
        "enable_metadata_routing and set_fit_request(groups=True)."
    )


def _of_scores(plans: list[Plan], *, more: bool) -> str:
    least = "at least " * more
    cost = f", which cost {least}{_total(plans)} so far" if plans else ""
    return (
        "The model is scored on rows that it, or a copy of it, was fitted on. The score has no "
        f"noise, so publishing it reveals more about these rows than the fits do{cost}. No "
        "ledger can account for it. Score public rows, or private ones by dpglm.evaluate within a "
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
