"""What of many cases `make test` tries; the others are left to `make slow`."""

import pytest

__all__ = ["first_quickly"]


def first_quickly(first, *others):
    """Cases of which the first is quick; the others repeat its evidence with other numbers."""
    return [first, *(pytest.param(*_values(case), marks=pytest.mark.slow) for case in others)]


def _values(case):
    return case if isinstance(case, tuple) else (case,)
