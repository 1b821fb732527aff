"""Critical values and p-values of several comparisons."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats: TypeAlias = NDArray[np.float64]

CORRECTIONS = ("simultaneous", "holm", "bonferroni", "none")
"""Corrections for several comparisons."""

_DRAWS = 20_000


def quantile(level: float, degrees_of_freedom: float) -> float:
    """Return the critical value of one two-sided interval."""
    return -float(special.stdtrit(degrees_of_freedom, 0.5 * (1.0 - level)))


def root_of(covariance: Floats) -> Floats:
    """Return a root of a covariance matrix that is semidefinite up to rounding."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def largest_errors(root: Floats, degrees_of_freedom: float) -> Floats:
    """Simulate the largest studentized error of ``root @ z``; rows of ``root`` have norm 1."""
    if not len(root):
        return np.zeros(_DRAWS)
    # A fixed seed keeps results reproducible; these draws are not privacy noise.
    random = np.random.default_rng(0)
    z = random.standard_normal((_DRAWS, root.shape[1]))
    largest: Floats = np.abs(z @ root.T).max(axis=1)
    if math.isfinite(degrees_of_freedom):
        largest /= np.sqrt(random.chisquare(degrees_of_freedom, _DRAWS) / degrees_of_freedom)
    return largest


def corrected(
    correction: str,
    statistics: Floats,
    p_values: Floats,
    root: Floats,
    degrees_of_freedom: float,
    level: float,
) -> tuple[Floats, float]:
    """Return adjusted p-values and the critical value of the intervals.

    ``root`` has the studentized errors of the comparisons that can be estimated. Holm's method has
    no intervals of its own; those of Bonferroni go with it.
    """
    size = len(p_values)
    if correction == "none" or size == 1:
        return p_values, quantile(level, degrees_of_freedom)
    if correction == "simultaneous":
        largest = np.sort(largest_errors(root, degrees_of_freedom))
        above = len(largest) - np.searchsorted(largest, np.abs(statistics))
        simulated = (1.0 + above) / (1.0 + len(largest))
        return np.maximum(simulated, p_values), float(np.quantile(largest, level))
    critical = quantile(1.0 - (1.0 - level) / size, degrees_of_freedom)
    if correction == "bonferroni":
        return np.minimum(1.0, size * p_values), critical
    order = np.argsort(p_values, kind="stable")
    stepped = np.maximum.accumulate((size - np.arange(size)) * p_values[order])
    adjusted = np.empty(size)
    adjusted[order] = np.minimum(1.0, stepped)
    return adjusted, critical
