"""Bugs that more than one test plants."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np

from dpglm.data.memory.dense import DenseRows
from dpglm.data.rows import Rows
from dpglm.data.spec import DataSpec
from dpglm.oracle import gradients, scores
from dpglm.oracle.clipping import FlatClipping
from dpglm.solvers import Plan

__all__ = ["not_shortened", "pythonic", "unchecked", "unclipped"]


@contextlib.contextmanager
def pythonic() -> Iterator[None]:
    """Sums in NumPy only, so that what tests put in the place of Python code is used."""
    with (
        mock.patch.object(gradients, "compiled_rule", return_value=None),
        mock.patch.object(scores, "has_compiled_scores", return_value=False),
    ):
        yield


@contextlib.contextmanager
def unclipped(factor: float = 1.0) -> Iterator[None]:
    """Slopes times ``factor``, never clipped."""

    def scale(self: FlatClipping, slopes: Any, row_norms: Any) -> Any:
        return factor * slopes

    with pythonic(), mock.patch.object(FlatClipping, "scale", scale):
        yield


def not_shortened(rows: Rows, transform: Any, spec: DataSpec) -> DenseRows:
    """Embedded rows as they are, with the norms that rows had before."""
    blocks = list(rows.blocks())
    X = np.concatenate([block.features() @ transform for block in blocks])
    norms = np.concatenate([block.norms for block in blocks])
    targets = np.concatenate([block.targets for block in blocks])
    weights = [block.weights for block in blocks if block.weights is not None]
    return DenseRows(X, targets, norms, spec, np.concatenate(weights) if weights else None)


def unchecked(plan: Plan, **changes: Any) -> Plan:
    """Change a plan without asking what a plan is asked when it is made: for bugs only."""
    changed = copy.copy(plan)
    for name, value in changes.items():
        object.__setattr__(changed, name, value)
    return changed
