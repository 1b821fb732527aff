"""from_formula: a pipeline from a formula and a schema."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sklearn.base import clone

from dpglm._validation import in_one_line
from dpglm.estimators._private import OF_THE_FIT
from dpglm.estimators.composed.pipeline import PrivatePipeline
from dpglm.estimators.linear._base import PrivateLinearModel
from dpglm.estimators.linear.classifiers import LogisticRegression
from dpglm.estimators.linear.regressors import LinearRegression, PoissonRegressor
from dpglm.preprocessing.encoders import SchemaEncoder, stated_schema
from dpglm.tables.schema import Schema

__all__ = ["from_formula"]


def from_formula(
    formula: str,
    schema: Schema | Mapping[str, Any],
    estimator: PrivateLinearModel | None = None,
    **parameters: Any,
) -> PrivatePipeline:
    """Return an unfitted model of a table from a formula, as in R and statsmodels.

    Parameters
    ----------
    formula : str
        In Wilkinson notation: ``"visits ~ age + C(region) + bs(income, df=5)"``. Columns are those
        of the schema; the left-hand side is its target or empty. docs/formulas.md lists the
        supported terms.
    schema : Schema or mapping
        The public facts about the table, or their JSON form.
    estimator : estimator, optional
        A linear model of dpglm. Default, without a penalty, by the type of the target:
        ``LogisticRegression(C=inf)``, ``LinearRegression()`` or ``PoissonRegressor(alpha=0)``.
    **parameters
        Parameters of the pipeline (``epsilon=0.5``) and of the estimator (``solver="newton"``).

    Returns
    -------
    PrivatePipeline
        ``SchemaEncoder(schema, formula=formula)`` and the estimator, with the classes or bounds of
        the target, and with an intercept unless the formula omits it. ``fit(table)`` takes the
        targets from the table; ``predict(table)`` does not require them.

    Raises
    ------
    ValueError
        If a term would learn from the rows or is not supported, or the estimator cannot predict
        the target.
    ImportError
        If formulaic is not installed (``pip install 'dpglm[formula]'``).

    Notes
    -----
    Privacy: the formula is public, and each row is mapped by itself: knots, levels, bounds and the
    row norm follow from the schema, never from the table. Python in a formula is parsed, not run.

    Examples
    --------
    >>> import dpglm
    >>> from dpglm.datasets import load_adult
    >>> adult = load_adult()
    >>> model = dpglm.from_formula("income ~ age + I(age**2) + C(sex)", adult.schema, epsilon=1.0)
    >>> model = model.fit({**adult.data, "income": adult.target})
    >>> model.coefficient_names().tolist()
    ['age', 'I(age ** 2)', 'C(sex)[T.Male]']
    """
    encoder = SchemaEncoder(schema, formula=formula)
    design = stated_schema(encoder)
    if estimator is None:
        estimator = _unpenalised(design)
    if not isinstance(estimator, PrivateLinearModel):
        raise ValueError(
            f"estimator must be a linear model of dpglm or None, got {in_one_line(estimator)}"
        )
    facts = design.target.estimator_parameters()
    if not set(facts) <= set(estimator.get_params()):
        raise ValueError(
            f"estimator {in_one_line(estimator)} cannot predict the target {design.target.name!r} "
            "as the schema describes it"
        )
    own = {name: value for name, value in parameters.items() if name not in OF_THE_FIT}
    configured = clone(estimator).set_params(**facts | own)
    if not design.has_intercept:
        configured.set_params(fit_intercept=False)
    elif not configured.fit_intercept:
        raise ValueError(
            f"fit_intercept must be True for the formula {formula!r}, which has an intercept: "
            "without one write '0 +' before its terms"
        )
    shared = {name: value for name, value in parameters.items() if name in OF_THE_FIT}
    return PrivatePipeline([encoder, configured], **shared)


def _unpenalised(schema: Schema) -> PrivateLinearModel:
    """Return the estimator of a target's usual model, by maximum likelihood."""
    by_name: Mapping[str, PrivateLinearModel] = {
        "logistic": LogisticRegression(C=math.inf),
        "ridge": LinearRegression(),
        "poisson": PoissonRegressor(alpha=0.0),
    }
    return by_name[schema.target.default_estimator]
