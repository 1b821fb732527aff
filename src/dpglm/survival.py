"""Survival: hazards by intervals, survival curves, and private Kaplan-Meier curves."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpglm._calls import checked
from dpglm._validation import Array, check_list, check_real
from dpglm._words import plain_number
from dpglm.certificate.certificate import Certificate, PublicFact, schema_facts
from dpglm.certificate.execution import PartInput, Stated, StudyPart
from dpglm.data.rows import Protection
from dpglm.exploration.design import plan_tables, release, run_on_table
from dpglm.inference.comparisons import largest_errors, quantile, root_of
from dpglm.inference.inference import Inference
from dpglm.ledger.ledger import PrivacyLedger
from dpglm.oracle.counts import Cells
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.budget import PrivacyBudget
from dpglm.privacy.noise import NoiseSource
from dpglm.solvers.base import Plan
from dpglm.tables.additive_terms import as_dense
from dpglm.tables.cells import as_cells, as_numbers
from dpglm.tables.columns import CategoricalColumn, NumericColumn
from dpglm.tables.named import by_name
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget

__all__ = [
    "KaplanMeier",
    "PersonPeriods",
    "SurvivalCurve",
    "kaplan_meier",
    "person_period",
    "survival_curve",
]


INTERVAL = "interval"
"""Name of the column of intervals."""
_TINY = 1e-12


def ends_of(cuts: Any) -> Array:
    """Return the ends of intervals, checked."""
    found = np.array([check_real("cuts", one) for one in check_list("cuts", cuts)])
    if len(found) < 2 or not (np.diff(found) > 0.0).all():
        raise ValueError(f"cuts must be at least two numbers that increase, got {cuts!r}")
    return found


def _labels(cuts: Array) -> tuple[str, ...]:
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
        """Return the arguments of ``fit`` besides the table: people, and the rows that count."""
        return {"groups": self.persons, "where": self.at_risk}


@checked
def person_period(
    table: Any, schema: Schema | Mapping[str, Any], *, time: str, event: str, cuts: ArrayLike
) -> PersonPeriods:
    """Prepare a table of people for a regression of the hazard in each interval.

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

    times: Array
    survival: Array
    low: Array
    high: Array
    level: float
    simultaneous: bool

    @classmethod
    def of(
        cls,
        times: Array,
        log_survival: Array,
        covariance: Array,
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
    level, simultaneous
        Confidence level in (0, 1), and whether the band covers the curve at all times together.

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


@final
@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """Private survival curves by level; made by ``kaplan_meier``.

    Parameters
    ----------
    counts : ndarray of shape (n_levels, n_intervals + 1, 2)
        Noisy numbers of people by level, interval of the last observation, and event.
    noise_std : float
        Standard deviation of the noise in each.
    levels, cuts
        The levels, and the ends of the intervals.
    privacy_ : Certificate
        The guarantee.

    Notes
    -----
    Privacy: computed from one release, and may be published.
    """

    counts: Array
    noise_std: float
    levels: tuple[str, ...]
    cuts: tuple[float, ...]
    privacy_: Certificate

    def curve(
        self, level: str | None = None, *, confidence: float = 0.95, simultaneous: bool = True
    ) -> SurvivalCurve:
        """Return the survival curve of a level.

        ``level`` is one of ``levels``, by default the only one; ``confidence`` and ``simultaneous``
        are as in ``survival_curve``.

        Notes
        -----
        The estimate of the hazard of an interval is the number of events over that of people at
        risk, where those censored within the interval count half (the actuarial estimate). The
        covariance is Greenwood's, and that of the noise by the delta method.
        """
        check_real("confidence", confidence, above=0.0, below=1.0)
        if level is None and len(self.levels) == 1:
            level = self.levels[0]
        if level not in self.levels:
            raise ValueError(f"level must be one of {', '.join(self.levels)}, got {level!r}")
        counts = self.counts[self.levels.index(level)]
        size = len(self.cuts) - 1
        # Rows of these matrices give events and people at risk as sums of counts.
        events, risk = np.zeros((size, size + 1, 2)), np.zeros((size, size + 1, 2))
        for k in range(size):
            events[k, k, 1] = risk[k, k, 1] = 1.0
            risk[k, k, 0] = 0.5
            risk[k, k + 1 :] = 1.0
        flat = counts.ravel()
        d, r = events.reshape(size, -1) @ flat, risk.reshape(size, -1) @ flat
        r = np.maximum(r, max(self.noise_std, 1.0))
        h = np.clip(d / r, 0.0, 1.0 - 1.0 / r.clip(2.0))
        slopes = (events.reshape(size, -1) - h[:, np.newaxis] * risk.reshape(size, -1)) / r[:, None]
        sums = np.tril(np.ones((size, size))) / -(1.0 - h)
        jacobian = sums @ slopes
        # Agresti and Coull's share: the sampling variance is positive without events.
        p = np.clip((np.maximum(d, 0.0) + 0.5) / (r + 1.0), 0.0, 1.0)
        sampling = sums @ np.diag(p * (1.0 - p) / r) @ sums.T
        covariance = sampling + self.noise_std**2 * jacobian @ jacobian.T
        logs = np.cumsum(np.log1p(-h))
        return SurvivalCurve.of(
            np.array(self.cuts), logs, covariance, confidence, bool(simultaneous)
        )


@final
@dataclass(frozen=True)
class _KaplanMeierPart(StudyPart):
    """One table of counts of people, encoded as level, last interval observed, and event."""

    schema: Schema
    time: str
    event: str
    by: str | None
    cuts: tuple[float, ...]

    width = 3
    """Number of encoded columns."""

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that are read."""
        return tuple(name for name in (self.time, self.event, self.by) if name is not None)

    @property
    def column(self) -> CategoricalColumn | None:
        """The column ``by``, if there is one."""
        found = next((one for one in self.schema.columns if one.name == self.by), None)
        if self.by is not None and not isinstance(found, CategoricalColumn):
            raise ValueError(f"by must be a categorical column of the schema, got {self.by!r}")
        return found if isinstance(found, CategoricalColumn) else None

    @functools.cached_property
    def levels(self) -> tuple[str, ...]:
        """Levels of ``by``; one without it."""
        return ("all",) if self.column is None else tuple(map(str, self.column.categories))

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of cells; the first and last are for times before and after all intervals."""
        return len(self.levels), len(self.cuts) + 1, 2

    def encode(self, table: Any) -> Array:
        """Return level, interval and event of each person."""
        named = by_name(table)
        times = as_numbers(named[self.time], f"column {self.time!r}")
        classes = self.schema.target.estimator_parameters()["classes"]
        happened = self.schema.encode_target(named[self.event]) == classes[1]
        # Intervals are open on the left, but for the first: an event at a cut is one before it.
        place = np.searchsorted(np.array(self.cuts), times, side="left")
        place[times == self.cuts[0]] = 1
        column, level = self.column, np.zeros(len(times), np.intp)
        level = level if column is None else column.read(named[column.name])
        return np.column_stack([level, place, happened & (place < len(self.cuts))])

    def plan(self, protection: Protection) -> Plan:
        norm = float(np.linalg.norm(self.sizes))
        return plan_tables(protection, 3, norm, (Cells((0, 1, 2), self.sizes),))

    def noise_to_sampling(self, protection: Protection) -> float:
        noise = self.plan(protection).coefficient_noise
        return noise**2 * float(np.prod(self.sizes)) / protection.n_rows

    def title(self, plan: Plan) -> str:
        return f"survival curves of {plan.data.n_rows} people"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        return (("people in a cell", quantile(0.95, np.inf) * plan.coefficient_noise),)

    def run(self, plan: Plan, given: PartInput) -> KaplanMeier:
        facts = (*schema_facts(self.schema), PublicFact("cuts", list(self.cuts), "declared"))
        solution, certificate = run_on_table(plan, given, self, self.schema, "KaplanMeier", facts)
        counts = solution.w.reshape(self.sizes)[:, 1:]  # Without people of earlier times.
        return KaplanMeier(counts, plan.coefficient_noise, self.levels, self.cuts, certificate)


@checked
def kaplan_meier(
    table: Any,
    schema: Schema | Mapping[str, Any],
    *,
    time: str,
    event: str,
    cuts: ArrayLike,
    by: str | None = None,
    epsilon: float = 1.0,
    delta: float | Literal["auto"] = "auto",
    budget: PrivacyBudget | None = None,
    adjacency: str = "zero_out",
    n_rows: int | None = None,
    where: ArrayLike | None = None,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
    random_state: int | NoiseSource | None = None,
) -> KaplanMeier:
    """Estimate survival curves by level with one release.

    Parameters
    ----------
    table : mapping, DataFrame or path-like
        One row for each person; see ``describe``.
    schema, time, event, cuts
        See ``person_period``.
    by : str, optional
        Column of categories: a curve for each.
    epsilon, delta, budget, adjacency, n_rows, where, ledger, random_state
        See ``describe``, also for errors.

    Notes
    -----
    An event at the first cut belongs to the first interval, and people with earlier times do not
    count. Fewer intervals have less noise: those at risk in a late interval are the sum of all
    later counts.

    Privacy: one Gaussian release of counts. A person is in one of them, so the sensitivity is 1,
    and ``sqrt(2)`` under "replace_one".

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> table = {"months": rng.exponential(30.0, 5000).clip(0, 60), "died": np.ones(5000, int)}
    >>> schema = {
    ...     "columns": {"months": {"type": "numeric", "low": 0, "high": 60}},
    ...     "target": {"name": "died", "type": "binary", "classes": [0, 1]},
    ...     "provenance": "made up",
    ... }
    >>> made = kaplan_meier(table, schema, time="months", event="died", cuts=[0, 10, 20, 40])
    >>> bool(abs(made.curve().survival[-1] - np.exp(-40.0 / 30.0)) < 0.05)
    True
    """
    given, ends = as_schema(schema), ends_of(cuts)
    check_time_and_event(given, time, event)
    stated = Stated(epsilon, delta, budget, adjacency, n_rows)
    part = _KaplanMeierPart(given, time, event, by, tuple(ends.tolist()))
    _ = part.levels
    found: KaplanMeier = release(
        part, part, given, table, stated, None, where, ledger, random_state
    )
    return found
