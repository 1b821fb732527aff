"""Scored rows of every task."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

N = 4000


@pytest.fixture(scope="session")
def binary():
    """Targets, scores and an attribute."""
    rng = np.random.default_rng(0)
    scores = expit(-1.0 + 1.5 * rng.normal(size=N))
    y = np.where(rng.uniform(size=N) < scores, "ill", "well")
    return y, scores, rng.choice(["north", "south", "west"], N, p=[0.5, 0.4, 0.1])


@pytest.fixture(scope="session")
def classes():
    """Labels of four classes and their probabilities."""
    rng = np.random.default_rng(1)
    z = np.exp(1.5 * rng.normal(size=(N, 4)))
    probabilities = z / z.sum(axis=1, keepdims=True)
    drawn = rng.uniform(size=(N, 1))
    return (probabilities.cumsum(axis=1) > drawn).argmax(axis=1), probabilities


@pytest.fixture(scope="session")
def numbers():
    """Targets between 0 and 5, and predictions."""
    rng = np.random.default_rng(2)
    y = rng.normal(2.0, 1.0, N).clip(0.0, 5.0)
    return y, y + rng.normal(0.1, 0.5, N)
