"""Descriptions of tables: one release of many tables, and tables that its bound forgets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from dpglm.audit import Claim
from dpglm.certificate.execution import PartPlan
from dpglm.exploration import plan_description
from dpglm.exploration.describe import DescriptionPart
from dpglm.oracle.counts import table_sum
from dpglm.privacy import Adjacency
from dpglm.tables.schema import Schema
from experiments.audits.case import (
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

SCHEMA = Schema.from_dict(
    {
        "columns": {
            "age": {"type": "numeric", "low": 0, "high": 100},
            "pay": {"type": "numeric", "low": 0, "high": 10},
            "sex": {"type": "categorical", "categories": ["f", "m"]},
        },
        "target": {"name": "ill", "type": "binary", "classes": ["no", "yes"]},
        "provenance": "made up",
    }
)
PERSON = {"age": [100.0], "pay": [10.0], "sex": ["m"], "ill": ["yes"]}
OTHER = {"age": [0.0], "pay": [9.9], "sex": ["f"], "ill": ["no"]}
NUMBER = 4
"""Number of tables of a numeric column: cells, their parts, sums of numbers and of squares."""
CLOSER = (
    "Replacing a row changes two cells: a distance of sqrt(2) bounds, where the claim covers 2."
)


def planned(relation: Adjacency, by: str | None) -> PartPlan:
    """Plan a description of four rows with everything that there is."""
    pairs = [] if by is not None else [("age", "sex")]
    return plan_description(
        SCHEMA,
        4,
        BUDGET,
        adjacency=relation.value,
        two_way=pairs,
        correlations=[("age", "pay")],
        by=by,
    )


def attacked(plan: PartPlan, **rest: Any) -> Setup:
    """Attack a person who is at the far end of everything, and the only one there."""
    part = plan.part
    assert isinstance(part, DescriptionPart)
    encoder = part.design(plan.plan).encoder
    rows = [encoder.encode(one)[0].tolist() for one in (PERSON, OTHER)]
    return of_plan(plan.plan, rows[0], replacement=(rows[1], 1.0), **rest)


def case(relation: Adjacency, by: str | None = None) -> Case:
    """Make a line of the campaign."""
    return Case(
        "exploration",
        "describe",
        lambda: attacked(planned(relation, by)),
        relation,
        "by groups" if by else "",
        CLOSER if relation is REPLACE_ONE else "",
    )


def forgetful(kept: Callable[[Any], Any]) -> Setup:
    """Plan and run with a bound on some of the tables only, and keep the right claim."""

    def of_some(tables: Any) -> Any:
        return dataclasses.replace(table_sum(tables), bound=table_sum(kept(tables)).bound)

    sound = planned(ZERO_OUT, None)
    with summed_as(of_some):
        plan = dataclasses.replace(sound.plan, method=dataclasses.replace(sound.plan.method))
        # Its bound is kept from now on.
        _ = plan.method.releases
    setup = attacked(dataclasses.replace(sound, plan=plan))
    return dataclasses.replace(
        setup,
        claim=Claim.of(sound.plan),
        under=lambda: summed_as(of_some),
    )


CASES: list[Case] = [*(case(relation) for relation in RELATIONS), case(ZERO_OUT, "sex")]
BUGS: list[Case] = [
    dataclasses.replace(CASES[0], bug="half the noise", planted_bug="half_noise"),
    Case(
        "bugs",
        "describe",
        lambda: forgetful(lambda tables: tables[2 * NUMBER :]),
        bug="two columns forgotten in the sensitivity",
    ),
    Case(
        "bugs",
        "describe",
        lambda: forgetful(lambda tables: tables[:1]),
        bug="every column at the price of one",
    ),
]
