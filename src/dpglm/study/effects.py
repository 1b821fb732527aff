"""Standardisation: mean predictions over the private rows with one column set to a value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dpglm._validation import Array, check_list, check_one_of, check_real
from dpglm._words import plain_number
from dpglm.certificate.certificate import Certificate, PublicFact, schema_facts
from dpglm.certificate.execution import Expected, PartInput, StudyPart, proportion_ratio
from dpglm.data.rows import Protection
from dpglm.data.split import EFFECTS, MODEL
from dpglm.estimators.composed._composed import parts_of
from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.exploration.design import plan_tables, run_on_table
from dpglm.inference.comparisons import Comparisons, quantile
from dpglm.inference.effects import checked_cell, derivative, in_plain_words, mean_effects, usual
from dpglm.inference.inference import Inference
from dpglm.oracle.counts import Cells
from dpglm.oracle.moments import symmetric
from dpglm.preprocessing.encoders import TableEncoder
from dpglm.solvers.base import Plan
from dpglm.solvers.composite.tabulation import Tabulation
from dpglm.study.planning import ModelPart
from dpglm.tables.additive_terms import as_dense
from dpglm.tables.columns import CategoricalColumn
from dpglm.tables.named import by_name
from dpglm.tabulate import public_rows

# Shares of the squared budget. Gradients get most: their noise is multiplied by the covariance of
# the coefficients.
_COUNT, _MEANS, _PRODUCTS, _GRADIENTS, _ERRORS = 0.1, 0.2, 0.05, 0.55, 0.1
_TYPICAL = 0.1
"""Share of the rows in a category, for the expected noise of gradients."""
_MOST = 12
_SCORES = np.linspace(-40.0, 40.0, 8001)


@final
@dataclass(frozen=True, eq=False)
class StandardizedMeans:
    """Mean predictions over the rows of a study, with one column set to each of some values.

    ``means``, of shape (n_values,), are in the units of the target (probabilities for two classes);
    ``covariance`` is theirs for fixed coefficients: noise, and sampling of the rows. ``gradients``,
    of shape (n_values, n_coefficients), are noisy derivatives of the means by the coefficients.
    ``errors``, of shape (n_values, n_sets), are noisy mean standard errors due to the 1, 2, 4, ...
    directions in which the coefficients are least certain: of predictions for the first value, and
    of differences from them. ``noise`` has the standard deviations in a gradient and an error.

    Notes
    -----
    Intervals contain the sampling error of the rows, the uncertainty of the coefficients (both
    kinds) and the noise of this release. Coefficients and rows are uncorrelated if the model is
    right. Effects are causal only if the model contains all confounders.

    Privacy: computed from released values.

    References
    ----------
    J. M. Robins, "A new approach to causal inference in mortality studies", Mathematical Modelling
    7 (1986).
    """

    column: str
    values: tuple[Any, ...]
    level: float
    means: Array
    covariance: Array
    gradients: Array
    errors: Array
    noise: tuple[float, float]
    inference: Inference
    privacy_: Certificate

    @property
    def predictions(self) -> Comparisons:
        """The mean prediction for each value."""
        names = [f"{self.column} = {in_plain_words(one)}" for one in self.values]
        return self._effects("mean", names, self.means, np.eye(len(names)))

    @property
    def differences(self) -> Comparisons:
        """Differences from the mean with the first value (risk differences)."""
        names, rows = self._against_first("-")
        return self._effects("difference", names, rows @ self.means, rows)

    @property
    def ratios(self) -> Comparisons:
        """Ratios to the mean with the first value (risk ratios); intervals of the logarithms."""
        names, rows = self._against_first("/")
        means = np.maximum(self.means, np.finfo(float).tiny)
        return self._effects("ratio", names, rows @ np.log(means), rows / means)

    @property
    def tables(self) -> tuple[Comparisons, ...]:
        """Means, and their differences and ratios if there are several."""
        several = len(self.values) > 1
        return (self.predictions, *((self.differences, self.ratios) if several else ()))

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers with their intervals as plain values."""
        numbers = {
            name: {
                key: float(number) if math.isfinite(number) else None
                for key, number in zip(("estimate", "low", "high"), (value, *ends), strict=True)
            }
            for one in self.tables
            for name, value, ends in zip(one.names, one.estimates, one.intervals, strict=True)
        }
        return {"column": self.column, "level": self.level, "numbers": numbers}

    def _against_first(self, sign: str) -> tuple[list[str], Array]:
        first, *others = map(in_plain_words, self.values)
        rows = np.eye(len(self.values))
        return [f"{self.column}: {one} {sign} {first}" for one in others], rows[1:] - rows[0]

    def _effects(self, what: str, names: Sequence[str], values: Array, rows: Array) -> Comparisons:
        """Return linear combinations of the means, or of their logarithms for ratios.

        With C the covariance of the coefficients and g a gradient with noise of variance s^2 in
        each entry, ``g' C g - s^2 tr(C)`` has the mean of the variance due to the coefficients,
        and where this is zero, the standard deviation ``sqrt(2) s^2 |C|``, which is added. In
        directions with little information, such as a rare category, C is large and g is not.
        The root of the variance due to any directions is at most the mean of the roots for
        single rows (Minkowski), which was released. The least of these bounds is used.
        """
        estimates = self.inference.scores.estimates
        values_of, vectors, counts = _directions(estimates.covariance)
        # Ratios to a mean of zero overflow.
        with np.errstate(all="ignore"):
            slopes = rows @ self.gradients @ vectors
            squares = (rows**2).sum(axis=1) * self.noise[0] ** 2
            # As combinations of the first mean and the differences from it.
            parts = np.abs(np.column_stack([rows.sum(axis=1), rows[:, 1:]]))
            bounds = []
            for first, errors in zip((0, *counts), (None, *self.errors.T), strict=True):
                rest = values_of[first:]
                bound = np.maximum(slopes[:, first:] ** 2 @ rest - squares * rest.sum(), 0.0)
                bound += math.sqrt(2.0) * squares * np.linalg.norm(rest)
                if errors is not None:
                    bound += (parts @ (np.maximum(errors, 0.0) + self.noise[1])) ** 2
                bounds.append(bound)
            variances = np.min(bounds, axis=0)
            variances += np.einsum("ij,jk,ik->i", rows, self.covariance, rows)
            known = np.isfinite(variances) & estimates.is_known
            found = np.sqrt(np.where(known, variances, np.inf))
            half = quantile(self.level, estimates.degrees_of_freedom) * found
            ends = np.column_stack([values - half, values + half])
            if what == "ratio":
                values, ends = np.exp(values), np.exp(ends)
        note = (
            f"Means of predictions over all rows with {self.column} set to each value. "
            f"{100.0 * self.level:g} % intervals include sampling error and privacy noise, of the "
            "coefficients and of the means. The model is assumed to be right."
        )
        title = f"{self.inference.title}: standardised {what}s"
        return mean_effects(title, what, names, (values, found, ends), self.level, [note])


