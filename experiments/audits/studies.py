"""Whole studies: releases about disjoint rows, and rows or parts without a charge.

Of persons, too: of one who has twice as many rows as are used in each part, and so could fill both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.audit import Claim, Neighbours
from dpglm.certificate import certificate
from dpglm.certificate.execution import PartPlan
from dpglm.data import groups as grouped_rows
from dpglm.data.groups import Groups
from dpglm.data.rows import Protection
from dpglm.data.split import EVALUATION, EXPLORATION, MODEL
from dpglm.exploration.describe import DescriptionPart
from dpglm.privacy import Adjacency, GaussianAccountant
from dpglm.privacy.noise import SystemNoise
from dpglm.study import Split, Study, StudyPlan, planning, running
from dpglm.tables.schema import Schema
from experiments.audits.case import ADD_REMOVE, BUDGET, REPLACE_ONE, Case, Setup

__all__ = ["BUGS", "CASES"]

SCHEMA = {
    "columns": {"sex": {"type": "categorical", "categories": ["f", "m"]}},
    "provenance": "made up",
}
EVERY = (EXPLORATION, MODEL, EVALUATION)
N_ROWS = 8
LIMIT = 2
# One person has as many rows as both parts would use, the others have one each.
IDS = np.array([0] * (2 * LIMIT) + [1, 2, 3, 4])
CLOSER = (
    "Replacing a row changes two cells: a distance of sqrt(2) bounds, where the claim covers 2."
)


def planned(relation: Adjacency, **of_persons: Any) -> StudyPlan:
    """Plan a study of counts: of all rows, of those to learn from, and of those held out."""
    part = DescriptionPart(Schema.from_dict(SCHEMA))
    counts = dict.fromkeys((EXPLORATION, MODEL, EVALUATION), part)
    study = Study(
        SCHEMA,
        budget=BUDGET,
        adjacency=relation.value,
        n_rows=N_ROWS,
        parts=counts,
        split=Split(0.5, of_persons.get("groups")),
        **of_persons,
    )
    return study.plan()


def of_persons() -> StudyPlan:
    """Plan the same for persons."""
    return planned(ADD_REMOVE, groups="id", n_groups=5, max_rows_per_group=LIMIT)


def _every_other(split: Split, n_rows: int, *_: Any) -> NDArray[np.bool_]:
    return np.arange(n_rows) % 2 == 1


def _every_other_person(
    split: Split, n_rows: int, adjacency: Adjacency, noise: Any, persons: NDArray[Any]
) -> NDArray[np.bool_]:
    return persons % 2 == 1


def attacked(
    make: Callable[[], StudyPlan],
    pair: Neighbours,
    counted: Sequence[float] = (0.0, 1.0),
    seen: tuple[str, ...] = (EXPLORATION, MODEL),
    under: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
    sound: Callable[[], StudyPlan] | None = None,
    divided: Callable[..., NDArray[np.bool_]] = _every_other,
) -> Setup:
    """Attack the only man among women: is he there, is he replaced by a woman.

    The split is public, and puts this row into the training part: the claim holds given the
    split. The attack looks at noisy counts of women and men in some parts, ``counted`` together and
    each divided by the variance of its noise. The claim is that of a ``sound`` plan.
    """
    plan, claimed = make(), (sound or make)()

    def released(table: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        result = running.run(plan, table, SystemNoise(), None, None)
        parts = dict(result.results)
        counts = [parts[name].solution.w[:2] @ np.asarray(counted) for name in seen]
        variances = [parts[name].solution.plan.coefficient_noise ** 2 for name in seen]
        return np.array([sum(np.divide(counts, variances))])

    mu = GaussianAccountant().mu(claimed.event, claimed.protection.adjacency)
    claim = Claim(BUDGET.epsilon, BUDGET.delta, mu)

    @contextlib.contextmanager
    def fixed() -> Iterator[None]:
        with mock.patch.object(Split, "draw", divided), under():
            yield

    return Setup(released, (pair,), claim=claim, under=fixed)


def of_rows(relation: Adjacency, make: Callable[[], StudyPlan] | None = None, **how: Any) -> Setup:
    """Attack a man with one row, by men minus women where one of these takes his place."""
    first = {"sex": np.array(["m"] + ["f"] * (N_ROWS - 1))}
    without = {"sex": np.array(["f"] * (N_ROWS - (relation is ADD_REMOVE)))}
    counted = (-1.0 if relation is REPLACE_ONE else 0.0, 1.0)
    pair, sound = Neighbours("one man", first, without), functools.partial(planned, relation)
    return attacked(make or sound, pair, counted, sound=sound, **how)


def of_a_person(
    divided: Callable[..., NDArray[np.bool_]] = _every_other_person, **how: Any
) -> Setup:
    """Attack a man with several rows."""
    first = {"sex": np.where(IDS == 0, "m", "f"), "id": IDS}
    without = {name: cells[IDS > 0] for name, cells in first.items()}
    pair = Neighbours("a man with several rows", first, without)
    return attacked(of_persons, pair, divided=divided, **how)


def case(relation: Adjacency, why: str) -> Case:
    """Make a line of the campaign."""
    return Case(
        "studies",
        "Study",
        lambda: of_rows(relation),
        relation,
        why=why,
    )


def both_parts() -> AbstractContextManager[Any]:
    """Give every row to both parts."""
    return mock.patch.object(running, "_rows_of", lambda part, table, held_out: table)


@contextlib.contextmanager
def uncharged() -> Iterator[None]:
    """Forget the exploration when costs are added up."""
    whole = planning.composed_event

    def forgetful(parts: Any, split: Any, adjacency: Any) -> Any:
        others = {name: event for name, event in parts.items() if name != EXPLORATION}
        return whole(others, split, adjacency)

    with (
        mock.patch.object(planning, "composed_event", forgetful),
        mock.patch.object(certificate, "composed_event", forgetful),
    ):
        yield


@contextlib.contextmanager
def without_limit() -> Iterator[None]:
    """Use all rows of each person, and add them up as they are."""
    with (
        mock.patch.object(Groups, "kept", lambda self, most, noise: np.arange(len(self.codes))),
        mock.patch.object(grouped_rows, "clipped", lambda sums, bound: sums.sum(axis=0)),
    ):
        yield


def with_free_exploration() -> StudyPlan:
    """Give the exploration the budget of the others, and the others the whole budget."""
    sound = planned(ADD_REMOVE)
    part = DescriptionPart(sound.schema)
    whole, halves = (
        PartPlan(part, part.plan(Protection(ADD_REMOVE, BUDGET, n_rows)))
        for n_rows in (N_ROWS, N_ROWS // 2)
    )
    with uncharged():
        parts = {EXPLORATION: whole, MODEL: halves, EVALUATION: halves}
        return dataclasses.replace(sound, planned=parts)


PERSONS = Case("studies", "Study", of_a_person, ADD_REMOVE, "a person with several rows")
CASES: list[Case] = [case(ADD_REMOVE, ""), case(REPLACE_ONE, CLOSER), PERSONS]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise", why=""),
    Case(
        "bugs",
        "Study",
        lambda: of_rows(ADD_REMOVE, seen=EVERY, under=both_parts),
        ADD_REMOVE,
        bug="a row in both parts",
    ),
    Case(
        "bugs",
        "Study",
        lambda: of_rows(ADD_REMOVE, with_free_exploration, under=uncharged),
        ADD_REMOVE,
        bug="a part that is not charged",
    ),
    dataclasses.replace(PERSONS, bug="half the noise", planted_bug="half_noise"),
    Case(
        "bugs",
        "Study",
        lambda: of_a_person(_every_other, seen=EVERY),
        ADD_REMOVE,
        "a person with several rows",
        bug="a split of the rows of persons one by one",
    ),
    Case(
        "bugs",
        "Study",
        lambda: of_a_person(under=without_limit),
        ADD_REMOVE,
        "a person with several rows",
        bug="a limit on persons' rows that nothing holds",
    ),
]
