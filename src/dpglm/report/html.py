"""HTML page about a private fit (extras ``report`` and ``plot``)."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from sklearn.utils.validation import check_is_fitted

from dpglm._calls import checked
from dpglm.certificate.certificate import Certificate
from dpglm.estimators.composed._composed import parts_of
from dpglm.guidance import CoefficientTable, guidance
from dpglm.inference.summary import loss_in_words
from dpglm.inference.table import MARKS
from dpglm.inference.table import table as model_table
from dpglm.ledger.store import write_text
from dpglm.pictures import as_data_uri
from dpglm.report import plots
from dpglm.report.page import (
    NARROW,
    coefficient_table,
    page_of,
    shapes_view,
    shown_figures,
    step_cautions,
    title_of,
)
from dpglm.report.plots import draw_table
from dpglm.solvers.base import Plan
from dpglm.solvers.uncertainty import Solution
from dpglm.tables.schema import Schema

__all__ = ["report_page", "write_report"]

_WIDTHS = (7.2, NARROW)
_MOST_COEFFICIENTS = 40
_MOST_OUTPUTS = 12
_MOST_RATIOS = 60
_NO_BOUNDS = ("inf", "-inf")

_Table: TypeAlias = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""Title, column headings, and rows of text."""


@checked
def report_page(
    estimator: Any,
    *,
    title: str | None = None,
    feature_names: Sequence[str] | None = None,
    schema: Schema | None = None,
    scores: Mapping[str, float | str] | None = None,
    figures: Mapping[str, Any] | None = None,
    common_scale: bool = False,
) -> str:
    """Return a page about a fitted model, its privacy and its noise.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, PrivatePipeline, or Pipeline of scikit-learn
        A pipeline of scikit-learn must end with one of the others. The page warns of earlier steps
        that may have learned from the rows.
    title : str, optional
        Heading; by default the name of the estimator.
    feature_names : sequence of str, optional
        Names of the effects; by default those of the table or of the fit.
    schema : Schema, optional
        Schema that encoded the table of the fit, so that effects are shown in the units of the
        table; by default that of the pipeline, or of the certificate.
    scores : mapping from str to float or str, optional
        Scores to show, such as ``{"Accuracy on test rows": 0.85}``, computed from public rows.
    figures : mapping from str to Matplotlib figure, or to two, optional
        Further pictures by caption: a figure, or a pair for wide and for narrow screens.
    common_scale : bool, default=False
        Whether all panels of curves have the same scale; otherwise each its own.

    Returns
    -------
    str
        Self-contained HTML.

    Raises
    ------
    ValueError
        If ``estimator`` does not contain a private estimator.

    Notes
    -----
    Privacy: the page shows released values and public facts. The guarantee does not cover
    ``scores`` and ``figures``.
    """
    model = parts_of(estimator).model
    check_is_fitted(model, "privacy_")
    table = coefficient_table(estimator, feature_names, schema)
    return page_of(
        "report.html.j2",
        model.privacy_,
        cautions=step_cautions(estimator),
        title=title or title_of(estimator),
        scores=scores or {},
        **model_view(model, table, figures, common_scale=common_scale),
    )


def model_view(
    estimator: Any,
    table: CoefficientTable,
    figures: Mapping[str, Any] | None = None,
    *,
    common_scale: bool = False,
) -> dict[str, Any]:
    """Return the coefficients, pictures and settings of a fitted model for a template."""
    plan, certificate = estimator.solution_.plan, estimator.privacy_
    pictures = {**(figures or {}), **_pictures(estimator.solution_)}
    shapes = shapes_view(estimator, common_scale=common_scale)
    notes: tuple[str, ...] = ()
    n_features = len(table.features)
    if table.inference is not None:
        n_features -= int(table.inference.estimates.is_pooled.sum())
        summary = table.inference.summary()
        pooled = [f"{name}: {text}." for name, text in summary.facts if name == "Random intercepts"]
        notes = (*pooled, *summary.notes)
    return {
        "loss": loss_in_words(certificate),
        "coefficients": {
            "picture": as_data_uri(draw_table(table)),
            "narrow": as_data_uri(draw_table(table, width=NARROW)),
            "ratios": _ratios(table),
            "tables": _tables(table),
            "noise_is_known": table.noise is not None,
            "notes": notes,
            "n_features": n_features,
            "n_shown": min(n_features, _MOST_COEFFICIENTS),
            "of_table": table.of_table,
            "compares": any(" vs " in name for name in table.features),
            "has_knots": shapes is not None and shapes["is_additive"],
            "n_outputs": len(table.outputs),
        },
        "shapes": shapes,
        "expected": guidance(plan, table).sections(),
        "pictures": shown_figures(pictures),
        "settings": _settings(certificate, plan),
    }


