"""The cases that `make test` tries; the others are left to `make slow`."""

import pytest

__all__ = ["first_quickly", "slowly", "some_quickly"]


def slowly(cases):
    """Cases that are all left to `make slow`."""
    return [pytest.param(*_values(case), marks=pytest.mark.slow) for case in cases]


def first_quickly(first, *others):
    """Cases with a quick first one; the others repeat its evidence with other numbers."""
    return some_quickly([first, *others], 1 + len(others))


def some_quickly(cases, step):
    """Cases with one in n quick."""
    return [
        one
        for number, case in enumerate(cases)
        for one in ([case] if number % step == 0 else slowly([case]))
    ]


def _values(case):
    return case if isinstance(case, tuple) else (case,)
