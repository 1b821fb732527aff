"""Survival by a regression of the hazard in each interval."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._calls import checked
from dpglm._validation import check_list, check_real
from dpglm._words import plain_number
from dpglm.inference.inference import Inference
from dpglm.inference.simultaneous import largest_errors, quantile, root_of
from dpglm.preprocessing.encoders import as_schema
from dpglm.tables.additive_terms import as_dense
from dpglm.tables.cells import as_cells, as_numbers
from dpglm.tables.columns import CategoricalColumn, NumericColumn
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget

Floats: TypeAlias = NDArray[np.float64]
INTERVAL = "interval"
"""Name of the column of intervals."""
_TINY = 1e-12


def ends_of(cuts: Any) -> Floats:
    """Return the ends of intervals, checked."""
    found = np.array([check_real("cuts", one) for one in check_list("cuts", cuts)])
    if len(found) < 2 or not (np.diff(found) > 0.0).all():
        raise ValueError(f"cuts must be at least two numbers that increase, got {cuts!r}")
    return found


def _labels(cuts: Floats) -> tuple[str, ...]:
    return tuple(f"{plain_number(a)} to {plain_number(b)}" for a, b in itertools.pairwise(cuts))


@final
@dataclass(frozen=True, eq=False)
class PersonPeriods:
    """A table with a row for every person and interval; made by ``person_period``.

    Parameters
    ----------
    table : mapping from str to ndarray
        The columns of the schema, the column ``"interval"`` and the event; private.
    schema : Schema
        Its public facts.
    persons : ndarray of shape (n_rows,)
        Person of each row; private.
    at_risk : ndarray of bool of shape (n_rows,)
        Whether the person was observed in the interval; private.
    """

    table: Mapping[str, NDArray[Any]]
    schema: Schema
    persons: NDArray[np.intp]
    at_risk: NDArray[np.bool_]

    def fit_arguments(self) -> dict[str, Any]:
        """Return the arguments of ``fit`` besides the table: persons, and the rows that count."""
        return {"groups": self.persons, "where": self.at_risk}


@checked
def person_period(
    table: Any, schema: Schema | Mapping[str, Any], *, time: str, event: str, cuts: ArrayLike
) -> PersonPeriods:
    """Prepare a table of persons for a regression of the hazard in each interval.

    Parameters
    ----------
    table : mapping or DataFrame
        One row for each person.
    schema : Schema or mapping
        Public facts about the columns. ``time`` is one of them; the target is the event, with two
        classes; the second says that the event happened at ``time``.
    time : str
        Column with the time of the event, or of the end of observation.
    event : str
        Name of the target.
    cuts : array_like of shape (n_intervals + 1,)
        Public ends of the intervals, increasing; observation begins at the first.

    Returns
    -------
    PersonPeriods
        ``n_intervals`` rows for every person, so that their number is public.

    Raises
    ------
    ValueError
        If an argument or a cell is invalid.

    Notes
    -----
    A person counts in an interval if observed until its end, or until the event. An event at a cut
    belongs to the interval before it, and at the first cut to the first interval; a person with an
    earlier time counts nowhere. Fit a logistic or complementary log-log regression of ``event`` on
    ``interval`` and other columns, with the arguments of ``fit_arguments`` and
    ``max_rows_per_group=n_intervals``.

    Privacy: releases nothing. Which rows count is private: it is given to the fit as ``where``, and
    all rows of a person are protected together.

    References
    ----------
    Singer and Willett, "It's about time: using discrete-time survival analysis", Journal of
    Educational Statistics 18 (1993).

    Examples
    --------
    >>> schema = {
    ...     "columns": {"months": {"type": "numeric", "low": 0, "high": 60}},
    ...     "target": {"name": "died", "type": "binary", "classes": [0, 1]},
    ...     "provenance": "made up",
    ... }
    >>> rows = {"months": [5.0, 30.0], "died": [1, 0]}
    >>> periods = person_period(rows, schema, time="months", event="died", cuts=[0, 12, 24])
    >>> periods.at_risk.tolist()
    [True, False, True, True]
    >>> periods.table["died"].tolist()
    [1, 0, 0, 0]
    """
    given, ends = as_schema(schema), ends_of(cuts)
    target = check_time_and_event(given, time, event)
    named = by_name(table)
    times = as_numbers(named[time], f"column {time!r}")
    happened = given.encode_target(named[event]) == target.classes[1]
    n_intervals = len(ends) - 1
    later = times[:, np.newaxis] > ends[:-1]
    later[:, 0] |= times == ends[0]
    through = times[:, np.newaxis] >= ends[1:]
    within = later & ~through | (times[:, np.newaxis] == ends[1:])
    here = within & happened[:, np.newaxis] & later
    at_risk = later & (through | here)
    others = tuple(one for one in given.columns if one.name != time)
    repeated = {
        one.name: np.repeat(np.asarray(as_cells(named[one.name], one.name)), n_intervals)
        for one in others
    }
    labels = _labels(ends)
    repeated[INTERVAL] = np.tile(np.array(labels), len(times))
    repeated[event] = np.array(target.classes)[here.astype(int).ravel()]
    interval = CategoricalColumn(INTERVAL, labels, ordered=len(labels) > 1)
    made = dataclasses.replace(given, columns=(*others, interval), formula=None, additive=None)
    persons = np.repeat(np.arange(len(times)), n_intervals)
    return PersonPeriods(repeated, made, persons, at_risk.ravel())


def check_time_and_event(schema: Schema, time: str, event: str) -> ClassTarget:
    """Return the target, the event with two classes; a ValueError names a wrong column."""
    target = schema.target if schema.has_target else None
    if not isinstance(target, ClassTarget) or len(target.classes) != 2 or target.name != event:
        raise ValueError(f"event must be the target of the schema, with two classes, got {event!r}")
    if not any(isinstance(one, NumericColumn) and one.name == time for one in schema.columns):
        raise ValueError(f"time must be a numeric column of the schema, got {time!r}")
    return target


@final
@dataclass(frozen=True, eq=False)
class SurvivalCurve:
    """A survival curve with its band.

    Parameters
    ----------
    times : ndarray of shape (n_intervals + 1,)
        Ends of the intervals.
    survival : ndarray of shape (n_intervals + 1,)
        Probability of survival to each time; it begins at 1.
    low, high : ndarray of shape (n_intervals + 1,)
        Ends of the band, from sampling and privacy noise.
    level : float
        Confidence level of the band: of all times together if ``simultaneous``.
    simultaneous : bool
        Whether the level holds for all times together.
    """

    times: Floats
    survival: Floats
    low: Floats
    high: Floats
    level: float
    simultaneous: bool

    @classmethod
    def of(
        cls,
        times: Floats,
        log_survival: Floats,
        covariance: Floats,
        level: float,
        simultaneous: bool,
    ) -> SurvivalCurve:
        """Return the curve given ``log S`` at the times after the first, and its covariance.

        Bands are symmetric on the scale ``log(-log S)``, so that they stay between 0 and 1.
        """
        hazard = np.maximum(-log_survival, _TINY)
        errors = np.sqrt(np.maximum(np.diag(covariance), 0.0)) / hazard
        critical = quantile(level, np.inf)
        if simultaneous and len(hazard) > 1:
            units = np.where(errors > 0.0, errors * hazard, 1.0)
            root = root_of(covariance / np.outer(units, units))
            critical = float(np.quantile(largest_errors(root, np.inf), level))
        reach = np.exp(np.minimum(critical * errors, 700.0))
        low, high = np.exp(-hazard * reach), np.exp(-hazard / reach)
        survival, low, high = (np.concatenate([[1.0], one]) for one in (np.exp(-hazard), low, high))
        return cls(times, survival, low, high, level, simultaneous)


@checked
def survival_curve(
    model: Any,
    cuts: ArrayLike,
    at: Mapping[str, Any],
    *,
    level: float = 0.95,
    simultaneous: bool = True,
) -> SurvivalCurve:
    """Return the survival curve of declared covariates from a fitted regression of hazards.

    Parameters
    ----------
    model : estimator
        A logistic or complementary log-log regression of the event on ``interval`` and other
        columns of ``person_period``, with ``inference_``.
    cuts : array_like of shape (n_intervals + 1,)
        The cuts of ``person_period``.
    at : mapping from str to number or str
        Values of the other columns.
    level : float, default=0.95
        Confidence level in (0, 1).
    simultaneous : bool, default=True
        Whether the band covers the curve at all times together.

    Returns
    -------
    SurvivalCurve

    Raises
    ------
    ValueError
        If an argument is invalid.

    Notes
    -----
    ``S(t) = prod (1 - h)`` over intervals up to t. The covariance of ``log S`` follows from that of
    the linear scores by the delta method.

    Privacy: post-processing of the fitted model.
    """
    ends, level = ends_of(cuts), check_real("level", level, above=0.0, below=1.0)
    inference: Inference = model.inference_.of_features
    labels = _labels(ends)
    size = len(labels)
    rows = {name: np.array([value] * size) for name, value in at.items()}
    rows[INTERVAL] = np.array(labels)
    features = inference.scores.features(rows)
    matrix = as_dense(features)
    if inference.estimates.has_intercept:
        matrix = np.column_stack([np.ones(size), matrix])
    scores = matrix @ inference.estimates.params
    link = inference.certificate.problem.loss.link
    assert link is not None
    hazards = np.clip(link.inverse(scores), _TINY, 1.0 - _TINY)
    step = 1e-6
    slopes = (np.clip(link.inverse(scores + step), _TINY, 1.0 - _TINY) - hazards) / step
    # d log(1 - h) / d score, added up over earlier intervals.
    sums = np.tril(np.ones((size, size))) * (-slopes / (1.0 - hazards))
    jacobian = sums @ matrix
    covariance = jacobian @ inference.covariance @ jacobian.T
    logs = np.cumsum(np.log1p(-hazards))
    return SurvivalCurve.of(ends, logs, covariance, level, bool(simultaneous))
