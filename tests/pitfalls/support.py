"""How a pitfall is tested: a check that holds, and fails where the bug is planted."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import numpy as np
import pytest

from dpglm import LogisticRegression, NoisyGD
from dpglm.data.rows import DataSpec
from dpglm.solvers import base

FAILED = (AssertionError, pytest.fail.Exception)

SHORT = NoisyGD(n_steps=3, step_size=0.5, clip=0.5)
PLANNED = DataSpec(n_rows=20, n_features=3, row_norm=2.0, intercept=2.0)


def caught(bug: AbstractContextManager[Any], check: Callable[..., None], *args: Any) -> None:
    """Show that a check holds, and that it would not if there were the bug."""
    check(*args)
    with bug, pytest.raises(FAILED):
        check(*args)


@contextlib.contextmanager
def unasked(bug: AbstractContextManager[Any]) -> Iterator[None]:
    """Plant a bug where plans are not asked whether they are within their budgets."""
    with bug, mock.patch.object(base, "within_budget", return_value=True):
        yield


def small(n: int = 20, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A few rows of length at most the square root of ``d``, and two classes."""
    rng = np.random.default_rng(0)
    return rng.uniform(-1, 1, size=(n, d)), np.arange(n) % 2


def model(**options: Any) -> LogisticRegression:
    """An estimator with declared public facts."""
    return LogisticRegression(**{"classes": [0, 1], "row_norm": 2.0, "solver": SHORT, **options})
