"""The study of a treatment effect: models of two halves, then sums over all rows."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from numpy.typing import ArrayLike

from dpglm._calls import checked
from dpglm._validation import check_real
from dpglm.certificate.execution import PartPlan, Stated, StudyPart
from dpglm.data.rows import Protection
from dpglm.data.split import NUISANCES, Split, size_of_part
from dpglm.effects.effect import AverageEffect
from dpglm.effects.parts import CALIBRATION, EFFECT, SPREAD, SumsPart, calibration_of
from dpglm.effects.question import EffectQuestion, question_of
from dpglm.ledger.ledger import PrivacyLedger, as_ledger
from dpglm.preprocessing.encoders import as_schema
from dpglm.privacy.budget import Adjacency, GaussianDP, PrivacyBudget, stated_budget
from dpglm.privacy.noise import NoiseSource, noise_source
from dpglm.privacy.noise.source import warn_of_seed
from dpglm.solvers.parts.defaults import MARGIN
from dpglm.study.planning import StudyPlan
from dpglm.study.running import read_columns, run
from dpglm.tables.schema import Schema

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
        Maximum rows per person in each release, and the public number of persons, which may be
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
