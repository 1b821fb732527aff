"""Numbers in words, and HTML cards for notebooks."""

from __future__ import annotations

import difflib
import html
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal


def rounded_up(value: float, digits: int = 4) -> str:
    """Write a privacy loss with few digits, rounded up.

    >>> rounded_up(0.99999994), rounded_up(0.123401), rounded_up(1e-5)
    ('1', '0.1235', '1e-05')
    """
    # repr, as the exact binary value of 1e-5 is slightly larger.
    short = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(short):.{digits}g}"


def plain_number(value: float, digits: int = 4) -> str:
    """Write a number with few digits, and with an exponent only for unusual sizes.

    >>> plain_number(32561), plain_number(0.25), plain_number(123456.7), plain_number(1.2e-7)
    ('32561', '0.25', '123457', '1.2e-07')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.{digits}g}"


def times(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def each(count: int) -> str:
    """Return "with" for a count of 1, else "each with"."""
    return "with" if count == 1 else "each with"


def named_numbers(values: Mapping[str, float]) -> str:
    """Write named numbers on one line."""
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items())


def did_you_mean(given: object, known: Iterable[object]) -> str:
    """Return the most similar of several names as a remedy; empty if none is similar.

    >>> did_you_mean("agee", ["age", "sex"])
    " (did you mean 'age'?)"
    """
    names = {str(one).casefold(): one for one in known}
    # Codes of three letters that differ in one are not similar.
    near = difflib.get_close_matches(str(given).casefold(), names, n=1, cutoff=0.7)
    return f" (did you mean {names[near[0]]!r}?)" if near else ""


_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def visible(text: str) -> str:
    r"""Replace invisible characters: control, changes of direction, lone surrogates.

    >>> visible("a\tb"), visible("\u202ea") == "\ufffda"
    ('a b', True)
    """
    if text.isprintable():
        return text
    # Category C: control, format (such as direction), surrogate, private and unassigned.
    return "".join(
        " " if one.isspace() else _UNKNOWN if unicodedata.category(one)[0] == "C" else one
        for one in text
    )


def card(
    title: str,
    pairs: Iterable[tuple[str, object]],
    *,
    warnings: Iterable[str] = (),
    sections: Iterable[tuple[str, Sequence[str]]] = (),
) -> str:
    """Return a heading, a table, warnings and folded sections as one HTML element.

    All text is escaped; scripts, classes and references are absent.
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


# Cautions about weak budgets.

LARGEST_EPSILON = 10.0
"""Largest epsilon without a caution."""
_LARGEST_DELTA = 0.01
# For the rounding of 1/n.
_ALMOST = 1.0 - 1e-9


def weak(epsilon: float, delta: float, n_units: int | None) -> tuple[str, ...]:
    """Return the cautions about a large epsilon, and a delta that allows publishing rows.

    An epsilon up to 1 is strong, up to 10 reasonable (Ponomareva et al., "How to DP-fy ML", JAIR
    77, 2023); above, a guess that is right with 1 % may become right with 99 %. A delta of 1/n or
    0.01 allows publishing a row at random (Dwork and Roth 2014, section 2.3).
    """
    found = []
    if epsilon > LARGEST_EPSILON:
        found.append(f"epsilon {rounded_up(epsilon)} protects little; 1 is a usual choice.")
    # A quotient, because a file may hold a number of rows beyond floats.
    if n_units is not None and delta > 0.0 and n_units >= _ALMOST / delta:
        found.append(
            f"delta {rounded_up(delta)} is at least 1/{n_units}: publishing a row at random would "
            "be allowed. Choose it far below, or 'auto'."
        )
    elif delta >= _LARGEST_DELTA:
        found.append(
            f"delta {rounded_up(delta)} is at least {_LARGEST_DELTA:g}: publishing each row with "
            "that probability would be allowed. Choose it far below, or 'auto'."
        )
    return tuple(found)
