"""Values and functions that pages share, and the page of a fitted model with its cautions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dpglm._registry import require
from dpglm._words import plain_number, rounded_up, visible
from dpglm.certificate.certificate import Certificate, library_versions
from dpglm.certificate.statement import PROVENANCE, SCOPE, named_facts, value_in_words
from dpglm.certificate.verify import verify
from dpglm.data.prepare import column_units
from dpglm.estimators.additive.models import AdditiveModel
from dpglm.estimators.composed._composed import parts_of
from dpglm.estimators.composed._transformers import (
    check_fixed,
    counts_entries,
    names_after,
    units_after,
)
from dpglm.guidance import CoefficientTable
from dpglm.inference.inference import Inference
from dpglm.pictures import as_data_uri
from dpglm.shapes import shapes_of
from dpglm.shapes.collection import CURVES, errors_of, released_model
from dpglm.shapes.picture import draw_shape, reaches_of, scale_in_words
from dpglm.solvers.uncertainty import NoiseCovariance
from dpglm.tables.encoding import LinearUnits, column_scaling
from dpglm.tables.schema import Schema


def step_cautions(estimator: Any) -> tuple[str, ...]:
    """Return a sentence for each step before a private model that may have learned from rows."""
    cautions = []
    for name, step in parts_of(estimator).transformers:
        subject = f"NOT COVERED: the step {name!r} ({type(step).__name__})"
        try:
            check_fixed(name, step)
        except ValueError:
            cautions.append(
                f"{subject} before the model may have learned from the same rows without a privacy "
                "budget. The guarantee covers the fit of the model only. A PrivatePipeline covers "
                "all steps."
            )
            continue
        if counts_entries(step):
            cautions.append(
                f"{subject} counted the nonzero entries of all rows to choose between dense and "
                "sparse. Set sparse_threshold=0, or use a PrivatePipeline."
            )
    return tuple(cautions)


def title_of(estimator: Any) -> str:
    """Return the name of a fitted model for a heading."""
    if isinstance(estimator, AdditiveModel):
        return type(estimator).__name__
    name: str = parts_of(estimator).model.privacy_.estimator
    return name


TARGET = "target"
"""Name of the output of a regressor."""


def coefficient_table(
    estimator: Any, feature_names: Sequence[str] | None = None, schema: Schema | None = None
) -> CoefficientTable:
    """Return the effects of a fitted estimator and the expected noise, in the units of the user.

    Units are those of the table that ``schema`` encoded, by default the schema of the pipeline or
    of the certificate, or else those of the columns of the fit. Default names are those of the
    effects, of the columns of the pipeline or of the fit, or ``x0``, ...
    """
    parts = parts_of(estimator)
    estimator = parts.model
    check_is_fitted(estimator, "privacy_")
    if schema is None and not parts.transformers:
        schema = estimator.privacy_.schema
    encoded = units_after(parts.transformers) if parts.transformers else None
    table_units = encoded if schema is None else schema.units
    values = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    intercepts = np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))
    n_features = values.shape[1]
    units = LinearUnits.identity(n_features) if table_units is None else table_units
    if units.matrix.shape[1] != n_features + 1:
        raise ValueError(
            f"schema must have {n_features} features, as the model has, got "
            f"{units.matrix.shape[1] - 1}"
        )
    n_effects = units.matrix.shape[0] - 1
    if feature_names is None:
        feature_names = units.names
    if feature_names is None and parts.transformers:
        found = names_after(parts.transformers)
        feature_names = None if found is None else found.tolist()
    if feature_names is None:
        default = [f"x{column}" for column in range(n_features)]
        feature_names = getattr(estimator, "feature_names_in_", default)
    names = tuple(str(name) for name in feature_names)
    if len(names) != n_effects:
        raise ValueError(f"feature_names must have {n_effects} names, got {len(names)}")
    effects = units.coefficients(np.vstack([values.T, intercepts]))
    noise: NoiseCovariance | None = vars(estimator).get("_noise_covariance")
    labels = getattr(estimator, "classes_", None)
    # The one output for two classes is that of the second class.
    outputs = (TARGET,) if labels is None else tuple(map(str, labels[-len(values) :].tolist()))
    return CoefficientTable(
        features=names,
        outputs=outputs,
        values=np.ascontiguousarray(effects[:-1].T),
        noise=None if noise is None else noise.in_units(units).deviations.T,
        reach=_reach(estimator, units),
        of_table=table_units is not None,
        intercepts=effects[-1],
        inference=_inference(estimator, table_units, names),
    )


def _inference(estimator: Any, units: LinearUnits | None, names: Sequence[str]) -> Inference | None:
    """Return the inference of an estimator in the units of a table, if there is one."""
    own: Inference | None = getattr(estimator, "inference_", None)
    if own is None:
        return None
    # The certificate may have been amended with the table since the fit.
    own = dataclasses.replace(own.of_features, certificate=estimator.privacy_)
    if units is None:
        return dataclasses.replace(own, estimates=own.estimates.renamed(names))
    return own.in_units(units, names)


def _reach(estimator: Any, units: LinearUnits) -> NDArray[np.float64]:
    """Return half the width of the declared bounds of each column; 1 without bounds."""
    if units.matrix.shape[0] != units.matrix.shape[1]:
        # Effects are values of curves, which do not depend on units.
        return np.ones(units.matrix.shape[0] - 1)
    data, bounds = estimator.solution_.plan.data, estimator.privacy_.fact("feature_bounds")
    scaling = None if bounds is None else column_scaling(bounds.value, data.n_features)
    slopes = units.after(column_units(data, scaling)).matrix.diagonal()[: data.n_features]
    reach: NDArray[np.float64] = 1.0 / np.abs(slopes)
    return reach


_MOST_OPEN, _MOST = 12, 36


def shapes_view(estimator: Any, *, common_scale: bool = False) -> dict[str, Any] | None:
    """Return the curves of a fitted model for a template; None for models without curves."""
    schema = estimator.privacy_.schema
    if schema is None or not _has_curves(schema):
        return None
    shapes = shapes_of(released_model(estimator, schema, errors_of(estimator)))
    largest = shapes.by_importance
    reaches = reaches_of(largest, common=common_scale)
    panels = [
        (
            f"{one.term}: effects from {one.values.min():.3g} to {one.values.max():.3g}",
            as_data_uri(draw_shape(one, reaches[one.term])),
        )
        for one in largest[:_MOST]
    ]
    curves = estimator.privacy_.fact(CURVES)
    made = "" if curves is None else f" Curves: {curves.value}."
    return {
        "is_additive": schema.additive is not None,
        "about": f"{scale_in_words(shapes, common=common_scale)} {shapes.band}{made}",
        "first": panels[:_MOST_OPEN],
        "folded": panels[_MOST_OPEN:],
        "left_out": len(largest) - len(panels),
        "edits": [(one.term, one.edit) for one in largest if one.edit],
    }


def _has_curves(schema: Schema) -> bool:
    """Whether a model of a schema is additive, or its formula has splines and pairs at most."""
    if schema.additive is not None:
        return True
    if schema.formula is None:
        return False
    terms = schema.encoding.named_terms
    splines = (one for one in terms if len(one.columns) == 1 and not one.levels)
    few = all(len(one.columns) <= 2 for one in terms)
    return few and any(len(one.coefficients) > 1 for one in splines)


NARROW = 4.4
"""Width of pictures for narrow screens, in inches."""


def page_of(
    template: str, certificate: Certificate, *, cautions: Sequence[str] = (), **shown: Any
) -> str:
    """Render a template with a certificate and values of its own; all text is escaped."""
    return rendered(
        template,
        certificate=certificate,
        sections=dict(certificate.sections()),
        facts=[
            (name, fact.value, fact.provenance, PROVENANCE[fact.provenance])
            for name, fact in named_facts(certificate)
        ],
        spending=certificate.spending(),
        verification=verify(certificate).beside(cautions),
        scope=SCOPE,
        **shown,
    )


def rendered(template: str, **shown: Any) -> str:
    """Render a template; all text is escaped."""
    jinja2 = require("jinja2", "report")
    folder = resources.files("dpglm.report") / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        # Markup that is marked as safe has another type.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number=_number, up=rounded_up, value=value_in_words)
    page: str = environment.get_template(template).render(
        version=library_versions()["dpglm"], **shown
    )
    return page


def shown_figures(figures: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return captions with pictures for wide screens, and for narrow ones or None."""
    for text, one in figures.items():
        if not isinstance(one, tuple) and not callable(getattr(one, "savefig", None)):
            raise ValueError(f"figures must be Matplotlib's, got {one!r} for {text!r}")
    pairs = {text: one if isinstance(one, tuple) else (one, None) for text, one in figures.items()}
    return [
        (text, as_data_uri(wide), None if narrow is None else as_data_uri(narrow))
        for text, (wide, narrow) in pairs.items()
    ]


def _number(value: Any) -> str:
    if isinstance(value, bool | str):
        return value_in_words(value)
    return plain_number(value) if isinstance(value, int | float) else value_in_words(value)
