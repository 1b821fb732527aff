"""Attacks on the sums of a treatment effect, and on sums whose contributions are not clipped."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Protection
from dpglm.effects.parts import EFFECT, SumsPart
from dpglm.effects.question import question_of
from dpglm.oracle.counts import Cells
from dpglm.privacy import Adjacency
from dpglm.tables.schema import Schema
from experiments.audits.case import BUDGET, RELATIONS, REPLACE_ONE, ZERO_OUT, Case, Setup, of_plan

__all__ = ["BUGS", "CASES"]

SCHEMA = {
    "columns": {
        "x": {"type": "numeric", "low": -1, "high": 1},
        "arm": {"type": "categorical", "categories": ["old", "new"]},
    },
    "target": {"name": "y", "type": "numeric", "low": -1, "high": 1},
    "provenance": "made up",
}
PART = SumsPart(question_of(Schema.from_dict(SCHEMA), "arm", "y", ["x"], 0.1), EFFECT)
# A row at all clips, in units of the bounds, and its opposite.
FARTHEST, OPPOSITE = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, -1.0, 1.0, -1.0, 1.0]
CLOSER = "squares and products of opposite rows are equal, and the relation's factor is 2"


def attacked(relation: Adjacency, row: list[float] = FARTHEST, **rest: Any) -> Setup:
    """Attack the only row with a contribution, as large as can be."""
    plan = PART.plan(Protection(relation, BUDGET, 4))
    return of_plan(plan, row, replacement=(OPPOSITE, 1.0), **rest)


def case(relation: Adjacency) -> Case:
    """Make a line of the campaign."""
    why = CLOSER if relation is REPLACE_ONE else ""
    return Case("exploration", "ate", lambda: attacked(relation), relation, "sums", why)


def unclipped() -> Setup:
    """Add up contributions of outcomes beyond their bounds, and claim what was meant."""

    def sums(cells: Cells, X: NDArray[np.float64], weights: Any = None) -> NDArray[np.float64]:
        place = np.zeros(len(X), np.intp)
        for column, size in zip(cells.columns, cells.sizes, strict=True):
            place = place * size + np.clip(np.rint(X[:, column]), 0, size - 1).astype(np.intp)
        added = X[:, list(cells.values)].prod(axis=1)
        added = added if weights is None else added * weights
        return np.asarray(np.bincount(place, added, cells.size), np.float64)

    setup = attacked(ZERO_OUT, [1.0, 1.0, 3.0, 3.0, 1.0, 1.0])
    return dataclasses.replace(setup, under=lambda: mock.patch.object(Cells, "sums", sums))


CASES: list[Case] = [case(relation) for relation in RELATIONS]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise"),
    Case("bugs", "ate", unclipped, bug="contributions that are not clipped"),
]
