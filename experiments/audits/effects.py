"""Attacks on both kinds of sums of a treatment effect, and on contributions without clipping."""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from dpglm.data.rows import Protection
from dpglm.effects.parts import CALIBRATION, EFFECT, SumsPart
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
QUESTION = question_of(Schema.from_dict(SCHEMA), "arm", "y", ["x"], 0.1)
# By part: the cells of a row, its contributions at all clips, and those of its opposite.
ROWS = {
    EFFECT: (2, [1.0, 1.0, 1.0, 1.0], [-1.0, 1.0, -1.0, 1.0]),
    CALIBRATION: (1, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0], [-1.0, 1.0, -1.0, -1.0, 1.0, -1.0]),
}
CLOSER = "Opposite rows have equal squares or other cells: they differ by less than 2 bounds."


def attacked(relation: Adjacency, name: str, factor: float = 1.0) -> Setup:
    """Attack the only row with a contribution, ``factor`` times as large as it may be."""
    plan = SumsPart(QUESTION, name).plan(Protection(relation, BUDGET, 4))
    n_cells, contributions, opposite = ROWS[name]
    row = [1.0] * n_cells + [factor * one for one in contributions]
    return of_plan(plan, row, replacement=([0.0] * n_cells + opposite, 1.0))


def case(relation: Adjacency, name: str) -> Case:
    """Make a line of the campaign."""
    why = CLOSER if relation is REPLACE_ONE else ""
    kind = "sums" if name == EFFECT else name
    return Case("exploration", "ate", lambda: attacked(relation, name), relation, kind, why)


def unclipped(name: str) -> Setup:
    """Add up contributions of outcomes beyond their bounds, and claim what was meant."""

    def sums(cells: Cells, X: NDArray[np.float64], weights: Any = None) -> NDArray[np.float64]:
        place = np.zeros(len(X), np.intp)
        for column, size in zip(cells.columns, cells.sizes, strict=True):
            place = place * size + np.clip(np.rint(X[:, column]), 0, size - 1).astype(np.intp)
        added = X[:, list(cells.values)].prod(axis=1)
        added = added if weights is None else added * weights
        return np.asarray(np.bincount(place, added, cells.size), np.float64)

    setup = attacked(ZERO_OUT, name, 3.0)
    return dataclasses.replace(setup, under=lambda: mock.patch.object(Cells, "sums", sums))


CASES: list[Case] = [case(relation, name) for name in ROWS for relation in RELATIONS]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise"),
    Case("bugs", "ate", lambda: unclipped(EFFECT), bug="contributions that are not clipped"),
    Case("bugs", "ate", lambda: unclipped(CALIBRATION), bug="errors that are not clipped"),
]
