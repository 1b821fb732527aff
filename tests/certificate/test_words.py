"""Numbers and events in words."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpglm._words import plain_number, rounded_up
from dpglm.certificate.statement import value_in_words
from dpglm.privacy.events import (
    Composed,
    Gaussian,
    Laplace,
    LastIterate,
    PoissonSampled,
    Repeated,
    describe_event,
)


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_privacy_losses_are_never_rounded_down(value):
    shown = Decimal(rounded_up(value))
    assert Decimal(repr(value)) <= shown <= Decimal(repr(value)) * Decimal("1.0011")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1.0, "1"), (0.99999, "1"), (2.00001, "2.001"), (12.3456, "12.35")],
)
def test_rounded_up(value, text):
    assert rounded_up(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (3.0, "3"),
        (0.12345, "0.1235"),
        (1e-7, "1e-07"),
        (48842.4, "48842"),
        (1e20, "1e+20"),
    ],
)
def test_plain_number(value, text):
    assert plain_number(value) == text


@pytest.mark.parametrize(
    ("event", "parts"),
    [
        (Gaussian(2.0), ["1 sum over all rows, with Gaussian noise of 2 times"]),
        (Repeated(Gaussian(2.0), 7), ["7 sums over all rows, each with"]),
        (PoissonSampled(0.01, Gaussian(1.5)), ["fresh random sample (1 % of the rows on average)"]),
        (LastIterate(3.0, 0.5, 40), ["last iterate of 40 steps", "secret"]),
        (LastIterate(3.0, 1.0 - 2e-7, 40), ["contracting by a factor of 1 - 2e-07"]),
        (Laplace(4.0), ["Laplace noise of scale 4"]),
    ],
)
def test_every_event_has_words(event, parts):
    (sentence,) = describe_event(event)
    for part in parts:
        assert part in sentence


def test_composed_events_are_listed_and_merged():
    event = Composed((Gaussian(1.0), Laplace(1.0), Gaussian(1.0)))
    assert [sentence.split()[0] for sentence in describe_event(event)] == ["2", "1"]
    assert describe_event(Composed(())) == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "yes"),
        (["a", "b"], "a, b"),
        ({"0": 1.0, "1": 2.5}, "0: 1, 1: 2.5"),
        ([[0.0, 1.0], [1.0, 2.0]], "[0, 1], [1, 2]"),
        (None, "None"),
    ],
)
def test_values(value, text):
    assert value_in_words(value) == text


def test_long_values_are_cut():
    text = value_in_words(list(range(1000)))
    assert text.endswith(" ...")
    assert len(text) < 110
