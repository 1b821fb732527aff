"""A linear model in the units of released moments, and its result."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np

from dpglm._validation import Array
from dpglm.certificate.certificate import Certificate
from dpglm.inference.estimates import Estimates
from dpglm.inference.inference import Inference, LinearScores
from dpglm.inference.summary import Summary, SummarySource
from dpglm.moments.basis import MomentBasis
from dpglm.moments.regression import NoisyMoments, PenalisedTerm, Solved, solve
from dpglm.solvers.composite.moments import ReleasedMoments
from dpglm.solvers.uncertainty import Uncertainty
from dpglm.tables.encoding import LinearUnits
from dpglm.tables.formula.design import FormulaEncoding

Penalty: TypeAlias = float | Literal["auto", "terms"]

# Prior standard deviation of a coefficient, in standard deviations of the target for one of its
# column: it keeps coefficients without information finite.
_PRIOR = 10.0
_TINY = 1e-300


@final
@dataclass(frozen=True, eq=False)
class ColumnSpace:
    """Noisy moments, and columns of formulas as combinations of their coordinates."""

    basis: MomentBasis
    moments: NoisyMoments
    inverse: Array

    @classmethod
    def of(cls, basis: MomentBasis, released: ReleasedMoments) -> ColumnSpace:
        """Return the space of a release."""
        moments = NoisyMoments.of(released, basis.never_together)
        return cls(basis, moments, np.asarray(np.linalg.inv(released.vectors), np.float64))

    @property
    def constant(self) -> Array:
        """The constant 1."""
        constant = np.zeros(self.basis.width + 1)
        constant[-1] = 1.0
        return constant

    def columns_of(self, encoding: FormulaEncoding) -> Array:
        """Return the columns of a formula as combinations of the released coordinates u.

        With ``u = vectors^T x``, ``<l, x>`` is ``<vectors^-1 l, u>``.
        """
        return np.asarray(self.inverse @ self.basis.in_span(encoding))

    def deviation(self, column: Array) -> float:
        """Return the standard deviation of a column, at least that of its noise."""
        mean = float(self.constant @ self.moments.matrix @ column) / self.moments.weight
        seen, noise = self.moments.form(*[column - mean * self.constant] * 2)
        return math.sqrt(max(seen, math.sqrt(noise), _TINY) / self.moments.weight)


@final
@dataclass(frozen=True, eq=False, repr=False)
class MomentFit:
    """A linear model, computed from released moments; made by ``Moments.regress``.

    Parameters
    ----------
    formula : str
        The formula.
    inference_ : Inference
        Coefficients, standard errors, intervals and tests, in the units of the table.
    r_squared : float
        Estimated share of the target's variance that the model explains, at most 1.
    residual_std : float
        Estimated standard deviation of the residuals.
    scales : mapping from str to (float, float, float)
        For each penalised term the estimated prior standard deviation of its effects and its 95 %
        interval, in units of the target's standard deviation.

    Notes
    -----
    Privacy: post-processing of the released moments.
    """

    formula: str
    inference_: Inference
    r_squared: float
    residual_std: float
    scales: Mapping[str, tuple[float, float, float]]

    def predict(self, table: Any) -> Array:
        """Return predictions, of shape (n,), for the rows of a table with columns by name."""
        scores, _ = self.inference_.scores(table)
        return scores

    def summary(self, level: float = 0.95) -> Summary:
        """Return the table of coefficients; see ``Inference.summary``."""
        return self.inference_.summary(level)

    def __repr__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


@final
class Model:
    """A formula in the units of released columns."""

    def __init__(
        self, space: ColumnSpace, formula: str, target: FormulaEncoding, design: FormulaEncoding
    ) -> None:
        self.space, self.formula, self.design = space, formula, design
        self.name = target.feature_names[0]
        self.is_indicator = all(one.is_category for one in target.slopes[0])
        # x = (u - shift) / slope, for a target x that is encoded as u.
        (slope, _), (shift, _) = target.units.matrix.toarray().tolist()
        self.target = space.columns_of(target)[:, 0] / slope
        self.target[-1] -= shift / slope
        self.L = self.columns_of(design)

    def columns_of(self, encoding: FormulaEncoding) -> Array:
        """Return the columns of an encoding, with the intercept last if it has one."""
        L = self.space.columns_of(encoding)
        if not encoding.has_intercept:
            return L
        return np.column_stack([L, self.space.constant])

    @functools.cached_property
    def spread(self) -> float:
        """Standard deviation of the target."""
        return self.space.deviation(self.target)

    def prior(self) -> Array:
        """Return the prior covariance of the coefficients."""
        slopes = [
            min(_PRIOR / self.space.deviation(column), scale if math.isfinite(scale) else math.inf)
            for column, scale in zip(self.L.T, self.design.prior_scales, strict=False)
        ]
        deviations = self.spread * np.array(slopes)
        if self.design.has_intercept:
            size = math.sqrt(max(self.space.moments.form(self.target, self.target)[0], _TINY))
            size /= math.sqrt(self.space.moments.weight)
            # The intercept is the prediction where all columns are zero.
            far = sum(
                (one * float(np.linalg.norm(column))) ** 2
                for one, column in zip(deviations, self.L.T, strict=False)
            )
            deviations = np.append(deviations, _PRIOR * (size + self.spread) + math.sqrt(far))
        return np.diag(deviations**2)

    def solved(self, penalty: Penalty, effect: float) -> Solved:
        """Solve the model."""
        prior, moments = self.prior(), self.space.moments
        if penalty == 0.0:
            return solve(moments, self.L, self.target, prior, design_effect=effect)
        n_slopes = len(self.design.feature_names)
        lengths = np.array([self.space.deviation(column) for column in self.L.T[:n_slopes]])
        if isinstance(penalty, str):
            terms = self._terms(lengths, one_scale=penalty == "auto")
            return solve(moments, self.L, self.target, prior, terms, effect)
        first = solve(moments, self.L, self.target, prior, design_effect=effect)
        shrunk = prior.copy()
        own = np.arange(n_slopes)
        shrunk[own, own] = np.minimum(
            np.diag(prior)[:n_slopes], first.variance / penalty / lengths**2
        )
        return solve(moments, self.L, self.target, shrunk, design_effect=effect)

    def _terms(self, lengths: Array, *, one_scale: bool) -> list[PenalisedTerm]:
        """Return the terms with a common prior scale, in units of the target's deviation."""
        if one_scale:
            places = np.arange(len(lengths))
            root = np.diag(self.spread / lengths)
            return [PenalisedTerm("all columns", places, np.zeros_like(root), root)]
        found, start = [], 0
        for term in self.design.slopes:
            size = len(self.design.fields_of(term))
            places = np.arange(start, start + size)
            if size > 1:
                # The fixed prior covariance of coefficients, and the root of the other part.
                fixed, root = np.zeros((size, size)), np.eye(size)
                if len(term) == 1 and term[0].is_reduced and term[0].is_category:
                    # Effects of levels are independent, so their differences from the reference
                    # have the covariance ``I + 1 1^T``.
                    root = np.column_stack([root, np.ones(size)])
                elif len(term) == 1 and term[0].is_spline and size > 2:
                    # A line plus coefficients with independent second differences.
                    line = np.arange(1.0, size + 1.0) / size
                    fixed = _PRIOR**2 * np.outer(line, line)
                    differences = np.diff(np.eye(size + 1), 2, axis=0)[:, 1:]
                    root = np.asarray(np.linalg.pinv(differences), np.float64)
                name = ":".join(one.name for one in term)
                found.append(
                    PenalisedTerm(name, places, self.spread**2 * fixed, self.spread * root)
                )
            start += size
        return found

    def fit(
        self, found: Solved, made: Certificate, source: SummarySource, penalty: Penalty
    ) -> MomentFit:
        """Return the result in the units of the table."""
        uncertainty = Uncertainty(
            found.posterior.mean,
            found.sampling,
            found.posterior.covariance - found.sampling,
            kind="model",
            dispersion=found.variance,
            prior=found.prior if penalty == 0.0 else None,
        )
        design = self.design
        size = len(design.feature_names)
        same = LinearUnits.of_columns(
            np.zeros(size), np.ones(size), intercept=float(design.has_intercept)
        )
        encoded = Estimates.of(uncertainty, same, design.feature_names)

        features = functools.partial(self.space.basis.encode, encoding=design)
        scores = LinearScores(features, encoded)
        inference = Inference(encoded, made, scores, source=source).in_units(design.units)
        scales = {name: (law.mode, *law.interval()) for name, law in found.scales.items()}
        r_squared = 1.0 - found.variance / self.spread**2
        return MomentFit(
            self.formula, inference, min(r_squared, 1.0), math.sqrt(found.variance), scales
        )

    def source(
        self, made: Certificate, weighting: str, penalty: Penalty, effect: float, formula: str
    ) -> SummarySource:
        """Return title, facts and notes of the summary."""
        penalised = {
            "auto": "ridge, by marginal likelihood",
            "terms": "for each term, by marginal likelihood",
            0.0: "",
        }.get(penalty, f"ridge, {penalty}")
        facts = (
            ("Target", self.name),
            ("Formula", formula),
            ("Penalty", penalised),
            ("Rows", str(made.data.n_rows)),
            ("Rows that count less", weighting),
            ("Privacy", f"{made.cost} for all models of these moments; {made.adjacency.value}"),
        )
        notes = [
            "The model is assumed to be right, with residuals of the same variance in all rows.",
            "Rows are assumed to be independent, and values beyond declared bounds are clipped.",
        ]
        if self.is_indicator:
            notes.append(
                "A linear probability model: coefficients are differences of probabilities, "
                "predictions may lie outside [0, 1], and the variance of the target is not the "
                "same in all rows."
            )
        if weighting:
            notes.append(
                "Rows that are long in all released columns together, the target too, count less. "
                "This changes the target of inference if the model is wrong or its residuals are "
                "skewed; weighting='none' avoids it."
            )
        if made.data.groups is not None and effect == 1.0:
            notes.append(
                "Rows of a person are assumed to be independent given their columns. A "
                "design_effect of at most the maximum rows per person bounds their dependence."
            )
        return SummarySource(
            "Least squares from released moments",
            tuple((name, text) for name, text in facts if text),
            tuple(notes),
            self.name,
            self.design.columns,
            self.design.named_terms,
        )
