"""The average effect of a treatment: models of two halves, sums over all rows, intervals."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from dpglm._calls import checked
from dpglm._codec import Format, Vector
from dpglm._json import in_file, load
from dpglm._validation import Array, check_real
from dpglm._words import card, plain_number
from dpglm.certificate.certificate import Certificate, model_digest
from dpglm.certificate.execution import PartPlan, Stated, StudyPart
from dpglm.certificate.statement import WHERE
from dpglm.data.rows import Protection
from dpglm.data.split import NUISANCES, Split, size_of_part
from dpglm.effects.parts import (
    CALIBRATION,
    EFFECT,
    SPREAD,
    SumEstimates,
    Sums,
    SumsPart,
    bound_of,
    calibration_of,
)
from dpglm.effects.question import EffectQuestion, in_words, question_of
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.ledger.store import write_json
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.budget import Adjacency, GaussianDP, PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.solvers.parts.defaults import MARGIN
from dpglm.study.planning import StudyPlan
from dpglm.study.running import read_columns, run
from dpglm.tables.schema import Schema, SchemaDocument
from dpglm.tabulate import normal_quantile

Range: TypeAlias = tuple[float, float]
_ANY: Range = (-math.inf, math.inf)


@final
@dataclass(frozen=True)
class Contrast:
    """An estimated mean, difference or ratio.

    Parameters
    ----------
    name : str
        The estimated quantity, in words.
    estimate : float
        In the units of the outcome; a ratio has none. Within ``limits``.
    sampling_error, noise_error : float
        Standard errors from sampling and from privacy noise, of the logarithm of a ratio.
    model_error : float
        Standard error from the errors of both models together.
    is_ratio : bool
        Whether intervals are made on the scale of logarithms.
    limits : (float, float)
        Possible range, which estimate and interval are projected on.
    beyond : float
        Excess of the unprojected estimate, the center of the interval, over the projected one.
    """

    name: str
    estimate: float
    sampling_error: float
    noise_error: float
    model_error: float
    is_ratio: bool = False
    limits: Range = _ANY
    beyond: float = 0.0

    @property
    def standard_error(self) -> float:
        """Standard error from sampling, noise and models together."""
        return math.hypot(self.sampling_error, self.noise_error, self.model_error)

    @property
    def p_value(self) -> float:
        """Two-sided p-value of the test that a difference is 0, or a ratio 1."""
        value = math.log(self.estimate) if self.is_ratio else self.estimate + self.beyond
        return 2.0 * float(special.ndtr(-abs(value) / max(self.standard_error, 1e-300)))

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return the interval of a confidence level in (0, 1): sampling, privacy noise, models."""
        half = normal_quantile(check_real("level", level, above=0.0, below=1.0))
        half *= self.standard_error
        if self.is_ratio:
            return self.estimate * math.exp(-half), self.estimate * math.exp(half)
        center = self.estimate + self.beyond
        low, high = np.clip([center - half, center + half], *self.limits).tolist()
        return low, high

    def __str__(self) -> str:
        low, high = (plain_number(end) for end in self.conf_int())
        kinds = zip(
            ("sampling", "noise", "models"),
            (self.sampling_error, self.noise_error, self.model_error),
            strict=True,
        )
        errors = ", ".join(f"{name} {plain_number(value, 2)}" for name, value in kinds)
        of_log = " of the logarithm" if self.is_ratio else ""
        return (
            f"{self.name}: {plain_number(self.estimate)} [{low}, {high}], standard error{of_log} "
            f"{plain_number(self.standard_error, 2)} ({errors})"
        )


@final
@dataclass(frozen=True)
class _Stored:
    """The content of a file of an effect."""

    schema: SchemaDocument
    formula: str | None
    overlap: float
    design_effect: float
    bias: float
    spread: Vector
    effect: Vector
    certificate: Certificate


