"""Attacks on the release of second moments, and on one without capped rows."""

import dataclasses
from typing import Any
from unittest import mock

from dpglm.data.rows import DataSpec
from dpglm.moments.basis import MomentBasis, basis_of
from dpglm.oracle import linear
from dpglm.privacy import Adjacency
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.moments import plan_moments
from experiments.audits.case import BUDGET, RELATIONS, REPLACE_ONE, ZERO_OUT, Case, Setup, of_plan
from experiments.audits.descriptions import CLOSER, OTHER, PERSON, SCHEMA

__all__ = ["BUGS", "CASES"]

BASIS: MomentBasis = basis_of(SCHEMA, None, ["age:sex"])


def planned(relation: Adjacency, long_rows: float) -> Plan:
    """Plan the moments of four rows."""
    data = DataSpec(4, BASIS.width, row_norm=BASIS.row_norm, intercept=1.0)
    return plan_moments(data, BUDGET, relation, BASIS.blocks, long_rows)


def attacked(plan: Plan, **rest: Any) -> Setup:
    """Attack a person who is at the far end of everything, and the only one there."""
    rows = [BASIS.encode(one)[0].tolist() for one in (PERSON, OTHER)]
    return of_plan(plan, rows[0], replacement=(rows[1], 1.0), **rest)


def case(relation: Adjacency, long_rows: float) -> Case:
    """Make a line of the campaign."""
    return Case(
        "exploration",
        "release_moments",
        lambda: attacked(planned(relation, long_rows)),
        relation,
        "" if long_rows else "all rows count fully",
        CLOSER if relation is REPLACE_ONE else "",
    )


def uncapped() -> Setup:
    """Run with rows of any norm, and keep the right claim."""

    def weighted(block: Any, spec: Any, view: Any, row_by_row: bool) -> Any:
        z, squares = linear.coordinates_of(block, spec, view, row_by_row)
        return z, 1.0 + 0.0 * squares

    return dataclasses.replace(
        attacked(planned(ZERO_OUT, 0.01)),
        under=lambda: mock.patch.object(linear, "weighted_coordinates", weighted),
    )


CASES: list[Case] = [*(case(relation, 0.01) for relation in RELATIONS), case(ZERO_OUT, 0.0)]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise"),
    Case("bugs", "release_moments", uncapped, bug="rows that are not capped"),
]
