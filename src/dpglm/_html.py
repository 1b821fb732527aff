"""Short descriptions of objects as HTML, for notebooks, with all text escaped."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence

__all__ = ["card", "visible"]

_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def visible(text: str) -> str:
    r"""Replace invisible characters: control, changes of direction, lone surrogates.

    >>> visible("a\tb"), visible("\u202ea") == "\ufffda"
    ('a b', True)
    """
    if text.isprintable():
        return text
    return "".join(" " if one.isspace() else _shown(one) for one in text)


def card(
    title: str,
    pairs: Iterable[tuple[str, object]],
    *,
    warnings: Iterable[str] = (),
    sections: Iterable[tuple[str, Sequence[str]]] = (),
) -> str:
    """Return a heading, a table, warnings, and sections to unfold, as one HTML element.

    Without scripts, classes or references; every text is escaped.
    """
    rows = "".join(
        f'<tr><th style="text-align:left">{_text(name)}</th>'
        f'<td style="text-align:left">{_text(value)}</td></tr>'
        for name, value in pairs
    )
    said = "".join(
        f'<p style="color:#b04200;font-weight:600;margin:.3em 0">{_text(one)}</p>'
        for one in warnings
    )
    hidden = "".join(
        f"<details><summary>{_text(heading)}</summary><ul>"
        + "".join(f"<li>{_text(sentence)}</li>" for sentence in sentences)
        + "</ul></details>"
        for heading, sentences in sections
    )
    return f"<div><strong>{_text(title)}</strong>{said}<table>{rows}</table>{hidden}</div>"


def _text(value: object) -> str:
    return html.escape(visible(str(value)))


def _shown(character: str) -> str:
    # Control, format (such as a change of direction), surrogate, private and unassigned ones.
    return _UNKNOWN if unicodedata.category(character)[0] == "C" else character
