"""Pages from templates: what all of them share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from dpglm._extras import require
from dpglm._html import visible
from dpglm._words import plain_number, rounded_up
from dpglm.certificate.certificate import library_versions
from dpglm.certificate.facts import PublicFact
from dpglm.certificate.statement import PROVENANCE, value_in_words
from dpglm.certificate.verdict import verdict
from dpglm.certificate.verify import Verification
from dpglm.pictures.drawing import as_data_uri

__all__ = ["NARROW", "page_of", "shown_figures"]

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
