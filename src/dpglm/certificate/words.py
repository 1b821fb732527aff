"""Numbers, events and provenance in plain words, for certificates and pages."""

from __future__ import annotations

import functools
import itertools
from decimal import ROUND_CEILING, Context, Decimal

from dpglm.privacy.events import (
    BoundedRange,
    Event,
    Gaussian,
    Laplace,
    LastIterate,
    ObjectivePerturbation,
    Parallel,
    PoissonSampled,
    ProjectedGaussian,
    Pure,
    RandomlyRepeated,
    canonical,
)

__all__ = ["describe_event", "plain_number", "rounded_up"]


def rounded_up(value: float, digits: int = 4) -> str:
    """Write a privacy loss with few digits, never smaller than it is.

    Parameters
    ----------
    value : float
        At least 0, finite.
    digits : int, default=4
        Significant digits.

    Returns
    -------
    str

    Examples
    --------
    >>> rounded_up(0.99999994), rounded_up(0.123401), rounded_up(1e-5)
    ('1', '0.1235', '1e-05')
    """
    # repr, not the exact binary value: 1e-5 as a float is a little above one hundred-thousandth.
    short = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(repr(value)))
    return f"{float(short):.{digits}g}"


def plain_number(value: float, digits: int = 4) -> str:
    """Write a number with few digits, without an exponent where it has a usual size.

    Examples
    --------
    >>> plain_number(32561), plain_number(0.25), plain_number(123456.7), plain_number(1.2e-7)
    ('32561', '0.25', '123457', '1.2e-07')
    """
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:.0f}"
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.{digits}g}"


def describe_event(event: Event) -> tuple[str, ...]:
    """Say what was released, one sentence for each kind of release.

    Parameters
    ----------
    event : Event
        Any event.

    Returns
    -------
    tuple of str
        Empty if nothing was released.

    Examples
    --------
    >>> from dpglm.privacy.events import Repeated
    >>> describe_event(Repeated(Gaussian(37.306), 100))
    ('100 sums over all rows, each with Gaussian noise of 37.31 times what one row can change',)
    """
    return tuple(_describe(basic, count) for basic, count in canonical(event).terms())


@functools.singledispatch
def _describe(event: Event, count: int) -> str:
    return f"{_times(count, 'release')} of the form {event!r}"


@_describe.register
def _(event: Gaussian, count: int) -> str:
    noise = plain_number(event.noise_multiplier)
    return (
        f"{_times(count, 'sum')} over all rows, {_each(count)} Gaussian noise of {noise} times "
        "what one row can change"
    )


@_describe.register
def _(event: PoissonSampled, count: int) -> str:
    noise = plain_number(event.event.noise_multiplier)
    share = plain_number(100.0 * event.sampling_rate, 3)
    return (
        f"{_times(count, 'sum')} over a fresh random sample ({share} % of the rows on average), "
        f"{_projected(event.event, count)}{_each(count)} Gaussian noise of {noise} times what one "
        "row can change"
    )


@_describe.register
def _(event: LastIterate, count: int) -> str:
    noise = plain_number(event.noise_multiplier)
    return (
        f"{'The last iterate' if count == 1 else _times(count, 'last iterate')} of {event.steps} "
        f"steps whose results in between stay "
        f"secret, each step with Gaussian noise of {noise} times what one row can change and "
        f"contracting by a factor of {_factor(event.contraction)}"
    )


@_describe.register
def _(event: Laplace, count: int) -> str:
    noise = plain_number(event.noise_multiplier)
    return (
        f"{_times(count, 'number')}, {_each(count)} Laplace noise of scale {noise} times what "
        "one row can change"
    )


@_describe.register
def _(event: Pure, count: int) -> str:
    return (
        f"{_times(count, 'release')} (noisy numbers or a noisy choice), {_each(count)} an epsilon "
        f"of {rounded_up(event.epsilon)} and a delta of 0 by itself"
    )


@_describe.register
def _(event: BoundedRange, count: int) -> str:
    return (
        f"{_times(count, 'random choice')} among candidates, the better ones likelier (exponential "
        f"mechanism, epsilon = {rounded_up(event.epsilon)})"
    )


@_describe.register
def _(event: ObjectivePerturbation, count: int) -> str:
    noise = plain_number(event.noise_multiplier)
    return (
        f"{_times(count, 'minimiser')} of an objective with a random linear term, {_each(count)} "
        f"Gaussian noise of {noise} times what one row can change in the gradient, and a quadratic "
        f"penalty of {plain_number(1.0 / event.curvature_ratio)} times one row's curvature"
    )


@_describe.register
def _(event: ProjectedGaussian, count: int) -> str:
    noise = plain_number(event.noise_multiplier)
    return (
        f"{_times(count, 'sum')} over all rows, {_projected(event, count)}{_each(count)} Gaussian "
        f"noise of {noise} times what one row can change before that"
    )


@_describe.register
def _(event: Parallel, count: int) -> str:
    found, first = [], 1
    # Equal parts stand next to each other.
    for part, equal in itertools.groupby(event.events):
        last = first + len(list(equal)) - 1
        which = f"part {first}" if first == last else f"each of parts {first} to {last}"
        found.append(f"{which}: {' and '.join(describe_event(part)) or 'nothing'}")
        first = last + 1
    parts = "; ".join(found)
    times = "" if count == 1 else f"{count} times, "
    return f"{times}about disjoint parts of the rows, each row being in one: {parts}"


@_describe.register
def _(event: RandomlyRepeated, count: int) -> str:
    tried = " or ".join(" and ".join(describe_event(one)) or "nothing" for one in event.events)
    lead = "The best" if count == 1 else f"{count} times the best"
    return (
        f"{lead} of a random, secret number of tries "
        f"({plain_number(event.repetitions.mean)} on average), each try being: {tried}"
    )


@functools.singledispatch
def _projected(event: Event, count: int) -> str:
    """Say how a sum is projected before noise is added, if it is."""
    return ""


@_projected.register
def _(event: ProjectedGaussian, count: int) -> str:
    directions = _times(event.dimension, "random public direction")
    return f"{'' if count == 1 else 'each '}seen from {directions}, "


def _factor(contraction: float) -> str:
    room = 1.0 - contraction
    return f"1 - {room:.2g}" if 0.0 < room < 1e-3 else plain_number(contraction)


def _times(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _each(count: int) -> str:
    return "with" if count == 1 else "each with"