@final
@dataclass(frozen=True, eq=False, repr=False)
class AverageEffect:
    """The average effect of a treatment; made by ``dpglm.ate``.

    Parameters
    ----------
    question : EffectQuestion
        Treatment, outcome, adjustment and the clipping of propensities.
    spread, sums : ndarray
        The released values.
    design_effect : float
        Factor of the sampling variance.
    bias : float
        Standard error of the difference from the product of the errors of both models, in ranges of
        the outcome.
    privacy_ : dpglm.certificate.Certificate
        The guarantee, its assumptions, and the budget spent.

    Notes
    -----
    Privacy: all values are computed from releases and public facts, and may be published.
    """

    question: EffectQuestion
    spread: Array
    sums: Array
    design_effect: float
    bias: float
    privacy_: Certificate

    @functools.cached_property
    def bound(self) -> float:
        """Bound that contributions to the difference were clipped to, in ranges of the outcome."""
        return bound_of(self.question, self._part(SPREAD, self.spread))

    @functools.cached_property
    def _found(self) -> SumEstimates:
        made, tables = self.privacy_, SumsPart(self.question, EFFECT).tables
        is_public = made.adjacency.rows_are_public(made.unit) and made.fact(WHERE) is None
        n_rows = made.protection.n_rows if is_public else None
        return SumEstimates.of(self._part(EFFECT, self.sums), tables, self.bound, n_rows)

    def _part(self, name: str, values: Array) -> Sums:
        return Sums(values, self.privacy_.parts[name].rebuild().method.coefficient_noise)

    def _contrast(
        self, name: str, weights: Range, estimate: float, limits: Range = _ANY
    ) -> Contrast:
        """Return a linear combination of both means of contributions, with its errors."""
        w, found = np.array(weights), self._found
        variances = self.design_effect * float(w @ found.sampling @ w), float(w @ found.noise @ w)
        sampling, noise = (math.sqrt(max(one, 0.0)) for one in variances)
        bias, shown = self.bias * float(np.abs(w).sum()), float(np.clip(estimate, *limits))
        beyond = estimate - shown
        return Contrast(name, shown, sampling, noise, bias, limits=limits, beyond=beyond)

    @property
    def difference(self) -> Contrast:
        """Mean outcome with treatment minus that without: the average treatment effect."""
        width = self._width
        name = "risk difference" if self.question.is_binary else "mean difference"
        estimate = width * float(self._found.means[0])
        return self._contrast(name, (width, 0.0), estimate, (-width, width))

    @property
    def means(self) -> Mapping[Any, Contrast]:
        """Mean outcome if everybody had a level of the treatment, by level."""
        low, _ = self.question.range
        width, (first, second) = self._width, self._found.means.tolist()
        return {
            level: self._contrast(
                f"mean with {level}",
                (0.5 * sign * width, 0.5 * width),
                low + 0.5 * width * (1.0 + second + sign * first),
                self.question.range,
            )
            for level, sign in zip(self.question.treatment.categories, (-1.0, 1.0), strict=True)
        }

    @property
    def ratio(self) -> Contrast:
        """Risk ratio: the mean of a binary outcome with treatment over that without.

        Raises
        ------
        ValueError
            If the outcome is a number, or an estimated risk is not above 0.
        """
        if not self.question.is_binary:
            raise ValueError("ratio requires an outcome with two categories")
        without, treated = (one.estimate for one in self.means.values())
        if min(without, treated) <= 0.0:
            raise ValueError(
                f"ratio requires risks above 0, got {treated:g} and {without:g}: noise dominates"
            )
        weights = 0.5 * (1.0 / treated + 1.0 / without), 0.5 * (1.0 / treated - 1.0 / without)
        found = self._contrast("risk ratio", weights, treated / without)
        return dataclasses.replace(found, is_ratio=True)

    @property
    def estimate(self) -> float:
        """The average treatment effect."""
        return self.difference.estimate

    @property
    def standard_error(self) -> float:
        """Its standard error, from sampling and privacy noise."""
        return self.difference.standard_error

    def conf_int(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the effect, for a level in (0, 1)."""
        return self.difference.conf_int(level)

    @property
    def clipped(self) -> float:
        """Released share of rows with propensities at the clipping threshold."""
        return self._found.at_clip

    @property
    def caution(self) -> str | None:
        """Statement that noise in the models dominates the interval; None if it does not."""
        own = self.difference
        if own.model_error <= math.hypot(own.sampling_error, own.noise_error):
            return None
        return (
            "noise in the models dominates the interval: adjust for fewer columns, or use a larger "
            "budget or more rows"
        )

    @property
    def _width(self) -> float:
        low, high = self.question.range
        return high - low

    def methods(self) -> str:
        """Return a paragraph for the methods section of a paper; see ``Certificate.methods``."""
        asked = self.question
        low = asked.overlap
        adjusted = asked.formula or ", ".join(asked.adjusted)
        return (
            f"The average effect of {asked.treatment.name} on {asked.schema.target.name}, adjusted "
            f"for {adjusted}, was estimated by augmented inverse probability weighting with "
            f"cross-fitting in two random halves; propensities were clipped to [{low:g}, "
            f"{1.0 - low:g}]. Intervals include sampling error and privacy noise. "
            f"{self.privacy_.methods()}"
        )

    def _lines(self) -> list[tuple[str, str]]:
        shown = [self.difference, *self.means.values()]
        if self.question.is_binary and min(one.estimate for one in shown[1:]) > 0.0:
            shown.insert(1, self.ratio)
        shares = self._found.at_clip, self._found.beyond
        at_clip, beyond = (f"{plain_number(100.0 * one, 2)} % of rows" for one in shares)
        return [
            *((one.name, str(one).removeprefix(f"{one.name}: ")) for one in shown),
            ("propensities clipped", at_clip),
            ("contributions clipped", beyond),
            ("privacy", self.privacy_.cost),
        ]

    @property
    def _title(self) -> str:
        asked = self.question
        control, treated = asked.treatment.categories
        outcome = asked.schema.target.name
        outcome += f" = {asked.event}" if asked.is_binary else ""
        return (
            f"Average effect of {asked.treatment.name} ({treated} against {control}) on {outcome}"
        )

    def summary(self) -> str:
        """Return estimates with 95 % intervals, overlap, assumptions and cost as text."""
        lines = [self._title, *(f"  {name}: {text}" for name, text in self._lines())]
        if self.caution is not None:
            lines.append(f"Caution: {self.caution}")
        return "\n".join([*lines, "Assumptions", *(f"  {one}" for one in in_words(self.question))])

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        assumptions = [("Assumptions", tuple(in_words(self.question)))]
        warned = () if self.caution is None else (self.caution,)
        return card(self._title, self._lines(), warnings=warned, sections=assumptions)

    def to_dict(self) -> dict[str, Any]:
        """Return the released values and the certificate as plain values, like ``save``."""
        asked, bias = self.question, self.bias
        own = asked.schema, asked.formula, asked.overlap, self.design_effect, bias
        return _FORMAT.write(_Stored(*own, self.spread, self.sums, self.privacy_))

    @checked
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the effect to a JSON file, with its certificate; an existing one is replaced."""
        write_json(path, self.to_dict())


_FORMAT = Format("dpglm effect", 1, _Stored)


@checked
def load_effect(path: str | os.PathLike[str]) -> AverageEffect:
    """Read an effect from a file that ``AverageEffect.save`` wrote.

    Parameters
    ----------
    path : path-like
        The file.

    Raises
    ------
    ValueError
        If it is not a file of an effect; the message names the place.
    """
    with in_file(path):
        stored = _FORMAT.read(load(path))
        question = EffectQuestion(stored.schema, stored.formula, stored.overlap)
        effect = check_real("design_effect", stored.design_effect, least=1.0)
        bias = check_real("bias", stored.bias, least=0.0)
        for name, values in ((SPREAD, stored.spread), (EFFECT, stored.effect)):
            part = stored.certificate.parts.get(name)
            if part is None or part.model_digest != model_digest(values, 0.0):
                raise ValueError(f"{name} must have the values that the certificate is about")
            if any(fact not in part.public_facts for fact in question.facts):
                raise ValueError("schema, formula and overlap must be those of the certificate")
        found = AverageEffect(
            question, stored.spread, stored.effect, effect, bias, stored.certificate
        )
        _ = found.difference
    return found


# Shares of the squared budget: noise of the sums is in the estimate, and that of models only
# through the product of the errors of both.
_MODEL, _CALIBRATION, _SPREAD, _SUMS = 0.15, 0.1, 0.1, 0.5
_WHOLE = _CALIBRATION + _SPREAD + _SUMS


def plan_effect(
    question: EffectQuestion, protection: Protection, groups: str | None = None
) -> StudyPlan:
    """Plan the models of each half, the spread of contributions and their sums.

    Privacy: a row is in one half, so it is charged for two models and for three sums
    (docs/proofs/splits.md).
    """
    split = Split(0.5, groups)
    declared: dict[str, tuple[StudyPart, float]] = {}
    for treatment, outcome in NUISANCES:
        declared[treatment] = question.propensity, _MODEL
        declared[outcome] = question.outcome, _MODEL
    declared[CALIBRATION] = SumsPart(question, CALIBRATION), _CALIBRATION
    declared[SPREAD] = SumsPart(question, SPREAD), _SPREAD
    declared[EFFECT] = SumsPart(question, EFFECT), _SUMS
    mu = protection.budget.gdp_mu() * MARGIN
    planned = {}
    for name, (part, share) in declared.items():
        sizes = (size_of_part(name, n, split) for n in (protection.n_rows, protection.n_units))
        own = protection.of_part(GaussianDP(math.sqrt(share) * mu), *sizes)
        planned[name] = PartPlan(part, part.plan(own))
    outcome = question.schema.target.name
    title = f"effect of {question.treatment.name} on {outcome}"
    return StudyPlan(title, question.schema, protection, split, planned, _WHOLE, groups)


@checked
def ate(
    table: Any,
    *,
    treatment: str,
    outcome: str,
    adjust: Sequence[str] | str,
    schema: Schema | Mapping[str, Any],
    epsilon: float = 1.0,
    delta: float | Literal["auto"] = "auto",
    budget: PrivacyBudget | None = None,
    adjacency: str = "zero_out",
    n_rows: int | None = None,
    overlap: float = 0.1,
    groups: str | None = None,
    max_rows_per_group: int | None = None,
    n_groups: int | None = None,
    design_effect: float | None = None,
    where: ArrayLike | None = None,
    ledger: PrivacyLedger | str | os.PathLike[str] | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    random_state: int | NoiseSource | None = None,
) -> AverageEffect:
    """Estimate the average effect of a treatment, doubly robust, within one budget.

    Parameters
    ----------
    table : mapping, DataFrame or path-like
        Columns by name, or a CSV or Parquet file; read into memory.
    treatment : str
        Column of the schema, or its target, with two categories; the second one is the treatment.
    outcome : str
        Column of the schema, or its target: a number, or two categories; the second one
        counts as 1.
    adjust : sequence of str or str
        The confounders: columns of the schema, or the right-hand side of a formula such as
        ``"bs(age, df=4) + C(sex)"``.
    schema : Schema or mapping
        Public facts about the columns, or their JSON form.
    epsilon, delta, budget, adjacency, n_rows, ledger, random_state
        See ``dpglm.describe``, also for errors.
    overlap : float, default=0.1
        Estimated propensities are clipped to [overlap, 1 - overlap]; in (0, 0.5).
    groups : str, optional
        Column with the person id of each row: all rows of a person are protected together. Requires
        ``adjacency="add_remove"``, ``n_groups`` and ``max_rows_per_group``.
    max_rows_per_group, n_groups : int, optional
        Maximum rows per person in each release, and the public number of people, which may be
        approximate.
    design_effect : float, optional
        Factor of the sampling variance, at least 1, for rows of a person that depend on each
        other; by default the maximum rows per person, which is always enough.
    where : array_like of bool of shape (n,), optional
        Private condition: only rows with True count.
    checkpoint : path-like, optional
        Folder to resume in at no further cost; see ``Study.run``.

    Notes
    -----
    The estimate is the mean of ``m1 - m0 + t (y - m1) / e - (1 - t) (y - m0) / (1 - e)``, with a
    private logistic regression e of the treatment and a private regression m of the outcome. Rows
    of each random half are predicted by the models of the other half. It is consistent if one of
    the two models has the right form, nothing else confounds the treatment, and no propensity is
    beyond ``overlap``. Errors of models are calibrated on the other half; ``model_error`` is the
    standard error from the product of those that remain. Estimates and intervals are projected on
    the range that the bounds of the outcome allow.

    Privacy: a row is charged for both models of its half and for three sums over all rows. The
    bounds of the sums do not rest on the models.

    References
    ----------
    Robins, Rotnitzky and Zhao, "Estimation of regression coefficients when some regressors are not
    always observed", JASA 89 (1994). Chernozhukov et al., "Double/debiased machine learning for
    treatment and structural parameters", Econometrics Journal 21 (2018). Crump et al., "Dealing
    with limited overlap in estimation of average treatment effects", Biometrika 96 (2009).

    Examples
    --------
    >>> import numpy as np
    >>> import dpglm
    >>> rng = np.random.default_rng(0)
    >>> age = rng.uniform(20, 80, 20000)
    >>> drug = rng.random(20000) < 0.3 + 0.4 * (age > 50)
    >>> pressure = 100 + 0.5 * age - 6.0 * drug + rng.normal(0, 10, 20000)
    >>> table = {"age": age, "drug": np.where(drug, "yes", "no"), "pressure": pressure}
    >>> schema = {
    ...     "columns": {
    ...         "age": {"type": "numeric", "low": 20, "high": 80},
    ...         "drug": {"type": "categorical", "categories": ["no", "yes"]},
    ...     },
    ...     "target": {"name": "pressure", "type": "numeric", "low": 60, "high": 200},
    ...     "provenance": "made up",
    ... }
    >>> effect = dpglm.ate(
    ...     table, treatment="drug", outcome="pressure", adjust=["age"], schema=schema, epsilon=1.0
    ... )
    >>> bool(abs(effect.estimate + 6.0) < 2.0)
    True
    """
    # Invalid arguments are found before rows are read.
    stated = Stated(epsilon, delta, budget, adjacency, n_rows, max_rows_per_group, n_groups)
    question = question_of(as_schema(schema), treatment, outcome, adjust, overlap)
    stated_budget(epsilon, delta, budget, 1).gdp_mu()
    if groups is not None:
        Split(0.5, groups).check(Adjacency(adjacency))
    warn_of_seed(random_state)
    noise, account = noise_source(random_state), as_ledger(ledger)
    columns, chosen = read_columns(table, question.schema, groups, where)
    ids = None if groups is None else columns[groups]
    protection = stated.protection(len(columns[treatment]), ids)
    most = 1.0 if max_rows_per_group is None else float(max_rows_per_group)
    effect = check_real("design_effect", most if design_effect is None else design_effect, least=1)
    plan = plan_effect(question, protection, groups)
    found = run(plan, columns, noise, account, checkpoint, chosen)
    made = found.results
    models = [tuple(made[name] for name in half) for half in NUISANCES]
    _, bias = calibration_of(question, models, made[CALIBRATION])
    spread, sums = (made[name].values for name in (SPREAD, EFFECT))
    return AverageEffect(question, spread, sums, effect, bias, found.privacy_)