def _sets(n_columns: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... and the number of coefficients."""
    powers = itertools.takewhile(lambda one: one < n_columns, (2**k for k in itertools.count()))
    return (*powers, n_columns)


def _directions(covariance: Array) -> tuple[Array, Array, tuple[int, ...]]:
    """Return variances, directions as columns, and sizes of sets, the least certain first."""
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1], _sets(len(values))


@final
@dataclass(frozen=True)
class _Standardized:
    """Encodes a row as its predictions with the column set, their gradients and their errors.

    An error of a prediction counts as half of the range at most. All numbers are in [-1, 1].

    Privacy: each row is encoded by itself, from the released model.
    """

    part: EffectsPart
    inference: Inference
    unit: float

    @property
    def names(self) -> tuple[str, ...]:
        """Columns that are read."""
        return tuple(dict.fromkeys(one.source for one in self.part.model.schema.columns))

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        return self.part.width(len(self.inference.scores.estimates.params))

    def encode(self, table: Any) -> Array:
        """Return all predictions, then all gradients and errors, in units of their bounds."""
        named = by_name(table)
        rows = {name: np.asarray(named[name]) for name in self.names}
        n_rows = len(next(iter(rows.values())))
        if not n_rows:
            # Whether a private condition selects any row is private: models refuse an empty table.
            return np.zeros((0, self.width))
        estimates, (low, high) = self.inference.scores.estimates, self.part.bounds
        values, vectors, counts = _directions(estimates.covariance)
        means: list[Array] = []
        gradients: list[Array] = []
        errors: list[Array] = []
        for value in self.part.values:
            cells = np.full(n_rows, value, dtype=object if isinstance(value, str) else None)
            X = self.inference.scores.features({**rows, self.part.column: cells})
            X = np.asarray(as_dense(X), dtype=np.float64)
            X = np.insert(X, 0, 1.0, axis=1) if estimates.has_intercept else X
            scores = X @ estimates.params
            mean = np.asarray(self.inference.link.inverse(scores), dtype=np.float64)
            inside = (mean >= low) & (mean <= high)
            slope = np.where(inside, derivative(self.inference.link, scores), 0.0)
            means.append(2.0 * (np.clip(mean, low, high) - low) / (high - low) - 1.0)
            gradients.append(slope[:, np.newaxis] * X)
            moved = (gradients[-1] - gradients[0] if errors else gradients[0]) @ vectors
            spread = np.cumsum(moved**2 * values, axis=1)[:, np.array(counts) - 1]
            of_row = np.sqrt(spread) / (0.5 * (high - low))
            errors.append(2.0 * np.minimum(of_row, 1.0) - 1.0)
        gradients = [one / self.unit for one in gradients]
        return np.nan_to_num(np.column_stack([*means, *gradients, *errors]))


@final
@dataclass(frozen=True)
class EffectsPart(StudyPart):
    """Standardised means of a model with inference; ``values`` are those of ``column``.

    Privacy: one Gaussian release of sums over all rows: of ones, of predictions in the public
    range of the target, of their products, of the derivatives of predictions by the coefficients,
    and of standard errors of predictions, which follow from the released covariance. Each entry of
    a row is clipped to [-1, 1], and the weights of the tables make the L2 norm of all entries of a
    row at most 1, whatever the released model is.
    """

    model: ModelPart
    column: str
    values: tuple[Any, ...]
    level: float

    def __post_init__(self) -> None:
        check_real("level", self.level, above=0.0, below=1.0)

    @property
    def bounds(self) -> tuple[float, float]:
        """Public range of predictions."""
        known = self.model.schema.target.estimator_parameters()
        low, high = map(float, known.get("target_bounds", (0.0, 1.0)))
        return low, high

    def _cells(self, n_columns: int) -> tuple[Cells, ...]:
        size = len(self.values)
        pairs = [(j, k) for j in range(size) for k in range(j, size)]
        places, errors = np.split(np.arange(size, self.width(n_columns)), [size * n_columns])
        kinds = ((_MEANS, size), (_PRODUCTS, len(pairs)), (_GRADIENTS, len(places)))
        means, products, gradients, last = (
            math.sqrt(share / count) for share, count in (*kinds, (_ERRORS, len(errors)))
        )
        return (
            Cells((), (), math.sqrt(_COUNT)),
            *(Cells((), (), means, (j,)) for j in range(size)),
            *(Cells((), (), products, pair) for pair in pairs),
            *(Cells((), (), gradients, (place,)) for place in places.tolist()),
            *(Cells((), (), last, (place,)) for place in errors.tolist()),
        )

    def width(self, n_columns: int) -> int:
        """Return the number of encoded columns for a model with this many coefficients."""
        return len(self.values) * (1 + n_columns + len(_sets(n_columns)))

    def plan(self, protection: Protection) -> Plan:
        n_columns = self._n_columns(protection)
        width = self.width(n_columns)
        return plan_tables(protection, width, math.sqrt(width), self._cells(n_columns))

    def _n_columns(self, protection: Protection) -> int:
        found: int = self.model._protected(protection).n_planned_columns(protection.n_rows)
        return found

    def noise_to_sampling(self, protection: Protection) -> float:
        noise = self.plan(protection).coefficient_noise / protection.n_rows
        size = len(self.values) * self._n_columns(protection)
        return proportion_ratio(noise / math.sqrt(_GRADIENTS / size), protection.n_rows, _TYPICAL)

    def title(self, plan: Plan) -> str:
        return f"mean predictions by {self.column!r} over {plan.data.n_rows} rows"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        noise = plan.coefficient_noise / math.sqrt(_MEANS / len(self.values)) / plan.data.n_rows
        half = 0.5 * (self.bounds[1] - self.bounds[0])
        return (("a mean prediction", half * noise * quantile(self.level, math.inf)),)

    def expected(self, plan: Plan) -> tuple[Expected, ...]:
        ((name, half),) = self.precision(plan)
        return (Expected(EFFECTS, name, f"± {plain_number(half, 2)} of noise"),)

    def run(self, plan: Plan, given: PartInput) -> StandardizedMeans:
        inference: Inference = given.earlier[MODEL].inference_
        link, (low, high) = inference.link, self.bounds
        means = np.asarray(link.inverse(_SCORES), dtype=np.float64)
        inside = (means >= low) & (means <= high)
        slopes = derivative(link, _SCORES)
        unit = float(slopes[inside].max() if inside.any() else slopes.max())
        encoder = _Standardized(self, inference, unit)
        facts = (
            *schema_facts(self.model.schema),
            PublicFact("column", self.column, "declared"),
            PublicFact("values", list(self.values), "declared"),
        )
        schema = self.model.schema
        solution, certificate = run_on_table(
            plan, given, encoder, schema, "StandardizedMeans", facts
        )
        assert isinstance(plan.method, Tabulation)
        size, weights = len(self.values), [one.weight for one in plan.method.tables]
        n_columns = len(inference.scores.estimates.params)
        count, sums, products, gradients, errors = np.split(
            solution.w / weights, np.cumsum([1, size, size * (size + 1) // 2, size * n_columns])
        )
        public = public_rows(plan, given.where is not None)
        n_rows = max(float(count[0]), 1.0) if public is None else float(public)
        std, half = plan.coefficient_noise / n_rows, 0.5 * (high - low)
        centred = sums / n_rows
        # An error of the number of rows moves all means.
        shared = 0.0 if public is not None else (std / weights[0]) ** 2
        noise = (std / weights[1]) ** 2 * np.eye(size) + shared * np.outer(centred, centred)
        spread = symmetric(products / n_rows, size) - np.outer(centred, centred)
        values, vectors = np.linalg.eigh(spread)
        spread = vectors @ np.diag(np.maximum(values, 0.0)) @ vectors.T
        return StandardizedMeans(
            self.column,
            self.values,
            self.level,
            np.clip(low + half * (1.0 + centred), low, high),
            half**2 * (noise + plan.data.reach(1) * spread / n_rows),
            unit * gradients.reshape(size, -1) / n_rows,
            0.5 * half * (1.0 + errors.reshape(size, -1) / n_rows),
            (unit * std / weights[-1 - len(errors)], 0.5 * half * std / weights[-1]),
            inference,
            certificate,
        )


def effects_of(
    model: ModelPart, name: Any, values: Sequence[Any] | None, level: float
) -> EffectsPart:
    """Return the standardised means that ``Study.effects`` declares."""
    pipeline = model.model
    steps = parts_of(pipeline).transformers if isinstance(pipeline, PrivatePipeline) else []
    encoder = steps[0][1] if len(steps) == 1 else None
    if not isinstance(encoder, TableEncoder) or not parts_of(pipeline).model.inference:
        raise ValueError(
            "effects require a linear model of the table with inference=True or 'robust'"
        )
    schema = encoder.stated_schema()
    read = {column for term in schema.encoding.named_terms for column in term.columns}
    known = {one.name: one for one in schema.columns if one.name in read}
    column = known[check_one_of("column", name, tuple(known))]
    if column.source != column.name:
        raise ValueError(f"column must be a column of the table, got {name!r} of {column.source!r}")
    if values is None:
        if not isinstance(column, CategoricalColumn):
            raise ValueError(f"values must be given for the numeric column {name!r}")
        values = sorted(column.categories, key=lambda one: one != usual(column))
    chosen = tuple(checked_cell(column, one) for one in check_list("values", values))
    if not 1 <= len(set(chosen)) == len(chosen) <= _MOST:
        raise ValueError(f"values must be 1 to {_MOST} different ones, got {list(chosen)!r}")
    return EffectsPart(model, name, chosen, level)
