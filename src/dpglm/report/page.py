"""Values and functions that all page templates share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from dpglm._registry import require
from dpglm._words import plain_number, rounded_up, visible
from dpglm.certificate.certificate import library_versions
from dpglm.certificate.statement import PROVENANCE, named_facts, value_in_words
from dpglm.certificate.verify import Verification, verdict
from dpglm.estimators._shapes import CURVES, errors_of, released_model
from dpglm.pictures import as_data_uri
from dpglm.shapes import Shape, shapes_of
from dpglm.shapes.picture import draw_shape, reaches_of, scale_in_words
from dpglm.tables.schema import Schema

_MOST_OPEN, _MOST = 12, 36


def shapes_view(estimator: Any, *, common_scale: bool = False) -> dict[str, Any] | None:
    """Return the curves of a fitted model for a template; None for models without curves."""
    fact = estimator.privacy_.fact("schema")
    schema = None if fact is None else Schema.from_dict(fact.value)
    if schema is None or not _has_curves(schema):
        return None
    shapes = shapes_of(released_model(estimator, schema, errors_of(estimator)))
    largest = shapes.by_importance
    reaches = reaches_of(largest, common=common_scale)
    panels = [
        (_in_words(one), as_data_uri(draw_shape(one, reaches[one.term]))) for one in largest[:_MOST]
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
    terms = schema.named_terms
    splines = (one for one in terms if len(one.columns) == 1 and not one.levels)
    few = all(len(one.columns) <= 2 for one in terms)
    return few and any(len(one.coefficients) > 1 for one in splines)


def _in_words(shape: Shape) -> str:
    low, high = float(shape.values.min()), float(shape.values.max())
    return f"{shape.term}: effects from {low:.3g} to {high:.3g}"


NARROW = 4.4
"""Width of pictures for narrow screens, in inches."""


def page_of(
    template: str,
    certificate: Any,
    verification: Verification,
    *,
    cautions: Sequence[str] = (),
    **shown: Any,
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
        verification=verification,
        verdict=verdict(verification, cautions),
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
