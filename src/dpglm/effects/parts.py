"""Releases of a treatment effect: the spread of contributions, then their sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array
from dpglm.certificate.certificate import Certificate
from dpglm.certificate.execution import PartInput, StudyPart
from dpglm.data.collection import MatrixRows
from dpglm.data.rows import Protection
from dpglm.data.split import NUISANCES
from dpglm.effects.question import EffectQuestion
from dpglm.exploration.design import plan_tables, run_tables
from dpglm.oracle.counts import Cells
from dpglm.solvers.base import Plan
from dpglm.tables.given import Where
from dpglm.tabulate import normal_quantile

CALIBRATION, SPREAD, EFFECT = "calibration", "spread", "effect"
"""Names of the parts that use all rows."""
# Magnitudes in cells of half octaves below the largest one.
_CELLS = 24
# Standard deviation of predictions that are constant but for rounding, and the noise in them
# relative to a signal that cannot be distinguished from none.
_CONSTANT, _UNSEEN = 1e-6, 1e9
_STEP = math.sqrt(2.0)
# Counts below this many standard deviations of their noise cannot be distinguished from none, and
# then at most this share of the rows may be there.
_CLEAR, _MOST = 2.0, 0.02
# Share of the squared budget of the sums for that of the difference; the others need few digits.
_MAIN = 0.7


@final
@dataclass(frozen=True, eq=False)
class Sums:
    """Released cells of all tables, times their weights, and the standard deviation of noise."""

    values: Array
    noise_std: float
    privacy_: Certificate | None = None


@final
@dataclass(frozen=True, eq=False)
class SumsPart(StudyPart):
    """Sums over all rows: of errors of models, magnitudes of contributions, or contributions.

    By ``name``: "calibration" has sums of predictions of both models, their squares, errors, and
    products; "spread" counts of rows by the magnitude of their contribution to the difference;
    "effect" counts of clipped propensities and contributions, and sums of contributions, their
    squares and products, in units of a bound that follows from the spread.

    Privacy: the bounds on a row's contribution are those of ``Cells``, which clips each number to
    [-1, 1], whatever models and bound are. They are released values, and the half of a row does not
    depend on the table (docs/proofs/splits.md).
    """

    question: EffectQuestion
    name: str

    @property
    def tables(self) -> tuple[Cells, ...]:
        """The tables, in the order of their release."""
        if self.name == SPREAD:
            return (Cells((0,), (_CELLS,)),)
        if self.name == CALIBRATION:
            weight, values = math.sqrt(0.1), ((1,), (2,), (3,), (1, 3), (4,), (5,), (6,), (4, 6))
            return tuple(Cells((0,), (2,), weight, one) for one in ((), *values, (6, 6)))
        rest = math.sqrt((1.0 - _MAIN) / 5.0)
        return (
            Cells((0, 1), (2, 2), rest),
            Cells((), (), math.sqrt(_MAIN), (2,)),
            *(Cells((), (), rest, (place,)) for place in (3, 4, 5)),
            Cells((), (), rest, (2, 4)),
        )

    def plan(self, protection: Protection) -> Plan:
        tables = self.tables
        width = 1 + max(one for table in tables for one in (*table.columns, *table.values))
        norm = math.sqrt(width) * max(table.size for table in tables)
        return plan_tables(protection, width, norm, tables)

    def noise_to_sampling(self, protection: Protection) -> float:
        # For contributions that are as large as can be in half of the rows.
        return self.plan(protection).coefficient_noise ** 2 / protection.n_rows

    def title(self, plan: Plan) -> str:
        return f"the {self.name} of {plan.data.n_rows} rows"

    def precision(self, plan: Plan) -> tuple[tuple[str, float], ...]:
        half = normal_quantile(0.95) * plan.coefficient_noise
        if self.name == SPREAD:
            return (("rows in a cell", half),)
        if self.name == CALIBRATION:
            return (("sum of errors of a model", half / self.tables[0].weight),)
        share = half / math.sqrt(_MAIN) / plan.data.n_rows
        return (("effect, in units of the largest contribution of a row", share),)

    def run(self, plan: Plan, given: PartInput) -> Sums:
        (table,), side = given.rows, given.held_out
        assert side is not None
        chosen = None if given.where is None else Where.of(given.where, table)
        if chosen is not None:
            table, side = chosen.rows(table), side[chosen.counts]
        models = [tuple(given.earlier[name] for name in half) for half in NUISANCES]
        asked = self.question
        if self.name == CALIBRATION:
            X = _errors(*asked.read(table, models, side), side, units_of(drawn_of(asked, models)))
        else:
            lines, _ = calibration_of(asked, models, given.earlier[CALIBRATION])
            found = asked.contributions(table, models, side, lines)
            if self.name == SPREAD:
                cells = np.searchsorted(_edges(asked.largest), np.abs(found[0]), side="right") - 1
                X = np.asarray(cells[:, np.newaxis], np.float64)
            else:
                X = _within(*found, bound_of(asked, given.earlier[SPREAD]))
        every = MatrixRows(X, np.zeros(len(X))).spread(None if chosen is None else chosen.counts)
        n_rows, facts = every.shape[0], asked.facts
        solution, certificate = run_tables(
            plan, lambda: every, n_rows, given, "AverageEffect", self.name, facts
        )
        return Sums(solution.w, plan.coefficient_noise, certificate)


def drawn_of(question: EffectQuestion, models: Any) -> Array:
    """Return predictions of both models of both halves, of shape (2, 2, n), for drawn rows."""
    drawn = question.drawn()
    found = np.stack([question.predicted(pair, drawn) for pair in models], axis=1)
    return np.stack([found[0], 0.5 * (found[1] + found[2])])


def units_of(drawn: Array) -> Array:
    """Return centers and units of predictions by model and half, of shape (2, 2, 2).

    Drawn predictions have the center as mean. The unit is sqrt(3) times their standard deviation,
    which is the end of an even distribution, and 1 for constant predictions.
    """
    spread = drawn.std(axis=2)
    units = np.where(spread > _CONSTANT, math.sqrt(3.0) * spread, 1.0)
    return np.stack([drawn.mean(axis=2), units])


def _errors(
    treated: NDArray[np.bool_], y: Array, found: Array, side: NDArray[Any], units: Array
) -> Array:
    """Return the columns of a calibration: the half of the models, predictions, and their errors.

    Errors of outcomes are in units of half the range, and larger ones are clipped.
    """
    half = np.where(side == 0, 1, 0)
    own = np.stack([found[0], np.where(treated, found[2], found[1])])
    errors = np.stack([treated - own[0], 2.0 * (y - own[1])])
    center, unit = units[:, :, half]
    scaled = np.clip((own - center) / unit, -1.0, 1.0)
    columns = np.stack([scaled, 2.0 * scaled**2 - 1.0, errors], axis=1).reshape(6, -1)
    return np.column_stack([half, *columns])


def calibration_of(question: EffectQuestion, models: Any, sums: Sums) -> tuple[Array, float]:
    """Return lines that calibrate predictions, and the standard error of the remaining bias.

    A model below its noise has errors that depend on its prediction. Their regression on it, in the
    rows of the other half, is added to it, with coefficients shrunk towards 0 by their noise. Lines
    are intercepts and slopes by model and half, of shape (2, 2, 2).

    The bias is the mean product of the errors of both models, over ``e (1 - e)``. Three products
    remain: of intercepts; of errors along the signal; and of noise in other directions, which are
    independent. The correlation of the models of both halves is the signal's share of the variance.
    """
    drawn = drawn_of(question, models)
    center, unit = units_of(drawn)
    weight = SumsPart(question, CALIBRATION).tables[0].weight
    noise, scale = sums.noise_std / weight, np.array([[1.0], [0.5]])
    count, *values, residual = sums.values.reshape(-1, 2) / weight
    n = np.maximum(count, noise)
    first, second, error, product = np.reshape(values, (2, 4, 2)).swapaxes(0, 1)
    mean = first / n
    squares = np.maximum(0.5 * (n + second) - n * mean**2, noise)
    slope, slope_error = (scale * one / squares for one in (product - mean * error, noise))
    level_error = scale * noise / n
    # A prediction does not count against itself.
    bend = np.maximum(_shrunk(slope, slope_error), -unit)
    shift = _shrunk(scale * error / n, level_error)
    lines = np.stack([shift - bend * (center / unit + mean), 1.0 + bend / unit], axis=2)
    with np.errstate(all="ignore"):
        signal = np.array([np.corrcoef(one)[:1, 1] for one in drawn])
        alike = np.array([abs(np.corrcoef(one)[0, 1]) for one in drawn.swapaxes(0, 1)])
        unseen = np.where(signal > 0.0, (1.0 - signal) / signal, _UNSEEN)
    # Errors along the signal are at most those of a constant propensity within the overlap, and the
    # residuals of outcomes. Their correlation is that of both models, or of random directions.
    k = len(question.adjusted)
    alike = np.hypot(np.nan_to_num(alike, nan=1.0), 1.0 / math.sqrt(k))
    residual = np.minimum(0.25 * np.maximum(residual, noise) / n, 0.25)
    most = np.stack([np.full(2, 0.5 - question.overlap), np.sqrt(residual)])
    spread = np.sqrt(squares / n)
    explained = np.abs(unit + bend) * spread
    along = np.fmin(slope_error * spread + explained * unseen, most)
    across = explained * np.sqrt(np.nan_to_num(np.clip(1.0 - signal, 0.0, 1.0), nan=1.0))
    # At e = 1/2, where the bound on each product is least.
    products = 4.0 * np.stack([one.prod(axis=0) for one in (level_error, along, across)])
    products[1] *= alike
    products[2] /= math.sqrt(2.0 * k)
    return lines, float(np.linalg.norm(products, axis=0).mean())


def _shrunk(estimates: Array, errors: Array) -> Array:
    """Return estimates shrunk towards 0 by their standard errors (James and Stein)."""
    ratio = errors / np.maximum(np.abs(estimates), 1e-300)
    return estimates * np.maximum(0.0, 1.0 - ratio**2)


def _edges(largest: float) -> Array:
    """Return the lower ends of the cells of magnitudes; the first cell begins at 0."""
    return np.array([0.0, *(largest * _STEP ** np.arange(1.0 - _CELLS, 0.0))])


def bound_of(question: EffectQuestion, spread: Sums) -> float:
    """Return the bound to clip contributions to the difference to, from their released spread.

    At the least magnitude with few larger contributions, their count cannot be distinguished from
    none and is a small share of all rows. The bound is half an octave above it. Clipped rows bias
    the estimate by their number times their excess, which is small next to the noise unless tails
    are much heavier than the middle suggests.
    """
    counts, noise = spread.values, spread.noise_std
    beyond = np.cumsum(counts[::-1])[::-1]
    errors = noise * np.sqrt(np.arange(len(counts), 0, -1))
    allowed = np.minimum(_CLEAR * errors, _MOST * float(counts.sum()) - errors)
    fits = np.append(beyond <= allowed, True)
    # From this cell on, all fit.
    first = len(fits) - int(np.argmin(fits[::-1])) if not fits.all() else 0
    edges = np.append(_edges(question.largest), question.largest)
    return float(edges[min(max(first, 1) + 1, len(edges) - 1)])


def _within(
    difference: Array,
    regressions: Array,
    residuals: Array,
    at_clip: NDArray[np.bool_],
    bound: float,
) -> Array:
    """Return the columns of the tables of sums, in units of their bounds."""
    inside = np.clip(difference / bound, -1.0, 1.0)
    total = (regressions + np.clip(residuals, -bound, bound)) / (1.0 + bound)
    beyond = np.abs(difference) > bound
    squares = [2.0 * one**2 - 1.0 for one in (inside, total)]
    return np.column_stack([at_clip, beyond, inside, squares[0], total, squares[1]])


@final
@dataclass(frozen=True)
class SumEstimates:
    """Mean contributions to the difference and to the sum of both means, from released sums.

    ``rows`` is noisy if it is private; ``at_clip`` and ``beyond`` are the shares of rows with
    clipped propensities, and with clipped contributions; ``sampling`` and ``noise`` are the
    covariances of both means.
    """

    rows: float
    at_clip: float
    beyond: float
    means: Array
    sampling: Array
    noise: Array

    @classmethod
    def of(
        cls, sums: Sums, tables: Sequence[Cells], bound: float, n_rows: int | None
    ) -> SumEstimates:
        """Estimate the means; ``n_rows`` is the number of rows where it is public."""
        ends = np.cumsum([table.size for table in tables])[:-1]
        parts = np.split(sums.values, ends)
        counts, *totals = (part / table.weight for part, table in zip(parts, tables, strict=True))
        errors = [sums.noise_std / table.weight for table in tables]
        # That of the four counts together.
        count_error = 2.0 * errors[0] if n_rows is None else 0.0
        n = max(float(counts.sum()), count_error) if n_rows is None else float(n_rows)
        first, first_square, second, second_square, product = (float(one[0]) / n for one in totals)
        units = np.array([bound, 1.0 + bound])
        means = np.array([first, second])
        squares = np.array([[first_square, product], [product, second_square]])
        np.fill_diagonal(squares, 0.5 * (1.0 + np.diag(squares)))
        spread = squares - np.outer(means, means)
        # At least the standard deviation of its noise, so that noise does not make it vanish.
        least = 0.5 * np.array([errors[2], errors[4]]) / n
        variances = np.maximum(np.diag(spread), least)
        limit = math.sqrt(float(variances.prod()))
        shared = min(max(float(spread[0, 1]), -limit), limit)
        covariance = np.array([[variances[0], shared], [shared, variances[1]]])
        # A mean is a sum over n, and the noise of n is common to both.
        own = np.diag([errors[1] ** 2, errors[3] ** 2])
        noise = (own + count_error**2 * np.outer(means, means)) / n**2
        scale = np.outer(units, units)
        shares = counts.reshape(2, 2) / n
        return cls(
            n,
            float(np.clip(shares[1].sum(), 0.0, 1.0)),
            float(np.clip(shares[:, 1].sum(), 0.0, 1.0)),
            means * units,
            covariance * scale / n,
            noise * scale,
        )
