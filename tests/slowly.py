"""The cases that `make test` tries; the others are left to `make slow`."""

import functools
import inspect

import pytest

__all__ = ["first_quickly", "slowly", "some_quickly", "together"]


def together(names, cases, ids=None):
    """Parametrize a test as ``pytest.mark.parametrize`` does, with all cases in one test.

    Handing out and reporting a test takes longer than most small cases take. A case that fails
    ends the test, and is named below the error. Noise of the operating system goes on from case
    to case.
    """
    keys = [one.strip() for one in names.split(",")] if isinstance(names, str) else list(names)
    cases = [case if len(keys) > 1 else (case,) for case in cases]

    def decorated(test):
        @functools.wraps(test)
        def of_all(*args, **kwargs):
            for case in cases:
                given = dict(zip(keys, case, strict=True))
                try:
                    test(*args, **kwargs, **given)
                except Exception as error:
                    error.add_note(f"case: {given!r}")
                    raise

        signature = inspect.signature(test)
        kept = [one for name, one in signature.parameters.items() if name not in keys]
        of_all.__signature__ = signature.replace(parameters=kept)
        return of_all

    return decorated


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
