"""Comparison and selection of models from released moments, with joint intervals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import special

from dpglm._validation import check_one_of
from dpglm._words import plain_number
from dpglm.inference.comparisons import WaldTest
from dpglm.inference.inference import Inference
from dpglm.moments.basis import parsed
from dpglm.tables.columns import Column
from dpglm.tables.formula.design import FormulaEncoding

if TYPE_CHECKING:
    from dpglm.moments.model import MomentFit

Floats: TypeAlias = NDArray[np.float64]

_MOST_TERMS = 15


@final
@dataclass(frozen=True)
class Comparison:
    """A model and a larger one.

    Parameters
    ----------
    added : tuple of str
        Coefficients of the larger model that the smaller one lacks.
    test : WaldTest
        Test that they are all zero.
    r_squared : (float, float)
        Shares of explained variance of the smaller and the larger model.
    """

    added: tuple[str, ...]
    test: WaldTest
    r_squared: tuple[float, float]


def compared(smaller: MomentFit, larger: MomentFit) -> Comparison:
    """Compare two models with the same target."""
    names, all_names = smaller.inference_.names, larger.inference_.names
    added = tuple(name for name in all_names if name not in names)
    same = smaller.formula.split("~")[0].strip() == larger.formula.split("~")[0].strip()
    if not same or not added or not set(names) <= set(all_names):
        raise ValueError(
            f"smaller must be a model of the same target with some of the terms of larger, got "
            f"{smaller.formula!r} and {larger.formula!r}"
        )
    return Comparison(
        added,
        larger.inference_.wald_test(list(added)),
        (smaller.r_squared, larger.r_squared),
    )


@final
@dataclass(frozen=True)
class Selection:
    """A selected model.

    Parameters
    ----------
    model : MomentFit
        The selected model; its own intervals ignore the selection.
    n_models : int
        Number of models that the search looked at.
    n_possible : int
        Number of models that it could have selected.
    critical_value : float
        Number of standard errors of the joint intervals.
    level : float
        Their confidence level.
    """

    model: MomentFit
    n_models: int
    n_possible: int
    critical_value: float
    level: float

    def conf_int(self) -> NDArray[np.float64]:
        """Return intervals of the coefficients that hold together, whatever was selected.

        Returns
        -------
        ndarray of shape (n_coefficients, 2)
        """
        found: Inference = self.model.inference_
        half = self.critical_value * found.standard_errors
        return np.column_stack([found.params - half, found.params + half])

    def __repr__(self) -> str:
        return (
            f"Selected {self.model.formula}, after {self.n_models} models were looked at. Joint "
            f"{plain_number(100.0 * self.level)} % intervals are "
            f"{plain_number(self.critical_value, 3)} standard errors wide on each side.\n"
            f"{self.model!r}"
        )


def selected(
    formula: str,
    regress: Callable[[str], MomentFit],
    columns: Sequence[Column],
    method: Any,
    level: float,
    weight: float,
) -> Selection:
    """Select terms of a formula; see ``Moments.select``."""
    check_one_of("method", method, ("stepwise", "exhaustive"))
    _, design = parsed(formula, columns)
    names, sizes = _terms(design)
    if len(names) > _MOST_TERMS and method == "exhaustive":
        raise ValueError(
            f"formula must have at most {_MOST_TERMS} terms for method='exhaustive', got "
            f"{len(names)}: use 'stepwise'"
        )
    full = regress(formula).inference_
    criterion = _Criterion(full, sizes, math.log(max(weight, math.e)))
    everything = frozenset(range(len(names)))
    if method == "exhaustive":
        subsets = [
            frozenset(one)
            for size in range(1, len(names) + 1)
            for one in itertools.combinations(sorted(everything), size)
        ]
        best = min(subsets, key=criterion)
        looked = len(subsets)
    else:
        best, looked = _backward(everything, criterion)
    left = formula.split("~")[0].strip()
    sign = "" if design.has_intercept else "0 + "
    model = regress(f"{left} ~ {sign}{' + '.join(names[k] for k in sorted(best))}")
    # A coefficient of a term is in half of all models, and the intercept in all.
    tests = (2 * len(full.names) - sum(sizes)) * 2.0 ** (len(names) - 1)
    tail = (1.0 - level) / (2.0 * tests)
    return Selection(model, looked, 2 ** len(names) - 1, -float(special.ndtri(tail)), level)


def _terms(design: FormulaEncoding) -> tuple[list[str], list[int]]:
    """Return the terms of a formula as text, and their numbers of columns."""
    columns = {one.name for one in design.columns}
    names = [
        ":".join(
            f"`{one.factor.name}`" if one.factor.name in columns else one.factor.name
            for one in term
        )
        for term in design.slopes
    ]
    sizes = [len(design.fields_of(term)) for term in design.slopes]
    if len(set(names)) < len(names):
        raise ValueError("formula must have main effects for the factors of its products")
    return names, sizes


@final
class _Criterion:
    """``W + log(n) q`` of a model with some of the terms."""

    def __init__(self, full: Inference, sizes: Sequence[int], cost: float) -> None:
        ends = np.cumsum([len(full.names) - sum(sizes), *sizes])
        self._places = [np.arange(a, b) for a, b in itertools.pairwise(ends)]
        self._params, self._covariance, self._cost = full.params, full.covariance, cost

    def __call__(self, kept: frozenset[int]) -> float:
        lost = [one for k, one in enumerate(self._places) if k not in kept]
        size = sum(len(self._places[k]) for k in kept)
        if not lost:
            return self._cost * size
        at = np.concatenate(lost)
        gap = self._params[at]
        deviations = np.sqrt(np.diag(self._covariance)[at])
        correlation = self._covariance[np.ix_(at, at)] / np.outer(deviations, deviations)
        gap = gap / deviations
        return float(gap @ np.linalg.lstsq(correlation, gap, rcond=None)[0]) + self._cost * size


def _backward(kept: frozenset[int], criterion: _Criterion) -> tuple[frozenset[int], int]:
    """Remove terms one by one while the criterion falls; return the rest and the models seen."""
    best, looked = criterion(kept), 1
    while len(kept) > 1:
        options = {one: criterion(kept - {one}) for one in sorted(kept)}
        looked += len(options)
        place = min(options, key=lambda one: options[one])
        if options[place] >= best:
            break
        kept, best = kept - {place}, options[place]
    return kept, looked
