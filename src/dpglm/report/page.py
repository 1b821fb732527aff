"""Pages from templates: what all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from dpglm._registry import require
from dpglm._words import plain_number, rounded_up, visible
from dpglm.certificate.certificate import library_versions
from dpglm.certificate.statement import PROVENANCE, PublicFact, value_in_words
from dpglm.certificate.verify import Verification, verdict
from dpglm.estimators._shapes import CURVES, released_model
from dpglm.pictures.drawing import as_data_uri
from dpglm.shapes import Shape, shapes_of
from dpglm.shapes.picture import draw_shape, reach_of, scale_in_words
from dpglm.tables.schema import Schema

# The section of a page about what each column of an additive model does.

_MOST_OPEN, _MOST = 12, 36


def shapes_view(estimator: Any) -> dict[str, Any] | None:
    """Return the panels of a fitted linear model of curves; None for other models."""
    fact = estimator.privacy_.fact("schema")
    schema = None if fact is None else Schema.from_dict(fact.value)
    if schema is None or schema.additive is None:
        return None
    shapes = shapes_of(released_model(estimator, schema))
    largest = shapes.by_importance
    reach = reach_of(largest)
    panels = [(_in_words(one), as_data_uri(draw_shape(one, reach))) for one in largest[:_MOST]]
    curves = estimator.privacy_.fact(CURVES)
    made = "" if curves is None else f" Curves: {curves.value}."
    return {
        "about": f"{scale_in_words(shapes)} {shapes.band}{made}",
        "first": panels[:_MOST_OPEN],
        "folded": panels[_MOST_OPEN:],
        "left_out": len(largest) - len(panels),
        "edits": [(one.term, one.edit) for one in largest if one.edit],
    }


def _in_words(shape: Shape) -> str:
    low, high = float(shape.values.min()), float(shape.values.max())
    return f"{shape.term}: effects from {low:.3g} to {high:.3g}"


NARROW = 4.4
"""Inches of a picture for a narrow screen."""


def page_of(
    template: str,
    certificate: Any,
    verification: Verification,
    *,
    cautions: Sequence[str] = (),
    **shown: Any,
) -> str:
    """Fill in a template of ``report/templates`` with what was found, and what it cost.

    The certificate is that of a fit or of a study; ``shown`` are the template's own values. Every
    text is escaped.
    """
    jinja2 = require("jinja2", "report")
    folder = resources.files("dpglm.report") / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text("utf-8")),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        # What is marked as safe is of another type.
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters.update(number=_number, up=rounded_up, value=value_in_words)
    facts: tuple[PublicFact, ...] = certificate.public_facts
    page: str = environment.get_template(template).render(
        version=library_versions()["dpglm"],
        certificate=certificate,
        sections=dict(certificate.sections()),
        facts=[
            (fact.name, fact.value, fact.provenance, PROVENANCE[fact.provenance]) for fact in facts
        ],
        spending=certificate.spending(),
        verification=verification,
        verdict=verdict(verification, cautions),
        **shown,
    )
    return page


def shown_figures(figures: Mapping[str, Any]) -> list[tuple[str, str, str | None]]:
    """Return pictures with what they show: for wide screens, and for narrow ones or None.

    A figure may be two: one for wide screens, one for narrow ones.
    """
    pairs = {text: one if isinstance(one, tuple) else (one, None) for text, one in figures.items()}
    return [
        (text, as_data_uri(wide), None if narrow is None else as_data_uri(narrow))
        for text, (wide, narrow) in pairs.items()
    ]


def _number(value: Any) -> str:
    if isinstance(value, bool | str):
        return value_in_words(value)
    return plain_number(value) if isinstance(value, int | float) else value_in_words(value)
