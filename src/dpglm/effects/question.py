"""The effect that is estimated, and the contribution of each row to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dpglm._validation import Array, check_list, check_real, in_one_line
from dpglm.certificate.certificate import PublicFact, schema_facts
from dpglm.evaluation.planning import predictions_of
from dpglm.moments.basis import columns_of
from dpglm.study.planning import ModelPart, model_of
from dpglm.tables.columns import CategoricalColumn, NumericColumn
from dpglm.tables.formula.design import read_formula
from dpglm.tables.schema import Schema
from dpglm.tables.targets import ClassTarget, NumericTarget
from dpglm.tables.times import UNITS

# Rows that show the spread of predictions; more show the same.
_DRAWN = 2000


@final
@dataclass(frozen=True)
class EffectQuestion:
    """The effect of a treatment with two levels on an outcome, adjusted for other columns.

    ``schema`` has the columns of the adjustment, then the treatment; its target is the outcome.
    ``formula`` is the right-hand side of the formula of the adjustment, None for all columns as
    they are. Estimated propensities are clipped to [overlap, 1 - overlap].
    """

    schema: Schema
    formula: str | None
    overlap: float

    @property
    def treatment(self) -> CategoricalColumn:
        """The treatment: its second level is that of the treated."""
        column = self.schema.columns[-1]
        assert isinstance(column, CategoricalColumn)
        return column

    @property
    def adjusted(self) -> tuple[str, ...]:
        """Names of the columns of the adjustment."""
        return tuple(column.name for column in self.schema.columns[:-1])

    @property
    def is_binary(self) -> bool:
        """Whether the outcome has two classes; the second one counts as 1."""
        return self.schema.target.n_classes is not None

    @property
    def event(self) -> Any:
        """The class that counts as 1, for a binary outcome."""
        return self.schema.target.estimator_parameters()["classes"][1]

    @property
    def range(self) -> tuple[float, float]:
        """Bounds on the outcome."""
        if self.is_binary:
            return 0.0, 1.0
        low, high = self.schema.target.estimator_parameters()["target_bounds"]
        return float(low), float(high)

    @property
    def largest(self) -> float:
        """Largest contribution to the difference, in units of the range of the outcome.

        With regressions a and b in [-1/2, 1/2], a treated row contributes ``a (1 - 1/e) - b +
        y/e``. It is linear in a, b and y, so its largest magnitude is at their ends: ``1/e``.
        """
        return 1.0 / self.overlap

    @property
    def propensity(self) -> ModelPart:
        """The logistic regression of the treatment."""
        target = ClassTarget(self.treatment.name, self.treatment.categories)
        schema = dataclasses.replace(self.schema, columns=self.schema.columns[:-1], target=target)
        formula = None if self.formula is None else f"~ {self.formula}"
        return ModelPart(model_of(schema, None, formula, {}), schema)

    @property
    def outcome(self) -> ModelPart:
        """The regression of the outcome on the treatment and the adjustment."""
        formula = None
        if self.formula is not None:
            formula = f"~ `{self.treatment.name}` + {self.formula}"
        return ModelPart(model_of(self.schema, None, formula, {}), self.schema)

    @property
    def facts(self) -> tuple[PublicFact, ...]:
        """The declared facts, for a certificate."""
        return (
            *schema_facts(self.schema),
            PublicFact("treatment", self.treatment.name, "declared"),
            PublicFact("adjustment", self.formula or list(self.adjusted), "declared"),
            PublicFact("overlap", self.overlap, "declared"),
        )

    def drawn(self) -> dict[str, NDArray[Any]]:
        """Return rows of the control group, drawn evenly within the declared bounds. Public."""
        rng = np.random.default_rng(0)
        found: dict[str, NDArray[Any]] = {}
        for column in self.schema.columns[:-1]:
            own = getattr(column, "of", None) or column
            if isinstance(own, CategoricalColumn):
                places = rng.integers(len(own.categories), size=_DRAWN)
                found[own.name] = np.array(own.categories, object)[places]
                continue
            assert isinstance(own, NumericColumn)
            cells = np.clip(own.unstretched(rng.random(_DRAWN)), own.low, own.high)
            if own.time is not None:
                is_date = own.time == "date"
                micros = cells * UNITS["days" if is_date else own.unit or "days"]
                cells = micros.astype(np.int64).astype("M8[us]" if is_date else "m8[us]")
            found[own.name] = cells
        return found

    def predicted(self, models: tuple[Any, Any], table: Mapping[str, Any]) -> Array:
        """Return propensities, and outcomes without and with treatment, of shape (3, n). Private.

        Outcomes are in units of their range, from its middle. A model may predict anything: a row
        with a score that overflows counts as any other.
        """
        propensity, outcome = models
        levels = np.asarray(self.treatment.categories)
        chance = np.nan_to_num(predictions_of(propensity, table), nan=0.5)
        found = [chance if propensity.classes_[1] == levels[1] else 1.0 - chance]
        for level in levels:
            arm = {**table, self.treatment.name: np.full(len(chance), level)}
            predicted = predictions_of(outcome, arm)
            if self.is_binary and outcome.classes_[1] != self.event:
                predicted = 1.0 - predicted
            found.append(self._in_range(np.nan_to_num(predicted)))
        return np.stack(found)

    def read(
        self, table: Mapping[str, Any], nuisances: Sequence[tuple[Any, Any]], side: NDArray[Any]
    ) -> tuple[NDArray[np.bool_], Array, Array]:
        """Return whether rows are treated, their outcomes, and predictions of each. Private.

        ``nuisances`` are the models of both halves, and ``side`` is the half of each row: the
        models of the other half predict it.
        """
        found = np.zeros((3, len(side)))
        for half, models in enumerate(nuisances):
            rows = side != half
            found[:, rows] = self.predicted(models, {n: cells[rows] for n, cells in table.items()})
        treated = self.treatment.read(table[self.treatment.name]) == 1
        y = self.schema.encode_target(table[self.schema.target.name])
        y = np.asarray(y == self.event) - 0.5 if self.is_binary else self._in_range(y)
        return treated, y, found

    def contributions(
        self,
        table: Mapping[str, Any],
        nuisances: Sequence[tuple[Any, Any]],
        side: NDArray[Any],
        lines: Array | None = None,
    ) -> tuple[Array, Array, Array, NDArray[np.bool_]]:
        """Return contributions of rows to the means, in units of the range of the outcome. Private.

        They are: that to the mean with treatment minus that without; the sum of both regressions;
        residuals, which add to it; and whether the propensity is clipped. ``lines`` is as in
        ``calibration_of``.
        """
        treated, y, found = self.read(table, nuisances, side)
        if lines is not None:
            intercepts, slopes = lines[[0, 1, 1]][:, np.where(side == 0, 1, 0)].transpose(2, 0, 1)
            found = intercepts + slopes * found
        chance = np.clip(found[0], self.overlap, 1.0 - self.overlap)
        control, treatment = np.clip(found[1:], -0.5, 0.5)
        weight = np.where(treated, 1.0 / chance, 1.0 / (1.0 - chance))
        residual = weight * (y - np.where(treated, treatment, control))
        at_clip = (chance <= self.overlap) | (chance >= 1.0 - self.overlap)
        difference = treatment - control + np.where(treated, residual, -residual)
        return difference, treatment + control, residual, at_clip

    def _in_range(self, values: Any) -> Array:
        """Return numbers in units of the range of the outcome, from its middle."""
        low, high = self.range
        return np.asarray((np.clip(values, low, high) - low) / (high - low) - 0.5)


def question_of(
    schema: Schema, treatment: Any, outcome: Any, adjust: Any, overlap: float
) -> EffectQuestion:
    """Return the question, checked against the schema; errors name the argument."""
    known = {column.name: column for column in columns_of(schema)}
    for name, value in (("treatment", treatment), ("outcome", outcome)):
        if value not in known:
            raise ValueError(f"{name} must name a column of the schema, got {in_one_line(value)}")
    if treatment == outcome:
        raise ValueError(f"outcome must differ from the treatment, got {outcome!r} for both")
    arms = known.pop(treatment)
    if not isinstance(arms, CategoricalColumn) or not _has_two(arms):
        raise ValueError(f"treatment must be a column with two categories, got {treatment!r}")
    column = known.pop(outcome)
    target: ClassTarget | NumericTarget
    if isinstance(column, NumericColumn) and column.missing is None and column.time is None:
        target = NumericTarget(column.name, column.low, column.high, column.provenance)
    elif isinstance(column, CategoricalColumn) and _has_two(column):
        target = ClassTarget(column.name, column.categories)
    else:
        raise ValueError(
            f"outcome must be a number without missing values, or have two categories, got "
            f"{column.name!r}"
        )
    formula = adjust if isinstance(adjust, str) else None
    if formula is not None:
        names = read_formula(f"~ {formula}", tuple(known.values()), None).column_names
    else:
        names = check_list("adjust", adjust, "a list of columns, or a formula")
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise ValueError(
            f"adjust must name other columns of the schema, {', '.join(map(repr, known))}, got "
            f"{in_one_line(adjust)}"
        )
    check_real("overlap", overlap, above=0.0, below=0.5)
    columns = tuple(column for name, column in known.items() if name in names)
    plain = CategoricalColumn(arms.name, arms.categories)
    own = dataclasses.replace(
        schema, columns=(*columns, plain), target=target, formula=None, additive=None
    )
    found = EffectQuestion(own, formula, float(overlap))
    # Models that cannot be fitted are found before anything is read.
    _ = found.propensity, found.outcome
    return found


def _has_two(column: CategoricalColumn) -> bool:
    plain = column.other is None and column.part is None
    return plain and len(column.categories) == 2 and "" not in column.categories


def in_words(question: EffectQuestion) -> Iterator[str]:
    """Yield the assumptions that the estimate rests on."""
    yield "no unmeasured confounding: treatment is as good as random given the adjustment"
    low = question.overlap
    yield f"overlap: everybody's chance of treatment is between {low:g} and {1.0 - low:g}"
    yield "the regression of the treatment, or that of the outcome, has the right form"
