"""Evaluations: tables of scores in one or two releases, and rows that are counted twice."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.audit import Claim, Neighbours
from dpglm.certificate.execution import PartPlan
from dpglm.data.collection import MatrixRows, Preparation
from dpglm.data.rows import GroupBound, Rows
from dpglm.evaluation import (
    BinaryTask,
    ClassesTask,
    RegressionTask,
    plan_evaluation,
)
from dpglm.evaluation.task import EvaluationTask
from dpglm.oracle.counts import Cells, table_sum
from dpglm.privacy import Adjacency
from dpglm.privacy.noise import SystemNoise
from experiments.audits.case import (
    ADD_REMOVE,
    BUDGET,
    RELATIONS,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
    of_plan,
    summed_as,
)

__all__ = ["BUGS", "CASES"]

N_ROWS = 4
CLOSER = (
    "Replacing a row changes two cells: a distance of sqrt(2) bounds, where the claim covers 2."
)
BINARY, NUMBERS = BinaryTask((0, 1)), RegressionTask(-1.0, 3.0)
ROWS: dict[EvaluationTask, tuple[tuple[Any, Any], tuple[Any, Any]]] = {
    BINARY: ((1, 0.0), (0, 0.0)),
    ClassesTask((0, 1, 2)): ((2, [1.0, 0.0, 0.0]), (0, [1.0, 0.0, 0.0])),
    NUMBERS: ((3.0, -1.0), (-1.0, -1.0)),
}
"""A target and the worst prediction for each task, and their replacements."""


def planned(task: EvaluationTask, relation: Adjacency, levels: tuple[str, ...] = ()) -> PartPlan:
    """Plan an evaluation of four rows."""
    return plan_evaluation(task, N_ROWS, BUDGET, adjacency=relation.value, levels=levels)


def attacked(plan: PartPlan, task: EvaluationTask, **rest: Any) -> Setup:
    """Attack the only row that is there."""
    first, other = (
        [0.0, *task.encode(np.array([y]), np.array([prediction]))[0]]
        for y, prediction in ROWS[task]
    )
    return of_plan(plan.plan, first, replacement=(other, 1.0), **rest)


def case(task: EvaluationTask, relation: Adjacency, levels: tuple[str, ...] = ()) -> Case:
    """Make a line of the campaign."""
    return Case(
        "evaluation",
        "evaluate",
        lambda: attacked(planned(task, relation, levels), task),
        relation,
        type(task).__name__ + (", by groups" if levels else ""),
        CLOSER if relation is REPLACE_ONE else "",
    )


def cumulative() -> Setup:
    """Count rows in every cell from theirs on, and keep the right claim."""
    setup = attacked(planned(BINARY, ZERO_OUT), BINARY)
    sums = Cells.sums

    def upto(cells: Cells, X: NDArray[np.float64], *rest: Any) -> NDArray[np.float64]:
        return sums(cells, X, *rest).reshape(cells.sizes).cumsum(axis=-1).ravel()

    return dataclasses.replace(setup, under=partial(mock.patch.object, Cells, "sums", upto))


def for_one() -> Setup:
    """Plan and run with the bound of the first table for all, and keep the right claim."""

    def of_one(tables: Any) -> Any:
        return dataclasses.replace(table_sum(tables), bound=table_sum(tables[:1]).bound)

    cheap = partial(summed_as, of_one)
    sound = planned(NUMBERS, ZERO_OUT)
    with cheap():
        plan = dataclasses.replace(sound.plan, method=dataclasses.replace(sound.plan.method))
        # Its bound is kept from now on.
        _ = plan.method.releases
    setup = attacked(dataclasses.replace(sound, plan=plan), NUMBERS)
    return dataclasses.replace(setup, claim=Claim.of(sound.plan), under=cheap)


def of_persons(relation: Adjacency) -> Setup:
    """Attack a person with three rows, all as wrong as can be, among others with one each."""
    plan = plan_evaluation(
        BINARY, 5, BUDGET, adjacency=relation.value, groups=GroupBound(3, 3.0)
    ).plan
    y, scores = np.array([1, 1, 1, 0, 0]), np.array([0.0, 0.0, 0.0, 1.0, 1.0])
    X = np.column_stack([np.zeros(5), BINARY.encode(y, scores)])

    def rows(weight: float, kept: slice = slice(None)) -> Rows:
        weights = np.array([weight] * 3 + [1.0] * 2)[kept]
        one = MatrixRows(X[kept], np.zeros(5)[kept], weights)
        grouped = one.in_groups(np.array([0, 0, 0, 1, 2])[kept], None, SystemNoise())
        return grouped.prepared(Preparation(plan.data, None, np.asarray))

    second = rows(1.0, slice(3, None)) if relation is ADD_REMOVE else rows(0.0)
    return Setup(plan, (Neighbours("one person", rows(1.0), second),))


PERSONS = Case("evaluation", "evaluate", lambda: of_persons(ZERO_OUT), variant="three rows of one")
CASES: list[Case] = [
    *(case(task, relation) for relation in RELATIONS for task in ROWS),
    case(BINARY, ZERO_OUT, ("f", "m")),
    PERSONS,
    dataclasses.replace(PERSONS, make=lambda: of_persons(ADD_REMOVE), relation=ADD_REMOVE),
]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise"),
    dataclasses.replace(PERSONS, bug="half the noise", planted_bug="half_noise"),
    Case(
        "bugs",
        "evaluate",
        cumulative,
        variant="BinaryTask",
        bug="a row counted in every cell from its own on",
    ),
    Case(
        "bugs",
        "evaluate",
        for_one,
        variant="RegressionTask",
        bug="every table at the price of one",
    ),
]
