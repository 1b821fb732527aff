"""Whole studies: what is released about disjoint rows, and rows or parts that nobody paid for."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.audit import Claim, Neighbours
from dpglm.privacy import Adjacency, GaussianAccountant
from dpglm.privacy.noise import SystemNoise
from dpglm.study import Split, Study, StudyPlan, certificate, planning, running
from dpglm.study.parts.exploring import Exploration
from dpglm.study.parts.part import EVALUATION, EXPLORATION, MODEL
from experiments.audits.case import ADD_REMOVE, BUDGET, REPLACE_ONE, Case, Setup

__all__ = ["BUGS", "CASES"]

SCHEMA = {
    "columns": {"sex": {"type": "categorical", "categories": ["f", "m"]}},
    "provenance": "made up",
}
N_ROWS = 8
CLOSER = "cells of a row that is replaced are sqrt(2) apart, and the relation's factor is 2"


def planned(relation: Adjacency) -> StudyPlan:
    """Plan a study of counts: of all rows, of those to learn from, and of those held out."""
    counts = {name: Exploration({}) for name in (EXPLORATION, MODEL, EVALUATION)}
    study = Study(
        SCHEMA,
        budget=BUDGET,
        adjacency=relation.value,
        n_rows=N_ROWS,
        parts=counts,
        split=Split(0.5),
    )
    return study.plan()


def attacked(
    make: Callable[[], StudyPlan],
    relation: Adjacency,
    seen: tuple[str, ...] = (EXPLORATION, MODEL),
    under: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Setup:
    """Attack the only man among women: is he there, is he replaced by a woman.

    The split is public, and has him among those to learn from: what is claimed holds given the
    split. The attack looks at the noisy counts of men in some parts, each divided by the
    variance of its noise; where he is replaced, at men minus women.
    """
    plan = make()
    counted = np.array([-1.0 if relation is REPLACE_ONE else 0.0, 1.0])

    def released(table: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        result = running.run(plan, table, SystemNoise(), None, None)
        parts = dict(result.parts)
        counts = [parts[name].solution.w[:2] @ counted for name in seen]
        variances = [parts[name].plan.noise_std ** 2 for name in seen]
        return np.array([sum(np.divide(counts, variances))])

    first = {"sex": np.array(["m"] + ["f"] * (N_ROWS - 1))}
    without = {"sex": np.array(["f"] * (N_ROWS - (relation is ADD_REMOVE)))}
    event = planned(relation).event
    mu = GaussianAccountant().mu(event, relation)
    claim = Claim(BUDGET.epsilon, BUDGET.delta, mu)

    @contextlib.contextmanager
    def fixed() -> Iterator[None]:
        with mock.patch.object(Split, "draw", _every_other), under():
            yield

    pair = Neighbours("one man", first, without)
    return Setup(released, (pair,), claim=claim, under=fixed)


def _every_other(split: Split, n_rows: int, *_: Any) -> NDArray[np.bool_]:
    return np.arange(n_rows) % 2 == 1


def case(relation: Adjacency, why: str) -> Case:
    """Make a line of the campaign."""
    return Case(
        "studies",
        "Study",
        lambda: attacked(lambda: planned(relation), relation),
        relation,
        why=why,
    )


def both_parts() -> AbstractContextManager[Any]:
    """Give every row to both parts."""
    return mock.patch.object(running, "_rows_of", lambda part, table, held_out: table)


@contextlib.contextmanager
def uncharged() -> Iterator[None]:
    """Forget the exploration when costs are added up."""
    whole = planning.whole_event

    def forgetful(parts: Any, split: Any, adjacency: Any) -> Any:
        others = {name: event for name, event in parts.items() if name != EXPLORATION}
        return whole(others, split, adjacency)

    with (
        mock.patch.object(planning, "whole_event", forgetful),
        mock.patch.object(certificate, "whole_event", forgetful),
    ):
        yield


def with_free_exploration() -> StudyPlan:
    """Give the exploration what the others have, and the others everything."""
    sound = planned(ADD_REMOVE)
    whole = Exploration({}).plan_within(sound.schema, ADD_REMOVE, N_ROWS, BUDGET)
    halves = Exploration({}).plan_within(sound.schema, ADD_REMOVE, N_ROWS // 2, BUDGET)
    with uncharged():
        return dataclasses.replace(sound, exploration=whole, model=halves, evaluation=halves)


CASES: list[Case] = [case(ADD_REMOVE, ""), case(REPLACE_ONE, CLOSER)]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise", why=""),
    Case(
        "bugs",
        "Study",
        lambda: attacked(
            lambda: planned(ADD_REMOVE),
            ADD_REMOVE,
            seen=(EXPLORATION, MODEL, EVALUATION),
            under=both_parts,
        ),
        ADD_REMOVE,
        bug="a row in both parts",
    ),
    Case(
        "bugs",
        "Study",
        lambda: attacked(with_free_exploration, ADD_REMOVE, under=uncharged),
        ADD_REMOVE,
        bug="a part that is not charged",
    ),
]
