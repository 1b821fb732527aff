"""Numbers in plain words, for certificates and pages."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import ROUND_CEILING, Context, Decimal

__all__ = ["each", "named_numbers", "plain_number", "rounded_up", "times"]


def rounded_up(value: float, digits: int = 4) -> str:
    """Write a privacy loss with few digits, never smaller than it is.

    >>> rounded_up(0.99999994), rounded_up(0.123401), rounded_up(1e-5)
    ('1', '0.1235', '1e-05')
    """
    # repr, not the exact binary value: 1e-5 as a float is a little above one hundred-thousandth.
    short = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(short):.{digits}g}"


def plain_number(value: float, digits: int = 4) -> str:
    """Write a number with few digits, without an exponent where it has a usual size.

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
    """Return "with" for one thing, "each with" for several."""
    return "with" if count == 1 else "each with"


def named_numbers(values: Mapping[str, float]) -> str:
    """Write named numbers, such as a charge, on one line."""
    return ", ".join(f"{name} {value:.6g}" for name, value in values.items())
