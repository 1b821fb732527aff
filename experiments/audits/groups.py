"""Persons with several rows: fits that protect them, and persons who are taken for several."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import dpglm
from dpglm.audit import Claim, Neighbours
from dpglm.data import dask as groups_of_dask
from dpglm.data import groups as grouped_rows
from dpglm.data.groups import Groups
from dpglm.privacy import Adjacency, GaussianAccountant
from dpglm.solvers import NoisyGD
from experiments.audits.case import (
    ADD_REMOVE,
    BUDGET,
    HUGE,
    RELATIONS,
    REPLACE_ONE,
    ZERO_OUT,
    Case,
    Setup,
)

__all__ = ["BUGS", "CASES"]

Data: TypeAlias = dict[str, NDArray[Any]]
# One person has many rows, which lie among those of the others, who have one each.
IDS = np.array([0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6])
PUBLIC = {"n_rows": len(IDS), "n_groups": 7}


def persons(length: float, weight: float = 1.0, *, others: bool = False) -> Data:
    """Make rows; those of one person have large norms, low weights, or are absent."""
    is_his = IDS == 0
    data = {
        "X": np.where(is_his, length, 0.0)[:, np.newaxis],
        "y": is_his.astype(int),
        "weights": np.where(is_his, weight, 1.0),
        "ids": IDS,
    }
    return {name: values[~is_his] if others else values for name, values in data.items()}


def neighbours(relation: Adjacency) -> Neighbours:
    """Return data sets that differ in the person with many rows."""
    second = {
        ZERO_OUT: persons(0.0, 0.0),
        ADD_REMOVE: persons(HUGE, others=True),
        REPLACE_ONE: persons(-HUGE),
    }
    return Neighbours("one person", persons(HUGE), second[relation])


def in_memory(data: Data) -> tuple[Any, ...]:
    """Rows, targets, weights and persons as they are."""
    return tuple(data.values())


def on_a_cluster(data: Data) -> tuple[Any, ...]:
    """Return them as arrays of Dask, a partition for every two rows."""
    import dask.array

    return tuple(
        dask.array.from_array(values, chunks=(2, *values.shape[1:])) for values in data.values()
    )


def attacked(
    relation: Adjacency,
    limit: int | None = None,
    stored: Callable[[Data], tuple[Any, ...]] = in_memory,
    under: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
) -> Setup:
    """Attack the coefficient after one step, which is the noisy sum of persons' gradients."""
    public = {} if relation is ZERO_OUT else {"n_rows": len(IDS)}
    public |= {"n_groups": 7} if relation is ADD_REMOVE else {}
    model = dpglm.LogisticRegression(
        budget=BUDGET,
        adjacency=relation.value,
        classes=[0, 1],
        row_norm=1.0,
        weight_bound=1.0,
        fit_intercept=False,
        max_rows_per_group=limit,
        solver=NoisyGD(n_steps=1),
        **public,
    )

    def released(data: Data) -> NDArray[np.float64]:
        X, y, weights, ids = stored(data)
        found: NDArray[np.float64] = model.fit(X, y, weights, groups=ids).coef_.ravel()
        return found

    plan = dpglm.LogisticRegression(**model.get_params()).set_params(**PUBLIC).plan(len(IDS), 1)
    mu = GaussianAccountant().mu(plan.event, relation)
    return Setup(
        released,
        (neighbours(relation),),
        claim=Claim(BUDGET.epsilon, BUDGET.delta, mu),
        under=under,
    )


def case(relation: Adjacency, variant: str = "", why: str = "", **how: Any) -> Case:
    """Make a line of the campaign."""
    return Case("persons", "groups", lambda: attacked(relation, **how), relation, variant, why)


def neighbouring(cls: Any, ids: Any, n_rows: int) -> Groups:
    """Take equal identifiers for one person only where they stand together."""
    begins = np.diff(ids, prepend=-1) != 0
    return Groups(np.cumsum(begins) - 1, int(begins.sum()))


def not_recognised() -> AbstractContextManager[Any]:
    """Patch identifiers."""
    return mock.patch.object(Groups, "of", classmethod(neighbouring))


def split() -> AbstractContextManager[Any]:
    """Let a person lie in several partitions."""

    def counted(found: Any) -> tuple[int, int]:
        return sum(one.n_rows for one in found), sum(len(one.names) for one in found)

    return mock.patch.object(groups_of_dask, "check_apart", counted)


def without_bound() -> AbstractContextManager[Any]:
    """Add up contributions of people without a bound."""
    return mock.patch.object(grouped_rows, "clipped", lambda sums, bound, step: sums.sum(axis=0))


def all_rows() -> AbstractContextManager[Any]:
    """Use all rows, whatever the limit."""
    return mock.patch.object(Groups, "kept", lambda self, most, noise: np.arange(len(self.codes)))


def bug(words: str, **how: Any) -> Case:
    """Make a line of a planted bug."""
    return Case("bugs", "groups", lambda: attacked(ZERO_OUT, **how), ZERO_OUT, bug=words)


CASES: list[Case] = [
    *(case(relation) for relation in RELATIONS),
    case(ZERO_OUT, "a limit of 2", limit=2),
    case(ZERO_OUT, "a limit that is not applied", limit=2, under=all_rows),
]
BUGS: list[Case] = [
    dataclasses.replace(bug("half the noise"), planted_bug="half_noise"),
    bug("one person under several ids", under=not_recognised),
    bug("a person in several partitions", stored=on_a_cluster, under=split),
    bug("a bound that is not applied", under=without_bound),
]
