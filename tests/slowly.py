"""The cases that `make test` tries; the others are left to `make slow`."""

import pytest

__all__ = ["first_quickly", "some_quickly"]


def first_quickly(first, *others):
    """Cases with a quick first one; the others repeat its evidence with other numbers."""
    return some_quickly([first, *others], 1 + len(others))


def some_quickly(cases, step):
    """Cases with one in n quick."""
    return [
        case if number % step == 0 else pytest.param(*_values(case), marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


def _values(case):
    return case if isinstance(case, tuple) else (case,)