@checked
def write_report(estimator: Any, path: str | os.PathLike[str], **options: Any) -> None:
    """Write the page of ``report_page`` to a file, whole or not at all.

    Parameters
    ----------
    estimator : fitted estimator of dpglm, PrivatePipeline, or Pipeline of scikit-learn
        See ``report_page``.
    path : path-like
        The file; an OSError is raised if it cannot be written.
    **options
        Options of ``report_page``.
    """
    write_text(path, report_page(estimator, **options))


def _pictures(solution: Solution) -> dict[str, Any]:
    if any(math.isfinite(info.gradient_norm) for info in solution.history):
        text = "Norm of the noisy gradient in each step, compared with noise alone."
        return {text: tuple(plots.training_history(solution, width=width) for width in _WIDTHS)}
    return {}


def _settings(certificate: Certificate, plan: Plan) -> dict[str, list[tuple[str, Any]]]:
    document = {**certificate.plan}
    method = dict(document["method"])
    problem = method.pop("problem")
    own = [(name, one) for name, one in method.items() if name not in document]
    groups: dict[str, list[tuple[str, Any]]] = {
        "Solver": [
            ("algorithm", plan.method.algorithm),
            *own,
            ("expected noise in a coefficient", plan.coefficient_noise),
        ],
        "Problem": list(problem.items()),
        "Data": [(name, one) for name, one in document["data"].items() if one not in _NO_BOUNDS],
    }
    for release in certificate.releases:
        groups[f"Noise in each {release.quantity}"] = [
            ("times", release.count),
            ("bound on the contribution of a row", release.contribution_bound),
            ("noise", release.mechanism.in_words),
            ("noise scale", release.scale.std),
            ("values", release.coordinates),
        ]
    groups["Versions"] = list(certificate.versions.items())
    return groups


def _tables(table: CoefficientTable) -> list[_Table]:
    """Return tables of the intercepts and the largest coefficients."""
    inference = table.inference
    if inference is not None:
        first = len(inference.names) - len(table.features)
        order = [*range(first), *(first + table.largest(0, len(table.features)))]
        # A summary leaves out levels of pooled factors.
        kept = np.flatnonzero(~inference.estimates.is_pooled).tolist()
        which = [kept.index(one) for one in order if one in kept][: first + _MOST_COEFFICIENTS]
        summary, title = inference.summary(), "" if table.ratio is None else "Coefficients"
        cells = summary.cells()
        return [(title, tuple(one.heading for one in summary.columns), [cells[i] for i in which])]
    tables: list[_Table] = []
    for output, name in enumerate(table.outputs[:_MOST_OUTPUTS]):
        names = (*table.features, "intercept")
        values = np.append(table.values[output], table.intercepts[output])
        shown = (len(table.features), *table.largest(output, _MOST_COEFFICIENTS))
        title = f"class {name}" if len(table.outputs) > 1 else ""
        headings: tuple[str, ...] = ("coefficient",)
        rows: list[tuple[str, ...]] = [(names[one], f"{values[one]:.3g}") for one in shown]
        if table.noise is not None:
            headings, noise = ("coefficient", "noise"), table.noise[output]
            rows = [_row(names[one], float(values[one]), float(noise[one])) for one in shown]
        tables.append((title, headings, rows))
    return tables


def _ratios(table: CoefficientTable) -> dict[str, Any] | None:
    """Return odds ratios or rate ratios with reference rows, of the terms that explain most."""
    inference = table.inference
    if inference is None or table.ratio is None:
        return None
    pooled = {inference.names[one] for one in np.flatnonzero(inference.estimates.is_pooled)}
    terms = {
        name: one
        for name, one in inference.named.terms.items()
        if pooled.isdisjoint(one.coefficients)
    }
    ordered = sorted(terms, key=lambda name: -table.explained[name])
    sizes = np.cumsum([1 + max(len(terms[name].levels), 1) for name in ordered])
    chosen = set(ordered[: max(int((sizes <= _MOST_RATIOS).sum()), 1)])
    made = model_table({"": inference}, terms=[one for one in terms if one in chosen])
    _, rows, _ = made.sections
    return {
        "name": table.ratio,
        "rows": rows,
        "left_out": len(terms) - len(chosen),
        "notes": [one for one in made.notes if one.startswith(MARKS)],
    }


def _row(name: str, value: float, noise: float) -> tuple[str, ...]:
    """Write a coefficient with the digits that are meaningful given its noise."""
    decimals = 1 - math.floor(math.log10(noise)) if noise > 0.0 else 4
    if 0 <= decimals <= 6:
        return name, f"{value:.{decimals}f}", f"{noise:.{decimals}f}"
    return name, f"{value:.3g}", f"{noise:.2g}"
